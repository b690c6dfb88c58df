"""Schedule of the drill's faults: a pure value of the seed.

The seed fixes kinds, order, moments and lengths of the faults. Which of several processes is hit,
and what it is doing then, is up to the machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.figures import say

# Kind -> how often, as a share of all. Kills of a process (KILLS) are answered by a measured recovery.
WEIGHTS = {
    "kill_worker_stages": 8,
    "kill_worker_llm": 9,
    "kill_worker_notify": 8,
    "kill_idle_stages": 3,
    "kill_idle_notify": 2,
    "kill_idle_llm": 2,
    "kill_pusher": 6,
    "kill_monitor": 5,
    "kill_sentinel": 4,
    "kill_cluster": 4,
    "kill_web_worker": 4,
    "kill_web_master": 2,
    "kill_postgres": 3,
    "stop_postgres": 3,
    "freeze_worker": 6,
    "model_hang": 4,
    "model_429": 5,
    "model_5xx": 6,
    "model_truncated": 4,
    "model_invalid": 4,
    "webhook_5xx": 5,
    "webhook_429": 4,
    "webhook_hang": 3,
    "webhook_drip": 3,
    "webhook_drop": 6,
    "smtp_4xx": 3,
    "smtp_drop": 4,
    "host_limit": 4,
    "host_drop": 4,
    "host_revoke": 3,
    "host_push": 4,
    "host_redeliver": 4,
    "host_lose": 3,
}
QUEUES = ("stages", "llm", "notify")
SMTP_DOMAIN = "smtp.example.com"  # mail to it goes through SMTP, all other into a maildir


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    `at` and `seconds` (how long it lasts, 0 for a kill) count from the run's start.
    """

    number: int
    at: float
    kind: str
    queue: str  # whose processes, where the kind leaves that open
    seconds: float
    share: float  # of the requests a misbehaving peer spoils

    def __str__(self) -> str:
        return f"#{self.number} {self.kind}"


def length_of(count: int) -> float:
    """Return the seconds over which `count` faults are spread.

    One begins when the one before is barely recovered.
    """
    return max(20.0, 1.6 * count)


def schedule(
    count: int,
    seed: int,
    only: Collection[str] = (),
    *,
    weights: Mapping[str, int] = WEIGHTS,
    length: float | None = None,
) -> list[Fault]:
    """Return `count` faults in order of their moment, of every kind at least one.

    A smaller `count` leaves kinds out. `only` limits the kinds of `weights`. Raises KeyError for an unknown
    one.
    """
    dice = random.Random(seed)
    kinds = _kinds(count, dice, {kind: weights[kind] for kind in only or weights})
    step = (length or length_of(count)) / max(count, 1)
    return [
        Fault(
            number,
            at=2.0 + step * (number + dice.uniform(-0.4, 0.4)),
            kind=kind,
            queue=dice.choice(QUEUES),
            seconds=dice.uniform(1.0, 4.0),
            share=dice.choice((0.3, 0.6, 1.0)),
        )
        for number, kind in enumerate(kinds, 1)
    ]


def at_their_moments(faults: Sequence[Fault], started: float, is_over: Callable[[], bool]) -> Iterator[Fault]:
    """Yield each fault at its moment after `started` (time.monotonic()), until `is_over`."""
    for fault in faults:
        while (wait := started + fault.at - time.monotonic()) > 0 and not is_over():
            time.sleep(min(wait, 0.5))
        if is_over():
            say("drill: time is up before the last fault")
            return
        yield fault


def _kinds(count: int, dice: random.Random, weights: Mapping[str, int]) -> list[str]:
    """Deal every kind once, then whatever is furthest behind its weight, and shuffle."""
    total = sum(weights.values())
    dealt = list(weights)
    dice.shuffle(dealt)
    behind = {kind: count * weight / total - 1 for kind, weight in weights.items()}
    while len(dealt) < count:
        kind = max(behind, key=lambda kind: (behind[kind], kind))
        behind[kind] -= 1
        dealt.append(kind)
    dealt = dealt[:count]
    dice.shuffle(dealt)
    return dealt
