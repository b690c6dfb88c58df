"""Admin of code hosts, read-only: installations, pull requests and webhooks."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, list_column
from criticizer.admin_site.list_rendering import badge
from criticizer.admin_site.viewing_scope import across_reviews
from criticizer.codehosts.registry import HOSTS, label_of
from reviews.models import HostChange, HostDelivery, HostInstallation

_HOSTS = [(name, kind.label) for name, kind in HOSTS.items()]
_SCOPE = across_reviews("names of repositories, whether a person may read them or not")
# State -> CSS state with the same meaning (states.css).
_INSTALLATIONS = {
    HostInstallation.Status.ACTIVE: "alive",
    HostInstallation.Status.SUSPENDED: "silent",
    HostInstallation.Status.DELETED: "failed",
}


class _OnHost(ReadOnlyAdmin):
    """Rows of a code host, by what people call it."""

    scope = _SCOPE
    readonly_fields: ClassVar[tuple[str, ...]] = ("host_label",)

    @admin.display(description="host", ordering="host")
    def host_label(self, row: Any) -> str:
        return label_of(row.host)


@admin.register(HostInstallation)
class HostInstallationAdmin(_OnHost):
    """Installations of our App. Suspended and uninstalled ones get no reviews."""

    empty_text = (
        "No installation has reported yet. The page Repositories says how to install the App "
        "of your code host."
    )
    list_display = (
        "account",
        "host_label",
        "condition",
        list_column("changed_at", "changed"),
        list_column("installation_id", "number", "path"),
    )
    list_filter = (choice_filter("status", "state", HostInstallation.Status.choices),)
    search_fields = ("account__exact",)
    search_help_text = "An owner of repositories, exactly."
    ordering = ("-changed_at", "-id")
    fields = ("host_label", "account", "installation_id", "condition", "changed_at")
    readonly_fields = ("host_label", "condition")

    @admin.display(description="state", ordering="status")
    def condition(self, row: Any) -> SafeString:
        return badge(_INSTALLATIONS[row.status], row.get_status_display())


@admin.register(HostChange)
class HostChangeAdmin(_OnHost):
    """Pull requests, as their host last reported them."""

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
        choice_filter("host", "host", _HOSTS),
    )
    search_fields = ("changelist_id__exact", "full_name__exact")
    search_help_text = "A pull request (github:owner/repository#7) or a repository, exactly."
    ordering = ("-reported_at", "-id")
    fields = (
        "host_label", "full_name", "number", "repository_id", "installation_id", "state", "head_sha",
        "base_ref", "base_sha", "reported_at", "created_at",
    )  # fmt: skip


@admin.register(HostDelivery)
class HostDeliveryAdmin(_OnHost):
    """Webhooks with a valid signature: the review that each requested, or why it requested none."""

    empty_text = "No webhook has arrived yet. The page Repositories has its address and the events to choose."
    list_display = (
        list_column("received_at", "received"),
        list_column("event", "event", "path"),
        list_column("full_name", "repository", "path"),
        "result",
        "repeats",
    )
    list_filter = (choice_filter("host", "host", _HOSTS),)
    list_select_related = ("job",)
    search_fields = ("delivery_id__exact", "full_name__exact")
    search_help_text = "The id of a delivery, or a repository, exactly."
    ordering = ("-received_at", "-id")
    fields = (
        "host_label", "event", "full_name", "repository_id", "installation_id", "delivery_id", "result",
        "received_at", "repeats", "repeated_at",
    )  # fmt: skip
    readonly_fields = ("host_label", "result")

    @admin.display(description="result")
    def result(self, row: Any) -> SafeString | str:
        if row.job is None:
            return str(row.ignored)
        address = reverse("admin:reviews_reviewjob_change", args=[row.job_id])
        known = " (requested before)" if row.is_duplicate else ""
        return format_html('<a href="{}">{}</a>{}', address, row.job, known)
