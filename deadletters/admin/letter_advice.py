"""Advice about a dead letter's failure, and the paths or recipients that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from criticizer.admin_site.viewing_scope import visible_to
from criticizer.models import SecurityEvent
from criticizer.resilience.failures import ErrorClass, hint_for, kind_with_code
from deadletters.models import DeadLetter

MAX_NAMED = 20  # paths or recipients


@dataclass(frozen=True, slots=True)
class Named:
    """Paths or recipients that a failure is about.

    `hidden` counts those outside the user's scope.
    """

    title: str
    lines: Sequence[str]
    hidden: int = 0


def named_in(letter: DeadLetter, user: Any) -> Named | None:
    """Return what the letter's own text leaves out: denied paths, recipients not notified.

    Both only to users who may see them elsewhere.
    """
    if letter.error_class == ErrorClass.PATH_DENIED:
        about = (
            letter.last_failure_at - timedelta(minutes=10),
            letter.last_failure_at + timedelta(minutes=1),
        )
        events = SecurityEvent.objects.filter(
            kind=SecurityEvent.Kind.PATH_DENIED,
            changelist_id=letter.job.changelist_id,
            created_at__range=about,
        )
        rows = events.order_by("-id").values_list("path", "reason")[:MAX_NAMED]
        visible = visible_to(user)
        seen = {path: why for path, why in rows if visible is None or visible.allows(path)}
        hidden = len({path for path, _ in rows} - set(seen))
        return Named("Denied", [f"{path}: {why}" for path, why in seen.items()], hidden)
    if letter.stage == "notify" and user.has_perm("notifications.view_delivery"):
        failed = letter.job.deliveries.exclude(error_class="").filter(status__in=("failed", "uncertain"))
        names = failed.order_by("id").values_list("recipient", "error_class")[:MAX_NAMED]
        return Named("Not delivered", [f"{name}: {error}" for name, error in names]) if names else None
    return None


def advice_on(letter: DeadLetter) -> dict[str, Any]:
    """Return the failure class of a letter, the advice on it, and whether a path was denied."""
    kind = kind_with_code(letter.code)
    return {
        "kind": kind,
        "hint": hint_for(kind, letter.detail) if kind else "",
        "is_denied": letter.error_class == ErrorClass.PATH_DENIED,
    }
