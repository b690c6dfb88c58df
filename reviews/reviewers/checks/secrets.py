"""Secrets that a change adds. The finding names the kind and the line, never the value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from criticizer.redaction import find_secrets
from reviews.diffs import FileDiff
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.hidden import DESCRIPTION
from reviews.reviewers.checks.lines import added_lines, files_and_diffs
from reviews.sources.base import Change


def added_secrets(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report each secret on an added line, once per kind and line, and those in the description.

    A value that the old side already has is not reported: the change moved or re-indented it.
    """
    for span in find_secrets(change.description):
        yield _finding(DESCRIPTION, span.kind, None, None)
    for file, diff in files_and_diffs(change, diffs):
        added = {line.number for line in added_lines(file, diff)}
        if not added or file.new_text is None:
            continue
        seen: set[tuple[str, int]] = set()
        for span in find_secrets(file.new_text):
            value = file.new_text[span.start : span.end]
            last = span.line + value.rstrip("\n").count("\n")
            lines = [number for number in range(span.line, last + 1) if number in added]
            if not lines or (file.old_text and value in file.old_text) or (span.kind, span.line) in seen:
                continue
            seen.add((span.kind, span.line))
            yield _finding(file.path, span.kind, lines[0], lines[-1])


def _finding(path: str, kind: str, line: int | None, end_line: int | None) -> Finding:
    name = kind.replace("-", " ").replace("_", " ")
    return Finding(
        file=path,
        severity=FindingSeverity.CRITICAL,
        category="security",
        title=f"Secret added: {name}"[:120],
        message=(
            f"This looks like a secret ({name}). Everybody who can read the depot can read it, "
            "also after a later change removes it."
        ),
        suggestion="Revoke the secret, remove it, and read it from the environment or a secret store.",
        source="check:added_secrets",
        line=line,
        end_line=end_line,
    )
