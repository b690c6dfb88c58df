"""Checks that need no language model: exact, free, and quiet when nothing is wrong.

A check is a function from a change and its diffs (one per file, in the change's order) to
findings; its name is their source. Adding one is one function and one line in `OPTIONAL` or `PROTECTING`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from criticizer.redaction import clean
from reviews.reviewers.base import Finding
from reviews.reviewers.checks.documentation import drift, stale_references
from reviews.reviewers.checks.evasion import (
    changed_rule_files,
    code_elsewhere,
    misread_source,
    new_generated_marks,
    odd_text,
    unread_size,
)
from reviews.reviewers.checks.file_storage import (
    case_only_names,
    executable_bits,
    large_or_binary_files,
    line_ends,
    stored_types,
)
from reviews.reviewers.checks.hidden_text import invisible_characters, reviewer_instructions
from reviews.reviewers.checks.leftovers import conflict_markers, debugger_leftovers, merge_leftovers
from reviews.reviewers.checks.lines import Check
from reviews.reviewers.checks.secrets import added_secrets
from reviews.sources.base import Change
from reviews.sources.diffs import FileDiff

# Checks that no repository can switch off: they look for secrets, and for what misleads a review.
PROTECTING: tuple[Check, ...] = (
    added_secrets,
    reviewer_instructions,
    invisible_characters,
    odd_text,
    unread_size,
    new_generated_marks,
    changed_rule_files,
    code_elsewhere,
    misread_source,
)
OPTIONAL: tuple[Check, ...] = (
    conflict_markers,
    debugger_leftovers,
    merge_leftovers,
    stored_types,
    executable_bits,
    line_ends,
    large_or_binary_files,
    case_only_names,
    stale_references,
)
CHECKS: tuple[Check, ...] = (*PROTECTING, *OPTIONAL, drift)  # `drift` has keys of its own, `docs.*`
GUARDS = (*(check.__name__ for check in PROTECTING), "hidden_code")
OPTIONAL_CHECKS = tuple(check.__name__ for check in OPTIONAL)
MAX_FINDINGS_PER_CHECK = 20  # `docs.max_claims` bounds those of `drift`


def run_checks(
    change: Change, diffs: Sequence[FileDiff], checks: Sequence[Check] = CHECKS
) -> tuple[Finding, ...]:
    """Run the checks that are on for each file; return their findings cleaned of secrets.

    A check that finds more than `MAX_FINDINGS_PER_CHECK` ends with one finding that says so.
    """
    off = {(file.path, name) for file in change.files for name in file.checks_off if name not in GUARDS}
    return tuple(
        replace(
            finding,
            title=clean(finding.title),
            message=clean(finding.message),
            suggestion=clean(finding.suggestion),
            source=f"check:{check.__name__}",
        )
        for check in checks
        for finding in _capped(
            (found for found in check(change, diffs) if (found.file, check.__name__) not in off),
            None if check is drift else MAX_FINDINGS_PER_CHECK,
        )
    )


def _capped(findings: Iterable[Finding], most: int | None) -> Iterable[Finding]:
    remaining = iter(findings)
    yield from islice(remaining, most)
    first_dropped = next(remaining, None)
    if first_dropped is not None:
        dropped = 1 + sum(1 for _ in remaining)
        yield replace(
            first_dropped,
            title=f"{dropped} more of the same kind",
            message=f"First of {dropped} further places: {first_dropped.title}.",
        )
