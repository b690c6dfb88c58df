"""Comments at lines of a P4 Code Review: their place, their state, missing ones."""

from __future__ import annotations

from collections.abc import Sequence

from notifications.providers.base import Message
from notifications.providers.swarm import markdown
from notifications.rendering.report import ReportFinding

_TASKS = frozenset(("critical", "high"))


def number_of(comment: dict[str, object]) -> int:
    found = comment.get("id")
    return found if isinstance(found, int) else 0


def is_closed(comment: dict[str, object]) -> bool:
    flags = comment.get("flags")
    is_archived = isinstance(flags, list) and "closed" in flags
    return is_archived or comment.get("taskState") not in ("open", "comment")


def is_missing(message: Message, finding: ReportFinding, standing: Sequence[dict[str, object]]) -> bool:
    """Return whether a finding has no comment that stands for it.

    A finding that is back has none after those of other versions were closed.
    """
    own = markdown.line_marker(message, finding.identity)
    return not standing or (
        finding.is_new is True
        and all(is_closed(one) and markdown.last_line(one.get("body")) != own for one in standing)
    )


def context_of(finding: ReportFinding) -> dict[str, object]:
    """Return where a comment stands, and whether it is a task."""
    place = finding.in_diff
    assert place is not None
    side = "leftLine" if place.side == "old" else "rightLine"
    content = {"content": list(place.content)} if place.content else {}
    state = "open" if finding.severity in _TASKS else "comment"
    return {"taskState": state, "context": {"file": place.path, side: place.start_line, **content}}
