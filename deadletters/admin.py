"""Dead letters: read what failed, replay it, or give it up. `workflow` writes every state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from criticizer.admin import ReadOnlyAdmin, one_of, opens_with, state_column
from criticizer.failures import ErrorClass, Severity, kind_with_code
from deadletters import workflow
from deadletters.forms import ReasonForm
from deadletters.models import DeadLetter
from deadletters.states import LetterStatus
from deadletters.workflow import ReplayResult

# One request works through them one by one; larger sets need a batch.
MAX_LETTERS = 200
MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class Deed:
    """An action on letters: what the button, the question and the answer say, and what it calls."""

    name: str
    button: str
    question: str
    done: str
    act: Callable[..., ReplayResult]


REPLAY = Deed(
    "replay",
    "Replay from the failed stage",
    "The job goes on at the stage that failed, with a fresh budget of attempts.",
    "replayed",
    workflow.replay,
)
RESTART = Deed(
    "restart",
    "Restart from the first stage",
    "The job is done again from the beginning: the change is fetched and reviewed anew. "
    "Recipients who were told already are not told twice.",
    "restarted",
    partial(workflow.replay, restart=True),
)
DISCARD = Deed(
    "discard",
    "Discard",
    "The letter is closed without another try. The job stays dead-lettered and readable.",
    "discarded",
    workflow.discard,
)


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    change_form_template = "admin/deadletters/deadletter/change_form.html"
    list_display = ("what", "changelist", "stage", "state", "severity_word", "failed")
    list_select_related = ("job",)
    list_filter = (
        opens_with("state", "status", LetterStatus.choices, LetterStatus.OPEN),
        one_of("stage", "stage", [(name, name) for name in settings.STAGES]),
        one_of("severity", "severity", [(level.value, level.value) for level in Severity]),
        one_of("error class", "error_class", [(name.value, name.value) for name in ErrorClass]),
    )
    search_fields = ("job__changelist_id__exact", "code__exact")
    search_help_text = "A changelist or an error code, exactly."
    ordering = ("-last_failure_at", "-id")
    actions = ("replay", "restart", "discard")
    fields = readonly_fields = ("state",)  # change_form.html shows the whole letter
    state = state_column("status")

    # -- columns ------------------------------------------------------------------------------

    @admin.display(description="error", ordering="error_class")
    def what(self, letter: DeadLetter) -> SafeString:
        """Show why, not just which: the error is the link."""
        return format_html(
            '{} <span class="quiet">{}</span><br><span class="quiet">{}</span>',
            letter.error_class,
            letter.code,
            letter.detail[:140],
        )

    @admin.display(description="changelist", ordering="job__changelist_id")
    def changelist(self, letter: DeadLetter) -> SafeString:
        return format_html('<span class="path">{}</span>', str(letter.job)[:80])

    @admin.display(description="severity", ordering="severity")
    def severity_word(self, letter: DeadLetter) -> SafeString:
        return format_html(
            '<span class="severity" data-severity="{}">{}</span>', letter.severity, letter.severity
        )

    @admin.display(description="failed", ordering="last_failure_at")
    def failed(self, letter: DeadLetter) -> str:
        times = "attempt" if letter.attempts == 1 else "attempts"
        return f"{naturaltime(letter.last_failure_at)}, {letter.attempts} {times}"

    # -- the letter ---------------------------------------------------------------------------

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        letter = self.get_object(request, object_id)
        shown = _letter_context(letter) if isinstance(letter, DeadLetter) else {}
        may_act = self.has_replay_permission(request) and shown.get("is_open")
        deeds = (REPLAY, RESTART, DISCARD) if may_act else ()
        return super().change_view(
            request, object_id, form_url, {**shown, "deeds": deeds, **(extra_context or {})}
        )

    # -- actions ------------------------------------------------------------------------------

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("deadletters.replay_deadletter"))

    @admin.action(description=f"{REPLAY.button}\u2026", permissions=["replay"])
    def replay(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self._ask_then(REPLAY, request, queryset)

    @admin.action(description=f"{RESTART.button}\u2026", permissions=["replay"])
    def restart(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self._ask_then(RESTART, request, queryset)

    @admin.action(description=f"{DISCARD.button}\u2026", permissions=["replay"])
    def discard(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponseBase | None:
        return self._ask_then(DISCARD, request, queryset)

    def _ask_then(
        self, deed: Deed, request: HttpRequest, chosen: QuerySet[DeadLetter]
    ) -> HttpResponseBase | None:
        """Ask for a reason; with one, act on exactly the letters that the question listed."""
        is_answer = "confirmed" in request.POST
        form = ReasonForm(request.POST if is_answer else None)
        ids = (
            _listed_ids(request)
            if is_answer
            else list(chosen.values_list("pk", flat=True)[: MAX_LETTERS + 1])
        )
        if len(ids) > MAX_LETTERS:
            self.message_user(request, f"Choose at most {MAX_LETTERS} letters at a time.", messages.ERROR)
            return None
        if not form.is_valid():
            return self._question(deed, request, ids, form)
        results = [_act(deed, pk, request, form.cleaned_data["reason"]) for pk in ids]
        failed = any(not result.ok for result in results)
        self.message_user(request, summary(deed, results), messages.WARNING if failed else messages.SUCCESS)
        if len(ids) == 1 and DeadLetter.objects.filter(pk=ids[0]).exists():
            return HttpResponseRedirect(reverse("admin:deadletters_deadletter_change", args=ids))
        return None

    def _question(
        self, deed: Deed, request: HttpRequest, ids: Sequence[int], form: ReasonForm
    ) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": deed.button,
            "opts": self.opts,
            "deed": deed,
            "form": form,
            "letters": DeadLetter.objects.filter(pk__in=ids).select_related("job").order_by("id"),
        }
        return TemplateResponse(request, "admin/deadletters/deadletter/confirm.html", context)


def _letter_context(letter: DeadLetter) -> dict[str, Any]:
    runs = letter.job.stages.filter(stage=letter.stage)
    return {
        "title": f"{letter.error_class} in stage {letter.stage}",
        "subtitle": None,
        "letter": letter,
        "is_open": letter.status == LetterStatus.OPEN,
        "kind": kind_with_code(letter.code),
        "attempt_rows": [row for run in runs for row in run.attempt_rows.order_by("-id")[:MAX_ROWS]],
        "events": letter.events.order_by("-id")[:MAX_ROWS],
        "context_facts": sorted((str(name), value) for name, value in dict(letter.sanitized_context).items()),
        "review_address": reverse("reviews:detail", args=[letter.job_id]),
    }


def _listed_ids(request: HttpRequest) -> list[int]:
    given = request.POST.getlist(ACTION_CHECKBOX_NAME)
    return [int(text) for text in given if text.isascii() and text.isdigit() and len(text) < 19]


def _act(deed: Deed, letter_id: int, request: HttpRequest, reason: str) -> ReplayResult:
    try:
        return deed.act(letter_id, actor=request.user.get_username(), reason=reason)
    except ObjectDoesNotExist:
        return ReplayResult(False, "the letter does not exist any more")


def summary(deed: Deed, results: Sequence[ReplayResult]) -> str:
    """Return one sentence such as `3 replayed, 1 skipped: a newer version exists`."""
    done = sum(result.ok for result in results)
    skipped = Counter(result.message for result in results if not result.ok)
    reasons = "; ".join(f"{count} skipped: {message}" for message, count in skipped.items())
    return f"{done} {deed.done}" + (f", {reasons}" if reasons else "") + "."
