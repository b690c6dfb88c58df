"""The findings list: a search over the findings of all reviews, each at its newest version."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.db.models import Exists, OuterRef, Q

from criticizer.db.query_limits import ALONE, StatementTimeout, statement_timeout
from reviews.models import FindingRow
from reviews.recipients.scopes import Scope
from reviews.search import words_of_findings
from reviews.verdicts import verdicts_of
from reviews.web.filters import of_changes, of_findings
from reviews.web.review_list import MAX_WORDS, PAGE_MILLISECONDS, PAGE_SIZE

log = structlog.get_logger(__name__)

_ID = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class FindingPage:
    """One page, newest first. `older` is the id that the next page begins after, or None."""

    rows: Sequence[FindingRow] = ()
    older: int | None = None
    is_first: bool = True
    is_cancelled: bool = False  # the query took too long


def finding_page(wanted: Mapping[str, Any], user: Any, scope: Scope, after: str = "") -> FindingPage:
    """Return a page of the findings that match the filters and that the reader may see."""
    later = FindingRow.objects.filter(identity=OuterRef("identity"), pk__gt=OuterRef("pk"))
    rows = FindingRow.objects.filter(
        of_findings(wanted), of_changes(wanted, user, "job__"), scope.findings(), ~Exists(later)
    )
    if not scope.everything:
        # A finding about the description names no file: it is seen by who sees its review.
        rows = rows.filter(Q(file__startswith="//") | scope.of_jobs("job_id", "job_id"))
    if is_later := _ID.fullmatch(after) is not None:
        rows = rows.filter(pk__lt=int(after))
    try:
        with statement_timeout(PAGE_MILLISECONDS, ALONE):
            if words := wanted.get("text", "").split()[:MAX_WORDS]:
                rows = rows.filter(words_of_findings(words))
            found = list(rows.select_related("job").defer("excerpt").order_by("-pk")[: PAGE_SIZE + 1])
            shown = found[:PAGE_SIZE]
            verdicts = verdicts_of((row.identity for row in shown), scope)
    except StatementTimeout:
        log.warning("findings_list_took_too_long", filters=sorted(wanted))
        return FindingPage(is_first=False, is_cancelled=True)
    for row in shown:
        row.verdict = verdicts.get(row.identity)  # type: ignore[attr-defined]
    return FindingPage(shown, shown[-1].pk if len(found) > PAGE_SIZE else None, not is_later)
