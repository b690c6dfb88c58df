"""Calls to a code host's REST API: bounded exchanges with classified failures."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

import httpx
import structlog

from criticizer.codehosts import error_responses, fields
from criticizer.codehosts.base import Comment
from criticizer.codehosts.error_responses import ErrorMeanings
from criticizer.codehosts.fields import MAX_ID
from criticizer.http_client import Answer, Limits, Request
from criticizer.resilience.exchange import exchange
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from criticizer.resilience.rotating_secrets import RotatingSecrets

log = structlog.get_logger(__name__)

PER_PAGE = 100
_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 307, 308})
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,<]*\brel="?next"?')
Body = Mapping[str, object] | None
Page = tuple[Mapping[str, object], ...]  # of a list


@dataclass(frozen=True, slots=True)
class Reply:
    """A positive answer."""

    status: int
    content: Mapping[str, object]
    calls_left: int | None = None  # until the host's limit is reset; None: it does not say
    reset_seconds: float = 0.0  # until then


class RestClient:
    """One API on one host, without its credentials. Safe to share between threads.

    Each call raises RetryableFailure NETWORK_*, UPSTREAM_*, WRITE_CONFLICT; QuotaExceeded;
    PermanentFailure AUTH_DENIED, PERMISSION_DENIED, NOT_FOUND, RECIPIENT_REJECTED, SCHEMA_INVALID,
    CONFIG_INVALID, INTERNAL_BUG; UncertainFailure NETWORK_*, UPSTREAM_* when the host may have acted
    (guarantee G250).
    """

    def __init__(
        self,
        url: str,
        meanings: ErrorMeanings,
        limits: Limits,
        component: Component,
        clock: Callable[[], float],
    ) -> None:
        self._meanings = meanings
        self._limits = limits
        self._component = component
        self._clock = clock
        self._base = httpx.URL(url.rstrip("/"))

    def _url(self, path: str, query: Mapping[str, str | int] | None = None) -> httpx.URL:
        return httpx.URL(f"{self._base}{path}" + (f"?{urlencode(query)}" if query else ""))

    def _paged(self, url: httpx.URL, ask: Callable[[httpx.URL], Answer], items: str = "") -> Iterator[Page]:
        """Yield all pages of a list; `items` is its name inside an object."""
        seen = {url}
        while True:
            answer = ask(url)
            if answer.status >= 300:
                raise self._failure(answer, acts=False)
            rows = _rows(answer, items)
            if rows is None:
                raise error_responses.unreadable(self._meanings, answer, self._component, acts=False)
            link = _NEXT.search(answer.headers.get("link", ""))
            yield rows
            if link is None:
                return
            url = self._joined(url, link[1])
            if url in seen:
                raise error_responses.unreadable(self._meanings, answer, self._component, acts=False)
            seen.add(url)

    def _sent(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: Body, *, acts: bool
    ) -> Answer:
        """Make one call; a GET that is redirected is repeated, on the same host."""
        content = b""
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        for _ in range(_MAX_REDIRECTS):
            request = Request(method, url, headers, content)
            answer = exchange(
                request, self._limits, self._meanings.label, acts=acts, component=self._component
            )
            if method != "GET" or answer.status not in _REDIRECTS:
                return answer
            url = self._joined(url, answer.headers.get("location", ""))
        return answer

    def _joined(self, url: httpx.URL, reference: str) -> httpx.URL:
        """Return the address to which an answer leads.

        Raises PermanentFailure for one on another host, to which the token must not be sent.
        """
        with contextlib.suppress(httpx.InvalidURL, UnicodeError):
            url = url.join(reference)
            if (url.scheme, url.host, url.port) == (self._base.scheme, self._base.host, self._base.port):
                return url
        who = self._meanings.label
        detail = f"{who}'s answer leads to another host, where its token must not go, or to no address"
        raise PermanentFailure(ErrorClass.SCHEMA_INVALID, self._component, detail)

    def _with_accepted(self, secrets: RotatingSecrets[str], ask: Callable[[str], Answer]) -> Answer:
        """Call `ask` with the secret in use, and with the next one when the host refuses it."""

        def asked(secret: str) -> Answer:
            answer = ask(secret)
            if answer.status == 401:
                raise self._failure(answer, acts=False)
            return answer

        return secrets.call(asked)

    def _judged(self, answer: Answer, *, acts: bool) -> Reply:
        if 200 <= answer.status < 300:
            content = {} if answer.status == 204 else answer.json()
            if content is None:
                raise error_responses.unreadable(self._meanings, answer, self._component, acts=acts)
            return Reply(answer.status, content, *error_responses.quota_of(answer, self._clock()))
        raise self._failure(answer, acts=acts)

    def _failure(self, answer: Answer, *, acts: bool) -> Exception:
        return error_responses.failure_of(
            self._meanings, answer, self._component, acts=acts, now=self._clock()
        )


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """A host with authentication by an account's token.

    The next of `tokens` is tried when the first is refused.
    """

    url: str  # of its site: https://gitea.example.com
    tokens: Sequence[str] = field(repr=False)
    limits: Limits = field(default_factory=lambda: Limits(total_timeout_seconds=40.0))


class TokenClient(RestClient):
    """The API of a host with authentication by an account's token.

    `path` is that of the API below the site; `scheme` is the word before the token in its header.
    """

    def __init__(
        self,
        config: TokenConfig,
        path: str,
        scheme: str,
        meanings: ErrorMeanings,
        component: Component = Component.PROVIDER,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(config.url.rstrip("/") + path, meanings, config.limits, component, clock)
        self._scheme = scheme
        self._tokens = RotatingSecrets(f"{meanings.label.lower()}_token_refused", config.tokens, "")
        self._account = 0
        self.has_new_account = False  # since this process began

    def call(self, method: str, path: str, body: Body = None, *, acts: bool | None = None) -> Reply:
        """Make one call. `acts`: to repeat it would change more; by default true of POST only."""
        does = method == "POST" if acts is None else acts
        return self._judged(self._asked(self._url(path), method, body, acts=does), acts=does)

    def pages(self, path: str, query: Mapping[str, str | int] | None = None) -> Iterator[Page]:
        """Yield all pages of a list."""
        return self._paged(self._url(path, query), self._asked)

    def account(self) -> tuple[str, int]:
        """Return the token that the host accepts now, and the number of its account."""

        def ask(token: str) -> tuple[str, int]:
            answer = self._sent("GET", self._url("/user"), self._headers(token), None, acts=False)
            number = self._judged(answer, acts=False).content.get("id")
            if not isinstance(number, int) or not 0 < number <= MAX_ID:
                raise error_responses.unreadable(self._meanings, answer, self._component, acts=False)
            return token, number

        token, account = self._tokens.call(ask)
        if self._account not in (0, account):
            self.has_new_account = True
            log.warning("host_account_changed", host=self._meanings.label, before=self._account, now=account)
        self._account = account
        return token, account

    def _asked(self, url: httpx.URL, method: str = "GET", body: Body = None, *, acts: bool = False) -> Answer:
        return self._with_accepted(
            self._tokens, lambda token: self._sent(method, url, self._headers(token), body, acts=acts)
        )

    def _headers(self, token: str) -> Mapping[str, str]:
        return {"Accept": "application/json", "Authorization": f"{self._scheme} {token}"}


def _rows(answer: Answer, items: str) -> Page | None:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    rows = found.get(items) if items and isinstance(found, dict) else found
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    return tuple(rows)


def check_described(content: Mapping[str, object], label: str) -> None:
    """Check that an answer describes a pull request, as a proxy may have sent it.

    Raises RetryableFailure for one without `state`, which would count as closed and get no summary.
    """
    if not isinstance(content.get("state"), str):
        detail = f"{label} answered without the state of the pull request"
        raise RetryableFailure(ErrorClass.UPSTREAM_INTERNAL, Component.PROVIDER, detail)


def number_of(made: Reply, label: str) -> int:
    """Return the id of a new comment or status. Raises UncertainFailure without a valid one."""
    number = made.content.get("id")
    if isinstance(number, int) and 0 < number <= MAX_ID:
        return number
    detail = f"{label} accepted the request without returning an id"
    raise UncertainFailure(ErrorClass.UPSTREAM_INTERNAL, Component.PROVIDER, detail)


def comments_of(
    page: Sequence[Mapping[str, object]], is_ours: Callable[[Mapping[str, object]], bool]
) -> list[Comment]:
    """Return our own comments of a page. Their text is no proof: anyone may have copied it."""
    return [
        Comment(number, body)
        for comment in page
        if isinstance(number := comment.get("id"), int)
        and isinstance(body := comment.get("body"), str)
        and is_ours(comment)
    ]


def is_by(account: int) -> Callable[[Mapping[str, object]], bool]:
    """Return the function that tests whether a comment is an account's, on any of the hosts."""
    return lambda comment: account in (fields.at(comment, "user", "id"), fields.at(comment, "author", "id"))
