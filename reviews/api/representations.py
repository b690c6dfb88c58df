"""Jobs and dead letters as the API shows them, each read in one statement however many there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.urls import reverse

from criticizer.db import prepared
from reviews.recipients import no_recipients_reason
from reviews.recipients.scopes import EVERYTHING, Scope

Json = dict[str, Any]

_JOBS = """
SELECT j.id, j.idempotency_key, j.changelist_id, j.review_version, j.status, j.deadline_at, j.created_at,
       j.finished_at, j.is_late, j.recipients, j.recipients_are,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                 'stage', s.stage, 'status', s.status, 'attempts', s.attempts, 'max_attempts', s.max_attempts,
                 'next_attempt_at', s.next_attempt_at, 'error_class', s.error_class)
                 ORDER BY array_position(ARRAY['fetch', 'llm', 'notify'], s.stage::text)), '[]')
          FROM stage_runs s WHERE s.job_id = j.id) AS stages,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                 'recipient', d.recipient, 'status', d.status, 'notification_id', d.notification_id,
                 'notified_at', d.notified_at,
                 'waits_until', CASE WHEN d.status = 'pending' AND g.closed_at IS NULL THEN g.due_at END)
                 ORDER BY d.id), '[]')
          FROM deliveries d LEFT JOIN digests g ON g.id = d.digest_id WHERE d.job_id = j.id) AS deliveries,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                 'file', f.file, 'line', f.line, 'end_line', f.end_line, 'side', f.side,
                 'severity', f.severity, 'category', f.category, 'title', f.title, 'message', f.message,
                 'suggestion', f.suggestion, 'source', f.source) ORDER BY f.id), '[]')
          FROM findings f WHERE f.job_id = j.id AND (%(everything)s::bool OR NOT starts_with(f.file, '//')
               OR EXISTS (SELECT 1 FROM unnest(%(prefixes)s::text[]) p WHERE starts_with(f.file, p)))
       ) AS findings,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                 'file', c.file, 'status', c.status, 'reason', c.reason) ORDER BY c.id), '[]')
          FROM coverage c WHERE c.job_id = j.id AND (%(everything)s::bool
               OR EXISTS (SELECT 1 FROM unnest(%(prefixes)s::text[]) p WHERE starts_with(c.file, p)))
       ) AS coverage,
       (SELECT max(l.id) FROM dead_letters l
         WHERE l.job_id = j.id AND l.status NOT IN ('resolved', 'discarded')) AS dead_letter
  FROM jobs j WHERE j.id = ANY(%(ids)s)"""

_LETTERS = """
SELECT l.id, l.job_id AS job, j.changelist_id, j.review_version, l.stage, l.status, l.error_class, l.code,
       l.severity, l.detail, coalesce(p.last_stack, '') AS last_stack,
       coalesce(p.sanitized_context, '{}') AS sanitized_context, l.payload_reference, l.attempts,
       l.first_failure_at, l.last_failure_at, l.failed_replay_count, l.is_escalated, l.created_at,
       l.closed_at,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                 'action', e.action, 'actor', e.actor, 'reason', e.reason, 'created_at', e.created_at)
                 ORDER BY e.id), '[]')
          FROM dead_letter_events e WHERE e.letter_id = l.id) AS events
  FROM dead_letters l JOIN jobs j ON j.id = l.job_id LEFT JOIN dead_letter_payloads p ON p.letter_id = l.id
 WHERE l.id = ANY(%(ids)s)"""


def _rows(
    query: str, ids: Sequence[int], json_columns: Sequence[str], **parameters: object
) -> dict[int, Json]:
    """Return the rows by id. Django's connection hands JSON over as text."""
    found = {row["id"]: row for row in prepared.rows(query, {"ids": list(ids), **parameters})}
    for row in found.values():
        for column in json_columns:
            row[column] = json.loads(row[column])
    return found


def jobs(ids: Sequence[int], scope: Scope = EVERYTHING) -> list[Json]:
    """Return the jobs with these ids in this order, in the contract's form; unknown ids are left out.

    Findings and coverage are those of files in `scope`; whether a job may be seen is the caller's.
    """
    found = _rows(
        _JOBS,
        ids,
        ("recipients", "stages", "deliveries", "findings", "coverage"),
        everything=scope.everything,
        prefixes=list(scope.prefixes),
    )
    return [_job(found[job_id]) for job_id in ids if job_id in found]


def job(job_id: int, scope: Scope = EVERYTHING) -> Json | None:
    """Return one job in the contract's form, or None."""
    found = jobs([job_id], scope)
    return found[0] if found else None


def letters(ids: Sequence[int]) -> list[Json]:
    """Return the dead letters with these ids in this order; unknown ids are left out."""
    found = _rows(_LETTERS, ids, ("sanitized_context", "events"))
    return [_letter(found[letter_id]) for letter_id in ids if letter_id in found]


def _job(row: Json) -> Json:
    shown = {
        "id": row["id"],
        "idempotency_key": row["idempotency_key"],
        "changelist_id": row["changelist_id"],
        "review_version": row["review_version"],
        "status": row["status"],
        "stage": _current_stage(row["stages"]),
        "deadline_at": _time(row["deadline_at"]),
        "created_at": _time(row["created_at"]),
        "finished_at": _time(row["finished_at"]),
        "is_late": row["is_late"],
        "stages": row["stages"],
        "deliveries": row["deliveries"],
        "findings": row["findings"],
        "coverage": row["coverage"],
        "dead_letter": row["dead_letter"],
        "links": {
            "self": _absolute(reverse("api-review", args=[row["id"]])),
            "html": _absolute(reverse("reviews:detail", args=[row["id"]])),
        },
    }
    why = no_recipients_reason.nobody(
        row["status"], row["recipients"], row["recipients_are"], len(row["deliveries"])
    )
    return {**shown, "message": why} if why else shown


def _letter(row: Json) -> Json:
    times = ("first_failure_at", "last_failure_at", "created_at", "closed_at")
    return {
        **row,
        **{name: _time(row[name]) for name in times},
        "links": {
            "self": _absolute(reverse("api-dead-letter", args=[row["id"]])),
            "job": _absolute(reverse("api-review", args=[row["job"]])),
        },
    }


def _current_stage(stages: list[Json]) -> str:
    """Return the first stage that has not succeeded, or the last one when all have."""
    return next((run["stage"] for run in stages if run["status"] != "succeeded"), "notify")


def _time(value: datetime | None) -> str | None:
    return value.isoformat() if value else None


def _absolute(path: str) -> str:
    return settings.BASE_URL.rstrip("/") + path
