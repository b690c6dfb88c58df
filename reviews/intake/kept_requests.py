"""Newest requests of this web process, recorded again where the database lost them (G493).

A standby that is promoted under asynchronous replication, and a restored backup, lack the last commits. The
clients have their answers by then, so that what was lost is known to nobody but the process that answered.
It keeps its last requests, of MOST_CHARACTERS together, for KEEP_SECONDS. When the database is on another
timeline, it looks for their reviews, requests again those that are gone, and alerts the operators. A process
that ended forgot them.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog
from django.db import Error, connection

from criticizer.db import reconnect, timeline
from deadletters import alerts
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, IntakeResult, Overtaken, ReviewRequest
from reviews.models import ReviewJob

log = structlog.get_logger(__name__)

MOST_CHARACTERS = 10_000_000  # of a process: some 8,000 usual requests, 180 of the longest
ENTRY_CHARACTERS = 1_000  # what a request takes without its texts
TEXT_CHARACTERS = 50  # what a text takes without its characters
KEEP_SECONDS = 600.0  # a standby that is farther behind is broken
LOOK_SECONDS = 2.0
LATE_SECONDS = 60.0  # an old primary that is not fenced yet accepts requests after a look at the new one
REFUSED_SECONDS = 60.0  # each look at a server that reports no timeline is an error in its log
MAX_LINES = 100  # of an alert
MAX_NAME = 80  # of a line: an alert has room for MAX_LINES
NO_REVIEW = "could not be requested again"
_MADE = (IntakeOutcome.CREATED, IntakeOutcome.DUPLICATE_KEY, IntakeOutcome.SAME_VERSION)


@dataclass(frozen=True, slots=True)
class Kept:
    """An accepted request.

    `record` makes its review, or finds it: it returns the review's number, or why there is none.
    """

    job: int
    changelist_id: str
    name: str  # as the client knows it
    record: Callable[[], int | str]
    characters: int
    at: float  # monotonic


_kept: dict[tuple[int, str], Kept] = {}  # by number and changelist, the oldest first
_characters = 0  # of all that is kept
_known: tuple[int, int] | None = None  # timeline and system at the last look; the first one learns them
_changed_at = -math.inf  # monotonic: when a look found another timeline
_is_due = False  # the next look compares: the timeline changed, or the last comparison left something
_lock = threading.Lock()


def keep(
    job: int | None, changelist_id: str, name: str, record: Callable[[], int | str], texts: Iterable[str] = ()
) -> None:
    """Keep a request that was accepted as `job`; `texts` are what `record` holds.

    `record` is repeated where a look is interrupted, so it has to find the review that it made. A Perforce
    shelf whose fetch has begun in between gets one more version, which supersedes the one before.
    """
    if job is None:
        return
    characters = ENTRY_CHARACTERS + sum(len(text) + TEXT_CHARACTERS for text in (name, *texts))
    with _lock:
        _add(Kept(job, changelist_id, name, record, characters, time.monotonic()))


def _add(one: Kept) -> None:
    """Keep it, and drop the oldest where all take too much memory. Under the lock."""
    global _characters
    if (one.job, one.changelist_id) in _kept:
        return  # a request that is repeated takes no other's place
    _kept[one.job, one.changelist_id] = one
    _characters += one.characters
    while _characters > MOST_CHARACTERS:
        _drop([next(iter(_kept))])


def _drop(keys: Iterable[tuple[int, str]]) -> None:
    """Keep these no longer, if they are kept. Under the lock."""
    global _characters
    for key in keys:
        one = _kept.pop(key, None)
        _characters -= one.characters if one is not None else 0


def keep_review(wanted: ReviewRequest, result: IntakeResult) -> None:
    """Keep a request for a review, unless it found a review of something else."""
    if result.outcome in _MADE and result.is_same_version and not result.payload_mismatch:
        texts = (*wanted.recipients, *wanted.scope_prefixes)
        keep(result.job_id, wanted.changelist_id, wanted.idempotency_key, lambda: _request(wanted), texts)


def _request(wanted: ReviewRequest) -> int | str:
    result = review_requests.request_review(wanted)
    if result.outcome is IntakeOutcome.VERSION_CONFLICT:
        is_newer = (result.newest_version or 0) > wanted.review_version
        return f"{'a newer' if is_newer else 'an earlier'} version took its place"
    if result.job_id is None or not result.is_same_version:
        return "its key was given to another review"
    return result.job_id


def forget(job: int) -> None:
    """Keep no request of a review that was cancelled.

    So a promotion that loses both leaves the review cancelled.
    """
    with _lock:
        _drop([key for key in _kept if key[0] == job])


def watch() -> None:
    """Look at once, and every LOOK_SECONDS while anything is kept.

    Runs in a thread of each web process.
    """
    seconds = 0.0
    while True:
        time.sleep(seconds)
        seconds = LOOK_SECONDS
        if not _kept and _known is not None:
            connection.close()
            continue
        try:
            if not look():
                seconds = REFUSED_SECONDS
        except Error as error:  # the database is away: the next look has the same requests
            log.info("kept_requests_wait", error=type(error).__name__)
            connection.close()
        except Exception:
            log.exception("kept_requests_failed")
            connection.close()


def look() -> bool:
    """Record again the kept requests that the database lost since the last look.

    Return False where the server is there and reports no timeline. Raises django.db.Error.
    """
    global _known, _changed_at, _is_due
    found = timeline.read()
    if found is None:
        is_there = connection.connection is not None and connection.is_usable()
        connection.close()
        if is_there and _known is None:  # a server that reported one before may be a standby that takes over
            with _lock:
                _drop(list(_kept))
        return not is_there
    if _known not in (None, found):
        _changed_at, _is_due = time.monotonic(), True
    _known = found
    if _is_due or time.monotonic() < _changed_at + LATE_SECONDS:
        _is_due = True  # also where this look is interrupted
        _is_due = _record_lost(found)
    if not _is_due:
        with _lock:
            _drop([key for key, one in _kept.items() if one.at < time.monotonic() - KEEP_SECONDS])
    return True


def _record_lost(found: tuple[int, int]) -> bool:
    """Request again what the database lacks; return whether some of it waits for the next look."""
    with _lock:
        kept = list(_kept.values())
    there = dict(
        ReviewJob.objects.filter(pk__in={one.job for one in kept}).values_list("pk", "changelist_id")
    )
    outcomes = [(one, _record(one)) for one in kept if there.get(one.job) != one.changelist_id]
    ended = [(one, outcome) for one, outcome in outcomes if outcome is not None]
    if ended:
        number, system = found
        # Each process names its own, each look what it found. A look that fails before this is repeated.
        process = f"{os.uname().nodename}:{os.getpid()}:{ended[0][0].job}:{len(ended)}"
        alerts.tell(
            "requests_lost",
            key=f"requests_lost:{system}:{number}:{process}",
            requests=f"{len(ended)} accepted requests" if len(ended) > 1 else "An accepted request",
            timeline=number,
            lines="\n".join(_lines(ended)),
        )
    with _lock:
        for one, outcome in ended:
            _drop([(one.job, one.changelist_id)])
            if isinstance(outcome, int):
                _add(replace(one, job=outcome, at=time.monotonic()))
    if waiting := len(outcomes) - len(ended):
        log.warning("lost_requests_wait", requests=waiting)
    return waiting > 0


def _record(one: Kept) -> int | str | None:
    """Request the review again; return its number, or why it has none.

    None: try again at the next look. Raises django.db.Error.
    """
    facts = {"was": one.job, "changelist": one.changelist_id, "key": one.name}
    try:
        outcome = one.record()
    except Exception as error:
        if isinstance(error, Error) and reconnect.is_disconnect(error):
            raise
        is_over = time.monotonic() > max(one.at, _changed_at) + KEEP_SECONDS
        if isinstance(error, (Error, Overtaken)) and not is_over:
            return None  # a lock, a limit of time, a full disk: it may work at the next look
        log.exception("lost_request_failed", **facts)
        return NO_REVIEW
    if isinstance(outcome, int):
        log.warning("lost_request_recorded", job=outcome, **facts)
    else:
        log.error("lost_request_failed", reason=outcome, **facts)
    return outcome


def _lines(lost: Sequence[tuple[Kept, int | str]]) -> list[str]:
    left_out = len(lost) - MAX_LINES
    # First, as the end of a long alert is cut.
    lines = [f"{left_out} more are in the log: lost_request_recorded, lost_request_failed"] * (left_out > 0)
    for one, outcome in lost[:MAX_LINES]:
        name = one.name if len(one.name) <= MAX_NAME else f"{one.name[: MAX_NAME - 1]}…"
        now = f"is review {outcome}" if isinstance(outcome, int) else outcome
        lines.append(f"{name}: was review {one.job}, {now}")
    return lines
