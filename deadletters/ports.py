"""The port to the app whose jobs fail (settings.DEADLETTER_RECOVERY)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from deadletters.types import Change, Check, DataField, Failed


class Recovery(Protocol):
    """Describes, checks and replays the jobs behind dead letters.

    One object serves one request or one run of a batch: it asks each dependency once. `restart` says
    whether the replay begins with the first stage; None: that is not decided yet.
    """

    def lanes(self, job_ids: Collection[int]) -> dict[int, str]:
        """Return the lane of each job; one job of a lane can run at a time."""
        ...

    def survey(self, failed: Sequence[Failed], *, restart: bool | None) -> dict[int, list[Check]]:
        """Return, by job, the checks that need only the database. Cheap, and for sets."""
        ...

    def answers(self, failed: Sequence[Failed], *, restart: bool | None) -> dict[int, list[Check]]:
        """Return, by job, the health checks of its dependencies.

        Takes seconds: call it in no transaction.
        """
        ...

    def probe(self, failed: Failed, *, restart: bool | None) -> list[Check]:
        """Return the harmless checks of one job: its artifact, its paths. Call it in no transaction."""
        ...

    def circuits(self, failed: Sequence[Failed], *, restart: bool | None) -> list[Check]:
        """Return whether the circuit breakers that a replay needs let calls pass."""
        ...

    def replay(self, job_id: int, stage: str, *, restart: bool) -> bool:
        """Queue the job again inside the caller's transaction; return False if it cannot be."""
        ...

    def why_not_give_up(self, job_id: int) -> str:
        """Return why a job cannot end without its refused recipients, or an empty string.

        The reason is one sentence.
        """
        ...

    def give_up(self, job_id: int, *, actor: str, reason: str) -> object:
        """Abandon the refused deliveries of a job inside the caller's transaction."""
        ...

    def verify(self, failed: Failed) -> list[Check]:
        """Return whether the effects of the stage exist, and of the whole job if it succeeded."""
        ...

    def data(self, job_id: int) -> list[DataField]:
        """Return the job's input and which of it can be edited; empty if there is no such job."""
        ...

    def normalised(self, job_id: int, values: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return values as the job would store them. Raises WrongData."""
        ...

    def why_not(self, job_id: int, change: Change) -> str:
        """Return why the change cannot be made now, one sentence, or an empty string."""
        ...

    def apply(self, job_id: int, change: Change, *, asked_by: str, approved_by: str, reason: str) -> str:
        """Make the change inside the caller's transaction, or change nothing and return why not."""
        ...


def recovery() -> Recovery:
    """Return a new object of the configured class."""
    port: Recovery = import_string(settings.DEADLETTER_RECOVERY)()
    return port
