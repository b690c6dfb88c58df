"""Prefix search over titles and authors of reviews, and over findings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.lookups import DataContains
from django.contrib.postgres.search import SearchVectorExact
from django.db.models import (
    BooleanField,
    Case,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Concat, Lower
from django.db.models.lookups import Contains

from criticizer.db.full_text import FullTextFilter, match, prefixes
from criticizer.db.id_lists import EqualsAny, is_one_of
from criticizer.db.query_limits import StatementTimeout, statement_timeout
from reviews.models import (
    FILE_NAME,
    FINDING_FACETS,
    FINDING_WORDS,
    WORD_MARKS,
    CoverageRow,
    FindingRow,
    ReviewJob,
    StageRun,
)
from reviews.states import ACTIVE_JOB, RARE_JOB

MOST_RARE = 10_000
_LOOKED_AT = 1_000  # of the newest jobs, those searched to see whether words are common
_COMMON = 5  # matches among them that make words common
_MOST_RARE_FINDINGS = 30_000
_MOST_RARE_STAGES = 40_000
_MILLISECONDS = 3_000
# With less memory (in kB) it would keep pages instead of rows, and read the text of all rows on them: of two
# common words that never meet, those of a tenth of all reviews.
_THROUGH_INDEX = {"enable_seqscan": "off", "enable_indexscan": "off", "work_mem": "65536"}
_COMMIT = re.compile(r"(?:(?:git:)?(?P<name>[^@\s]{1,64})@)?(?P<hash>[0-9A-Fa-f]{4,40})")
_TEXT = Lower(Concat("title", Value(" "), "message", Value(" "), "file", output_field=TextField()))
# What the indexes of words hold. Before its change is fetched a review has none.
_ENDED = Q(finished_at__isnull=False)
_FETCHED = Q(finished_at__isnull=True) & ~Q(author="", title="")
AT_NEWEST_VERSION = ~Exists(FindingRow.objects.filter(identity=OuterRef("identity"), pk__gt=OuterRef("pk")))


def words_of_jobs(words: Sequence[str], also: Sequence[int] = ()) -> Q:
    """Return the condition that each word begins a word of the title or the author.

    Runs queries. `also`: ids of jobs that are found whatever their words.

    PostgreSQL estimates all words as equally common, and would read a million titles for one that does not
    occur. So common words are searched among the newest jobs, and rare ones in the index first.
    """
    expression = match(("title", "author"), words)
    found = Q(expression)
    named_so = [*_of_change(words), *also]
    rare = None if _is_common(found) else _jobs_with(found)
    if rare is None:
        # Keeps PostgreSQL from taking the words for rare: it reads the list in its order.
        common = Q(Coalesce(expression, Value(False), output_field=BooleanField()))
        return common | is_one_of(named_so) if named_so else common
    return is_one_of(rare + named_so)


def words_of_findings(words: Sequence[str]) -> Q:
    """Return the condition that each word begins a word of a finding.

    A single word may also be the changelist of the finding.
    """
    found = _words_of_findings(words)
    of_change = _of_change(words)
    return found | Q(job__in=of_change) if of_change else found


def jobs_with_file(words: Sequence[str], seen: Q) -> list[int]:
    """Return the newest jobs that covered a file whose name is the one word.

    `seen`: the condition on coverage rows of files that may be seen. Of a name with an ending its beginning
    is enough, and folders before it must be those of the file.
    """
    if len(words) != 1 or not (name := words[0].rpartition("/")[2].lower()):
        return []
    way = "startswith" if "." in name else "exact"
    rows = CoverageRow.objects.filter(seen).annotate(name=FILE_NAME).filter(**{f"name__{way}": name})
    if "/" in words[0]:
        rows = rows.filter(file__icontains=f"/{words[0].lstrip('/')}")
    try:
        # Of a name that is rare it would read the whole table in the order of reviews.
        with statement_timeout(_MILLISECONDS, _THROUGH_INDEX):
            return list(dict.fromkeys(rows.order_by("-job_id").values_list("job_id", flat=True)[:_LOOKED_AT]))
    except StatementTimeout:
        return []


def _of_change(words: Sequence[str]) -> list[int]:
    """Return the reviews of the changelist that a single word names."""
    if len(words) != 1:
        return []
    return list(ReviewJob.objects.filter(named(words[0])).values_list("pk", flat=True)[:100])


def _words_of_findings(words: Sequence[str]) -> Q:
    parts = " ".join(words).translate(str.maketrans(WORD_MARKS, " " * len(WORD_MARKS))).split()
    if not parts:
        return Q(pk__in=())
    found = Q()
    for part in parts:
        if part.isascii() and part.isalpha():
            # Implied, and ten times cheaper for rows that are read without the index.
            found &= Q(Contains(_TEXT, part.lower()))
    return found & Q(SearchVectorExact(FINDING_WORDS, prefixes(parts)))


def jobs_with_findings(matching: Q) -> Q:
    """Return the condition on reviews that they have such a finding.

    Runs queries, as `words_of_jobs`.
    """
    such = FindingRow.objects.filter(without_index(matching), job=OuterRef("pk"))
    found = Q(Exists(such))
    if not _is_common(found):
        rare = ids_through_index(FindingRow.objects.filter(matching), "job_id")
        if rare is not None:
            return is_one_of(rare)
    return found


def without_index(condition: Q) -> Q:
    """Return a condition that PostgreSQL applies to the rows it reads, and serves from no index."""
    return Q(Case(When(condition, then=True), default=False)) if condition else condition


def with_facets(facets: Mapping[str, str]) -> Q:
    """Return the condition on findings that they have these facets.

    A facet is `severity`, `category` or `source` (llm or check).
    """
    wanted = [f"{name} {value}" for name, value in facets.items()]
    return Q(DataContains(FINDING_FACETS, Value(wanted, ArrayField(TextField())))) if wanted else Q()


def ids_through_index(rows: QuerySet[FindingRow], field: str = "pk") -> list[int] | None:
    """Return the ids of findings that an index finds; None when there are many or it takes long."""
    try:
        with statement_timeout(_MILLISECONDS, _THROUGH_INDEX):
            ids = list(rows.order_by().values_list(field, flat=True)[: _MOST_RARE_FINDINGS + 1])
    except StatementTimeout:
        return None
    return ids if len(ids) <= _MOST_RARE_FINDINGS else None


def named(word: str) -> Q:
    """Return the condition on a changelist by its name.

    A commit may also be named by its hash as pages shorten it.
    """
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


def in_states(states: Sequence[str]) -> Q:
    """Return the condition on reviews that they are in one of the states.

    Of ended ones it says that they ended, which an index holds: a list begins behind the backlog then. Those
    that are rare have an index of their own.
    """
    field = "ended_as" if set(states) <= set(RARE_JOB) else "status"
    found = Q(**{f"{field}__in": states}) if len(states) > 1 else Q(**{field: states[0]})
    return found & _ENDED if set(states).isdisjoint(ACTIVE_JOB) else found


def jobs_with_stages(stages: QuerySet[StageRun]) -> Q:
    """Return the condition on reviews that they have one of the stages. Runs a query.

    PostgreSQL takes matches for evenly spread, and reads the list in its order until it has a page of them:
    a backlog without a match comes first there. Unless there are many it looks them up in an index, and
    sorts. It takes the elements of an unknown array for few, and finds them in one walk through the index of
    ids.
    """
    found = stages.order_by().values("job_id")
    if found[: _MOST_RARE_STAGES + 1].count() > _MOST_RARE_STAGES:
        return Q(Exists(stages.filter(job=OuterRef("pk"))))
    return Q(EqualsAny(F("pk"), ArraySubquery(found)))


def newest_with_stages(stages: QuerySet[StageRun], below: int | None) -> QuerySet[StageRun, int]:
    """Return the ids of reviews with one of the stages, the highest first.

    Below the id `below`, unless it is None.
    """
    found = stages if below is None else stages.filter(job_id__lt=below)
    return found.order_by("-job_id").values_list("job_id", flat=True)


def jobs_without_stages(stages: QuerySet[StageRun]) -> Q:
    """Return the condition on reviews that they have none of the stages. Runs a query.

    The list is read in its order, as nearly all match. PostgreSQL hashes ids that it is given, and compares
    each row with each element of an array that it does not know.
    """
    ids = list(stages.order_by().values_list("job_id", flat=True)[: _MOST_RARE_STAGES + 1])
    if len(ids) > _MOST_RARE_STAGES:
        return ~Q(Exists(stages.filter(job=OuterRef("pk"))))
    return ~is_one_of(ids)


def _is_common(found: Q) -> bool:
    """Return whether the newest jobs have enough that match; False when finding them takes long.

    Those that ended last and those created last: a backlog whose changes are not fetched has no words.
    """
    newest = [
        *ReviewJob.objects.order_by("-created_at", "-id").values_list("pk", flat=True)[:_LOOKED_AT],
        *ReviewJob.objects.filter(_ENDED)
        .order_by("-finished_at", "-id")
        .values_list("pk", flat=True)[:_LOOKED_AT],
    ]
    try:
        with statement_timeout(_MILLISECONDS):
            # As a list: PostgreSQL reads these rows only.
            return ReviewJob.objects.filter(is_one_of(newest), found)[:_COMMON].count() == _COMMON
    except StatementTimeout:
        return False


def _jobs_with(found: Q) -> list[int] | None:
    """Return the jobs that match; None when there are many or finding them takes long."""
    ids: list[int] = []
    try:
        with statement_timeout(_MILLISECONDS, _THROUGH_INDEX):
            for part in (_ENDED, _FETCHED):  # an index each
                jobs = ReviewJob.objects.filter(part, found).order_by().values_list("pk", flat=True)
                ids += jobs[: MOST_RARE + 1]
    except StatementTimeout:
        return None
    return ids if len(ids) <= MOST_RARE else None


JOB_WORDS = FullTextFilter(
    words_of_jobs, "the title and the author; a number or a commit's hash alone is a changelist as well"
)
