"""Slots of webhooks' receivers, so that slow ones leave workers to others (guarantee G582).

Callers choose receivers, and a call holds a worker for as long as the receiver takes. A receiver gets one
call at a time, plus one from a requester that it answers quickly; an operator's limit covers both. All
receivers together get every worker that sends but one, which is left to other channels. A call of
SLOW_CALL_SECONDS, answered or not, makes its receiver slow for SLOW_SECONDS. It makes the requester whose
work called it slow as well, unless the receiver was known to be slow. Where a requester's last call of a
receiver was answered quickly, that counts, whatever happened to others.

    receiver              requester     slots that its call needs, beside its own
    answered it lately    not slow      one of all, one of its requester's: all but one
    not known             not slow      one of all, the first of its requester's
    answered it lately    slow          as above, and one of slow requesters'
    not known, or slow    any           as above, and one of slow receivers'

(The last line applies to a receiver that is not known only where its requester is slow.) Slow receivers have
half of the slots of slow requesters, which have two thirds of all. So however many receivers hang, each of
their requesters holds one slot for one call before it is slow; from then on a third of the slots is for
others only.

Requesters name different addresses of one host, some of which may fail. The host's circuit and pauses
therefore stop only the work of requesters whose last call there failed; others make their calls (guarantee
G585).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
GOOD_SECONDS = 300.0  # a requester's call of a receiver that was answered quickly counts so long
FAILED_SECONDS = 30.0  # a failed call counts so long, at least; as long as a circuit cools down

# A mark is a row in the table of slots. A call does not free it: it ends with its lease.
_KNOWN = """
SELECT name FROM pace_slots WHERE name = ANY(%(marks)s) AND expires_at > statement_timestamp()"""

_MARK = """
INSERT INTO pace_slots (name, number, expires_at)
SELECT name, 1, statement_timestamp() + make_interval(secs => seconds)
  FROM unnest(%(marks)s::text[], %(seconds)s::float8[]) AS mark(name, seconds) ORDER BY name
ON CONFLICT (name, number) DO UPDATE SET expires_at = excluded.expires_at"""

# Rows are locked in the order of _MARK: two orders would deadlock.
_UNMARK = """
DELETE FROM pace_slots WHERE id IN (
  SELECT id FROM pace_slots WHERE name = ANY(%(marks)s) ORDER BY name FOR UPDATE)"""

_SENDERS = """
SELECT sum(workers)::int FROM worker_clusters
 WHERE queue = %(queue)s AND NOT draining AND beat_at > now() - interval '15 seconds'"""

_LONGEST = 122  # characters of a name that gets an ending; the column has 128
_counted = (-math.inf, 0)  # until when (monotonic clock) the number of senders counts, and that number


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver that a requester's work is about to call, and the slots that this needs.

    `is_slow`, `requester_is_slow`: in the last minutes. `is_proven`: this requester's last call of it was
    answered quickly; `is_blamed`: that call failed, or the requester is not known.
    """

    name: str
    flow: str = ""
    slots: list[Slots] = field(default_factory=list)
    is_slow: bool = False
    requester_is_slow: bool = False
    is_proven: bool = False
    is_blamed: bool = True

    @property
    def is_warned(self) -> bool:
        """Return whether the receiver is known to be slow, and not to be quick for this requester."""
        return self.is_slow and not self.is_proven

    def ended(self, seconds: float, *, is_answered: bool, slow_seconds: float = 0.0) -> None:
        """Mark receiver and requester after a call of `seconds`; delete marks that it disproves.

        `slow_seconds`: the pause that the receiver answered with, and the slower rate after it.
        """
        is_late = seconds >= SLOW_CALL_SECONDS
        is_good = is_answered and not is_late
        marks = {}
        if is_late:
            marks[_slow(self.name)] = outbox.scaled(SLOW_SECONDS)
        # A call of a receiver known to be slow had a slot of slow ones: its requester delayed no others.
        if is_late and self.flow and not self.is_warned:
            marks[_slow(self.flow)] = outbox.scaled(SLOW_SECONDS)
        if is_good and self.flow and not self.is_proven:
            marks[_good(self.name, self.flow)] = outbox.scaled(GOOD_SECONDS)
        if not is_answered and self.flow:
            marks[_failed(self.name, self.flow)] = max(outbox.scaled(FAILED_SECONDS), slow_seconds)
        over = [
            *([_slow(self.name)] if is_good and self.is_slow else ()),
            *([_good(self.name, self.flow)] if self.is_proven and not is_good else ()),
            *([_failed(self.name, self.flow)] if self.is_blamed and is_answered and self.flow else ()),
        ]
        if marks:
            prepared.rows(_MARK, {"marks": list(marks), "seconds": list(marks.values())})
        if over:
            prepared.rows(_UNMARK, {"marks": over})


def is_one(name: str) -> bool:
    """Return whether a dependency is a receiver of webhooks."""
    return name.startswith(f"{RECEIVERS}:")


def of(name: str) -> Receiver | None:
    """Return the receiver for a call by this thread's work, with the slots that it needs now.

    None where the dependency is not a receiver.
    """
    if not is_one(name):
        return None
    flow = outbox.flow_in_work() or ""
    marks = [_slow(name), _slow(flow), _good(name, flow), _failed(name, flow)]
    found = {row["name"] for row in prepared.rows(_KNOWN, {"marks": marks})}
    is_slow, requester_is_slow, is_good, has_failed = (mark in found for mark in marks)
    one = Receiver(
        name,
        flow,
        is_slow=is_slow,
        requester_is_slow=requester_is_slow,
        is_proven=bool(flow) and is_good,
        is_blamed=not flow or has_failed,
    )
    return replace(one, slots=_slots_of(one))


def _slots_of(one: Receiver) -> list[Slots]:
    seconds = outbox.scaled(CALL_SECONDS)
    shared = max(_senders(), 2) - 1
    limit = concurrency_limit_of(one.name)
    # Requesters that it answers quickly do not wait behind those who call an address of it that hangs. An
    # operator's limit holds for all of them together.
    own = f"{one.name[:_LONGEST]}#good" if one.is_proven and limit is None else one.name
    slots = [Slots(own, min(limit or 1, shared), seconds)]
    if shared > 1:
        for_slow_requesters = shared - max(1, shared // 3)
        if one.flow:
            slots.append(Slots(slots_of_flow(one.flow), shared - 1 if one.is_proven else 1, seconds))
        if one.is_warned or (one.requester_is_slow and not one.is_proven):
            slots.append(Slots(SLOW, max(1, for_slow_requesters // 2), seconds))
        if one.is_warned or one.requester_is_slow:
            slots.append(Slots(SLOW_REQUESTERS, for_slow_requesters, seconds))
    return [*slots, Slots(RECEIVERS, shared, seconds)]


def bucket_of_rest(name: str) -> str:
    """Return the bucket of tokens for requesters to whom a receiver's pause does not apply."""
    return f"{name[:_LONGEST]}#rest"


def slots_of_flow(flow: str) -> str:
    """Return the name of the slots that all receivers of a flow's work share."""
    return f"{RECEIVERS}#{_digest(flow)}"


def _slow(name: str) -> str:
    return f"{RECEIVERS}#is-slow#{_digest(name)}"


def _good(name: str, flow: str) -> str:
    return f"{RECEIVERS}#is-good#{_digest(f'{name} {flow}')}"


def _failed(name: str, flow: str) -> str:
    return f"{RECEIVERS}#failed#{_digest(f'{name} {flow}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _senders() -> int:
    """Return how many workers send, as read in the last CIRCUIT_CACHE_SECONDS."""
    global _counted
    until, count = _counted
    if time.monotonic() >= until:
        stages: Mapping[str, tuple[str, str]] = settings.STAGES
        count = prepared.value(_SENDERS, {"queue": stages["notify"][1]}) or 0
        _counted = time.monotonic() + settings.CIRCUIT_CACHE_SECONDS, count
    return count
