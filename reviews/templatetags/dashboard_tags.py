"""Tags of admin pages that show reviews: the dashboard, and the stage of a message."""

from __future__ import annotations

from typing import Any

from django import template

from criticizer.models import OutboxMessage
from reviews.dashboard import overview
from reviews.dashboard.now import needs_now
from reviews.dashboard.trends import WINDOWS
from reviews.models import StageRun
from reviews.pipeline import AGGREGATE
from reviews.recipients.viewing_scopes import scope_of
from reviews.web.navigation import navigation

register = template.Library()


@register.inclusion_tag("admin/_dashboard_frame.html", takes_context=True)
def show_dashboard(context: dict[str, Any]) -> dict[str, Any]:
    """Render the dashboard for users with the permission; nothing for others."""
    request = context["request"]
    if not overview.may_see(request.user):
        return {}
    shown = overview.dashboard(request.GET.get("window", ""))
    return {"dashboard": shown, "windows": WINDOWS, "next_seconds": overview.REFRESH_SECONDS}


@register.inclusion_tag("admin/_now.html", takes_context=True)
def show_now(context: dict[str, Any]) -> dict[str, Any]:
    """Render what needs the user now; an empty list says so."""
    return {"now": needs_now(context["request"].user)}


@register.inclusion_tag("admin/_navigation.html", takes_context=True)
def show_navigation(context: dict[str, Any]) -> dict[str, Any]:
    """Render the tasks that the user may open; nothing for people who may not use the admin."""
    return navigation(context["request"]) if context.get("has_permission") else {}


@register.simple_tag(takes_context=True)
def stage_of(context: dict[str, Any], message: OutboxMessage) -> StageRun | None:
    """Return the stage of an outbox message; None outside the user's viewing scope."""
    if message.aggregate_type != AGGREGATE:
        return None
    runs = StageRun.objects.select_related("job").filter(pk=message.aggregate_id)
    return runs.filter(job__in=scope_of(context["request"].user).jobs()).first()
