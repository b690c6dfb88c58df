"""Admin of replay batches: draft and dry run, approval by a second person, progress.

A batch is a stored row with frozen items: its page survives a reload and shows the outcome of every
letter. `batches` writes the states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString

from criticizer.admin_site import csv_export
from criticizer.admin_site.base import list_column, state_column
from criticizer.admin_site.bulk_actions import AdminForm
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import age, exact
from criticizer.admin_site.viewing_scope import RowScope, Visible, visible_to
from criticizer.security import reauthentication
from criticizer.wording import plural_count
from deadletters import batches
from deadletters.admin.base import DeadLetterPages, RowAction
from deadletters.admin.batch_page import (
    approval_in_list,
    dry_run_sentence,
    events_of,
    facts_of,
    items_page,
    last_event,
    pace_of,
    progress_context,
    settings_of,
    submit_help,
    verdict_rows,
)
from deadletters.admin.forms import BatchSettingsForm, PaceForm, RowVersion
from deadletters.admin.letter_actions import REPLAY
from deadletters.models import ReplayBatch, ReplayBatchEvent, ReplayItem
from deadletters.states import UNENDED_BATCH, BatchStatus
from deadletters.types import Result


def _of_visible_letters(visible: Visible) -> Any:
    """Return the condition on batches whose dead letters may all be seen."""
    items = ReplayItem.objects.filter(batch=OuterRef("pk"))
    return Exists(items) & ~Exists(items.filter(~visible.of_whole_jobs("job_id")))


APPROVE = "deadletters.approve_replaybatch"
# A draft has its settings; an ended batch has no rate.
_PACED = (BatchStatus.RUNNING, BatchStatus.PAUSED, BatchStatus.STOPPED)


def _state(batch: ReplayBatch) -> str:
    return f"the batch is {batch.get_status_display().lower()}"


def _only(*states: BatchStatus) -> Callable[[ReplayBatch, Any], str]:
    return lambda batch, _: "" if batch.status in states else _state(batch)


def _approval_problem(batch: ReplayBatch, user: Any) -> str:
    if batch.status != BatchStatus.AWAITING:
        return _state(batch)
    return batches.why_not_approve(batch, user.get_username())


APPROVE_BATCH = RowAction(
    "approve",
    "Approve",
    "The batch begins when you approve it: a few dead letters first, the rest at its rate.",
    batches.approve,
    APPROVE,
    _approval_problem,
)
REFUSE = RowAction(
    "refuse",
    "Refuse",
    "The batch is cancelled with your reason: nothing is replayed, and its dead letters can be worked on "
    "again.",
    batches.refuse,
    APPROVE,
    _only(BatchStatus.AWAITING),
    is_final=True,
)
RESUME = RowAction(
    "resume",
    "Resume",
    "The batch continues with the dead letters that have no outcome yet.",
    batches.resume,
    REPLAY,
    _only(BatchStatus.PAUSED, BatchStatus.STOPPED),
)
CANCEL = RowAction(
    "cancel",
    "Cancel the batch",
    "Replayed dead letters stay replayed; the others are released and can be worked on again.",
    batches.cancel,
    REPLAY,
    _only(*UNENDED_BATCH),
    is_final=True,
)


@admin.register(ReplayBatch)
class ReplayBatchAdmin(DeadLetterPages):
    """Batches, newest first, and the page of one."""

    scope = RowScope(_of_visible_letters)
    row_actions = (APPROVE_BATCH, REFUSE, RESUME, CANCEL)
    live_templates = tuple(
        f"admin/deadletters/replaybatch/_{part}.html"
        for part in ("progress", "rate_over", "batch", "items", "history")
    )
    live_query = ("outcome", "after")
    empty_text = (
        "No batch yet. Select dead letters, or a group, and choose “Replay”: that creates a draft here. It "
        "shows what would happen to each dead letter. Nothing is replayed before you submit it."
    )
    list_display = (
        "what",
        "state",
        "letters",
        "requested_by",
        "approval",
        list_column("requested_at", "requested"),
        list_column("finished_at", "finished"),
    )
    orderings = {"newest": Ordering("Newest first", ("-id",))}
    search_keys = {
        "state": exact("status", "The state", choices=BatchStatus),
        "by": exact("requested_by", "Who requested it", example="ann"),
        "age": age("requested_at", "How long ago it was drafted"),
    }
    starting_views = {"Waiting for approval": "q=state%3Aawaiting", "Running": "q=state%3Arunning"}
    state = state_column("status")

    @admin.display(description="what for")
    def what(self, batch: ReplayBatch) -> SafeString:
        return format_html_fast('Batch {}<br><span class="cause">{}</span>', batch.pk, batch.reason[:160])

    @admin.display(description="dead letters")
    def letters(self, batch: ReplayBatch) -> int:
        return batch.item_count

    @admin.display(description="approved by")
    def approval(self, batch: ReplayBatch) -> str:
        return approval_in_list(batch)

    # -- the page of one ----------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        return [
            self.url("submit", self.submit_view),
            self.url("dry_run", self.dry_run_view),
            self.url("pause", self.pause_view),
            self.url("pace", self.pace_view),
            self.url("csv", self.csv_view),
            *super().get_urls(),
        ]

    def version_of(self, row: ReplayBatch) -> dict[str, int]:
        # A running batch changes by itself.
        return {} if row.status == BatchStatus.RUNNING else {"row_version": row.row_version}

    def row_page(
        self,
        request: HttpRequest,
        row: ReplayBatch,
        form: BatchSettingsForm | None = None,
        *,
        pace_form: PaceForm | None = None,
        changed: Sequence[ReplayBatchEvent] | None = None,
    ) -> HttpResponse:
        parts = self.live_parts(request, row)
        context = {
            "title": f"Batch {row.pk}: replay of {plural_count(row.item_count, 'dead letter')}",
            "original": row,
            "changed": changed,
            "may_act": request.user.has_perm(REPLAY),
            "form": form or BatchSettingsForm(initial=settings_of(row)),
            "submit_help": submit_help(row),
            **reauthentication.password_notice(
                request, "admin:deadletters_replaybatch_submit", self.address_of(row.pk)
            ),
            "verdicts": verdict_rows(row),
            "checked_at": parse_datetime(str(row.report.get("checked_at", ""))) if row.report else None,
            "may_check": _may_check(request, row),
            "last_event": last_event(row),
            "pace_form": (pace_form or PaceForm(initial=pace_of(row))) if parts["is_paced"] else None,
            **parts,
            **self.live_context(request, parts),
        }
        return self.render(request, "change_form.html", context, status=200 if changed is None else 409)

    def live_parts(self, request: HttpRequest, row: ReplayBatch) -> dict[str, Any]:
        sees_all, may_replay = visible_to(request.user) is None, request.user.has_perm(REPLAY)
        return {
            "batch": row,
            "actions": self.buttons(request, row),
            "may_pause": may_replay and row.status == BatchStatus.RUNNING,
            "is_paced": may_replay and row.status in _PACED,
            **facts_of(row),
            "events": events_of(row),
            **progress_context(row, sees_groups=sees_all),
            **({} if sees_all else {"new_since": 0}),  # counts all reviews
            **items_page(row, request.GET.get("outcome", ""), request.GET.get("after", "")),
        }

    def csv_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the outcome of every letter as CSV (RFC 4180), safe for spreadsheets."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        batch = get_object_or_404(self.get_queryset(request), pk=pk)
        header, *rows = batches.csv_rows(batch.pk)
        answer = HttpResponse(csv_export.to_csv(header, rows), content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="replay-batch-{batch.pk}.csv"'
        return answer

    # -- forms and buttons of the page ----------------------------------------------------------

    def _posted(self, request: HttpRequest, pk: int, *, may: bool) -> ReplayBatch | None:
        """Return the batch that a button was pressed for; None for a GET, or when it does not exist."""
        if not may:
            raise PermissionDenied
        return self.row(request, pk) if request.method == "POST" else None

    def submit_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Save the settings of a draft, then make its dry run, or submit it."""
        batch = self._posted(request, pk, may=request.user.has_perm(REPLAY))
        if batch is None:
            return self.back(request, pk)
        form, version = BatchSettingsForm(request.POST), RowVersion(request.POST)
        if not version.is_valid() or version.cleaned_data["row_version"] != batch.row_version:
            return self.changed_page(request, batch, version, form)
        if not form.is_valid():
            return self.row_page(request, batch, form)
        actor, is_check = request.user.get_username(), request.POST.get("do") == "check"
        given = {"row_version": batch.row_version, **form.cleaned_data}
        with transaction.atomic():  # no other settings come between those of the form and the submission
            result = batches.configure(batch.pk, actor=actor, **given)
            if result.ok and not is_check:
                result = batches.submit(batch.pk, actor=actor)
        if result.ok and is_check:
            result = Result(True, dry_run_sentence(batches.dry_run(batch.pk)))
        return self.back(request, pk, result)

    def dry_run_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Check for every letter whether it could be replayed now; replay none."""
        may = request.user.has_perm(REPLAY) or request.user.has_perm(APPROVE)
        if (batch := self._posted(request, pk, may=may)) is None:
            return self.back(request, pk)
        if not _may_check(request, batch):
            return self.back(request, pk, Result(False, _state(batch)))
        return self.back(request, pk, Result(True, dry_run_sentence(batches.dry_run(batch.pk))))

    def pause_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Pause a running batch without a confirmation page, since it can be resumed at any time."""
        if self._posted(request, pk, may=request.user.has_perm(REPLAY)) is None:
            return self.back(request, pk)
        return self.back(request, pk, batches.pause(pk, actor=request.user.get_username(), reason="by hand"))

    def pace_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Change the rate of a batch, also while it runs."""
        if (batch := self._posted(request, pk, may=request.user.has_perm(REPLAY))) is None:
            return self.back(request, pk)
        if batch.status not in _PACED:
            return self.back(request, pk, Result(False, _state(batch)))
        form = PaceForm(request.POST)
        if not form.is_valid():
            return self.row_page(request, batch, pace_form=form)
        actor = request.user.get_username()
        return self.back(request, pk, batches.set_pace(pk, actor=actor, **form.cleaned_data))

    def action_context(
        self, request: HttpRequest, row: ReplayBatch, action: RowAction, form: AdminForm
    ) -> dict[str, Any]:
        return {
            **super().action_context(request, row, action, form),
            "batch": row,
            "last_event": last_event(row),
            "left": batches.progress(row.pk).left,
            "verdicts": verdict_rows(row),
            **facts_of(row),
        }


def _may_check(request: HttpRequest, batch: ReplayBatch) -> bool:
    """Return whether this user may make the dry run of a batch now, apart from its settings.

    Approvers look before they decide; a draft is checked with its settings.
    """
    if batch.status == BatchStatus.AWAITING and request.user.has_perm(APPROVE):
        return True
    return batch.status in {BatchStatus.AWAITING, BatchStatus.PAUSED} and bool(request.user.has_perm(REPLAY))
