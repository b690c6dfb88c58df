"""What the console's first page shows besides its tables."""

from __future__ import annotations

from typing import Any

from django import template

from reviews import dashboard as figures
from reviews.dashboard.past import WINDOWS

register = template.Library()


@register.inclusion_tag("admin/_dashboard_frame.html", takes_context=True)
def show_dashboard(context: dict[str, Any]) -> dict[str, Any]:
    """Draw the dashboard for those who may see it; nothing for others."""
    request = context["request"]
    if not figures.may_see(request.user):
        return {}
    shown = figures.dashboard(request.GET.get("window", ""))
    return {"dashboard": shown, "windows": WINDOWS, "next_seconds": figures.REFRESH_SECONDS}
