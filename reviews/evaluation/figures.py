"""Figures of one run over a corpus, and of several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reviews.evaluation.corpus import LEVELS
from reviews.evaluation.matching import Remark, Rule, matched
from reviews.reviewers.base import Finding

# Figures that a better review raises. All others are counts, for people.
SHARES = (
    "recall",
    *(f"recall_{level}" for level in LEVELS),
    "precision",
    "f1",
    "line_accuracy",
    "quiet_when_clean",
)
_COUNTED = ("leaked", "failed", "calls", "characters")  # of a result


@dataclass(frozen=True, slots=True)
class Result:
    """A review and the remarks it should have made.

    `leaked` counts requests that held a planted secret.
    """

    name: str
    findings: tuple[Finding, ...]
    remarks: tuple[Remark, ...]
    leaked: int = 0
    failed: int = 0  # parts
    calls: int = 0
    characters: int = 0


def figures_of(results: Iterable[Result], rule: Rule) -> dict[str, float]:
    """Return shares and counts over all results; a share of nothing is left out.

    Precision counts a second finding about one defect as wrong: to a reader it is noise. A line is
    accurate when the matched finding stands on the remark's own line.
    """
    pairs = [(result, matched(result.findings, result.remarks, rule)) for result in results]
    found = [(result.findings[f], result.remarks[r]) for result, made in pairs for f, r in made.pairs]
    remarks = [remark for result, _ in pairs for remark in result.remarks]
    clean = [result for result, _ in pairs if not result.remarks]
    counts = {
        "changes": len(pairs),
        "remarks": len(remarks),
        "shown": sum(len(result.findings) for result, _ in pairs),
        "found": len(found),
        "duplicates": sum(len(made.duplicates) for _, made in pairs),
        "false": sum(len(made.false) for _, made in pairs),
        **{name: sum(getattr(result, name) for result, _ in pairs) for name in _COUNTED},
    }
    levels = Counter(remark.level for remark in remarks)
    levels_found = Counter(remark.level for _, remark in found)
    shares = {
        "recall": (len(found), len(remarks)),
        **{f"recall_{level}": (levels_found[level], levels[level]) for level in LEVELS},
        "precision": (len(found), counts["shown"]),
        "f1": (2 * len(found), len(remarks) + counts["shown"]),
        "line_accuracy": (sum(_is_on_its_line(*pair) for pair in found), len(found)),
        "quiet_when_clean": (sum(not result.findings for result in clean), len(clean)),
    }
    return {**{name: round(part / whole, 4) for name, (part, whole) in shares.items() if whole}, **counts}


def missed(results: Iterable[Result], rule: Rule) -> list[str]:
    """Return each remark that no finding makes, with the name of its change."""
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
    """Return the mean, least and greatest value of each figure that every run has."""
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
