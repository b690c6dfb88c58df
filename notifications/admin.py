"""Deliveries in the admin: to be read, not edited. `sending` writes their states."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from notifications.models import Delivery, DeliveryAttempt


class _ReadOnly:
    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


class AttemptInline(_ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    model = DeliveryAttempt
    fields = ("number", "outcome", "started_at", "finished_at", "notification_id", "error_class", "detail")
    extra = 0


@admin.register(Delivery)
class DeliveryAdmin(_ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = (
        "changelist_id",
        "review_version",
        "recipient",
        "status",
        "provider",
        "attempts",
        "notified_at",
        "error_class",
    )
    list_filter = ("status", "provider", "error_class")
    search_fields = ("changelist_id__startswith", "recipient", "notification_id__exact")
    search_help_text = "Changelist, recipient or the provider's id"
    ordering = ("-id",)
    list_select_related = False
    show_full_result_count = False
    fields = (
        "job",
        "changelist_id",
        "review_version",
        "recipient",
        "status",
        "token",
        "provider",
        "notification_id",
        "notified_at",
        "attempts",
        "error_class",
        "detail",
        "subject",
        "payload_sha256",
        "created_at",
        "updated_at",
    )
    inlines = (AttemptInline,)
