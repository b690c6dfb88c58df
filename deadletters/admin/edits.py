"""Edits of letters in the console: what waits for a second person, and what became of each.

`edits` writes the states; an approval makes the change and the letter's next generation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column, state_column
from criticizer.admin_site.keyset import KeysetAdmin, Ordering
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.search_query import age, exact, number
from deadletters.admin.default_open_list import OpenFirst
from deadletters.admin.edit_page import difference
from deadletters.admin.forms import ReasonForm
from deadletters.admin.page_mixins import PageAdmin, say
from deadletters.edits import edit_requests
from deadletters.models import DeadLetter, LetterEdit
from deadletters.states import EditStatus
from deadletters.types import Result


@dataclass(frozen=True, slots=True)
class EditAction:
    """What somebody decides about an edit on a page of its own, with a reason."""

    name: str
    label: str
    question: str
    act: Callable[..., Result]
    permission: str
    is_own: bool = False  # only for who asked; otherwise only for everybody else
    is_final: bool = False


DECISIONS = {
    decision.name: decision
    for decision in (
        EditAction(
            "approve",
            "Approve the edit",
            "The job has its new data at once. The letter is closed and lives on as a new one, which is "
            "validated and replayed as every letter; nothing is replayed by this.",
            edit_requests.approve,
            "deadletters.approve_letteredit",
        ),
        EditAction(
            "refuse",
            "Refuse the edit",
            "Nothing changes. Another edit of the letter can be asked for.",
            edit_requests.refuse,
            "deadletters.approve_letteredit",
            is_final=True,
        ),
        EditAction(
            "withdraw",
            "Withdraw the edit",
            "Nothing changes. Another edit of the letter can be asked for.",
            edit_requests.withdraw,
            "deadletters.replay_deadletter",
            is_own=True,
            is_final=True,
        ),
    )
}


@admin.register(LetterEdit)
class LetterEditAdmin(PageAdmin, KeysetAdmin):
    """The edits, those that wait first, and the page of one."""

    change_list_template = "admin/deadletters/change_list.html"
    empty_text = (
        "No edit waits. Where DEADLETTER_EDIT allows it, “Edit the data” on a letter's page asks for one, "
        "and somebody else decides about it here."
    )
    none_open = "None waits for approval."
    list_display = (
        "what",
        "state",
        "letter_number",
        "requested_by",
        list_column("requested_at", "requested"),
        list_column("decided_by", "decided by"),
    )
    orderings = {
        "open": Ordering("Waiting for approval, oldest first", ("id",), Q(status=EditStatus.REQUESTED.value)),
        "all": Ordering("All, newest first", ("-id",)),
    }
    search_keys = {
        "state": exact("status", "How far it is", choices=EditStatus.choices),
        "letter": number("letter_id", "The letter's number", example="17"),
        "by": exact("requested_by", "Who asked for it", example="ann"),
        "decided": exact("decided_by", "Who decided", example="bob"),
        "age": age("requested_at", "How long ago it was asked for"),
    }
    state = state_column("status")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        return OpenFirst

    @admin.display(description="what for")
    def what(self, edit: LetterEdit) -> SafeString:
        return format_html_fast('<span class="cause">{}</span>', edit.reason[:160])

    @admin.display(description="letter")
    def letter_number(self, edit: LetterEdit) -> int:
        return edit.letter_id

    def get_urls(self) -> list[Any]:
        return [
            *(
                path(
                    f"<int:edit_id>/{name}/",
                    self.admin_site.admin_view(partial(self.decide_view, name=name)),
                    name=f"deadletters_letteredit_{name}",
                )
                for name in DECISIONS
            ),
            *super().get_urls(),
        ]

    def row_page(self, request: HttpRequest, row: LetterEdit) -> HttpResponse:
        context = {
            **self._context(request, row),
            "title": f"Edit of letter {row.letter_id}",
            "off": ""
            if settings.DEADLETTER_EDIT or row.status != EditStatus.REQUESTED
            else edit_requests.OFF,
            "deeds": [
                {
                    "label": decision.label,
                    "address": reverse(f"admin:deadletters_letteredit_{decision.name}", args=[row.pk]),
                }
                for decision in DECISIONS.values()
                if not _why_not(request, row, decision)
            ],
        }
        return TemplateResponse(request, "admin/deadletters/letteredit/change_form.html", context)

    def decide_view(self, request: HttpRequest, edit_id: int, name: str) -> HttpResponse:
        """Ask for a reason, then approve, refuse or withdraw."""
        decision = DECISIONS[name]
        if not request.user.has_perm(decision.permission):
            raise PermissionDenied
        edit = LetterEdit.objects.filter(pk=edit_id).first()
        if edit is None:
            return self._back(edit_id)
        if problem := _why_not(request, edit, decision):
            return self._said(request, edit, Result(False, problem))
        form = ReasonForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            actor, reason = request.user.get_username(), form.cleaned_data["reason"]
            return self._said(request, edit, decision.act(edit.pk, actor=actor, reason=reason))
        context = {
            **self._context(request, edit),
            "title": decision.label,
            "form": form,
            "question": decision.question,
            "is_final": decision.is_final,
        }
        return TemplateResponse(request, "admin/deadletters/letteredit/act.html", context)

    def _context(self, request: HttpRequest, edit: LetterEdit) -> dict[str, Any]:
        letter = DeadLetter.objects.select_related("job").filter(pk=edit.letter_id).first()
        successor = DeadLetter.objects.filter(parent=edit.letter_id).values_list("pk", flat=True).first()
        data = edit_requests.fields(letter) if letter else []
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": edit,
            "edit": edit,
            "letter": letter,
            "successor": successor if edit.status == EditStatus.APPLIED else None,
            "difference": difference(data, edit_requests.change_asked_for(edit)),
        }

    def _back(self, edit_id: int) -> HttpResponseRedirect:
        return HttpResponseRedirect(reverse("admin:deadletters_letteredit_change", args=[edit_id]))

    def _said(self, request: HttpRequest, edit: LetterEdit, result: Result) -> HttpResponseRedirect:
        say(self, request, result, "Nothing was changed")
        return self._back(edit.pk)


def _why_not(request: HttpRequest, edit: LetterEdit, decision: EditAction) -> str:
    """Return why this person cannot decide so about an edit, or an empty string."""
    if not request.user.has_perm(decision.permission):
        return "you may not decide about edits"
    if edit.status != EditStatus.REQUESTED:
        return f"the edit is {edit.get_status_display().lower()}"
    is_own = edit.requested_by == request.user.get_username()
    if decision.is_own and not is_own:
        return f"only {edit.requested_by} can withdraw it"
    if is_own and not decision.is_own:
        return "who asked for an edit neither approves nor refuses it"
    return edit_requests.OFF if decision.name == "approve" and not settings.DEADLETTER_EDIT else ""
