"""Saved views of lists: a person's name for a search, filters and an order.

No other person sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.exceptions import NotRegistered
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from criticizer.admin_site.search_query import row_number
from criticizer.models import SavedView

MAX_VIEWS = 50  # of one list, of one person
_OF_THE_MOMENT = {"after", "before", "p", "e", "all", "_popup", "_to_field", "_facets"}


@dataclass(frozen=True, slots=True)
class View:
    """A view that a list offers. `pk` is 0 for the built-in ones."""

    name: str
    query: str
    is_current: bool
    pk: int = 0


def normalized_query(query: str) -> str:
    """Return the part of a query string that makes the view, sorted and without the page.

    "" where it has more than 50 fields.
    """
    try:
        pairs = [(name, value) for name, value in parse_qsl(query, max_num_fields=50) if value]
    except ValueError:
        return ""
    return urlencode(sorted(pair for pair in pairs if pair[0] not in _OF_THE_MOMENT))


def views_of(user: Any, page: str, starting: Mapping[str, str], query: str) -> list[View]:
    """Return the views of a list: all rows, the built-in ones, and the user's own.

    `page` is the model's label; `starting` maps names to query strings; `query` is the present one.
    """
    now = normalized_query(query)
    offered = [("All", "", 0), *((name, text, 0) for name, text in starting.items())]
    own = SavedView.objects.filter(user=user, page=page).order_by("name")[:MAX_VIEWS]
    offered += [(view.name, view.query, view.pk) for view in own]
    return [View(name, text, normalized_query(text) == now, pk) for name, text, pk in offered]


def change(request: HttpRequest) -> HttpResponse:
    """Save, rename or delete a view of the admin's list `page`, then show that list."""
    page = request.POST.get("page", "")
    return change_of(request, page, _list_of(request, page))


def change_of(request: HttpRequest, page: str, address: str) -> HttpResponse:
    """Save, rename or delete a view of the person, then show its list.

    Fields: `name` and `query` save one, `rename` and `name` rename one, `forget` deletes one.
    """
    if not request.user.is_authenticated:
        raise PermissionDenied  # their views redirect to the login before
    name, query = request.POST.get("name", "").strip()[:60], normalized_query(request.POST.get("query", ""))
    own = SavedView.objects.filter(user=request.user, page=page)
    if forgotten := request.POST.get("forget", ""):
        if own.filter(pk=row_number(forgotten) or 0).delete()[0]:
            messages.success(request, "View deleted.")
        return HttpResponseRedirect(address)
    if not name or "\x00" in name + query or len(query) > SavedView.QUERY_LENGTH:
        messages.error(request, "View not saved. Enter a name, or shorten the search.")
    elif renamed := request.POST.get("rename", ""):
        if own.filter(name=name).exclude(pk=row_number(renamed) or 0).exists():
            messages.error(request, f"View not renamed: you have a view \u201c{name}\u201d already.")
        elif own.filter(pk=row_number(renamed) or 0).update(name=name):
            messages.success(request, f"View renamed to \u201c{name}\u201d.")
    elif own.exclude(name=name).count() >= MAX_VIEWS:
        messages.error(request, f"View not saved: you have {MAX_VIEWS} views already. Delete one first.")
    else:
        SavedView.objects.update_or_create(user=request.user, page=page, name=name, defaults={"query": query})
        messages.success(request, f"View \u201c{name}\u201d saved.")
    return HttpResponseRedirect(f"{address}?{query}" if query else address)


def _list_of(request: HttpRequest, page: str) -> str:
    """Return the list's address. Raises Http404 and PermissionDenied: a view grants no access."""
    try:
        model = apps.get_model(page)
        registered = admin.site.get_model_admin(model)
    except (LookupError, ValueError, NotRegistered) as error:
        raise Http404 from error
    if not registered.has_view_permission(request):
        raise PermissionDenied
    return reverse(f"admin:{page.replace('.', '_')}_changelist")
