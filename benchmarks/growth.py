"""Cost of history and backlog: the same work on a full and on an empty database, in turns.

A database of its own is filled (`admin_load`): `--history` jobs, the newest `--queued` of them active, each
with its message. The empty one has as many active jobs as are claimed. Then, in turns with the empty one:

- a claim of each queue: the message's and the stage's, as workers do it; it is given back. Work is due in the
  order of its requests, then scattered: the next work lies all over the backlog;
- an intake: `POST /api/v1/reviews/` through the whole middleware, in this process;
- a whole sweep of the full one; a sweep, a scrape of `/metrics`, and each function of the maintenance;
- the admin's pages (`admin_scale`), its first page, and the list that reviewers see first;
- `--seconds`: intake through the real web server, with sixteen connections.

Claims in order and intake must stay within 1.5 of the empty database. They do not wait for the disk here:
that takes the same time on both and would hide what differs. `--data DIR` keeps the full database for another
run.

    python -m benchmarks.growth --history 10000000 --queued 1000000 --seconds 60 --data DIR
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import admin_load, admin_scale, ground, intake, machine
from benchmarks.admin_scale import Page
from benchmarks.figures import Figure, Must, emit, percentile, say
from benchmarks.ground import CannotRun, Ground, until
from criticizer.workers.supervisor import web
from reviews.demo import free_port

EMPTY = "empty database"
WITHIN = Must("ratio", ">=", 1 / 1.5)
FULL_NAME = "growth"
WARM = 10
GIVEN_UP_MS = 10_000.0  # what stands for an answer that is not complete
SLOWEST_MS = 1000.0  # of what runs twice a minute, or as often as Prometheus asks
# While loading: no log of what one transaction makes, and nothing that works beside it.
LOADING = {
    "wal_level": "minimal", "max_wal_senders": "0", "max_wal_size": "16GB", "checkpoint_timeout": "1h",
    "autovacuum": "off",
}  # fmt: skip


def _fresh() -> int:
    """Return a number below 1e9 that earlier runs on a kept database have left behind."""
    return int(time.time()) % 1_000_000 * 1_000


@dataclass
class Side:
    """One of the databases: Django's connection to it, a client that is logged in, an API key."""

    name: str
    connection: Any
    client: Any
    key: str
    posted: int = field(default_factory=lambda: 1_000_000_000 + _fresh())

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Point Django at this database."""
        from django.db import connections

        before = connections["default"]
        connections["default"] = self.connection
        try:
            yield
        finally:
            connections["default"] = before


def side_of(name: str) -> Side:
    """Return the database that Django points at, with a connection of its own."""
    from django.contrib.auth import get_user_model
    from django.db import connections
    from django.test import Client

    made = connections.create_connection("default")
    made.settings_dict = copy.deepcopy(connections["default"].settings_dict)
    side = Side(name, made, Client(raise_request_exception=True), "")
    with side.used():
        fields = {"is_staff": True, "is_superuser": True}
        user, _ = get_user_model().objects.get_or_create(username="ann", defaults=fields)
        side.client.force_login(user)
        side.key = intake.api_key(f"load-{_fresh()}")
        with made.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
    return side


def in_turns(sides: Sequence[Side], work: Callable[[Side], float], times: int) -> list[list[float]]:
    """Return the milliseconds of each side's work, which alternates between them."""
    took: list[list[float]] = [[] for _ in sides]
    for number in range(-WARM if times > WARM else -1, times):
        for side, kept in zip(sides, took, strict=True):
            with side.used():
                milliseconds = work(side)
            if number >= 0:
                kept.append(milliseconds)
    return took


def compared(
    name: str, sides: Sequence[Side], work: Callable[[Side], float], times: int, must: Must | None = None
) -> Figure:
    """Measure `work` on the full and the empty database; the figure is the median."""
    full, empty = in_turns(sides, work, times)
    for what, values in (("full", full), (EMPTY, empty)):
        say(f"  {name}, {what}: p50 {percentile(values, 50):.2f} ms, p95 {percentile(values, 95):.2f} ms")
    return Figure(
        f"growth_{name}",
        percentile(full, 50),
        "ms",
        EMPTY,
        percentile(empty, 50),
        lower_is_better=True,
        must=must,
    )


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def claim_of(queue: str) -> Callable[[Side], float]:
    """Return the work of a claim: lease the next message, begin its attempt.

    The claim is given back outside of the time that is measured.
    """
    from criticizer.queue import outbox
    from reviews import pipeline
    from reviews.pipeline import Due, StageClaim

    def claim() -> StageClaim | None:
        [message] = outbox.claim(queue, 1)
        return pipeline.claim(Due(message.id, message.aggregate_id, message.lease_token), "growth")

    def work(_: Side) -> float:
        claimed = []
        milliseconds = timed(lambda: claimed.append(claim()))
        if claimed[0] is None:
            raise CannotRun(f"a message of {queue} could not be claimed")
        pipeline.give_back(claimed[0])
        return milliseconds

    return work


def scatter(side: Side, queue: str, number: int) -> None:
    """Make some messages from all over the backlog the next ones.

    So it is when many wait for a dependency.
    """
    with side.used(), side.connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_messages"
            " SET available_at = '2000-01-01'::timestamptz + random() * interval '1 day'"
            " WHERE id = ANY(ARRAY(SELECT id FROM outbox_messages"
            "  WHERE queue = %s AND lease_token IS NULL AND available_at <= now()"
            "  ORDER BY random() LIMIT %s))",
            [queue, number],
        )


def request(side: Side) -> float:
    """Post one review request."""
    side.posted += 1
    body = {"idempotency_key": f"growth-{side.posted}", "changelist_id": str(side.posted),
            "recipients": ["mail:ann@example.com"]}  # fmt: skip
    answers: list[Any] = []

    def post() -> None:
        answers.append(
            side.client.post(
                "/api/v1/reviews/", body, content_type="application/json",
                headers={"Authorization": f"Bearer {side.key}"}, **admin_scale.OURS,
            )
        )  # fmt: skip

    milliseconds = timed(post)
    if answers[0].status_code != 201:
        raise CannotRun(f"a request was answered {answers[0].status_code}: {answers[0].content[:200]!r}")
    return milliseconds


def scrape(side: Side) -> float:
    texts: list[str] = []
    milliseconds = timed(
        lambda: texts.append(side.client.get("/metrics", **admin_scale.OURS).content.decode())
    )
    if "criticizer_scrape_success 1.0" not in texts[0]:
        say("  a scrape was given up in part")
        return max(milliseconds, GIVEN_UP_MS)
    return milliseconds


def maintenance(sides: Sequence[Side]) -> Figure:
    """Measure each function of the maintenance.

    The figure is the slowest one on the full database.
    """
    from django.conf import settings
    from django.utils.module_loading import import_string

    took = {}
    for path in settings.MAINTENANCE:
        function = import_string(path)
        full, empty = in_turns(sides, lambda _, function=function: timed(function), 1)  # type: ignore[misc]
        took[path] = (full[0], empty[0])
    for path, (full_ms, empty_ms) in sorted(took.items(), key=lambda one: -one[1][0])[:6]:
        say(f"  {path}: {full_ms:.0f} ms, {EMPTY} {empty_ms:.0f} ms")
    slowest = max(took.values())
    return Figure(
        "growth_slowest_maintenance", slowest[0], "ms", EMPTY, slowest[1], lower_is_better=True,
        must=Must("value", "<=", SLOWEST_MS),
    )  # fmt: skip


def pages(side: Side, rounds: int) -> list[Figure]:
    """Measure the admin's pages, its first page among them, and the list of reviews."""
    from reviews.models import ReviewJob

    with side.used():
        last = ReviewJob.objects.filter(idempotency_key__startswith="bench-").latest("id").pk
        found = [
            page_figure(side, replace(page, peer=()), rounds, "/admin/") for page in admin_scale.pages(last)
        ]
        found.append(page_figure(side, Page("list", [""], follows=2), rounds, "/"))
    return [replace(figure, figure=f"growth_{figure.figure}") for figure in found]


def page_figure(side: Side, page: Page, rounds: int, root: str) -> Figure:
    """Measure a kind of page; one whose search is given up fails its figure, not the run."""
    try:
        return admin_scale.measure(side.client, page, rounds, root=root)
    except CannotRun as error:
        say(f"  {page.figure}: {error}")
    name = f"{root.strip('/') or 'pages'}_{page.figure}_p95"
    must = Must("value", "<=", admin_scale.BOUND_MS)
    return Figure(name, GIVEN_UP_MS, "ms", lower_is_better=True, must=must)


def arriving(place: Ground, side: Side, seconds: float) -> tuple[float, float]:
    """Post from sixteen connections to the web server; return requests a second, CPU ms for one."""
    port = free_port()
    environment = {**place.environment, "BENCHMARK_DATABASE": side.connection.settings_dict["NAME"]}
    server = web("127.0.0.1", port, environment)
    server.name = f"web-{side.name.partition(' ')[0]}"
    with place.running([server]) as pids:
        until(lambda: intake.serves(port), 30, "the web server")
        until(lambda: len(machine.tree(pids[0])) >= 3, 10, "both web processes")
        intake.load(side.key, port, "--seconds", "1.5", "--first", str(3_000_000_000 + _fresh()))
        watch = machine.Stopwatch([place.postmaster(), *pids])
        found = intake.load(
            side.key, port, "--seconds", str(seconds), "--first", str(5_000_000_000 + _fresh())
        )
        cpu = watch.cpu()
    if intake.failures(found):
        raise CannotRun(f"requests failed: {found['statuses']}")
    return found["requests"] / found["seconds"], 1000 * cpu / found["requests"]


def under_load(place: Ground, sides: Sequence[Side], seconds: float) -> list[Figure]:
    (rate, cpu), (empty_rate, empty_cpu) = [arriving(place, side, seconds) for side in sides]
    return [
        Figure("growth_intake_rate", rate, "requests/s", EMPTY, empty_rate),
        Figure(
            "growth_intake_cpu", cpu, "CPU ms/request", EMPTY, empty_cpu, lower_is_better=True, must=WITHIN
        ),
    ]


def run(place: Ground, sides: Sequence[Side], given: argparse.Namespace) -> Iterator[Figure]:
    """Yield the figures, the cheap ones first.

    What they ask of the databases changes these little.
    """
    from criticizer.queue import outbox
    from reviews import pipeline

    soon = Must("value", "<=", SLOWEST_MS)
    gc.freeze()  # as the web server does
    with sides[0].used():
        # As a cluster does first. It brings the rows of active reviews, usually new ones, to memory.
        seconds = timed(lambda: pipeline.sweep(is_whole=True)) / 1000
    yield Figure("growth_whole_sweep", seconds, "s", lower_is_better=True)
    for queue in outbox.queues():
        yield compared(f"claim_{queue}", sides, claim_of(queue), given.times, WITHIN)
    for queue in outbox.queues():
        for side in sides:
            scatter(side, queue, given.times + WARM)
        yield compared(f"claim_{queue}_scattered", sides, claim_of(queue), given.times)
    yield compared("intake", sides, request, given.times, WITHIN)
    yield compared("sweep", sides, lambda _: timed(pipeline.sweep), 5, soon)
    yield compared("metrics", sides, scrape, 5, soon)
    yield maintenance(sides)
    yield from pages(sides[0], given.rounds)
    if given.seconds:
        yield from under_load(place, sides, given.seconds)


def load(place: Ground, given: argparse.Namespace) -> None:
    """Fill the database that Django points at."""
    say(f"growth: loading {given.history} jobs, {given.queued} of them active")
    place.restart(**LOADING)
    admin_load.load(given.history, given.history // 50, given.queued)


def is_loaded() -> bool:
    from reviews.models import ReviewJob

    return ReviewJob.objects.exists()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--history", type=int, default=20_000, help="jobs, the active ones among them")
    parser.add_argument("--queued", type=int, default=5_000, help="active jobs")
    parser.add_argument("--times", type=int, default=200, help="claims of a queue, and requests")
    parser.add_argument("--rounds", type=int, default=1, help="of each page")
    parser.add_argument("--seconds", type=float, default=4, help="of requests to the web server; 0: none")
    parser.add_argument("--shared-buffers", help="of PostgreSQL, such as 128MB; its share, as it is embedded")
    parser.add_argument("--data", type=Path, help="a directory that keeps the full database for another run")
    given = parser.parse_args()
    if not 0 < given.queued <= given.history:
        parser.error("--queued must be from 1 to --history")
    # No dead letter is old enough to be archived: that is work, not what looking for it costs.
    kept = {"DLQ_MAX_AGE_DAYS": "3650", "DLQ_MAX_SIZE": "10000000"}
    options = {"API_THROTTLE": "100000000/min", "LOG_LEVEL": "ERROR", **kept}
    with ground.prepared(options, given.data and given.data.absolute()) as place:
        place.use_kept(FULL_NAME)
        if not is_loaded():
            load(place, given)
        place.restart(**({"shared_buffers": given.shared_buffers} if given.shared_buffers else {}))
        say(f"growth: {place.server.settings['shared_buffers']} of shared buffers")
        full = side_of("full database")
        with place.database():
            # A third for each queue, and hardly one twice: the first claim of a job writes more.
            few = 8 * (given.times + WARM)
            admin_load.load(few, 0, few)
            empty = side_of(EMPTY)
            say(f"growth: measuring, at a load of {os.getloadavg()[0]:.0f}")
            try:
                for figure in run(place, [full, empty], given):
                    emit([figure])
            finally:
                for side in (full, empty):
                    side.connection.close()


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        sys.exit(f"growth: {error}")
