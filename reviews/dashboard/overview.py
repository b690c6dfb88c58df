"""The admin's dashboard: the present state, and the trends of a time window.

Trends come from `rollup`, the present from bounded counts on partial indexes, so the page costs
the same for a thousand jobs and for a million. Every number links to its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone

from criticizer.admin_site import charts
from criticizer.admin_site.charts import Bar, Chart
from criticizer.db import prepared
from criticizer.db.query_limits import MAX_COUNTED, BoundedCount
from criticizer.observability.health import workers_alive
from criticizer.resilience import circuit_breaker
from criticizer.resilience.states import CIRCUIT_LOOKS, CircuitState
from notifications.states import DeliveryStatus
from reviews.dashboard import rollup
from reviews.dashboard.trends import (
    DEFAULT_WINDOW,
    OPEN_DELIVERY,
    WINDOWS,
    Figures,
    Latency,
    Window,
    done_deliveries,
    ended_address,
    failed_attempts,
    latencies,
    latency_lines,
    letters,
    list_address,
    read,
    throughput,
)
from reviews.states import JobStatus

SEEN_BY = ("reviews.view_all_files", "deadletters.view_deadletter", "criticizer.view_circuit")
STALE_SECONDS = 180
REFRESH_SECONDS = 15  # between two looks of an open page
_LATE_WAIT = (60, 300)  # seconds the oldest due message waits: to look at, to act on
_GOOD_RATE = (95, 80)  # percent


@dataclass(frozen=True, slots=True)
class Tile:
    """One number. `tone` is ok, warn or danger; `note` says the same in words."""

    title: str
    number: str
    href: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class QueueLine:
    """Messages due in a queue, and its workers."""

    name: str
    due: BoundedCount
    oldest: datetime | None
    workers: int
    href: str


@dataclass(frozen=True, slots=True)
class CircuitLine:
    """A circuit that is not closed: its state label and its CSS state."""

    name: str
    state: str
    look: str
    href: str


@dataclass(frozen=True, slots=True)
class Present:
    """The present state of the installation."""

    active: BoundedCount
    letters: BoundedCount
    deliveries: Mapping[DeliveryStatus, BoundedCount]
    queues: Sequence[QueueLine]
    circuits: Sequence[CircuitLine]
    edits: BoundedCount
    batches: BoundedCount
    waiting: BoundedCount  # messages whose dependency may not be called now


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Context of the dashboard template."""

    window: Window
    counted_at: datetime | None
    is_stale: bool
    tiles: Sequence[Tile]
    throughput: Chart
    latency: Chart
    latencies: Sequence[Latency]
    attempts: Sequence[Bar]
    letters: Chart
    deliveries_open: Sequence[Bar]
    deliveries_done: Sequence[Bar]
    queues: Sequence[QueueLine]
    circuits: Sequence[CircuitLine]
    links: Mapping[str, str] = field(default_factory=dict)


def may_see(user: Any) -> bool:
    """Return whether a user may see the dashboard, which counts across all viewing scopes."""
    return bool(user.is_active and user.is_staff and user.has_perms(SEEN_BY))


def dashboard(window_name: str) -> Dashboard:
    """Return everything the dashboard shows; `window_name` is a key of WINDOWS, or the default is taken."""
    window = WINDOWS.get(window_name, WINDOWS[DEFAULT_WINDOW])
    now = timezone.now()
    figures, present = read(window, now), _present()
    counted_at = rollup.brought_up_to_date_at()
    return Dashboard(
        window=window,
        counted_at=counted_at,
        is_stale=counted_at is None or (now - counted_at).total_seconds() > STALE_SECONDS,
        tiles=_tiles(window, figures, present, now),
        throughput=throughput(window, figures),
        latency=latency_lines(window, figures),
        latencies=latencies(window, figures),
        attempts=failed_attempts(window, figures),
        letters=letters(now),
        deliveries_open=_open_deliveries(present),
        deliveries_done=done_deliveries(window, figures),
        queues=present.queues,
        circuits=present.circuits,
        links={
            "attempts": list_address("reviews_attempt", f"outcome:failed age:<{window.name}"),
            "letters": list_address("deadletters_deadletter"),
            "groups": list_address("deadletters_deadlettergroup"),
            "deliveries": list_address("notifications_delivery"),
            "circuits": list_address("criticizer_circuit"),
            "workers": list_address("criticizer_workercluster"),
        },
    )


# -- present state ----------------------------------------------------------------------------


# One statement: each count has a bound and a partial index (batches are few), whose conditions it repeats.
_NOW = f"""
SELECT 'active' AS kind, '' AS name, count(*) AS number, NULL::timestamptz AS oldest FROM (
  SELECT 1 FROM jobs WHERE status IN ('queued', 'in_progress', 'retryable_failed')
   LIMIT {MAX_COUNTED + 1}) j
UNION ALL
SELECT 'letters', '', coalesce(sum(open_count), 0), NULL FROM dead_letter_groups WHERE open_count > 0
UNION ALL
SELECT 'edits', '', count(*), NULL FROM (
  SELECT 1 FROM letter_edits WHERE status = 'requested' LIMIT {MAX_COUNTED + 1}) e
UNION ALL
SELECT 'batches', '', count(*), NULL FROM (
  SELECT 1 FROM replay_batches WHERE status = 'awaiting' LIMIT {MAX_COUNTED + 1}) b
UNION ALL
SELECT 'waiting', '', count(*), NULL FROM (
  SELECT 1 FROM outbox_messages WHERE waiting_for <> '' LIMIT {MAX_COUNTED + 1}) w
UNION ALL
SELECT 'delivery', status, count(*), NULL FROM (
  SELECT status FROM deliveries
   WHERE NOT (status IN ('sent', 'failed', 'superseded', 'cancelled', 'abandoned'))
   LIMIT {MAX_COUNTED + 1}) d GROUP BY 2
UNION ALL
SELECT 'queue', name,
       (SELECT count(*) FROM (SELECT 1 FROM outbox_messages
                               WHERE queue = name AND available_at <= now() LIMIT {MAX_COUNTED + 1}) m),
       (SELECT min(available_at) FROM outbox_messages WHERE queue = name AND available_at <= now())
  FROM unnest(%(queues)s::text[]) q(name)"""  # noqa: S608  constants of this module


def _present() -> Present:
    workers = workers_alive()
    numbers: dict[tuple[str, str], BoundedCount] = {}
    queues = []
    for row in prepared.rows(_NOW, {"queues": list(workers)}):
        kind, name = row["kind"], row["name"]
        number = BoundedCount(int(row["number"])) if kind == "letters" else BoundedCount.up_to(row["number"])
        numbers[kind, name] = number
        if kind == "queue":
            href = list_address("criticizer_outboxmessage", f"queue:{name} is:due")
            queues.append(QueueLine(name, number, row["oldest"], workers[name], href))
    deliveries = {
        status: numbers.get(("delivery", status.value), BoundedCount(0)) for status in OPEN_DELIVERY
    }
    return Present(
        active=numbers["active", ""],
        letters=numbers["letters", ""],
        deliveries=deliveries,
        queues=sorted(queues, key=lambda line: line.name),
        circuits=[
            _circuit_line(name, found.state)
            for name, found in sorted(circuit_breaker.open_circuits().items())
        ],
        edits=numbers["edits", ""],
        batches=numbers["batches", ""],
        waiting=numbers["waiting", ""],
    )


def _circuit_line(name: str, state: CircuitState) -> CircuitLine:
    href = reverse("admin:criticizer_circuit_change", args=[quote(name)])
    return CircuitLine(name, str(state.label), CIRCUIT_LOOKS[state], href)


def _open_deliveries(present: Present) -> list[Bar]:
    rows = []
    for status, number in present.deliveries.items():
        if number:
            look = "s-severe" if status == DeliveryStatus.UNCERTAIN else "s-1"
            href = list_address("notifications_delivery", f"state:{status.value}")
            rows.append((str(status.label), number, look, href))
    return charts.bar_rows(rows, write=str)  # a bounded number says so itself


def _tiles(window: Window, figures: Figures, present: Present, now: datetime) -> list[Tile]:
    ended = sum(figures.total("jobs", label) for label in figures.labels("jobs"))
    good = figures.total("jobs", JobStatus.SUCCEEDED)
    bad = figures.total("jobs", JobStatus.DEAD_LETTERED) + figures.total("jobs", JobStatus.TIMED_OUT)
    waiting, circuits = present.letters, present.circuits
    serving = sum(line.workers for line in present.queues)
    unserved = [line.name for line in present.queues if not line.workers]
    tiles = [
        Tile(
            "Reviews ended",
            charts.whole(ended),
            ended_address(window),
            f"in {window.title}",
        ),
        _rate_tile(window, good, bad),
        Tile("Running", str(present.active), list_address("reviews_reviewjob", "is:active"), "now"),
        _queue_tile(present, now),
        Tile(
            "Open dead letters",
            str(waiting),
            list_address("deadletters_deadlettergroup"),
            "wait for an operator" if waiting else "none",
            "warn" if waiting else "ok",
        ),
        Tile(
            "Workers",
            charts.whole(serving),
            list_address("criticizer_workercluster"),
            f"no worker serves {', '.join(unserved)}" if unserved else "every queue is served",
            "danger" if unserved else "ok",
        ),
        Tile(
            "Circuits not closed",
            charts.whole(len(circuits)),
            list_address("criticizer_circuit"),
            "some calls are held back" if circuits else "every dependency is called",
            "warn" if circuits else "ok",
        ),
    ]
    return [*tiles, *_approvals(present)]


def _approvals(present: Present) -> list[Tile]:
    """Return tiles for what waits for a second person's approval, if anything does."""
    kinds = [
        ("Edits to approve", present.edits, "deadletters_letteredit", "state:requested"),
        ("Batches to approve", present.batches, "deadletters_replaybatch", "state:awaiting"),
    ]
    return [
        Tile(title, str(number), list_address(table, search), "wait for a second person", "warn")
        for title, number, table, search in kinds
        if number
    ]


def _rate_tile(window: Window, good: int, bad: int) -> Tile:
    href = ended_address(window, JobStatus.DEAD_LETTERED, JobStatus.TIMED_OUT)
    if not good + bad:
        return Tile("Success rate", "\N{EN DASH}", href, "nothing ended")
    rate = good * 100 / (good + bad)
    tone = "ok" if rate >= _GOOD_RATE[0] else "warn" if rate >= _GOOD_RATE[1] else "danger"
    # 99.96 is not 100: what failed is not rounded away.
    text = "100" if not bad else f"{min(rate, 99.9):.1f}"
    return Tile("Success rate", f"{text} %", href, f"{charts.whole(bad)} failed", tone)


def _queue_tile(present: Present, now: datetime) -> Tile:
    queues = present.queues
    oldest = min((line.oldest for line in queues if line.oldest), default=None)
    number = sum(line.due for line in queues)
    exact = all(line.due.is_exact for line in queues)
    href = list_address("criticizer_outboxmessage", "is:due")
    text = charts.whole(number) + ("" if exact else "+")
    if oldest is None and present.waiting:
        href = list_address("criticizer_outboxmessage", "is:waiting")
        wait = "waits" if present.waiting == 1 else "wait"
        return Tile("Due in the queue", text, href, f"{present.waiting} {wait} for a dependency", "warn")
    if oldest is None:
        return Tile("Due in the queue", text, href, "nothing waits", "ok")
    waits = max((now - oldest).total_seconds(), 0)
    tone = "danger" if waits >= _LATE_WAIT[1] else "warn" if waits >= _LATE_WAIT[0] else "ok"
    return Tile("Due in the queue", text, href, f"the oldest for {charts.seconds(waits)}", tone)
