"""GitLab, by the token of an account, a group or a project (`Host`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

import structlog

from criticizer.codehosts import fields
from criticizer.codehosts.base import Comment, InlineComment, Pull, Verdict
from criticizer.codehosts.client import PER_PAGE, check_described, comments_of, is_by, number_of
from criticizer.codehosts.events import HostEvent
from criticizer.codehosts.gitlab.variables import VARIABLES
from criticizer.codehosts.gitlab.webhooks import Webhooks, open_merge_request
from criticizer.codehosts.names import Project, Repository
from criticizer.codehosts.token_host import TokenHost
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure

log = structlog.get_logger(__name__)

_STATES = {
    "": "running", "success": "success", "neutral": "success", "cancelled": "canceled",
    "timed_out": "failed", "failure": "failed", "action_required": "failed",
}  # fmt: skip
_MAX_DESCRIPTION = 255
_DEVELOPER = 30  # the level of access
_MAX_SUGGESTED = 100  # lines of a suggestion
_IS_TOLD = "Cannot transition status"
_NO_BRANCH = "References for commit"  # are not found


class GitLabHost(TokenHost, Webhooks):
    """GitLab (`Host`). Paths name projects by their number, which a rename keeps."""

    name = "gitlab"
    label = "GitLab"
    api = "/api/v4"
    scheme = "Bearer"
    role = "the role Developer"
    repositories = Project
    address = ("GITLAB_URL", "https://gitlab.example.com")
    credentials = ("GITLAB_URL", "GITLAB_TOKEN")
    variables = VARIABLES
    set_up = (
        "Scopes of the token: api, read_repository; role Developer",
        "Triggers: merge request events, comments",
    )
    has_threads = True
    _diff: tuple[object, Mapping[str, object]] = ((), {})  # the newest diff: its owner and its commits

    def pull_url(self, full_name: str, number: int) -> str:
        return f"{self._config.url.rstrip('/')}/{full_name}/-/merge_requests/{number}"

    def head_reference(self, number: int) -> str:
        return f"refs/merge-requests/{number}/head"

    def pull(self, repository: Repository, number: int) -> Pull:
        found = self.client.call("GET", _path(repository, number)).content
        check_described(found, self.label)
        conflicts = fields.known_flag(found, "has_conflicts")
        return Pull(
            is_open=found.get("state") == "opened",
            head_sha=fields.known_text(found, "sha"),
            repository=_named_today(found, repository),
            url=fields.known_text(found, "web_url"),
            is_mergeable=None if conflicts is None else not conflicts,
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

    def own_reviews(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        return self.own_comments(repository, number)  # the first note of a thread is one of them

    def post_review(
        self, repository: Repository, number: int, body: str, head_sha: str, lines: Sequence[InlineComment]
    ) -> int:
        """Post a thread at one line (`Host`); without a line, a comment."""
        if not lines:
            return self.post_comment(repository, number, body)
        (line,) = lines
        content = {
            "body": f"{body}\n\n{line.body}",
            "position": self._position(repository, number, head_sha, line),
        }
        made = self.client.call("POST", f"{_path(repository, number)}/discussions", content)
        notes = made.content.get("notes")
        first = notes[0] if isinstance(notes, list) and notes else None
        return number_of(replace(made, content=first if isinstance(first, dict) else {}), self.label)

    def suggestion(self, lines: int) -> str:
        return f"suggestion:-{lines - 1}+0" if lines <= _MAX_SUGGESTED else ""

    def _position(
        self, repository: Repository, number: int, head_sha: str, line: InlineComment
    ) -> Mapping[str, object]:
        """Return the position of a line; that of an unchanged line has the numbers of both sides."""
        sides = {"old_line" if line.is_old else "new_line": line.line}
        if line.old_line:
            sides["old_line"] = line.old_line
        return {
            "position_type": "text", **self._version(repository, number, head_sha), "new_path": line.path,
            "old_path": line.old_path or line.path, **sides,
        }  # fmt: skip

    def _version(self, repository: Repository, number: int, head_sha: str) -> Mapping[str, object]:
        """Return the commits of the newest diff. Raises RetryableFailure unless it is of this head."""
        path = f"{_path(repository, number)}/versions"
        if self._diff[0] == (path, head_sha):  # requested once for all threads
            return self._diff[1]
        newest = next(iter(next(self.client.pages(path, {"per_page": 1}))), {})
        if newest.get("head_commit_sha") != head_sha:
            detail = "GitLab has not prepared the diff of this head yet"
            raise RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.PROVIDER, detail)
        found = {f"{name}_sha": newest.get(f"{name}_commit_sha") for name in ("base", "start", "head")}
        self._diff = ((path, head_sha), found)
        return found

    def _repository_path(self, repository: Repository) -> str:
        return _project(repository)

    def _may_write(self, content: Mapping[str, object]) -> bool:
        levels = [
            fields.at(content, "permissions", name, "access_level")
            for name in ("project_access", "group_access")
        ]
        known = [level for level in levels if isinstance(level, int)]
        return not known or max(known) >= _DEVELOPER  # none are given to an administrator

    def _set_status(self, repository: Repository, verdict: Verdict) -> int | None:
        status: dict[str, object] = {
            "name": "Criticizer", "state": _STATES[verdict.conclusion],
            "description": verdict.title[:_MAX_DESCRIPTION],
            **({"target_url": verdict.url} if verdict.url else {}),
        }  # fmt: skip
        path = f"{_project(repository)}/statuses/{verdict.head_sha}"
        try:
            # It may be set twice: GitLab refuses a state that the commit has already.
            return number_of(self.client.call("POST", path, status, acts=False), self.label)
        except PermanentFailure as failure:
            message = str(failure.context.get("host_said", ""))
            if failure.error_class is ErrorClass.SCHEMA_INVALID and message.startswith(_IS_TOLD):
                return None
            if failure.error_class is ErrorClass.NOT_FOUND and _NO_BRANCH in message:
                # For example a fork's. With its branch's name the commit would be shown as the project's own.
                log.warning("commit_without_branch_has_no_status", project=repository.name)
                return None
            raise


def _named_today(content: Mapping[str, object], repository: Repository) -> Repository:
    """Return the project with its present name, from `references.full` of a merge request.

    The number of a project stays when it is renamed. Returns `repository` without a valid name.
    """
    name = fields.known_text(content, "references", "full").rpartition("!")[0]
    with contextlib.suppress(ValueError):
        if name.lower() != repository.name.lower():
            return Project(name, repository.number)
    return repository


def _project(repository: Repository) -> str:
    return f"/projects/{repository.number or quote(repository.name, safe='')}"


def _path(repository: Repository, number: int) -> str:
    return f"{_project(repository)}/merge_requests/{number}"
