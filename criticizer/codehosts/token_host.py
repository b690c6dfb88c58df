"""What code hosts have in common that know us by the token of an account."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from criticizer.codehosts.answers import of_account
from criticizer.codehosts.base import Verdict
from criticizer.codehosts.client import TokenClient, TokenConfig
from criticizer.codehosts.names import Repository
from criticizer.codehosts.signatures import ProvenWebhooks
from criticizer.http_client import host_and_port
from criticizer.resilience.failures import Component


class TokenHost(ProvenWebhooks, ABC):
    """A host that knows us by a token, without its own calls (`Host`).

    Statuses of commits stand in for check runs; the newest of a commit counts.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    repositories: ClassVar[type[Repository]] = Repository
    api: ClassVar[str]  # its path below the site
    scheme: ClassVar[str]  # how the token is shown
    has_own_checks: ClassVar[bool] = False
    lag_pauses_seconds: ClassVar[Sequence[float]] = ()

    def __init__(
        self,
        config: TokenConfig,
        secrets: Sequence[str] = (),
        place: Component = Component.PROVIDER,
        client: TokenClient | None = None,
    ) -> None:
        super().__init__(secrets)
        self._config = config
        self.client = client or TokenClient(config, self.api, self.scheme, of_account(self.label), place)

    @property
    def is_connected(self) -> bool:
        return bool(self._config.url and self._config.tokens)

    @property
    def has_new_account(self) -> bool:
        return self.client.has_new_account

    def clone_url(self, full_name: str) -> str:
        return f"{self._config.url.rstrip('/')}/{full_name}.git"

    def lacks(self) -> list[str]:
        return []  # neither host tells what a token may do

    def git_password(self, repository: Repository) -> str:
        return self.client.account()[0] if self.is_connected else ""

    def repository(self, full_name: str, number: int = 0) -> Repository:
        return self.repositories(full_name, number)

    def dependency(self, full_name: str) -> str:
        return f"{self.name}:{host_and_port(self._config.url)}"

    def tell(
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
    def _set_status(self, repository: Repository, verdict: Verdict) -> int | None:
        """Set the status of the head; return its id, None where it has that status already."""
