"""The page Quality: figures of findings, verdicts and tokens over time (guarantee G334).

They say how many findings there are, how useful, how soon, where, and for how many tokens. Each number counts
the rows that its link leads to: those of the lists, inside the reader's viewing scope.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import groupby, islice
from time import monotonic
from typing import Any
from urllib.parse import urlencode

import structlog
from django import forms
from django.db.models import Aggregate, BigIntegerField, Count, F, FloatField, Q, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, Extract, TruncWeek
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from criticizer.admin_site import charts
from criticizer.admin_site.charts import Chart, Series
from criticizer.db.query_limits import StatementTimeout, statement_timeout
from reviews import acceptance
from reviews.acceptance import Rate
from reviews.dashboard.overview import Tile
from reviews.filters import FindingFilter, of_reviews, subject
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.reviewers.base import FindingSeverity
from reviews.roles import DISMISS_WIDELY
from reviews.states import VERDICTS, FindingEventKind, JobStatus
from reviews.verdicts import has_verdict
from reviews.verdicts import of_findings as verdict_columns
from reviews.web.finding_list import matching_findings
from reviews.web.reader_page import reader_page

MILLISECONDS = 5_000  # of all figures together; slower ones are cancelled, and the page says so
MOST = 10  # categories and paths
_WEEKS = (("4", "4 weeks"), ("12", "12 weeks"), ("26", "26 weeks"))
_LOOKS = {"critical": "s-danger", "high": "s-severe", "medium": "s-warn", "low": "s-muted"}
_NONE = "\N{EN DASH}"
log = structlog.get_logger(__name__)


class QualityFilter(FindingFilter):
    """Filter of the figures, by names that the lists know too, and the weeks up to now."""

    text = verdict = since = until = None  # type: ignore[assignment]
    weeks = forms.ChoiceField(choices=_WEEKS, required=False, initial="12", label="Time")
    field_order = ("weeks", "path", "author")
    IN_SIGHT = ("weeks", "path", "author")


class _Percentile(Aggregate):
    template = "percentile_cont(%(share)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


@dataclass(frozen=True, slots=True)
class Number:
    """A number with the list of the rows that it counts; of none there is no list."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table: a category or a path, and its numbers."""

    name: str
    numbers: Sequence[Number]


@dataclass(frozen=True, slots=True)
class Quality:
    """All figures; `is_cancelled`: they took too long."""

    tiles: Sequence[Tile] = ()
    charts: Sequence[Chart] = ()
    categories: Sequence[Line] = ()
    paths: Sequence[Line] = ()
    acceptance: Sequence[Rate] = ()
    is_cancelled: bool = False
    verdicts: Sequence[str] = field(default_factory=lambda: [str(kind.label) for kind in VERDICTS])


@reader_page
def quality(request: HttpRequest) -> HttpResponse:
    """Show the figures of the last weeks.

    They are narrowed by path, file, author, severity, category and source.
    """
    data = request.GET if request.GET.get("weeks") else {**request.GET.dict(), "weeks": "12"}
    form = QualityFilter(data, label_suffix="")
    wanted = form.wanted()
    context = {
        "form": form,
        "may_fold": request.user.has_perm(DISMISS_WIDELY) and is_of_tree(wanted),
        "fold_query": urlencode(wanted),
        "is_filtered": bool(wanted.keys() - {"weeks"}) or not form.is_valid(),
        "subject": subject(wanted),
        "quality": figures(wanted, request.user, scope_of(request.user)),
    }
    return render(request, "reviews/quality.html", context)


def is_of_tree(wanted: Mapping[str, Any]) -> bool:
    """Return whether the figures are about all findings of a tree, or everywhere."""
    path = wanted.get("path", "")
    return wanted.keys() <= {"weeks", "path"} and (not path or bool(acceptance.pattern_of(path)))


def figures(wanted: Mapping[str, Any], user: Any, scope: Scope) -> Quality:
    """Return the figures of the weeks up to now that a reader may see."""
    try:
        with statement_timeout(MILLISECONDS):
            return Figures(narrowed(wanted), user, scope, weeks_of(wanted)).all()
    except StatementTimeout:
        log.warning("quality_took_too_long", filters=sorted(wanted))
        return Quality(is_cancelled=True)


def weeks_of(wanted: Mapping[str, Any]) -> list[date]:
    today = timezone.now().date()
    monday = today - timedelta(days=today.weekday())
    return [monday - timedelta(weeks=back) for back in reversed(range(int(wanted.get("weeks", "12"))))]


def narrowed(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if name != "weeks"}


class Figures:
    def __init__(self, wanted: Mapping[str, Any], user: Any, scope: Scope, weeks: Sequence[date]) -> None:
        self._until = monotonic() + MILLISECONDS / 1000
        self._wanted = {**wanted, "since": weeks[0], "until": weeks[-1] + timedelta(days=6)}
        self._weeks, self._scope = weeks, scope
        self.findings: Any = matching_findings(self._wanted, user, scope).annotate(
            week=TruncWeek("job__created_at")
        )
        jobs = scope.jobs().filter(of_reviews(self._wanted, user, scope), status=JobStatus.SUCCEEDED)
        self._jobs: Any = jobs.annotate(week=TruncWeek("created_at"))

    def all(self) -> Quality:
        for count in (self._count, self._count_verdicts):
            with self._time_left():
                count()
        with self._time_left():
            ended = self._jobs.aggregate(**_OF_JOBS)
        with self._time_left():
            of_jobs = list(self._of_jobs())
        with self._time_left():
            paths = self._paths()
        rates = self.rates()
        return Quality(
            self._tiles(ended),
            [self._severities(), self._by_category(), *of_jobs],
            [self._category(name) for name, _ in self._named.most_common(MOST)],
            paths,
            [rate for _, of in groupby(rates, lambda rate: rate.by) for rate in islice(of, MOST)],
        )

    def rates(self) -> list[Rate]:
        return acceptance.rates(self.findings, self._wanted.get("path", ""), self._scope, self._time_left)

    def _time_left(self) -> AbstractContextManager[None]:
        """Return the limit of one statement: what those before it left of the time of all."""
        left = self._until - monotonic()
        if left <= 0:
            raise StatementTimeout
        return statement_timeout(max(1, int(left * 1000)))

    def _count(self) -> None:
        """Count findings once; the tables and charts are sums of these, equal ones by name."""
        self._found: Counter[tuple[date, str, str]] = Counter()  # by week, severity, category
        self._named: Counter[str] = Counter()  # by category
        counted = self.findings.order_by("category").values_list("week", "severity", "category")
        for week, severity, category, number in counted.annotate(n=Count("pk")):
            self._found[week.date(), severity, category] = number
            self._named[category] += number

    def _count_verdicts(self) -> None:
        self._judged: Counter[tuple[str, str]] = Counter()  # by category and verdict
        with_verdict = self.findings.filter(has_verdict()).annotate(said=verdict_columns()["verdict"])
        for category, kind, number in (
            with_verdict.order_by().values_list("category", "said").annotate(n=Count("pk"))
        ):
            self._judged[category, kind] = number

    def _judged_as(self, kind: str | None = None) -> int:
        return sum(n for (_, verdict), n in self._judged.items() if kind in (None, verdict))

    def _link(self, page: str, week: date | None = None, /, **more: str) -> str:
        dates = {} if week is None else {"since": week, "until": week + timedelta(days=6)}
        found = {**self._wanted, **dates, **more}
        texts = {name: "on" if value is True else str(value) for name, value in found.items()}
        return f"{reverse(page)}?{urlencode(texts)}"

    def _rows(self, week: date | None = None, /, **more: str) -> str:
        return self._link("reviews:findings", week, **more)

    def _reviews(self, week: date | None = None) -> str:
        return self._link("reviews:list", week, status=JobStatus.SUCCEEDED, every="on")

    def _tiles(self, ended: Mapping[str, Any]) -> list[Tile]:
        total = self._judged_as()
        shares = [
            Tile(
                str(FindingEventKind(kind).label),
                f"{self._judged_as(kind) / total:.0%}" if total else _NONE,
                self._rows(verdict=kind),
                f"{self._judged_as(kind)} of {total} judged",
            )
            for kind in VERDICTS
        ]
        median, tokens, reviews = ended["median"], ended["tokens"], ended["n"]
        return [
            Tile("Findings", charts.whole(self._found.total()), self._rows(), f"{total} judged"),
            *shares,
            Tile(
                "Time to result",
                _NONE if median is None else charts.seconds(median),
                self._reviews(),
                f"median of {reviews} review{'' if reviews == 1 else 's'}",
            ),
            Tile(
                "Tokens a review",
                charts.whole(tokens / reviews) if reviews else _NONE,
                self._reviews(),
                f"{charts.whole(tokens)} in all",
            ),
        ]

    def _severities(self) -> Chart:
        series = [
            self._weekly(severity.value, _LOOKS[severity], "severity")
            for severity in FindingSeverity
            if self._wanted.get("severity") in (None, severity)
        ]
        return charts.stacked_bars("severities", "Findings a week by severity", self._names, series)

    def _by_category(self) -> Chart:
        looks = zip(("s-1", "s-2", "s-3", "s-4"), self._named.most_common(4), strict=False)
        series = [self._weekly(name, look, "category") for look, (name, _) in looks]
        drawn = {row.name for row in series}
        if others := self._named.keys() - drawn:
            rest = [
                sum(n for (at, _, name), n in self._found.items() if at == week and name in others)
                for week in self._weeks
            ]
            series.append(Series("other categories", "s-muted", rest))  # no filter of the lists means them
        return charts.stacked_bars("by-category", "Findings a week by category", self._names, series)

    def _weekly(self, value: str, look: str, by: str) -> Series:
        """Return the findings a week of a severity or a category."""
        numbers = [
            sum(
                n
                for (at, *names), n in self._found.items()
                if at == week and value == names[by == "category"]
            )
            for week in self._weeks
        ]
        links = [self._rows(week, **{by: value}) for week in self._weeks]
        return Series(value, look, numbers, self._rows(**{by: value}), links)

    @property
    def _names(self) -> list[str]:
        return [f"{week:%d %b}" for week in self._weeks]

    def _of_jobs(self) -> Iterable[Chart]:
        by_week: dict[date, Mapping[str, Any]] = defaultdict(dict)
        for row in self._jobs.order_by().values("week").annotate(**_OF_JOBS):
            by_week[row["week"].date()] = row
        links = [self._reviews(week) for week in self._weeks]
        times = [
            Series(name, look, [by_week[week].get(key) for week in self._weeks], self._reviews(), links)
            for name, look, key in (("median", "s-1", "median"), ("95th percentile", "s-2", "p95"))
        ]
        sentence = "Time from the request to the result of reviews that succeeded, by week"
        yield charts.lines("times", "Time to result", self._names, times, charts.seconds, sentence)
        tokens = [
            by_week[week]["tokens"] / by_week[week]["n"] if by_week[week] else 0 for week in self._weeks
        ]
        series = [Series("tokens a review", "s-4", tokens, self._reviews(), links)]
        note = "Tokens that the models counted, sent and received, for each review, by week"
        yield charts.stacked_bars("tokens", "Cost: tokens a review", self._names, series, note)

    def _category(self, name: str) -> Line:
        judged = sum(self._judged[name, kind] for kind in VERDICTS)
        shares = [
            _number(self._judged[name, kind], self._rows(category=name, verdict=kind), judged)
            for kind in VERDICTS
        ]
        return Line(name, [_number(self._named[name], self._rows(category=name)), *shares])

    def _paths(self) -> list[Line]:
        counts = {severity.value: Count("pk", filter=Q(severity=severity)) for severity in FindingSeverity}
        counted = self.findings.filter(file__startswith="//").order_by().values("file").annotate(**counts)
        worst = counted.order_by("-critical", "-high", "-medium", "-low", "file")[:MOST]
        return [
            Line(
                row["file"],
                [_number(row[name], self._rows(file=row["file"], severity=name)) for name in counts],
            )
            for row in worst
        ]


def _number(count: int, href: str, of: int = 0) -> Number:
    """Return a count, with its share of a sum where one is given."""
    return Number(f"{charts.whole(count)}{f' ({count / of:.0%})' if of else ''}", href if count else "")


def _tokens(name: str) -> Coalesce:
    return Coalesce(Cast(KeyTextTransform(name, "usage"), BigIntegerField()), 0)


_SECONDS = Extract(F("finished_at") - F("created_at"), "epoch")
_OF_JOBS = {
    "n": Count("pk"),
    "median": _Percentile(_SECONDS, share="0.5"),
    "p95": _Percentile(_SECONDS, share="0.95"),
    "tokens": Coalesce(Sum(_tokens("input_tokens") + _tokens("output_tokens")), 0),
}
