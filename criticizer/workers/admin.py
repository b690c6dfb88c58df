"""Admin of worker clusters (read-only)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, detail_field, list_column
from criticizer.admin_site.list_rendering import badge
from criticizer.admin_site.viewing_scope import not_of_reviews
from criticizer.models import WorkerCluster
from criticizer.observability.health import BEAT_SECONDS
from criticizer.queue import outbox
from criticizer.queue.admin import queue_link


@admin.register(WorkerCluster)
class WorkerClusterAdmin(ReadOnlyAdmin):
    scope = not_of_reviews("processes")
    empty_text = "No worker has reported yet. manage.py up starts the web server and the workers."
    list_display = (
        "queue",
        "state",
        list_column("host", "machine", "path"),
        "version",
        list_column("pid", "process"),
        "workers",
        list_column("started_at", "started"),
        list_column("beat_at", "last beat"),
    )
    list_filter = (choice_filter("queue", "queue", [(name, name) for name in outbox.queues()]),)
    ordering = ("queue", "-beat_at")
    fieldsets = (
        ("Cluster", {"fields": (
            "state", "serves", detail_field("host", "machine", "path"), "version",
            detail_field("pid", "process"),
            detail_field("workers", "worker processes"), detail_field("started_at", "started"),
            detail_field("beat_at", "last beat"),
            detail_field("id", "key", "whole path"),
        )}),
    )  # fmt: skip

    def page_context(self, request: HttpRequest, row: WorkerCluster) -> dict[str, Any]:
        return {"title": f"Workers of {row.queue} on {row.host}"}

    @admin.display(description="state")
    def state(self, cluster: WorkerCluster) -> SafeString:
        """Show alive, draining or silent; the rows of killed clusters stay for an hour."""
        silent = (timezone.now() - cluster.beat_at).total_seconds() > BEAT_SECONDS
        value, label = ("silent", "Silent") if silent else ("alive", "Alive")
        if cluster.draining and not silent:
            value, label = "running", "Draining"
        return badge(value, label)

    @admin.display(description="queue")
    def serves(self, cluster: WorkerCluster) -> SafeString:
        """Link to the messages of the queue."""
        return queue_link(cluster.queue)
