"""Extent of a dismissal, and who may let it reach so far (guarantees G411, G413)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.utils import timezone

from reviews import dismissals
from reviews.models import FindingEvent, FindingRow
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.states import WIDE_SCOPES, DismissalScope

KEY = "key:"  # begins the actors that are keys of the API, and no username


class NotAccepted(ValueError):
    """A verdict or comment that cannot be stored; the text says why."""


class NotAllowed(NotAccepted):
    """A verdict that this person or key may not give."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Reach of a dismissal: see `DismissalScope`.

    `paths` is a depot pattern such as `//depot/main/...`, empty for every file; `until` the last day. `seen`
    is what its giver may see: it never reaches beyond. `may_be_wide`: they may choose a wide scope.
    """

    scope: str = DismissalScope.FINDING
    paths: str = ""
    until: date | None = None
    seen: Scope = EVERYTHING
    may_be_wide: bool = False

    @property
    def is_wide(self) -> bool:
        return self.scope in WIDE_SCOPES

    @property
    def within(self) -> list[str]:
        return [] if self.seen.everything else list(self.seen.prefixes)


ONLY_THIS = Extent()


def check_extent(finding: FindingRow, extent: Extent) -> None:
    """Raise NotAccepted or NotAllowed unless a dismissal of the finding may reach so far."""
    if extent.scope not in DismissalScope.values:
        accepted = ", ".join(DismissalScope.values)
        raise NotAccepted(f"Not saved: {extent.scope[:20]!r} is no scope. Accepted: {accepted}.")
    if extent.until is not None and extent.until < timezone.now().date():
        raise NotAccepted("Not saved: the last day has passed. Choose today or a later day.")
    if extent.seen.is_empty:
        raise NotAllowed("Not saved: no file is visible to you.")
    if not extent.is_wide:
        if extent.paths:
            raise NotAccepted("Not saved: a path goes with the scopes path, rule and category only.")
        return
    if not extent.may_be_wide:
        raise NotAllowed("Not saved: you may dismiss this finding, or the same in its file, and no more.")
    if extent.scope == DismissalScope.RULE and not finding.rule_name:
        raise NotAccepted("Not saved: the language model found this by no rule. Choose its category.")
    if extent.scope == DismissalScope.PATH and not extent.paths:
        raise NotAccepted("Not saved: name the path, such as //depot/main/...")
    if extent.paths:
        _check_paths(finding, extent)


def _check_paths(finding: FindingRow, extent: Extent) -> None:
    try:
        is_about = not extent.paths.startswith("-") and dismissals.covers(extent.paths, finding.file)
    except ValueError as problem:
        raise NotAccepted(f"Not saved: {str(problem).replace('allow-list line', 'the path')}.") from None
    if not is_about:
        raise NotAccepted("Not saved: the path does not match the finding's own file.")
    if not extent.seen.allows(re.split(r"\*|\.\.\.", extent.paths)[0]):
        raise NotAllowed("Not saved: the path reaches beyond the files that are visible to you.")


def with_second_person(last: FindingEvent | None, actor: str, extent: Extent) -> dict[str, Any]:
    """Return what is stored of a dismissal of a critical finding.

    That is a proposal, or what both people said. The second person agrees to the same reach, or to this
    finding only.
    """
    if actor.startswith(KEY):
        raise NotAllowed("Not saved: a critical finding is dismissed by two people, not by a key.")
    if last is None or not last.is_proposal or last.actor == actor:
        return {"is_proposal": True}
    is_same = (last.scope, last.paths) == (extent.scope, extent.paths)
    if not is_same and extent.scope != DismissalScope.FINDING:
        return {"is_proposal": True}
    both = extent.seen & (Scope(prefixes=tuple(last.within)) if last.within else EVERYTHING)
    if both.is_empty:
        return {"is_proposal": True}
    until = min(filter(None, [last.until, extent.until]), default=None)
    return {"until": until, "within": list(both.prefixes)}
