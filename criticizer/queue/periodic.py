"""Work that comes round: one outbox message is its clock, due again by the commit that ends a run.

A worker does it, not the caretaker; a run that dies is repeated when its lease has run out.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import structlog

from criticizer.db import prepared
from criticizer.queue import outbox

log = structlog.get_logger(__name__)

_CLOCK = 0  # the one row's aggregate_id


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """`aggregate` and `message` name the one outbox message; `message` is a key of settings.TASKS."""

    aggregate: str
    message: str
    queue: str = "stages"

    def ensure(self, *, is_enabled: bool) -> None:
        """Make the message where it is missing; take it away when it is off and nobody has it."""
        if is_enabled:
            outbox.publish(self.aggregate, _CLOCK, self.message, self.queue)
        else:
            prepared.rows(
                "DELETE FROM outbox_messages WHERE aggregate_type = %(type)s AND lease_token IS NULL",
                {"type": self.aggregate},
            )

    def run_now(self) -> None:
        """Let the next run begin now. Part of the caller's transaction."""
        prepared.rows(
            """
            WITH due AS (
              UPDATE outbox_messages SET available_at = now(), waiting_for = ''
               WHERE aggregate_type = %(type)s AND lease_token IS NULL RETURNING id)
            SELECT pg_notify(%(channel)s, '') FROM due""",
            {"type": self.aggregate, "channel": outbox.channel(self.queue)},
        )

    def begin(self, outbox_id: int, token: UUID) -> bool:
        """Take up a leased message; False when the lease is lost."""
        return outbox.hold(outbox_id, token)

    def end(self, outbox_id: int, token: UUID, *, seconds: float, waiting_for: str = "") -> None:
        """Let the message be due again in `seconds`, or as soon as a dependency is free that it waits for.

        Without the lease it is somebody else's already, who ends the run that counts.
        """
        if not outbox.put_back(outbox_id, token, seconds=seconds, waiting_for=waiting_for):
            log.info("periodic_run_taken", message=self.message)
