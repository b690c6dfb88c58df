"""Matching of findings to dismissals that people gave on other ones (guarantees G410, G412).

A match is stored as an event that repeats the dismissal, with its commit: the finding is folded and counted,
never left out, and a verdict on the finding itself comes after the match and so replaces it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from uuid import UUID

from django.db.models import Case, Q, When

from criticizer.db import prepared as sql
from notifications.rendering import ExcerptLine, ReportFinding
from reviews.models import FindingEvent, FindingRow
from reviews.models.finding_events import STANDING
from reviews.reviewers.base import FindingSeverity
from reviews.reviewers.merging import NEAR_LINES, shared, telling_words
from reviews.sources.allowlist import AllowListLine, parse_line
from reviews.states import DISMISSALS, WIDE_SCOPES, DismissalScope, FindingEventKind
from reviews.version_comparison import MIN_ALIKE, code_of

MAX_COMPARED = 2_000  # dismissals, the newest ones, that a review is compared with
_TRIED = 200  # the newest dismissals of one file, or wide scope, and category that a finding is compared with
_WORDS = 200  # of one finding
_BATCH = 1_000  # matches that are read and renewed at once


def facts_of(finding: FindingRow, of_file: Iterable[FindingRow]) -> dict[str, Any]:
    """Return what is stored with a dismissal of a finding, to compare later findings with.

    `of_file` are the findings of the review in its file.
    """
    one = next(compared for compared in _compared(of_file) if compared.row.pk == finding.pk)
    return {
        **{name: getattr(finding, name) for name in ("severity", "category", "line")},
        "rule": finding.rule_name,
        "fingerprint": one.fingerprint,
        "words": sorted(one.words)[:_WORDS],
    }


def fold_dismissed(job_id: int, findings: Sequence[FindingRow]) -> int:
    """Dismiss the stored findings of a review that match an earlier dismissal; return how many.

    Part of the review's commit. What has a verdict of its own, or had one that was taken back, stays as it
    is: so a restart of the review stores no match twice.
    """
    if not findings:
        return 0
    known, dismissals = _candidates(findings)
    found = matched([row for row in findings if row.identity not in known], dismissals, known)
    if not found:
        return 0
    # A verdict that is given meanwhile, on either of a pair, comes first or waits for this commit.
    hold_verdicts(one.identity for pair in found for one in pair)
    known, dismissals = _candidates(findings)
    standing = set(dismissals)
    events = (
        _event(job_id, row, dismissal)
        for row, dismissal in found
        if row.identity not in known and dismissal in standing
    )
    return len(FindingEvent.objects.bulk_create(events))


def hold_verdicts(identities: Iterable[UUID]) -> None:
    """Let no verdict be given on findings before this commit ends.

    Waits for those that are being given.
    """
    if held := sorted(set(identities)):
        sql.rows("SELECT id FROM findings WHERE identity = ANY(%s) ORDER BY id FOR SHARE", [held])


def _candidates(findings: Sequence[FindingRow]) -> tuple[set[UUID], list[FindingEvent]]:
    """Return which findings have a verdict of their own, and the dismissals for the others.

    A verdict that was taken back is one's own too. Verdicts past their last day are left out; the dismissals
    come newest first.
    """
    own = STANDING & Q(identity__in={row.identity for row in findings})
    of_category = Q(category__in={row.category for row in findings})
    wide = Q(scope__in=WIDE_SCOPES)
    by_rule = Q(scope=DismissalScope.RULE, rule__in={row.rule_name for row in findings} - {""})
    near = ~wide & Q(file__in={row.file for row in findings})
    counts = Q(kind__in=DISMISSALS, matches=None) & STANDING
    may_match = counts & (of_category & (near | wide) | by_rule)
    rows = (
        FindingEvent.objects.newest()
        .filter(own | may_match)
        .annotate(
            is_own=Case(When(own, then=True), default=False),
            may_match=Case(When(may_match, then=True), default=False),
        )
    )
    events: list[Any] = list(rows.order_by("-is_own", "-pk")[: MAX_COMPARED + len(findings)])
    return (
        {event.identity for event in events if event.is_own},
        [event for event in events if event.may_match],
    )


def _event(job_id: int, row: FindingRow, dismissal: FindingEvent) -> FindingEvent:
    """Return the match: by whom and when it was dismissed, readable for whom the dismissal is."""
    repeated = ("file", "evidence", "kind", "text", "actor", "created_at", "until")
    return FindingEvent(
        identity=row.identity,
        job_id=job_id,
        matches=dismissal,
        severity=row.severity,
        **{name: getattr(dismissal, name) for name in repeated},
    )


@dataclass(frozen=True)
class _Compared:
    """A finding with the facts that are compared."""

    row: FindingRow
    fingerprint: str

    @cached_property
    def words(self) -> frozenset[str]:
        return telling_words(f"{self.row.title} {self.row.message}")


def _compared(rows: Iterable[FindingRow]) -> Iterator[_Compared]:
    """Yield the findings of one review with their fingerprints.

    A fingerprint is made of path, category and code, and of the position among equal ones.
    """
    seen: Counter[str] = Counter()
    for row in sorted(rows, key=lambda row: (row.file, row.line or 0, row.pk or 0)):
        code = code_of(_reported(row))
        if code is None:
            yield _Compared(row, "")
            continue
        text = json.dumps([row.file, row.category, row.side, code])
        seen[text] += 1
        yield _Compared(row, hashlib.sha256(f"{seen[text]} {text}".encode()).hexdigest())


def _reported(row: FindingRow) -> ReportFinding:
    rows = tuple(ExcerptLine(text, kind, line) for line, kind, text in row.excerpt)
    return ReportFinding(
        row.file, row.severity, row.title, row.message, line=row.line, end_line=row.end_line, side=row.side,
        excerpt=rows,
    )  # fmt: skip


def matched(
    findings: Iterable[FindingRow], dismissals: Sequence[FindingEvent], known: Collection[UUID] = ()
) -> list[tuple[FindingRow, FindingEvent]]:
    """Return each finding that a dismissal is about, with the dismissal.

    One of a single finding matches one finding of a review, the most alike; none where a finding of the
    review is the very one (its identity is in `known`).
    """
    near: dict[tuple[str, str], list[FindingEvent]] = defaultdict(list)
    for dismissal in dismissals:
        about = dismissal.rule if dismissal.scope == DismissalScope.RULE else dismissal.category
        near[dismissal.scope if dismissal.scope in WIDE_SCOPES else dismissal.file, about].append(dismissal)
    words = {dismissal.pk: frozenset(dismissal.words) for dismissal in dismissals}
    pairs = [
        (*rank, -dismissal.pk, number, compared, dismissal)
        for number, compared in enumerate(_compared(findings))
        for key in _keys(compared.row)
        for dismissal in near[key][:_TRIED]
        if (rank := _rank(compared, dismissal, words[dismissal.pk])) is not None
    ]
    pairs.sort(key=lambda pair: pair[:-2])
    found: dict[int, tuple[FindingRow, FindingEvent]] = {}
    used = set(known)
    for *_, number, compared, dismissal in pairs:
        is_single = dismissal.scope == DismissalScope.FINDING
        if number in found or (is_single and dismissal.identity in used):
            continue
        used |= {dismissal.identity} if is_single else set()
        found[number] = compared.row, dismissal
    return [found[number] for number in sorted(found)]


def _keys(row: FindingRow) -> Iterator[tuple[str, str]]:
    """Yield the keys under which dismissals may be about a finding.

    A key is the file or a wide scope, with the category or rule.
    """
    yield row.file, row.category
    yield DismissalScope.PATH, row.category
    yield DismissalScope.RULE, row.rule_name
    yield DismissalScope.CATEGORY, row.category


def _rank(compared: _Compared, dismissal: FindingEvent, words: frozenset[str]) -> tuple[int, int] | None:
    """Return how close a finding is to a dismissal: the closest has the lowest rank.

    None: the dismissal is about another finding.
    """
    row = compared.row
    if not _is_allowed(row, dismissal):
        return None
    if dismissal.paths and not covers(dismissal.paths, row.file):
        return None
    if dismissal.scope == DismissalScope.CATEGORY:
        return 4, 0
    if dismissal.scope == DismissalScope.RULE:
        return (3, 0) if row.rule_name and row.rule_name == dismissal.rule else None
    if shared(compared.words, words) < MIN_ALIKE:
        return None
    if dismissal.scope == DismissalScope.PATH:
        return 2, 0
    if compared.fingerprint and compared.fingerprint == dismissal.fingerprint:
        return 0, 0
    away = abs((row.line or 0) - (dismissal.line or 0))
    is_near = (row.line is None) == (dismissal.line is None) and away <= NEAR_LINES
    if is_near or dismissal.scope == DismissalScope.FILE:
        return 1, away
    return None


def _is_allowed(row: FindingRow, dismissal: FindingEvent) -> bool:
    """Return whether a dismissal may hold for a finding.

    Its giver must see every file of the finding. A critical finding needs the dismissal of a critical one,
    which counts only once two people gave it (`verdicts.give`).
    """
    critical = FindingSeverity.CRITICAL
    if row.severity == critical != dismissal.severity:
        return False
    prefixes = tuple(dismissal.within)
    return not prefixes or all(path.startswith(prefixes) for path in (row.file, *row.evidence))


def covers(pattern: str, file: str) -> bool:
    """Return whether a depot pattern such as `//depot/main/...` matches a file."""
    return file.startswith("//") and _parsed(pattern).matches(file[2:].split("/"))


@lru_cache(maxsize=1_000)
def _parsed(pattern: str) -> AllowListLine:
    return parse_line(pattern, case_sensitive=True)


def renew_matches(verdict: FindingEvent) -> None:
    """Repeat a new dismissal in what matched earlier ones of its finding.

    What it is not about is taken back. Part of the verdict's commit. A match that another verdict came after
    stays as it is.
    """
    earlier = FindingEvent.objects.newest().filter(
        matches__identity=verdict.identity, matches__lt=verdict.pk, pk__lt=verdict.pk
    )
    while matches := list(earlier.order_by("pk")[:_BATCH]):
        still = _still_matched(matches, verdict) if verdict.kind in DISMISSALS else {}
        FindingEvent.objects.bulk_create(
            _event(match.job_id, still[match.identity], verdict)
            if match.identity in still
            else _undone(match, verdict.actor)
            for match in matches
        )


def _still_matched(matches: Iterable[FindingEvent], dismissal: FindingEvent) -> dict[UUID, FindingRow]:
    rows = FindingRow.objects.filter(identity__in=[match.identity for match in matches]).order_by("pk")
    of_review: dict[int, list[FindingRow]] = defaultdict(list)
    for row in {row.identity: row for row in rows}.values():
        of_review[row.job_id].append(row)
    return {row.identity: row for of in of_review.values() for row, _ in matched(of, [dismissal])}


def _undone(match: FindingEvent, actor: str) -> FindingEvent:
    copied = {name: getattr(match, name) for name in ("identity", "job_id", "file", "evidence")}
    return FindingEvent(kind=FindingEventKind.UNDONE, actor=actor, **copied)
