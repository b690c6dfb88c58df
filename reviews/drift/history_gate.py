"""A scan of one commit: every claim verified, and what is refuted only where it once held.

A claim that never held is a placeholder, a file that the reader makes, or pseudo-code. So what is refuted is
verified again in the commit that wrote its line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from reviews.drift import verify
from reviews.drift.change import Report
from reviews.drift.claims import Claim, Judgement, Reason, Verdict, uncheckable
from reviews.drift.git_tree import GitTree
from reviews.drift.index import Index
from reviews.drift.trees import Tree
from reviews.drift.walk import scan
from reviews.sources.git_command import SHA, GitCommand

SECONDS = 60.0  # of the processor
MAX_COMMITS = 20  # whose listings are kept at once


class Scan(NamedTuple):
    """The claims of a commit's documents with their verdicts, and the counts of these."""

    report: Report
    found: Mapping[Claim, Judgement]

    @property
    def health(self) -> int | None:
        """Return how many percent of the decided claims hold; None where none is decided."""
        counts = self.report.counts
        told = counts[Verdict.HOLDS] + counts[Verdict.REFUTED]
        return 100 * counts[Verdict.HOLDS] // told if told else None

    @property
    def unverified(self) -> int:
        """Return how many claims the time was too short for."""
        return self.report.reasons[Reason.NO_TIME]


def scan_commit(git: GitCommand, sha: str, seconds: float = SECONDS) -> Scan:
    """Verify every claim of a commit. Raises as `GitCommand` does."""
    until = time.thread_time() + seconds
    report, found = scan(GitTree(git, sha), seconds)
    indexes: dict[str, Index] = {}
    judgements = {
        claim: gated(git, sha, claim, judged, indexes, until) if judged.verdict is Verdict.REFUTED else judged
        for claim, judged in found.items()
    }
    report.counts.clear()
    report.reasons.clear()
    for judged in judgements.values():
        report.count(judged)
    return Scan(report, judgements)


def gated(
    git: GitCommand,
    sha: str,
    claim: Claim,
    judged: Judgement,
    indexes: dict[str, Index],
    until: float = math.inf,
    tree_of: Callable[[GitCommand, str], Tree] = GitTree,
) -> Judgement:
    """Return a refutation where the claim held when its line was written, else why it is none.

    `indexes` are of the commits that were looked into last, `tree_of` opens a further one.
    """
    if time.thread_time() > until:
        return uncheckable(Reason.NO_TIME)
    place = f"-L{claim.line},{claim.line}"
    listed = git.output("blame", "--porcelain", "--no-textconv", place, sha, "--", claim.document)
    writer = listed.decode("utf-8", "replace").partition(" ")[0]
    if not SHA.fullmatch(writer):
        return uncheckable(Reason.NEVER_HELD)
    if writer not in indexes:
        while len(indexes) >= MAX_COMMITS:
            indexes.pop(next(iter(indexes)))
        indexes[writer] = Index(tree_of(git, writer), {}, until=until)
    held = verify.judge(claim, indexes[writer]).verdict is Verdict.HOLDS
    return judged if held else uncheckable(Reason.NEVER_HELD)
