"""Circuits in the hands of operators: forced open or closed for a time, with a reason, and released."""

from __future__ import annotations

import structlog
from django.db import transaction

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience.circuit_breaker import NO_PROBE, NOTE, NOW, PROBES_TO_CLOSE, quiet_seconds
from criticizer.resilience.states import FORCED, CircuitState

log = structlog.get_logger(__name__)

MAX_FORCED_SECONDS = 24 * 3600
_FORCED = prepared.sql_list(FORCED)

_FORCE = f"""
WITH changed AS (
  UPDATE circuits
     SET state = %(state)s, generation = generation + 1, changed_at = {NOW}, actor = %(actor)s,
         reason = %(reason)s, retry_at = {NOW} + make_interval(secs => %(seconds)s), auth_failures = 0,
         probe_detail = '', error_class = '', needs_call = false, {NO_PROBE}
   WHERE name = %(name)s RETURNING circuits.*),
noted AS ({NOTE.format(change="state")})
SELECT name FROM changed"""  # noqa: S608

_RELEASE = f"""
WITH changed AS (
  UPDATE circuits
     SET state = CASE state WHEN 'forced_open' THEN 'half_open' ELSE 'closed' END,
         generation = generation + 1, changed_at = {NOW}, actor = %(actor)s, reason = %(reason)s,
         retry_at = CASE state WHEN 'forced_open' THEN {NOW} + make_interval(secs => %(quiet)s) END,
         error_class = '', needs_call = false, {NO_PROBE}
   WHERE name = %(name)s AND state IN {_FORCED}
     AND (NOT %(expired)s OR retry_at <= {NOW})
  RETURNING circuits.*),
noted AS ({NOTE.format(change="'released'")})
SELECT state FROM changed"""  # noqa: S608

_EXPIRED = f"""
SELECT name FROM circuits WHERE state IN {_FORCED} AND retry_at <= {NOW}
 ORDER BY name LIMIT 100"""  # noqa: S608


def force(name: str, state: CircuitState, *, actor: str, reason: str, seconds: float) -> bool:
    """Force a circuit open or closed for `seconds`; False when there is none of that name.

    Raises ValueError for another state, without a reason, or for more than 24 hours.
    """
    if state not in FORCED:
        raise ValueError("A circuit can be forced open or closed, nothing else.")
    _require_reason(reason)
    if not 0 < seconds <= MAX_FORCED_SECONDS:
        raise ValueError("Force a circuit for 24 hours at most.")
    parameters = {
        "name": name,
        "state": state.value,
        "actor": actor[:255],
        "reason": clean(reason, 512),
        "seconds": seconds,
    }
    with transaction.atomic():
        forced = bool(prepared.rows(_FORCE, parameters))
        if forced and state is CircuitState.FORCED_CLOSED:
            outbox.wake(name)
    if forced:
        log.warning("circuit_forced", dependency=name, state=state.value, actor=actor)
    return forced


def release(name: str, *, actor: str, reason: str) -> bool:
    """End a forced state: forced closed becomes closed, forced open is probed first.

    False when the circuit is not forced. Raises ValueError without a reason.
    """
    _require_reason(reason)
    return _release(name, actor=actor, reason=clean(reason, 512), expired=False)


def expire(name: str) -> bool:
    """End a forced state whose time is over; False when there is none."""
    return _release(name, actor="", reason="its time was over", expired=True)


def expire_forced() -> int:
    """End every forced state whose time is over; return how many. For the maintenance."""
    return sum(expire(str(row["name"])) for row in prepared.rows(_EXPIRED))


def _release(name: str, *, actor: str, reason: str, expired: bool) -> bool:
    with transaction.atomic():
        found = prepared.row(
            _RELEASE,
            {
                "name": name,
                "actor": actor[:255],
                "reason": reason,
                "expired": expired,
                "quiet": quiet_seconds(),
            },
        )
        if found is not None:
            outbox.wake(name, limit=PROBES_TO_CLOSE if found["state"] == CircuitState.HALF_OPEN else None)
    if found is not None:
        log.info("circuit_released", dependency=name, state=found["state"], actor=actor)
    return found is not None


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise ValueError("Give a reason: it is kept with the circuit.")
