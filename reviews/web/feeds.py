"""Atom feeds of the two lists, for programs that cannot log in (guarantee G332).

A link is signed for one person. It shows titles of what that person may see at that moment. It stops working
while they lack the role, and permanently when they reset their links, are deactivated or change their
password. A password rehash at login after a Django upgrade counts as a change (a trigger of the first
migration).

The key is in the query. Our own logs leave queries out; the proxy in front must too (deploy/nginx.conf).
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.signing import BadSignature, Signer
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.feedgenerator import Atom1Feed
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from criticizer.invisible_characters import name_invisible
from reviews.filters import FindingFilter
from reviews.models import FeedKey
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.roles import READ
from reviews.web.finding_list import finding_page
from reviews.web.review_list import ListedJob, ReviewFilter, matching

_KEY = struct.Struct(">QQ")  # user, resets


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a list as its feed shows it."""

    title: str
    summary: str
    link: str
    unique_id: str
    updated: datetime
    author: str


@dataclass(frozen=True, slots=True)
class _List:
    """A list with a feed. `entries` returns None when the query took too long."""

    title: str
    page: str
    form: type[forms.Form]
    entries: Callable[[Mapping[str, Any], Any, Scope], list[Entry] | None]


def address(user: Any, name: str, query: str) -> str:
    """Return the path of a person's feed of a list, narrowed by a query string of its filter."""
    resets = FeedKey.objects.filter(user=user.pk).values_list("resets", flat=True).first() or 0
    packed = base64.urlsafe_b64encode(_KEY.pack(user.pk, resets)).rstrip(b"=").decode()
    key = urlencode({"key": _signer().sign(packed)})
    return f"{reverse('reviews:feed', args=[name])}?{key}{'&' if query else ''}{query}"


def reset(user: Any) -> None:
    """Close every feed link that a person has copied so far."""
    FeedKey.objects.get_or_create(user_id=user.pk)
    FeedKey.objects.filter(user=user.pk).update(resets=F("resets") + 1)


def _reader(key: str) -> Any:
    """Return the person of a key, or None.

    None if the key is forged or was reset, or if the person lost the permission.
    """
    try:
        text = _signer().unsign(key)
        user_id, resets = _KEY.unpack(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (BadSignature, ValueError, struct.error):
        return None
    user = get_user_model().objects.filter(pk=user_id, is_active=True).first()
    now = FeedKey.objects.filter(user=user_id).values_list("resets", flat=True).first() or 0
    return user if user is not None and resets == now and user.has_perm(READ) else None


@require_safe
@cache_control(private=True, no_cache=True)
def feed(request: HttpRequest, name: str) -> HttpResponse:
    """Return the newest entries of a list as Atom, at most a page of it.

    304 when the reader has them already.
    """
    user = _reader(request.GET.get("key", ""))
    if user is None:
        raise Http404
    chosen = LISTS[name]
    form: Any = chosen.form(request.GET)
    if not form.is_valid():
        return HttpResponse("The filter is not valid.\n", status=400, content_type="text/plain")
    entries = chosen.entries(form.wanted(), user, scope_of(user))
    if entries is None:
        too_slow = HttpResponse("The search took too long.\n", status=503, content_type="text/plain")
        too_slow["Retry-After"] = "900"
        return too_slow
    response = HttpResponse(_written(chosen, entries), content_type="application/atom+xml; charset=utf-8")
    etag = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
    response["ETag"] = etag
    return get_conditional_response(request, etag=etag, response=response) or response


def _written(chosen: _List, entries: list[Entry]) -> str:
    base = settings.BASE_URL.rstrip("/")
    page = base + reverse(chosen.page)
    made = Atom1Feed(title=f"Criticizer: {chosen.title}", link=page, description=None, feed_guid=page)
    for entry in entries:
        made.add_item(
            title=name_invisible(entry.title),
            link=base + entry.link,
            description=name_invisible(entry.summary),
            unique_id=entry.unique_id,
            updateddate=entry.updated,
            pubdate=entry.updated,
            author_name=name_invisible(entry.author) or None,
        )
    return made.writeString("utf-8")


def _findings(wanted: Mapping[str, Any], user: Any, scope: Scope) -> list[Entry] | None:
    page = finding_page(wanted, user, scope)
    if page.is_cancelled:
        return None
    return [
        Entry(
            f"{row.severity.capitalize()}: {row.title}",
            f"{row.file}{f':{row.line}' if row.line else ''} ({row.category}), in {row.job.changelist_id}",
            f"{reverse('reviews:detail', args=[row.job_id])}#finding-{row.pk}",
            f"urn:uuid:{row.identity}",
            row.job.finished_at or row.job.created_at,
            row.job.author,
        )
        for row in page.rows
    ]


def _reviews(wanted: Mapping[str, Any], user: Any, scope: Scope) -> list[Entry] | None:
    page = matching(wanted, user, scope)
    return None if page.is_cancelled else [_of_review(row) for row in page.rows]


def _of_review(row: ListedJob) -> Entry:
    link = reverse("reviews:detail", args=[row.job.pk])
    counts = ", ".join(f"{count} {severity}" for severity, count in row.severities) or "no findings"
    return Entry(
        row.job.title or f"Changelist {row.job.changelist_id}",
        f"{row.outcome.word}: {counts}. {row.job.changelist_id}, version {row.job.review_version}",
        link,
        settings.BASE_URL.rstrip("/") + link,
        row.job.finished_at or row.job.created_at,
        row.job.author,
    )


LISTS = {
    "findings": _List("findings", "reviews:findings", FindingFilter, _findings),
    "reviews": _List("reviews", "reviews:list", ReviewFilter, _reviews),
}


def _signer() -> Signer:
    return Signer(salt="reviews.web.feeds", sep=".")
