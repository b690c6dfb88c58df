"""The order of findings, and how many are shown before a fold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reviews.reviewers.base import SEVERITY_ORDER, Finding, FindingSeverity, Verification

OVER_BUDGET = "over the budget"
LEAST_PASSES = 3  # to go by how many of them agree


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, those most worth reading first.

    They are ordered by verdict, then by how many answers report them: on recorded reviews that tells more
    than any confidence, which comes last.
    """
    return sorted(
        findings,
        key=lambda f: (
            bool(f.folded),
            f.verification is Verification.UNVERIFIED,
            -f.report_count,
            SEVERITY_ORDER[f.severity],
            not _is_on_change(f),
            -(f.confidence or 0),
            f.file,
            f.line or 0,
            f.title,
        ),
    )


def seconded(findings: Iterable[Finding], passes: Mapping[str, int]) -> Iterable[Finding]:
    """Yield the findings; fold those that only one of three or more passes of a file reports.

    One that the second pass confirmed is not folded, and `within_budget` unfolds critical ones (guarantee
    G424).
    """
    for finding in findings:
        count = passes.get(finding.file, 1)
        is_alone = count >= LEAST_PASSES and finding.source == "llm" and finding.report_count == 1
        if is_alone and not finding.folded and finding.verification is not Verification.CONFIRMED:
            finding = replace(finding, folded=f"only one of {count} passes")
        yield finding


def within_budget(findings: Iterable[Finding], budget: int) -> tuple[Finding, ...]:
    """Return the findings in their order, with those over the budget folded at the end.

    A critical one is never folded (G156).
    """
    done: list[Finding] = []
    for finding in ranked(findings):
        if finding.severity is FindingSeverity.CRITICAL:
            finding = replace(finding, folded="")
        elif not finding.folded and budget <= 0:
            finding = replace(finding, folded=OVER_BUDGET)
        budget -= not finding.folded
        done.append(finding)
    return tuple(sorted(done, key=lambda f: bool(f.folded)))


def _is_on_change(finding: Finding) -> bool:
    return any(kind != " " and number == finding.line for number, kind, _ in finding.excerpt)
