"""Tasks of the django-q2 workers, called by dotted path. Arguments are ids."""

from __future__ import annotations

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


def poll_sources(outbox_id: int, clock: int, token: str) -> None:
    """Poll each source once for changes without a trigger (queue `stages`)."""
    _run(polling, outbox_id, token)


def poll_hosts(outbox_id: int, clock: int, token: str) -> None:
    """Ask code hosts for pull requests whose webhooks were lost (queue `stages`)."""
    _run(host_poll, outbox_id, token)


def start_scans(outbox_id: int, clock: int, token: str) -> None:
    """Request the scans of documentation that are due (queue `stages`)."""
    _run(scan_schedule, outbox_id, token)


def audit_deliveries(outbox_id: int, clock: int, token: str) -> None:
    """Look for deliveries left behind or marked as sent without evidence (queue `notify`)."""
    _run(delivery_audit, outbox_id, token)


def tell_check_runs(outbox_id: int, clock: int, token: str) -> None:
    """Bring check runs up to the state of their reviews (queue `notify`)."""
    _run(check_runs, outbox_id, token)


def _run(periodic: Any, outbox_id: int, token: str) -> None:
    periodic.CLOCK.run(outbox_id, UUID(token), periodic.run_due, LEASE_RENEWER.holding)
