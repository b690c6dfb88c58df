"""The cells of one provider, each a delivery with a worker killed somewhere on its way.

    python -m benchmarks.matrix_run PROVIDER [--behaviours …] [--deliveries N] [--seed S]

Prints a JSON line a cell. The statements at which workers are killed are not chosen: a run
without a kill lists them. Under normal behaviour these are all lines of the protocol's functions,
under every other their beginnings and ends, in each phase of the delivery.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import django

from benchmarks import matrix_rigs
from benchmarks.matrix_jobs import prepared_digest, prepared_job
from benchmarks.matrix_rig import BROKEN, NORMAL, NOT_TAKEN, REFUSES, RESET, SLOWER, Rig
from benchmarks.matrix_worker import ACCEPTED, TIME_SCALE, Workers

_LINES_PER_POINT = 10  # normal behaviour is cheap: its limit allows for every line
_LIVES = 15  # of the worker that comes after, of 20 s: what is not told then is stuck, on a slow machine too
CHAOS = (RESET, BROKEN, NOT_TAKEN, SLOWER)


@dataclass(frozen=True, slots=True)
class Cell:
    """One delivery. `point` is the statement before which its first worker was killed, or empty.

    `lives`: how many workers came after it until everything was sent; `said`: the failure that the last of
    them met.
    """

    provider: str
    behaviour: str
    phase: str
    point: str
    verdict: str
    status: str
    arrived: int
    lives: int = 0
    said: str = ""


def verdict_of(status: str, arrived: int, *, is_marked: bool, refuses: bool, may_hold: bool) -> str:
    """Compare what a row says with how often its message arrived."""
    if arrived > 1:
        return "duplicate"
    if status == "sent":
        return "truthful" if arrived and is_marked else "loss"
    if status == "failed":
        return "truthful" if refuses and not arrived else "false failed"
    if status == "uncertain":
        return "truthful" if may_hold else "needless hold"
    return "loss"  # stuck: nobody would ever be told


_DELIVERIES_PER_LIFE = 12
_CHAOS_SHARE = 0.5  # of the moments at which the next message is decided about


class Bench:
    """One provider: its rig, its workers and the rows of its deliveries.

    `statements`: of the behaviours since they were last counted; at `killed_at` of them workers were killed.
    """

    statements = killed_at = 0

    def __init__(self, rig: Rig, workers: Workers) -> None:
        from notifications.providers.base import capabilities_for
        from notifications.recipients import split

        self.rig, self.workers = rig, workers
        self.channel, address = split(rig.recipient(0))
        self.capabilities = capabilities_for(matrix_rigs.provider_of(rig.spec, frozenset()), address)
        self._numbers = itertools.count(1)
        self._together: dict[int, list[int]] = {}  # the jobs that are told in one message, by the first

    def job(self) -> int:
        """Make a job with one delivery and return its id; of a digest, that of the first job."""
        number = next(self._numbers)
        if self.rig.together == 1:
            return prepared_job(self.rig, "matrix", number)
        first, *others = prepared_digest(self.rig, "matrix", number)
        self._together[first] = [first, *others]
        return first

    def jobs_of(self, job: int) -> list[int]:
        """Return the jobs whose reviews the message of `job` reports."""
        return self._together.get(job, [job])

    def order(self, *jobs: int, is_second: bool = False, **more: object) -> dict[str, object]:
        """Return the order for a worker.

        In the second life the others of a digest come before the first.
        """
        told = [one for job in jobs for one in self.jobs_of(job)[:: -1 if is_second else 1]]
        return {"jobs": told, "spec": self.rig.spec, "channel": self.channel, **more}

    def cells(self, behaviour: str, most: int, part: tuple[int, int] = (1, 1)) -> Iterator[Cell]:
        """Yield the cells of a behaviour: without a kill, then killed at each point.

        With `part`, at a part of the points.
        """
        watch = "lines" if behaviour == NORMAL else "calls"
        events: list[tuple[str, str]] = []

        def listed(job: int) -> str:
            events.extend(map(tuple, self.workers.run(**self.order(job, watch=watch))["events"]))
            return ""

        yield self._cell(behaviour, "no kill", "", listed)
        points = {(place, phase): index for index, (place, phase) in reversed(list(enumerate(events)))}
        chosen = sorted(points.items(), key=lambda point: point[1])
        self.statements += len(chosen)
        limit = most * _LINES_PER_POINT if behaviour == NORMAL else most
        if len(chosen) > limit:
            chosen = chosen[:: -(-len(chosen) // limit)]
        chosen = chosen[part[0] - 1 :: part[1]]
        self.killed_at += len(chosen)
        if self.rig.hook is not None and behaviour not in {NOT_TAKEN, REFUSES, SLOWER}:
            yield self._cell(behaviour, ACCEPTED, "by the provider", self._killed_by_provider)
        for (place, phase), index in chosen:
            yield self._cell(behaviour, phase, place, self._killed_at(watch, index))

    def _killed_at(self, watch: str, index: int) -> Callable[[int], str]:
        def run(job: int) -> str:
            ended = self.workers.run(**self.order(job, watch=watch, kill_at=index))
            return "" if ended["signal"] == signal.SIGKILL else "not reached"

        return run

    def _killed_by_provider(self, job: int) -> str:
        def kill() -> None:
            self.rig.hook.then = None
            self.workers.kill()

        if self.rig.spec[0] == "maildir":
            return "not reached"  # a file system calls nobody: its lines are killed one by one
        self.rig.hook.then = kill
        ended = self.workers.run(**self.order(job))
        self.rig.hook.then = None
        return "" if ended["signal"] == signal.SIGKILL else "not reached"

    def _cell(self, behaviour: str, phase: str, point: str, run: Callable[[int], str]) -> Cell:
        self._forgive()
        self.rig.calm()
        job = self.job()
        self.rig.behave[behaviour]()
        missed = run(job)
        lives, ended = 0, {"ran_out": not missed, "said": ""}
        while ended["ran_out"] and lives < _LIVES:
            lives += 1
            ended = self.workers.run(**self.order(job, is_second=True))
        verdict, status, arrived = self.judge(job, refuses=behaviour == REFUSES)
        said = "" if verdict == "truthful" else str(ended["said"])
        return Cell(self.rig.name, behaviour, phase, point, missed or verdict, status, arrived, lives, said)

    @staticmethod
    def _forgive() -> None:
        """Close the circuits: what one delivery suffered, the next one must not wait for."""
        from criticizer.models import Circuit, CircuitBucket, Pace

        for model in (CircuitBucket, Circuit, Pace):
            model.objects.all().delete()

    def judge(self, job: int, *, refuses: bool, arrived: Counter[str] | None = None) -> tuple[str, str, int]:
        """Return verdict, the row's status and how often the recipient saw the message.

        Of a digest, of its first row that is not truthful, or of the first.
        """
        from notifications.models import Delivery

        rows = Delivery.objects.filter(job_id__in=self.jobs_of(job)).select_related("digest").order_by("id")
        seen = arrived if arrived is not None else self.rig.arrived()
        judged = [self._judge(row, seen, refuses=refuses) for row in rows]
        return next((one for one in judged if one[0] != "truthful"), judged[0])

    def _judge(self, row: Any, arrived: Counter[str], *, refuses: bool) -> tuple[str, str, int]:
        # A review that is told in a digest and alone as well is a duplicate.
        own = {row.token, row.digest.token if row.digest and row.digest.token else row.token}
        seen = sum(arrived[str(token)] for token in own)
        verdict = verdict_of(
            str(row.status),
            seen,
            is_marked=row.notified_at is not None and bool(row.notification_id),
            refuses=refuses,
            may_hold=self._may_hold(row, refuses=refuses),
        )
        return verdict, str(row.status), seen

    def _may_hold(self, row: Any, *, refuses: bool) -> bool:
        """Return whether what the provider promises leaves no proof for this row."""
        from notifications.delivery import reconcile, uncertainty_policy
        from notifications.digests import lifecycle
        from notifications.providers.base import Evidence

        if not uncertainty_policy.can_look_up(self.capabilities, has_provider_id=bool(row.notification_id)):
            # A key's holder is refused at the repetition: that says nothing about the first one.
            return refuses or self.capabilities.key_window_seconds <= 0
        if self.capabilities.key_window_seconds > 0:
            return refuses
        facts = reconcile.history_of(lifecycle.carrier_of(row))
        unanswered = sum(look.evidence is Evidence.UNKNOWN for look in facts.looks)
        allowed = self.capabilities.resends_after_absence
        return unanswered > uncertainty_policy.UNANSWERED_LOOKS or (
            allowed is not None and facts.resends >= allowed
        )

    def open_jobs(self) -> set[int]:
        """Return the jobs of which something is still to be sent."""
        from notifications.models import Delivery
        from notifications.states import UNSENT_DELIVERY

        unsent = Delivery.objects.filter(status__in=UNSENT_DELIVERY)
        return set(unsent.values_list("job_id", flat=True))

    def known_tokens(self) -> set[str]:
        """Return the tokens of all that was to be sent."""
        from notifications.models import Delivery, Digest

        digests = Digest.objects.filter(token__isnull=False).values_list("token", flat=True)
        return set(map(str, Delivery.objects.values_list("token", flat=True).union(digests)))

    def statuses(self, jobs: list[int]) -> Counter[str]:
        """Return how many rows of these jobs ended how."""
        from notifications.models import Delivery

        return Counter(Delivery.objects.filter(job_id__in=jobs).values_list("status", flat=True))

    def storm(self, deliveries: int, seed: int) -> dict[str, object]:
        """Make so many deliveries under random misbehaviour and random kills, then do the books."""
        rng = random.Random(seed)
        self.rig.calm()
        jobs = [self.job() for _ in range(deliveries)]
        stopping = threading.Event()
        acts = [behaviour for behaviour in CHAOS if behaviour in self.rig.behave]

        def misbehave() -> None:
            chaos = random.Random(seed + 1)
            while acts and not stopping.wait(chaos.uniform(0.02, 0.4)):
                self.rig.calm()  # what nobody met in the meantime does not queue up
                if chaos.random() < _CHAOS_SHARE:
                    self.rig.behave[chaos.choice(acts)]()

        chaos = threading.Thread(target=misbehave, daemon=True)
        chaos.start()
        began = time.monotonic()
        kills = 0
        left = jobs
        # Of a worker: so long that it makes about a dozen deliveries, whatever the machine.
        life_seconds = 0.2
        while left:
            before = len(left)
            self.workers.start(**self.order(*left[:200]))
            timer = threading.Timer(rng.uniform(0.2, 1.8) * life_seconds, self.workers.kill)
            timer.start()
            ended = self.workers.wait()
            timer.cancel()
            timer.join()
            kills += ended["signal"] == signal.SIGKILL
            self._forgive()
            open_jobs = self.open_jobs()
            left = [job for job in left if not open_jobs.isdisjoint(self.jobs_of(job))]
            life_seconds *= 1.5 if before - len(left) < _DELIVERIES_PER_LIFE else 0.8
        stopping.set()
        chaos.join()
        seconds = time.monotonic() - began
        arrived = self.rig.arrived()
        known = self.known_tokens()
        verdicts = Counter(self.judge(job, refuses=False, arrived=arrived)[0] for job in jobs)
        told = [one for job in jobs for one in self.jobs_of(job)]
        statuses = self.statuses(told)
        return {
            "provider": self.rig.name,
            "deliveries": len(jobs),
            "kills": kills,
            "seconds": round(seconds, 1),
            "verdicts": dict(verdicts),
            "statuses": dict(statuses),
            "strangers": sum(times for token, times in arrived.items() if token not in known),
        }


@contextmanager
def bench(name: str, workers: Workers | None = None) -> Iterator[Bench]:
    """Start a provider's server, and workers of its own unless some are given.

    Django must be set up.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="criticizer-matrix-")))
        rig = {**matrix_rigs.RIGS, **matrix_rigs.DIGEST_RIGS}[name](stack, folder, TIME_SCALE)
        if workers is None:
            workers = Workers(stack.enter_context((folder / "errors").open("w+")))
            stack.callback(workers.close)
        kind = Bench
        if name in matrix_rigs.CHECK_CHANNELS:
            from benchmarks.matrix_checks import CheckBench as kind  # noqa: N813  needs Django set up
        yield kind(rig, workers)


def part_of(text: str) -> tuple[int, int]:
    """Return which of how many parts `2/6` is."""
    part, of = map(int, text.split("/"))
    if not 1 <= part <= of:
        raise ValueError(text)
    return part, of


def _interrupted(*_: object) -> None:
    """Leave, stopping servers and workers on the way out.

    A further signal does not interrupt that.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix_run")
    parser.add_argument("provider")
    parser.add_argument("--behaviours", nargs="*", default=None)
    parser.add_argument("--points", type=int, default=16, help="at most so many a misbehaviour")
    parser.add_argument("--part", type=part_of, default=(1, 1))
    parser.add_argument("--deliveries", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupted)
    django.setup()
    with bench(options.provider) as running:
        for behaviour in running.rig.behave:
            if options.behaviours is None or behaviour in options.behaviours:
                for cell in running.cells(behaviour, options.points, options.part):
                    print(json.dumps({"cell": asdict(cell)}), flush=True)
                counted = {"statements": running.statements, "killed_at": running.killed_at}
                print(json.dumps(counted), flush=True)
                running.statements = running.killed_at = 0
        if options.deliveries:
            print(json.dumps({"storm": running.storm(options.deliveries, options.seed)}), flush=True)


if __name__ == "__main__":
    main()
