"""Base of the code hosts with authentication by the token of an account."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from criticizer.codehosts.base import Lack, Verdict
from criticizer.codehosts.client import TokenClient, TokenConfig
from criticizer.codehosts.error_responses import of_account
from criticizer.codehosts.names import Repository
from criticizer.codehosts.signatures import ProvenWebhooks
from criticizer.http_client import host_and_port
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure


class TokenHost(ProvenWebhooks, ABC):
    """A host with authentication by a token: the part of `Host` that does not depend on its API.

    Statuses of commits are used as check runs; the newest of a commit counts.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    repositories: ClassVar[type[Repository]] = Repository
    api: ClassVar[str]  # its path below the site
    scheme: ClassVar[str]  # the word before the token in its header
    role: ClassVar[str]  # what its account needs on a repository
    calls_at_once: ClassVar[int | None] = 1
    calls_per_second: ClassVar[float | None] = None
    has_own_checks: ClassVar[bool] = False
    lag_pauses_seconds: ClassVar[Sequence[float]] = ()

    def __init__(
        self,
        config: TokenConfig,
        secrets: Sequence[str] = (),
        component: Component = Component.PROVIDER,
        client: TokenClient | None = None,
    ) -> None:
        super().__init__(secrets)
        self._config = config
        self.client = client or TokenClient(config, self.api, self.scheme, of_account(self.label), component)

    @classmethod
    def configured(cls, setting: Callable[[str], Any]) -> TokenConfig:
        """Return the configuration from <NAME>_URL and <NAME>_TOKEN."""
        name = cls.name.upper()
        return TokenConfig(setting(f"{name}_URL"), setting(f"{name}_TOKEN"))

    @property
    def is_connected(self) -> bool:
        return bool(self._config.url and self._config.tokens)

    @property
    def has_new_account(self) -> bool:
        return self.client.has_new_account

    def clone_url(self, full_name: str) -> str:
        return f"{self._config.url.rstrip('/')}/{full_name}.git"

    def lacks(self) -> list[Lack]:
        return []  # neither host says what a token may do

    def lacks_on(self, repository: Repository) -> list[Lack]:
        """Return what we lack on a repository: sight of it, or the right to write."""
        account = f"the account of {self.name.upper()}_TOKEN"
        try:
            found = self.client.call("GET", self._repository_path(repository)).content
        except PermanentFailure as failure:
            if failure.error_class is not ErrorClass.NOT_FOUND:
                raise
            advice = f"Add {account} to it, with {self.role}, or correct its name."
            return [Lack(f"sight of {repository.name}: {account} does not see it", advice)]
        if self._may_write(found):
            return []
        advice = f"Give {account} {self.role} there."
        return [Lack(f"the right to write to {repository.name}: {account} may only read it", advice)]

    def git_password(self, repository: Repository, refused: str = "") -> str:
        return self.client.account()[0] if self.is_connected else ""

    def repository(self, full_name: str, number: int = 0) -> Repository:
        return self.repositories(full_name, number)

    def dependency(self, full_name: str) -> str:
        return f"{self.name}:{host_and_port(self._config.url)}"

    def post_verdict(
        self,
        repository: Repository,
        verdict: Verdict,
        known: int | None,
        check_time: Callable[[], None],
        *,
        is_first: bool,
    ) -> int | None:
        check_time()
        return self._set_status(repository, verdict) or known

    def probe(self) -> str:
        self.client.account()
        return f"{self.label} answers and accepts the token."

    @abstractmethod
    def _repository_path(self, repository: Repository) -> str:
        """Return the path of a repository below the API."""

    @abstractmethod
    def _may_write(self, content: Mapping[str, object]) -> bool:
        """Return whether the account may comment and set statuses; True where `content` omits it."""

    @abstractmethod
    def _set_status(self, repository: Repository, verdict: Verdict) -> int | None:
        """Set the status of the head; return its id, None where it has that status already."""
