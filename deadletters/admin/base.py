"""Shared base of the five lists of dead letters: open rows first, row pages and row actions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.views.decorators.cache import never_cache

from criticizer.admin_site.bulk_actions import AdminForm, ConfirmedActionsMixin
from criticizer.admin_site.keyset import BY, KeysetAdmin, KeysetChangeList
from criticizer.admin_site.search_query import SearchProblem, Term, parse
from criticizer.live_pages import BUSY_SECONDS, live_answer
from deadletters.admin.forms import ReasonForm, RowVersion
from deadletters.models import DeadLetterEvent, DeadLetterGroupEvent
from deadletters.states import NO_STEP, EventSource
from deadletters.types import SYSTEM, Result

OPEN, ALL = "open", "all"
MAX_CHANGES_SHOWN = 10
_IDS_PER_QUERY = 1000
_AGO = re.compile(r"(<time [^>]*>)[^<]*")


@dataclass(frozen=True, slots=True)
class RowAction:
    """An action on one row, on a page of its own at `<key>/<name>/` that asks for a reason.

    `act(key, actor=..., reason=..., row_version=...)` returns a `Result`. `why_not(row, user)` returns
    why this user cannot take it, or an empty string.
    """

    name: str
    label: str
    question: str
    act: Callable[..., Result]
    permission: str
    why_not: Callable[[Any, Any], str]
    is_final: bool = False

    def is_offered(self, row: Any, user: Any) -> bool:
        return bool(user.has_perm(self.permission)) and not self.why_not(row, user)


class OpenFirst(KeysetChangeList):
    """List that shows open rows by default, and closed ones too when a search names rows.

    A search for a changelist asks for its outcome, closed or not; a search for a kind of failure asks
    for what is left to do. For the latter the list links to the closed rows (`wider_url`).
    """

    # Keys of the search that name rows; "" stands for words without a key.
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
        return any(self._names(term) for term in terms)

    def _names(self, term: Term) -> bool:
        # "Not this state" is about all rows; "not this changelist" still about the open ones.
        return term.key in self.named_by and (not term.is_negated or term.key == "state")

    @property
    def orders(self) -> list[tuple[str, str, bool]]:
        """Return (title, URL, is selected) of each ordering.

        Each URL names its ordering, because a search may choose "all" by itself.
        """
        return [
            (ordering.title, self.get_query_string({BY: name}), name == self.ordering_name)
            for name, ordering in self.model_admin.orderings.items()
        ]

    @property
    def wider_url(self) -> str:
        """Return the URL of this search over closed rows; "" if it covers them or is invalid."""
        is_narrow = bool(self.ordering.where) and not self.queryset.query.is_empty()
        # Without a search, one cheap query tells whether there is anything at all.
        if not is_narrow or not (self.query or self.root_queryset.exists()):
            return ""
        return self.get_query_string({BY: ALL})


class DeadLetterPages(ConfirmedActionsMixin, KeysetAdmin):
    """Base of the five lists: a row has a page of its own, which GET shows and actions change.

    Where a POST goes: actions of the list to `ConfirmedActionsMixin.ask`, `row_actions` to
    `action_view` here, everything else to the view that `get_urls` of the list names.
    """

    row_page: Callable[..., HttpResponse]  # (request, row): the page of one row; see `changed_page`

    change_list_template = "admin/deadletters/change_list.html"
    row_actions: tuple[RowAction, ...] = ()
    gone_text = ""  # text appended to the "does not exist any more" message
    timeline: type[DeadLetterEvent | DeadLetterGroupEvent] | None = None
    timeline_of = ""  # the timeline's column that names the row
    live_templates: tuple[str, ...] = ()  # the parts of a row's page that change by themselves
    live_query: tuple[str, ...] = ()  # the parameters of the page that these depend on

    # -- pages --------------------------------------------------------------------------------

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if request.method not in {"GET", "HEAD"} or not self.has_view_permission(request, row):
            raise PermissionDenied
        return self.row_gone(request, object_id) if row is None else self.row_page(request, row)

    def row_gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return the answer for a row that does not exist."""
        text = f"That {self.opts.verbose_name} does not exist any more. {self.gone_text}".strip()
        self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(reverse("admin:index"))

    def changed_page(
        self, request: HttpRequest, row: Any, version: RowVersion, form: AdminForm | None = None
    ) -> HttpResponse:
        """Return the page of a row that changed after its form was made; status 409."""
        return self.row_page(request, row, form, changed=events_since(row, version))

    def render(
        self, request: HttpRequest, template: str, context: Mapping[str, Any], status: int = 200
    ) -> TemplateResponse:
        shared = {**self.admin_site.each_context(request), "opts": self.opts}
        page = f"admin/deadletters/{self.opts.model_name}/{template}"
        return TemplateResponse(request, page, {**shared, **context}, status=status)

    def report(self, request: HttpRequest, result: Result) -> None:
        """Show the result of an action on the next page."""
        text = (
            sentence(result.message) if result.ok else f"Nothing was changed: {result.message.rstrip('.')}."
        )
        self.message_user(request, text, messages.SUCCESS if result.ok else messages.WARNING)

    def back(self, request: HttpRequest, pk: Any, result: Result | None = None) -> HttpResponseRedirect:
        """Redirect to the row's page, with the result as a message."""
        if result is not None:
            self.report(request, result)
        return HttpResponseRedirect(self.address_of(pk))

    # -- actions on one row -------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        return [*(self.url(a.name, partial(self.action_view, action=a)) for a in self.row_actions),
                *([self.url("live", never_cache(self.live_view))] if self.live_templates else []),
                *super().get_urls()]  # fmt: skip

    def url(self, name: str, view: Callable[..., HttpResponse]) -> Any:
        """Return the URL `<key>/<name>/` of a view."""
        wrapped = self.admin_site.admin_view(view)
        return path(
            f"<int:pk>/{name.replace('_', '-')}/", wrapped, name=f"deadletters_{self.opts.model_name}_{name}"
        )

    def buttons(self, request: HttpRequest, row: Any) -> list[dict[str, str]]:
        """Return the label and address of each action that this user may take now."""
        view = f"admin:deadletters_{self.opts.model_name}_"
        return [
            {"label": action.label, "address": reverse(f"{view}{action.name}", args=[row.pk])}
            for action in self.row_actions
            if action.is_offered(row, request.user)
        ]

    def action_view(self, request: HttpRequest, pk: int, action: RowAction) -> HttpResponse:
        """Show the page of an action; POST with a reason takes it."""
        if not request.user.has_perm(action.permission):
            raise PermissionDenied
        row = self.row(request, pk)
        if row is None:
            return self.back(request, pk)
        if problem := action.why_not(row, request.user):
            return self.back(request, pk, Result(False, problem))
        form, version = ReasonForm(request.POST or None), RowVersion(request.POST or None)
        if request.method == "POST":
            if self.is_stale(row, version):
                return self.changed_page(request, row, version)
            if form.is_valid():
                given = {"actor": request.user.get_username(), **self.version_of(row), **form.cleaned_data}
                try:
                    result = action.act(pk, **given)
                except self.model.DoesNotExist:
                    result = Result(False, f"the {self.opts.verbose_name} does not exist any more")
                return self.back(request, pk, result)
        return self.render(request, "act.html", self.action_context(request, row, action, form))

    def is_stale(self, row: Any, version: RowVersion) -> bool:
        """Return whether the row changed after the form was made."""
        return bool(given := self.version_of(row)) and (
            not version.is_valid() or version.cleaned_data["row_version"] != given["row_version"]
        )

    def version_of(self, row: Any) -> dict[str, int]:
        """Return the `row_version` that an action has to meet; nothing for rows without one."""
        return {}

    def action_context(
        self, request: HttpRequest, row: Any, action: RowAction, form: AdminForm
    ) -> dict[str, Any]:
        return {"title": action.label, "form": form, "action": action}

    # -- pages that update themselves (static/reviews/live.js asks, and patches what differs) -----

    def live_parts(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the context of the `live_templates`; they change while it has `goes_on`."""
        raise NotImplementedError

    def live_context(self, request: HttpRequest, parts: dict[str, Any]) -> dict[str, Any]:
        """Return what a page needs to ask for its parts again; nothing when they do not change."""
        if not parts["goes_on"]:
            return {}
        return {
            "live_seconds": BUSY_SECONDS,
            "live_have": digest(self._live_html(request, parts)),
            "live_query": urlencode({name: request.GET.get(name, "") for name in self.live_query}),
        }

    def live_rows(self, request: HttpRequest) -> Any:
        """Return the rows that may be asked for, with what their parts read besides."""
        return self.get_queryset(request)

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the changing parts of a page; 204 when the page has them as they are.

        While they change, the answer says when to ask again. The page sends its own query. It stops asking
        once a user has to act, so that no form is replaced while it is filled in.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        parts = self.live_parts(request, get_object_or_404(self.live_rows(request), pk=pk))
        html = self._live_html(request, parts)
        return live_answer(request, html, BUSY_SECONDS if parts["goes_on"] else 0, digest(html))

    def _live_html(self, request: HttpRequest, parts: dict[str, Any]) -> str:
        return "".join(render_to_string(template, parts, request) for template in self.live_templates)

    # -- rows that changed after the confirmation page --------------------------------------------

    def stamp(self) -> int:
        if self.timeline is None:
            return 0
        return self.timeline.objects.order_by("-id").values_list("pk", flat=True).first() or 0

    def changed_since(self, ids: Sequence[int], stamp: int) -> Mapping[int, str]:
        """Return rows that a user changed later; automatic steps of the service do not count."""
        if self.timeline is None:
            return {}
        key = self.timeline_of
        later = (
            self.timeline.objects.filter(pk__gt=stamp)
            .exclude(source=EventSource.SYSTEM)
            .exclude(source=EventSource.DELIVERY_RESOLUTION, actor=SYSTEM)
            .exclude(action__in=NO_STEP)
        )
        newest = later.order_by(key, "-id").distinct(key)
        found: dict[int, str] = {}
        for start in range(0, len(ids), _IDS_PER_QUERY):
            for event in newest.filter(**{f"{key}__in": ids[start : start + _IDS_PER_QUERY]}):
                found[getattr(event, key)] = f"{event.get_action_display().lower()} by {event.actor} since"
        return found


def sentence(text: str) -> str:
    """Return a message of the domain as a sentence."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def events_since(row: Any, version: RowVersion) -> list[Any]:
    """Return the row's events after its form was made, oldest first; only the newest of many."""
    seen = version.cleaned_data.get("seen") if version.is_valid() else None
    return list(row.events.filter(pk__gt=seen or 0).order_by("-id")[:MAX_CHANGES_SHOWN])[::-1]


def digest(html: str) -> str:
    """Return a digest of the parts, to tell whether they changed."""
    # The form's token is new in every answer, and the page itself updates "3 s ago".
    seen = [_AGO.sub(r"\1", line) for line in html.splitlines() if "csrfmiddlewaretoken" not in line]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]
