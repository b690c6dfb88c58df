"""Admin for circuit breakers, including manual overrides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column
from criticizer.admin_site.bulk_actions import (
    ActionResult,
    AdminForm,
    BulkAction,
    ConfirmedActionsMixin,
    count_results,
    reason_field,
)
from criticizer.admin_site.keyset import KeysetAdmin, Ordering
from criticizer.admin_site.list_rendering import circuit_badge
from criticizer.admin_site.search_query import Key, age, exact
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


def _each(act: Callable[..., bool]) -> Callable[[Sequence[str], str, Mapping[str, Any]], ActionResult]:
    def run(names: Sequence[str], actor: str, given: Mapping[str, Any]) -> ActionResult:
        span = {"seconds": given["minutes"] * 60} if "minutes" in given else {}
        why_not = "not forced, or deleted"
        return count_results(
            [(act(name, actor=actor, reason=given["reason"], **span), why_not) for name in names]
        )

    return run


FORCE_OPEN = BulkAction(
    "force_open",
    "Force open",
    "No calls are made until the time is over. Work that needs the dependency waits and uses no attempts.",
    "forced open",
    ForceForm,
    _each(partial(overrides.force, state=CircuitState.FORCED_OPEN)),
)
FORCE_CLOSED = BulkAction(
    "force_closed",
    "Force closed",
    "All calls are made until the time is over, however many fail. Failures cost attempts.",
    "forced closed",
    ForceForm,
    _each(partial(overrides.force, state=CircuitState.FORCED_CLOSED)),
)
RELEASE = BulkAction(
    "release",
    "Release",
    "The breaker decides again. A circuit that was forced open is tried with one call first.",
    "released",
    ReleaseForm,
    _each(overrides.release),
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
    change_form_template = "admin/criticizer/circuit/change_form.html"
    confirm_template = "admin/criticizer/circuit/confirm.html"
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
        "state": exact("state", "The state; several with commas", choices=CircuitState.choices),
        "llm": _kind("llm", "The language model", "openai"),
        "provider": _kind("provider", "The notification provider", "webhook"),
        "changed": age("changed_at", "How long ago its state changed", example="<1h"),
    }
    search_words = FullTextFilter(_named, "the name")
    starting_views = {
        "Not closed": "q=-state%3Aclosed",
        "Forced": "q=state%3Aforced_open%2Cforced_closed",
    }
    empty_text = "No calls yet. Each server gets a circuit with its first call."
    actions = ("force_open", "force_closed", "release")
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
            "actions": _actions(row) if self.has_force_permission(request) else (),
        }

    # -- actions ------------------------------------------------------------------------------

    def address_of(self, pk: str) -> str:
        return reverse("admin:criticizer_circuit_change", args=[quote(pk)])

    def rows_to_show(self, ids: Sequence[str]) -> Any:
        return [(circuit, self.shown_state(circuit)) for circuit in super().rows_to_show(ids)]

    def has_force_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("criticizer.force_circuit"))

    @admin.action(description=f"{FORCE_OPEN.button}\u2026", permissions=["force"])
    def force_open(self, request: HttpRequest, queryset: QuerySet[Circuit]) -> HttpResponseBase | None:
        return self.ask(FORCE_OPEN, request, queryset)

    @admin.action(description=f"{FORCE_CLOSED.button}\u2026", permissions=["force"])
    def force_closed(self, request: HttpRequest, queryset: QuerySet[Circuit]) -> HttpResponseBase | None:
        return self.ask(FORCE_CLOSED, request, queryset)

    @admin.action(description=f"{RELEASE.button}\u2026", permissions=["force"])
    def release(self, request: HttpRequest, queryset: QuerySet[Circuit]) -> HttpResponseBase | None:
        return self.ask(RELEASE, request, queryset)


def _actions(circuit: Circuit) -> tuple[BulkAction, ...]:
    return (FORCE_OPEN, FORCE_CLOSED, *((RELEASE,) if circuit.state in FORCED else ()))
