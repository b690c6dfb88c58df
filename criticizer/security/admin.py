"""Admin of security events (read-only) and of accounts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, detail_field, list_column, named_values
from criticizer.admin_site.viewing_scope import RowScope, ScopedAdmin, not_of_reviews
from criticizer.models import SecurityEvent
from criticizer.security.reauthentication import ChangePassword, SetOtherPasswordForm

admin.site.unregister([User, Group])


def change_password(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
    """Show the admin's page of a password change with our form.

    The form counts wrong passwords as a login does (G222).
    """
    view = ChangePassword.as_view(
        template_name=PasswordChangeView.template_name,
        success_url=reverse("admin:password_change_done"),
        extra_context={**admin.site.each_context(request), **(extra_context or {})},
    )
    return view(request)


admin.site.password_change = change_password  # type: ignore[method-assign,assignment]


@admin.register(User)
class AccountAdmin(ScopedAdmin, UserAdmin[User]):
    scope = not_of_reviews("accounts")
    change_password_form = SetOtherPasswordForm


@admin.register(Group)
class RoleAdmin(ScopedAdmin, GroupAdmin):
    scope = not_of_reviews("roles")


@admin.register(SecurityEvent)
class SecurityEventAdmin(ReadOnlyAdmin):
    scope = RowScope(lambda visible: visible.of_events())
    empty_text = "No path was denied, no message was refused, and no artifact was read."
    list_display = (
        list_column("created_at", "when"),
        list_column("kind", "event"),
        list_column("changelist_id", "changelist", "path"),
        list_column("path", "path", "path"),
        "reason",
        list_column("actor", "who"),
    )
    list_filter = (choice_filter("event", "kind", SecurityEvent.Kind.choices),)
    search_fields = ("changelist_id__exact", "actor__exact", "path__startswith")
    search_help_text = "A changelist or an actor, exactly; or the beginning of a path."
    ordering = ("-created_at", "-id")
    fields = (
        detail_field("created_at", "when"), detail_field("kind", "event"),
        detail_field("changelist_id", "changelist", "path"),
        detail_field("actor", "who"), detail_field("path", "path", "whole path"),
        detail_field("reason", "reason", "whole"),
    )  # fmt: skip

    def page_context(self, request: HttpRequest, row: SecurityEvent) -> dict[str, Any]:
        return {"title": row.get_kind_display(), "context_facts": named_values(row.context)}
