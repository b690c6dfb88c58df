"""Intake: a request becomes a job or finds the existing one (guarantees G1 to G4).

The common case is one statement and one commit: the job, its three stages and the first outbox row, or
nothing. A rerun of a changelist takes a second, locked path, because it also ends the version before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import structlog
from django.db import OperationalError, connection, transaction
from django.db.models import Max, QuerySet
from django.utils.crypto import salted_hmac
from psycopg.types.json import Jsonb

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience.classification import sqlstate_of
from reviews import pipeline
from reviews.models import ReviewJob
from reviews.states import ACTIVE_JOB, Stage

log = structlog.get_logger(__name__)
T = TypeVar("T")

LAST_VERSION = 2_147_483_647  # the highest that the column holds
_DEADLOCK = "40P01"
_DEADLOCKS = 10  # each takes PostgreSQL a second to notice


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """A validated request. Recipients are channel-qualified and normalised.

    With `finds_recipients` they are for a change without subscribers (`reviews.recipients.resolve`).
    `series` and `scope_prefixes` bind what a key with prefixes requests (guarantee G150): its keys and
    versions are compared with those of its own series only.
    """

    idempotency_key: str
    changelist_id: str
    review_version: int = 1
    recipients: tuple[str, ...] = ()
    rerun: bool = False
    from_scratch: bool = False  # nothing is taken over from reviews of equal content
    requested_by: str = ""
    finds_recipients: bool = False
    series: str = ""
    scope_prefixes: tuple[str, ...] = ()
    kind: str = ""  # `submitted` or `shelved`, of a Perforce change of which that is known

    @property
    def sha256(self) -> str:
        """Return the digest of the body without its key, to detect a repeated key with another body."""
        body = [self.changelist_id, self.review_version, sorted(self.recipients), self.rerun]
        body += ["from_scratch"] if self.from_scratch else []
        return hashlib.sha256(json.dumps(body).encode()).hexdigest()


class NoNextVersion(Exception):
    """The changelist has the highest version number; an earlier version of the API accepted it."""

    def __init__(self) -> None:
        super().__init__(f"this changelist has the highest possible version, {LAST_VERSION}: none can follow")


class Overtaken(Exception):
    """Other requests for the changelist came first each time: nothing was recorded."""


def newest_version(jobs: QuerySet[ReviewJob]) -> int:
    """Return the highest version of some reviews; 0 where there is none."""
    return jobs.aggregate(newest=Max("review_version"))["newest"] or 0


def version_after(newest: int) -> int:
    """Return the number of the version after `newest`. Raises NoNextVersion."""
    if newest >= LAST_VERSION:
        raise NoNextVersion
    return newest + 1


class IntakeOutcome(StrEnum):
    CREATED = "created"
    DUPLICATE_KEY = "duplicate_key"  # this idempotency_key was seen before
    SAME_VERSION = "same_version"  # this (changelist_id, review_version) exists
    VERSION_CONFLICT = "version_conflict"  # not strictly higher, or higher without rerun


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """Result of a request.

    `job_id` is the created or the original job; None on a conflict. `not_added`: recipients of the request
    that the original job does not notify. Empty while that job still has to find its recipients.
    """

    outcome: IntakeOutcome
    job_id: int | None
    payload_mismatch: bool = False  # the original was requested with another body
    newest_version: int | None = None  # of the changelist; None for a new job
    not_added: tuple[str, ...] = ()
    is_same_version: bool = True  # the original is of the changelist and the version asked for
    created_at: datetime | None = None  # of a job just created, like its deadline
    deadline_at: datetime | None = None


# %(rerun)s: the locked path has already looked at the other versions.
_INSERT = """
WITH job AS (
  INSERT INTO jobs (idempotency_key, request_sha256, changelist_id, review_version, recipients,
                    recipients_are, requested_by, request_id, series, scope_prefixes, from_scratch,
                    kind, deadline_at)
  SELECT %(key)s, %(sha256)s, %(changelist)s::varchar, %(version)s, %(recipients)s, %(recipients_are)s,
         %(requested_by)s, %(request_id)s, %(series)s::varchar, %(scope_prefixes)s,
         %(from_scratch)s, %(kind)s::varchar,
         statement_timestamp() + make_interval(secs => %(sla)s)
   WHERE %(rerun)s OR NOT EXISTS (SELECT 1 FROM jobs WHERE changelist_id = %(changelist)s::varchar
                                                       AND series = %(series)s::varchar)
  ON CONFLICT DO NOTHING RETURNING id, created_at, deadline_at),
runs AS (
  INSERT INTO stage_runs (job_id, stage, next_attempt_at)
  SELECT job.id, stage, CASE WHEN stage = 'fetch' AND %(delay)s::float8 > 0
                             THEN now() + make_interval(secs => %(delay)s::float8) END
    FROM job, unnest(ARRAY['fetch', 'llm', 'notify']) AS stage RETURNING id, stage),
due AS (
  INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, flow, available_at)
  SELECT 'stage_run', runs.id, 'run_stage', %(queue)s, %(flow)s,
         now() + make_interval(secs => %(delay)s::float8)
    FROM runs WHERE runs.stage = 'fetch' RETURNING id)
SELECT job.id, job.created_at, job.deadline_at, pg_notify(%(channel)s, '') FROM job, due"""

_EXISTING = """
SELECT id, status, true AS same_key, request_sha256, changelist_id, review_version, recipients, recipients_are
  FROM jobs WHERE idempotency_key = %(key)s AND series = %(series)s
UNION ALL
(SELECT id, status, false, request_sha256, changelist_id, review_version, recipients, recipients_are
   FROM jobs WHERE changelist_id = %(changelist)s AND series = %(series)s ORDER BY review_version DESC)"""


def request_review(request: ReviewRequest, *, delay_seconds: float = 0.0) -> IntakeResult:
    """Create the job with its stages and first outbox row in one commit, or find the original.

    Its fetch is due after `delay_seconds`.

    - the same `idempotency_key`: the original job, whatever the body;
    - the same `(changelist_id, review_version)`: the existing job, unchanged;
    - a higher version: only with `rerun`; older active versions are superseded;
    - a lower version, or a higher one without `rerun`: a conflict.
    """
    created = _insert(request, rerun=False, delay_seconds=delay_seconds)
    if created is not None:
        return created
    # A new statement has a new snapshot: it sees the winner of a race that our insert lost.
    existing = find(request)
    if existing is not None:
        return existing
    return past_deadlocks(lambda: _rerun(request, delay_seconds))


def past_deadlocks(work: Callable[[], T]) -> T:
    """Run `work`, one whole transaction, again when a worker's record won a deadlock against it.

    A rerun locks the older job and then its stages, a worker that records the other way round.
    """
    for _ in range(_DEADLOCKS):
        try:
            return work()
        except OperationalError as error:
            if connection.in_atomic_block or sqlstate_of(error) != _DEADLOCK:
                raise
            log.info("intake_deadlock")
    return work()


def _insert(request: ReviewRequest, *, rerun: bool, delay_seconds: float = 0.0) -> IntakeResult | None:
    queue = pipeline.queue_of(Stage.FETCH)
    found = prepared.row(
        _INSERT,
        {
            "key": request.idempotency_key,
            "sha256": request.sha256,
            "changelist": request.changelist_id,
            "version": request.review_version,
            "recipients": Jsonb(list(request.recipients)),
            "recipients_are": "to_find" if request.finds_recipients else "given",
            "requested_by": request.requested_by,
            "series": request.series,
            "scope_prefixes": Jsonb(list(request.scope_prefixes)),
            "flow": request.requested_by or outbox.SYSTEM,
            # The id of the HTTP request in the log; none for what was polled.
            "request_id": structlog.contextvars.get_contextvars().get("request_id", ""),
            "kind": request.kind,
            "sla": pipeline.deadline_seconds(request.changelist_id, request.kind),
            "rerun": rerun,
            "from_scratch": request.from_scratch,
            "delay": delay_seconds,
            "queue": queue,
            "channel": outbox.channel(queue),
        },
    )
    if found is None:
        return None
    log.info(
        "job_created",
        job=found["id"],
        changelist=request.changelist_id,
        version=request.review_version,
        key=request.idempotency_key,
    )
    return IntakeResult(
        IntakeOutcome.CREATED, found["id"], created_at=found["created_at"], deadline_at=found["deadline_at"]
    )


def find(request: ReviewRequest) -> IntakeResult | None:
    """Return the answer from existing jobs; None when the request is a rerun."""
    found = prepared.rows(
        _EXISTING,
        {
            "key": request.idempotency_key,
            "changelist": request.changelist_id,
            "series": request.series,
        },
    )
    versions = [row for row in found if not row["same_key"]]
    newest = max((row["review_version"] for row in versions), default=None)
    for row in found:
        if row["same_key"]:
            return _original(IntakeOutcome.DUPLICATE_KEY, request, row, newest)
    for row in versions:
        if row["review_version"] == request.review_version:
            return _original(IntakeOutcome.SAME_VERSION, request, row, newest)
    if newest is not None and (request.review_version < newest or not request.rerun):
        return IntakeResult(IntakeOutcome.VERSION_CONFLICT, None, newest_version=newest)
    return None


def _original(
    outcome: IntakeOutcome, request: ReviewRequest, row: dict[str, Any], newest: int | None
) -> IntakeResult:
    """Return the existing job, with the part of the request that it does not fulfil."""
    # The recipients of a job that has yet to find them are unknown, so none is reported as missing.
    named = request.recipients if row["recipients_are"] == "to_find" else json.loads(row["recipients"])
    wanted = (request.changelist_id, request.review_version)
    log.debug("request_duplicate", job=row["id"], outcome=outcome.value, job_status=row["status"])
    return IntakeResult(
        outcome,
        row["id"],
        payload_mismatch=row["request_sha256"] != request.sha256,
        newest_version=newest,
        not_added=tuple(recipient for recipient in request.recipients if recipient not in named),
        is_same_version=(row["changelist_id"], row["review_version"]) == wanted,
    )


def signed(name: str) -> str:
    """Return an idempotency key of this name that no API client can claim beforehand."""
    return f"{name}:{salted_hmac('reviews.web.rerun', name, algorithm='sha256').hexdigest()[:16]}"


def lock_changelist(changelist_id: str) -> None:
    """Lock the versions of a changelist for one request, until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"changelist {changelist_id}"]
        )


def _rerun(request: ReviewRequest, delay_seconds: float, tries: int = 3) -> IntakeResult:
    """Create a higher version and end the older active ones, one request at a time."""
    with transaction.atomic():
        lock_changelist(request.changelist_id)
        existing = find(request)
        if existing is not None:
            return existing
        older = prepared.rows(
            "SELECT id FROM jobs WHERE changelist_id = %(changelist)s AND series = %(series)s"
            " AND status = ANY(%(active)s) FOR UPDATE",
            {
                "changelist": request.changelist_id,
                "series": request.series,
                "active": [status.value for status in ACTIVE_JOB],
            },
        )
        # The older versions end and the newer one begins, or neither.
        pipeline.supersede([row["id"] for row in older], request.review_version)
        created = _insert(request, rerun=True, delay_seconds=delay_seconds)
        if created is not None:
            return created
        # Another request took the key, or a replay restarted an older version: neither takes our lock.
        transaction.set_rollback(True)
    existing = find(request)
    if existing is not None:
        return existing
    if tries > 1:
        return _rerun(request, delay_seconds, tries - 1)
    raise AssertionError("intake neither created the job nor found the one in its way")
