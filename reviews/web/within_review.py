"""The filter and the paging inside one review (guarantee G450)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.http import QueryDict

from reviews.filters import FindingFilter
from reviews.models import FindingRow, ReviewJob
from reviews.recipients.viewing_scopes import Scope
from reviews.reviewers.base import SEVERITY_ORDER

NAMES = ("severity", "category", "source", "file")
_KEPT = ("view", *NAMES, "findings", "coverage")
_LABELS = {"source": "Found by"}
_SOURCES = {"llm": "Language model", "check": "Checks"}
_MAX_CHOICES = 1_000
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class ListPart(Generic[_Row]):
    """A page of a list: its rows after the first `start` of `total`."""

    rows: Sequence[_Row]
    start: int
    total: int

    @property
    def end(self) -> int:
        return self.start + len(self.rows)

    @property
    def left(self) -> int:
        return self.total - self.end


@dataclass(frozen=True, slots=True)
class FilterField:
    """A filter in the page: its choices are what the findings of the review have."""

    name: str
    label: str
    value: str
    choices: Sequence[tuple[str, str]]


def start_of(query: Mapping[str, str], name: str) -> int:
    """Return how many rows of a list an address leaves out."""
    wanted = query.get(name, "")
    return int(wanted) if _NUMBER.fullmatch(wanted) else 0


def kept_query(query: Mapping[str, str]) -> QueryDict:
    """Return what an address says of tab, filter and page; all else is dropped."""
    kept = QueryDict(mutable=True)
    kept.update({name: query[name][:1024] for name in _KEPT if query.get(name)})
    return kept


def wanted_within(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the filters that an address sets; none where one is not valid."""
    return FindingFilter({name: query.get(name, "") for name in NAMES}).wanted()


def filter_fields(
    job: ReviewJob, scope: Scope, wanted: Mapping[str, Any], loaded: Sequence[FindingRow] | None
) -> Iterator[FilterField]:
    """Yield the filters in which the findings of a review differ, and those that are set.

    `loaded`: all its findings in the scope, where they are at hand.
    """
    if loaded is None:
        found = job.findings.filter(scope.findings()).order_by()
        known = list(found.values(*NAMES).distinct()[:_MAX_CHOICES])
    else:
        known = [{name: getattr(row, name) for name in NAMES} for row in loaded]
    for row in known:
        row["source"] = "llm" if row["source"].startswith("llm") else "check"
    for name in NAMES:
        values = sorted({row[name] for row in known}, key=lambda one: (SEVERITY_ORDER.get(one, 9), one))
        if len(values) > 1 or name in wanted:
            label = _LABELS.get(name, name.capitalize())
            choices = [("", "Any"), *((one, _SOURCES.get(one, one)) for one in values)]
            yield FilterField(name, label, str(wanted.get(name, "")), choices)
