"""A page of the newest matches, from an index that has the keys of all matches.

Tens of thousands of reviews have an error, and a list shows the newest fifty. The index holds row keys but
not times, so sorting by time would read every row. Keys are assigned in creation order within `SKEW`, so the
highest keys suffice as long as every row of the page is more than `SKEW` newer than the lowest of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.db.models import Q, QuerySet

from criticizer.admin_site.ordering import Ordering, beyond
from criticizer.admin_site.search_query import Key, SearchProblem, condition_of, parse
from criticizer.db.id_lists import is_one_of

# Largest expected gap between a row's time (the start of its transaction) and the moment its key was
# assigned; it also covers the clock difference between a promoted database and the one before.
SKEW = timedelta(minutes=10)
WINDOWS = (400, 4_000)  # keys that are looked at; with more, the whole search is cheaper


def page_by_keys(
    rows: QuerySet[Any],
    search: str,
    keys: Mapping[str, Key],
    ordering: Ordering,
    after: Sequence[Any] | None,
    number: int,
) -> list[Any] | None:
    """Return the next `number` of `rows` that match a search, in order, or all that are left.

    `rows` are in `ordering`; `after` is the position behind which the page begins. None, so that the caller
    searches normally, if the search does not have exactly one term of a key with `newest`, has words beside
    it or another order, or if too many matches share one time.
    """
    if not (ordering.is_of_creation and ordering.is_descending):
        return None
    term = _term_with_keys(search, keys)
    if term is None:
        return None
    name, value = term
    newest = keys[name].newest
    assert newest is not None
    model: Any = rows.model
    behind = Q() if after is None else Q(beyond(model, ordering, after, backwards=False))
    below = None
    for window in WINDOWS:
        found = list(newest(value, below)[:window])
        if len(found) == window and below is None and after is not None:
            below = _above(model, ordering, after)
            found = list(newest(value, below)[:window])
        fixed = replace(keys[name], condition=partial(_among, found))
        matching = rows.filter(ordering.where, behind, condition_of(search, {**keys, name: fixed}, None))
        if len(found) < window:
            return list(matching[:number])
        time = ordering.names[0]
        lowest = model.objects.filter(pk=found[-1]).values_list(time, flat=True).first()
        if lowest is not None:
            page = list(matching.filter(**{f"{time}__gt": lowest + SKEW})[:number])
            if len(page) == number:
                return page
    return None


def _among(ids: Sequence[int], _: str) -> Q:
    return is_one_of(ids)


def _term_with_keys(search: str, keys: Mapping[str, Key]) -> tuple[str, str] | None:
    """Return key and value of the one term of a key with `newest`; None if there are words."""
    try:
        terms = parse(search)
        if not all(term.key in keys and term.value.strip() for term in terms):
            return None
        found = [term for term in terms if keys[term.key].newest and not term.is_negated]
        if len(found) != 1 or sum(term.key == found[0].key for term in terms) != 1:
            return None
        keys[found[0].key].condition(found[0].value)
    except SearchProblem:
        return None
    return found[0].key, found[0].value


def _above(model: Any, ordering: Ordering, after: Sequence[Any]) -> int | None:
    """Return a key above those of all rows behind a position; None for no such key."""
    time = ordering.names[0]
    later = model.objects.filter(**{f"{time}__gt": after[0] + SKEW})
    found: int | None = later.order_by(*ordering.reversed()).values_list("pk", flat=True).first()
    return found
