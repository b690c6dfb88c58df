"""Calls to GitHub's REST API as an App, each one bounded exchange; refusals become classified failures."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
import structlog

from criticizer.github import answers
from criticizer.github.names import Repository
from criticizer.github.tokens import PERMISSIONS, AppConfig, Token, TokenCache, app_token, wall_clock
from criticizer.http_client import Answer, Request
from criticizer.resilience.exchange import exchange
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets

log = structlog.get_logger(__name__)

API_VERSION = "2022-11-28"
PER_PAGE = 100
_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 307, 308})
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,<]*\brel="?next"?')


@dataclass(frozen=True, slots=True)
class Reply:
    """A positive answer: an object, and the address it came from."""

    status: int
    content: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; `is_last` where no other follows."""

    items: tuple[Mapping[str, object], ...]
    is_last: bool


class GitHub:
    """One App on one host. Safe to share between threads.

    Each call raises RetryableFailure NETWORK_*, UPSTREAM_*, WRITE_CONFLICT; QuotaExceeded;
    PermanentFailure AUTH_DENIED, PERMISSION_DENIED, NOT_FOUND, RECIPIENT_REJECTED, SCHEMA_INVALID,
    CONFIG_INVALID, INTERNAL_BUG; UncertainFailure NETWORK_*, UPSTREAM_* when GitHub may have acted
    (guarantee G250). A refused token is renewed once; one that is fresh is shown again (guarantee G251).
    """

    def __init__(
        self,
        config: AppConfig,
        place: Component = Component.PROVIDER,
        *,
        clock: Callable[[], float] = wall_clock,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config
        self._place = place
        self._clock = clock
        self._pause = pause
        self._keys = RotatingSecrets("github_key_refused", config.private_keys, "")
        self._tokens = TokenCache(self._mint, clock)
        self._base = httpx.URL(config.api_url.rstrip("/"))

    def as_app(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Reply:
        """Make a call about the App itself, with its own token: only questions and repeatable ones."""

        def ask(key: str) -> Reply:
            token = app_token(self.config.app_id, key, self._clock())
            return self._judged(
                self._redirected(method, self._url(path), token, body, acts=False), acts=False
            )

        return self._keys.call(ask)

    def token(self, repository: Repository) -> str:
        """Return a token for git, valid for ten minutes at least."""
        return self._tokens.get(repository).value

    def get(self, repository: Repository, path: str) -> Reply:
        """Return one object. `path` begins with `/`; a rename is followed on the same host."""
        return self._judged(self._called(repository, "GET", self._url(path), None), acts=False)

    def pages(
        self, repository: Repository, path: str, query: Mapping[str, str | int] | None = None, items: str = ""
    ) -> Iterator[Page]:
        """Yield a list's pages to its end; `items` names the list inside an object."""
        url = self._url(f"{path}?{urlencode({'per_page': PER_PAGE, **(query or {})})}")
        seen = {url}
        while True:
            answer = self._called(repository, "GET", url, None)
            if answer.status >= 300:
                raise answers.failure_of(answer, self._place, acts=False, now=self._clock())
            rows = _rows(answer, items)
            if rows is None:
                raise answers.unreadable(answer, self._place, acts=False)
            link = _NEXT.search(answer.headers.get("link", ""))
            yield Page(rows, is_last=link is None)
            if link is None:
                return
            url = self._joined(url, link[1])
            if url in seen:
                raise answers.unreadable(answer, self._place, acts=False)
            seen.add(url)

    def post(self, repository: Repository, path: str, body: Mapping[str, object]) -> Reply:
        """Create something: an answer that does not come leaves it uncertain."""
        answer = self._called(repository, "POST", self._url(path), body)
        return self._judged(answer, acts=True)

    def patch(
        self, repository: Repository, path: str, body: Mapping[str, object], *, acts: bool = False
    ) -> Reply:
        """Change something. `acts`: doing it twice differs from doing it once."""
        answer = self._called(repository, "PATCH", self._url(path), body, acts=acts)
        return self._judged(answer, acts=acts)

    # -- inside -------------------------------------------------------------------------------

    def _called(
        self,
        repository: Repository,
        method: str,
        url: httpx.URL,
        body: Mapping[str, object] | None,
        *,
        acts: bool | None = None,
    ) -> Answer:
        """Make one call with the repository's token; a refusal of the token itself is not the answer yet."""
        acts = method == "POST" if acts is None else acts
        pauses = iter(self.config.lag_pauses_seconds)
        is_renewed = False
        while True:
            token = self._tokens.get(repository)
            answer = self._redirected(method, url, token.value, body, acts=acts)
            if answer.status < 300:
                token.is_proven = True
            elif self._may_be_lag(answer, token):
                if (seconds := next(pauses, None)) is not None:
                    self._pause(seconds)
                    continue
            elif answer.status == 401 and not is_renewed:
                is_renewed = True
                self._tokens.drop(repository, token)
                continue
            if answer.status == 401:
                self._tokens.drop(repository, token)
            return answer

    def _may_be_lag(self, answer: Answer, token: Token) -> bool:
        is_refusal = answer.status in {401, 404} or answers.is_missing_permission(answer)
        return is_refusal and token.may_be_unknown(self._clock())

    def _redirected(
        self, method: str, url: httpx.URL, token: str, body: Mapping[str, object] | None, *, acts: bool
    ) -> Answer:
        for _ in range(_MAX_REDIRECTS):
            answer = self._exchange(method, url, token, body, acts=acts)
            if method != "GET" or answer.status not in _REDIRECTS:
                return answer
            url = self._joined(url, answer.headers.get("location", ""))
        return answer

    def _joined(self, url: httpx.URL, reference: str) -> httpx.URL:
        """Return the address that an answer leads to, where it is on our host: a token goes nowhere else."""
        with contextlib.suppress(httpx.InvalidURL, UnicodeError):
            url = url.join(reference)
            if (url.scheme, url.host, url.port) == (self._base.scheme, self._base.host, self._base.port):
                return url
        detail = "GitHub's answer leads to another host, where its token must not go, or to no address"
        raise PermanentFailure(ErrorClass.SCHEMA_INVALID, self._place, detail)

    def _url(self, path: str) -> httpx.URL:
        return httpx.URL(f"{self._base}{path}")

    def _exchange(
        self, method: str, url: httpx.URL, token: str, body: Mapping[str, object] | None, *, acts: bool
    ) -> Answer:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "X-GitHub-Api-Version": API_VERSION,
        }
        content = b""
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        request = Request(method, url, headers, content)
        return exchange(request, self.config.limits, "GitHub", acts=acts, place=self._place)

    def _judged(self, answer: Answer, *, acts: bool) -> Reply:
        if 200 <= answer.status < 300:
            content = answer.json()
            if content is None:
                raise answers.unreadable(answer, self._place, acts=acts)
            return Reply(answer.status, content)
        raise answers.failure_of(answer, self._place, acts=acts, now=self._clock())

    def _mint(self, repository: Repository) -> Mapping[str, object]:
        """Ask for a token of one repository, with the permissions that are needed and no others."""
        installation = self.as_app("GET", f"/repos/{repository.name}/installation").content.get("id")
        if not isinstance(installation, int):
            detail = "GitHub's answer about the App's installation has no id"
            raise PermanentFailure(ErrorClass.SCHEMA_INVALID, self._place, detail)
        only: dict[str, object] = (
            {"repository_ids": [repository.number]}
            if repository.number
            else {"repositories": [repository.name.partition("/")[2]]}
        )
        path = f"/app/installations/{installation}/access_tokens"
        try:
            return self.as_app("POST", path, {**only, "permissions": PERMISSIONS}).content
        except PermanentFailure as failure:
            if failure.error_class is not ErrorClass.SCHEMA_INVALID:
                raise
            wanted = ", ".join(f"{name}: {level}" for name, level in PERMISSIONS.items())
            raise PermanentFailure(
                ErrorClass.PERMISSION_DENIED,
                self._place,
                f"the App's installation does not grant {wanted}: let the owner accept them",
                context=failure.context,
            ) from failure


def _rows(answer: Answer, items: str) -> tuple[Mapping[str, object], ...] | None:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    rows = found.get(items) if items and isinstance(found, dict) else found
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    return tuple(rows)
