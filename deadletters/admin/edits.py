"""Admin of edits of dead letters: the requests, and their approval by a second person.

`edit_requests` writes the states; an approval changes the data and creates the letter's next generation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column, state_column
from criticizer.admin_site.bulk_actions import AdminForm
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import age, exact, number
from criticizer.admin_site.viewing_scope import of_whole_job
from deadletters import workflow
from deadletters.admin.base import DeadLetterPages, OpenFirst, RowAction, sentence
from deadletters.admin.forms import EditForm, RowVersion
from deadletters.admin.letter_actions import REPLAY
from deadletters.edits import edit_requests
from deadletters.models import DeadLetter, LetterEdit
from deadletters.ports import recovery
from deadletters.states import Category, EditStatus
from deadletters.types import Change, DataField, FieldKind, Result, WrongData

APPROVE = "deadletters.approve_letteredit"


def _why_not(name: str, edit: LetterEdit, user: Any) -> str:
    is_own = edit.requested_by == user.get_username()
    if edit.status != EditStatus.REQUESTED:
        return f"the edit is {edit.get_status_display().lower()}"
    if name == "withdraw":
        return "" if is_own else f"only {edit.requested_by} can withdraw it"
    if is_own:
        return f"you cannot {name} your own edit"
    return edit_requests.OFF if name == "approve" and not settings.DEADLETTER_EDIT else ""


_UNCHANGED = "Nothing changes. Another edit of the dead letter can be requested."
APPROVE_EDIT = RowAction(
    "approve",
    "Approve the edit",
    "The job gets its new data at once. The dead letter is closed and replaced by a new one, which is "
    "validated and replayed like any other; the approval replays nothing.",
    edit_requests.approve,
    APPROVE,
    partial(_why_not, "approve"),
)
REFUSE = RowAction(
    "refuse",
    "Refuse the edit",
    _UNCHANGED,
    edit_requests.refuse,
    APPROVE,
    partial(_why_not, "refuse"),
    is_final=True,
)
WITHDRAW = RowAction(
    "withdraw",
    "Withdraw the edit",
    _UNCHANGED,
    edit_requests.withdraw,
    REPLAY,
    partial(_why_not, "withdraw"),
    is_final=True,
)


@admin.register(LetterEdit)
class LetterEditAdmin(DeadLetterPages):
    """The edits, those that wait first, and the page of one."""

    scope = of_whole_job("letter__job")
    change_list = OpenFirst
    row_actions = (APPROVE_EDIT, REFUSE, WITHDRAW)
    empty_text = (
        "No edit yet. Where DEADLETTER_EDIT allows it, “Edit the data” on the page of a dead letter requests "
        "one, and another user approves or refuses it here."
    )
    none_open = "No edit waits for approval."
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
        "state": exact("status", "The state", choices=EditStatus),
        "letter": number("letter_id", "The dead letter's number", example="17"),
        "by": exact("requested_by", "Who requested it", example="ann"),
        "decided": exact("decided_by", "Who decided", example="bob"),
        "age": age("requested_at", "How long ago it was requested"),
    }
    state = state_column("status")

    @admin.display(description="what for")
    def what(self, edit: LetterEdit) -> SafeString:
        return format_html_fast('<span class="cause">{}</span>', edit.reason[:160])

    @admin.display(description="letter")
    def letter_number(self, edit: LetterEdit) -> int:
        return edit.letter_id

    def row_page(self, request: HttpRequest, row: LetterEdit) -> HttpResponse:
        is_off = not settings.DEADLETTER_EDIT and row.status == EditStatus.REQUESTED
        context = {
            **self._context(row),
            "title": f"Edit of dead letter {row.letter_id}",
            "off": edit_requests.OFF if is_off else "",
            "actions": self.buttons(request, row),
        }
        return self.render(request, "change_form.html", context)

    def action_context(
        self, request: HttpRequest, row: LetterEdit, action: RowAction, form: AdminForm
    ) -> dict[str, Any]:
        return {**super().action_context(request, row, action, form), **self._context(row)}

    def _context(self, edit: LetterEdit) -> dict[str, Any]:
        letter = DeadLetter.objects.select_related("job").filter(pk=edit.letter_id).first()
        successor = DeadLetter.objects.filter(parent=edit.letter_id).values_list("pk", flat=True).first()
        data = edit_requests.fields(letter) if letter else []
        return {
            "original": edit,
            "edit": edit,
            "letter": letter,
            "successor": successor if edit.status == EditStatus.APPLIED else None,
            "difference": difference(data, edit_requests.change_asked_for(edit)),
        }


# -- requesting an edit, from the page of a letter ---------------------------------------------------


def edit_view(letters: DeadLetterPages, request: HttpRequest, pk: int) -> HttpResponse:
    """Show the data with the locked fields, then the difference, then request its approval."""
    if not request.user.has_perm(REPLAY):
        raise PermissionDenied
    letter = letters.row(request, pk)
    if letter is None:
        return DeadLetterPages.row_gone(letters, request, str(pk))
    if problem := edit_requests.why_not(letter):
        return letters.back(request, pk, Result(False, problem))
    form = EditForm(request.POST or None, data=edit_requests.fields(letter))
    change = None
    if request.method == "POST":
        version = RowVersion(request.POST)
        if letters.is_stale(letter, version):
            return letters.changed_page(request, letter, version)
        change = _change(letter, form) if form.is_valid() else None
        if change is not None and form.asks and request.POST.get("looked_at") == digest_of(change):
            result = edit_requests.request(
                pk,
                actor=request.user.get_username(),
                values=form.values(),
                reason=form.cleaned_data["reason"],
                row_version=letter.row_version,
            )
            return letters.back(request, pk, result)
    data = edit_requests.fields(letter)
    context = {
        "title": "Edit the data",
        "letter": letter,
        "form": form,
        "locked": [field for field in data if field.kind is FieldKind.LOCKED],
        "may_ask": bool(form.field_names),
        "is_data": Category.DATA in (letter.category, workflow.suggested_category(letter.error_class)),
        "difference": difference(data, change) if change else [],
        "looked_at": digest_of(change) if change else "",
    }
    return letters.render(request, "edit.html", context)


def _change(letter: DeadLetter, form: EditForm) -> Change | None:
    """Return the change of the form's data; None, with errors in the form, if it is impossible."""
    try:
        change = edit_requests.change_of(letter, form.values())
    except WrongData as wrong:
        form.add_error(form.field_names.get(wrong.field), str(wrong))
        return None
    if change.before == change.after:
        form.add_error(None, "The data is unchanged. Change a field first.")
        return None
    if problem := recovery().why_not(letter.job_id, change):
        form.add_error(None, sentence(problem))
        return None
    return change


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One line of a field. `state` is kept, added or removed."""

    text: str
    state: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The lines of one field before and after an edit."""

    label: str
    lines: Sequence[FieldDifference]
    added: int
    removed: int


def difference(data: Sequence[DataField], change: Change) -> list[Difference]:
    """Return each field with the lines it keeps, loses and gets, in this order."""
    labels = {field.name: field.label for field in data}
    found = []
    for name, after in change.after.items():
        kept = [FieldDifference(text, "kept") for text in change.before.get(name, ()) if text in after]
        gone = [FieldDifference(text, "removed") for text in change.removed(name)]
        new = [FieldDifference(text, "added") for text in change.added(name)]
        label = labels.get(name, name.replace("_", " ").capitalize())
        found.append(Difference(label, [*gone, *new, *kept], len(new), len(gone)))
    return found


def digest_of(change: Change) -> str:
    """Return a digest of a change, to tell whether it is the one that was shown."""
    text = json.dumps([dict(change.before), dict(change.after)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
