"""Tasks of the django-q2 workers, called by dotted path. Arguments are ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from reviews import check_runs
from reviews.intake import host_poll, polling, scan_schedule
from reviews.pipeline import async_executor, executor
from reviews.pipeline.executor import LEASE_RENEWER
from reviews.replay import delivery_audit


def run_stage(outbox_id: int, stage_run_id: int, token: str) -> None:
    """Run one leased stage (queues `stages` and `notify`)."""
    executor.run_stage(outbox_id, stage_run_id, UUID(token))


def drive(queue: str) -> None:
    """Run the stages of `queue` concurrently until there is nothing left to do (queue `llm`)."""
    async_executor.drive(queue)


def _periodic(module: Any) -> Callable[[int, int, str], None]:
    """Return the task of a module's CLOCK: its `run_due`, under a lease that is renewed."""

    def run(outbox_id: int, clock: int, token: str) -> None:
        module.CLOCK.run(outbox_id, UUID(token), module.run_due, LEASE_RENEWER.holding)

    return run


poll_sources = _periodic(polling)  # each source, for changes without a trigger
poll_hosts = _periodic(host_poll)  # code hosts, for pull requests whose webhooks were lost
start_scans = _periodic(scan_schedule)  # of documentation, those that are due
audit_deliveries = _periodic(delivery_audit)  # left behind, or marked as sent without evidence
tell_check_runs = _periodic(check_runs)  # the state of their reviews
