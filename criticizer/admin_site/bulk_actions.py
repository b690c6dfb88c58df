"""Actions on many rows: first a confirmation page, then exactly the rows that it named.

The selection is frozen when the confirmation page is shown: with "select all" everything that matches
the filter, not only the page, and nothing that arrives later. It travels signed in one form field, so
neither the number of fields nor a second run of the filter decides which rows are changed. A POST:

    changelist_view -> response_action (Django) -> get_actions -> ask: confirmation page, or act and redirect
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core import signing
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.search_query import MAX_CHARACTERS
from criticizer.admin_site.viewing_scope import ScopedAdmin, visible_to
from criticizer.security import reauthentication
from criticizer.wording import plural_count

MAX_CHOSEN = 10_000
MAX_REASON = 500
MAX_NAMED = 50  # rows that the message links to: a page of the list
MAX_SHOWN = 50  # rows that the confirmation page lists
MAX_REASONS = 5  # reasons for skipped rows that are written out
_ROOM_FOR_THE_KEY = 20
_VALID_SECONDS = 3600

Act = Callable[[Sequence[Any], str, Mapping[str, Any]], "ActionResult"]


class AdminForm(forms.Form):
    """A form of the admin: labels without colons."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})


def reason_field(**kwargs: Any) -> forms.CharField:
    """Return the field for the reason of an action; `kwargs` are those of a CharField."""
    given = {
        "min_length": 3,
        "max_length": MAX_REASON,
        "strip": True,
        "widget": forms.Textarea(attrs={"rows": 3}),
        "error_messages": {"required": "A reason is required."},
        **kwargs,
    }
    return forms.CharField(**given)


@dataclass(frozen=True, slots=True)
class ActionResult:
    """Result of an action: how many rows it changed, and how many it skipped and why.

    `otherwise` counts rows that it changed in another way than its name says: text -> rows.
    `address` links to the outcome; empty where the list itself shows it. `notes` are sentences to add.
    """

    done: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    otherwise: Mapping[str, int] = field(default_factory=dict)
    address: str = ""
    link: str = "Show them"
    notes: Sequence[str] = ()

    def sentence(self, verb: str) -> str:
        """Return a text such as `3 triaged, 1 skipped: it is discarded already.`"""
        otherwise = [f"{count} {text}" for text, count in self.otherwise.items()]
        reasons = summarize_reasons(self.skipped, lambda count, reason: f"{count} skipped: {reason}")
        counted = ", ".join(filter(None, [f"{self.done} {verb}", *otherwise, reasons]))
        return " ".join([f"{counted}.", *self.notes])


def _keys(rows: QuerySet[Any]) -> list[Any]:
    """Return the primary keys of rows as JSON can hold them."""
    return [pk if isinstance(pk, int) else str(pk) for pk in rows.values_list("pk", flat=True)]


def summarize_reasons(reasons: Mapping[str, int], text: Callable[[int, str], str]) -> str:
    """Return the reasons with their number of rows, the most frequent first.

    Rare reasons are only counted.
    """
    ranked = Counter(reasons).most_common()
    parts = [text(count, reason) for reason, count in ranked[:MAX_REASONS]]
    if rest := ranked[MAX_REASONS:]:
        rows = sum(count for _, count in rest)
        parts.append(f"and {rows} for {plural_count(len(rest), 'other reason')}")
    return "; ".join(parts)


def for_each(act: Callable[..., str]) -> Act:
    """Return the `act` of an action that calls `act(key, actor=..., **form data)` row by row.

    Each call returns why its row was skipped, or "" where it was changed.
    """

    def acting(ids: Sequence[Any], actor: str, given: Mapping[str, Any]) -> ActionResult:
        skipped = Counter(filter(None, [act(pk, actor=actor, **given) for pk in ids]))
        return ActionResult(len(ids) - skipped.total(), skipped)

    return acting


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action of a list: its texts, permission, form, and the function that performs it.

    `act(ids, actor, cleaned form data)` returns an `ActionResult`. `refused(ids)` returns row -> reason
    for rows that cannot be changed, before the form is shown. `initial(ids)` returns the form's initial
    data. `{what}` in `press` is "2 dead letters".
    """

    name: str
    button: str
    question: str
    done: str  # the verb of the message afterwards: "3 triaged"
    permission: str  # of the user: "deadletters.replay_deadletter"
    form: type[AdminForm]
    act: Act
    is_final: bool = False  # cannot be undone: the button has the colour of danger
    press: str = ""  # the confirming button, when it is not the name of the action
    refused: Callable[[Sequence[Any]], Mapping[Any, str]] = lambda _: {}
    initial: Callable[[Sequence[Any]], Mapping[str, Any]] = lambda _: {}

    def label(self, what: str) -> str:
        """Return the text of the confirming button."""
        return self.press.format(what=what) if self.press else f"{self.button}: {what}"


class ConfirmedActionsMixin(ScopedAdmin):
    """Mixin: offers `bulk_actions` in the list, each behind a confirmation page."""

    bulk_actions: tuple[BulkAction, ...] = ()
    nouns = ("row", "rows")
    max_chosen = MAX_CHOSEN
    rows_key = ""  # the search key by which the list shows just some rows: `letter:3,4`

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        def offered(action: BulkAction) -> Any:
            return lambda _, request, rows: self.ask(action, request, rows)

        own = {
            action.name: (offered(action), action.name, f"{action.button}\u2026")
            for action in self.bulk_actions
            if request.user.has_perm(action.permission)
        }
        return {**super().get_actions(request), **own}

    def rows_to_show(self, ids: Sequence[Any]) -> Any:
        """Return the first of the chosen rows, for the confirmation page."""
        return QuerySet(self.model).filter(pk__in=list(ids)[:MAX_SHOWN]).order_by("pk")

    def address_of(self, pk: Any) -> str:
        """Return the address of a row's page."""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[quote(pk)])

    def stamp(self) -> int:
        """Return a number that tells events before the confirmation page from later ones."""
        return 0

    def changed_since(self, ids: Sequence[Any], stamp: int) -> Mapping[Any, str]:
        """Return the rows that another user changed since the confirmation page, with who did what."""
        return {}

    def ask(self, action: BulkAction, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponseBase | None:
        """Show the confirmation page; with a valid form, act and report the result."""
        is_answer = "selection" in request.POST
        if is_answer:
            ids, seen = self._unsigned(request.POST["selection"])
            if ids and visible_to(request.user) is not None:  # it may be another user's answer
                seen_rows = set(_keys(self.get_queryset(request).filter(pk__in=ids)))
                ids = [pk for pk in ids if pk in seen_rows]
        else:
            ids, seen = _keys(chosen[: self.max_chosen + 1]), self.stamp()
        if problem := self._selection_problem(ids):
            self.message_user(request, problem, messages.ERROR)
            return None
        assert ids is not None
        form = action.form(request.POST if is_answer else None, initial=action.initial(ids))
        if not is_answer and len(refused := action.refused(ids)) == len(ids):
            return self._refuse(action, request, ids, refused)
        if not is_answer or not form.is_valid():
            return self._confirmation_page(action, request, ids, seen, form)
        changed = self.changed_since(ids, seen)
        left = [pk for pk in ids if pk not in changed]
        result = action.act(left, request.user.get_username(), form.cleaned_data) if left else ActionResult(0)
        result = replace(result, skipped=Counter(result.skipped) + Counter(changed.values()))
        self._report(request, action, result, ids)
        if len(ids) == 1 and not result.address:
            return HttpResponseRedirect(self.address_of(ids[0]))
        return HttpResponseRedirect(result.address) if result.address and result.done else None

    def _selection_problem(self, ids: Sequence[Any] | None) -> str:
        if ids is None:
            return "This confirmation has expired. Select the rows again."
        if not ids:
            return f"No {self.nouns[1]} are selected. Select some and try again."
        if len(ids) > self.max_chosen:
            return f"More than {self.max_chosen} {self.nouns[1]} are selected. Narrow the list first."
        return ""

    def _unsigned(self, text: str) -> tuple[list[Any] | None, int]:
        """Return the selection and its stamp; None when it is too old, or of another list."""
        try:
            seen, *found = signing.loads(text, salt=self._salt, max_age=_VALID_SECONDS)
        except signing.BadSignature:
            return None, 0
        return found, int(seen)

    @property
    def _salt(self) -> str:
        return f"criticizer.selection.{self.opts.label_lower}"

    def _report(
        self, request: HttpRequest, action: BulkAction, result: ActionResult, ids: Sequence[Any]
    ) -> None:
        """Put the result into a message that links to the rows.

        They may not match the search any more.
        """
        level = messages.WARNING if result.skipped or result.otherwise else messages.SUCCESS
        address, link = result.address, result.link
        if not address and len(ids) > 1:
            address, link = link_to_rows(self.opts.label_lower, self.rows_key, ids, self.nouns[1])
        self.message_user(request, message_with_link(result.sentence(action.done), address, link), level)

    def _refuse(
        self, action: BulkAction, request: HttpRequest, ids: Sequence[Any], refused: Mapping[Any, str]
    ) -> HttpResponse | None:
        """Report at once that no row can be changed, without the form."""
        reason = next(iter(refused.values())) if len(ids) == 1 else self._skipped(refused)
        text = f"{action.button} is not possible now: {reason}."
        self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self.address_of(ids[0])) if len(ids) == 1 else None

    def _skipped(self, refused: Mapping[Any, str]) -> str:
        return summarize_reasons(
            Counter(refused.values()), lambda count, reason: f"{count} {self.nouns[count != 1]}, {reason}"
        )

    def _confirmation_page(
        self, action: BulkAction, request: HttpRequest, ids: Sequence[Any], seen: int, form: AdminForm
    ) -> TemplateResponse:
        number = len(ids)
        noun = self.nouns[number != 1]
        across = is_everything(request)
        is_named = not across and len(_named(ids)) == len(ids)
        named = address_of_rows(self.opts.label_lower, self.rows_key, ids) if is_named else ""
        back = named or request.get_full_path()
        view = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
        context = {
            **self.admin_site.each_context(request),
            "title": action.button,
            "opts": self.opts,
            "action": action,
            "form": form,
            "rows": self.rows_to_show(ids),
            "number": number,
            "hidden_rows": max(0, number - MAX_SHOWN),
            "noun": noun,
            "press": action.label(f"{number} {noun}"),
            "refused": self._skipped(action.refused(ids)),
            "is_everything": across,
            "filter": request.GET.get("q", "") if across else "",
            "any_key": str(ids[0]),  # Django wants one; the selection counts
            "selection": signing.dumps([seen, *ids], salt=self._salt, compress=True),
            "back": request.get_full_path(),
            **reauthentication.password_notice(request, view, back),
        }
        template = f"admin/{self.opts.app_label}/{self.opts.model_name}/confirm.html"
        return TemplateResponse(request, template, context)


def address_of_rows(model: str, key: str, ids: Sequence[Any]) -> str:
    """Return where the list of `model` ("app.model") shows just these rows, closed ones as well.

    Without the `key` of a search that names rows, return "".
    """
    if not key:
        return ""
    query = {"q": f"{key}:{','.join(map(str, ids))}", "by": "all"}
    return reverse(f"admin:{model.replace('.', '_')}_changelist", query=query)


def message_with_link(text: str, address: str, link: str) -> SafeString | str:
    """Return a message that ends with a link, when there is an address."""
    return format_html_fast('{} <a href="{}">{}</a>.', text, address, link) if address else text


def link_to_rows(model: str, key: str, ids: Sequence[Any], noun: str) -> tuple[str, str]:
    """Return the address of a list of the rows, and the link's text.

    The list has as many of them as a search can name.
    """
    shown = _named(ids)
    which = "these" if len(shown) == len(ids) else "the first"
    return address_of_rows(model, key, shown), f"Show {which} {len(shown)} {noun}"


def _named(ids: Sequence[Any]) -> Sequence[Any]:
    """Return the first of the rows, as many as a search can name."""
    shown = ids[:MAX_NAMED]
    while len(",".join(map(str, shown))) > MAX_CHARACTERS - _ROOM_FOR_THE_KEY:
        shown = shown[:-1]
    return shown


def is_everything(request: HttpRequest) -> bool:
    """Return whether all that matches the list's search was chosen, not rows of the page."""
    return request.POST.get("select_across") == "1"
