"""The doubles of code hosts with the providers that write to them, for all suites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from criticizer.codehosts.base import Host
from criticizer.codehosts.client import TokenConfig
from criticizer.codehosts.gitea.host import GiteaHost
from criticizer.codehosts.github.client import GitHub
from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.github.tokens import AppConfig
from criticizer.codehosts.gitlab.host import GitLabHost
from criticizer.http_client import Limits
from notifications.providers.pull_requests.provider import PullRequests
from notifications.providers.pull_requests.reviews import Reviews
from notifications.recipients import host_of
from tests.fakes.accounts import TOKEN, AccountServer, GiteaServer, GitLabServer
from tests.fakes.github import APP_ID, SLUG, GitHubServer, Repo, private_key, reviewed_tokens_of, tokens_of

SERVERS: Mapping[str, type[GitHubServer]] = {
    "github": GitHubServer, "gitea": GiteaServer, "gitlab": GitLabServer,
}  # fmt: skip
CHECK = "-check"  # after a host's name: its check runs, or statuses of commits
_LIMITS = Limits(total_timeout_seconds=40.0)


@dataclass(frozen=True, slots=True)
class Calls:
    """The beginnings of the calls that comment on pull request 7 of `acme/web`."""

    post: str
    edit: str
    review: str


_GITLAB = "/api/v4/projects/"
CALLS = {
    "github": Calls(
        "POST /repos/acme/web/issues/7/comments",
        "PATCH /repos/acme/web/issues/comments/",
        "POST /repos/acme/web/pulls/7/reviews",
    ),
    "gitea": Calls(
        "POST /api/v1/repos/acme/web/issues/7/comments",
        "PATCH /api/v1/repos/acme/web/issues/comments/",
        "POST /api/v1/repos/acme/web/pulls/7/reviews",
    ),
    "gitlab": Calls(f"POST {_GITLAB}", f"PUT {_GITLAB}", f"POST {_GITLAB}"),
}


def host_at(
    name: str, url: str, *, key: str = "", slug: str = SLUG, server: GitHubServer | None = None,
    limits: Limits = _LIMITS, tokens: Sequence[str] = (TOKEN,),
) -> Host:  # fmt: skip
    """Return a host of the product that calls a double.

    GitHub's has the clock of `server`, if given.
    """
    if name != "github":
        account = TokenConfig(url, tokens, limits)
        return GiteaHost(account) if name == "gitea" else GitLabHost(account)
    pauses = (3.0, 10.0) if server else ()
    app = AppConfig(str(APP_ID), (key or private_key(),), url, slug, limits, pauses)
    client = GitHub(app, clock=server.now, pause=server.forward) if server else None
    return GitHubHost(app, client=client)


def provider_on(channel: str, host: Host) -> PullRequests:
    """Return the provider of summaries, or of inline comments."""
    return PullRequests(host) if channel == host.name else Reviews(host)


def concluded_at(server: GitHubServer) -> list[str]:
    """Return our check runs by token, or the newest status of each commit.

    `open:` stands before one that runs.
    """
    if isinstance(server, AccountServer):
        newest = {status["sha"]: status["state"] for status in list(server.statuses)}
        return [sha if state == "success" else f"open:{sha}" for sha, state in newest.items()]
    checks = [check for repo in list(server.repos.values()) for check in list(repo.checks.values())]
    return [("" if check["conclusion"] else "open:") + check["external_id"] for check in checks]


def arrived_at(channel: str, repo: Repo) -> list[str]:
    """Return the tokens of the messages of a channel, as often as people see them."""
    if channel == host_of(channel):
        return tokens_of(repo)
    return reviewed_tokens_of(repo) + (tokens_of(repo) if channel == "gitlab-review" else [])
