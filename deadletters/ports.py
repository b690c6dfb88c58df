"""The port to the app whose jobs fail (settings.DEADLETTER_RECOVERY)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from deadletters.types import Change, Check, DataField, Failed


class Recovery(Protocol):
    """The port to the room whose jobs fail (settings.DEADLETTER_RECOVERY).

    One object serves one request or one round of a batch: what it asked a dependency once, it
    need not ask again.
    """

    def describe(self, job_id: int) -> str:
        """Return one line that names the job to an operator."""
        ...

    def lanes(self, job_ids: Collection[int]) -> dict[int, str]:
        """Return the lane of each job: of one lane, one job at a time can be at work."""
        ...

    def survey(self, failed: Sequence[Failed], *, restart: bool | None) -> dict[int, list[Check]]:
        """Return, by job, what the rows alone say about a replay now. Cheap, and for sets.

        `restart` None: from which stage it begins is not decided yet.
        """
        ...

    def answers(self, failed: Sequence[Failed], *, restart: bool | None) -> dict[int, list[Check]]:
        """Return, by job, what harmless questions to its dependencies say; each is asked once.

        Takes seconds; call it in no transaction.
        """
        ...

    def probe(self, failed: Failed, *, restart: bool | None) -> list[Check]:
        """Return what can be asked harmlessly about this very job: its artifact, its paths.

        Takes seconds; call it in no transaction.
        """
        ...

    def circuits(self, failed: Sequence[Failed], *, restart: bool | None) -> list[Check]:
        """Return whether the circuits that a replay needs let calls pass."""
        ...

    def replay(self, job_id: int, stage: str, *, restart: bool) -> bool:
        """Put the job back to work inside the caller's transaction; False when it cannot be."""
        ...

    def verify(self, failed: Failed) -> list[Check]:
        """Return whether the effects are there of the stage, and of the whole job where it succeeded."""
        ...

    def data(self, job_id: int) -> list[DataField]:
        """Return what the job was asked to do, and which of it may be changed; nothing of no job."""
        ...

    def normalised(self, job_id: int, values: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return values as the job would keep them. Raises WrongData."""
        ...

    def why_not(self, job_id: int, change: Change) -> str:
        """Return why the change cannot be made now, one sentence, or an empty string."""
        ...

    def apply(self, job_id: int, change: Change, *, asked_by: str, approved_by: str, reason: str) -> str:
        """Make the change inside the caller's transaction; else change nothing and return why not."""
        ...


def recovery() -> Recovery:
    """Return the configured port (settings.DEADLETTER_RECOVERY)."""
    port: Recovery = import_string(settings.DEADLETTER_RECOVERY)()
    return port
