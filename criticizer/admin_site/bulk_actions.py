"""Actions on many rows: ask on a page of its own, then act on exactly the rows that it named.

The rows are frozen when the question is asked: with "select all" everything that matches the
filter, not what is on the page, and nothing that arrives between question and answer. They
travel signed in one field, so that neither the number of form fields nor a second look at the
filter decides what is acted on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core import signing
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.search_query import MAX_CHARACTERS
from criticizer.security import reauthentication
from criticizer.wording import plural_count

MAX_CHOSEN = 10_000
MAX_REASON = 500
MAX_NAMED = 50  # rows that the answer leads back to: a page of the list
MAX_SHOWN = 50  # rows that a question lists by name
MAX_REASONS = 5  # why rows are left alone, said in words
_ROOM_FOR_THE_KEY = 20
_ANSWER_WITHIN_SECONDS = 3600


class AdminForm(forms.Form):
    """A form of the console: labels without colons."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})


def reason_field(**kwargs: Any) -> forms.CharField:
    """Return the field that asks why; `kwargs` are those of a CharField."""
    given = {
        "min_length": 3,
        "max_length": MAX_REASON,
        "strip": True,
        "widget": forms.Textarea(attrs={"rows": 3}),
        "error_messages": {"required": "Say why first."},
        **kwargs,
    }
    return forms.CharField(**given)


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action did: to how many rows, and how many it left alone for which reason.

    `otherwise` counts rows that it changed in another way than its name says: words -> rows.
    `address` leads to what became of them; empty where the list itself shows it.
    """

    done: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    otherwise: Mapping[str, int] = field(default_factory=dict)
    address: str = ""
    link: str = "Show them"

    def sentence(self, verb: str) -> str:
        """Return such as `3 triaged, 1 skipped: it is discarded already`."""
        otherwise = [f"{count} {words}" for words, count in self.otherwise.items()]
        reasons = summarize_reasons(self.skipped, lambda count, reason: f"{count} skipped: {reason}")
        return ", ".join(filter(None, [f"{self.done} {verb}", *otherwise, reasons])) + "."


def summarize_reasons(reasons: Mapping[str, int], word: Callable[[int, str], str]) -> str:
    """Return reasons with how many rows each has, the most frequent first; the rare ones are only counted."""
    ranked = Counter(reasons).most_common()
    said = [word(count, reason) for reason, count in ranked[:MAX_REASONS]]
    if rest := ranked[MAX_REASONS:]:
        rows = sum(count for _, count in rest)
        said.append(f"and {rows} for {plural_count(len(rest), 'other reason')}")
    return "; ".join(said)


def count_results(results: Sequence[tuple[bool, str]]) -> ActionResult:
    """Add up (did it, what it said) of single rows."""
    refused = Counter(message for is_done, message in results if not is_done)
    return ActionResult(sum(is_done for is_done, _ in results), dict(refused))


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action: what the button, the question and the answer say, and what it calls.

    `act(ids, actor, cleaned form data)` returns an `ActionResult`. `refused(ids)` returns why rows are to be
    left alone before anybody is asked for a reason: row -> reason. `initial(ids)` returns what the form
    shows at first. `{what}` in `press` is "2 letters".
    """

    name: str
    button: str
    question: str
    done: str
    form: type[AdminForm]
    act: Callable[[Sequence[Any], str, Mapping[str, Any]], ActionResult]
    is_final: bool = False  # cannot be taken back: the button says so by its colour
    press: str = ""  # what the confirming button says, when it is not the name of the action
    refused: Callable[[Sequence[Any]], Mapping[Any, str]] = lambda _: {}
    initial: Callable[[Sequence[Any]], Mapping[str, Any]] = lambda _: {}

    def label(self, what: str) -> str:
        """Return what the confirming button says."""
        return self.press.format(what=what) if self.press else f"{self.button}: {what}"


class ConfirmedActionsMixin(admin.ModelAdmin[Any]):
    """Mixin: `ask` asks first. Subclasses say how their rows are called and shown."""

    nouns = ("row", "rows")
    confirm_template = "admin/confirm.html"
    max_chosen = MAX_CHOSEN

    def describe_filter(self, request: HttpRequest) -> str:
        """Say in words what the list was narrowed to when the rows were chosen."""
        return ""

    def rows_to_show(self, ids: Sequence[Any]) -> Any:
        """Return the first of the chosen rows, for the question."""
        return QuerySet(self.model).filter(pk__in=list(ids)[:MAX_SHOWN]).order_by("pk")

    def address_of(self, pk: Any) -> str:
        """Return where a single row is shown; the answer leads there."""
        raise NotImplementedError

    def address_of_set(self, ids: Sequence[Any]) -> str:
        """Return where the list shows just these rows; the answer to an action on many leads there."""
        return ""

    def stamp(self) -> int:
        """Return a number that tells what was decided before the question from what came after it."""
        return 0

    def changed_since(self, ids: Sequence[Any], stamp: int) -> Mapping[Any, str]:
        """Return the rows that somebody changed since the question, with who did what."""
        return {}

    def ask(self, deed: BulkAction, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponseBase | None:
        """Ask with the deed's form; with a valid answer act and say what was done."""
        is_answer = "selection" in request.POST
        if is_answer:
            ids, seen = self._thawed(request.POST["selection"])
        else:
            ids, seen = self._frozen(chosen), self.stamp()
        if ids is None:
            self.message_user(
                request, "That question is an hour old or was changed. Choose again.", messages.ERROR
            )
            return None
        if len(ids) > self.max_chosen:
            text = f"More than {self.max_chosen} {self.nouns[1]} are chosen. Narrow the list first."
            self.message_user(request, text, messages.ERROR)
            return None
        if not ids:
            self.message_user(request, f"There are no {self.nouns[1]} to act on.", messages.WARNING)
            return None
        form = deed.form(request.POST if is_answer else None, initial=deed.initial(ids))
        if not is_answer and len(refused := deed.refused(ids)) == len(ids):
            return self._refuse(deed, request, ids, refused)
        if not is_answer or not form.is_valid():
            return self._question(deed, request, ids, seen, form)
        changed = self.changed_since(ids, seen)
        going = [pk for pk in ids if pk not in changed]
        outcome = (
            deed.act(going, request.user.get_username(), form.cleaned_data) if going else ActionResult(0)
        )
        outcome = replace(outcome, skipped=Counter(outcome.skipped) + Counter(changed.values()))
        self.say(request, deed, outcome, ids)
        if len(ids) == 1 and not outcome.address:
            return HttpResponseRedirect(self.address_of(ids[0]))
        return HttpResponseRedirect(outcome.address) if outcome.address and outcome.done else None

    def _frozen(self, chosen: QuerySet[Any]) -> list[Any]:
        return list(chosen.values_list("pk", flat=True)[: self.max_chosen + 1])

    def _thawed(self, text: str) -> tuple[list[Any] | None, int]:
        """Return the rows of a question and its stamp; no rows when it is too old, or not of this list."""
        try:
            seen, *found = signing.loads(text, salt=self._salt, max_age=_ANSWER_WITHIN_SECONDS)
        except signing.BadSignature:
            return None, 0
        return found, int(seen)

    @property
    def _salt(self) -> str:
        return f"criticizer.selection.{self.opts.label_lower}"

    def say(self, request: HttpRequest, deed: BulkAction, outcome: ActionResult, ids: Sequence[Any]) -> None:
        """Put what was done, to how many, and what was skipped and why, where the next page shows it.

        What was acted on may not match the list's search any more: the message leads to it.
        """
        level = messages.WARNING if outcome.skipped or outcome.otherwise else messages.SUCCESS
        address, link = outcome.address, outcome.link
        if not address and len(ids) > 1:
            address, link = link_to_rows(ids, self.nouns[1], self.address_of_set)
        self.message_user(request, message_with_link(outcome.sentence(deed.done), address, link), level)

    def _refuse(
        self, deed: BulkAction, request: HttpRequest, ids: Sequence[Any], refused: Mapping[Any, str]
    ) -> HttpResponse | None:
        """Say at once that nothing can be done, and why, without asking for a reason first."""
        said = next(iter(refused.values())) if len(ids) == 1 else self._left_alone(refused)
        text = f"{deed.button} is not possible now: {said}."
        self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self.address_of(ids[0])) if len(ids) == 1 else None

    def _left_alone(self, refused: Mapping[Any, str]) -> str:
        return summarize_reasons(
            Counter(refused.values()), lambda count, why: f"{count} {self.nouns[count != 1]}, {why}"
        )

    def _question(
        self, deed: BulkAction, request: HttpRequest, ids: Sequence[Any], seen: int, form: AdminForm
    ) -> TemplateResponse:
        number = len(ids)
        noun = self.nouns[number != 1]
        across = is_everything(request)
        context = {
            **self.admin_site.each_context(request),
            "title": deed.button,
            "opts": self.opts,
            "deed": deed,
            "form": form,
            "rows": self.rows_to_show(ids),
            "number": number,
            "hidden_rows": max(0, number - MAX_SHOWN),
            "noun": noun,
            "press": deed.label(f"{number} {noun}"),
            "refused": self._left_alone(deed.refused(ids)),
            "is_everything": across,
            "filter": self.describe_filter(request) if across else "",
            "selection": signing.dumps([seen, *ids], salt=self._salt, compress=True),
            "back": request.get_full_path(),
            **self._password_first(request, ids),
        }
        return TemplateResponse(request, self.confirm_template, context)

    def _password_first(self, request: HttpRequest, ids: Sequence[Any]) -> dict[str, Any]:
        """Say whether the answer would be turned away, and lead back to the list of the same rows."""
        is_named = not is_everything(request) and len(_named(ids)) == len(ids)
        back = (self.address_of_set(ids) if is_named else "") or request.get_full_path()
        view = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
        return reauthentication.asking(request, view, back)


def message_with_link(text: str, address: str, link: str) -> SafeString | str:
    """Return a message that ends with a link, when there is an address."""
    return format_html_fast('{} <a href="{}">{}</a>.', text, address, link) if address else text


def link_to_rows(
    ids: Sequence[Any], noun: str, address_of_set: Callable[[Sequence[Any]], str]
) -> tuple[str, str]:
    """Return where the list shows rows, or as many of them as a search can name, and what the link says."""
    shown = _named(ids)
    which = "these" if len(shown) == len(ids) else "the first"
    return address_of_set(shown), f"Show {which} {len(shown)} {noun}"


def _named(ids: Sequence[Any]) -> Sequence[Any]:
    """Return the first of the rows, as many as a search can name."""
    shown = ids[:MAX_NAMED]
    while len(",".join(map(str, shown))) > MAX_CHARACTERS - _ROOM_FOR_THE_KEY:
        shown = shown[:-1]
    return shown


def is_everything(request: HttpRequest) -> bool:
    """Say whether all that matches the list's search was chosen, rather than rows of the page."""
    return request.POST.get("select_across") == "1"
