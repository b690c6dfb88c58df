"""Facts about a file that its remark (`FileChange.skip_detail`) holds for people and checks.

A stored change has the remark alone: workers of the version before refuse a field that they do not know, and
machines are upgraded one after another. So `facts_of` reads it back, for `change_codec` and nobody else;
what a remark quotes of the depot cannot look like its own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reviews.sources.base import SkipReason
from reviews.sources.paths import printable

FACTS = ("in_lfs", "moved_in", "link_targets")  # of `FileChange`
IN_LFS = "stored in Git LFS; the repository holds a pointer"
MOVED_IN = "moved here from where no model reads: shown as wholly new"
_LINK, _ARROW, _NO_LINK = "link target ", "\u2192", "(a file)"
_BETWEEN = f" {_ARROW} "


def link_remark(targets: Sequence[str | None]) -> str:
    """Return what is said of a link with these targets (`link_target`), before and after."""
    return _LINK + _BETWEEN.join(_NO_LINK if one is None else one for one in targets) if targets else ""


def link_target(target: str) -> str:
    """Return a link's target in the form that remarks quote it in, at most about 200 characters."""
    quoted = printable(target, 200).replace(_ARROW, "\\u2192")
    return "\\x28" + quoted[1:] if quoted == _NO_LINK else quoted


def facts_of(skipped: SkipReason | None, remark: str) -> Mapping[str, Any]:
    """Return the facts of a file by its remark, as fields of `FileChange`."""
    targets: tuple[str | None, ...] = ()
    if skipped is SkipReason.SYMLINK and remark.startswith(_LINK):
        targets = tuple(
            None if target == _NO_LINK else target for target in remark.removeprefix(_LINK).split(_BETWEEN)
        )
    return {
        "in_lfs": skipped is SkipReason.BINARY and remark == IN_LFS,
        "moved_in": skipped is None and remark == MOVED_IN,
        "link_targets": targets,
    }
