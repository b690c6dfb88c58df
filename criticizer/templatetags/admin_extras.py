"""Headings and rows of a list that is paged by key."""

from __future__ import annotations

from typing import Any

from django import template
from django.contrib.admin.templatetags.admin_list import result_headers
from django.contrib.admin.views.main import ChangeList
from django.utils.safestring import SafeString

from criticizer.admin_site import list_rendering

register = template.Library()


@register.simple_tag
def headings(changes: ChangeList) -> list[dict[str, Any]]:
    """Return the heading of each column: `text`, and `class_attrib` as HTML."""
    return list(result_headers(changes))


@register.simple_tag
def rows(changes: ChangeList) -> SafeString:
    """Return the rows of the list as HTML."""
    return list_rendering.render_rows(changes)
