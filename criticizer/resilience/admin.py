"""Admin for circuit breakers, including manual overrides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column
from criticizer.admin_site.bulk_actions import (
    AdminForm,
    BulkAction,
    ConfirmedActionsMixin,
    for_each,
    reason_field,
)
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import circuit_badge
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import Key, age, exact
from criticizer.admin_site.viewing_scope import not_of_reviews
from criticizer.db.full_text import FullTextFilter
from criticizer.models import Circuit, CircuitEvent, OutboxMessage, Pace
from criticizer.resilience import overrides
from criticizer.resilience.states import FORCED, CircuitState

MAX_EVENTS = 200
_MAX_MINUTES = overrides.MAX_FORCED_SECONDS // 60


class ReleaseForm(AdminForm):
    reason = reason_field(
        help_text="A ticket, an incident or a sentence. It is saved in the circuit's history."
    )


class ForceForm(ReleaseForm):
    minutes = forms.IntegerField(
        min_value=1,
        max_value=_MAX_MINUTES,
        initial=60,
        help_text="The circuit is released after so many minutes; at most 1440, a day.",
    )


def _force(state: CircuitState) -> Callable[..., str]:
    def force(name: str, *, actor: str, reason: str, minutes: int) -> str:
        done = overrides.force(name, state=state, actor=actor, reason=reason, seconds=minutes * 60)
        return "" if done else "the circuit does not exist any more"

    return force


def _release(name: str, *, actor: str, reason: str) -> str:
    done = overrides.release(name, actor=actor, reason=reason)
    return "" if done else "it is not forced, or does not exist any more"


_PERMISSION = "criticizer.force_circuit"
FORCE_OPEN = BulkAction(
    "force_open",
    "Force open",
    "No call is made until the time is over. Work that needs it waits and uses no attempts.",
    "forced open",
    _PERMISSION,
    ForceForm,
    for_each(_force(CircuitState.FORCED_OPEN)),
)
FORCE_CLOSED = BulkAction(
    "force_closed",
    "Force closed",
    "All calls are made until the time is over, however many fail. Failures cost attempts.",
    "forced closed",
    _PERMISSION,
    ForceForm,
    for_each(_force(CircuitState.FORCED_CLOSED)),
)
RELEASE = BulkAction(
    "release",
    "Release",
    "The circuit breaker decides again. A circuit that was forced open is tried with one call first.",
    "released",
    _PERMISSION,
    ReleaseForm,
    for_each(_release),
)


def _kind(name: str, meaning: str, example: str) -> Key:
    # A circuit's name, such as `llm:openai`, is a search too.
    return Key(lambda text: Q(name__startswith=f"{name}:{text}"), meaning, example)


def _named(words: Sequence[str]) -> Q:
    found = Q()
    for word in words:
        found &= Q(name__icontains=word)
    return found


@admin.register(Circuit)
class CircuitAdmin(ConfirmedActionsMixin, KeysetAdmin):
    scope = not_of_reviews("dependencies")
    nouns = ("circuit", "circuits")
    max_chosen = 100
    list_display = (
        list_column("name", "name", "path"),
        "shown_state",
        "why",
        list_column("changed_at", "changed"),
        list_column("retry_at", "until"),
        "waiting",
    )
    orderings = {"name": Ordering("Name", ("name",))}
    search_keys = {
        "state": exact("state", "The state; several with commas", choices=CircuitState),
        "llm": _kind("llm", "The language model", "openai"),
        "provider": _kind("provider", "The notification provider", "webhook"),
        "changed": age("changed_at", "How long ago its state changed", example="<1h"),
    }
    search_words = FullTextFilter(_named, "the name")
    starting_views = {
        "Not closed": "q=-state%3Aclosed",
        "Forced": "q=state%3Aforced_open%2Cforced_closed",
    }
    empty_text = "No calls yet. Each server gets a circuit with the first call to it."
    bulk_actions = (FORCE_OPEN, FORCE_CLOSED, RELEASE)
    fields = readonly_fields = ("shown_state",)  # change_form.html shows the whole circuit

    @admin.display(description="state", ordering="state")
    def shown_state(self, circuit: Circuit) -> SafeString:
        return circuit_badge(circuit)

    @admin.display(description="reason", empty_value="")
    def why(self, circuit: Circuit) -> str:
        return circuit.why

    @admin.display(description="messages waiting")
    def waiting(self, circuit: Any) -> int:
        return int(circuit.waiting or 0)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        waiting = OutboxMessage.objects.filter(waiting_for=OuterRef("name")).order_by().values("waiting_for")
        found = super().get_queryset(request).annotate(waiting=Subquery(waiting.values(number=Count("pk"))))
        return cast("QuerySet[Any]", found)

    def page_context(self, request: HttpRequest, row: Circuit) -> dict[str, Any]:
        return {
            "title": row.name,
            "circuit": row,
            "shown_state": self.shown_state(row),
            "waiting": self.waiting(row),
            "rate_limit": Pace.objects.filter(pk=row.name).first(),
            "events": CircuitEvent.objects.filter(name=row.name).order_by("-id")[:MAX_EVENTS],
            "actions": [
                action
                for action in self.bulk_actions
                if request.user.has_perm(_PERMISSION) and (action is not RELEASE or row.state in FORCED)
            ],
        }

    def rows_to_show(self, ids: Sequence[str]) -> Any:
        return [(circuit, self.shown_state(circuit)) for circuit in super().rows_to_show(ids)]
