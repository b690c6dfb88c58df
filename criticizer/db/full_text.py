"""PostgreSQL full-text search by word prefixes: the condition and its index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchQuery, SearchVector, SearchVectorExact
from django.db.models import Q


@dataclass(frozen=True, slots=True)
class FullTextFilter:
    """A search condition for words."""

    condition: Callable[[Sequence[str]], Q]
    meaning: str = ""  # names the fields that are searched: "the title and the author"


def full_text(*fields: str, meaning: str = "") -> FullTextFilter:
    """Return the condition that each word begins a word of these fields; use with `text_index`."""
    return FullTextFilter(lambda words: Q(match(fields, words)), meaning)


def match(fields: Sequence[str], words: Sequence[str]) -> SearchVectorExact:
    """Return the expression that each word begins a word of the fields."""
    return SearchVectorExact(SearchVector(*fields, config="simple"), prefixes(words))


def prefixes(words: Sequence[str]) -> SearchQuery:
    """Return the query for texts in which each word begins a word."""
    quoted = ["'{}':*".format(word.replace("\\", "\\\\").replace("'", "''")) for word in words]
    return SearchQuery(" & ".join(quoted), config="simple", search_type="raw")


def text_index(*fields: str, name: str, condition: Q | None = None) -> GinIndex:
    """Return the index for `full_text` of the same fields, of all rows or those of `condition`."""
    return GinIndex(SearchVector(*fields, config="simple"), name=name, condition=condition)
