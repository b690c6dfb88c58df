"""The findings list: a search over the findings of all reviews, each at its newest version."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.db.models import Q, QuerySet

from criticizer.db.query_limits import ALONE, StatementTimeout, statement_timeout
from reviews.models import FindingRow
from reviews.recipients.scopes import Scope
from reviews.search import AT_NEWEST_VERSION, ids_through_index, is_one_of, without_index, words_of_findings
from reviews.verdicts import verdicts_of
from reviews.web.filters import of_changes, of_findings
from reviews.web.review_list import MAX_WORDS, PAGE_MILLISECONDS, PAGE_SIZE, Cursor

log = structlog.get_logger(__name__)

_NEWEST = ("-job__created_at", "-job__id", "-pk")
_CURSOR = re.compile(r"(?P<job>[0-9]{1,17}-[0-9]{1,18})-(?P<finding>[0-9]{1,18})", re.ASCII)
# Newest findings that are read at once.
_WINDOW, _GROWTH, _MAX_WINDOW = 400, 8, 16_000


@dataclass(frozen=True, slots=True)
class FindingPage:
    """One page, newest review first. `older` is the cursor that the next page begins after, or None."""

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
    cursor = _CURSOR.fullmatch(after)
    start = Cursor.parse(cursor["job"]) if cursor else None
    if cursor and start:
        in_order = in_order.filter(_older(start, int(cursor["finding"])))
    try:
        with statement_timeout(PAGE_MILLISECONDS, ALONE):
            found = _newest(in_order, _matching(wanted, scope), PAGE_SIZE + 1)
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


def _newest(in_order: QuerySet[FindingRow], matching: Q, count: int) -> list[FindingRow]:
    """Return the first findings that match, each at its newest version.

    PostgreSQL cannot know how often conditions occur together, so the plan is chosen here: what fills a
    page from the newest is read in order, and the rest is looked up in the index.
    """
    rows = in_order.filter(AT_NEWEST_VERSION).select_related("job").defer("excerpt")
    read = rows.filter(without_index(matching))
    window = _WINDOW
    while window <= _MAX_WINDOW:
        ids = list(in_order.values_list("pk", flat=True)[:window])
        found = list(read.filter(is_one_of(ids))[:count])
        if len(found) == count or len(ids) < window:
            return found
        if not found:
            break
        enough = window * count * 3 // (2 * len(found))
        window = min(enough, _GROWTH * window)  # few tell little about their number
    rare = ids_through_index(FindingRow.objects.filter(matching)) if matching else None
    if rare is None:
        return list(read[:count])
    ids = list(in_order.filter(is_one_of(rare)).values_list("pk", flat=True))
    found = []
    for start in range(0, len(ids), _WINDOW):
        found += rows.filter(is_one_of(ids[start : start + _WINDOW]))
        if len(found) >= count:
            break
    return found[:count]


def _older(start: Cursor, finding_id: int) -> Q:
    """Return the condition on findings after one in the list; its first part serves the index."""
    at = {"job__created_at": start.created_at}
    same = Q(**at, job_id=start.job_id, pk__lt=finding_id) | Q(**at, job_id__lt=start.job_id)
    return Q(job__created_at__lte=start.created_at) & (Q(job__created_at__lt=start.created_at) | same)
