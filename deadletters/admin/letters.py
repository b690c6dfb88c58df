"""Dead letters in the console: the list with its set actions, and the page on which one is worked.

Nothing here writes a state: each step is one call of `workflow`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache

from criticizer.admin_site.bulk_actions import AdminForm, is_everything, message_with_link
from criticizer.admin_site.keyset import KeysetAdmin, Ordering
from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.search_query import age, exact, flags, number
from criticizer.admin_site.timestamps import time_ago
from criticizer.resilience.failures import ErrorClass, Severity
from criticizer.wording import plural_count
from deadletters.admin import letter_actions as deeds
from deadletters.admin import live_regions
from deadletters.admin.archive_page import address_of_letter
from deadletters.admin.default_open_list import BATCH, LETTERS, LetterChangeList
from deadletters.admin.edit_request import EditRequests
from deadletters.admin.forms import ReasonForm, RowVersion
from deadletters.admin.letter_context import events_context, form_of, letter_context, step_context
from deadletters.admin.letter_page import AT_WORK, STEPS, awaited, letter_chip, redone
from deadletters.admin.page_mixins import PageAdmin, TimelineAdmin, address_of_letters, sentence
from deadletters.models import DeadLetter, DeadLetterEvent
from deadletters.states import DISCARDABLE, OPEN_LETTER, Category, LetterStatus

MAX_CHANGES_SHOWN = 10
_LIVE = ("admin/deadletters/deadletter/_letter.html",)
_OPEN = [status.value for status in OPEN_LETTER]


@admin.register(DeadLetter)
class DeadLetterAdmin(EditRequests, PageAdmin, TimelineAdmin, KeysetAdmin):
    """The letters of every group, and the page of one."""

    change_list_template = "admin/deadletters/change_list.html"
    confirm_template = "admin/deadletters/deadletter/confirm.html"
    nouns = ("letter", "letters")
    timeline, timeline_of = DeadLetterEvent, "letter_id"
    empty_text = (
        "No job has failed for good. When one does, it waits here until somebody has found out why, "
        "mended it, and replayed it."
    )
    none_open = "None open."
    gone_text = "The archive does not name it either."
    list_display = ("what", "changelist", "stage", "state", "severity_word", "failed")
    list_select_related = ("job",)
    list_only = (
        "error_class", "code", "detail", "stage", "status", "severity", "is_escalated",
        "failed_replay_count", "last_failure_at", "verified_at", "job__changelist_id", "job__review_version",
    )  # fmt: skip
    orderings = {
        "open": Ordering("Open, latest first", ("-last_failure_at", "-id"), Q(status__in=_OPEN)),
        "all": Ordering("All, latest first", ("-last_failure_at", "-id")),
    }
    search_keys = {
        "state": exact("status", "How far it is", choices=LetterStatus.choices),
        "stage": exact("stage", "The stage that failed", choices=[(n, n) for n in settings.STAGES]),
        "error": exact("error_class", "The error class", choices=[(c.value, c.value) for c in ErrorClass]),
        "code": exact("code", "The failure code", example="CRITICIZER_E101"),
        "cl": exact("job__changelist_id", "The changelist", example="12345"),
        "job": number("job_id", "The job's number", example="17"),
        "letter": number("pk", "The letter's number", example="2976"),
        "group": number("group_id", "The group's number", example="3"),
        "batch": BATCH,
        "severity": exact("severity", "How grave it is", choices=[(s.value, s.value) for s in Severity]),
        "category": exact("category", "What triage said", choices=Category.choices),
        "age": age("last_failure_at", "How long ago it failed last"),
        "replays": number("failed_replay_count", "How often a replay failed", example=">0"),
        "is": flags(
            {
                "open": Q(status__in=_OPEN),
                "escalated": Q(is_escalated=True),
                "unverified": Q(status=LetterStatus.VERIFYING, verified_at=None),
                "verified": Q(status=LetterStatus.VERIFYING, verified_at__isnull=False),
            },
            "Open ones; escalated ones; replayed ones to be verified; verified ones to be resolved",
        ),
    }
    search_words = LETTERS
    starting_views = {
        "Not looked at yet": "q=state%3Anew",
        "Escalated": "q=is%3Aescalated",
        "To be verified": "q=is%3Aunverified",
        "To be resolved": "q=is%3Averified",
    }
    actions = ("triage", "remediate", "validate", "replay_batch", "verify", "resolve", "discard", "reopen")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LetterChangeList

    # -- columns ------------------------------------------------------------------------------

    @admin.display(description="error")
    def what(self, letter: DeadLetter) -> SafeString:
        """Show why, not just which: the error is the link."""
        return format_html_fast(
            '{} <span class="quiet">{}</span><br><span class="quiet">{}</span>',
            letter.error_class,
            letter.code,
            letter.detail[:140],
        )

    @admin.display(description="review")
    def changelist(self, letter: DeadLetter) -> SafeString:
        return format_html_fast('<span class="path">{}</span>', str(letter.job)[:80])

    @admin.display(description="state", ordering="status")
    def state(self, letter: DeadLetter) -> SafeString:
        return letter_chip(letter)

    @admin.display(description="severity")
    def severity_word(self, letter: DeadLetter) -> SafeString:
        return format_html_fast(
            '<span class="severity" data-severity="{}">{}</span> {}',
            letter.severity,
            letter.severity,
            badge("escalated", "Escalated") if letter.is_escalated else "",
        )

    @admin.display(description="failed")
    def failed(self, letter: DeadLetter) -> SafeString:
        replays = letter.failed_replay_count
        again = f", {plural_count(replays, 'failed replay')}" if replays else ""
        return format_html_fast("{}{}", time_ago(letter.last_failure_at), again)

    # -- set actions --------------------------------------------------------------------------

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("deadletters.replay_deadletter"))

    def address_of(self, pk: int) -> str:
        return reverse("admin:deadletters_deadletter_change", args=[pk])

    def address_of_set(self, ids: Sequence[int]) -> str:
        return address_of_letters(ids)

    def rows_to_show(self, ids: Sequence[int]) -> Any:
        return super().rows_to_show(ids).select_related("job")

    def describe_filter(self, request: HttpRequest) -> str:
        return request.GET.get("q", "") or "no search"

    @admin.action(description=f"{deeds.TRIAGE.button}\u2026", permissions=["replay"])
    def triage(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self.ask(deeds.TRIAGE, request, queryset)

    @admin.action(description=f"{deeds.REMEDIATE.button}\u2026", permissions=["replay"])
    def remediate(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self.ask(deeds.REMEDIATE, request, queryset)

    @admin.action(description=f"{deeds.VALIDATE.button}\u2026", permissions=["replay"])
    def validate(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self.ask(deeds.VALIDATE, request, queryset)

    @admin.action(description=f"{deeds.BATCH.button}\u2026", permissions=["replay"])
    def replay_batch(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        deed = deeds.batch(request.GET.get("q", ""), is_everything=is_everything(request))
        return self.ask(deed, request, queryset)

    @admin.action(description=f"{deeds.VERIFY.button}\u2026", permissions=["replay"])
    def verify(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self.ask(deeds.VERIFY, request, queryset)

    @admin.action(description=f"{deeds.RESOLVE.button}\u2026", permissions=["replay"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self.ask(deeds.RESOLVE, request, queryset)

    @admin.action(description=f"{deeds.DISCARD.button}\u2026", permissions=["replay"])
    def discard(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self.ask(deeds.DISCARD, request, queryset)

    @admin.action(description=f"{deeds.REOPEN.button}\u2026", permissions=["replay"])
    def reopen(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self.ask(deeds.REOPEN, request, queryset)

    # -- the letter ---------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        steps = [
            path(
                f"<int:letter_id>/{step}/",
                self.admin_site.admin_view(partial(self.step_view, step=step)),
                name=f"deadletters_deadletter_{step}",
            )
            for step in STEPS
        ]
        discard = self.admin_site.admin_view(self.discard_view)
        edit = self.admin_site.admin_view(self.edit_view)
        follow = self.admin_site.admin_view(never_cache(self.live_view))
        return [
            *steps,
            path("<int:letter_id>/discard/", discard, name="deadletters_deadletter_discard"),
            path("<int:letter_id>/edit/", edit, name="deadletters_deadletter_edit"),
            path("<int:letter_id>/live/", follow, name="deadletters_deadletter_live"),
            *super().get_urls(),
        ]

    def row_gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lead to the letter in the archive, where it is there."""
        address = address_of_letter(object_id)
        return HttpResponseRedirect(address) if address else super().row_gone(request, object_id)

    def row_page(self, request: HttpRequest, row: DeadLetter) -> HttpResponse:
        return self._page(request, row)

    def step_view(self, request: HttpRequest, letter_id: int, step: str) -> HttpResponse:
        """Take one step with what the form says, unless the letter changed since it was looked at."""
        if not self.has_replay_permission(request):
            raise PermissionDenied
        letter = DeadLetter.objects.filter(pk=letter_id).first()
        if letter is None or request.method != "POST":
            return HttpResponseRedirect(self.address_of(letter_id))
        form = form_of(step, letter, request)
        version = RowVersion(request.POST)
        if not version.is_valid() or letter.row_version != version.cleaned_data["row_version"]:
            return self._changed(request, letter, form, version)
        if form is not None and not form.is_valid():
            return self._page(request, letter, form, at=step)
        return self._take(request, letter, step, form.cleaned_data if form is not None else {})

    def _take(
        self, request: HttpRequest, letter: DeadLetter, step: str, given: Mapping[str, Any]
    ) -> HttpResponse:
        is_done, text = deeds.take(step, letter, request.user.get_username(), given)
        said = sentence(text)
        # The checks' sentence says by itself what was found; a refusal says that nothing changed.
        if not is_done and step not in {"validate", "verify"}:
            said = f"Nothing was done: {text.rstrip('.')}."
        job = reverse("admin:reviews_reviewjob_change", args=[letter.job_id])
        is_replayed = is_done and step == "replay"
        self.message_user(
            request,
            message_with_link(said, job if is_replayed else "", "Follow the job"),
            messages.SUCCESS if is_done else messages.WARNING,
        )
        return HttpResponseRedirect(self.address_of(letter.pk))

    def discard_view(self, request: HttpRequest, letter_id: int) -> HttpResponse:
        """Ask for a reason, then give the letter up."""
        if not self.has_replay_permission(request):
            raise PermissionDenied
        letter = DeadLetter.objects.select_related("job").filter(pk=letter_id).first()
        if letter is None or letter.status not in DISCARDABLE:
            if letter is not None:
                text = f"Nothing was done: the letter is {letter.state_word.lower()}."
                self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(self.address_of(letter_id))
        form = ReasonForm(request.POST or None)
        version = RowVersion(request.POST or None)
        if request.method == "POST":
            if not version.is_valid() or version.cleaned_data["row_version"] != letter.row_version:
                return self._changed(request, letter, None, version)
            if form.is_valid():
                return self._take(request, letter, "discard", form.cleaned_data)
        context = {
            **self.admin_site.each_context(request),
            "title": "Discard the letter",
            "opts": self.opts,
            "letter": letter,
            "days": settings.DLQ_MAX_AGE_DAYS,
            "form": form,
        }
        return TemplateResponse(request, "admin/deadletters/deadletter/discard.html", context)

    def _changed(
        self, request: HttpRequest, letter: DeadLetter, form: AdminForm | None, version: RowVersion
    ) -> HttpResponse:
        """Refuse what was meant for an older version of the letter, and say who changed what."""
        seen = version.cleaned_data.get("seen") if version.is_valid() else None
        newer = letter.events.filter(pk__gt=seen or 0).order_by("-id")[:MAX_CHANGES_SHOWN]
        return self._page(request, letter, form, changed=list(newer)[::-1], status=409)

    def _page(
        self,
        request: HttpRequest,
        letter: DeadLetter,
        form: AdminForm | None = None,
        *,
        at: str = "",
        changed: Sequence[Any] | None = None,
        status: int = 200,
    ) -> HttpResponse:
        parts = self._parts(request, letter, form, at)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Letter {letter.pk}: {letter.error_class} in stage {letter.stage}",
            "opts": self.opts,
            "original": letter,
            "changed": changed,
            **parts,
        }
        if letter.status in AT_WORK:
            context["live_seconds"] = live_regions.LIVE_SECONDS
            context["live_have"] = live_regions.digest(live_regions.drawn(request, _LIVE, parts))
            context["live_query"] = urlencode({"events_before": request.GET.get("events_before", "")})
        template = "admin/deadletters/deadletter/change_form.html"
        return TemplateResponse(request, template, context, status=status)

    def _parts(
        self, request: HttpRequest, letter: DeadLetter, form: AdminForm | None = None, at: str = ""
    ) -> dict[str, Any]:
        """Return what the page says of the letter, all of which may change while its job works."""
        step = redone(letter, at or request.GET.get("redo", "")) or awaited(letter)
        wanted = form_of(step, letter, None) if step else None
        if form is None or not isinstance(form, type(wanted)):
            form = wanted  # what was filled in belongs to another step
        return {
            "may_act": self.has_replay_permission(request),
            **letter_context(letter),
            **events_context(letter, request.GET.get("events_before", "")),
            **step_context(request, letter, step, form),
        }

    def live_view(self, request: HttpRequest, letter_id: int) -> HttpResponse:
        """Return the letter as it is now while its job works; 204 when nothing has changed.

        The page asks no more once somebody has to do something: no form that is being filled in is
        replaced.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        letter = get_object_or_404(DeadLetter.objects.select_related("job"), pk=letter_id)
        html = live_regions.drawn(request, _LIVE, self._parts(request, letter))
        return live_regions.answer(request, html, goes_on=letter.status in AT_WORK)
