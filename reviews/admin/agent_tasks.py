"""Admin of agents' tasks: who has which, what was submitted, and the operators' two actions."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, detail_field, list_column, state_column
from criticizer.admin_site.bulk_actions import (
    AdminForm,
    BulkAction,
    ConfirmedActionsMixin,
    for_each,
    reason_field,
)
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.viewing_scope import of_job
from reviews.agents import expire
from reviews.models import AgentTask
from reviews.states import AgentTaskStatus, AgentTaskType

MAX_SUBMISSIONS = 20  # shown, the newest


class DecideForm(AdminForm):
    reason = reason_field(help_text="A ticket or a sentence. It is stored in the history of the review.")


EXPIRE = BulkAction(
    "expire",
    "Expire",
    "No agent can finish these tasks any more. Their reviews go on without them, and say so.",
    "expired",
    "reviews.decide_agenttask",
    DecideForm,
    for_each(expire.expire_now),
    is_final=True,
)
OFFER_AGAIN = BulkAction(
    "offer_again",
    "Offer again",
    "Other agents may claim these tasks. What an agent that has one submits is refused.",
    "offered again",
    "reviews.decide_agenttask",
    DecideForm,
    for_each(expire.offer_again),
)


@admin.register(AgentTask)
class AgentTaskAdmin(ConfirmedActionsMixin, ReadOnlyAdmin):
    scope = of_job("job")
    empty_text = "No tasks are waiting. Tasks appear here when your own agents run the language model."
    nouns = ("task", "tasks")
    max_chosen = 100
    list_display = (
        "task",
        "shown_status",
        list_column("claimed_by", "claimed by", "path"),
        list_column("claimed_key", "key", "path"),
        list_column("created_at", "offered"),
        list_column("lease_expires_at", "lease ends"),
        list_column("expires_at", "expires"),
    )
    list_filter = (
        choice_filter("status", "state", AgentTaskStatus.choices),
        choice_filter("type", "type", AgentTaskType.choices),
    )
    search_fields = ("job__changelist_id__startswith", "claimed_by__startswith")
    search_help_text = "The beginning of a changelist or of an agent's name."
    ordering = ("-created_at", "-id")
    bulk_actions = (EXPIRE, OFFER_AGAIN)
    fields = (
        "shown_status", "job", "type",
        detail_field("claimed_by", "claimed by", "path"), detail_field("claimed_key", "key", "path"),
        "claims", detail_field("progress", "says", "whole"),
        detail_field("created_at", "offered"), detail_field("lease_expires_at", "lease ends"),
        detail_field("expires_at", "expires"), detail_field("finished_at", "ended"),
        "parse_failures", "failures", detail_field("error_class", "error"),
        detail_field("detail", "detail", "whole"), "submitted",
    )  # fmt: skip
    readonly_fields = ("submitted",)
    shown_status = state_column("status", "state")

    @admin.display(description="task")
    def task(self, row: AgentTask) -> str:
        return str(row)

    @admin.display(description="submissions, newest first")
    def submitted(self, row: AgentTask) -> SafeString:
        shown = row.submissions.order_by("-id")[:MAX_SUBMISSIONS]
        lines = [
            f"{each.created_at:%Y-%m-%d %H:%M:%S} {each.get_verdict_display()}, {each.size_bytes} bytes,"
            f" by key {each.key} from {each.client or 'unknown'}"
            + (f", {each.late_by_ms} ms late" if each.late_by_ms else "")
            for each in shown
        ]
        return format_html_fast('<span class="whole">{}</span>', "\n".join(lines) or "none")
