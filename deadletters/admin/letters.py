"""Admin of dead letters: the list with its actions, and the page of one with its steps.

Nothing here writes a state: each step is one call of `workflow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.postgres.expressions import ArraySubquery
from django.core.exceptions import PermissionDenied
from django.db.models import Func, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.bulk_actions import AdminForm, BulkAction, is_everything, message_with_link
from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import Key, SearchProblem, Term, age, exact, flags, number
from criticizer.admin_site.timestamps import time_ago
from criticizer.admin_site.viewing_scope import of_whole_job, visible_to
from criticizer.db.full_text import FullTextFilter, match
from criticizer.resilience.failures import ErrorClass, Severity
from criticizer.wording import plural_count
from deadletters.admin import letter_actions as actions
from deadletters.admin import letter_page
from deadletters.admin.archive_files import address_of_letter
from deadletters.admin.base import (
    DeadLetterPages,
    OpenFirst,
    RowAction,
    sentence,
)
from deadletters.admin.edits import edit_view
from deadletters.admin.forms import RowVersion
from deadletters.admin.letter_advice import named_in
from deadletters.admin.letter_page import (
    AT_WORK,
    STEPS,
    awaited,
    events_context,
    form_of,
    letter_chip,
    letter_context,
    redone,
    step_context,
    together,
)
from deadletters.models import DeadLetter, DeadLetterEvent, DeadLetterGroup, ReplayItem
from deadletters.states import OPEN_LETTER, Category, LetterStatus

MAX_GROUPS = 200  # that the words of a search may match
_OPEN = [status.value for status in OPEN_LETTER]


class LetterChangeList(OpenFirst):
    """The letters: a number alone is a changelist here, which names its letters."""

    def _names(self, term: Term) -> bool:
        return super()._names(term) or (not term.key and _is_number(term.value))


def _of_letters(words: Sequence[str]) -> Q:
    """Return the condition "has this changelist number, and its failure contains these words".

    Raises SearchProblem when too many groups match.
    """
    found = Q()
    for changelist in filter(_is_number, words):
        found &= Q(job__changelist_id=changelist)
    text = [word for word in words if not _is_number(word)]
    if text:
        groups = DeadLetterGroup.objects.filter(match(("normalized_message",), text))
        # Their numbers, not a subquery: PostgreSQL knows how many letters each group has.
        ids = list(groups.order_by("pk").values_list("pk", flat=True)[: MAX_GROUPS + 1])
        if len(ids) > MAX_GROUPS:
            raise SearchProblem(
                f"More than {MAX_GROUPS} groups of failures contain these words. Add a word, or search the "
                "groups."
            )
        found &= Q(group_id__in=ids)
    return found


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _in_batches(text: str) -> Q:
    items = ReplayItem.objects.filter(_BATCH.condition(text)).order_by()
    # An array: PostgreSQL looks these up by number instead of walking all letters for the latest.
    ids = Func(ArraySubquery(items.values("letter_id")), template="SELECT unnest(%(expressions)s)")
    return Q(pk__in=ids)


_BATCH = number("batch_id", "The replay batch that holds it", example="12")
BATCH = Key(_in_batches, _BATCH.meaning, _BATCH.example)


@admin.register(DeadLetter)
class DeadLetterAdmin(DeadLetterPages):
    """The letters of every group, and the page of one."""

    scope = of_whole_job("job")
    change_list = LetterChangeList
    row_actions = (actions.GIVE_UP, actions.DISCARD_ONE)
    bulk_actions = (
        actions.TRIAGE,
        actions.REMEDIATE,
        actions.VALIDATE,
        actions.BATCH,
        actions.VERIFY,
        actions.RESOLVE,
        actions.DISCARD,
        actions.REOPEN,
    )
    rows_key = "letter"
    nouns = ("dead letter", "dead letters")
    timeline, timeline_of = DeadLetterEvent, "letter_id"
    live_templates, live_query = ("admin/deadletters/deadletter/_letter.html",), ("events_before",)
    empty_text = (
        "No job has failed permanently. A job that does is listed here until its cause is fixed and it has "
        "been replayed."
    )
    none_open = "No open dead letters."
    gone_text = "It is not in the archive either."
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
        "state": exact("status", "The state", choices=LetterStatus),
        "stage": exact("stage", "The stage that failed", choices=settings.STAGES),
        "error": exact("error_class", "The error class", choices=ErrorClass),
        "code": exact("code", "The failure code", example="CRITICIZER_E101"),
        "cl": exact("job__changelist_id", "The changelist", example="12345"),
        "job": number("job_id", "The job's number", example="17"),
        "letter": number("pk", "The dead letter's number", example="2976"),
        "group": number("group_id", "The group's number", example="3"),
        "batch": BATCH,
        "severity": exact("severity", "The severity", choices=Severity),
        "category": exact("category", "The category of its triage", choices=Category),
        "age": age("last_failure_at", "How long ago it last failed"),
        "replays": number("failed_replay_count", "How often a replay failed", example=">0"),
        "is": flags(
            {
                "open": Q(status__in=_OPEN),
                "escalated": Q(is_escalated=True),
                "unverified": Q(status=LetterStatus.VERIFYING, verified_at=None),
                "verified": Q(status=LetterStatus.VERIFYING, verified_at__isnull=False),
            },
            "Open; escalated; replayed and not verified; verified and not resolved",
        ),
    }
    search_words = FullTextFilter(_of_letters, "the text of the failure; a number alone means cl:")
    starting_views = {
        "New": "q=state%3Anew",
        "Escalated": "q=is%3Aescalated",
        "To verify": "q=is%3Aunverified",
        "To resolve": "q=is%3Averified",
    }

    # -- columns ------------------------------------------------------------------------------

    @admin.display(description="error")
    def what(self, letter: DeadLetter) -> SafeString:
        """Show the error as the link."""
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

    # -- actions on many ----------------------------------------------------------------------

    def ask(self, action: BulkAction, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponseBase | None:
        if action is actions.BATCH:  # its draft records how the letters were chosen
            action = actions.batch(request.GET.get("q", ""), is_everything=is_everything(request))
        return super().ask(action, request, chosen)

    def rows_to_show(self, ids: Sequence[int]) -> Any:
        return super().rows_to_show(ids).select_related("job")

    # -- the page of one ----------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        return [
            *(self.url(step, partial(self.step_view, step=step)) for step in STEPS),
            self.url("edit", partial(edit_view, self)),
            *super().get_urls(),
        ]

    def row_gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Redirect to the letter in the archive, where it is there."""
        address = address_of_letter(object_id)
        return HttpResponseRedirect(address) if address else super().row_gone(request, object_id)

    def version_of(self, row: DeadLetter) -> dict[str, int]:
        return {"row_version": row.row_version}

    def step_view(self, request: HttpRequest, pk: int, step: str) -> HttpResponse:
        """Take one step with the form's data, unless the letter changed since the page was made."""
        if not request.user.has_perm(actions.REPLAY):
            raise PermissionDenied
        letter = self.row(request, pk)
        if letter is None or request.method != "POST":
            return self.back(request, pk)
        form = form_of(step, letter, request)
        version = RowVersion(request.POST)
        if self.is_stale(letter, version):
            return self.changed_page(request, letter, version, form)
        if form is not None and not form.is_valid():
            return self.row_page(request, letter, form, at=step)
        given = form.cleaned_data if form is not None else {}
        is_done, text = actions.take_step(step, letter, request.user.get_username(), given)
        if is_done or step in {"validate", "verify"}:  # checks say by themselves what they found
            text = sentence(text)
        else:
            text = f"Nothing was changed: {text.rstrip('.')}."
        job = reverse("admin:reviews_reviewjob_change", args=[letter.job_id])
        self.message_user(
            request,
            message_with_link(text, job if is_done and step == "replay" else "", "Follow the job"),
            messages.SUCCESS if is_done else messages.WARNING,
        )
        return self.back(request, pk)

    def action_context(
        self, request: HttpRequest, row: DeadLetter, action: RowAction, form: AdminForm
    ) -> dict[str, Any]:
        shown = super().action_context(request, row, action, form)
        return {
            **shown,
            **({"title": "Discard the dead letter"} if action is actions.DISCARD_ONE else {}),
            "letter": row,
            "days": settings.DLQ_MAX_AGE_DAYS,
            "named": named_in(row, request.user),
            "is_discard": action is actions.DISCARD_ONE,
        }

    def row_page(
        self,
        request: HttpRequest,
        row: DeadLetter,
        form: AdminForm | None = None,
        *,
        at: str = "",
        changed: Sequence[Any] | None = None,
    ) -> HttpResponse:
        parts = self.live_parts(request, row, form, at)
        context = {
            "title": f"Dead letter {row.pk}: {row.error_class} in stage {row.stage}",
            "original": row,
            "changed": changed,
            **parts,
            **self.live_context(request, parts),
        }
        return self.render(request, "change_form.html", context, status=200 if changed is None else 409)

    def live_rows(self, request: HttpRequest) -> Any:
        return super().live_rows(request).select_related("job")

    def live_parts(
        self, request: HttpRequest, row: DeadLetter, form: AdminForm | None = None, at: str = ""
    ) -> dict[str, Any]:
        step = redone(row, at or request.GET.get("redo", "")) or awaited(row)
        wanted = form_of(step, row, None) if step else None
        if form is None or not isinstance(form, type(wanted)):
            form = wanted  # what was filled in belongs to another step
        may_act, sees_groups = request.user.has_perm(actions.REPLAY), visible_to(request.user) is None
        return {
            "goes_on": row.status in AT_WORK,
            "may_act": may_act,
            "actions": self.buttons(request, row),
            "sees_groups": sees_groups,
            "together": together(row) if may_act and sees_groups else 0,
            "most_together": letter_page.MAX_TOGETHER,
            **letter_context(row),
            "named": named_in(row, request.user),
            **events_context(row, request.GET.get("events_before", "")),
            **step_context(request, row, step, form),
        }
