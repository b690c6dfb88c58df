"""Verdicts on findings, which hold for every version of a finding, and comments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Case, Count, Exists, F, OuterRef, Q, Subquery, Value, When, Window
from django.db.models.expressions import Combinable
from django.utils import timezone

from criticizer.redaction import clean
from reviews import dismissals
from reviews.extents import ONLY_THIS, Extent, NotAccepted, NotAllowed, check_extent, with_second_person
from reviews.models import FindingEvent, FindingRow
from reviews.models.finding_events import STANDING
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.reviewers.base import FindingSeverity
from reviews.states import DISMISSALS, VERDICTS, WIDE_SCOPES, DismissalScope
from reviews.states import FindingEventKind as Kind

log = structlog.get_logger(__name__)

CRITICAL = FindingSeverity.CRITICAL
DISMISSED = "dismissed"
OPEN_VERDICTS = {"open": DISMISSALS, "none": VERDICTS}  # of filters: the verdicts that each leaves out
MAX_REASON = 300
MAX_COMMENT = 2000
MAX_EVENTS = 200  # shown of one finding; and its comments
MAX_OWN_COMMENTS = 50  # of one person on one finding: nobody fills a thread alone
MAX_CHANGES = 200  # of the verdict on one finding by one person or key: each is kept, and read by every list

_LABELS = {
    Kind.USEFUL: "Marked as useful",
    Kind.WRONG: "Dismissed as wrong",
    Kind.INTENDED: "Dismissed as intended",
    Kind.WONT_FIX: "Dismissed: won't fix",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict that counts, or a proposal of one.

    `reason`, `scope` and `paths` are empty for readers who may not see what it was given on.
    """

    kind: str
    actor: str
    at: datetime
    reason: str = ""
    until: date | None = None
    scope: str = ""
    paths: str = ""
    is_match: bool = False  # it was given on another finding
    is_by_two: bool = False

    @property
    def is_dismissal(self) -> bool:
        return self.kind in DISMISSALS

    @property
    def kind_label(self) -> str:
        return str(Kind(self.kind).label).lower()

    @property
    def label(self) -> str:
        """Return such as `Dismissed as wrong`."""
        label = _LABELS[Kind(self.kind)]
        return label.replace("Dismissed", "Dismissed earlier", 1) if self.is_match else label

    @property
    def sentence(self) -> str:
        """Return such as `Dismissed as wrong by ann on 2026-11-22`."""
        return f"{self.label} by {self.actor} on {self.at:%Y-%m-%d}"

    @property
    def extent(self) -> str:
        """Return such as `everything of this category, until 2026-12-24`, or ""."""
        reach = "" if self.scope in ("", DismissalScope.FINDING) else DismissalScope(self.scope).label
        reach += f" in {self.paths}" if self.paths else ""
        return ", ".join(filter(None, [reach, f"until {self.until}" if self.until else ""]))


@dataclass(frozen=True, slots=True)
class Said:
    """Verdict and comments on a finding, as far as a reader may see them.

    `proposal` is a dismissal of a critical finding that a second person has not agreed to.
    """

    verdict: Verdict | None = None
    comments: int = 0
    proposal: Verdict | None = None


NOTHING_SAID = Said()


def said_about(identities: Iterable[UUID], scope: Scope) -> dict[UUID, Said]:
    """Return what is said about findings, by their identity, in one query.

    Findings about which nothing is said are left out.
    """
    wanted = set(identities)
    if not wanted:
        return {}
    is_comment, is_readable = Q(kind=Kind.COMMENT), Q(scope.findings(), pk__isnull=False)
    events = FindingEvent.objects.filter(identity__in=wanted).annotate(
        comments=Window(Count("pk", filter=is_comment & is_readable), partition_by="identity"),
        is_readable=Case(When(is_readable, then=True), default=False),
        rank=Case(When(is_comment, then=2), When(is_proposal=True, then=1), default=0),
    )
    # Of each finding the newest verdict, the newest proposal, and a comment.
    found: dict[UUID, Said] = {}
    newest: dict[UUID, int] = {}
    row: Any
    for row in events.order_by("identity", "rank", "-pk").distinct("identity", "rank"):
        known = found.get(row.identity, Said(comments=row.comments))
        if row.rank == 0:
            newest[row.identity] = row.pk
            known = replace(known, verdict=_verdict(row))
        elif row.rank == 1 and row.pk > newest.get(row.identity, 0):
            known = replace(known, proposal=_verdict(row))
        found[row.identity] = known
    return found


def _verdict(row: Any) -> Verdict | None:
    if row.kind not in VERDICTS or (row.until and row.until < timezone.now().date()):
        return None
    verdict = Verdict(
        row.kind, row.actor, row.created_at, until=row.until, is_match=row.matches_id is not None,
        is_by_two=row.severity == CRITICAL and not row.is_proposal,
    )  # fmt: skip
    return replace(verdict, reason=row.text, scope=row.scope, paths=row.paths) if row.is_readable else verdict


def verdicts_of(identities: Iterable[UUID], scope: Scope = EVERYTHING) -> dict[UUID, Verdict]:
    """Return the verdict of each finding that has one, by its identity."""
    found = said_about(identities, scope).items()
    return {identity: one.verdict for identity, one in found if one.verdict is not None}


def has_verdict(kinds: Collection[str] = VERDICTS) -> Q:
    """Return the condition on findings whose verdict is one of these."""
    newest = FindingEvent.objects.newest()
    return Q(Exists(newest.filter(STANDING, identity=OuterRef("identity"), kind__in=kinds)))


def has_verdict_in_words(words: str) -> Q:
    """Return the condition of a filter: a verdict, `none`, or `open` for what is not dismissed."""
    if words in OPEN_VERDICTS:
        return ~has_verdict(OPEN_VERDICTS[words])
    return has_verdict([words]) if words else Q()


def severity_or_dismissed() -> Case:
    """Return the expression by which findings are counted: their severity, or `dismissed`."""
    return Case(When(has_verdict(DISMISSALS), then=Value(DISMISSED)), default=F("severity"))


def of_findings() -> dict[str, Combinable]:
    """Return annotations of findings for answers: the verdict that counts, by whom and when.

    All are null without a verdict.
    """
    newest = FindingEvent.objects.verdicts().filter(identity=OuterRef("identity")).order_by("-pk")
    columns = {"verdict": "kind", "verdict_by": "actor", "verdict_at": "created_at"}
    # Taken back or past its last day: no verdict, as if none had been given.
    counts = STANDING & ~Q(kind=Kind.UNDONE)
    return {
        name: Subquery(newest.annotate(it=Case(When(counts, then=F(field)))).values("it")[:1])
        for name, field in columns.items()
    }


def thread(finding: FindingRow, scope: Scope) -> list[FindingEvent]:
    """Return what was said about a finding in every version, oldest first.

    A reader sees what `scope` allows.
    """
    events = FindingEvent.objects.filter(scope.findings(), identity=finding.identity)
    return list(events.select_related("job").order_by("-pk")[:MAX_EVENTS])[::-1]


def give(finding: FindingRow, kind: str, actor: str, reason: str = "", extent: Extent = ONLY_THIS) -> None:
    """Store a verdict, or with `undone` take the present one back.

    Repeating the last one changes nothing. A dismissal of a finding that is critical in any version is
    stored as a proposal until a second person agrees (G411).

    Raises NotAccepted: an unknown kind, a reason that is too long, an extent without sense, nothing to take
    back, or too many changes by one actor. Raises NotAllowed: a wide scope, or a critical finding, for those
    who may not dismiss these.
    """
    if kind not in (*VERDICTS, Kind.UNDONE):
        raise NotAccepted(f"Not saved: {kind[:20]!r} is no verdict. Accepted: {', '.join(VERDICTS)}, undone.")
    reason = "" if kind in (Kind.USEFUL, Kind.UNDONE) else " ".join(reason.split())
    if len(reason) > MAX_REASON:
        raise NotAccepted(f"Not saved: the reason is longer than {MAX_REASON} characters. Shorten it.")
    if kind in DISMISSALS:
        check_extent(finding, extent)
    else:
        extent = replace(extent, scope=DismissalScope.FINDING, paths="", until=None)
    with transaction.atomic():
        _lock(finding)
        last = FindingEvent.objects.filter(identity=finding.identity).exclude(kind=Kind.COMMENT).last()
        if kind == Kind.UNDONE and (last is None or last.kind == Kind.UNDONE):
            raise NotAccepted("Nothing was taken back: this finding has no verdict.")
        if last is not None and last.scope in WIDE_SCOPES and not extent.may_be_wide:
            raise NotAllowed("Not saved: this dismissal reaches further than you may dismiss or take back.")
        facts: dict[str, Any] = {"kind": kind, "actor": actor[:255], "text": clean(reason, MAX_REASON)}
        facts |= {"scope": extent.scope, "paths": extent.paths, "until": extent.until, "is_proposal": False}
        facts["within"] = extent.within
        # Of any version: a verdict holds for all of them.
        is_critical = FindingRow.objects.filter(identity=finding.identity, severity=CRITICAL).exists()
        if kind in DISMISSALS and is_critical:
            facts |= with_second_person(last, actor, extent)
        same = ("kind", "actor", "text", "scope", "paths", "until", "is_proposal")
        if last is not None and all(getattr(last, name) == facts[name] for name in same):
            return
        if kind in DISMISSALS:
            of_file = list(FindingRow.objects.filter(job=finding.job_id, file=finding.file))
            if finding not in of_file:
                raise NotAccepted("Not saved: the review ran again meanwhile. Open it and look again.")
            facts |= dismissals.facts_of(finding, of_file)
            facts |= {"severity": CRITICAL} if is_critical else {}
        own = FindingEvent.objects.filter(identity=finding.identity, actor=facts["actor"])
        # One more to take the last one back: no dismissal is final.
        if own.exclude(kind=Kind.COMMENT).count() >= MAX_CHANGES + (kind == Kind.UNDONE):
            raise NotAccepted(
                f"Not saved: {actor[:64]} changed this verdict {MAX_CHANGES} times, the maximum."
            )
        stored = _store(finding, **facts)
        if not stored.is_proposal:
            dismissals.renew_matches(stored)


def comment(finding: FindingRow, actor: str, text: str) -> None:
    """Add a comment to the finding's thread. Raises NotAccepted for an empty or too long one."""
    text = text.replace("\r\n", "\n").strip()
    if not text or len(text) > MAX_COMMENT:
        raise NotAccepted(f"Not saved: write 1 to {MAX_COMMENT} characters.")
    with transaction.atomic():
        _lock(finding)
        comments = FindingEvent.objects.filter(identity=finding.identity, kind=Kind.COMMENT)
        if comments.count() >= MAX_EVENTS:
            raise NotAccepted(f"Not saved: a finding has at most {MAX_EVENTS} comments.")
        if comments.filter(actor=actor[:255]).count() >= MAX_OWN_COMMENTS:
            raise NotAccepted(f"Not saved: you wrote {MAX_OWN_COMMENTS} comments on it, the maximum.")
        _store(finding, kind=Kind.COMMENT, actor=actor[:255], text=clean(text, MAX_COMMENT))


def _lock(finding: FindingRow) -> None:
    """Lock the finding's oldest row: one verdict at a time.

    So a double click is one verdict, and two people agree in whatever version they see.
    """
    rows = FindingRow.objects.filter(identity=finding.identity).select_for_update()
    list(rows.order_by("pk").only("pk")[:1])


def _store(finding: FindingRow, **facts: Any) -> FindingEvent:
    copied = {name: getattr(finding, name) for name in ("identity", "job_id", "file", "evidence")}
    stored = FindingEvent.objects.create(**copied, **facts)
    log.info("finding_judged", job=finding.job_id, finding=finding.pk, kind=str(facts["kind"]))
    return stored
