"""Prefix search over titles and authors of reviews, and over findings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.conf import settings
from django.contrib.postgres.search import SearchVectorExact
from django.db.models import BooleanField, Q, QuerySet, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from criticizer.db.full_text import FullTextFilter, match, prefixes
from criticizer.db.query_limits import StatementTimeout, statement_timeout
from reviews.models import FINDING_WORDS, PATH_MARKS, FindingRow, ReviewJob
from reviews.states import ACTIVE_JOB

MOST_RARE = 10_000
_LOOKED_AT = 1_000  # newest jobs searched to see whether words are common
_COMMON = 5  # matches among them that make words common
# The text of findings is longer: fewer are read, and more taken from the index.
_FINDINGS_LOOKED_AT = 250
_MOST_RARE_FINDINGS = 30_000
_MILLISECONDS = 3_000
# With less memory (in kB) it would keep pages instead of rows, and read the text of all rows on them.
_THROUGH_INDEX = {"enable_seqscan": "off", "enable_indexscan": "off", "work_mem": "65536"}
_COMMIT = re.compile(r"(?:(?:git:)?(?P<name>[^@\s]{1,64})@)?(?P<hash>[0-9A-Fa-f]{7,40})")
_ENDED = Q(finished_at__isnull=False)


def words_of_jobs(words: Sequence[str]) -> Q:
    """Return the condition that each word begins a word of the title or the author. Runs queries.

    PostgreSQL estimates all words as equally common, and would read a million titles for one that does
    not occur. So common words are searched among the newest jobs, and rare ones in the index first.
    """
    expression = match(("title", "author"), words)
    found = Q(expression)
    rare = None if _is_common(found) else _jobs_with(found)
    if rare is None:
        # Keeps PostgreSQL from taking the words for rare: it reads the list in its order.
        return Q(Coalesce(expression, Value(False), output_field=BooleanField()))
    if len(words) == 1:
        rare += ReviewJob.objects.filter(_named(words[0])).values_list("pk", flat=True)[:100]
    # One parameter: thousands take longer to send than to look up.
    return Q(RawSQL('"jobs"."id" = ANY(%s)', [rare], output_field=BooleanField()))


def words_of_findings(words: Sequence[str]) -> Q:
    """Return the condition that each word begins a word of a finding. Runs queries, as `words_of_jobs`."""
    parts = " ".join(words).translate(str.maketrans(PATH_MARKS, " " * len(PATH_MARKS))).split()
    if not parts:
        return Q(pk__in=())
    expression = SearchVectorExact(FINDING_WORDS, prefixes(parts))
    # As a list: PostgreSQL reads these rows only.
    newest = list(FindingRow.objects.order_by("-pk").values_list("pk", flat=True)[:_FINDINGS_LOOKED_AT])
    found = Q(expression)
    if FindingRow.objects.filter(found, pk__in=newest)[:_COMMON].count() < _COMMON:
        rare = _ids(FindingRow.objects.filter(found))
        if rare is not None:
            return Q(RawSQL('"findings"."id" = ANY(%s)', [rare], output_field=BooleanField()))
    return Q(Coalesce(expression, Value(False), output_field=BooleanField()))


def _ids(rows: QuerySet[FindingRow]) -> list[int] | None:
    """Return the ids of rows that the index finds; None when there are many or it takes long."""
    try:
        with statement_timeout(_MILLISECONDS, _THROUGH_INDEX):
            ids = list(rows.order_by().values_list("pk", flat=True)[: _MOST_RARE_FINDINGS + 1])
    except StatementTimeout:
        return None
    return ids if len(ids) <= _MOST_RARE_FINDINGS else None


def _named(word: str) -> Q:
    """Return the condition on a changelist by its number, or by its commit's hash as pages shorten it."""
    commit = _COMMIT.fullmatch(word)
    if commit is None:
        return Q(changelist_id=word)
    names = [commit["name"]] if commit["name"] else settings.GIT_REPOSITORIES
    found = Q(changelist_id=word)
    for name in names:
        first = f"git:{name}@{commit['hash'].lower()}"
        # A range, which the index of changelists serves whatever the database's collation.
        found |= Q(changelist_id__gte=first, changelist_id__lt=f"{first}g")
    return found


def _is_common(found: Q) -> bool:
    newest = ReviewJob.objects.order_by("-created_at", "-id").values("pk")[:_LOOKED_AT]
    return ReviewJob.objects.filter(found, pk__in=newest)[:_COMMON].count() == _COMMON


def _jobs_with(found: Q) -> list[int] | None:
    """Return the jobs that match; None when there are many or finding them takes long."""
    ids: list[int] = []
    try:
        with statement_timeout(_MILLISECONDS, {"enable_seqscan": "off", "enable_indexscan": "off"}):
            for part in (_ENDED, Q(status__in=ACTIVE_JOB)):  # an index each
                jobs = ReviewJob.objects.filter(part, found).order_by().values_list("pk", flat=True)
                ids += jobs[: MOST_RARE + 1]
    except StatementTimeout:
        return None
    return ids if len(ids) <= MOST_RARE else None


JOB_WORDS = FullTextFilter(
    words_of_jobs, "the title and the author; a number or a commit's hash alone is a changelist as well"
)
