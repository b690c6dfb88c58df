"""The page on which an operator asks for an edit of a letter's data: fill in, look at the difference, ask."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from deadletters import workflow
from deadletters.admin.edit_page import difference, digest
from deadletters.admin.forms import EditForm, RowVersion
from deadletters.admin.page_mixins import gone, say, sentence
from deadletters.edits import edit_requests
from deadletters.models import DeadLetter
from deadletters.ports import recovery
from deadletters.states import Category
from deadletters.types import Change, FieldKind, Result, WrongData


class EditRequests:
    """Mixin of the letters' admin: the view of one letter's edit."""

    def edit_view(self: Any, request: HttpRequest, letter_id: int) -> HttpResponse:
        """Show the data with what is locked, then the difference, then ask for its approval."""
        if not self.has_replay_permission(request):
            raise PermissionDenied
        letter = DeadLetter.objects.select_related("job").filter(pk=letter_id).first()
        if letter is None:
            return gone(request, "letter", self.gone_text)
        if problem := edit_requests.why_not(letter):
            return _back(self, request, letter, Result(False, problem))
        form = EditForm(request.POST or None, data=edit_requests.fields(letter))
        version = RowVersion(request.POST or None)
        if request.method != "POST":
            return _page(self, request, letter, form, None)
        if not version.is_valid() or version.cleaned_data["row_version"] != letter.row_version:
            changed: HttpResponse = self._changed(request, letter, None, version)
            return changed
        change = _change(letter, form) if form.is_valid() else None
        if change is None or not form.asks or request.POST.get("looked_at") != digest(change):
            return _page(self, request, letter, form, change)
        result = edit_requests.request(
            letter.pk,
            actor=request.user.get_username(),
            values=form.values(),
            reason=form.cleaned_data["reason"],
            row_version=letter.row_version,
        )
        return _back(self, request, letter, result)


def _change(letter: DeadLetter, form: EditForm) -> Change | None:
    """Return what the form wants changed; None, with the form's errors, where that cannot be."""
    try:
        change = edit_requests.change_of(letter, form.values())
    except WrongData as wrong:
        form.add_error(form.field_of(wrong.field), str(wrong))
        return None
    if change.before == change.after:
        form.add_error(None, "Nothing is changed yet.")
        return None
    if problem := recovery().why_not(letter.job_id, change):
        form.add_error(None, sentence(problem))
        return None
    return change


def _back(admin: Any, request: HttpRequest, letter: DeadLetter, result: Result) -> HttpResponse:
    say(admin, request, result)
    return HttpResponseRedirect(admin.address_of(letter.pk))


def _page(
    admin: Any, request: HttpRequest, letter: DeadLetter, form: EditForm, change: Change | None
) -> HttpResponse:
    data = edit_requests.fields(letter)
    category = workflow.suggested_category(letter.error_class)
    context = {
        **admin.admin_site.each_context(request),
        "title": "Edit the data",
        "opts": admin.opts,
        "letter": letter,
        "form": form,
        "locked": [field for field in data if field.kind is FieldKind.LOCKED],
        "may_ask": bool(form.field_names),
        "is_data": Category.DATA in (letter.category, category),
        "difference": difference(data, change) if change else [],
        "looked_at": digest(change) if change else "",
    }
    return TemplateResponse(request, "admin/deadletters/deadletter/edit.html", context)
