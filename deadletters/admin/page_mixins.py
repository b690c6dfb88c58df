"""Rows that have a page of their own, and what is said of what was done to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from criticizer.admin_site.bulk_actions import ConfirmedActionsMixin
from deadletters.models import DeadLetterEvent, DeadLetterGroupEvent
from deadletters.states import NO_STEP, EventSource
from deadletters.types import Result

_LOOKED_AT_ONCE = 1000


def sentence(text: str) -> str:
    """Return what the domain says as a sentence for people."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def address_of_letters(ids: Sequence[int]) -> str:
    """Return where the list shows these letters, closed ones as well."""
    query = {"q": f"letter:{','.join(map(str, ids))}", "by": "all"}
    return reverse("admin:deadletters_deadletter_changelist", query=query)


def say(
    desk: admin.ModelAdmin[Any], request: HttpRequest, result: Result, refused: str = "Nothing was done"
) -> None:
    """Tell on the next page what a step came to."""
    text = sentence(result.message) if result.ok else f"{refused}: {result.message.rstrip('.')}."
    desk.message_user(request, text, messages.SUCCESS if result.ok else messages.WARNING)


class PageAdmin(admin.ModelAdmin[Any]):
    """Mixin: a row has a page of its own, which is read here and changed by steps and actions."""

    gone_text = ""  # what else is said of a row that is not there

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if request.method not in {"GET", "HEAD"} or not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            return self.row_gone(request, object_id)
        return self.row_page(request, row)

    def row_gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return what is shown instead of a row that is not there."""
        return gone(request, str(self.opts.verbose_name), self.gone_text)

    def row_page(self, request: HttpRequest, row: Any) -> HttpResponse:
        """Return the page of one row."""
        raise NotImplementedError


class TimelineAdmin(ConfirmedActionsMixin):
    """Mixin: what people did to a row after a question stands in its timeline; the answer spares the row."""

    timeline: type[DeadLetterEvent | DeadLetterGroupEvent]
    timeline_of: str  # the timeline's column that names the row

    def stamp(self) -> int:
        newest = self.timeline.objects.order_by("-id").values_list("pk", flat=True).first()
        return newest or 0

    def changed_since(self, ids: Sequence[int], stamp: int) -> Mapping[int, str]:
        """What happens by itself is no change: what counts is what somebody decided."""
        key = self.timeline_of
        later = (
            self.timeline.objects.filter(pk__gt=stamp)
            .exclude(source=EventSource.SYSTEM)
            .exclude(action__in=NO_STEP)
        )
        newest = later.order_by(key, "-id").distinct(key)
        found: dict[int, str] = {}
        for start in range(0, len(ids), _LOOKED_AT_ONCE):
            for event in newest.filter(**{f"{key}__in": ids[start : start + _LOOKED_AT_ONCE]}):
                said = f"{event.get_action_display().lower()} by {event.actor} meanwhile"
                found[getattr(event, key)] = said
        return found


def gone(request: HttpRequest, noun: str, more: str = "") -> HttpResponse:
    """Send somebody back who asks for a row that is not there, or not any more."""
    messages.warning(request, f"That {noun} does not exist any more. {more}".strip())
    return HttpResponseRedirect(reverse("admin:index"))
