"""Admin of code hosts, read-only: installations, pull requests and webhooks."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, list_column
from criticizer.admin_site.list_rendering import badge
from criticizer.admin_site.viewing_scope import across_reviews
from reviews.models import Host, HostChange, HostDelivery, HostInstallation

_SCOPE = across_reviews("names of repositories, whether a person may read them or not")
# State -> CSS state with the same meaning (states.css).
_INSTALLATIONS = {
    HostInstallation.Status.ACTIVE: "alive",
    HostInstallation.Status.SUSPENDED: "silent",
    HostInstallation.Status.DELETED: "failed",
}


@admin.register(HostInstallation)
class HostInstallationAdmin(ReadOnlyAdmin):
    """Installations of our App. Suspended and uninstalled ones get no reviews."""

    scope = _SCOPE
    empty_text = (
        "No installation has reported yet. The page Repositories says how to install the App "
        "of your code host."
    )
    list_display = (
        "account",
        "host",
        "condition",
        list_column("changed_at", "changed"),
        list_column("installation_id", "number", "path"),
    )
    list_filter = (choice_filter("status", "state", HostInstallation.Status.choices),)
    search_fields = ("account__exact",)
    search_help_text = "An owner of repositories, exactly."
    ordering = ("-changed_at", "-id")
    fields = ("host", "account", "installation_id", "condition", "changed_at")
    readonly_fields = ("condition",)

    @admin.display(description="state", ordering="status")
    def condition(self, row: Any) -> SafeString:
        return badge(_INSTALLATIONS[row.status], row.get_status_display())


@admin.register(HostChange)
class HostChangeAdmin(ReadOnlyAdmin):
    """Pull requests, as their host last reported them."""

    scope = _SCOPE
    empty_text = (
        "No pull request was reported yet. The page Repositories has the webhook to which "
        "code hosts report them."
    )
    list_display = (
        list_column("changelist_id", "pull request", "path"),
        "state",
        list_column("head_sha", "head", "path"),
        list_column("base_ref", "base", "path"),
        list_column("reported_at", "reported"),
    )
    list_filter = (
        choice_filter("state", "state", HostChange.State.choices),
        choice_filter("host", "host", Host.choices),
    )
    search_fields = ("changelist_id__exact", "full_name__exact")
    search_help_text = "A pull request (github:owner/repository#7) or a repository, exactly."
    ordering = ("-reported_at", "-id")
    fields = (
        "host", "full_name", "number", "repository_id", "installation_id", "state", "head_sha", "base_ref",
        "base_sha", "reported_at", "created_at",
    )  # fmt: skip


@admin.register(HostDelivery)
class HostDeliveryAdmin(ReadOnlyAdmin):
    """Webhooks with a valid signature: the review that each requested, or why it requested none."""

    scope = _SCOPE
    empty_text = "No webhook has arrived yet. The page Repositories has its address and the events to choose."
    list_display = (
        list_column("received_at", "received"),
        list_column("event", "event", "path"),
        list_column("full_name", "repository", "path"),
        "result",
        "repeats",
    )
    list_filter = (choice_filter("host", "host", Host.choices),)
    list_select_related = ("job",)
    search_fields = ("delivery_id__exact", "full_name__exact")
    search_help_text = "The id of a delivery, or a repository, exactly."
    ordering = ("-received_at", "-id")
    fields = (
        "host", "event", "full_name", "repository_id", "installation_id", "delivery_id", "result",
        "received_at", "repeats", "repeated_at",
    )  # fmt: skip
    readonly_fields = ("result",)

    @admin.display(description="result")
    def result(self, row: Any) -> SafeString | str:
        if row.job is None:
            return str(row.ignored)
        address = reverse("admin:reviews_reviewjob_change", args=[row.job_id])
        known = " (requested before)" if row.is_duplicate else ""
        return format_html('<a href="{}">{}</a>{}', address, row.job, known)
