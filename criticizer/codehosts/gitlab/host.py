"""GitLab, by the token of an account, a group or a project (`Host`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import structlog

from criticizer.codehosts.base import Comment, Pull, Verdict
from criticizer.codehosts.client import PER_PAGE, comments_of, is_by, number_of
from criticizer.codehosts.events import HostEvent
from criticizer.codehosts.gitlab.webhooks import Webhooks, open_merge_request
from criticizer.codehosts.names import Project, Repository
from criticizer.codehosts.token_host import TokenHost
from criticizer.resilience.failures import ErrorClass, PermanentFailure

log = structlog.get_logger(__name__)

_STATES = {
    "": "running", "success": "success", "neutral": "success", "cancelled": "canceled",
    "timed_out": "failed", "failure": "failed",
}  # fmt: skip
_MAX_DESCRIPTION = 255
_IS_TOLD = "Cannot transition status"
_NO_BRANCH = "References for commit"  # are not found


class GitLabHost(TokenHost, Webhooks):
    """GitLab (`Host`). Projects are named by number, which a rename keeps."""

    name = "gitlab"
    label = "GitLab"
    api = "/api/v4"
    scheme = "Bearer"

    def pull_url(self, full_name: str, number: int) -> str:
        return f"{self._config.url.rstrip('/')}/{full_name}/-/merge_requests/{number}"

    def head_reference(self, number: int) -> str:
        return f"refs/merge-requests/{number}/head"

    def repository(self, full_name: str, number: int = 0) -> Repository:
        return Project(full_name, number)

    def pull(self, repository: Repository, number: int) -> Pull:
        found = self.client.call("GET", _path(repository, number)).content
        sha, url, conflicts = (found.get(name) for name in ("sha", "web_url", "has_conflicts"))
        return Pull(
            is_open=found.get("state") == "opened",
            head_sha=sha if isinstance(sha, str) else "",
            repository=repository,
            url=url if isinstance(url, str) else "",
            is_mergeable=not conflicts if isinstance(conflicts, bool) else None,
        )

    def own_comments(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        is_ours = is_by(self.client.account()[1])
        query: dict[str, str | int] = {"per_page": PER_PAGE, "sort": "asc", "order_by": "created_at"}
        for page in self.client.pages(f"{_path(repository, number)}/notes", query):
            yield comments_of(page, is_ours)

    def open_pulls(self, repository: Repository) -> Iterator[Sequence[HostEvent]]:
        query: dict[str, str | int] = {
            "state": "opened", "order_by": "updated_at", "sort": "desc", "per_page": PER_PAGE,
        }  # fmt: skip
        for page in self.client.pages(f"{_project(repository)}/merge_requests", query):
            yield [event for row in page if (event := open_merge_request(row)) is not None]

    def post_comment(self, repository: Repository, number: int, body: str) -> int:
        made = self.client.call("POST", f"{_path(repository, number)}/notes", {"body": body})
        return number_of(made, self.label)

    def edit_comment(self, repository: Repository, number: int, comment: int, body: str) -> None:
        path = f"{_path(repository, number)}/notes/{comment}"
        self.client.call("PUT", path, {"body": body}, acts=True)

    def _set_status(self, repository: Repository, verdict: Verdict) -> int | None:
        status: dict[str, object] = {
            "name": "Criticizer", "state": _STATES[verdict.conclusion],
            "description": verdict.title[:_MAX_DESCRIPTION],
            **({"target_url": verdict.url} if verdict.url else {}),
        }  # fmt: skip
        path = f"{_project(repository)}/statuses/{verdict.head_sha}"
        try:
            # Once more is once: GitLab refuses a state that the commit has already.
            return number_of(self.client.call("POST", path, status, acts=False), self.label)
        except PermanentFailure as failure:
            said = str(failure.context.get("host_said", ""))
            if failure.error_class is ErrorClass.SCHEMA_INVALID and said.startswith(_IS_TOLD):
                return None
            if failure.error_class is ErrorClass.NOT_FOUND and _NO_BRANCH in said:
                # A fork's, for example. Under the name of its branch it would be shown as one of the project.
                log.warning("commit_without_branch_has_no_status", project=repository.name)
                return None
            raise


def _project(repository: Repository) -> str:
    return f"/projects/{repository.number or quote(repository.name, safe='')}"


def _path(repository: Repository, number: int) -> str:
    return f"{_project(repository)}/merge_requests/{number}"
