"""Checks for what would change how files are read: odd bytes, marks of generated files, files of rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.lines import added_lines, check_finding, files_and_diffs
from reviews.sources.base import Action, Change, FileChange, SkipReason
from reviews.sources.content import DAMAGE_SHOWN, NUL_SHOWN, TEXT_NAME, marker_line
from reviews.sources.diffs import FileDiff
from reviews.sources.rules import is_rule_file

# Such files grow large without anybody's purpose.
_DATA_NAME = re.compile(r"\.(?:json|txt|md|rst|xml|html|ya?ml|sql)$", re.IGNORECASE)


def odd_text(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report text files that became hard to read: NUL bytes, unknown or unmarked encodings."""
    for file, diff in files_and_diffs(change, diffs):
        if not file.oddity:
            continue
        lines = () if file.skipped else added_lines(file, diff)
        line = next((one.number for one in lines if NUL_SHOWN in one.text or DAMAGE_SHOWN in one.text), None)
        yield check_finding(
            file.path,
            FindingSeverity.MEDIUM,
            "Text file that tools may not read as text",
            f"By its name or its earlier content the file is text, but {file.oddity}. Diffs, searches and "
            "reviewers may skip it.",
            "Store it as UTF-8 without NUL bytes, or give it the name of a binary file.",
            line,
            category="security",
        )


def unread_size(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report files that a person may have written and that are too large to be read."""
    for file in change.files:
        if is_unread_for_size(file):
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM if _is_code(file.path) else FindingSeverity.LOW,
                "File too large to review",
                f"Neither the model nor a check read it: {file.skip_detail or 'it is over the limit'}.",
                "Split the file, or have somebody read this change of it.",
                category="security",
            )


def is_unread_for_size(file: FileChange) -> bool:
    """Return whether its size keeps a file from review, which is not a new one of data."""
    if file.skipped is not SkipReason.TOO_LARGE or file.action is Action.DELETE:
        return False
    return file.action is not Action.ADD or _is_code(file.path)


def _is_code(path: str) -> bool:
    return TEXT_NAME.search(path) is not None and not _DATA_NAME.search(path)


def changed_rule_files(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report changes of the files that later changes are reviewed by."""
    for file in change.files:
        if is_rule_file(file.path) or is_rule_file(file.old_path or ""):
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM,
                "The rules of reviews change",
                "This file says what reviews look for. This change was reviewed by its text of before; the "
                "changes after it will be by the new one.",
                "Have somebody approve it who may decide what reviews look for.",
                category="rule",
            )


def new_generated_marks(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report marks of generated files in files that had none."""
    for file in change.files:
        line = marker_line(file.new_text or "")
        if line and not marker_line(file.old_text or ""):
            yield check_finding(
                file.path,
                FindingSeverity.LOW,
                "File newly marked as generated",
                "Reviewers and tools skip files with such a mark. It was reviewed like any other this time; "
                "later changes of it are read by the checks only.",
                "Check that a generator made it, or remove the mark.",
                line,
            )
