"""The admin's dashboard: the present state, and the trends of a time window.

Trends come from `rollup`, the present from bounded counts on partial indexes, so the page costs
the same for a thousand jobs and for a million. Every number links to its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone

from criticizer.admin_site import charts
from criticizer.admin_site.charts import Bar
from criticizer.db import prepared
from criticizer.db.query_limits import MAX_COUNTED, BoundedCount
from criticizer.observability.health import workers_alive
from criticizer.resilience.circuit_breaker import open_circuits
from criticizer.resilience.states import CIRCUIT_LOOKS, CircuitState
from notifications.states import DeliveryStatus
from reviews import token_ledger
from reviews.dashboard import rollup
from reviews.dashboard.trends import (
    DEFAULT_WINDOW,
    OPEN_DELIVERY,
    WINDOWS,
    Figures,
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
from reviews.reviewers.model import TokenLimit
from reviews.states import JobStatus

_KEYS_SHOWN = 8
_TASKS = "reviews_agenttask"
_KEYS = f"""
SELECT name, last_used_at AS seen FROM api_keys WHERE role = 'agent' AND revoked_at IS NULL
 ORDER BY last_used_at DESC NULLS LAST, id LIMIT {_KEYS_SHOWN + 1}"""  # noqa: S608  constants of this module
# One statement. A task never outlives its review, and submissions are ordered by id, so the newest rows cover
# the last day.
_COUNTS = f"""
SELECT CASE WHEN status = 'pending' THEN 'open' ELSE 'claimed' END AS name, count(*) AS number FROM (
  SELECT status FROM agent_tasks WHERE status IN ('pending', 'in_progress') LIMIT {MAX_COUNTED + 1}) t
 GROUP BY 1
UNION ALL
SELECT 'expired', count(*) FROM (
  SELECT status FROM agent_tasks WHERE created_at > now() - interval '1 day'
   ORDER BY created_at DESC LIMIT {MAX_COUNTED + 1}) t WHERE status = 'expired'
UNION ALL
SELECT CASE WHEN verdict = 'expired' THEN 'late' ELSE 'refused' END, count(*) FROM (
  SELECT verdict, created_at FROM agent_submissions ORDER BY id DESC LIMIT {MAX_COUNTED + 1}) s
 WHERE created_at > now() - interval '1 day'
   AND verdict NOT IN ('accepted', 'accepted_as_failed', 'duplicate')
 GROUP BY 1"""  # noqa: S608  constants of this module
SEEN_BY = ("reviews.view_all_files", "deadletters.view_deadletter", "criticizer.view_circuit")
STALE_SECONDS = 180
REFRESH_SECONDS = 15  # of an open page
_LATE_WAIT = (60, 300)  # seconds the oldest due message waits: warning, danger
_USED_UP = (80, 95)  # percent of a limit of tokens: warning, danger; a call's estimate may not fit any more
_GOOD_RATE = (95, 80)  # percent: good, warning
Counts = dict[tuple[str, str], BoundedCount]  # by kind and name


@dataclass(frozen=True, slots=True)
class AgentPanel:
    """Agents of the customer, and their work.

    `keys` have `name` and `seen`, None: it never asked; `more`: there are further keys. `counts` has (name,
    number).
    """

    keys: Sequence[Mapping[str, Any]]
    more: bool
    counts: Sequence[tuple[str, BoundedCount]]
    href: str


def agent_panel() -> AgentPanel | None:
    """Return the panel; None for an installation without keys of agents."""
    keys = prepared.rows(_KEYS)
    if not keys:
        return None
    found = {row["name"]: row["number"] for row in prepared.rows(_COUNTS)}
    counts = [
        (title, BoundedCount.up_to(found.get(name, 0)))
        for name, title in (
            ("open", "Open"), ("claimed", "Claimed"), ("expired", "Expired in a day"),
            ("late", "Late results in a day"), ("refused", "Other refused results in a day"),
        )
    ]  # fmt: skip
    return AgentPanel(keys[:_KEYS_SHOWN], len(keys) > _KEYS_SHOWN, counts, list_address(_TASKS))


@dataclass(frozen=True, slots=True)
class Tile:
    """One number. `tone` is ok, warn or danger; `note` is its text."""

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
class TokenLine:
    """Tokens of model calls beside their limit.

    `look` is the CSS state, "" while the limit is not near.
    """

    name: str
    href: str
    used: str
    limit: str
    share: str
    look: str


@dataclass(frozen=True, slots=True)
class CircuitLine:
    """A circuit that is not closed: its state label and its CSS state."""

    name: str
    state: str
    look: str
    href: str


def may_see(user: Any) -> bool:
    """Return whether a user may see the dashboard, which counts across all viewing scopes."""
    return bool(user.is_active and user.is_staff and user.has_perms(SEEN_BY))


def dashboard(window_name: str) -> dict[str, Any]:
    """Return the context of the dashboard.

    `window_name` is a key of WINDOWS; for any other one the default is taken.
    """
    window = WINDOWS.get(window_name, WINDOWS[DEFAULT_WINDOW])
    now = timezone.now()
    figures, counted_at = read(window, now), rollup.brought_up_to_date_at()
    counts, queues = _present()
    circuits = [_circuit_line(name, row.state) for name, row in sorted(open_circuits().items())]
    return {
        "window": window,
        "counted_at": counted_at,
        "is_stale": counted_at is None or (now - counted_at).total_seconds() > STALE_SECONDS,
        "tiles": [
            *_review_tiles(window, figures, counts),
            _queue_tile(queues, counts["waiting", ""], now),
            *_trouble_tiles(counts, queues, circuits),
        ],
        "throughput": throughput(window, figures),
        "latency": latency_lines(window, figures),
        "latencies": latencies(window, figures),
        "attempts": failed_attempts(window, figures),
        "letters": letters(now),
        "deliveries_open": _open_deliveries(counts),
        "deliveries_done": done_deliveries(window, figures),
        "queues": queues,
        "circuits": circuits,
        "agents": agent_panel(),
        "tokens": [_token_line(row) for row in token_ledger.largest_uses()],
        "links": {
            "attempts": list_address("reviews_attempt", f"outcome:failed age:<{window.name}"),
            "deliveries": list_address("notifications_delivery"),
            "circuits": list_address("criticizer_circuit"),
            "workers": list_address("criticizer_workercluster"),
        },
    }


# -- present state ----------------------------------------------------------------------------


# One statement. Each count has a bound, and a partial index whose condition it repeats.
_NOW = f"""
SELECT 'active' AS kind, '' AS name, count(*) AS number, NULL::timestamptz AS oldest FROM (
  SELECT 1 FROM jobs WHERE finished_at IS NULL LIMIT {MAX_COUNTED + 1}) j
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


def _present() -> tuple[Counts, list[QueueLine]]:
    """Return the counts of now by (kind, name), and the queues."""
    workers = workers_alive()
    counts: Counts = {}
    queues = []
    for row in prepared.rows(_NOW, {"queues": list(workers)}):
        kind, name = row["kind"], row["name"]
        number = BoundedCount(int(row["number"])) if kind == "letters" else BoundedCount.up_to(row["number"])
        counts[kind, name] = number
        if kind == "queue":
            href = list_address("criticizer_outboxmessage", f"queue:{name} is:due")
            queues.append(QueueLine(name, number, row["oldest"], workers[name], href))
    return counts, sorted(queues, key=lambda line: line.name)


def _circuit_line(name: str, state: CircuitState) -> CircuitLine:
    href = reverse("admin:criticizer_circuit_change", args=[quote(name)])
    return CircuitLine(name, str(state.label), CIRCUIT_LOOKS[state], href)


def _token_line(row: dict[str, Any]) -> TokenLine:
    percent = int(row["tokens"]) * 100 // row["limit"]
    name, search = {
        TokenLimit.DAY: ("All of today", "age:<1d"),
        TokenLimit.SOURCE: (f"{row['name']} today", f'source:"{row["name"]}" age:<1d'),
        TokenLimit.REVIEW: (f"Largest review of today, {row['name']}", f'cl:"{row["name"]}"'),
        TokenLimit.CHANGE: (f"Largest changelist, {row['name']}", f'cl:"{row["name"]}"'),
    }[TokenLimit(row["kind"])]
    look = "open" if percent >= _USED_UP[1] else "partial" if percent >= _USED_UP[0] else ""
    href = list_address("reviews_ledgerentry", search)
    used, limit = charts.whole(int(row["tokens"])), charts.whole(row["limit"])
    return TokenLine(name, href, used, limit, f"{percent}%", look)


def _open_deliveries(counts: Counts) -> list[Bar]:
    rows = []
    for status in OPEN_DELIVERY:
        if number := counts.get(("delivery", status.value)):
            look = "s-severe" if status == DeliveryStatus.UNCERTAIN else "s-1"
            href = list_address("notifications_delivery", f"state:{status.value}")
            rows.append((str(status.label), number, look, href))
    return charts.bar_rows(rows, write=str)  # a bounded count is written as such


def _review_tiles(window: Window, figures: Figures, counts: Counts) -> list[Tile]:
    ended = sum(figures.total("jobs", label) for label in figures.labels("jobs"))
    good = figures.total("jobs", JobStatus.SUCCEEDED)
    bad = figures.total("jobs", JobStatus.DEAD_LETTERED) + figures.total("jobs", JobStatus.TIMED_OUT)
    active = list_address("reviews_reviewjob", "is:active")
    return [
        Tile(
            "Reviews ended",
            charts.whole(ended),
            ended_address(window),
            f"in {window.title}, as of the last count",
        ),
        _rate_tile(window, good, bad),
        Tile("Running", str(counts["active", ""]), active, "now"),
    ]


def _rate_tile(window: Window, good: int, bad: int) -> Tile:
    href = ended_address(window, JobStatus.DEAD_LETTERED, JobStatus.TIMED_OUT)
    if not good + bad:
        return Tile("Success rate", "\N{EN DASH}", href, "none had ended at the last count")
    rate = good * 100 / (good + bad)
    tone = "ok" if rate >= _GOOD_RATE[0] else "warn" if rate >= _GOOD_RATE[1] else "danger"
    # 99.96 is not rounded to 100: there were failures.
    text = "100" if not bad else f"{min(rate, 99.9):.1f}"
    return Tile("Success rate", f"{text}%", href, f"{charts.whole(bad)} failed at the last count", tone)


def _queue_tile(queues: Sequence[QueueLine], waiting: BoundedCount, now: datetime) -> Tile:
    """Return the tile of due messages.

    `waiting` counts those whose dependency may not be called now.
    """
    title = "Due in the queue"
    oldest = min((line.oldest for line in queues if line.oldest), default=None)
    number = charts.whole(sum(line.due for line in queues))
    text = number if all(line.due.is_exact for line in queues) else f"{number}+"
    if oldest is None and waiting:
        href = list_address("criticizer_outboxmessage", "is:waiting")
        wait = "waits" if waiting == 1 else "wait"
        return Tile(title, text, href, f"{waiting} {wait} for a dependency", "warn")
    href = list_address("criticizer_outboxmessage", "is:due")
    if oldest is None:
        return Tile(title, text, href, "nothing waits", "ok")
    waits = max((now - oldest).total_seconds(), 0)
    tone = "danger" if waits >= _LATE_WAIT[1] else "warn" if waits >= _LATE_WAIT[0] else "ok"
    return Tile(title, text, href, f"the oldest for {charts.seconds(waits)}", tone)


def _trouble_tiles(
    counts: Counts, queues: Sequence[QueueLine], circuits: Sequence[CircuitLine]
) -> list[Tile]:
    """Return the tiles of dead letters, workers and circuits, and of approvals that are due."""
    letters = counts["letters", ""]
    groups = list_address("deadletters_deadlettergroup")
    workers = charts.whole(sum(line.workers for line in queues))
    unserved = ", ".join(line.name for line in queues if not line.workers)
    clusters, breakers = list_address("criticizer_workercluster"), list_address("criticizer_circuit")
    tiles = [
        Tile("Open dead letters", str(letters), groups, "wait for an operator", "warn")
        if letters
        else Tile("Open dead letters", "0", groups, "none", "ok"),
        Tile("Workers", workers, clusters, f"no worker serves {unserved}", "danger")
        if unserved
        else Tile("Workers", workers, clusters, "every queue is served", "ok"),
        Tile("Dependencies", f"{len(circuits)} stopped", breakers, "calls to them are held back", "warn")
        if circuits
        else Tile("Dependencies", "all", breakers, "are reachable", "ok"),
    ]
    for title, kind, table, search in (
        ("Edits to approve", "edits", "deadletters_letteredit", "state:requested"),
        ("Batches to approve", "batches", "deadletters_replaybatch", "state:awaiting"),
    ):
        if number := counts[kind, ""]:
            href = list_address(table, search)
            tiles.append(Tile(title, str(number), href, "wait for a second person", "warn"))
    return tiles
