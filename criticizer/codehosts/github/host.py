"""GitHub, as an App (`Host`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from criticizer.codehosts import fields
from criticizer.codehosts.base import Comment, FailedDelivery, InlineComment, Lack, Pull, Verdict
from criticizer.codehosts.client import check_described, comments_of, number_of
from criticizer.codehosts.events import HostEvent, Unreadable
from criticizer.codehosts.github.client import GitHub
from criticizer.codehosts.github.tokens import LAG_PAUSES_SECONDS, PERMISSIONS, AppConfig
from criticizer.codehosts.github.variables import VARIABLES
from criticizer.codehosts.github.webhooks import RERUN_BUTTON, Webhooks, open_pull
from criticizer.codehosts.names import Repository
from criticizer.http_client import host_and_port
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure

CHECK_NAME = "Criticizer"
_MAX_PAGES = 10  # of installations, a hundred each
EVENTS = ("pull_request", "check_run", "check_suite", "issue_comment", "repository")  # of its webhook


class GitHubHost(Webhooks):
    """GitHub (`Host`). Without the number and a key of the App it can read public repositories."""

    name = "github"
    label = "GitHub"
    repositories = Repository
    address = ("GITHUB_API_URL", "https://ghe.example.com/api/v3")
    credentials = ("GITHUB_APP_ID", "GITHUB_PRIVATE_KEY")
    variables = VARIABLES
    calls_at_once = 1  # it wants one writer for each installation, and a second between writes
    calls_per_second = 1.0
    set_up = (
        "Permissions of repositories: "
        + ", ".join(f"{name.replace('_', ' ')} ({level})" for name, level in PERMISSIONS.items()),
        "Events: " + ", ".join(event.replace("_", " ") for event in EVENTS),
    )
    has_new_account = False  # an App keeps its number
    has_own_checks = True
    has_threads = False

    def __init__(
        self,
        config: AppConfig,
        secrets: Sequence[str] = (),
        component: Component = Component.PROVIDER,
        client: GitHub | None = None,
    ) -> None:
        super().__init__(secrets, config.app_id)
        self._config = config
        self.lag_pauses_seconds = config.lag_pauses_seconds
        self.client = client or GitHub(config, component)

    @classmethod
    def configured(cls, setting: Callable[[str], Any]) -> AppConfig:
        pauses = tuple(setting("RETRY_TIME_SCALE") * seconds for seconds in LAG_PAUSES_SECONDS)
        return AppConfig(
            setting("GITHUB_APP_ID"),
            setting("GITHUB_PRIVATE_KEY"),
            setting("GITHUB_API_URL"),
            setting("GITHUB_APP_SLUG"),
            lag_pauses_seconds=pauses,
        )

    @property
    def is_connected(self) -> bool:
        return bool(self._config.app_id and self._config.private_keys)

    @property
    def site(self) -> str:
        """Return the address of GitHub, or of an Enterprise Server."""
        parts = urlsplit(self._config.api_url)
        return f"{parts.scheme}://{parts.netloc.removeprefix('api.')}"

    def clone_url(self, full_name: str) -> str:
        return f"{self.site}/{full_name}.git"

    def pull_url(self, full_name: str, number: int) -> str:
        return f"{self.site}/{full_name}/pull/{number}"

    def head_reference(self, number: int) -> str:
        return f"refs/pull/{number}/head"

    def git_password(self, repository: Repository, refused: str = "") -> str:
        return self.client.token(repository, refused) if self.is_connected else ""

    def repository(self, full_name: str, number: int = 0) -> Repository:
        return self.repositories(full_name, number)

    def dependency(self, full_name: str) -> str:
        """Return the owner's dependency: GitHub's limits are for an installation of the App."""
        owner = full_name.partition("/")[0].lower()
        return f"{self.name}:{host_and_port(self._config.api_url)}:{owner}"

    def pull(self, repository: Repository, number: int) -> Pull:
        reply = self.client.call(repository, "GET", f"/repos/{repository.name}/pulls/{number}")
        found = pull_of(reply.content, repository)
        return replace(found, calls_left=reply.calls_left, reset_seconds=reply.reset_seconds)

    def own_comments(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        path = f"/repos/{repository.name}/issues/{number}/comments"
        for page in self.client.pages(repository, path):
            yield comments_of(page, self._is_ours)

    def post_comment(self, repository: Repository, number: int, body: str) -> int:
        path = f"/repos/{repository.name}/issues/{number}/comments"
        return number_of(self.client.call(repository, "POST", path, {"body": body}), self.label)

    def edit_comment(self, repository: Repository, number: int, comment: int, body: str) -> None:
        path = f"/repos/{repository.name}/issues/comments/{comment}"
        self.client.call(repository, "PATCH", path, {"body": body}, acts=True)

    def open_pulls(self, repository: Repository) -> Iterator[Sequence[HostEvent]]:
        query = {"state": "open", "sort": "updated", "direction": "desc"}
        for page in self.client.pages(repository, f"/repos/{repository.name}/pulls", query):
            yield [event for pull in page if (event := open_pull(pull)) is not None]

    @property
    def app_dependency(self) -> str:
        """Return the dependency of calls about the App itself, with a name that no owner has."""
        return self.dependency("-app-")

    def failed_deliveries(self) -> Iterator[Sequence[FailedDelivery]]:
        """Yield the failed tries of webhooks, page by page, the newest first."""
        for page in self.client.app_pages("/app/hook/deliveries", {"status": "failure"}):
            yield [found for row in page if (found := _failed(row)) is not None]

    def deliver_again(self, number: int) -> None:
        """Ask for another try of a webhook."""
        self.client.as_app("POST", f"/app/hook/deliveries/{number}/attempts", {})

    def own_reviews(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        for page in self.client.pages(repository, f"/repos/{repository.name}/pulls/{number}/reviews"):
            yield comments_of(page, self._is_ours)

    def post_review(
        self, repository: Repository, number: int, body: str, head_sha: str, lines: Sequence[InlineComment]
    ) -> int:
        content = {
            "event": "COMMENT",  # without it, the review is a draft that only we see
            "body": body,
            "comments": [_inline(one) for one in lines],
            **({"commit_id": head_sha} if head_sha else {}),
        }
        path = f"/repos/{repository.name}/pulls/{number}/reviews"
        return number_of(self.client.call(repository, "POST", path, content), self.label)

    def suggestion(self, lines: int) -> str:
        return "suggestion"

    def post_verdict(
        self,
        repository: Repository,
        verdict: Verdict,
        known: int | None,
        check_time: Callable[[], None],
        *,
        is_first: bool,
    ) -> int | None:
        """Write a check run (`Host`), which is looked up by our token if it may exist."""
        path = f"/repos/{repository.name}/check-runs"
        if known is None and not is_first:
            known = self._found(repository, verdict, check_time)
        check_time()
        if known is not None:
            self.client.call(repository, "PATCH", f"{path}/{known}", _body(verdict))
            return known
        if verdict.conclusion == "cancelled":
            return None  # it was never opened
        whole = {
            "name": CHECK_NAME, "head_sha": verdict.head_sha, "external_id": verdict.token, **_body(verdict),
        }  # fmt: skip
        return number_of(self.client.call(repository, "POST", path, whole), self.label)

    def probe(self) -> str:
        """Ask GitHub for our App, with its key (`Host`)."""
        slug = self.client.as_app("GET", "/app").content.get("slug")
        if self._config.slug and slug != self._config.slug:
            detail = "GITHUB_APP_SLUG is not the name of the App whose number is GITHUB_APP_ID"
            raise PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, detail)
        return "GitHub answers and accepts the key of the App."

    def lacks(self) -> list[Lack]:
        """Return the permissions, events and installations that the App itself lacks."""
        app = self.client.as_app("GET", "/app").content
        subscribed = app.get("events")
        missing = [f"permission {name}" for name in _lacking(app)]
        if isinstance(subscribed, list):
            missing += [f"event {event}" for event in EVENTS if event not in subscribed]
        advice = "Add it on the App's page on GitHub, and let each owner accept it."
        found = [Lack(one, advice) for one in missing]
        if not next(self.client.app_pages("/app/installations", {}), ()):
            advice = "Install it on the owner of your repositories: Install App on the App's page on GitHub."
            found.append(Lack("an installation: the App is installed nowhere", advice))
        return [*found, *self._lost_webhook()]

    def _lost_webhook(self) -> list[Lack]:
        """Return the failure of the newest webhook: one with a wrong address never reaches us."""
        page = next(self.client.app_pages("/app/hook/deliveries", {"per_page": 1}), ())
        code = page[0].get("status_code") if page else None
        if not isinstance(code, int) or 200 <= code < 300:
            return []
        last_delivery = f"of the last one, {page[0].get('event')}, GitHub says {code} {page[0].get('status')}"
        advice = (
            "Correct the webhook's URL on the App's page on GitHub, and let GitHub reach it; the tab Advanced"
            " there has the whole answer."
        )
        return [Lack(f"a webhook that arrives: {last_delivery}", advice)]

    def lacks_on(self, repository: Repository) -> list[Lack]:
        """Return what we lack on a repository: the App's installation, or its permissions."""
        owner = repository.name.partition("/")[0]
        try:
            found = self.client.as_app("GET", f"/repos/{repository.name}/installation").content
        except PermanentFailure as failure:
            if failure.error_class is not ErrorClass.NOT_FOUND:
                raise
            if self._installation_on(owner) is None:
                return [_not_installed(f"sight of {repository.name}", owner)]
            advice = f"Add it under Repository access of the installation on {owner}, or correct its name."
            return [Lack(f"sight of {repository.name}: the installation does not include it", advice)]
        return _lacks_of(found, owner, repository.name)

    def installed_on(self) -> Mapping[str, str]:
        """Return the owners that have the App, and for which repositories, in words."""
        words = {"all": "all repositories", "selected": "selected repositories"}
        return {
            owner: "suspended"
            if one.get("suspended_at")
            else words.get(str(one.get("repository_selection")), "GitHub does not say for which repositories")
            for owner, one in self._installations()
        }

    def lacks_on_owner(self, owner: str) -> list[Lack]:
        """Return what we lack on an owner: the App's installation, or its permissions."""
        found = self._installation_on(owner)
        if found is None:
            return [_not_installed(f"an installation on {owner}", owner)]
        return _lacks_of(found, owner, owner)

    def _installations(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        for page in islice(self.client.app_pages("/app/installations", {}), _MAX_PAGES):
            for one in page:
                if login := fields.known_text(one, "account", "login"):
                    yield login, one

    def _installation_on(self, owner: str) -> Mapping[str, object] | None:
        found = (one for login, one in self._installations() if login.lower() == owner.lower())
        return next(found, None)

    def _found(self, repository: Repository, verdict: Verdict, check_time: Callable[[], None]) -> int | None:
        """Return the check run with our token, of those that our App made for the commit, or None."""
        query = {"check_name": CHECK_NAME, "app_id": self._config.app_id, "filter": "all"}
        path = f"/repos/{repository.name}/commits/{verdict.head_sha}/check-runs"
        for page in self.client.pages(repository, path, query, items="check_runs"):
            check_time()  # however many pages the answers promise
            for run in page:
                number = run.get("id")
                if run.get("external_id") == verdict.token and isinstance(number, int):
                    return number
        return None

    def _is_ours(self, comment: Mapping[str, object]) -> bool:
        """Return whether a comment is our App's, or a review, which has no field for its App."""
        app = comment.get("performed_via_github_app")
        if isinstance(app, dict):
            return str(app.get("id")) == self._config.app_id
        is_bot = fields.known_text(comment, "user", "type") == "Bot"
        return is_bot and fields.known_text(comment, "user", "login") == f"{self.client.slug()}[bot]"


def pull_of(content: Mapping[str, object], repository: Repository) -> Pull:
    """Read a pull request as GitHub and Gitea describe it.

    Raises PermanentFailure NOT_FOUND for one of another repository, RetryableFailure for other content.
    """
    check_described(content, "the host")
    base = ("base", "repo")
    name, number = fields.known_text(content, *base, "full_name"), fields.at(content, *base, "id")
    is_known = bool(repository.number) and isinstance(number, int)
    if is_known and number != repository.number:
        detail = "another repository has the name of the pull request's: it was renamed, or removed"
        raise PermanentFailure(ErrorClass.NOT_FOUND, Component.PROVIDER, detail)
    # Calls need the present name, because only a GET is redirected.
    if is_known and name and name.lower() != repository.name.lower():
        repository = Repository(name, repository.number)
    return Pull(
        is_open=content.get("state") == "open",
        head_sha=fields.known_text(content, "head", "sha"),
        repository=repository,
        url=fields.known_text(content, "html_url"),
        is_mergeable=fields.known_flag(content, "mergeable"),
    )


def _not_installed(what: str, owner: str) -> Lack:
    advice = f"Install the App on {owner}: Install App on the App's page on GitHub."
    return Lack(f"{what}: the App is not installed on {owner}", advice)


def _lacks_of(installation: Mapping[str, object], owner: str, where: str) -> list[Lack]:
    """Return what an installation on an owner lacks: to be active, or permissions on `where`."""
    if installation.get("suspended_at"):
        advice = "Let the owner resume it, in the settings of their installed GitHub Apps."
        return [Lack(f"an active installation on {owner}: it is suspended", advice)]
    advice = f"Let the owner of {owner} accept the App's new permissions: GitHub sent them a mail."
    return [Lack(f"permission {one} on {where}", advice) for one in _lacking(installation)]


def _lacking(granting: Mapping[str, object]) -> list[str]:
    """Return the needed permissions that an App or its installation does not have."""
    return [
        f"{name}: {level}"
        for name, level in PERMISSIONS.items()
        if fields.at(granting, "permissions", name) not in (level, "write")
    ]


def _failed(row: Mapping[str, object]) -> FailedDelivery | None:
    try:
        number, guid = fields.whole(row, "id"), fields.text(row, "guid")
        return FailedDelivery(number, guid, fields.moment(row, "delivered_at"))
    except Unreadable:
        return None


def _inline(comment: InlineComment) -> Mapping[str, object]:
    side = "LEFT" if comment.is_old else "RIGHT"
    found = {"path": comment.path, "line": comment.line, "side": side, "body": comment.body}
    is_range = comment.start_line < comment.line
    return {**found, "start_line": comment.start_line, "start_side": side} if is_range else found


# GitHub accepts 20, 40 and 20 characters, and shows the button once the check run is completed.
_REVIEW_AGAIN = {
    "label": "Review again",
    "description": "Makes another review of this commit.",
    "identifier": RERUN_BUTTON,
}


def _body(verdict: Verdict) -> Mapping[str, object]:
    state: dict[str, object] = (
        {"status": "completed", "conclusion": verdict.conclusion, "actions": [_REVIEW_AGAIN]}
        if verdict.conclusion
        else {"status": "in_progress"}
    )
    return {
        **state,
        **({"details_url": verdict.url} if verdict.url else {}),
        "output": {"title": verdict.title, "summary": verdict.summary},
    }
