"""Lines that a change adds, and findings about them, shared by the checks."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from reviews.reviewers.base import Finding, FindingSeverity
from reviews.sources.base import Change, FileChange
from reviews.sources.diffs import FileDiff, split_lines


class Check(Protocol):
    """A check's function; its name is the source of its findings."""

    __name__: str

    def __call__(self, change: Change, diffs: Sequence[FileDiff], /) -> Iterable[Finding]: ...


def added_lines(file: FileChange, diff: FileDiff) -> Iterator[tuple[int, str]]:
    """Yield the added lines in order, with their numbers from 1 on the new side.

    Of a file too large to compare, those are the lines whose text the old side does not have.
    """
    if not diff.too_large:
        yield from ((line.new_no or 0, line.text) for line in diff.added())
        return
    known = set(split_lines(file.old_text or ""))
    for number, line in enumerate(split_lines(file.new_text or ""), start=1):
        if line not in known:
            yield number, line.removesuffix("\n")


def files_and_diffs(change: Change, diffs: Sequence[FileDiff]) -> Iterator[tuple[FileChange, FileDiff]]:
    """Pair each file with its diff. Raises ValueError when they are not one to one."""
    return zip(change.files, diffs, strict=True)


def extension(path: str) -> str:
    """Return the lower-case extension with its dot, or ''."""
    return posixpath.splitext(path)[1].lower()


def check_finding(
    file: str,
    severity: FindingSeverity,
    title: str,
    message: str,
    suggestion: str = "",
    line: int | None = None,
    end_line: int | None = None,
    category: str = "rule",
) -> Finding:
    """Return a finding, about one line without an `end_line`; `run_checks` adds its source."""
    return Finding(
        file=file,
        severity=severity,
        category=category,
        title=title,
        message=message,
        suggestion=suggestion,
        line=line,
        end_line=end_line or line,
    )
