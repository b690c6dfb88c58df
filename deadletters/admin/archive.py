"""Admin of the archive: its files, the dead letters in them, and restoring."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column
from criticizer.admin_site.bulk_actions import (
    ActionResult,
    link_to_rows,
    message_with_link,
)
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import Key, SearchProblem, age, number, row_number
from criticizer.admin_site.viewing_scope import across_reviews
from criticizer.resilience.failures import kind_with_code
from criticizer.wording import plural_count
from deadletters.admin.archive_files import (
    EVENTS_SHOWN,
    Opened,
    as_letter,
    entry_of,
    events_of,
    events_since,
    file_address,
    jobs_of,
    lines_of,
    opened,
)
from deadletters.admin.base import DeadLetterPages
from deadletters.admin.forms import ReasonForm
from deadletters.admin.letter_page import facts_of
from deadletters.models import DeadLetter, LetterArchive
from deadletters.retention import letter_archive
from deadletters.states import LetterStatus

LETTERS_PER_PAGE = 50
MAX_LOOKED_FOR = 50  # letters that one search names


def _holds(text: str) -> Q:
    """Return the condition "holds one of these letters".

    Raises SearchProblem for text that is not a number, and for too many numbers.
    """
    parts = text.split(",")
    if None in map(row_number, parts):
        raise SearchProblem(f"\u201c{text}\u201d is not a number. Enter a number, for example 2976")
    if len(parts) > MAX_LOOKED_FOR:
        raise SearchProblem(f"more than {MAX_LOOKED_FOR} dead letters. Search for fewer at a time")
    found = Q()
    for part in parts:
        found |= letter_archive.holding(int(part))
    return found


@admin.register(LetterArchive)
class LetterArchiveAdmin(DeadLetterPages):
    """The files of the archive, the page of one, and the page of a letter in it."""

    scope = across_reviews("files with dead letters of many reviews")
    empty_text = "No dead letter has been archived yet."
    list_display = (
        "file",
        "letters",
        "untouched",
        "restored",
        list_column("created_at", "archived"),
    )
    orderings = {"latest": Ordering("Latest first", ("-id",))}
    search_keys = {
        "letter": Key(_holds, "The file that holds this dead letter", "2976"),
        "untouched": number("untouched_count", "The number that were never triaged", example=">0"),
        "restored": number("restored_count", "The number that were restored", example=">0"),
        "age": age("created_at", "How long ago it was archived"),
    }
    starting_views = {"Never triaged": "q=untouched%3A%3E0"}

    @admin.display(description="file")
    def file(self, found: LetterArchive) -> SafeString:
        return format_html_fast('<span class="path">{}</span>', found.name)

    # On a telephone rows are shown without headings, so each cell is a phrase.

    @admin.display(description="dead letters")
    def letters(self, found: LetterArchive) -> SafeString:
        words = plural_count(found.letter_count, "dead letter")
        return format_html_fast('{} <span class="quiet">{}</span>', words, _numbers(found))

    @admin.display(description="untouched", empty_value="")
    def untouched(self, found: LetterArchive) -> str:
        count = found.untouched_count
        return "" if count is None else f"{count or 'none'} never triaged"

    @admin.display(description="restored")
    def restored(self, found: LetterArchive) -> str:
        return f"{found.restored_count or 'none'} restored"

    def has_restore_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("deadletters.restore_letterarchive"))

    def get_urls(self) -> list[Any]:
        return [self.url("restore", self.restore_view), *super().get_urls()]

    # -- pages --------------------------------------------------------------------------------

    def row_page(self, request: HttpRequest, row: LetterArchive) -> HttpResponse:
        file = opened(row)
        wanted = _letter_of(request)
        if wanted is not None and not file.problem:
            return self._letter_page(request, row, file, wanted)
        page = Paginator(file.entries, LETTERS_PER_PAGE).get_page(request.GET.get("page"))
        context = {
            "title": f"Dead letters {_numbers(row)} of the archive",
            "file": file,
            "page": page,
            "lines": lines_of(row, list(page.object_list)),
            "numbers": _numbers(row),
        }
        return self._page(request, row, "change_form.html", context)

    def _letter_page(
        self, request: HttpRequest, row: LetterArchive, file: Opened, letter_id: int
    ) -> HttpResponse:
        entry = entry_of(file, letter_id)
        if entry is None:
            self.message_user(request, f"This file does not hold dead letter {letter_id}.", messages.WARNING)
            return HttpResponseRedirect(file_address(row.pk))
        letter, payload = as_letter(entry), entry["payload"] or {}
        context = {
            "title": f"Dead letter {letter.pk} as archived",
            "letter": letter,
            "job_name": jobs_of([letter.job_id]).get(letter.job_id, ""),
            "status": LetterStatus(letter.status).label,
            "kind": kind_with_code(letter.code),
            "now": DeadLetter.objects.filter(pk=letter.pk).first(),
            "facts": facts_of(letter),
            "context_facts": sorted((payload.get("sanitized_context") or {}).items()),
            "last_stack": payload.get("last_stack", ""),
            "events": events_of(entry),
            "events_since": events_since(entry),
            "events_hidden": max(0, len(entry["events"]) - EVENTS_SHOWN),
        }
        return self._page(request, row, "letter.html", context)

    def _page(
        self, request: HttpRequest, row: LetterArchive, template: str, context: dict[str, Any]
    ) -> HttpResponse:
        shared = {
            "original": row,
            "archive": row,
            "archive_address": file_address(row.pk),
            "may_restore": self.has_restore_permission(request),
        }
        return self.render(request, template, {**shared, **context})

    # -- restoring ----------------------------------------------------------------------------

    def restore_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the form for a reason; POST restores one letter of the file, or all of them."""
        if not self.has_restore_permission(request):
            raise PermissionDenied
        row = self.row(request, pk)
        if row is None:
            return self.row_gone(request, str(pk))
        wanted = _letter_of(request)
        file = opened(row)
        if file.problem or (wanted is not None and wanted not in file.ids):
            text = f"Nothing was restored: {file.problem or f'this file does not hold dead letter {wanted}'}."
            self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(file_address(row.pk))
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            return self._restore(request, row, wanted, form.cleaned_data["reason"])
        ids = [wanted] if wanted is not None else file.ids
        context = {
            "title": f"Restore dead letter {wanted}"
            if wanted is not None
            else "Restore all dead letters of the file",
            "wanted": wanted,
            "number": len(ids),
            "there": DeadLetter.objects.filter(pk__in=ids).count(),
            "cancel": file_address(row.pk, wanted),
            "form": form,
        }
        return self._page(request, row, "restore.html", context)

    def _restore(
        self, request: HttpRequest, row: LetterArchive, wanted: int | None, reason: str
    ) -> HttpResponse:
        letters = [wanted] if wanted is not None else []
        here = file_address(row.pk, wanted)
        try:
            back = letter_archive.restore(
                row, actor=request.user.get_username(), reason=reason, letters=letters
            )
        except letter_archive.ArchiveDamaged as error:
            self.message_user(request, f"Nothing was restored: {error}.", messages.ERROR)
            return HttpResponseRedirect(here)
        outcome = ActionResult(len(back.letters), Counter(back.skipped.values()))
        address, link = _address_of(back.letters)
        level = messages.WARNING if back.skipped else messages.SUCCESS
        self.message_user(request, message_with_link(outcome.sentence("restored"), address, link), level)
        return HttpResponseRedirect(here)


def _numbers(found: LetterArchive) -> str:
    first, last = found.first_letter, found.last_letter
    return str(first) if first == last else f"{first}\u2013{last}"


def _letter_of(request: HttpRequest) -> int | None:
    return row_number(request.GET.get("letter", ""))


def _address_of(ids: list[int]) -> tuple[str, str]:
    """Return the address of restored letters, and the text of the link."""
    if not ids:
        return "", ""
    if len(ids) == 1:
        return reverse("admin:deadletters_deadletter_change", args=ids), "Open it"
    return link_to_rows("deadletters.deadletter", "letter", ids, "dead letters")
