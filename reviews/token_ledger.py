"""Token ledger: a call to a model reserves its estimate, and is settled by what it used.

    reserve ─► call ─► settle: what the provider reported; nothing for a call that it did not serve
       │          └──► no report: the estimate stays
       └─► LimitReached: the call does not start

The limits count reservations, so that calls in flight cannot exceed them together (guarantees G390, G391).
Reserving is one statement, under a short lock where there are limits; settling is another. Both change what
the day of the call has used, so that no limit of a day adds up its calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.db import prepared
from criticizer.queue import advisory_locks
from criticizer.queue.advisory_locks import Lock
from criticizer.redaction import RedactionBlocked
from criticizer.resilience.failures import Failure
from reviews import token_counts
from reviews.models import LedgerEntry, TokenUse
from reviews.pipeline import StageClaim
from reviews.reviewers.model import LimitReached, ModelAnswer, TokenLimit

KEEP_DAYS = 30
ANSWER_TOKENS = 1_000  # that an answer is expected to have
_DELETE_BATCH = 5000
_SHARDS = 16  # rows of a day and source, by job: calls at once seldom wait for each other
_MOST = 1_000_000_000  # of what a provider may report
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")

log = structlog.get_logger(__name__)

_TODAY = "(now() AT TIME ZONE 'UTC')::date"
# Limits that are not set cost no sum. A day and its sources are counted in rows of their own.
_USED = prepared.statement(
    """
SELECT CASE WHEN %(review)s > 0 THEN
         (SELECT sum(tokens) FROM token_ledger WHERE job_id = %(job)s) END AS review,
       CASE WHEN %(change)s > 0 THEN
         (SELECT sum(tokens) FROM token_ledger
           WHERE job_id IN (SELECT id FROM jobs WHERE changelist_id = %(changelist)s)) END AS change,
       today.source, today.day
  FROM (SELECT sum(tokens) AS day, sum(tokens) FILTER (WHERE source = %(source)s) AS source
          FROM token_uses WHERE day = $TODAY AND (%(source_limit)s > 0 OR %(day)s > 0)) today""",
    TODAY=_TODAY,
)
# The day of a call is the one in which it was reserved, also if it ends after midnight.
_COUNT = prepared.statement(
    """
INSERT INTO token_uses (day, source, shard, tokens)
SELECT (started_at AT TIME ZONE 'UTC')::date, source, job_id %% $SHARDS, more FROM entry
    ON CONFLICT (day, source, shard) DO UPDATE SET tokens = token_uses.tokens + excluded.tokens""",
    SHARDS=_SHARDS,
)
_RESERVE = prepared.statement(
    """
WITH used AS MATERIALIZED ($USED),
entry AS (
  INSERT INTO token_ledger (job_id, attempt_id, call, dependency, model, source, reserved_tokens)
  SELECT %(job)s, %(attempt)s, %(call)s, %(dependency)s, %(model)s, %(source)s, %(tokens)s FROM used
   WHERE (%(review)s = 0 OR coalesce(used.review, 0) + %(tokens)s <= %(review)s)
     AND (%(change)s = 0 OR coalesce(used.change, 0) + %(tokens)s <= %(change)s)
     AND (%(source_limit)s = 0 OR coalesce(used.source, 0) + %(tokens)s <= %(source_limit)s)
     AND (%(day)s = 0 OR coalesce(used.day, 0) + %(tokens)s <= %(day)s)
  RETURNING id, started_at, source, job_id, tokens AS more),
counted AS ($COUNT)
SELECT (SELECT id FROM entry) AS id, review, change, source, day FROM used""",
    USED=_USED,
    COUNT=_COUNT,
)
# A late report replaces an unknown end: the worker lived on.
_SETTLE = prepared.statement(
    """
WITH before AS (
  SELECT id, tokens FROM token_ledger WHERE id = %(id)s AND state <> 'settled' FOR UPDATE),
entry AS (
  UPDATE token_ledger e
     SET state = CASE WHEN %(input_tokens)s::int IS NULL THEN 'unknown' ELSE 'settled' END,
         input_tokens = %(input_tokens)s, output_tokens = %(output_tokens)s,
         cached_tokens = %(cached_tokens)s, cache_write_tokens = %(cache_write_tokens)s, ended_at = now()
    FROM before WHERE e.id = before.id
  RETURNING e.started_at, e.source, e.job_id, e.tokens::bigint - before.tokens AS more)
$COUNT""",
    COUNT=_COUNT,
)
_FORGET_LOST = """
UPDATE token_ledger e SET state = 'unknown', ended_at = now() FROM attempts a
 WHERE e.state = 'reserved' AND a.id = e.attempt_id AND a.finished_at IS NOT NULL RETURNING e.id"""


# The largest of each kind: what comes near a limit, and nothing that grows with the number of reviews.
_LARGEST = prepared.statement(
    """
WITH today AS MATERIALIZED (SELECT source, tokens FROM token_uses WHERE day = $TODAY)
SELECT 'day' AS kind, '' AS name, coalesce(sum(tokens), 0)::bigint AS tokens FROM today
UNION ALL (SELECT 'source', source, sum(tokens)::bigint FROM today GROUP BY source ORDER BY 3 DESC LIMIT 5)
UNION ALL (SELECT 'review', j.changelist_id, t.tokens FROM jobs j JOIN (
  SELECT job_id, sum(tokens) AS tokens FROM token_ledger
   WHERE started_at >= $TODAY::timestamp AT TIME ZONE 'UTC' AND %(reviews)s
   GROUP BY 1 ORDER BY 2 DESC LIMIT 1) t ON j.id = t.job_id)
UNION ALL (SELECT 'change', changelist_id, tokens FROM (
  SELECT j.changelist_id, sum(e.tokens) AS tokens FROM token_ledger e JOIN jobs j ON j.id = e.job_id
   GROUP BY 1 ORDER BY 2 DESC LIMIT 1) c WHERE %(changes)s)""",
    TODAY=_TODAY,
)


def largest_uses() -> list[dict[str, Any]]:
    """Return what counts towards each limit that is set: rows of kind, name, tokens and limit.

    Of a day all calls and its five largest sources, of reviews the largest of the day, of changelists the
    largest that is remembered. Nothing where no limit is set.
    """
    limited = limits()
    if not limited:
        return []
    rows = prepared.rows(
        _LARGEST, {"reviews": TokenLimit.REVIEW in limited, "changes": TokenLimit.CHANGE in limited}
    )
    return [{**row, "limit": limited[row["kind"]]} for row in rows if row["kind"] in limited]


def limits() -> dict[TokenLimit, int]:
    """Return the limits that are set, in tokens, the narrowest first."""
    found = {
        TokenLimit.REVIEW: settings.TOKEN_LIMIT_PER_REVIEW,
        TokenLimit.CHANGE: settings.TOKEN_LIMIT_PER_CHANGE,
        TokenLimit.SOURCE: settings.TOKEN_LIMIT_PER_SOURCE,
        TokenLimit.DAY: settings.TOKEN_LIMIT_PER_DAY,
    }
    return {limit: tokens for limit, tokens in found.items() if tokens}


def source_of(changelist_id: str) -> str:
    """Return the source whose limit a changelist counts for.

    That is `perforce`, `git:name` or `github:owner/name`.
    """
    return re.split("[@#!]", changelist_id)[0] if ":" in changelist_id else "perforce"


@dataclass(frozen=True, slots=True)
class TokenLedger:
    """The calls of one attempt at the stage llm."""

    job_id: int
    attempt_id: int
    changelist_id: str

    @classmethod
    def of(cls, claim: StageClaim) -> TokenLedger:
        return cls(claim.job_id, claim.attempt_id, claim.changelist_id)

    def reserve(self, call: str, dependency: str, model: str, characters: int) -> int:
        """Reserve the estimate of a call with so many characters; return its entry.

        Raises LimitReached, having written nothing, when a limit has less left than the estimate.
        """
        tokens = int(characters / token_counts.chars_per_token(model)) + ANSWER_TOKENS
        limited = limits()
        parameters = {
            "job": self.job_id, "attempt": self.attempt_id, "changelist": self.changelist_id,
            "call": call[:64], "dependency": dependency, "model": model[:128], "tokens": tokens,
            "source": source_of(self.changelist_id), "review": limited.get(TokenLimit.REVIEW, 0),
            "change": limited.get(TokenLimit.CHANGE, 0), "day": limited.get(TokenLimit.DAY, 0),
            "source_limit": limited.get(TokenLimit.SOURCE, 0),
        }  # fmt: skip
        with transaction.atomic() if limited else nullcontext():
            if limited:
                advisory_locks.take(Lock.TOKEN_LIMITS, "")  # a reservation sees all before it
            found = prepared.row(_RESERVE, parameters)
        assert found is not None
        if found["id"] is not None:
            return int(found["id"])
        reached = next(limit for limit in limited if (found[limit] or 0) + tokens > limited[limit])
        used = int(found[reached] or 0)
        log.warning(
            "token_limit_reached", call=call, limit=reached, tokens=limited[reached], used=used, needed=tokens
        )
        raise LimitReached(reached, limited[reached])


def settle(entry: int, outcome: ModelAnswer | BaseException | None) -> None:
    """Write what the provider reported of a call, None for one that never began.

    Without a report the estimate stays.
    """
    counts = _reported(outcome)
    prepared.rows(_SETTLE, {"id": entry, **{name: counts.get(name) for name in _COUNTS}})


def _reported(outcome: ModelAnswer | BaseException | None) -> dict[str, int]:
    """Return the tokens of a call by the names of their columns; empty when nothing is known."""
    found: Mapping[str, Any] = {}
    if isinstance(outcome, ModelAnswer):
        found = {name: getattr(outcome, name) for name in _COUNTS}
    elif isinstance(outcome, Failure):
        found = outcome.context
    status = found.get("status")
    is_refused = isinstance(status, int) and status >= 300  # providers charge nothing for errors
    # The guard blocks a request before it is sent.
    is_unsent = outcome is None or isinstance(outcome, RedactionBlocked) or found.get("sent") is False
    if is_refused or is_unsent:
        return dict.fromkeys(_COUNTS, 0)
    counts = {name: min(int(found.get(name, 0)), _MOST) for name in _COUNTS}
    return counts if counts["input_tokens"] or counts["output_tokens"] else {}


def maintain() -> None:
    """Mark calls whose attempt is over as unknown, delete old entries. Run by maintenance."""
    if lost := prepared.rows(_FORGET_LOST, {}):
        log.warning("calls_without_a_report", calls=len(lost))
    old = LedgerEntry.objects.filter(started_at__lt=Now() - timedelta(days=KEEP_DAYS))
    batch = old.order_by("started_at").values("pk")[:_DELETE_BATCH]
    deleted, _ = LedgerEntry.objects.filter(pk__in=batch).delete()
    TokenUse.objects.filter(day__lt=timezone.now().date() - timedelta(days=KEEP_DAYS)).delete()
    if deleted:
        log.info("ledger_entries_deleted", rows=deleted)
