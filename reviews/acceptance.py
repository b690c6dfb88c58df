"""Rates of findings that were acted upon, without anybody's click (guarantee G414).

They are read from the version that follows. A finding was likely accepted if its lines changed in the next
version and it is not reported again. It was not if its lines stood, or it is still reported. Where nothing
followed, or the file was not read again or left the change, nothing is known. A submit after its shelf is a
next version too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from django.db.models import Count, Exists, F, Func, OuterRef, Q, TextField, Value

from notifications.rendering import Ending
from reviews import verdicts
from reviews.extents import Extent, NotAccepted
from reviews.models import FindingEvent, FindingRow
from reviews.models.finding_events import STANDING
from reviews.recipients.viewing_scopes import Scope
from reviews.reviewers.base import FindingSeverity
from reviews.states import DISMISSALS, DismissalScope, FindingEventKind

ACCEPTED = Q(ending=Ending.FIXED)
KNOWN = ACCEPTED | Q(ending=Ending.NOT_REPORTED) | Q(ending="", is_new=False)

MIN_KNOWN, BELOW = 20, 0.2  # a proposal to fold
_Z = 1.96  # 95 %
_TREE = Func(F("file"), Value(r"^//[^/]+/(?:[^/]+/)?"), function="substring", output_field=TextField())


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate of acceptance: of the findings of one kind, `known` have a known fate.

    `by` is rule, category, path, model or verdict; `accepted` counts those that were acted upon.
    """

    by: str
    name: str
    accepted: int
    known: int
    is_folded: bool = False  # a wide dismissal of all of them stands

    @property
    def share(self) -> float:
        return self.accepted / self.known

    @property
    def interval(self) -> tuple[float, float]:
        """Return the bounds of the share with 95 % confidence (Wilson)."""
        n, p = self.known, self.share
        middle, width = p + _Z**2 / (2 * n), _Z * sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        return max(0.0, (middle - width) / (1 + _Z**2 / n)), min(1.0, (middle + width) / (1 + _Z**2 / n))

    @property
    def is_proposal(self) -> bool:
        """Return whether a person should decide to fold them: a rule's or a category's only."""
        is_low = self.known >= MIN_KNOWN and self.share < BELOW
        return is_low and not self.is_folded and self.by in (DismissalScope.RULE, DismissalScope.CATEGORY)

    @property
    def percent(self) -> str:
        return f"{self.share:.0%}"

    @property
    def range(self) -> str:
        low, high = self.interval
        return f"{low:.0%} to {high:.0%}"

    def __str__(self) -> str:
        return f"{self.accepted} of {self.known} accepted ({self.range})"


def rates(findings: Any, path: str, scope: Scope, within: Callable[[], Any]) -> list[Rate]:
    """Return the rates of `findings`, each finding counted at its newest version.

    The most frequent of each kind come first. `path` is the tree that they are narrowed to, or ""; `scope`
    is what their reader may see, and `within` limits the time of a statement.
    """
    counts = {"accepted": Count("pk", filter=ACCEPTED), "known": Count("pk")}
    known = findings.filter(KNOWN).order_by()
    with within():
        rows = list(
            known.values("category", "source", "rule", "job__model_name", tree=_TREE).annotate(**counts)
        )
    with within():
        judged = known.filter(verdicts.has_verdict()).annotate(said=verdicts.of_findings()["verdict"])
        rows += judged.values("said").annotate(**counts)
    with within():
        folded = _folded(path, scope)
    sums: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        for key in _kinds(row, scope):
            sums.setdefault(key, Counter()).update({name: row[name] for name in counts})
    found = [
        Rate(by, name, n["accepted"], n["known"], (by, name) in folded) for (by, name), n in sums.items()
    ]
    return sorted(found, key=lambda rate: (_ORDER.index(rate.by), -rate.known, rate.name))


_ORDER = (DismissalScope.RULE, DismissalScope.CATEGORY, "path", "model", "verdict")


def _kinds(row: dict[str, Any], scope: Scope) -> Iterable[tuple[str, str]]:
    """Yield the kinds that a row counts for; a file of rules only for readers who may see it."""
    if "said" in row:
        yield "verdict", str(FindingEventKind(row["said"]).label)
        return
    yield DismissalScope.CATEGORY, row["category"]
    rule = row["rule"] or (row["source"] if row["source"].startswith("check:") else "")
    if rule and (scope.allows(rule) or not rule.startswith("//")):
        yield DismissalScope.RULE, rule
    if row["source"] == "llm" and row["job__model_name"]:
        yield "model", row["job__model_name"]
    if row["tree"]:
        yield "path", row["tree"]


def _folded(path: str, scope: Scope) -> set[tuple[str, str]]:
    """Return the rules and categories that a standing dismissal covers.

    It has to cover all that the reader sees of the tree `path`.
    """
    trees = [""] if scope.everything else scope.prefixes
    seen = [max(path, tree, key=len) for tree in trees if path.startswith(tree) or tree.startswith(path)]
    wide = FindingEvent.objects.newest().filter(
        STANDING, kind__in=DISMISSALS, scope__in=_ORDER[:2], paths__in=["", *pattern_of(path)]
    )
    return {
        (event.scope, event.rule if event.scope == DismissalScope.RULE else event.category)
        for event in wide.only("scope", "rule", "category", "within")[:1_000]
        if not event.within or all(tree.startswith(tuple(event.within)) for tree in seen)
    }


def pattern_of(path: str) -> Sequence[str]:
    """Return the depot pattern of a tree such as `//app/src/`, if it is one."""
    return [f"{path}..."] if path.startswith("//") and path.endswith("/") and len(path) > 3 else []


def fold(rate: Rate, findings: Any, path: str, actor: str, rights: Extent) -> FindingRow:
    """Apply a proposal: dismiss the newest of the findings with the scope of its kind.

    So all findings that this scope covers are dismissed from now on.

    Raises NotAccepted: it is no proposal any more, or nothing is left to give the verdict on.
    """
    if not rate.is_proposal:
        raise NotAccepted(f"Not folded: it is not proposed any more: {rate}.")
    # A dismissal of a finding that is critical in any version needs two people, and none folds these by one.
    is_of = Q(category=rate.name)
    if rate.by == DismissalScope.RULE:
        is_of = Q(rule=rate.name) | Q(rule="", source=rate.name)
    is_useful = verdicts.has_verdict([FindingEventKind.USEFUL])
    critical = FindingRow.objects.filter(identity=OuterRef("identity"), severity=FindingSeverity.CRITICAL)
    rows = findings.filter(is_of, ~is_useful, ~Exists(critical))
    row: FindingRow | None = rows.order_by("-pk").first()
    if row is None:
        raise NotAccepted(
            "Not folded: each of its findings is critical, which takes two people, or was called useful."
        )
    extent = Extent(rate.by, next(iter(pattern_of(path)), ""), None, rights.seen, rights.may_be_wide)
    verdicts.give(row, FindingEventKind.WONT_FIX, actor, f"Folded: {rate}", extent)
    return row
