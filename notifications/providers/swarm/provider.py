"""Comments on a P4 Code Review (Swarm 2022.1 or later, API v11), on your own server.

The API has no idempotency key. Each comment ends with a marker line, and the topic's comments are
searched for it: the server answers from its own data, so a comment it does not have was not posted. Used
are `POST` and `GET /api/v11/comments/<topic>/<id>`, `GET /api/v11/reviews` and `GET /api/version`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

import httpx

from criticizer.http_client import Answer, Limits, Request, retry_after
from criticizer.resilience.exchange import exchange
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure
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
from notifications.providers.swarm import markdown

_PAGE = 100
_MAX_PAGES = 200
_BEFORE_SECONDS = 300  # allowed difference between the two clocks
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
        """Return the comment's number.

        Raises RetryableFailure NETWORK_*, RATE_LIMITED; PermanentFailure AUTH_DENIED (the
        ticket has expired), RECIPIENT_REJECTED (it may not comment there), NOT_FOUND,
        POLICY_REJECTED, CONFIG_INVALID; UncertainFailure NETWORK_*, UPSTREAM_* when the server
        may have saved it.
        """
        body = json.dumps({"body": markdown.body(message)}, ensure_ascii=False).encode()
        found = self._asked("POST", f"/api/v11/comments/{_topic(message)}", body)
        for comment in _comments(found) or ():
            number = comment.get("id")
            if isinstance(number, int) and _is_marked(comment, message):
                return str(number)
        raise uncertain(ErrorClass.UPSTREAM_INTERNAL, "the server accepted the comment but did not return it")

    def look_up(self, question: Question) -> LookUp:
        """Read all comments of the topic; ABSENT only when none was left unread.

        Raises RetryableFailure when the server did not answer, PermanentFailure AUTH_DENIED.
        """
        numbers: list[int] = []
        times: list[int] = []
        for _ in range(_MAX_PAGES):
            try:
                page = self._page(question.message, after=max(numbers, default=0))
            except PermanentFailure as failure:
                if failure.error_class in {ErrorClass.NOT_FOUND, ErrorClass.RECIPIENT_REJECTED}:
                    return LookUp(Evidence.UNKNOWN, detail=failure.detail)
                raise
            for comment in page:
                if self._is_ours(comment, question.message):
                    return LookUp(Evidence.FOUND, str(comment.get("id")), "found among the comments")
            numbers += [number for comment in page if isinstance(number := comment.get("id"), int)]
            times += [time for comment in page if isinstance(time := comment.get("time"), int)]
            if not page:
                break
        else:
            return LookUp(Evidence.UNKNOWN, detail=f"more than {_MAX_PAGES * _PAGE} comments")
        # The manual says both that pages start after a comment and that a list has the most recent ones.
        # In either case it is enough to reach back before the attempt, or a list shorter than one page,
        # or a second page that was full as well.
        if (
            len(numbers) < _PAGE
            or len(numbers) >= 2 * _PAGE
            or min(times, default=0) < question.attempted_at_epoch - _BEFORE_SECONDS
        ):
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

    def _page(self, message: Message, after: int) -> list[dict[str, object]]:
        query = urlencode({"max": _PAGE, **({"after": after} if after else {})})
        found = self._asked("GET", f"/api/v11/comments/{_topic(message)}?{query}", acts=False)
        comments = _comments(found)
        if comments is None:
            detail = "the list of comments is not in its documented form"
            raise retryable(ErrorClass.UPSTREAM_INTERNAL, detail)
        return comments

    def _is_ours(self, comment: dict[str, object], message: Message) -> bool:
        # Any user may quote a marker. Servers that ignore case return names as they were typed.
        user = comment.get("user")
        is_we = isinstance(user, str) and user.casefold() == self._config.user.casefold()
        return is_we and _is_marked(comment, message)

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
    body = comment.get("body")
    marker = markdown.marker(message)
    return isinstance(body, str) and any(line.strip() == marker for line in body.splitlines())


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
