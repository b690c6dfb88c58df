"""Calls to GitHub's REST API as an App."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import httpx
import structlog

from criticizer.codehosts import fields
from criticizer.codehosts.client import PER_PAGE, Body, Page, Reply, RestClient
from criticizer.codehosts.error_responses import server_time
from criticizer.codehosts.events import Unreadable
from criticizer.codehosts.github import error_responses
from criticizer.codehosts.github.tokens import (
    PERMISSIONS,
    AppConfig,
    AppCredentials,
    AppTokens,
    Token,
    TokenCache,
)
from criticizer.codehosts.names import Repository
from criticizer.http_client import Answer
from criticizer.redaction import register_own_secrets
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets

log = structlog.get_logger(__name__)

API_VERSION = "2022-11-28"
_CLOCKS_AGREE_SECONDS = 30.0
_MOST_APART_SECONDS = 86_400.0  # no token is signed for a time that differs more
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": API_VERSION}


class GitHub(RestClient):
    """One App on one host. Calls raise as those of `RestClient`.

    A refused token is renewed once; a new one is sent again (guarantee G251). Where GitHub's clock differs
    from ours, GitHub's counts.
    """

    def __init__(
        self,
        config: AppConfig,
        component: Component = Component.PROVIDER,
        *,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(config.api_url, error_responses.ERROR_MEANINGS, config.limits, component, clock)
        self.config = config
        self._pause = pause
        self._slug = config.slug
        self._keys = RotatingSecrets("github_key_refused", config.private_keys, "")
        self._ahead = 0.0  # seconds by which GitHub's clock is ahead of ours
        self._own = AppTokens(config.app_id, lambda: self._clock() + self._ahead)
        self._tokens = TokenCache(self._mint, clock, lambda: self._ahead)

    def as_app(self, method: str, path: str, body: Body = None) -> Reply:
        """Make a call about the App itself, with its own token; only calls that may be repeated."""
        return self._judged(self._called_as_app(method, self._url(path), body), acts=False)

    def app_pages(self, path: str, query: Mapping[str, str | int]) -> Iterator[Page]:
        """Yield all pages of a list about the App itself."""
        url = self._url(path, {"per_page": PER_PAGE, **query})
        return self._paged(url, lambda page: self._called_as_app("GET", page, None))

    def new_app(self, code: str) -> AppCredentials:
        """Exchange the code of a manifest for the credentials of its App, which GitHub does once.

        Raises PermanentFailure NOT_FOUND for a code that GitHub does not accept, or no longer.
        """
        url = self._url(f"/app-manifests/{code}/conversions")
        answer = self._sent("POST", url, _HEADERS, None, acts=True)
        if answer.status in {404, 422}:
            detail = (
                f"GitHub does not take this code (it answered {answer.status}): it takes each once, within an"
                " hour, and only those that it gave out itself"
            )
            raise PermanentFailure(ErrorClass.NOT_FOUND, self._component, detail)
        content = self._judged(answer, acts=True).content
        try:
            key, secret = fields.text(content, "pem"), fields.text(content, "webhook_secret")
            register_own_secrets([key, secret])
            return AppCredentials(fields.whole(content, "id"), fields.text(content, "slug"), key, secret)
        except Unreadable as error:
            detail = f"GitHub's answer about the new App is not readable: {error}"
            raise PermanentFailure(ErrorClass.SCHEMA_INVALID, self._component, detail) from error

    def slug(self) -> str:
        """Return the name of the App in its account's login; GitHub is asked once if it is not set."""
        if not self._slug:
            found = self.as_app("GET", "/app").content.get("slug")
            if not isinstance(found, str) or not found:
                detail = "GitHub's answer about the App has no name: set GITHUB_APP_SLUG"
                raise PermanentFailure(ErrorClass.SCHEMA_INVALID, self._component, detail)
            self._slug = found
        return self._slug

    def token(self, repository: Repository, refused: str = "") -> str:
        """Return a token for git, valid for at least ten minutes, and not the refused one."""
        token = self._tokens.get(repository)
        if refused and token.value == refused:
            self._tokens.drop(repository, token)
            token = self._tokens.get(repository)
        return token.value

    def call(
        self, repository: Repository, method: str, path: str, body: Body = None, *, acts: bool | None = None
    ) -> Reply:
        """Make one call, to a `path` that begins with `/`.

        A redirected GET, as after a rename, is followed on the same host. `acts`: to repeat the call would
        change more; by default true of POST only.
        """
        does = method == "POST" if acts is None else acts
        return self._judged(self._called(repository, method, self._url(path), body, acts=does), acts=does)

    def pages(
        self, repository: Repository, path: str, query: Mapping[str, str | int] | None = None, items: str = ""
    ) -> Iterator[Page]:
        """Yield all pages of a list; `items` is its name inside an object."""
        url = self._url(path, {"per_page": PER_PAGE, **(query or {})})
        return self._paged(url, lambda page: self._called(repository, "GET", page, None, acts=False), items)

    # -- inside -------------------------------------------------------------------------------

    def _called_as_app(self, method: str, url: httpx.URL, body: Body) -> Answer:
        def ask(key: str) -> Answer:
            for _ in range(2):
                answer = self._redirected(method, url, self._own.get(key), body, acts=False)
                if answer.status != 401:
                    break
                self._own.drop(key)
                if not self._adopt_time(answer):
                    break
            return answer

        return self._with_accepted(self._keys, ask)

    def _adopt_time(self, answer: Answer) -> bool:
        """Sign further tokens by the host's clock if a refusal shows that it differs.

        Returns whether it does. GitHub accepts a token for ten minutes of its own clock, and so none that is
        signed an hour off.
        """
        now = self._clock()
        ahead = server_time(answer, now + self._ahead) - now
        if abs(ahead - self._ahead) <= _CLOCKS_AGREE_SECONDS or abs(ahead) > _MOST_APART_SECONDS:
            return False
        log.warning("host_clock_differs", host=self._meanings.label, seconds=round(ahead))
        self._ahead = ahead
        return True

    def _called(
        self, repository: Repository, method: str, url: httpx.URL, body: Body, *, acts: bool
    ) -> Answer:
        """Make one call with the repository's token, again when the token itself is refused."""
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
        is_refusal = answer.status in {401, 404} or error_responses.is_missing_permission(answer)
        return is_refusal and token.may_be_unknown(self._clock())

    def _redirected(self, method: str, url: httpx.URL, token: str, body: Body, *, acts: bool) -> Answer:
        headers = {**_HEADERS, "Authorization": f"Bearer {token}"}
        return self._sent(method, url, headers, body, acts=acts)

    def _mint(self, repository: Repository) -> Mapping[str, object]:
        """Request a token for one repository, with the needed permissions and no others."""
        installation = self.as_app("GET", f"/repos/{repository.name}/installation").content.get("id")
        if not isinstance(installation, int):
            detail = "GitHub's answer about the App's installation has no id"
            raise PermanentFailure(ErrorClass.SCHEMA_INVALID, self._component, detail)
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
                self._component,
                f"the App's installation does not grant {wanted}: let the owner accept them",
                context=failure.context,
            ) from failure
