"""Refusal of changes that touch paths outside the allow-list.

Violations fail closed: each denied path is reported, and the change is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

import structlog

from criticizer.resilience.failures import ErrorClass
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Action, FileChange
from reviews.sources.failures import permanent
from reviews.sources.paths import printable

log = structlog.get_logger()

MAX_REPORTED_VIOLATIONS = 20
# Before anything was read, at the check of a single file, or before a later stage sends what was read.
CheckedAt = Literal["query", "file", "llm", "notify"]


@dataclass(frozen=True, slots=True)
class SecurityViolation:
    """A path that the allow-list denied. `path` is bounded and safe to show."""

    changelist_id: str
    path: str
    reason: str
    stage: CheckedAt


def denied(paths: Iterable[str], allow_list: AllowList, *, literal_names: bool) -> list[tuple[str, str]]:
    """Return the paths that are not allowed, each with the reason."""
    decided = ((path, allow_list.decide(path, literal_names=literal_names)) for path in paths)
    return [(path, decision.reason) for path, decision in decided if not decision.allowed]


def refuse(
    changelist_id: str,
    outside: Sequence[tuple[str, str]],
    stage: CheckedAt,
    on_violation: Callable[[SecurityViolation], None],
) -> NoReturn:
    """Report denied paths as `report` does, and raise PermanentFailure PATH_DENIED."""
    report(changelist_id, outside, stage, on_violation)
    detail = "the changelist touches paths outside the allow-list"
    raise permanent(ErrorClass.PATH_DENIED, detail, denied_paths=len(outside), check=stage)


def report(
    changelist_id: str,
    outside: Sequence[tuple[str, str]],
    stage: CheckedAt,
    on_violation: Callable[[SecurityViolation], None],
) -> None:
    """Report denied paths with their reasons, at most `MAX_REPORTED_VIOLATIONS`."""
    for path, reason in outside[:MAX_REPORTED_VIOLATIONS]:
        violation = SecurityViolation(changelist_id, printable(path), printable(reason), stage)
        log.warning(
            "security_event",
            kind="path_denied",
            changelist=changelist_id,
            path=violation.path,
            reason=violation.reason,
            stage=stage,
        )
        on_violation(violation)


def without_old_side(file: FileChange) -> FileChange:
    """Return a moved file as an added one: where it came from is neither shown nor named."""
    return replace(
        file,
        action=Action.ADD,
        old_path=None,
        old_file_type=None,
        old_text=None,
        old_crlf=None,
        generated="",
        skip_detail="",
        link_targets=(),
    )
