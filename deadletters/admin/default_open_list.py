"""Lists that open with what is open, and look at everything where a search names what it wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Func, Q
from django.http import HttpRequest

from criticizer.admin_site.keyset import BY, KeysetChangeList
from criticizer.admin_site.search_query import Key, SearchProblem, Term, number, parse
from criticizer.db.full_text import FullTextFilter, match
from deadletters.models import DeadLetterGroup, ReplayItem

OPEN, ALL = "open", "all"
MOST_GROUPS = 200  # that the words of a search for letters may mean


class OpenFirst(KeysetChangeList):
    """A list that opens with what is open ("open") and whose searches by name look at all ("all").

    Who searches for a changelist wants what became of it, closed or not; who searches for a kind
    of failure wants what is left to do. The list's model says of the latter with `none_open` that
    there is nothing left, and leads to the closed ones.
    """

    # Keys of the search that say which rows are meant; "" stands for words without a key.
    named_by: ClassVar[frozenset[str]] = frozenset({"state", "cl", "job", "letter", "batch"})

    def get_filters(self, request: HttpRequest) -> Any:
        found = super().get_filters(request)
        if BY not in request.GET and self._names_rows(request.GET.get("q", "")):
            self.ordering_name = ALL
        return found

    def _names_rows(self, search: str) -> bool:
        try:
            terms = parse(search)
        except SearchProblem:
            return False
        # Without closed ones is without some state; without one changelist is still what is open.
        return any(self._names(term) for term in terms)

    def _names(self, term: Term) -> bool:
        return term.key in self.named_by and (not term.is_negated or term.key == "state")

    @property
    def orders(self) -> list[tuple[str, str, bool]]:
        """Return (title, address, is this one); the open ones by name, since a search may choose all."""
        return [
            (ordering.title, self.get_query_string({BY: name}), name == self.ordering_name)
            for name, ordering in self.model_admin.orderings.items()
        ]

    @property
    def wider_url(self) -> str:
        """Return where the closed ones of this search are; "" when it looked at all, or cannot be read."""
        is_narrow = bool(self.ordering.where) and not self.queryset.query.is_empty()
        # Without a search it is quick to say whether there is anything at all.
        if not is_narrow or not (self.query or self.root_queryset.exists()):
            return ""
        return self.get_query_string({BY: ALL})


class LetterChangeList(OpenFirst):
    """The letters: a number is a changelist here, which names its letters."""

    def _names(self, term: Term) -> bool:
        return super()._names(term) or (not term.key and _is_number(term.value))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _of_letters(words: Sequence[str]) -> Q:
    """Return the condition "the changelist has this number, and the failure says these words".

    Raises SearchProblem when too many kinds of failure say them.
    """
    found = Q()
    for changelist in filter(_is_number, words):
        found &= Q(job__changelist_id=changelist)
    said = [word for word in words if not _is_number(word)]
    if said:
        groups = DeadLetterGroup.objects.filter(match(("normalized_message",), said))
        # Their numbers, not a subquery: PostgreSQL knows how many letters each group has.
        ids = list(groups.order_by("pk").values_list("pk", flat=True)[: MOST_GROUPS + 1])
        if len(ids) > MOST_GROUPS:
            raise SearchProblem(
                f"More than {MOST_GROUPS} groups of failures say that: add a word, or search the groups."
            )
        found &= Q(group_id__in=ids)
    return found


LETTERS = FullTextFilter(_of_letters, "what the failure says; a number alone means cl:")


def _in_batches(text: str) -> Q:
    items = ReplayItem.objects.filter(_BATCH.condition(text)).order_by()
    # An array: PostgreSQL looks these up by their numbers, and does not walk all letters for the latest.
    ids = Func(ArraySubquery(items.values("letter_id")), template="SELECT unnest(%(expressions)s)")
    return Q(pk__in=ids)


_BATCH = number("batch_id", "The replay batch that holds it", example="12")
BATCH = Key(_in_batches, _BATCH.meaning, _BATCH.example)
