"""Admin of the outbox (read-only): due, leased and waiting messages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Q
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import detail_field, list_column
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import age, exact, flags, number
from criticizer.admin_site.viewing_scope import across_reviews
from criticizer.models import Circuit, OutboxMessage
from criticizer.queue import outbox

_LEASED = Q(lease_token__isnull=False)


@admin.register(OutboxMessage)
class OutboxMessageAdmin(KeysetAdmin):
    """The queue: a message is listed until its work is recorded."""

    scope = across_reviews("the errors of every review's stages")
    list_display = (
        "message",
        "queue",
        "flow",
        "state",
        list_column("available_at", "due"),
        list_column("retry_count", "retries"),
        list_column("waiting_for", "waits for", "path"),
        list_column("created_at", "written"),
    )
    orderings = {
        "next": Ordering("Due first", ("available_at", "id")),
        "last": Ordering("Due last", ("-available_at", "-id")),
    }
    search_keys = {
        "queue": exact("queue", "The queue", choices=outbox.queues()),
        "flow": exact("flow", "Who made the work: an API key, a poll, a person", example="key:ci"),
        "type": exact("message_type", "The kind of work", example="run_stage"),
        "waits": exact("waiting_for", "The dependency it waits for", example="llm:openai"),
        "retries": number("retry_count", "How many attempts failed before", example=">0"),
        "age": age("created_at", "The age of the message", example=">10m"),
        "is": flags(
            {
                "due": Q(available_at__lte=Now()),
                "leased": _LEASED,
                "waiting": ~Q(waiting_for=""),
            },
            "Due now; leased by a worker; waiting for a dependency",
        ),
    }
    starting_views = {"Due": "q=is%3Adue", "Running": "q=is%3Aleased", "Waiting": "q=is%3Awaiting"}
    empty_text = "The queue is empty."
    fieldsets = (
        ("Message", {"fields": (
            "state", "queue_of", "flow", detail_field("available_at", "due, or leased until"),
            detail_field("started_at", "started"),
            detail_field("retry_count", "retries"), detail_field("created_at", "written"), "dependency",
            "message", detail_field("error_message", "last error", "whole"),
        )}),
    )  # fmt: skip

    def page_context(self, request: HttpRequest, row: OutboxMessage) -> dict[str, Any]:
        return {"title": f"Message {row.pk}: {row.message_type}"}

    @admin.display(description="message")
    def message(self, row: OutboxMessage) -> str:
        return f"{row.message_type} {row.aggregate_type} {row.aggregate_id}"

    @admin.display(description="queue")
    def queue_of(self, row: OutboxMessage) -> SafeString:
        return queue_link(row.queue)

    @admin.display(description="waits for")
    def dependency(self, row: OutboxMessage) -> SafeString | str:
        """Link to the circuit of the dependency."""
        if not Circuit.objects.filter(pk=row.waiting_for).exists():
            return row.waiting_for or "nothing"
        address = reverse("admin:criticizer_circuit_change", args=[quote(row.waiting_for)])
        return format_html_fast('<a class="path" href="{}">{}</a>', address, row.waiting_for)

    @admin.display(description="state")
    def state(self, row: Any) -> SafeString:
        if row.lease_token is not None:
            value, label = "running", "Running"
        elif row.waiting_for:
            value, label = "retry_wait", "Waiting"
        else:
            value, label = "queued", "Queued"
        return badge(value, label)


def queue_link(queue: str) -> SafeString:
    """Return a link to the messages of a queue."""
    address = reverse("admin:criticizer_outboxmessage_changelist", query={"q": f"queue:{queue}"})
    return format_html_fast('<a href="{}">{}</a>', address, queue)
