"""Fates of the raw findings of a review: what was shown, merged, refuted or dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Case, Count, Value, When

from reviews.models import FindingFate, ReviewJob
from reviews.recipients.viewing_scopes import Scope
from reviews.reviewers.base import Fate

MAX_REFUTED = 200

_FATES = {
    Fate.SHOWN: "shown",
    Fate.CARRIED: "taken over",
    Fate.DEMOTED: "shown without a line",
    Fate.FOLDED: "folded",
    Fate.MERGED: "merged",
    Fate.REFUTED: "refuted",
    Fate.SUPPRESSED: "suppressed by the repository",
}


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts of how the raw findings of a review ended.

    `refuted` is for those who see every file.
    """

    counts: Sequence[tuple[str, str, int]] = ()  # (fate, reason of a dropped one, number)
    refuted: Sequence[FindingFate] = ()

    @property
    def found(self) -> int:
        return sum(count for *_, count in self.counts)

    @property
    def sentence(self) -> str:
        """Return a text such as `13 found: 5 shown, 3 merged, 4 refuted, 1 not near a change`."""
        known = {fate: sum(n for name, _, n in self.counts if name == fate) for fate in _FATES}
        parts = [f"{count} {_FATES[fate]}" for fate, count in known.items() if count]
        parts += [
            f"{n} {reason.replace('_', ' ')}" for name, reason, n in self.counts if name == Fate.DROPPED
        ]
        return f"{self.found} found: {', '.join(parts)}"


def ledger_of(job: ReviewJob, scope: Scope) -> Ledger:
    """Return the ledger of the newest run."""
    fates = FindingFate.of_newest_run(job).filter(scope.files())
    word = Case(When(fate=Fate.DROPPED, then="reason"), default=Value(""))
    counts = fates.order_by().annotate(word=word).values_list("fate", "word").annotate(n=Count("id"))
    refuted = fates.filter(fate=Fate.REFUTED)[:MAX_REFUTED] if scope.everything else ()
    return Ledger(sorted(counts), list(refuted))
