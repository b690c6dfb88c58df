"""Matches a review's findings to the expected remarks.

Each remark gets its best finding; further findings about the same remark are duplicates. A rule scores a pair
from 0 (no match) to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reviews.evaluation.changes import depot_path
from reviews.evaluation.corpus import Defect
from reviews.reviewers.base import Finding
from reviews.reviewers.merging import shared, words_of

NEAR_LINES = 3  # at most so far away, AACR-Bench counts a remark as located
SAME_WORDS = 0.5  # share of the words of both texts: the oracle nearly repeats those of its defects


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark that a review should make; without `file`, about the change as a whole."""

    text: str
    file: str = ""
    line: int | None = None
    end_line: int | None = None
    level: str = ""


Rule = Callable[[Finding, Remark], float]


@dataclass(frozen=True, slots=True)
class Matches:
    """Findings matched to remarks: `pairs` holds their indexes (finding, remark).

    The other findings are `duplicates` of a pair or `false`.
    """

    pairs: tuple[tuple[int, int], ...]
    duplicates: tuple[int, ...]
    false: tuple[int, ...]


def remark_of(defect: Defect) -> Remark:
    return Remark(
        f"{defect.title} {defect.problem}", depot_path(defect.file), defect.line, defect.line, defect.level
    )


def by_place(finding: Finding, remark: Remark) -> float:
    """Score a pair by file and lines only, as benchmarks with lines do."""
    if finding.file != remark.file or finding.line is None or remark.line is None:
        return 0.0
    last, remark_last = finding.end_line or finding.line, remark.end_line or remark.line
    distance = max(0, finding.line - remark_last, remark.line - last)
    return 1 / (1 + distance) if distance <= NEAR_LINES else 0.0


def by_words(finding: Finding, remark: Remark) -> float:
    """Score a pair by file and words, for the oracle, which knows the words."""
    if finding.file != remark.file:
        return 0.0
    share = shared(words_of(f"{finding.title} {finding.message}"), words_of(remark.text))
    return share if share >= SAME_WORDS else 0.0


def matched(findings: Sequence[Finding], remarks: Sequence[Remark], rule: Rule) -> Matches:
    """Pair findings with remarks one to one, best first."""
    scores = {
        (f, r): score
        for f, finding in enumerate(findings)
        for r, remark in enumerate(remarks)
        if (score := rule(finding, remark)) > 0
    }
    pairs: list[tuple[int, int]] = []
    for f, r in sorted(scores, key=lambda pair: (-scores[pair], pair)):
        if all(f != one and r != other for one, other in pairs):
            pairs.append((f, r))
    taken = {f for f, _ in pairs}
    alike = {f for f, _ in scores} - taken
    others = set(range(len(findings))) - taken - alike
    return Matches(tuple(sorted(pairs)), tuple(sorted(alike)), tuple(sorted(others)))
