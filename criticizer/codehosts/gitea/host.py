"""Gitea and Forgejo, by the token of an account (`Host`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from criticizer.codehosts import fields
from criticizer.codehosts.base import Comment, InlineComment, Pull, Verdict
from criticizer.codehosts.client import Page, comments_of, is_by, number_of
from criticizer.codehosts.events import Asked, HostEvent, Noted, Stopped, Wanted
from criticizer.codehosts.gitea.variables import VARIABLES
from criticizer.codehosts.github import webhooks
from criticizer.codehosts.github.host import pull_of
from criticizer.codehosts.names import Repository
from criticizer.codehosts.signatures import is_signed, known_id, refusal
from criticizer.codehosts.token_host import TokenHost

_PER_PAGE = 50  # the server's limit
# No state means "cancelled"; a warning fails no check.
_STATES = {
    "": "pending", "success": "success", "neutral": "success", "cancelled": "warning",
    "timed_out": "error", "failure": "error", "action_required": "error",
}  # fmt: skip


class GiteaHost(TokenHost, webhooks.Webhooks):
    """Gitea, or Forgejo (`Host`). Statuses of commits are used as check runs."""

    name = "gitea"
    label = "Gitea"
    api = "/api/v1"
    scheme = "token"
    role = "write access"
    address = ("GITEA_URL", "https://gitea.example.com")
    credentials = ("GITEA_URL", "GITEA_TOKEN")
    variables = VARIABLES
    set_up = (
        "Permissions of the account's token: issue and repository (read and write), user (read)",
        "Events: pull request, pull request synchronized, pull request comment, repository",
    )
    has_threads = False

    def authenticate(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check the signature in GitHub's form, else the one in Gitea's, which has no prefix.

        A proxy may have kept only the latter.
        """
        if headers.get("X-Hub-Signature-256"):
            return super().authenticate(headers, body)
        given = str(headers.get("X-Gitea-Signature") or "")
        if not is_signed(body, given.encode("utf-8", "surrogateescape"), self._secrets, prefix=b""):
            raise refusal(self._secrets, given)
        return None

    def kind_of(self, headers: Mapping[str, str]) -> str:
        return super().kind_of(headers) or str(headers.get("X-Gitea-Event") or "")

    def delivery_id(self, headers: Mapping[str, str], body: bytes) -> str:
        return known_id(headers.get("X-Gitea-Delivery") or headers.get("X-GitHub-Delivery"), body)

    def handler_of(self, kind: str) -> webhooks.Handler | None:
        return _HANDLERS.get(kind)

    def pull_url(self, full_name: str, number: int) -> str:
        return f"{self._config.url.rstrip('/')}/{full_name}/pulls/{number}"

    def head_reference(self, number: int) -> str:
        return f"refs/pull/{number}/head"

    def pull(self, repository: Repository, number: int) -> Pull:
        return pull_of(
            self.client.call("GET", f"/repos/{repository.name}/pulls/{number}").content, repository
        )

    def own_comments(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        is_ours = is_by(self.client.account()[1])
        for page in self.client.pages(f"/repos/{repository.name}/issues/{number}/comments"):
            yield comments_of(page, is_ours)

    def open_pulls(self, repository: Repository) -> Iterator[Sequence[HostEvent]]:
        query: dict[str, str | int] = {"state": "open", "sort": "recentupdate", "limit": _PER_PAGE}
        for page in self.client.pages(f"/repos/{repository.name}/pulls", query):
            yield [event for pull in page if (event := webhooks.open_pull(pull)) is not None]

    def post_comment(self, repository: Repository, number: int, body: str) -> int:
        path = f"/repos/{repository.name}/issues/{number}/comments"
        return number_of(self.client.call("POST", path, {"body": body}), self.label)

    def edit_comment(self, repository: Repository, number: int, comment: int, body: str) -> None:
        path = f"/repos/{repository.name}/issues/comments/{comment}"
        self.client.call("PATCH", path, {"body": body}, acts=True)

    def own_reviews(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        is_ours = is_by(self.client.account()[1])
        for page in self._reviews(repository, number):
            yield comments_of(page, is_ours)

    def post_review(
        self, repository: Repository, number: int, body: str, head_sha: str, lines: Sequence[InlineComment]
    ) -> int:
        """Post a review (`Host`), after deleting our pending ones.

        Gitea would add the comments of a review that was interrupted (G401).
        """
        is_ours = is_by(self.client.account()[1])
        path = f"/repos/{repository.name}/pulls/{number}/reviews"
        for page in list(self._reviews(repository, number)):
            for left in page:
                if left.get("state") == "PENDING" and is_ours(left):
                    self.client.call("DELETE", f"{path}/{left.get('id')}")
        content = {
            "event": "COMMENT",
            "body": body,
            "comments": [_inline(one) for one in lines],
            **({"commit_id": head_sha} if head_sha else {}),
        }
        return number_of(self.client.call("POST", path, content), self.label)

    def suggestion(self, lines: int) -> str:
        return ""  # it has none

    def _reviews(self, repository: Repository, number: int) -> Iterator[Page]:
        return self.client.pages(f"/repos/{repository.name}/pulls/{number}/reviews", {"limit": _PER_PAGE})

    def _repository_path(self, repository: Repository) -> str:
        return f"/repos/{repository.name}"

    def _may_write(self, content: Mapping[str, object]) -> bool:
        return fields.at(content, "permissions", "push") is not False

    def _set_status(self, repository: Repository, verdict: Verdict) -> int | None:
        status = {
            "context": "Criticizer", "state": _STATES[verdict.conclusion], "description": verdict.title,
            "target_url": verdict.url,
        }  # fmt: skip
        path = f"/repos/{repository.name}/statuses/{verdict.head_sha}"
        # The newest status of a context counts, so it may be set twice.
        return number_of(self.client.call("POST", path, status, acts=False), self.label)


def _inline(comment: InlineComment) -> Mapping[str, object]:
    side = "old_position" if comment.is_old else "new_position"  # both are numbers of lines
    return {"path": comment.path, "body": comment.body, side: comment.line}


def _pull_request(action: str, content: Mapping[str, object]) -> Asked:
    """Read an event as GitHub's; here a draft is one by the beginning of its title."""
    if action != "edited":
        return webhooks.of_pull_request(action, content)
    pull = webhooks.pull_of(content)
    has_new_title = fields.at(content, "changes", "title") is not None
    if pull.state == "open":  # it has another branch, or is no longer a draft; else its head has a review
        return Wanted(pull, is_opening=has_new_title)
    if pull.state == "draft" and has_new_title:
        return Stopped(pull, "the pull request became a draft")
    return Noted(pull, "the pull request is a draft or closed")


def _comment(action: str, content: Mapping[str, object]) -> Asked:
    """Read a comment as GitHub's; here the repository's permissions are those of the author."""
    has_rights = fields.known_flag(content, "repository", "permissions", "push") is True
    return webhooks.of_comment(action, content, has_rights)


_HANDLERS: Mapping[str, webhooks.Handler] = {
    "pull_request": _pull_request,
    "issue_comment": _comment,
    "repository": webhooks.of_repository,
}
