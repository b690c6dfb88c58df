"""Figures of one run over a corpus, and of several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reviews.evaluation.corpus import LEVELS
from reviews.evaluation.matching import Remark, Rule, matched
from reviews.reviewers.base import Finding

# What a better review raises. All others are counts, for people.
SHARES = (
    "recall",
    *(f"recall_{level}" for level in LEVELS),
    "precision",
    "f1",
    "line_accuracy",
    "quiet_when_clean",
)


@dataclass(frozen=True, slots=True)
class Result:
    """A review, and what it should have said. `leaked`: requests that held a planted secret."""

    name: str
    findings: tuple[Finding, ...]
    remarks: tuple[Remark, ...]
    leaked: int = 0
    failed: int = 0  # parts
    calls: int = 0
    characters: int = 0


def figures_of(results: Iterable[Result], rule: Rule) -> dict[str, float]:
    """Return shares (`SHARES`, those that are defined) and counts over all results.

    Precision counts a second finding about one defect as wrong: to a reader it is noise. A line is
    accurate when the matched finding stands on the remark's own line.
    """
    count: Counter[str] = Counter()
    for result in results:
        found = matched(result.findings, result.remarks, rule)
        for remark in result.remarks:
            count[f"remarks {remark.level}"] += 1
        for f, r in found.pairs:
            count[f"found {result.remarks[r].level}"] += 1
            count["lines"] += _is_on_its_line(result.findings[f], result.remarks[r])
        count.update(
            changes=1,
            clean=not result.remarks,
            quiet=not result.remarks and not result.findings,
            remarks=len(result.remarks),
            found=len(found.pairs),
            shown=len(result.findings),
            duplicates=len(found.duplicates),
            false=len(found.false),
            leaked=result.leaked,
            failed=result.failed,
            calls=result.calls,
            characters=result.characters,
        )
    shares = {
        "recall": (count["found"], count["remarks"]),
        **{f"recall_{level}": (count[f"found {level}"], count[f"remarks {level}"]) for level in LEVELS},
        "precision": (count["found"], count["shown"]),
        "f1": (2 * count["found"], count["remarks"] + count["shown"]),
        "line_accuracy": (count["lines"], count["found"]),
        "quiet_when_clean": (count["quiet"], count["clean"]),
    }
    counts = (
        "changes",
        "remarks",
        "shown",
        "found",
        "duplicates",
        "false",
        "leaked",
        "failed",
        "calls",
        "characters",
    )
    return {
        **{name: round(part / whole, 4) for name, (part, whole) in shares.items() if whole},
        **{name: count[name] for name in counts},
    }


def missed(results: Iterable[Result], rule: Rule) -> list[str]:
    """Return the remarks that no finding makes, by change."""
    return [
        f"{result.name}: {remark.text[:80]}"
        for result in results
        for found in [{r for _, r in matched(result.findings, result.remarks, rule).pairs}]
        for r, remark in enumerate(result.remarks)
        if r not in found
    ]


def _is_on_its_line(finding: Finding, remark: Remark) -> bool:
    if finding.line is None or remark.line is None:
        return False
    return remark.line <= finding.line <= (remark.end_line or remark.line)


def spread(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return mean, least and most of each figure that every run has."""
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {
        name: {
            "mean": round(sum(run[name] for run in runs) / len(runs), 4),
            "least": min(run[name] for run in runs),
            "most": max(run[name] for run in runs),
        }
        for name in names
    }


def lost(figures: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Return a sentence for each share that is lower than in the baseline, and for each leak."""
    worse = [
        f"{name} fell from {baseline[name]:.4f} to {figures.get(name, 0):.4f}"
        for name in SHARES
        if name in baseline and figures.get(name, 0) < baseline[name]
    ]
    if figures["leaked"]:
        worse.append(f"{figures['leaked']:.0f} requests held a planted secret")
    return worse
