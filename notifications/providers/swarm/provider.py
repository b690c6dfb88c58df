"""Comments on a P4 Code Review (Swarm 2022.1 or later, API v11), on your own server.

The API has no idempotency key. Each comment ends with a marker line, and the topic's comments are
searched for it: the server answers from its own data, so a comment it does not have was not posted. Used
are `POST` and `GET /api/v11/comments/<topic>/<id>`, `POST /api/v11/comments/<id>/edit` and `/archive`,
`GET /api/v11/reviews` and `GET /api/version`.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

import httpx
import structlog

from criticizer.http_client import Answer, Limits, Request, retry_after
from criticizer.resilience.exchange import exchange
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.failures import (
    answered,
    misconfigured,
    of_question,
    permanent,
    retryable,
    temporary_failure,
    uncertain,
)
from notifications.providers.payload import ReviewPayload, review_payload
from notifications.providers.swarm import lines, markdown

_PAGE = 100
MAX_LINE_COMMENTS = 50
_MAX_PAGES = 200
_BEFORE_SECONDS = 300  # allowed difference between the two clocks
log = structlog.get_logger(__name__)
_ADDRESS = re.compile(r"(review|change)-([1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class SwarmConfig:
    """P4 Code Review's address, and the Perforce user who comments there, with login tickets."""

    url: str
    user: str
    tickets: Sequence[str] = field(repr=False)
    limits: Limits = field(default_factory=Limits)


class Swarm:
    """Posts one comment to a review or a change: the address is `review-123` or `change-123`."""

    name = "swarm"
    capabilities = Capabilities(
        look_up=frozenset({LookUpBy.KEY}),
        settle_seconds=10.0,
        resends_after_absence=None,
        absence="every page of the topic's comments was read on your own server, without the marker",
        max_bytes=4 * markdown.MAX_CHARACTERS,
    )

    def __init__(self, config: SwarmConfig) -> None:
        self._config = config
        self._tickets = RotatingSecrets("swarm_ticket_refused", config.tickets, "")

    def send(self, message: Message) -> str:
        """Comment on the findings' lines, close others, then comment on the review.

        Returns the last comment's number; it alone is notified of. Whatever fails after a comment was made
        is uncertain, so that the next attempt looks at what there is by then (guarantee G432).

        Raises RetryableFailure NETWORK_*, RATE_LIMITED; PermanentFailure AUTH_DENIED (the
        ticket has expired), RECIPIENT_REJECTED (it may not comment there), NOT_FOUND,
        POLICY_REJECTED, CONFIG_INVALID; UncertainFailure NETWORK_*, UPSTREAM_* when the server
        may have saved it.
        """
        acts: list[str] = []
        try:
            review = review_payload(message)
            if review is not None:
                self._tend_lines(message, review, acts)
            found = self._posted(f"/api/v11/comments/{_topic(message)}", {"body": markdown.body(message)})
        except RetryableFailure as failure:
            if not acts:
                raise
            wait = failure.retry_after_seconds
            raise uncertain(failure.error_class, failure.detail, failure.context, wait) from failure
        for comment in _comments(found) or ():
            number = comment.get("id")
            if isinstance(number, int) and _is_marked(comment, message):
                return str(number)
        raise uncertain(ErrorClass.UPSTREAM_INTERNAL, "the server accepted the comment but did not return it")

    def look_up(self, question: Question) -> LookUp:
        """Read all comments of the topic; ABSENT only when none was left unread.

        Raises RetryableFailure when the server did not answer, PermanentFailure AUTH_DENIED.
        """
        read: list[dict[str, object]] = []
        try:
            for comment in self._all_comments(question.message):
                if self._is_own(comment) and _is_marked(comment, question.message):
                    return LookUp(Evidence.FOUND, str(comment.get("id")), "found among the comments")
                read.append(comment)
        except _TooMany:
            return LookUp(Evidence.UNKNOWN, detail=f"more than {_MAX_PAGES * _PAGE} comments")
        except PermanentFailure as failure:
            if failure.error_class in {ErrorClass.NOT_FOUND, ErrorClass.RECIPIENT_REJECTED}:
                return LookUp(Evidence.UNKNOWN, detail=failure.detail)
            raise
        if _is_all_since(read, question.attempted_at_epoch - _BEFORE_SECONDS):
            return LookUp(Evidence.ABSENT, detail="the topic's comments do not have it")
        return LookUp(Evidence.UNKNOWN, detail="the server showed a part of the comments only")

    def probe(self) -> str:
        """Ask for the version, and for one review with the ticket. Raises what `send` raises."""
        version = self._asked("GET", "/api/version")
        versions = version.get("apiVersions")
        if isinstance(versions, list) and not any(
            str(known).lstrip("v").startswith("11") for known in versions
        ):
            raise misconfigured("the server is older than 2022.1: it has no API v11")
        self._asked("GET", "/api/v11/reviews?max=1&fields=id")
        return f"P4 Code Review answers and accepts the ticket of {self._config.user}."

    def _tend_lines(self, message: Message, review: ReviewPayload, acts: list[str]) -> None:
        """Comment on findings that have no comment; close doubles, and what is fixed or dismissed."""
        found = [finding for finding in review.findings if finding[0].in_diff and finding[0].identity]
        if not found and not review.closed:
            return
        standing = self._standing(message)
        if standing is None:
            return
        for finding, url in found[:MAX_LINE_COMMENTS]:
            if lines.is_missing(message, finding, standing[finding.identity]):
                body = {"body": markdown.line_comment(message, finding, url), **lines.context_of(finding)}
                self._post_or_skip(f"/api/v11/comments/{_topic(message)}?notify=silent", body, acts)
        if acts:  # the message of another version may have made the same comments meanwhile
            standing = self._standing(message) or standing
        for identity, comments in standing.items():
            left = [comment for comment in comments if not lines.is_closed(comment)]
            for comment in left if identity in review.closed else left[1:]:
                self._close(comment, acts)

    def _standing(self, message: Message) -> defaultdict[str, list[dict[str, object]]] | None:
        """Return our comments at lines by their findings, oldest first.

        None where some comments cannot be read.
        """
        try:
            read = sorted(self._all_comments(message), key=lines.number_of)
        except _TooMany:
            read = None
        if read is None or not (_is_all_since(read, 0.0) or self._begins_with(message, read)):
            log.warning("lines_without_comments", topic=_topic(message), why="not all comments can be read")
            return None
        standing = defaultdict(list)
        for comment in read:
            if self._is_own(comment) and (identity := markdown.identity_of(comment.get("body"))):
                standing[identity].append(comment)
        return standing

    def _begins_with(self, message: Message, read: Sequence[dict[str, object]]) -> bool:
        """Return whether the server's lists begin with the oldest comment, as these do."""
        first = [one.get("id") for one in self._page(message, after=0, most=1)]
        return first == [read[0].get("id")]

    def _close(self, comment: dict[str, object], acts: list[str]) -> None:
        """Mark a task as addressed, for a person to verify; archive a mere comment."""
        address = f"/api/v11/comments/{lines.number_of(comment)}"
        if comment.get("taskState") == "open":
            self._post_or_skip(f"{address}/edit", {"taskState": "addressed", "notify": "silent"}, acts)
        else:
            self._post_or_skip(f"{address}/archive", {}, acts)

    def _post_or_skip(self, path: str, content: Mapping[str, object], acts: list[str]) -> None:
        """Post a part of what the review's own comment says too; skip it if the server refuses."""
        try:
            self._posted(path, content)
        except PermanentFailure as failure:
            if failure.error_class is not ErrorClass.POLICY_REJECTED:
                raise
            log.warning("line_comment_refused", path=path.partition("?")[0], **failure.facts)
        acts.append(path)

    def _posted(self, path: str, content: Mapping[str, object]) -> dict[str, object]:
        return self._asked("POST", path, json.dumps(content, ensure_ascii=False).encode())

    def _all_comments(self, message: Message) -> Iterator[dict[str, object]]:
        """Yield the topic's comments, as far as the server shows them.

        Raises _TooMany, and as `look_up`.
        """
        last = 0
        for _ in range(_MAX_PAGES):
            page = self._page(message, after=last)
            if not page:
                return
            yield from page
            last = max(last, *map(lines.number_of, page))
        raise _TooMany

    def _page(self, message: Message, after: int, most: int = _PAGE) -> list[dict[str, object]]:
        query = urlencode({"max": most, **({"after": after} if after else {})})
        found = self._asked("GET", f"/api/v11/comments/{_topic(message)}?{query}", acts=False)
        comments = _comments(found)
        if comments is None:
            detail = "the list of comments is not in its documented form"
            raise retryable(ErrorClass.UPSTREAM_INTERNAL, detail)
        return comments

    def _is_own(self, comment: dict[str, object]) -> bool:
        # Any user may quote a marker. Servers that ignore case return names as they were typed.
        user = comment.get("user")
        return isinstance(user, str) and user.casefold() == self._config.user.casefold()

    def _asked(self, method: str, path: str, body: bytes = b"", *, acts: bool = True) -> dict[str, object]:
        def ask(ticket: str) -> dict[str, object]:
            login = base64.b64encode(f"{self._config.user}:{ticket}".encode()).decode()
            headers = {"Authorization": f"Basic {login}", "Accept": "application/json"}
            request = Request(method, url, headers | content_type, body)
            answer = exchange(request, self._config.limits, "P4 Code Review", acts=bool(body))
            return _judged(answer, acts=acts)

        url = httpx.URL(f"{self._config.url.rstrip('/')}{path}")
        content_type = {"Content-Type": "application/json"} if body else {}
        return self._tickets.call(ask)


class _TooMany(Exception):
    """More comments than are read."""


def _is_all_since(read: Sequence[dict[str, object]], epoch: float) -> bool:
    """Return whether these are all comments since a time.

    The manual says both that pages start after a comment and that a list has the most recent ones. In either
    case it is enough to reach back before that time, or a list shorter than one page, or a second page that
    was full as well.
    """
    times = [time for one in read if isinstance(time := one.get("time"), int)]
    return len(read) < _PAGE or len(read) >= 2 * _PAGE or min(times, default=0) < epoch


def _topic(message: Message) -> str:
    found = _ADDRESS.fullmatch(message.address)
    if found is None:
        raise permanent(ErrorClass.RECIPIENT_REJECTED, "the recipient is neither review-<n> nor change-<n>")
    return f"{found[1]}s/{found[2]}"


def _comments(found: dict[str, object]) -> list[dict[str, object]] | None:
    data = found.get("data")
    comments = data.get("comments") if isinstance(data, dict) else None
    if not isinstance(comments, list):
        return None
    return [comment for comment in comments if isinstance(comment, dict)]


def _is_marked(comment: dict[str, object], message: Message) -> bool:
    return markdown.last_line(comment.get("body")) == markdown.marker(message)


def _judged(answer: Answer, *, acts: bool = True) -> dict[str, object]:
    """Return the content of a positive answer; raise what any other means."""
    found = answer.json()
    if 200 <= answer.status <= 299 and found is not None and not found.get("error"):
        return found
    failure = _failure(answer)
    raise failure if acts else of_question(failure)


def _failure(answer: Answer) -> Failure:
    status = answer.status
    context = answered(status, answer.headers)
    detail = f"P4 Code Review answered {status}"
    if failure := temporary_failure(status, detail, context, retry_after(answer.headers)):
        return failure
    if status < 300:
        return uncertain(ErrorClass.UPSTREAM_INTERNAL, detail, context)
    error_class, remedy = _REFUSALS.get(status, _NO_API)
    return permanent(error_class, f"{detail}: {remedy}", context)


_REFUSALS = {
    400: (ErrorClass.POLICY_REJECTED, "it does not accept the comment"),
    401: (ErrorClass.AUTH_DENIED, "the ticket has expired or is not SWARM_USER's: run p4 login -p"),
    403: (ErrorClass.RECIPIENT_REJECTED, "SWARM_USER may not comment there"),
    404: (ErrorClass.NOT_FOUND, "the topic does not exist or belongs to a private project"),
}
_NO_API = (ErrorClass.CONFIG_INVALID, "SWARM_URL does not lead to the API; redirects are not followed")
