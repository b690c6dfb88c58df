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
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.cells import fill
from deadletters.forms import Console
from deadletters.results import Result

MAX_CHOSEN = 10_000
MAX_SHOWN = 50  # rows that a question lists by name
_ANSWER_WITHIN_SECONDS = 3600
_SALT = "deadletters.selection"


@dataclass(frozen=True, slots=True)
class Sum:
    """What an action did: to how many rows, and how many it left alone for which reason.

    `address` leads to what became of them; empty where the list itself shows it.
    """

    done: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    address: str = ""
    link: str = "Show them"

    def sentence(self, verb: str) -> str:
        """Return such as `3 triaged, 1 skipped: already triaged by ann at 12:04`."""
        reasons = "; ".join(f"{count} skipped: {reason}" for reason, count in self.skipped.items())
        return f"{self.done} {verb}" + (f", {reasons}" if reasons else "") + "."


def summed(results: Sequence[tuple[bool, str]]) -> Sum:
    """Add up (did it, what it said) of single rows."""
    refused = Counter(message for is_done, message in results if not is_done)
    return Sum(sum(is_done for is_done, _ in results), dict(refused))


@dataclass(frozen=True, slots=True)
class Deed:
    """An action: what the button, the question and the answer say, and what it calls.

    `act(ids, actor, cleaned form data)` returns a `Sum`. `refused(ids)` returns why rows are known to be
    left alone before anybody is asked for a reason: row -> reason. `{what}` in `press` is "2 letters".
    """

    name: str
    button: str
    question: str
    done: str
    form: type[Console]
    act: Callable[[Sequence[int], str, Mapping[str, Any]], Sum]
    is_final: bool = False  # cannot be taken back: the button says so by its colour
    press: str = ""  # what the confirming button says, when it is not the name of the action
    refused: Callable[[Sequence[int]], Mapping[int, str]] = lambda _: {}

    def label(self, what: str) -> str:
        """Return what the confirming button says."""
        return self.press.format(what=what) if self.press else f"{self.button}: {what}"


class AskingAdmin(admin.ModelAdmin[Any]):
    """Mixin: `ask` asks first. Subclasses say how their rows are called and shown."""

    nouns = ("row", "rows")
    confirm_template = ""

    def describe_filter(self, request: HttpRequest) -> str:
        """Say in words what the list was narrowed to when the rows were chosen."""
        return ""

    def rows_to_show(self, ids: Sequence[int]) -> Any:
        """Return the first of the chosen rows, for the question."""
        return QuerySet(self.model).filter(pk__in=list(ids)[:MAX_SHOWN]).order_by("pk")

    def address_of(self, pk: int) -> str:
        """Return where a single row is shown; the answer leads there."""
        raise NotImplementedError

    def stamp(self) -> int:
        """Return a number that tells what was decided before the question from what came after it."""
        return 0

    def changed_since(self, ids: Sequence[int], stamp: int) -> Mapping[int, str]:
        """Return the rows that somebody changed since the question, with who did what."""
        return {}

    def ask(self, deed: Deed, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponseBase | None:
        """Ask with the deed's form; with a valid answer act and say what was done."""
        is_answer = "selection" in request.POST
        ids, seen = _thawed(request.POST["selection"]) if is_answer else (_frozen(chosen), self.stamp())
        if ids is None:
            self.message_user(
                request, "That question is an hour old or was changed. Choose again.", messages.ERROR
            )
            return None
        if len(ids) > MAX_CHOSEN:
            text = f"More than {MAX_CHOSEN} {self.nouns[1]} are chosen. Narrow the list first."
            self.message_user(request, text, messages.ERROR)
            return None
        if not ids:
            self.message_user(request, f"There are no {self.nouns[1]} to act on.", messages.WARNING)
            return None
        form = deed.form(request.POST if is_answer else None)
        if not is_answer and len(refused := deed.refused(ids)) == len(ids):
            return self._refuse(deed, request, ids, refused)
        if not is_answer or not form.is_valid():
            return self._question(deed, request, ids, seen, form)
        changed = self.changed_since(ids, seen)
        going = [pk for pk in ids if pk not in changed]
        outcome = deed.act(going, request.user.get_username(), form.cleaned_data)
        outcome = replace(outcome, skipped={**outcome.skipped, **Counter(changed.values())})
        self.say(request, deed, outcome)
        if len(ids) == 1 and not outcome.address:
            return HttpResponseRedirect(self.address_of(ids[0]))
        return HttpResponseRedirect(outcome.address) if outcome.address and outcome.done else None

    def say(self, request: HttpRequest, deed: Deed, outcome: Sum) -> None:
        """Put what was done, to how many, and what was skipped and why, where the next page shows it."""
        level = messages.SUCCESS if not outcome.skipped else messages.WARNING
        self.message_user(request, linked(outcome.sentence(deed.done), outcome.address, outcome.link), level)

    def _refuse(
        self, deed: Deed, request: HttpRequest, ids: Sequence[int], refused: Mapping[int, str]
    ) -> HttpResponse | None:
        """Say at once that nothing can be done, and why, without asking for a reason first."""
        reasons = "; ".join(f"{count} {self.nouns[count != 1]}: {why}" for why, count in _tally(refused))
        said = next(iter(refused.values())) if len(ids) == 1 else reasons
        text = f"{deed.button} is not possible yet: {said}."
        self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self.address_of(ids[0])) if len(ids) == 1 else None

    def _question(
        self, deed: Deed, request: HttpRequest, ids: Sequence[int], seen: int, form: Console
    ) -> TemplateResponse:
        number = len(ids)
        noun = self.nouns[number != 1]
        is_everything = request.POST.get("select_across") == "1"
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
            "refused": [(count, self.nouns[count != 1], why) for why, count in _tally(deed.refused(ids))],
            "is_everything": is_everything,
            "filter": self.describe_filter(request) if is_everything else "",
            "selection": signing.dumps([seen, *ids], salt=_SALT, compress=True),
            "back": request.get_full_path(),
        }
        return TemplateResponse(request, self.confirm_template, context)


def linked(text: str, address: str, link: str) -> SafeString | str:
    """Return a message that ends with a link, when there is an address."""
    return fill('{} <a href="{}">{}</a>.', text, address, link) if address else text


def sentence(text: str) -> str:
    """Return what the domain says as a sentence for people."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def say(
    desk: admin.ModelAdmin[Any], request: HttpRequest, result: Result, refused: str = "Nothing was done"
) -> None:
    """Tell on the next page what a step came to."""
    text = sentence(result.message) if result.ok else f"{refused}: {result.message.rstrip('.')}."
    desk.message_user(request, text, messages.SUCCESS if result.ok else messages.WARNING)


class PageAdmin(admin.ModelAdmin[Any]):
    """Mixin: a row has a page of its own, which is read here and changed by steps and actions."""

    gone_text = ""  # what else is said of a row that is not there

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
        if row is None:
            return gone(request, str(self.opts.verbose_name), self.gone_text)
        return self.row_page(request, row)

    def row_page(self, request: HttpRequest, row: Any) -> HttpResponse:
        """Return the page of one row."""
        raise NotImplementedError


def gone(request: HttpRequest, noun: str, more: str = "") -> HttpResponse:
    """Send somebody back who asks for a row that is not there, or not any more."""
    messages.warning(request, f"That {noun} does not exist any more. {more}".strip())
    return HttpResponseRedirect(reverse("admin:index"))


def when(moment: datetime) -> SafeString:
    """Return how long ago it was, with the exact moment in UTC in the tooltip."""
    return fill(
        '<time datetime="{}" title="{} UTC">{}</time>',
        moment.isoformat(timespec="seconds"),
        f"{moment:%Y-%m-%d %H:%M:%S}",
        naturaltime(moment),
    )


def _tally(reasons: Mapping[int, str]) -> list[tuple[str, int]]:
    return list(Counter(reasons.values()).items())


def _frozen(chosen: QuerySet[Any]) -> list[int]:
    return list(chosen.values_list("pk", flat=True)[: MAX_CHOSEN + 1])


def _thawed(text: str) -> tuple[list[int] | None, int]:
    """Return the rows of a question and its stamp; no rows when it is too old, or not one of ours."""
    try:
        seen, *found = signing.loads(text, salt=_SALT, max_age=_ANSWER_WITHIN_SECONDS)
    except signing.BadSignature:
        return None, 0
    return [int(pk) for pk in found], int(seen)
