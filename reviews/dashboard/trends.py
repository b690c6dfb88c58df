"""Charts of the dashboard, drawn from the counts of `rollup`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Sum
from django.urls import reverse

from criticizer.admin_site import charts
from criticizer.admin_site.charts import Bar, Chart, Series
from criticizer.db import prepared
from deadletters.models import DeadLetterGroupDay
from notifications.states import UNSENT_DELIVERY, DeliveryStatus
from reviews.dashboard import rollup
from reviews.states import STAGE_ORDER, AttemptOutcome, JobStatus

LETTER_DAYS = 14
MOST_CLASSES = 8
REVIEW = "review"  # the whole review, beside its stages
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PALETTE = ("s-1", "s-2", "s-3", "s-4")
OPEN_DELIVERY = (*UNSENT_DELIVERY, DeliveryStatus.UNCERTAIN)


@dataclass(frozen=True, slots=True)
class Window:
    """A period up to now, and the slots of its charts."""

    name: str
    title: str
    seconds: int
    slot_seconds: int
    source: int  # length of the rollup's intervals, in seconds
    clock: str


WINDOWS = {
    window.name: window
    for window in (
        Window("1h", "the last hour", 3600, 300, rollup.FINE, "%H:%M"),
        Window("24h", "the last 24 hours", 86_400, 1800, rollup.FINE, "%H:%M"),
        Window("7d", "the last 7 days", 604_800, 10_800, rollup.COARSE, "%a %H:%M"),
    )
}
DEFAULT_WINDOW = "24h"


@dataclass(frozen=True, slots=True)
class Figures:
    """The rollup's counts of a window: by slot and label, and their sums."""

    slots: Sequence[datetime]
    by_slot: Mapping[str, Mapping[str, Sequence[int]]]  # kind -> label -> a number for each slot

    def of(self, kind: str, label: str) -> Sequence[int]:
        return self.by_slot[kind].get(label) or [0] * len(self.slots)

    def total(self, kind: str, label: str) -> int:
        return sum(self.of(kind, label))

    def labels(self, kind: str) -> Iterable[str]:
        return self.by_slot[kind]


@dataclass(frozen=True, slots=True)
class Latency:
    """Times of a stage. Bars are percent of the longest; `href` lists what was timed."""

    name: str
    href: str
    p50: Bar
    p95: Bar


def list_address(table: str, search: str = "", **parameters: str) -> str:
    address = reverse(f"admin:{table}_changelist")
    query = {**({"q": search} if search else {}), **parameters}
    return f"{address}?{urlencode(query)}" if query else address


def ended_address(window: Window, *statuses: JobStatus) -> str:
    """Return the address of the jobs that ended in a window, in one of `statuses` or in any."""
    state = f"state:{','.join(statuses)} " if statuses else ""
    return list_address("reviews_reviewjob", f"{state}finished:<{window.name}", by="finished")


def timed_address(window: Window, name: str) -> str:
    """Return the address of what was timed in a window: attempts of a stage, or whole reviews."""
    if name == REVIEW:
        return ended_address(window, JobStatus.SUCCEEDED)
    search = f"stage:{name} outcome:{AttemptOutcome.SUCCEEDED} age:<{window.name}"
    return list_address("reviews_attempt", search)


def read(window: Window, now: datetime) -> Figures:
    """Read the counts of a window; the last slot contains `now`."""
    length = timedelta(seconds=window.slot_seconds)
    last = _EPOCH + timedelta(seconds=now.timestamp() // window.slot_seconds * window.slot_seconds)
    slots = [last - back * length for back in reversed(range(window.seconds // window.slot_seconds))]
    found = prepared.rows(
        """
        SELECT kind, label, extract(epoch FROM started_at - %(start)s)::bigint / %(slot)s AS slot,
               sum(number)::bigint AS number
          FROM rollups
         WHERE seconds = %(source)s AND started_at >= %(start)s AND started_at < %(end)s
         GROUP BY 1, 2, 3""",
        {"start": slots[0], "end": last + length, "slot": window.slot_seconds, "source": window.source},
    )
    by_slot: defaultdict[str, dict[str, list[int]]] = defaultdict(dict)
    for row in found:
        numbers = by_slot[row["kind"]].setdefault(row["label"], [0] * len(slots))
        numbers[int(row["slot"])] = row["number"]
    return Figures(slots, by_slot)


def _names(window: Window, figures: Figures) -> list[str]:
    return [f"{slot:{window.clock}}" for slot in figures.slots]


def throughput(window: Window, figures: Figures) -> Chart:
    parts: Sequence[tuple[str, str, tuple[JobStatus, ...]]] = (
        ("succeeded", "s-ok", (JobStatus.SUCCEEDED,)),
        ("dead-lettered", "s-danger", (JobStatus.DEAD_LETTERED,)),
        ("timed out", "s-severe", (JobStatus.TIMED_OUT,)),
        ("cancelled or superseded", "s-muted", (JobStatus.CANCELLED, JobStatus.SUPERSEDED)),
    )
    series = [
        Series(
            name,
            look,
            [sum(numbers) for numbers in zip(*(figures.of("jobs", s) for s in statuses), strict=True)],
            ended_address(window, *statuses),
        )
        for name, look, statuses in parts
    ]
    return charts.stacked_bars("throughput", "Reviews that ended", _names(window, figures), series)


def _steps(figures: Figures) -> dict[str, dict[int, Sequence[int]]]:
    """Return the counts of each stage and of whole reviews, by step and slot."""
    by_name: dict[str, dict[int, Sequence[int]]] = {name: {} for name in (*STAGE_ORDER, REVIEW)}
    for label in figures.labels("latency"):
        name, _, step = label.rpartition(":")
        if name in by_name:
            by_name[name][int(step)] = figures.of("latency", label)
    return by_name


def _title(name: str) -> str:
    return "whole review, waits included" if name == REVIEW else name


def latency_lines(window: Window, figures: Figures) -> Chart:
    series = [
        Series(
            _title(name),
            look,
            [
                rollup.percentile_of({step: numbers[slot] for step, numbers in steps.items()}, 95)
                for slot in range(len(figures.slots))
            ],
            timed_address(window, name),
        )
        for look, (name, steps) in zip(_PALETTE, _steps(figures).items(), strict=True)
    ]
    return charts.lines(
        "latency",
        "Time of stages and reviews (95th percentile)",
        _names(window, figures),
        series,
        charts.seconds,
        "95th percentile (p95) of the time of successful attempts, by stage, and of whole reviews with "
        "all that they waited for, such as an operator",
    )


def latencies(window: Window, figures: Figures) -> list[Latency]:
    known = []
    for name, steps in _steps(figures).items():
        totals = {step: sum(numbers) for step, numbers in steps.items()}
        p50, p95 = rollup.percentile_of(totals, 50), rollup.percentile_of(totals, 95)
        if p50 is not None and p95 is not None:
            known.append((name, p50, p95))
    longest = max((p95 for *_, p95 in known), default=1.0)
    return [
        Latency(_title(name), timed_address(window, name), _time_bar(p50, longest), _time_bar(p95, longest))
        for name, p50, p95 in known
    ]


def _time_bar(value: float, longest: float) -> Bar:
    return Bar("", value, charts.seconds(value), round(value / longest * 100, 1), "s-1")


def failed_attempts(window: Window, figures: Figures) -> list[Bar]:
    by_class: defaultdict[str, int] = defaultdict(int)
    for label in figures.labels("attempts"):
        _, _, error_class = label.split(":", 2)
        if error_class:
            by_class[error_class] += figures.total("attempts", label)
    most = sorted(by_class.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_CLASSES]
    return charts.bar_rows(
        [
            (name, number, "s-danger", list_address("reviews_attempt", f"error:{name} age:<{window.name}"))
            for name, number in most
        ]
    )


def letters(now: datetime) -> Chart:
    days = [now.date() - timedelta(days=back) for back in reversed(range(LETTER_DAYS))]
    counted = DeadLetterGroupDay.objects.filter(day__gte=days[0]).values_list("group__error_class", "day")
    by_class: defaultdict[str, dict[Any, int]] = defaultdict(dict)
    for error_class, day, number in counted.annotate(number=Sum("count")):
        by_class[error_class][day] = number
    ranked = sorted(by_class, key=lambda name: (-sum(by_class[name].values()), name))
    series = [
        Series(
            name,
            look,
            [by_class[name].get(day, 0) for day in days],
            list_address("deadletters_deadletter", f"error:{name} age:<{LETTER_DAYS}d", by="all"),
        )
        for name, look in zip(ranked, _PALETTE, strict=False)
    ]
    others = ranked[len(_PALETTE) :]
    if others:
        rest = [sum(by_class[name].get(day, 0) for name in others) for day in days]
        everything = list_address("deadletters_deadletter", f"age:<{LETTER_DAYS}d", by="all")
        series.append(Series("other classes", "s-muted", rest, everything))
    return charts.stacked_bars(
        "letters", "Dead letters by day and class", [f"{day:%d %b}" for day in days], series
    )


def done_deliveries(window: Window, figures: Figures) -> list[Bar]:
    looks = {"sent": "s-ok", "failed": "s-danger"}
    rows = []
    for status in DeliveryStatus:
        number = figures.total("deliveries", status.value)
        if number and status not in OPEN_DELIVERY:
            href = list_address("notifications_delivery", f"state:{status.value} age:<{window.name}")
            rows.append((str(status.label), number, looks.get(status.value, "s-muted"), href))
    return charts.bar_rows(rows)
