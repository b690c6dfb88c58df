"""Intake: POST /api/v1/reviews/ with 20 % repeated keys, against a plain ORM view.

Ours is the product's web server as `manage.py up` starts it: two processes of four threads, all
middleware, authentication and throttling on. The peer (`plain_view`) is served the same way on the
same tables and gives the same answers; a second one gives short answers. Sixteen connections post for
a few seconds from a process of their own (`load`), then bursts of 50 identical requests arrive at once.

CPU is user + system time of the web server and PostgreSQL per request; it bears a busy machine
better than requests per second, which share two cores with the load generator.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from benchmarks import ground, machine
from benchmarks.figures import Figure, Must, emit, median_by, say
from benchmarks.ground import CannotRun, Ground, until
from criticizer.workers.supervisor import web
from reviews.demo import free_port

OURS, PEER, SHORT = "criticizer", "plain ORM view", "plain ORM view, short answer"
PATHS = {OURS: "/api/v1/reviews/", PEER: "/api/v1/reviews/", SHORT: "/short/api/v1/reviews/"}
BURSTS = 10


@dataclass(frozen=True)
class Sample:
    """Measurements of one view in one round."""

    per_second: float
    p95: float
    cpu_ms: float
    failures: int  # 5xx and broken connections


def load(key: str, port: int, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", str(port), *arguments],
        env={"PATH": "", "BENCHMARK_KEY": key}, stdout=subprocess.PIPE, check=True, timeout=120,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    unexpected = {status for status in found["statuses"] if status not in {"200", "201"} and status < "500"}
    if unexpected:
        raise CannotRun(f"the view refuses the load: {found['statuses']}")
    return found


def failures(found: dict[str, Any]) -> int:
    return sum(count for status, count in found["statuses"].items() if status >= "500")


def run(name: str, place: Ground, seconds: float) -> Sample:
    with place.database() as environment:
        key = api_key()
        port = free_port()
        if name != OURS:
            environment = {**environment, "BENCHMARK_URLCONF": "benchmarks.plain_view"}
        server = web("127.0.0.1", port, environment)
        post = partial(load, key, port, "--path", PATHS[name])
        with place.running([server]) as pids:
            until(lambda: serves(port), 30, "the web server")
            until(lambda: len(machine.tree(pids[0])) >= 3, 10, "both web processes")
            post("--seconds", "1.5", "--first", "1000000")
            watch = machine.Stopwatch([place.postmaster(), *pids])
            found = post("--seconds", str(seconds))
            cpu = watch.cpu()
            burst = post("--bursts", str(BURSTS), "--first", "2000000")
    sample = Sample(
        per_second=found["requests"] / found["seconds"],
        p95=found["p95"],
        cpu_ms=1000 * cpu / found["requests"],
        failures=failures(found) + failures(burst),
    )
    say(
        f"  {name:28} {sample.per_second:7.0f} requests/s  p95 {sample.p95:5.1f} ms"
        f"  {sample.cpu_ms:5.2f} CPU ms/request  {sample.failures} failures"
    )
    return sample


def api_key(name: str = "load") -> str:
    from django.core.management import call_command

    out = io.StringIO()
    call_command("create_api_key", name=name, role="trigger", stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def serves(port: int) -> bool:
    """Return whether the product's web server answers on a port."""
    time.sleep(0.1)
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def figures(rounds: Sequence[dict[str, Sample]]) -> list[Figure]:
    """Return what the rounds showed, each figure from the round with its median ratio."""
    made = []
    for peer, must in ((PEER, Must("ratio", ">=", 2)), (SHORT, None)):
        cpu = median_by(rounds, lambda r, peer=peer: r[peer].cpu_ms / r[OURS].cpu_ms)
        rate = median_by(rounds, lambda r, peer=peer: r[OURS].per_second / r[peer].per_second)
        made += [
            Figure(
                "intake_cpu", cpu[OURS].cpu_ms, "CPU ms/request", peer, cpu[peer].cpu_ms,
                lower_is_better=True, must=must,
            ),
            Figure("intake_rate", rate[OURS].per_second, "requests/s", peer, rate[peer].per_second),
        ]  # fmt: skip
    p95 = median_by(rounds, lambda r: r[PEER].p95 / r[OURS].p95)
    failed, failed_peer = (sum(r[name].failures for r in rounds) for name in (OURS, PEER))
    return [
        *made,
        Figure("intake_latency_p95", p95[OURS].p95, "ms", PEER, p95[PEER].p95, lower_is_better=True),
        Figure(
            "intake_5xx", failed, "answers", PEER, failed_peer,
            lower_is_better=True, must=Must("value", "<=", 0),
        ),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    given = parser.parse_args()
    with ground.prepared({"API_THROTTLE": "100000000/min"}) as place:
        rounds = []
        for number in range(given.rounds):
            say(f"intake: round {number + 1} of {given.rounds}")
            rounds.append({name: run(name, place, given.seconds) for name in PATHS})
        emit(figures(rounds))


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        sys.exit(f"intake: {error}")
