"""Taking of tasks by agents: list, claim, heartbeat, release. Each is one statement."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.security import sealed_field
from reviews.agents import rows
from reviews.agents.rows import Caller, Refusal, Refused
from reviews.models.agents import INDEXED_DEPTHS, ancestor_sql

log = structlog.get_logger(__name__)

LEASE_SECONDS = 600.0
MAX_LISTED = 100
_TRIES = 5
TOKEN_PREFIX = "crt_"  # noqa: S105 - of tokens

_WANTED = """t.status IN $OPEN AND $CLAIMABLE AND $VISIBLE
   AND (%(job)s::bigint IS NULL OR t.job_id = %(job)s)
   AND (%(types)s::text[] IS NULL OR t.type = ANY(%(types)s))"""
_OLDEST = "ORDER BY t.created_at, t.ordinal, t.id LIMIT %(limit)s"
_FIELDS = "t.id, t.type, t.job_id AS job, t.status, t.created_at, t.expires_at"


def _offered(lock: str = "") -> str:
    """Return the query of the tasks that a caller may claim now, oldest first.

    It reads tasks until it has enough.
    """
    return rows.statement(f"SELECT t.id FROM agent_tasks t WHERE {_WANTED} {_OLDEST} {lock}")  # noqa: S608


def _offered_below(lock: str = "") -> str:
    """Return the same query, which reads only tasks below the caller's directories.

    The first directory of a task that a caller sees lies below one of them, and below no other.
    """
    parts = [
        f"""
        SELECT t.* FROM unnest(%(depth_{depth})s::text[]) ancestor CROSS JOIN LATERAL (
          SELECT t.id, t.created_at, t.ordinal FROM agent_tasks t
           WHERE {ancestor_sql(depth, "t.directories")} = ancestor AND {_WANTED} {_OLDEST} {lock}) t"""  # noqa: S608
        for depth in INDEXED_DEPTHS
    ]
    return rows.statement(f"SELECT t.id FROM ({' UNION ALL '.join(parts)}) t {_OLDEST}")  # noqa: S608


def _merged_below() -> str:
    """Return the query of the first tasks below many directories, for one merged answer.

    It does not read as many tasks of each directory as it returns. A few are read of each. The last of the
    first `limit` of these bounds the answer: only of directories whose few all lie before it are more read,
    and none beyond it.
    """
    place = "t.created_at, t.ordinal, t.id"
    few = [
        f"""
        SELECT {depth} AS depth, ancestor, t.*,
               row_number() OVER (PARTITION BY ancestor ORDER BY {place}) AS nth
          FROM unnest(%(depth_{depth})s::text[]) ancestor CROSS JOIN LATERAL (
          SELECT t.id, t.created_at, t.ordinal FROM agent_tasks t
           WHERE {ancestor_sql(depth, "t.directories")} = ancestor AND {_WANTED}
           ORDER BY {place} LIMIT %(few)s) t"""  # noqa: S608
        for depth in INDEXED_DEPTHS
    ]
    more = [
        f"""
        SELECT t.* FROM few CROSS JOIN bound CROSS JOIN LATERAL (
          SELECT t.id, t.created_at, t.ordinal FROM agent_tasks t
           WHERE {ancestor_sql(depth, "t.directories")} = few.ancestor AND {_WANTED}
             AND ({place}) > (few.created_at, few.ordinal, few.id)
             AND ({place}) < (bound.created_at, bound.ordinal, bound.id) {_OLDEST}) t
         WHERE few.depth = {depth} AND few.nth = %(few)s
           AND (few.created_at, few.ordinal, few.id) < (bound.created_at, bound.ordinal, bound.id)"""  # noqa: S608
        for depth in INDEXED_DEPTHS
    ]
    return rows.statement(
        f"""
        WITH few AS ({" UNION ALL ".join(few)}), bound AS (
          (SELECT created_at, ordinal, id FROM few ORDER BY 1, 2, 3 OFFSET %(limit)s - 1 LIMIT 1)
          UNION ALL SELECT 'infinity', 0, '{UUID(int=0)}'::uuid ORDER BY 1 LIMIT 1)
        SELECT t.id FROM (SELECT id, created_at, ordinal FROM few UNION ALL {" UNION ALL ".join(more)}) t
        {_OLDEST}"""  # noqa: S608
    )


def _listed(ids: str) -> str:
    return f"""SELECT {_FIELDS} FROM agent_tasks t WHERE t.id = ANY(ARRAY({ids}))
                ORDER BY t.created_at, t.ordinal, t.id"""  # noqa: S608


_LISTED, _LISTED_BELOW = _listed(_offered()), _listed(_merged_below())


def _take(which: str) -> str:
    return rows.statement(
        """
UPDATE agent_tasks t
   SET status = 'in_progress', claim_sha256 = %(claim)s, claimed_by = %(agent)s, claimed_key = %(key)s,
       claims = t.claims + 1, progress = '',
       lease_expires_at = least(clock_timestamp() + make_interval(secs => %(lease)s), t.expires_at)
 WHERE t.id = ($which) AND $CLAIMABLE AND $VISIBLE
RETURNING $FIELDS, t.lease_expires_at, t.payload""",
        which=which,
        FIELDS=_FIELDS,
    )


_TAKE_ONE = _take("%(id)s")
_TAKE_NEXT = _take(_offered("FOR UPDATE SKIP LOCKED"))
_TAKE_NEXT_BELOW = _take(_offered_below("FOR UPDATE SKIP LOCKED"))


def digest(token: str) -> str:
    """Return the digest under which the token of a claim is stored: it is handed out once."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def listed(
    caller: Caller, job: int | None = None, types: Sequence[str] | None = None, limit: int = MAX_LISTED
) -> list[dict[str, Any]]:
    """Return the tasks that the caller may claim now, oldest first, at most `limit`."""
    asked = {**_asked(caller, job, types), "limit": limit}
    below = _below(caller)
    if below is None:
        return prepared.rows(_LISTED, asked)
    few = min(limit, 1 + 2 * limit // max(1, sum(map(len, below.values()))))
    return prepared.rows(_LISTED_BELOW, {**asked, **below, "few": few})


def claim(caller: Caller, task_id: UUID, agent: str = "") -> dict[str, Any]:
    """Claim one task; return it with its payload and the token of the claim.

    Raises Refused: NOT_FOUND, DONE, EXPIRED or CLAIMED.
    """
    found = _taken(_TAKE_ONE, caller, agent, {"id": task_id})
    if found is None:
        raise Refused(rows.state_of(task_id, caller) or Refusal.CLAIMED)
    return found


def claim_next(
    caller: Caller, job: int | None = None, types: Sequence[str] | None = None, agent: str = ""
) -> dict[str, Any] | None:
    """Claim the oldest task that is free, as `claim` does; None when there is none."""
    asked = {**_asked(caller, job, types), "limit": 1}
    below = _below(caller)
    if below is None:
        return _taken(_TAKE_NEXT, caller, agent, asked)
    for _ in range(_TRIES):
        found = _taken(_TAKE_NEXT_BELOW, caller, agent, {**asked, **below})
        # Another claim locks a task below each of its directories for a moment, and takes one.
        if found or sum(map(len, below.values())) < 2 or not listed(caller, job, types, 1):
            return found
    return None


def _taken(statement: str, caller: Caller, agent: str, asked: dict[str, Any]) -> dict[str, Any] | None:
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    found = prepared.row(
        statement,
        {
            "prefixes": list(caller.prefixes),
            "claim": digest(token),
            "agent": clean(agent, 200),
            "key": caller.key,
            "lease": outbox.scaled(LEASE_SECONDS),
            **asked,
        },
    )
    if found is None:
        return None
    log.info("agent_task_claimed", task=str(found["id"]), job=found["job"], key=caller.key)
    (payload,) = sealed_field.opened(found.pop("payload")) or ({},)
    return {**found, "payload": payload, "claim_token": token}


def _below(caller: Caller) -> dict[str, list[str]] | None:
    found = rows.ancestors_of(caller.prefixes)
    return None if found is None else {f"depth_{depth}": names for depth, names in found.items()}


def _asked(caller: Caller, job: int | None, types: Sequence[str] | None) -> dict[str, Any]:
    return {
        "prefixes": list(caller.prefixes), "job": job, "types": list(types) if types else None,
    }  # fmt: skip


_BEAT = rows.statement("""
UPDATE agent_tasks t
   SET lease_expires_at = least(clock_timestamp() + make_interval(secs => %(lease)s), t.expires_at),
       progress = coalesce(%(progress)s, t.progress)
 WHERE t.id = %(id)s AND t.claim_sha256 = %(claim)s AND t.status = 'in_progress' AND NOT $DEAD
   AND $VISIBLE
RETURNING t.lease_expires_at""")

_RELEASE = rows.statement("""
UPDATE agent_tasks t
   SET status = 'pending', claim_sha256 = '', lease_expires_at = NULL, claims = t.claims - 1,
       detail = %(detail)s
 WHERE t.id = %(id)s AND t.claim_sha256 = %(claim)s AND t.status = 'in_progress' AND NOT $DEAD
   AND $VISIBLE
RETURNING t.id""")


def _give_back(whose: str) -> str:
    return rows.statement(
        """
UPDATE agent_tasks t
   SET status = 'pending', claim_sha256 = '', lease_expires_at = NULL, claims = t.claims - 1, detail = ''
 WHERE t.id = ANY(ARRAY(SELECT t.id FROM agent_tasks t
                         WHERE t.status = 'in_progress' AND $whose AND NOT $DEAD
                         ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED))
RETURNING t.id""",
        whose=whose,
    )


_RELEASE_OF = _give_back("t.claimed_key = %(key)s")
_RELEASE_REVOKED = _give_back(
    "t.claimed_key IN (SELECT k.name FROM api_keys k WHERE k.revoked_at IS NOT NULL)"
)


def release_of(key: str) -> int:
    """Give back what a revoked key holds; return how many tasks.

    Others may claim them now, and the claims do not count. A task that a call of the key is changing at that
    moment is left to `release_revoked`; a result that is being recorded counts.
    """
    return _given_back(_RELEASE_OF, {"key": key})


def release_revoked() -> int:
    """Give back, as `release_of`, the claims of calls that began before their key was revoked.

    That is what such calls took or renewed after the revocation.
    """
    return _given_back(_RELEASE_REVOKED)


def _given_back(statement: str, values: dict[str, Any] | None = None) -> int:
    found = prepared.rows(statement, values or {})
    if found:
        rows.announce()
    return len(found)


def heartbeat(
    caller: Caller, task_id: UUID, token: str, progress: str | None = None
) -> tuple[datetime | None, bool]:
    """Renew the lease of a claim; return its end, and whether the task was cancelled.

    Raises Refused: NOT_FOUND, DONE, EXPIRED or CLAIM_LOST.
    """
    held = _held(caller, task_id, token)
    note = None if progress is None else clean(progress, 200)
    found = prepared.row(_BEAT, {**held, "lease": outbox.scaled(LEASE_SECONDS), "progress": note})
    if found is not None:
        return found["lease_expires_at"], False
    cancelled = """
        SELECT 1 FROM agent_tasks t WHERE t.id = %(id)s AND t.claim_sha256 = %(claim)s
           AND t.status = 'cancelled' AND $VISIBLE"""
    if prepared.row(rows.statement(cancelled), held):
        return None, True
    raise Refused(rows.state_of(task_id, caller) or Refusal.CLAIM_LOST)


def release(caller: Caller, task_id: UUID, token: str, reason: str = "") -> None:
    """Give a claimed task back; the claim does not count. Raises as `heartbeat`."""
    if prepared.row(_RELEASE, {**_held(caller, task_id, token), "detail": clean(reason, 512)}) is None:
        raise Refused(rows.state_of(task_id, caller) or Refusal.CLAIM_LOST)
    rows.announce()


def _held(caller: Caller, task_id: UUID, token: str) -> dict[str, Any]:
    return {"id": task_id, "claim": digest(token), "prefixes": list(caller.prefixes)}
