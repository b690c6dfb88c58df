"""The archive in the console: files of removed letters, what is in them, and the way back."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column
from criticizer.admin_site.bulk_actions import count_results, link_to_rows, message_with_link
from criticizer.admin_site.keyset import KeysetAdmin, Ordering
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.search_query import Key, SearchProblem, age, number
from criticizer.resilience.failures import kind_with_code
from criticizer.wording import plural_count
from deadletters.admin import archive_page
from deadletters.admin.forms import ReasonForm
from deadletters.admin.letter_page import facts_of
from deadletters.admin.page_mixins import PageAdmin, address_of_letters
from deadletters.models import DeadLetter, LetterArchive
from deadletters.retention import letter_archive
from deadletters.states import LetterStatus

LETTERS_PER_PAGE = 50
MAX_LOOKED_FOR = 50  # letters that one search names
_TEMPLATES = "admin/deadletters/letterarchive"


def _holds(text: str) -> Q:
    """Return the condition "holds one of these letters". Raises SearchProblem for what is no number."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise SearchProblem(f"\u201c{text}\u201d is no number of a letter such as 2976")
    if len(parts) > MAX_LOOKED_FOR:
        raise SearchProblem(f"more than {MAX_LOOKED_FOR} letters are too many at once")
    found = Q()
    for part in parts:
        found |= letter_archive.holding(int(part))
    return found


@admin.register(LetterArchive)
class LetterArchiveAdmin(PageAdmin, KeysetAdmin):
    """The files of the archive, the page of one, and the page of a letter in it."""

    change_list_template = "admin/deadletters/change_list.html"
    empty_text = "No dead letter has been removed by retention yet."
    list_display = (
        "file",
        "letters",
        "untouched",
        "restored",
        list_column("created_at", "archived"),
    )
    orderings = {"latest": Ordering("Latest first", ("-id",))}
    search_keys = {
        "letter": Key(_holds, "The file that holds this letter", "2976"),
        "untouched": number("untouched_count", "How many of them nobody had looked at", example=">0"),
        "restored": number("restored_count", "How many of them came back", example=">0"),
        "age": age("created_at", "How long ago it was archived"),
    }
    starting_views = {"Never looked at": "q=untouched%3A%3E0"}

    @admin.display(description="file")
    def file(self, found: LetterArchive) -> SafeString:
        return format_html_fast('<span class="path">{}</span>', found.name)

    # On a telephone the rows stand without the headings: what a cell says, it says in words.

    @admin.display(description="letters")
    def letters(self, found: LetterArchive) -> SafeString:
        words = plural_count(found.letter_count, "letter")
        return format_html_fast('{} <span class="quiet">{}</span>', words, _numbers(found))

    @admin.display(description="untouched", empty_value="")
    def untouched(self, found: LetterArchive) -> str:
        count = found.untouched_count
        return "" if count is None else f"{count or 'none'} never looked at"

    @admin.display(description="came back")
    def restored(self, found: LetterArchive) -> str:
        return f"{found.restored_count or 'none'} came back"

    def has_restore_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("deadletters.restore_letterarchive"))

    def get_urls(self) -> list[Any]:
        restore = self.admin_site.admin_view(self.restore_view)
        return [
            path("<int:archive_id>/restore/", restore, name="deadletters_letterarchive_restore"),
            *super().get_urls(),
        ]

    # -- pages --------------------------------------------------------------------------------

    def row_page(self, request: HttpRequest, row: LetterArchive) -> HttpResponse:
        file = archive_page.opened(row)
        wanted = _letter_of(request)
        if wanted is not None and not file.problem:
            return self._letter_page(request, row, file, wanted)
        page = Paginator(file.entries, LETTERS_PER_PAGE).get_page(request.GET.get("page"))
        context = {
            "title": f"Letters {_numbers(row)} of the archive",
            "file": file,
            "page": page,
            "lines": archive_page.lines_of(row, list(page.object_list)),
            "numbers": _numbers(row),
        }
        return self._page(request, row, "change_form.html", context)

    def _letter_page(
        self, request: HttpRequest, row: LetterArchive, file: archive_page.Opened, letter_id: int
    ) -> HttpResponse:
        entry = archive_page.entry_of(file, letter_id)
        if entry is None:
            self.message_user(request, f"This file does not hold letter {letter_id}.", messages.WARNING)
            return HttpResponseRedirect(archive_page.address_of(row.pk))
        letter, payload = archive_page.as_letter(entry), entry["payload"] or {}
        context = {
            "title": f"Letter {letter.pk} as it was archived",
            "letter": letter,
            "job_name": archive_page.jobs_of([letter.job_id]).get(letter.job_id, ""),
            "status": LetterStatus(letter.status).label,
            "kind": kind_with_code(letter.code),
            "now": DeadLetter.objects.filter(pk=letter.pk).first(),
            "facts": facts_of(letter),
            "context_facts": sorted((payload.get("sanitized_context") or {}).items()),
            "last_stack": payload.get("last_stack", ""),
            "events": archive_page.events_of(entry),
            "events_since": archive_page.events_since(entry),
            "events_hidden": max(0, len(entry["events"]) - archive_page.EVENTS_SHOWN),
        }
        return self._page(request, row, "letter.html", context)

    def _page(
        self, request: HttpRequest, row: LetterArchive, template: str, context: dict[str, Any]
    ) -> HttpResponse:
        shared = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": row,
            "archive": row,
            "archive_address": archive_page.address_of(row.pk),
            "may_restore": self.has_restore_permission(request),
        }
        return TemplateResponse(request, f"{_TEMPLATES}/{template}", {**shared, **context})

    # -- the way back -------------------------------------------------------------------------

    def restore_view(self, request: HttpRequest, archive_id: int) -> HttpResponse:
        """Ask for a reason, then put one letter of a file back, or all of them."""
        if not self.has_restore_permission(request):
            raise PermissionDenied
        row = LetterArchive.objects.filter(pk=archive_id).first()
        if row is None:
            return self.row_gone(request, str(archive_id))
        wanted = _letter_of(request)
        file = archive_page.opened(row)
        if file.problem or (wanted is not None and wanted not in file.ids):
            text = f"Nothing was restored: {file.problem or f'this file does not hold letter {wanted}'}."
            self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(archive_page.address_of(row.pk))
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            return self._restore(request, row, wanted, form.cleaned_data["reason"])
        ids = [wanted] if wanted is not None else file.ids
        context = {
            "title": f"Restore letter {wanted}" if wanted is not None else "Restore all letters of the file",
            "wanted": wanted,
            "number": len(ids),
            "there": DeadLetter.objects.filter(pk__in=ids).count(),
            "cancel": archive_page.address_of(row.pk, wanted),
            "form": form,
        }
        return self._page(request, row, "restore.html", context)

    def _restore(
        self, request: HttpRequest, row: LetterArchive, wanted: int | None, reason: str
    ) -> HttpResponse:
        letters = [wanted] if wanted is not None else []
        here = archive_page.address_of(row.pk, wanted)
        try:
            back = letter_archive.restore(
                row, actor=request.user.get_username(), reason=reason, letters=letters
            )
        except letter_archive.ArchiveDamaged as error:
            self.message_user(request, f"Nothing was restored: {error}.", messages.ERROR)
            return HttpResponseRedirect(here)
        outcome = count_results(
            [(True, "") for _ in back.letters] + [(False, why) for why in back.skipped.values()]
        )
        address, link = _address_of(back.letters)
        level = messages.WARNING if back.skipped else messages.SUCCESS
        self.message_user(request, message_with_link(outcome.sentence("restored"), address, link), level)
        return HttpResponseRedirect(here)


def _numbers(found: LetterArchive) -> str:
    first, last = found.first_letter, found.last_letter
    return str(first) if first == last else f"{first}\u2013{last}"


def _letter_of(request: HttpRequest) -> int | None:
    number = request.GET.get("letter", "")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None


def _address_of(ids: list[int]) -> tuple[str, str]:
    """Return where letters that are back are shown, and what the link to there says."""
    if not ids:
        return "", ""
    if len(ids) == 1:
        return reverse("admin:deadletters_deadletter_change", args=ids), "Open it"
    return link_to_rows(ids, "letters", address_of_letters)
