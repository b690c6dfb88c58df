"""Slots of webhooks' receivers, so that slow ones leave workers to all others (guarantee G582).

Callers choose receivers, and a call holds a worker for as long as the receiver takes. A receiver gets one
call at a time, and all of them together get every worker that sends but one, which is left to other
channels. A call of SLOW_CALL_SECONDS makes its receiver slow for SLOW_SECONDS, answered or not; a receiver
that was not slow before makes the requester slow whose work called it.

    receiver              requester     slots that its call needs, beside its own
    answered lately       not slow      one of all, one of its requester's: all but one
    not known             not slow      one of all, the first of its requester's
    answered lately       slow          as above, and one of slow requesters'
    not known, or slow    any           as above, and one of slow receivers'

(A receiver that is not known is one of the last line only where its requester is slow.) Slow receivers have
half of the slots of slow requesters, and these two thirds of all. So however many receivers hang, each of
their requesters holds one slot for one call before it is slow; from then on a third of the slots is for
others only.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience.rate_limit import (
    RECEIVERS,
    SLOW,
    SLOW_REQUESTERS,
    Slots,
    concurrency_limit_of,
)

CALL_SECONDS = 20.0  # above the longest call of a webhook
SLOW_CALL_SECONDS = 5.0  # half of the time that a webhook has
SLOW_SECONDS = 600.0
LATELY_SECONDS = 300.0  # for which answered calls are counted (`circuit_buckets`)

# A mark is a row of slots that nobody frees: it lasts until its lease ends.
_KNOWN = """
SELECT EXISTS (SELECT FROM pace_slots WHERE name = %(own_mark)s AND expires_at > statement_timestamp())
         AS is_slow,
       EXISTS (SELECT FROM pace_slots WHERE name = %(flow_mark)s AND expires_at > statement_timestamp())
         AS requester_is_slow,
       EXISTS (SELECT FROM circuit_buckets
                WHERE name = %(name)s AND calls > failures
                  AND started_at > statement_timestamp() - make_interval(secs => %(lately)s))
         AS has_answered"""

_MARK = """
INSERT INTO pace_slots (name, number, expires_at)
SELECT name, 1, statement_timestamp() + make_interval(secs => %(seconds)s)
  FROM unnest(%(marks)s::text[]) name ORDER BY name
ON CONFLICT (name, number) DO UPDATE SET expires_at = excluded.expires_at"""

_UNMARK = "DELETE FROM pace_slots WHERE name = %(mark)s"

_SENDERS = """
SELECT sum(workers)::int FROM worker_clusters
 WHERE queue = %(queue)s AND NOT draining AND beat_at > now() - interval '15 seconds'"""

_counted = (-math.inf, 0)  # until when (monotonic clock) the number of senders counts, and that number


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver that is about to be called: the slots that the call needs, and what its end may mark."""

    slots: list[Slots]
    mark: str = ""  # "": nothing is marked
    requester_mark: str = ""
    is_slow: bool = False

    def ended(self, seconds: float, *, is_answered: bool) -> None:
        """Mark the receiver, and its requester, after a slow call; unmark it after a quick answer."""
        if not self.mark:
            return
        if seconds >= SLOW_CALL_SECONDS:
            # A receiver that is known to be slow has a slot of its kind: its requester costs others nothing.
            marks = (
                [self.mark] if self.is_slow or not self.requester_mark else [self.mark, self.requester_mark]
            )
            prepared.rows(_MARK, {"marks": marks, "seconds": outbox.scaled(SLOW_SECONDS)})
        elif self.is_slow and is_answered:
            prepared.rows(_UNMARK, {"mark": self.mark})


def is_one(name: str) -> bool:
    """Say whether a dependency is a receiver of webhooks."""
    return name.startswith(f"{RECEIVERS}:")


def of(name: str) -> Receiver:
    """Return what the call of a receiver needs now, made by the work of this thread."""
    seconds = outbox.scaled(CALL_SECONDS)
    shared = max(_senders(), 2) - 1
    own = Slots(name, min(concurrency_limit_of(name) or 1, shared), seconds)
    of_all = Slots(RECEIVERS, shared, seconds)
    if shared == 1:
        return Receiver([own, of_all])
    flow = outbox.flow_in_work()
    mark, requester_mark = _mark(name), _mark(slots_of_flow(flow)) if flow else ""
    asked = {"name": name, "own_mark": mark, "flow_mark": requester_mark, "lately": LATELY_SECONDS}
    known = prepared.row(_KNOWN, asked)
    assert known is not None
    is_slow, requester_is_slow = known["is_slow"], known["requester_is_slow"]
    is_proven = known["has_answered"] and not is_slow
    for_slow_requesters = shared - max(1, shared // 3)
    slots = [own]
    if flow:
        slots.append(Slots(slots_of_flow(flow), shared - 1 if is_proven else 1, seconds))
    if is_slow or (requester_is_slow and not is_proven):
        slots.append(Slots(SLOW, max(1, for_slow_requesters // 2), seconds))
    if is_slow or requester_is_slow:
        slots.append(Slots(SLOW_REQUESTERS, for_slow_requesters, seconds))
    return Receiver([*slots, of_all], mark, requester_mark, is_slow)


def slots_of_flow(flow: str) -> str:
    """Return the name of the slots that the receivers of a flow's work share."""
    return f"{RECEIVERS}#{_digest(flow)}"


def _mark(name: str) -> str:
    return f"{RECEIVERS}#is-slow#{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _senders() -> int:
    """Return how many workers send; read again when CIRCUIT_CACHE_SECONDS have passed."""
    global _counted
    until, count = _counted
    if time.monotonic() >= until:
        stages: Mapping[str, tuple[str, str]] = settings.STAGES
        count = prepared.value(_SENDERS, {"queue": stages["notify"][1]}) or 0
        _counted = time.monotonic() + settings.CIRCUIT_CACHE_SECONDS, count
    return count
