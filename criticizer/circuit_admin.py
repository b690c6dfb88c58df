"""Circuits in the console: what is called, what rests, and the operators' switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from criticizer import forcing
from criticizer.admin import ReadOnlyAdmin, titled
from criticizer.cells import chip
from criticizer.full_text import Words
from criticizer.keyset import KeysetAdmin, Ordering
from criticizer.models import Circuit, CircuitEvent, OutboxMessage, Pace
from criticizer.search import Key, SearchGrammar, age, exact
from criticizer.states import CIRCUIT_LOOKS, FORCED, CircuitState

MAX_CIRCUITS = 100  # of one action
MAX_EVENTS = 200
_MAX_MINUTES = forcing.MAX_FORCED_SECONDS // 60


class ForceForm(forms.Form):
    """Why a circuit is forced, and for how long."""

    reason = forms.CharField(
        min_length=3,
        max_length=500,
        strip=True,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="A ticket, an incident or a sentence. It becomes part of the circuit's history.",
    )
    minutes = forms.IntegerField(
        min_value=1,
        max_value=_MAX_MINUTES,
        initial=60,
        help_text="After so many minutes it is released by itself; 1440, a day, at most.",
    )


class ReleaseForm(forms.Form):
    """Why a circuit is released."""

    reason = forms.CharField(
        min_length=3, max_length=500, strip=True, widget=forms.Textarea(attrs={"rows": 3})
    )


@dataclass(frozen=True, slots=True)
class Deed:
    """An action on circuits: what the button, the question and the answer say, and what it calls."""

    name: str
    button: str
    question: str
    done: str
    form: type[forms.Form]
    act: Callable[..., bool]


FORCE_OPEN = Deed(
    "force_open",
    "Force open",
    "Nothing is called until the time is over. Work that needs it waits and uses no attempts.",
    "forced open",
    ForceForm,
    partial(forcing.force, state=CircuitState.FORCED_OPEN),
)
FORCE_CLOSED = Deed(
    "force_closed",
    "Force closed",
    "Every call is let through until the time is over, however many fail. Failures cost attempts.",
    "forced closed",
    ForceForm,
    partial(forcing.force, state=CircuitState.FORCED_CLOSED),
)
RELEASE = Deed(
    "release",
    "Release",
    "The breaker decides again. What was forced open is tried with one call first.",
    "released",
    ReleaseForm,
    forcing.release,
)


def _kind(name: str, meaning: str, example: str) -> Key:
    # A circuit is called `llm:openai`: pasted whole, it is a search already.
    return Key(lambda text: Q(name__startswith=f"{name}:{text}"), meaning, example)


def _named(words: Sequence[str]) -> Q:
    found = Q()
    for word in words:
        found &= Q(name__icontains=word)
    return found


@admin.register(Circuit)
class CircuitAdmin(SearchGrammar, KeysetAdmin, ReadOnlyAdmin):
    change_form_template = "admin/criticizer/circuit/change_form.html"
    list_display = (
        titled("name", "name", "path"),
        "shown_state",
        "why",
        titled("changed_at", "changed"),
        titled("retry_at", "until"),
        "waiting",
    )
    orderings = {"name": Ordering("Name", ("name",))}
    search_keys = {
        "state": exact("state", "The state; several with commas", choices=CircuitState.choices),
        "llm": _kind("llm", "The language model", "openai"),
        "provider": _kind("provider", "What messages go through", "webhook"),
        "changed": age("changed_at", "How long ago its state changed", example="<1h"),
    }
    search_words = Words(_named, "the name")
    starting_views = {
        "Not closed": "q=-state%3Aclosed",
        "Forced": "q=state%3Aforced_open%2Cforced_closed",
    }
    empty_text = "Nothing was called yet. Each server that is called gets a circuit with its first call."
    actions = ("force_open", "force_closed", "release")
    fields = readonly_fields = ("shown_state",)  # change_form.html shows the whole circuit

    @admin.display(description="state", ordering="state")
    def shown_state(self, circuit: Circuit) -> SafeString:
        return chip(CIRCUIT_LOOKS[CircuitState(circuit.state)], circuit.get_state_display())

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

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        circuit = self.get_object(request, unquote(object_id))  # names hold colons
        shown: dict[str, Any] = {}
        if isinstance(circuit, Circuit):
            shown = {
                "title": circuit.name,
                "subtitle": None,
                "circuit": circuit,
                "shown_state": self.shown_state(circuit),
                "waiting": self.waiting(circuit),
                "pace": Pace.objects.filter(pk=circuit.name).first(),
                "events": CircuitEvent.objects.filter(name=circuit.name).order_by("-id")[:MAX_EVENTS],
                "deeds": _deeds(circuit) if self.has_force_permission(request) else (),
            }
        return super().change_view(request, object_id, form_url, {**shown, **(extra_context or {})})

    # -- actions ------------------------------------------------------------------------------

    def has_force_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("criticizer.force_circuit"))

    @admin.action(description=f"{FORCE_OPEN.button}\u2026", permissions=["force"])
    def force_open(self, request: HttpRequest, queryset: QuerySet[Circuit]) -> HttpResponseBase | None:
        return self._ask_then(FORCE_OPEN, request, queryset)

    @admin.action(description=f"{FORCE_CLOSED.button}\u2026", permissions=["force"])
    def force_closed(self, request: HttpRequest, queryset: QuerySet[Circuit]) -> HttpResponseBase | None:
        return self._ask_then(FORCE_CLOSED, request, queryset)

    @admin.action(description=f"{RELEASE.button}\u2026", permissions=["force"])
    def release(self, request: HttpRequest, queryset: QuerySet[Circuit]) -> HttpResponseBase | None:
        return self._ask_then(RELEASE, request, queryset)

    def _ask_then(
        self, deed: Deed, request: HttpRequest, chosen: QuerySet[Circuit]
    ) -> HttpResponseBase | None:
        """Ask why and how long; with an answer, act on exactly the circuits that the question listed."""
        is_answer = "confirmed" in request.POST
        form = deed.form(request.POST if is_answer else None)
        names = (
            request.POST.getlist(ACTION_CHECKBOX_NAME)
            if is_answer
            else list(chosen.values_list("pk", flat=True)[: MAX_CIRCUITS + 1])
        )
        if len(names) > MAX_CIRCUITS:
            self.message_user(request, f"Choose at most {MAX_CIRCUITS} circuits at a time.", messages.ERROR)
            return None
        if not form.is_valid():
            return self._question(deed, request, names, form)
        given = {"actor": request.user.get_username(), "reason": form.cleaned_data["reason"]}
        if "minutes" in form.cleaned_data:
            given["seconds"] = form.cleaned_data["minutes"] * 60
        done = [name for name in names if deed.act(name, **given)]
        skipped = len(names) - len(done)
        text = f"{len(done)} {deed.done}: {', '.join(done)}" if done else f"0 {deed.done}"
        if skipped:
            text += f"; {skipped} skipped: not forced, or not there any more"
        self.message_user(request, f"{text}.", messages.WARNING if skipped else messages.SUCCESS)
        return None

    def _question(
        self, deed: Deed, request: HttpRequest, names: Sequence[str], form: forms.Form
    ) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": deed.button,
            "opts": self.opts,
            "deed": deed,
            "form": form,
            "circuits": [
                (circuit, self.shown_state(circuit))
                for circuit in Circuit.objects.filter(pk__in=names).order_by("name")
            ],
        }
        return TemplateResponse(request, "admin/criticizer/circuit/confirm.html", context)


def _deeds(circuit: Circuit) -> tuple[Deed, ...]:
    return (FORCE_OPEN, FORCE_CLOSED, *((RELEASE,) if circuit.state in FORCED else ()))
