"""Summaries of reviews on their pull requests, one comment for each, on GitHub.

GitHub has no idempotency key. The first line of a comment, which is not shown, names the message; all
pages of the pull request's comments are searched for it, and only comments of our own App count. A later
version edits the comment, which then names the earlier messages too.

Used are `GET /repos/{owner}/{repo}/pulls/{number}`, and its comments: list, `POST` and `PATCH`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from criticizer.github import AppConfig, GitHub, Repository
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.failures import NotWanted, misconfigured, permanent, uncertain
from notifications.providers.github import markdown
from notifications.providers.github.markdown import Marker
from notifications.providers.payload import ReviewPayload, review_payload

_MAX_PAGES = 200
_ADDRESS = re.compile(r"([^#]+)#([1-9][0-9]{0,9})")
_MOVED = "Note: These results are from commit `{sha}`. The PR has been updated since this scan ran."


class PullRequests:
    """Posts one summary to a pull request: the address is `owner/repository#12`."""

    name = "github"
    capabilities = Capabilities(
        look_up=frozenset({LookUpBy.KEY}),
        settle_seconds=10.0,
        resends_after_absence=None,
        recipients_delete=True,
        absence="every page of the pull request's comments was read, without the marker of this App",
        max_bytes=markdown.MAX_BYTES,
    )

    def __init__(self, config: AppConfig, client: GitHub | None = None) -> None:
        self._config = config
        self._github = client or GitHub(config, Component.PROVIDER)

    def send(self, message: Message) -> str:
        """Return the comment's number. Raises as `criticizer.github.GitHub`, and NotWanted.

        NotWanted: the pull request is closed, or a newer version's summary stands there.
        """
        review = review_payload(message)
        repository, number = _place(message, review)
        if review is None:
            return self._posted(repository, number, markdown.note(message))
        if review.changelist_id != f"github:{message.address}":
            detail = "a review is posted to its own pull request, and this is another one"
            raise permanent(ErrorClass.RECIPIENT_REJECTED, detail)
        pull = self._github.get(repository, f"/repos/{repository.name}/pulls/{number}").content
        if pull.get("state") != "open":
            raise NotWanted("the pull request is closed")
        repository = _renamed(repository, pull)
        return self._summarise(repository, number, message, review, _head_of(pull))

    def look_up(self, question: Question) -> LookUp:
        """Read all comments of the pull request; ABSENT only when none was left unread.

        Raises RetryableFailure when GitHub did not answer, PermanentFailure AUTH_DENIED, PERMISSION_DENIED.
        """
        repository, number = _place(question.message, review_payload(question.message))
        token = str(question.message.token)
        try:
            for number_of_comment, marker in self._ours(repository, number):
                if token in marker.tokens:
                    return LookUp(Evidence.FOUND, str(number_of_comment), "found among the comments")
        except PermanentFailure as failure:
            if failure.error_class in {ErrorClass.NOT_FOUND, ErrorClass.RECIPIENT_REJECTED}:
                return LookUp(Evidence.UNKNOWN, detail=failure.detail)
            raise
        except _TooMany:
            return LookUp(Evidence.UNKNOWN, detail=f"more than {_MAX_PAGES} pages of comments")
        return LookUp(Evidence.ABSENT, detail="the pull request's comments do not have it")

    def probe(self) -> str:
        """Ask GitHub who we are, with the App's key. Raises what `send` raises."""
        found = self._github.as_app("GET", "/app").content
        slug = found.get("slug")
        if self._config.slug and slug != self._config.slug:
            raise misconfigured("GITHUB_APP_SLUG is not the name of the App whose number is GITHUB_APP_ID")
        return "GitHub answers and accepts the key of the App."

    def _summarise(
        self, repository: Repository, number: int, message: Message, review: ReviewPayload, head: str
    ) -> str:
        standing = self._summary_of(repository, number)
        earlier: tuple[str, ...] = ()
        if standing is not None:
            if standing[1].version > review.version:
                raise NotWanted("the summary of a newer version stands there")
            earlier = tuple(token for token in standing[1].tokens if token != str(message.token))
        marker = Marker(
            str(message.token), review.repository_id, number, review.version, review.head_sha,
            earlier[: markdown.MAX_EARLIER],
        )  # fmt: skip
        moved = _MOVED.format(sha=review.head_sha) if head != review.head_sha else ""
        body = markdown.summary(message, review, marker, moved)
        if standing is None:
            return self._posted(repository, number, body)
        try:
            # It may have happened where no answer comes: looked up like a new comment.
            path = f"/repos/{repository.name}/issues/comments/{standing[0]}"
            self._github.patch(repository, path, {"body": body}, acts=True)
        except PermanentFailure as failure:
            if failure.error_class is not ErrorClass.NOT_FOUND:
                raise
            return self._posted(repository, number, body)  # someone has just deleted it
        return str(standing[0])

    def _summary_of(self, repository: Repository, number: int) -> tuple[int, Marker] | None:
        """Return our newest summary of the pull request."""
        try:
            found = [one for one in self._ours(repository, number) if one[1].version]
        except _TooMany:
            raise permanent(ErrorClass.POLICY_REJECTED, "the pull request has too many comments") from None
        return max(found, key=lambda one: (one[1].version, one[0]), default=None)

    def _posted(self, repository: Repository, number: int, body: str) -> str:
        path = f"/repos/{repository.name}/issues/{number}/comments"
        found = self._github.post(repository, path, {"body": body}).content.get("id")
        if isinstance(found, int):
            return str(found)
        raise uncertain(ErrorClass.UPSTREAM_INTERNAL, "GitHub accepted the comment without returning its id")

    def _ours(self, repository: Repository, number: int) -> Iterator[tuple[int, Marker]]:
        """Yield number and marker of each comment of our App. Raises _TooMany."""
        path = f"/repos/{repository.name}/issues/{number}/comments"
        for count, page in enumerate(self._github.pages(repository, path), start=1):
            if count > _MAX_PAGES:
                raise _TooMany
            for comment in page.items:
                found, marker = comment.get("id"), markdown.marker_of(comment.get("body"))
                if marker is not None and isinstance(found, int) and self._is_ours(comment):
                    yield found, marker

    def _is_ours(self, comment: Mapping[str, object]) -> bool:
        app, user = comment.get("performed_via_github_app"), comment.get("user")
        if isinstance(app, dict):
            return str(app.get("id")) == self._config.app_id
        if not isinstance(user, dict) or not self._config.slug:
            return False
        return user.get("type") == "Bot" and user.get("login") == f"{self._config.slug}[bot]"


class _TooMany(Exception):
    """More pages than are read."""


def _place(message: Message, review: ReviewPayload | None) -> tuple[Repository, int]:
    found = _ADDRESS.fullmatch(message.address)
    try:
        if found is not None:
            return Repository(found[1], review.repository_id if review else 0), int(found[2])
    except ValueError:
        pass
    raise permanent(ErrorClass.RECIPIENT_REJECTED, "the recipient is not owner/repository#number")


def _renamed(repository: Repository, pull: Mapping[str, object]) -> Repository:
    """Return the repository by its name of today: only questions are redirected."""
    base = pull.get("base")
    found = base.get("repo") if isinstance(base, dict) else None
    name, number = (found.get("full_name"), found.get("id")) if isinstance(found, dict) else (None, None)
    if not isinstance(name, str) or name.lower() == repository.name.lower() or number != repository.number:
        return repository
    return Repository(name, repository.number)


def _head_of(pull: Mapping[str, object]) -> str:
    head = pull.get("head")
    sha = head.get("sha") if isinstance(head, dict) else None
    return sha if isinstance(sha, str) else ""
