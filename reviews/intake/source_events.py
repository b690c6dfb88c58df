"""The event ledger: what each source told or was found to have, and which job came of it.

Triggers and the poll tell the same things, in any order and more than once. Each event is
decided under the lock of its changelist, and its row is written in the commit that makes
its job, or neither is. Nothing else writes these rows.

A submit happens once. A shelf has no history and its trigger tells only its number, so:

- an event whose job has not begun to read joins that job, which will read the newest content;
- an event after that is a new version, which supersedes the one at work;
- the first trigger after the poll found a shelf is taken for that same shelf. The poll
  compares contents and finds whatever that left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction

from criticizer.db import prepared
from criticizer.queue import outbox
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, ReviewRequest
from reviews.models import SourceEvent
from reviews.pipeline.base import ACTIVE, WAITING

log = structlog.get_logger(__name__)

Kind, Origin, Outcome = SourceEvent.Kind, SourceEvent.Origin, SourceEvent.Outcome

KEEP_DAYS = 30
_DELETE_BATCH = 5000
_TRIES = 5
_SHELF_KEYS = "perforce:%:shelve-commit:%"  # the idempotency keys of jobs that were made for a shelf


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a source. `version_key` is the key of the content, where it is known.

    `recipients` are told of a change that nothing covers.
    """

    kind: SourceEvent.Kind
    changelist_id: str
    server: str
    recipients: tuple[str, ...] = ()
    requested_by: str = ""
    version_key: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of an event. `found_late` says that the poll had found it before its trigger."""

    job_id: int | None
    outcome: SourceEvent.Outcome
    found_late: bool = False


class Overtaken(Exception):
    """Other requests for the changelist came first again and again: nothing was recorded."""


def receive(event: Event) -> Entry:
    """Record what a trigger tells, with the job it makes or has already.

    Raises Overtaken when it can not be accepted now; the ledger says so.
    """
    try:
        return review_requests.past_deadlocks(lambda: _receive(event))
    except Overtaken:
        log.warning("trigger_overtaken", changelist=event.changelist_id)
        _write(event, Origin.TRIGGER, Outcome.REFUSED, None)
        raise


def _receive(event: Event) -> Entry:
    with transaction.atomic():
        review_requests.lock_changelist(event.changelist_id)
        known = _known_shelf(event) if event.kind is Kind.SHELVE else _known_submit(event)
        return known or _request(event, Origin.TRIGGER)


def find(event: Event) -> Entry | None:
    """Record what the poll found, with its job. Inside a transaction.

    Returns None when there is nothing to remember: the event is known, or the job that will
    read this shelf has not done so yet, so that the next poll has to compare again.
    """
    assert connection.in_atomic_block
    review_requests.lock_changelist(event.changelist_id)
    if not is_news(event):
        return None
    covering = _covering_job(event)
    if covering is None:
        entry = _request(event, Origin.POLL)
        if entry.outcome is Outcome.FOUND_BY_POLL:
            log.warning(
                "poll_found_missing", kind=event.kind.value, changelist=event.changelist_id, job=entry.job_id
            )
        return entry
    if event.kind is not Kind.SHELVE:
        return _write(event, Origin.POLL, Outcome.SEEN_BEFORE, covering["id"])
    return Entry(covering["id"], Outcome.SEEN_BEFORE) if covering["version_key"] else None


def is_missing(event: Event) -> bool:
    """Say whether no trigger told of this and no job covers it. Changes nothing."""
    return is_news(event) and _covering_job(event) is None and not _was_told(event)


def is_news(event: Event) -> bool:
    """Say whether nobody recorded this submit, or the submit that ended this shelf."""
    kind = Kind.CHANGE if event.kind is Kind.SHELVE else event.kind
    return bool(unannounced(kind, [event.changelist_id]))


def unannounced(kind: SourceEvent.Kind, changelist_ids: Iterable[str]) -> set[str]:
    """Return those of the changelists of which the ledger has no event of this kind."""
    asked = set(changelist_ids)
    found = prepared.rows(
        """
        SELECT DISTINCT changelist_id FROM source_events
         WHERE changelist_id = ANY(%(ids)s::varchar[]) AND event = %(event)s AND outcome <> 'refused'""",
        {"ids": list(asked), "event": kind.value},
    )
    return asked - {row["changelist_id"] for row in found}


def newest_submit() -> int | None:
    """Return the highest number of a submitted changelist that any event named."""
    highest = prepared.value(
        "SELECT max(changelist_id::bigint) FROM source_events WHERE event = 'change-commit'"
        " AND outcome <> 'refused'"
    )
    return None if highest is None else int(highest)


def recent_shelves(days: int, limit: int) -> list[int]:
    """Return the changelists whose shelves were told of lately and which were not submitted since."""
    found = prepared.rows(
        """
        SELECT e.changelist_id FROM source_events e
         WHERE e.event = 'shelve-commit' AND e.outcome <> 'refused'
           AND e.received_at > now() - make_interval(days => %(days)s)
           AND NOT EXISTS (SELECT 1 FROM source_events s WHERE s.changelist_id = e.changelist_id
                              AND s.event = 'change-commit' AND s.outcome <> 'refused')
         GROUP BY e.changelist_id ORDER BY max(e.id) DESC LIMIT %(limit)s""",
        {"days": days, "limit": limit},
    )
    return [int(row["changelist_id"]) for row in found]


def delete_expired() -> int:
    """Delete a batch of rows older than KEEP_DAYS; return how many. Run by maintenance."""
    gone = prepared.rows(
        """
        DELETE FROM source_events WHERE id IN (
          SELECT id FROM source_events WHERE received_at < now() - make_interval(days => %(days)s)
           ORDER BY received_at LIMIT %(limit)s)
        RETURNING id""",
        {"days": KEEP_DAYS, "limit": _DELETE_BATCH},
    )
    if gone:
        log.info("source_events_deleted", rows=len(gone))
    return len(gone)


# -- what is known of an event that a trigger tells --------------------------------------------


def _known_submit(event: Event) -> Entry | None:
    found = prepared.row(
        """
        SELECT id, origin, job_id FROM source_events
         WHERE changelist_id = %(changelist)s AND event = %(event)s AND outcome <> 'refused'
           AND (server = %(server)s OR origin = 'poll')
         ORDER BY (origin = 'trigger') DESC, id DESC LIMIT 1""",
        {"changelist": event.changelist_id, "event": event.kind.value, "server": event.server},
    )
    if found is None:
        return None
    if found["origin"] == Origin.TRIGGER:
        prepared.rows(
            "UPDATE source_events SET repeats = repeats + 1, repeated_at = now() WHERE id = %(id)s",
            {"id": found["id"]},
        )
        return Entry(found["job_id"], Outcome.SEEN_BEFORE)
    # The poll was faster, under whatever name it knows the server by.
    return _write(event, Origin.TRIGGER, Outcome.SEEN_BEFORE, found["job_id"], found_late=True)


def _known_shelf(event: Event) -> Entry | None:
    told = prepared.rows(
        """
        SELECT event, origin, job_id FROM source_events
         WHERE changelist_id = %(changelist)s AND event IN ('shelve-commit', 'change-commit')
           AND outcome <> 'refused' AND job_id IS NOT NULL AND (server = %(server)s OR origin = 'poll')
         ORDER BY id DESC""",
        {"changelist": event.changelist_id, "server": event.server},
    )
    newest = next((row for row in told if row["event"] == Kind.SHELVE), None)
    if any(row["event"] == Kind.CHANGE for row in told):
        # What was submitted is never shelved again: this event comes late.
        return _write(event, Origin.TRIGGER, Outcome.SEEN_BEFORE, (newest or told[0])["job_id"])
    if newest is None:
        return None
    if _has_not_begun_to_read(newest["job_id"]):
        return _write(event, Origin.TRIGGER, Outcome.JOINED, newest["job_id"])
    if newest["origin"] == Origin.POLL and settings.SOURCE_POLL_SECONDS:
        return _write(event, Origin.TRIGGER, Outcome.SEEN_BEFORE, newest["job_id"], found_late=True)
    return None


def _has_not_begun_to_read(job_id: int) -> bool:
    """Say whether the job's next fetch begins after this transaction: what it reads is the newest.

    The stage is locked. Either the worker's claim came first, and is seen; or the claim waits
    for our commit, and everything the event tells of is on the server before the worker asks.
    """
    return bool(
        prepared.row(
            f"""
            SELECT s.id FROM stage_runs s JOIN jobs j ON j.id = s.job_id
             WHERE s.job_id = %(job)s AND s.stage = 'fetch' AND s.status IN {WAITING}
               AND j.status IN {ACTIVE} FOR UPDATE OF s""",  # noqa: S608  state lists only
            {"job": job_id},
        )
    )


def _covering_job(event: Event) -> dict[str, Any] | None:
    """Return the job that has read, or will read, what the poll found: its id and version_key."""
    newest = prepared.row(
        """
        SELECT id, version_key FROM jobs
         WHERE changelist_id = %(changelist)s
           AND (%(event)s <> 'change-commit' OR idempotency_key NOT LIKE %(shelves)s)
         ORDER BY review_version DESC LIMIT 1""",
        {"changelist": event.changelist_id, "event": event.kind.value, "shelves": _SHELF_KEYS},
    )
    if newest is None:
        return None
    # A commit never changes. A job that ended before it read was told of: its end is known to
    # operators, and beginning anew is theirs.
    is_covered = event.kind is Kind.COMMIT or newest["version_key"] in ("", event.version_key)
    return newest if is_covered else None


def _was_told(event: Event) -> bool:
    """Say whether a trigger's word of this shelf was left to the poll to compare."""
    newest = prepared.row(
        """
        SELECT origin = 'trigger' AND outcome = 'seen_before' AS told FROM source_events
         WHERE changelist_id = %(changelist)s AND event = 'shelve-commit' ORDER BY id DESC LIMIT 1""",
        {"changelist": event.changelist_id},
    )
    return event.kind is Kind.SHELVE and newest is not None and newest["told"]


# -- from an event to its job ------------------------------------------------------------------


def _request(event: Event, origin: SourceEvent.Origin) -> Entry:
    """Make the event's job and write both."""
    for _ in range(_TRIES):
        newest = _newest_version(event.changelist_id)
        request = ReviewRequest(
            idempotency_key(event, newest + 1),
            event.changelist_id,
            review_version=newest + 1,
            recipients=event.recipients,
            rerun=newest > 0,
            requested_by=event.requested_by,
            finds_recipients=True,
        )
        result = review_requests.request_review(request, delay_seconds=_delay_seconds(event))
        if result.outcome is IntakeOutcome.CREATED:
            told = origin is Origin.TRIGGER or _was_told(event)
            made = Outcome.CREATED if told else Outcome.FOUND_BY_POLL
            return _write(event, origin, made, result.job_id)
        if result.outcome is IntakeOutcome.DUPLICATE_KEY:
            return _write(event, origin, Outcome.SEEN_BEFORE, result.job_id)
        # A request through the API took this version between the look and the insert: look again.
    raise Overtaken


def idempotency_key(event: Event, version: int) -> str:
    """Return the key of the event's job: one for a submit, one per version for a shelf."""
    if event.kind is Kind.COMMIT:
        return f"commit:{event.changelist_id}"
    key = f"perforce:{event.server}:{event.kind.value}:{event.changelist_id}"
    return f"{key}:v{version}" if event.kind is Kind.SHELVE else key


def _delay_seconds(event: Event) -> float:
    """Return how long a shelf may still change before its job reads it: a submit is never held up."""
    return outbox.scaled(settings.SHELVE_DEBOUNCE_SECONDS) if event.kind is Kind.SHELVE else 0.0


def _newest_version(changelist_id: str) -> int:
    return int(
        prepared.value(
            "SELECT coalesce(max(review_version), 0) FROM jobs WHERE changelist_id = %(changelist)s",
            {"changelist": changelist_id},
        )
    )


def _write(
    event: Event,
    origin: SourceEvent.Origin,
    outcome: SourceEvent.Outcome,
    job_id: int | None,
    *,
    found_late: bool = False,
) -> Entry:
    SourceEvent.objects.create(
        server=event.server,
        event=event.kind,
        changelist_id=event.changelist_id,
        version_key=event.version_key,
        origin=origin,
        outcome=outcome,
        job_id=job_id,
    )
    return Entry(job_id, outcome, found_late)
