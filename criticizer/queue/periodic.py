"""Periodic tasks: each is one outbox message, made due again by the commit that ends a run.

A worker runs the task, not the watchdog. A run that dies is repeated when its lease has expired.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import UUID

import structlog

from criticizer.models import OutboxMessage
from criticizer.queue import outbox

log = structlog.get_logger(__name__)

_ONLY_ID = 0  # the one message's aggregate_id


@dataclass(frozen=True, slots=True)
class Pause:
    """The time until the next run."""

    seconds: float
    waiting_for: str = ""  # a dependency: the run is due earlier, once it can be called


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task with one outbox message, which `aggregate` and `message` name."""

    aggregate: str
    message: str  # a key of settings.TASKS
    queue: str = "stages"

    def ensure(self, *, is_enabled: bool) -> None:
        """Write the message if it is missing; delete it when the task is off and no worker has it."""
        if is_enabled:
            outbox.publish(self.aggregate, _ONLY_ID, self.message, self.queue)
        else:
            OutboxMessage.objects.filter(aggregate_type=self.aggregate, lease_token=None).delete()

    def run_now(self) -> None:
        """Make the next run due now, unless a worker has it. Part of any transaction around it."""
        outbox.make_due(self.aggregate, _ONLY_ID, self.message)

    def run(
        self,
        outbox_id: int,
        token: UUID,
        work: Callable[[], Pause],
        holding: Callable[[UUID], AbstractContextManager[None]],
    ) -> None:
        """Run `work` for a leased message, then make the next run due. Never raises.

        Does nothing when the lease was lost before. `holding` renews it meanwhile; when it is lost all
        the same, the worker that has it now ends the run. When `work` fails, the lease expires and the
        next run starts from the rows.
        """
        try:
            if not outbox.hold(outbox_id, token):
                log.info("periodic_run_refused", message=self.message, outbox=outbox_id)
                return
            with holding(token):
                pause = work()
            if not outbox.put_back(outbox_id, token, seconds=pause.seconds, waiting_for=pause.waiting_for):
                log.info("periodic_run_taken", message=self.message)
        except Exception:
            log.exception("periodic_run_failed", message=self.message)
