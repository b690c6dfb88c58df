"""The findings list: a search over the findings of all reviews, each at its newest version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.db.models import Count, Max, Min, Q, QuerySet
from django.db.models.functions import Coalesce

from criticizer.db.id_lists import is_one_of
from criticizer.db.query_limits import NO_PARALLEL_WORKERS, StatementTimeout, statement_timeout
from reviews.filters import of_changes, of_findings
from reviews.models import FindingEvent, FindingRow, ReviewJob
from reviews.recipients.viewing_scopes import Scope
from reviews.search import AT_NEWEST_VERSION, ids_through_index, without_index, words_of_findings
from reviews.verdicts import OPEN_VERDICTS, has_verdict_in_words, verdicts_of
from reviews.web.review_list import MAX_WORDS, PAGE_MILLISECONDS, PAGE_SIZE, Cursor

log = structlog.get_logger(__name__)

_NEWEST = ("-job__created_at", "-job__id", "-pk")
_CURSOR = re.compile(r"(?P<job>[0-9]{1,17}-[0-9]{1,18})-(?P<finding>[0-9]{1,18})", re.ASCII)
_STEP, _MOST_READ = 200, 6_000  # newest findings that are read at once at least, and in all
_NEWEST_JOBS = 12_000  # newest reviews whose findings are looked up before all are
_NEWEST_JUDGED = (3_000, _NEWEST_JOBS)  # the same, for a verdict: few at first, which are read at once
_MOST_JUDGED = 30_000  # verdicts; of more, the newest findings have enough


@dataclass(frozen=True, slots=True)
class FindingPage:
    """One page, newest review first.

    `older` is the cursor that the next page begins after, or None.
    """

    rows: Sequence[FindingRow] = ()
    older: str | None = None
    is_first: bool = True
    is_cancelled: bool = False  # the query took too long


def matching_findings(wanted: Mapping[str, Any], user: Any, scope: Scope) -> QuerySet[FindingRow]:
    """Return all findings that the list would show, page by page."""
    return FindingRow.objects.filter(
        of_changes(wanted, user, "job__"), _matching(wanted, scope), AT_NEWEST_VERSION
    )


def finding_page(wanted: Mapping[str, Any], user: Any, scope: Scope, after: str = "") -> FindingPage:
    """Return a page of the findings that match the filters and that the reader may see."""
    in_order = FindingRow.objects.filter(of_changes(wanted, user, "job__")).order_by(*_NEWEST)
    days = {name: wanted[name] for name in ("since", "until") if name in wanted}
    jobs = ReviewJob.objects.filter(of_changes(days, user)).order_by("-created_at", "-id")
    cursor = _CURSOR.fullmatch(after)
    start = Cursor.parse(cursor["job"]) if cursor else None
    if cursor and start:
        in_order = in_order.filter(_older(start, int(cursor["finding"])))
        jobs = jobs.filter(created_at__lte=start.created_at)
    try:
        with statement_timeout(PAGE_MILLISECONDS, NO_PARALLEL_WORKERS):
            if wanted.get("verdict", "none") in OPEN_VERDICTS:
                found = _newest(in_order, jobs, _matching(wanted, scope), PAGE_SIZE + 1)
            else:
                found = _newest_judged(in_order, jobs, wanted, scope, PAGE_SIZE + 1)
            shown = found[:PAGE_SIZE]
            verdicts = verdicts_of((row.identity for row in shown), scope)
    except StatementTimeout:
        log.warning("findings_list_took_too_long", filters=sorted(wanted))
        return FindingPage(is_first=False, is_cancelled=True)
    for row in shown:
        row.verdict = verdicts.get(row.identity)  # type: ignore[attr-defined]
    older = f"{Cursor.of(shown[-1].job)}-{shown[-1].pk}" if len(found) > PAGE_SIZE else None
    return FindingPage(shown, older, start is None)


def _matching(wanted: Mapping[str, Any], scope: Scope) -> Q:
    found = of_findings(wanted) & scope.findings()
    if words := wanted.get("text", "").split()[:MAX_WORDS]:
        found &= words_of_findings(words)
    if not scope.everything:
        # A finding about the description names no file: it is seen by who sees its review.
        found &= Q(file__startswith="//") | scope.of_jobs("job_id", "job_id")
    return found


def _newest(
    in_order: QuerySet[FindingRow], jobs: QuerySet[ReviewJob], matching: Q, count: int
) -> list[FindingRow]:
    """Return the first findings that match, each at its newest version.

    PostgreSQL cannot know how often conditions occur together, so the plan is chosen here: what fills a
    page from the newest is read in order. The rest is looked up in the index, first in the newest of `jobs`,
    the reviews of the days that are searched: this is enough for what is not too rare, and reads few rows.
    """
    rows = in_order.filter(AT_NEWEST_VERSION).select_related("job").defer("excerpt")
    read = rows.filter(without_index(matching))
    found = _among_newest(in_order, read, count, is_narrowed=bool(matching))
    if found is not None:
        return found
    if not matching:
        return list(rows[:count])
    for of_job, since in _times(jobs, [_NEWEST_JOBS]):
        rare = ids_through_index(FindingRow.objects.filter(matching, of_job))
        if rare is None:
            return list(read[:count])
        found = _first(rows, in_order.filter(since), rare, count)
        if len(found) == count:
            break
    return found or []


def _newest_judged(
    in_order: QuerySet[FindingRow],
    jobs: QuerySet[ReviewJob],
    wanted: Mapping[str, Any],
    scope: Scope,
    count: int,
) -> list[FindingRow]:
    """Return the first findings that match and have the wanted verdict, as `_newest` does.

    Verdicts are few: those of the newest reviews are found first, and what else is wanted is applied to them.
    """
    judged = has_verdict_in_words(wanted["verdict"])
    others = _matching({name: value for name, value in wanted.items() if name != "verdict"}, scope)
    rows = in_order.filter(AT_NEWEST_VERSION).select_related("job").defer("excerpt")
    if FindingEvent.objects.filter(kind=wanted["verdict"])[: _MOST_JUDGED + 1].count() > _MOST_JUDGED:
        return list(rows.filter(without_index(judged & others))[:count])
    ids: list[int] = []
    for of_job, since in _times(jobs, _NEWEST_JUDGED if "text" in wanted else _NEWEST_JUDGED[:1]):
        such = judged & of_job
        if "text" in wanted:  # words take long to read, so a query of its own has the others done first
            with_verdict = FindingRow.objects.filter(such).order_by().values("pk")
            such = Q(pk__in=with_verdict[: 2 * _MOST_JUDGED])
        # An order that no index has: PostgreSQL must begin with the verdicts.
        found = in_order.filter(since, such, others, AT_NEWEST_VERSION).order_by(
            Coalesce("job__created_at", "job__created_at").desc(), "-job_id", "-pk"
        )
        ids = list(found.values_list("pk", flat=True)[:count])
        if len(ids) == count:
            break
    return list(rows.filter(is_one_of(ids)))


def _times(jobs: QuerySet[ReviewJob], sizes: Sequence[int]) -> Iterator[tuple[Q, Q]]:
    """Yield conditions on the findings of so many newest reviews, and last on those of all.

    Each is a pair: the condition to find by, and the one to order by.
    """
    for size in sizes:
        newest = jobs[:size].aggregate(
            count=Count("pk"), least=Min("pk"), most=Max("pk"), since=Min("created_at")
        )
        if newest["count"] < size:
            break
        of_newest = Q(job_id__gte=newest["least"], job_id__lte=newest["most"])
        yield of_newest, Q(job__created_at__gte=newest["since"])
    yield Q(), Q()


def _among_newest(
    in_order: QuerySet[FindingRow], read: QuerySet[FindingRow], count: int, *, is_narrowed: bool
) -> list[FindingRow] | None:
    """Return the first of `read` if the newest findings have enough of them, else None.

    Fewer are enough if there are no others.
    """
    found: list[FindingRow] = []
    known: set[int] = set()
    step = _STEP
    while len(known) < _MOST_READ:
        ids = list(in_order.values_list("pk", flat=True)[: len(known) + step])
        found += read.filter(is_one_of([pk for pk in ids if pk not in known]))[: count - len(found)]
        if len(found) == count or len(ids) < len(known) + step:
            return found
        known.update(ids)
        if found:
            # How many hold the rest of the page, if it goes on like this; few tell little about it.
            enough = (count - len(found)) * len(known) * 3 // (2 * len(found))
            step = min(max(enough, _STEP), 8 * len(known))
        if is_narrowed and (step > _MOST_READ if found else len(known) >= 4 * _STEP):
            break
    return None


def _first(
    rows: QuerySet[FindingRow], in_order: QuerySet[FindingRow], rare: Sequence[int], count: int
) -> list[FindingRow]:
    """Return the first of `rows` among those ids, in order."""
    ids = list(in_order.filter(is_one_of(rare)).values_list("pk", flat=True))
    found: list[FindingRow] = []
    start, step = 0, _STEP
    while start < len(ids) and len(found) < count:
        found += rows.filter(is_one_of(ids[start : start + step]))
        start, step = start + step, 2 * step
    return found[:count]


def _older(start: Cursor, finding_id: int) -> Q:
    """Return the condition on findings after one in the list; its first part serves the index."""
    at = {"job__created_at": start.created_at}
    same = Q(**at, job_id=start.job_id, pk__lt=finding_id) | Q(**at, job_id__lt=start.job_id)
    return Q(job__created_at__lte=start.created_at) & (Q(job__created_at__lt=start.created_at) | same)
