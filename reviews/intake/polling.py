"""Poll of the sources: asks each for news and makes the jobs that no trigger requested.

One outbox message schedules it. The commit that ends a run makes it due again, so that a worker waits for p4
and git, and the watchdog never does. A run may die anywhere and two may run at once: each step records its
events, their jobs and the position after them together, and only from the position it started at.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from criticizer.queue import advisory_locks
from criticizer.queue.advisory_locks import Lock
from criticizer.queue.periodic import Pause, PeriodicTask
from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.failures import DependencyUnavailable, Failure
from reviews.intake import review_requests, source_events, streams
from reviews.intake.source_events import Event, Outcome
from reviews.intake.streams import Position, Stream, StreamStep
from reviews.models import SourcePosition

log = structlog.get_logger(__name__)

CLOCK = PeriodicTask("source_poll", "poll_sources")
RUN_SECONDS = 300.0  # then the next run continues; django-q2 ends a task after twice that
_AGAIN_SECONDS = 1.0  # until the next run after a partial one


@dataclass(slots=True)
class PollReport:
    """Outcome of one run for one stream.

    `missing`: events without a trigger, with their job ids.
    """

    stream: str
    looked_at: int = 0
    missing: list[tuple[Event, int | None]] = field(default_factory=list)
    problem: str = ""
    waiting_for: str = ""
    is_partial: bool = False


class _Overtaken(Exception):
    """Another run recorded this stream in between."""


def is_enabled() -> bool:
    """Return whether there are streams to poll and SOURCE_POLL_SECONDS is not 0."""
    return settings.SOURCE_POLL_SECONDS > 0 and bool(streams.streams())


# -- the schedule ------------------------------------------------------------------------------


def ensure() -> None:
    """Start or stop the periodic task (SOURCE_POLL_SECONDS). Run by maintenance."""
    CLOCK.ensure(is_enabled=is_enabled())
    # A stream that is not polled any more has no problem with its poll: nobody could remove it.
    polled = [stream.name for stream in streams.streams()] if is_enabled() else []
    ours = Q(stream__startswith="perforce ") | Q(stream__startswith="git ")
    gone = SourcePosition.objects.filter(ours).exclude(problem="").exclude(stream__in=polled)
    gone.update(problem="")


def run_now() -> None:
    """Make the next run due now. Part of the caller's transaction."""
    CLOCK.run_now()


def run_due() -> Pause:
    """Run once; return when the next run is due, at once after a partial one."""
    reports = run() or []
    is_partial = any(report.is_partial for report in reports)
    return Pause(
        _AGAIN_SECONDS if is_partial else settings.SOURCE_POLL_SECONDS,
        next((report.waiting_for for report in reports if report.waiting_for), ""),
    )


# -- a run -------------------------------------------------------------------------------------


def run(*, dry: bool = False) -> list[PollReport] | None:
    """Poll every stream once; return None when another run holds the lock. `dry` writes nothing.

    A source's failure is in its report. Database errors are raised.
    """
    with advisory_locks.held(Lock.SOURCE_POLL) as is_mine:
        if is_mine:
            until = time.monotonic() + RUN_SECONDS
            return [_poll(stream, until, dry=dry) for stream in streams.streams()]
    log.info("poll_runs_elsewhere")
    return None


def _poll(stream: Stream, until: float, *, dry: bool) -> PollReport:
    report = PollReport(stream.name)
    try:
        _take_steps(stream, until, report, dry=dry)
    except DependencyUnavailable as waiting:
        report.waiting_for = waiting.dependency
        report.problem = f"waiting: {waiting.reason}"
    except Failure as failure:
        report.problem = f"{failure.error_class}: {failure.detail}"
    except _Overtaken:
        report.problem = "another run recorded this stream first"
    if report.problem:
        log.warning("poll_stopped", stream=stream.name, reason=clean(report.problem, 300))
    log.info("polled", stream=stream.name, looked_at=report.looked_at, missing=len(report.missing))
    if not dry:
        SourcePosition.objects.update_or_create(
            stream=stream.name, defaults={"polled_at": Now(), "problem": clean(report.problem, 500)}
        )
    return report


def _take_steps(stream: Stream, until: float, report: PollReport, *, dry: bool) -> None:
    position = position_of(stream.name)
    steps = stream.steps(position)
    while (step := _next_step(stream, steps)) is not None:
        if dry:
            report.missing += [(event, None) for event in step.events if source_events.is_missing(event)]
        else:
            position = _recorded(stream.name, position, step, report)
        report.looked_at += step.looked_at
        if report.looked_at >= streams.PER_RUN or time.monotonic() > until:
            report.is_partial = not dry
            return


def _next_step(stream: Stream, steps: Iterator[StreamStep]) -> StreamStep | None:
    with gate.guarded(stream.dependency) if stream.dependency else contextlib.nullcontext():
        return next(steps, None)


def position_of(stream: str) -> Position | None:
    """Return how far a stream was read; None before the first look."""
    found = SourcePosition.objects.filter(stream=stream).first()
    position = Position(found.place, found.state) if found is not None else Position()
    return None if position == Position() else position  # a failed first look leaves a row without a place


def _recorded(stream: str, before: Position | None, step: StreamStep, report: PollReport) -> Position:
    after, missing = review_requests.past_deadlocks(lambda: _record(stream, before, step))
    report.missing += missing
    return after


def _record(
    stream: str, before: Position | None, step: StreamStep
) -> tuple[Position, list[tuple[Event, int | None]]]:
    """Write a step's events, their jobs and the position after them, or nothing."""
    with transaction.atomic():
        _hold(stream, before)
        entries = [
            (event, entry) for event in step.events if (entry := source_events.find(event)) is not None
        ]
        missing = [
            (event, entry.job_id) for event, entry in entries if entry.outcome is Outcome.FOUND_BY_POLL
        ]
        after = step.after([event for event, _ in entries])
        counted = {"missing": F("missing") + len(missing), "last_missing_at": Now()} if missing else {}
        SourcePosition.objects.filter(stream=stream).update(
            place=after.place, state=dict(after.state), polled_at=Now(), **counted
        )
    return after, missing


def _hold(stream: str, before: Position | None) -> None:
    """Lock the stream's position. Raises _Overtaken unless it is `before`."""
    if before is None:
        SourcePosition.objects.bulk_create([SourcePosition(stream=stream)], ignore_conflicts=True)
        before = Position()
    held = SourcePosition.objects.select_for_update().filter(
        stream=stream, place=before.place, state=dict(before.state)
    )
    if held.first() is None:
        raise _Overtaken
