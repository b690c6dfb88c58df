"""Admin of worker clusters (read-only)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, fact, one_of, titled
from criticizer.admin_site.list_rendering import chip
from criticizer.models import WorkerCluster
from criticizer.observability.health import BEAT_SECONDS
from criticizer.queue.admin import queue_link


@admin.register(WorkerCluster)
class WorkerClusterAdmin(ReadOnlyAdmin):
    list_display = (
        "queue",
        "state",
        titled("host", "machine", "path"),
        titled("pid", "process"),
        "workers",
        titled("started_at", "started"),
        titled("beat_at", "last beat"),
    )
    list_filter = (one_of("queue", "queue", [("stages", "stages"), ("llm", "llm")]),)
    ordering = ("queue", "-beat_at")
    fieldsets = (
        ("Cluster", {"fields": (
            "state", "serves", fact("host", "machine", "path"), fact("pid", "process"),
            fact("workers", "worker processes"), fact("started_at", "started"), fact("beat_at", "last beat"),
            fact("id", "key", "whole path"),
        )}),
    )  # fmt: skip

    def page_context(self, request: HttpRequest, row: WorkerCluster) -> dict[str, Any]:
        return {"title": f"Workers of {row.queue} on {row.host}"}

    @admin.display(description="state")
    def state(self, cluster: WorkerCluster) -> SafeString:
        """Say whether the cluster still beats: rows of killed ones stay for a while."""
        silent = (timezone.now() - cluster.beat_at).total_seconds() > BEAT_SECONDS
        value, label = ("silent", "Silent") if silent else ("alive", "Alive")
        if cluster.draining and not silent:
            value, label = "running", "Draining"
        return chip(value, label)

    @admin.display(description="queue")
    def serves(self, cluster: WorkerCluster) -> SafeString:
        """Lead to what the queue holds."""
        return queue_link(cluster.queue)
