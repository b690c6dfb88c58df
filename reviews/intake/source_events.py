"""Source events: the reports of triggers and the poll, and the job that each made.

Triggers and the poll report the same events, in any order and more than once. Each event is decided under
the lock of its changelist, and its row is written in the commit that makes its job. No other module writes
these rows.

A changelist is submitted once. A shelf has no history and its trigger names only its number, so:

- an event whose job has not begun to read joins that job, which will read the newest content;
- an event after that is a new version, which supersedes the one at work;
- the first trigger after the poll found a shelf is taken for that same shelf. The poll
  compares contents and finds whatever that left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import BigIntegerField, Exists, F, Max, OuterRef, Q, QuerySet
from django.db.models.functions import Cast, Now

from criticizer.queue import outbox
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, NoNextVersion, Overtaken, ReviewRequest
from reviews.models import ReviewJob, SourceEvent, StageRun
from reviews.states import ACTIVE_JOB, WAITING_STAGE, Stage

log = structlog.get_logger(__name__)

Kind, Origin, Outcome = SourceEvent.Kind, SourceEvent.Origin, SourceEvent.Outcome

KEEP_DAYS = 30
_DELETE_BATCH = 5000
_TRIES = 5
_KINDS = {Kind.CHANGE: "submitted", Kind.SHELVE: "shelved"}  # of a deadline
_SHELF_KEYS = "^perforce:.*:shelve-commit:"  # the idempotency keys of jobs that were made for a shelf


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a source. `version_key` is the key of the content, where it is known.

    `recipients` are notified of a change that no subscription covers.
    """

    kind: SourceEvent.Kind
    changelist_id: str
    server: str
    recipients: tuple[str, ...] = ()
    requested_by: str = ""
    version_key: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """The outcome of an event. `found_late`: the poll had found it before its trigger."""

    job_id: int | None
    outcome: SourceEvent.Outcome
    found_late: bool = False


def receive(event: Event) -> Entry:
    """Record a trigger's event, with the job it makes or has already.

    Raises Overtaken when it cannot be accepted now, NoNextVersion when it never can be: its row is `refused`.
    """
    try:
        return review_requests.past_deadlocks(lambda: _receive(event))
    except (Overtaken, NoNextVersion) as error:
        name = "trigger_overtaken" if isinstance(error, Overtaken) else "trigger_refused"
        log.warning(name, changelist=event.changelist_id)
        _write(event, Origin.TRIGGER, Outcome.REFUSED, None)
        raise


def _receive(event: Event) -> Entry:
    with transaction.atomic():
        review_requests.lock_changelist(event.changelist_id)
        known = _known_shelf(event) if event.kind is Kind.SHELVE else _known_submit(event)
        return known or _request(event, Origin.TRIGGER)


def find(event: Event) -> Entry | None:
    """Record what the poll found, with its job. Inside a transaction.

    Returns None when the event is known, when the job that will read this shelf has not done so yet, so that
    the next poll has to compare again, or when the changelist can have no further version.
    """
    assert connection.in_atomic_block
    review_requests.lock_changelist(event.changelist_id)
    if not is_news(event):
        return None
    covering = _covering_job(event)
    if covering is None:
        try:
            entry = _request(event, Origin.POLL)
        except NoNextVersion as error:
            log.error("poll_cannot_request", changelist=event.changelist_id, reason=str(error))
            return None
        if entry.outcome is Outcome.FOUND_BY_POLL:
            log.warning(
                "poll_found_missing", kind=event.kind.value, changelist=event.changelist_id, job=entry.job_id
            )
        return entry
    if event.kind is not Kind.SHELVE:
        return _write(event, Origin.POLL, Outcome.SEEN_BEFORE, covering.pk)
    return Entry(covering.pk, Outcome.SEEN_BEFORE) if covering.version_key else None


def is_missing(event: Event) -> bool:
    """Return whether no trigger reported this and no job covers it. Changes nothing."""
    return is_news(event) and _covering_job(event) is None and not _was_left_to_poll(event)


def is_news(event: Event) -> bool:
    """Return whether this submit, or the submit that ended this shelf, is not recorded."""
    kind = Kind.CHANGE if event.kind is Kind.SHELVE else event.kind
    return bool(unannounced(kind, [event.changelist_id]))


def unannounced(kind: SourceEvent.Kind, changelist_ids: Iterable[str]) -> set[str]:
    """Return those of the changelists without a recorded event of this kind."""
    asked = set(changelist_ids)
    found = _recorded().filter(changelist_id__in=asked, event=kind)
    return asked - set(found.values_list("changelist_id", flat=True))


def newest_submit() -> int | None:
    """Return the highest number of a submitted changelist that any event named."""
    number = Max(Cast("changelist_id", BigIntegerField()))
    highest: int | None = _recorded().filter(event=Kind.CHANGE).aggregate(number=number)["number"]
    return highest


def recent_shelves(days: int, limit: int) -> list[int]:
    """Return the changelists that were shelved in the last `days`, newest first.

    Those that were submitted since are left out.
    """
    submits = _recorded().filter(changelist_id=OuterRef("changelist_id"), event=Kind.CHANGE)
    shelves = _recorded().filter(
        ~Exists(submits), event=Kind.SHELVE, received_at__gt=Now() - timedelta(days=days)
    )
    newest = shelves.values("changelist_id").annotate(newest=Max("pk")).order_by("-newest")
    return [int(row["changelist_id"]) for row in newest[:limit]]


def delete_expired() -> int:
    """Delete a batch of rows older than KEEP_DAYS; return how many. Run by maintenance."""
    old = SourceEvent.objects.filter(received_at__lt=Now() - timedelta(days=KEEP_DAYS))
    batch = old.order_by("received_at").values("pk")[:_DELETE_BATCH]
    deleted, _ = SourceEvent.objects.filter(pk__in=batch).delete()
    if deleted:
        log.info("source_events_deleted", rows=deleted)
    return deleted


# -- known events ------------------------------------------------------------------------------


def _recorded() -> QuerySet[SourceEvent]:
    return SourceEvent.objects.exclude(outcome=Outcome.REFUSED)


def _of_server(event: Event) -> QuerySet[SourceEvent]:
    """Return the recorded events of the changelist on its server.

    The poll may not know the server's name.
    """
    return _recorded().filter(
        Q(server=event.server) | Q(origin=Origin.POLL), changelist_id=event.changelist_id
    )


def _known_submit(event: Event) -> Entry | None:
    # "trigger" sorts after "poll": a trigger's row comes first.
    found = _of_server(event).filter(event=event.kind).order_by("-origin", "-pk").first()
    if found is None:
        return None
    if found.origin == Origin.TRIGGER:
        SourceEvent.objects.filter(pk=found.pk).update(repeats=F("repeats") + 1, repeated_at=Now())
        return Entry(found.job_id, Outcome.SEEN_BEFORE)
    return _write(event, Origin.TRIGGER, Outcome.SEEN_BEFORE, found.job_id, found_late=True)


def _known_shelf(event: Event) -> Entry | None:
    known = _of_server(event).filter(event__in=(Kind.SHELVE, Kind.CHANGE), job__isnull=False)
    newest_first = list(known.order_by("-pk"))
    newest = next((row for row in newest_first if row.event == Kind.SHELVE), None)
    if any(row.event == Kind.CHANGE for row in newest_first):
        # A submitted changelist is never shelved again: this event comes late.
        return _write(event, Origin.TRIGGER, Outcome.SEEN_BEFORE, (newest or newest_first[0]).job_id)
    if newest is None:
        return None
    if _has_not_begun_to_read(newest.job_id):
        return _write(event, Origin.TRIGGER, Outcome.JOINED, newest.job_id)
    if newest.origin == Origin.POLL and settings.SOURCE_POLL_SECONDS:
        return _write(event, Origin.TRIGGER, Outcome.SEEN_BEFORE, newest.job_id, found_late=True)
    return None


def _has_not_begun_to_read(job_id: int | None) -> bool:
    """Return whether the job's next fetch begins after this transaction.

    What it reads is the newest then. The stage is locked. Either the worker's claim came first, and is seen;
    or the claim waits for our commit, and everything the event reports is on the server before the worker
    asks.
    """
    fetch = StageRun.objects.select_for_update(of=("self",)).filter(
        job=job_id, stage=Stage.FETCH, status__in=WAITING_STAGE, job__status__in=ACTIVE_JOB
    )
    return fetch.first() is not None


def _covering_job(event: Event) -> ReviewJob | None:
    """Return the job that has read, or will read, what the poll found."""
    jobs = _versions(event.changelist_id)
    if event.kind is Kind.CHANGE:
        jobs = jobs.exclude(idempotency_key__regex=_SHELF_KEYS)
    newest = jobs.only("version_key").order_by("-review_version").first()
    if newest is None:
        return None
    # A commit never changes. A job that ended before it read was reported: operators know of its end,
    # and decide whether to begin again.
    is_covered = event.kind is Kind.COMMIT or newest.version_key in ("", event.version_key)
    return newest if is_covered else None


def _was_left_to_poll(event: Event) -> bool:
    """Return whether the newest trigger of this shelf was left to the poll to compare."""
    if event.kind is not Kind.SHELVE:
        return False
    shelves = SourceEvent.objects.filter(changelist_id=event.changelist_id, event=Kind.SHELVE)
    newest = shelves.order_by("-pk").first()
    return newest is not None and (newest.origin, newest.outcome) == (Origin.TRIGGER, Outcome.SEEN_BEFORE)


# -- from an event to its job ------------------------------------------------------------------


def _request(event: Event, origin: SourceEvent.Origin) -> Entry:
    """Make the event's job and write both."""
    is_taken = False
    for _ in range(_TRIES):
        newest = review_requests.newest_version(_versions(event.changelist_id))
        version = review_requests.version_after(newest)
        key = idempotency_key(event, version)
        request = ReviewRequest(
            review_requests.signed(key) if is_taken else key,
            event.changelist_id,
            review_version=version,
            recipients=event.recipients,
            rerun=newest > 0,
            requested_by=event.requested_by,
            finds_recipients=True,
            kind=_KINDS.get(event.kind, ""),
        )
        result = review_requests.request_review(request, delay_seconds=_delay_seconds(event))
        if result.outcome is IntakeOutcome.CREATED:
            has_trigger = origin is Origin.TRIGGER or _was_left_to_poll(event)
            made = Outcome.CREATED if has_trigger else Outcome.FOUND_BY_POLL
            return _write(event, origin, made, result.job_id)
        if result.outcome is IntakeOutcome.DUPLICATE_KEY:
            if _versions(event.changelist_id).filter(id__in=[result.job_id]).exists():
                return _write(event, origin, Outcome.SEEN_BEFORE, result.job_id)
            is_taken = True  # a client of the API gave this name to a review of another change
        # Otherwise a request through the API took this version between the look and the insert: look again.
    raise Overtaken


def idempotency_key(event: Event, version: int) -> str:
    """Return the key of the event's job: one for a submit, one per version for a shelf."""
    if event.kind is Kind.COMMIT:
        return f"commit:{event.changelist_id}"
    key = f"perforce:{event.server}:{event.kind.value}:{event.changelist_id}"
    return f"{key}:v{version}" if event.kind is Kind.SHELVE else key


def _delay_seconds(event: Event) -> float:
    """Return how long a shelf may still change before its job reads it.

    A submit is never held up.
    """
    return outbox.scaled(settings.SHELVE_DEBOUNCE_SECONDS) if event.kind is Kind.SHELVE else 0.0


def _versions(changelist_id: str) -> QuerySet[ReviewJob]:
    """Return the reviews of the whole changelist.

    Those of keys with prefixes are left out: they do not cover an event.
    """
    return ReviewJob.objects.filter(changelist_id=changelist_id, series="")


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
