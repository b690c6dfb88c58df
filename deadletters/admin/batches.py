"""Replay batches in the console: the draft with its dry run, approval by a second person, progress.

A batch is a stored object with frozen items: its page can be opened by anybody who may read it,
survives a reload, and shows what became of every letter. `batches` writes the states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache

from criticizer.admin_site import csv_export
from criticizer.admin_site.base import list_column, state_column
from criticizer.admin_site.keyset import KeysetAdmin, Ordering
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.search_query import age, exact
from criticizer.security import reauthentication
from deadletters import batches
from deadletters.admin import live_regions
from deadletters.admin.batch_actions import APPROVE, DECISIONS, REPLAY, may_check, why_not
from deadletters.admin.batch_page import (
    approval_in_list,
    dry_run_sentence,
    events_of,
    events_since,
    facts_of,
    items_page,
    last_event,
    pace_of,
    progress_context,
    settings_of,
    submit_help,
    title_of,
    verdict_rows,
)
from deadletters.admin.forms import BatchSettingsForm, PaceForm, ReasonForm, RowVersion
from deadletters.admin.page_mixins import PageAdmin, say
from deadletters.models import ReplayBatch, ReplayBatchEvent
from deadletters.states import BatchStatus
from deadletters.types import Result


@admin.register(ReplayBatch)
class ReplayBatchAdmin(PageAdmin, KeysetAdmin):
    """Batches, newest first, and the page of one."""

    change_list_template = "admin/deadletters/change_list.html"
    empty_text = (
        "Nothing was replayed in bulk yet. Choose letters, or a group, and “Replay”: that makes "
        "a draft here which says of each letter what would happen, and replays none before it is submitted."
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
        "state": exact("status", "How far it is", choices=BatchStatus.choices),
        "by": exact("requested_by", "Who asked for it", example="ann"),
        "age": age("requested_at", "How long ago it was made"),
    }
    starting_views = {"To be approved": "q=state%3Aawaiting", "Running": "q=state%3Arunning"}
    state = state_column("status")

    @admin.display(description="what for")
    def what(self, batch: ReplayBatch) -> SafeString:
        return format_html_fast('Batch {}<br><span class="cause">{}</span>', batch.pk, batch.reason[:160])

    @admin.display(description="letters")
    def letters(self, batch: ReplayBatch) -> int:
        return batch.item_count

    @admin.display(description="approved by")
    def approval(self, batch: ReplayBatch) -> str:
        return approval_in_list(batch)

    # -- addresses ----------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        def at(name: str, view: Callable[..., HttpResponse]) -> Any:
            wrapped = self.admin_site.admin_view(view)
            route = f"<int:batch_id>/{name.replace('_', '-')}/"
            return path(route, wrapped, name=f"deadletters_replaybatch_{name}")

        return [
            *(at(name, partial(self.decide_view, name=name)) for name in DECISIONS),
            at("submit", self.submit_view),
            at("dry_run", self.dry_run_view),
            at("pause", self.pause_view),
            at("pace", self.pace_view),
            at("live", never_cache(self.live_view)),
            at("csv", self.csv_view),
            *super().get_urls(),
        ]

    def may_replay(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(REPLAY))

    def _back(self, batch_id: int) -> HttpResponseRedirect:
        return HttpResponseRedirect(reverse("admin:deadletters_replaybatch_change", args=[batch_id]))

    # -- the batch ----------------------------------------------------------------------------

    def row_page(self, request: HttpRequest, row: ReplayBatch) -> HttpResponse:
        return self._page(request, row)

    def _page(
        self,
        request: HttpRequest,
        batch: ReplayBatch,
        form: BatchSettingsForm | None = None,
        *,
        pace_form: PaceForm | None = None,
        changed: Sequence[ReplayBatchEvent] | None = None,
    ) -> HttpResponse:
        parts = self._live_context(request, batch)
        is_paced = self.may_replay(request) and batch.status in _PACED
        here = reverse("admin:deadletters_replaybatch_change", args=[batch.pk])
        context = {
            **self.admin_site.each_context(request),
            "title": title_of(batch),
            "opts": self.opts,
            "original": batch,
            "changed": changed,
            "may_act": self.may_replay(request),
            "form": form or BatchSettingsForm(initial=settings_of(batch)),
            "submit_help": submit_help(batch),
            **reauthentication.asking(request, "admin:deadletters_replaybatch_submit", here),
            "verdicts": verdict_rows(batch),
            "checked_at": parse_datetime(str(batch.report.get("checked_at", ""))) if batch.report else None,
            "may_check": may_check(request, batch),
            **facts_of(batch),
            "events": events_of(batch),
            "last_event": last_event(batch),
            "pace_form": (pace_form or PaceForm(initial=pace_of(batch))) if is_paced else None,
            "live_have": live_regions.digest(live_regions.drawn(request, _LIVE, parts)),
            "live_query": urlencode({name: request.GET.get(name, "") for name in ("outcome", "after")}),
            "live_seconds": live_regions.LIVE_SECONDS if parts["goes_on"] else 0,
            **parts,
        }
        template = "admin/deadletters/replaybatch/change_form.html"
        return TemplateResponse(request, template, context, status=200 if changed is None else 409)

    def _live_context(self, request: HttpRequest, batch: ReplayBatch) -> dict[str, Any]:
        return {
            "batch": batch,
            "deeds": self._deeds(request, batch),
            "may_pause": self.may_replay(request) and batch.status == BatchStatus.RUNNING,
            **progress_context(batch),
            **items_page(batch, request.GET.get("outcome", ""), request.GET.get("after", "")),
        }

    def _deeds(self, request: HttpRequest, batch: ReplayBatch) -> list[dict[str, str]]:
        return [
            {
                "label": decision.label,
                "address": reverse(f"admin:deadletters_replaybatch_{decision.name}", args=[batch.pk]),
            }
            for decision in DECISIONS.values()
            if batch.status in decision.offered
            and request.user.has_perm(decision.permission)
            and not why_not(request, batch, decision)
        ]

    def live_view(self, request: HttpRequest, batch_id: int) -> HttpResponse:
        """Return the parts of the page that change while the batch, or a job of it, is at work; or 204.

        Of the items those of the page that is looked at: it sends its own query.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        batch = get_object_or_404(ReplayBatch, pk=batch_id)
        parts = self._live_context(request, batch)
        return live_regions.answer(
            request, live_regions.drawn(request, _LIVE, parts), goes_on=parts["goes_on"]
        )

    def csv_view(self, request: HttpRequest, batch_id: int) -> HttpResponse:
        """Return what became of every letter as a table (RFC 4180), safe for spreadsheets."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        batch = get_object_or_404(ReplayBatch, pk=batch_id)
        header, *rows = batches.csv_rows(batch.pk)
        answer = HttpResponse(csv_export.to_csv(header, rows), content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="replay-batch-{batch.pk}.csv"'
        return answer

    # -- what is done with it -----------------------------------------------------------------

    def submit_view(self, request: HttpRequest, batch_id: int) -> HttpResponse:
        """Keep the settings of a draft, then check it again, or let it go."""
        if not self.may_replay(request):
            raise PermissionDenied
        batch = ReplayBatch.objects.filter(pk=batch_id).first()
        if batch is None or request.method != "POST":
            return self._back(batch_id)
        form, version = BatchSettingsForm(request.POST), RowVersion(request.POST)
        if not version.is_valid() or version.cleaned_data["row_version"] != batch.row_version:
            return self._page(request, batch, form, changed=events_since(batch, version))
        if not form.is_valid():
            return self._page(request, batch, form)
        actor, is_check = request.user.get_username(), request.POST.get("do") == "check"
        given = {"row_version": batch.row_version, **form.cleaned_data}
        with transaction.atomic():  # nobody else's settings come between those of the form and the submission
            result = batches.configure(batch.pk, actor=actor, **given)
            if result.ok and not is_check:
                result = batches.submit(batch.pk, actor=actor)
        if result.ok and is_check:
            result = Result(True, dry_run_sentence(batches.dry_run(batch.pk)))
        say(self, request, result)
        return self._back(batch.pk)

    def dry_run_view(self, request: HttpRequest, batch_id: int) -> HttpResponse:
        """Ask of every letter what a replay would meet now; replay none."""
        if not (self.may_replay(request) or request.user.has_perm(APPROVE)):
            raise PermissionDenied
        batch = ReplayBatch.objects.filter(pk=batch_id).first()
        if batch is None or request.method != "POST":
            return self._back(batch_id)
        if may_check(request, batch):
            say(self, request, Result(True, dry_run_sentence(batches.dry_run(batch.pk))))
        else:
            say(self, request, Result(False, f"the batch is {batch.get_status_display().lower()}"))
        return self._back(batch.pk)

    def pause_view(self, request: HttpRequest, batch_id: int) -> HttpResponse:
        """Hold a running batch: one press, no question, since it can go on at any time."""
        if not self.may_replay(request):
            raise PermissionDenied
        if request.method == "POST" and ReplayBatch.objects.filter(pk=batch_id).exists():
            say(self, request, batches.pause(batch_id, actor=request.user.get_username(), reason="by hand"))
        return self._back(batch_id)

    def pace_view(self, request: HttpRequest, batch_id: int) -> HttpResponse:
        """Change how fast a batch goes, also while it runs."""
        if not self.may_replay(request):
            raise PermissionDenied
        batch = ReplayBatch.objects.filter(pk=batch_id).first()
        if batch is None or request.method != "POST":
            return self._back(batch_id)
        form = PaceForm(request.POST)
        if batch.status in _PACED and not form.is_valid():
            return self._page(request, batch, pace_form=form)
        if batch.status not in _PACED:
            say(self, request, Result(False, f"the batch is {batch.get_status_display().lower()}"))
        else:
            actor = request.user.get_username()
            say(self, request, batches.set_pace(batch.pk, actor=actor, **form.cleaned_data))
        return self._back(batch.pk)

    def decide_view(self, request: HttpRequest, batch_id: int, name: str) -> HttpResponse:
        """Ask for a reason, then approve, resume or cancel."""
        decision = DECISIONS[name]
        if not request.user.has_perm(decision.permission):
            raise PermissionDenied
        batch = ReplayBatch.objects.filter(pk=batch_id).first()
        if batch is None or batch.status not in decision.offered:
            if batch is not None:
                state = batch.get_status_display().lower()
                say(self, request, Result(False, f"the batch is {state}"))
            return self._back(batch_id)
        if problem := why_not(request, batch, decision):
            say(self, request, Result(False, problem))
            return self._back(batch_id)
        form = ReasonForm(request.POST or None)
        version = RowVersion(request.POST or None)
        if request.method == "POST" and form.is_valid():
            is_running = batch.status == BatchStatus.RUNNING  # and changes by itself
            seen = version.cleaned_data["row_version"] if version.is_valid() else None
            if not is_running and seen != batch.row_version:
                return self._page(request, batch, changed=events_since(batch, version))
            given = {"reason": form.cleaned_data["reason"], "row_version": None if is_running else seen}
            say(self, request, decision.act(batch.pk, actor=request.user.get_username(), **given))
            return self._back(batch.pk)
        context = {
            **self.admin_site.each_context(request),
            "title": decision.label,
            "opts": self.opts,
            "batch": batch,
            "form": form,
            "last_event": last_event(batch),
            "question": decision.question,
            "button": decision.label,
            "left": batches.progress(batch.pk).left,
            "is_final": decision.is_final,
            "is_approval": decision.name == "approve",
            "verdicts": verdict_rows(batch),
            **facts_of(batch),
        }
        return TemplateResponse(request, "admin/deadletters/replaybatch/act.html", context)


_LIVE = ("admin/deadletters/replaybatch/_progress.html", "admin/deadletters/replaybatch/_items.html")
_PACED = (
    BatchStatus.RUNNING,
    BatchStatus.PAUSED,
    BatchStatus.STOPPED,
)  # a draft has its settings, an ended batch no pace
