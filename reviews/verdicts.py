"""What people say about findings: verdicts, which hold for every version of a finding, and comments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Case, Count, Exists, F, OuterRef, Q, Subquery, Value, When, Window
from django.db.models.expressions import Combinable

from criticizer.redaction import clean
from reviews.models import FindingEvent, FindingRow
from reviews.recipients.scopes import EVERYTHING, Scope
from reviews.states import DISMISSALS, VERDICTS
from reviews.states import FindingEventKind as Kind

log = structlog.get_logger(__name__)

DISMISSED = "dismissed"
MAX_REASON = 300
MAX_COMMENT = 2000
MAX_EVENTS = 200  # shown of one finding; and its comments

_LABELS = {
    Kind.USEFUL: "Marked as useful",
    Kind.WRONG: "Dismissed as wrong",
    Kind.WONT_FIX: "Dismissed: won't fix",
}


class NotAccepted(ValueError):
    """A verdict or comment that cannot be stored; the text says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict that counts. `reason` is empty for readers who may not see what it was given on."""

    kind: str
    actor: str
    at: datetime
    reason: str = ""

    @property
    def is_dismissal(self) -> bool:
        return self.kind in DISMISSALS

    @property
    def label(self) -> str:
        """Return such as `Dismissed as wrong`."""
        return _LABELS[Kind(self.kind)]

    @property
    def sentence(self) -> str:
        """Return such as `Dismissed as wrong by ann on 2026-11-22`."""
        return f"{self.label} by {self.actor} on {self.at:%Y-%m-%d}"


@dataclass(frozen=True, slots=True)
class Said:
    """What people say about a finding, as far as a reader may see it."""

    verdict: Verdict | None = None
    comments: int = 0


NOTHING_SAID = Said()


def said_about(identities: Iterable[UUID], scope: Scope = EVERYTHING) -> dict[UUID, Said]:
    """Return what is said about findings, by their identity, in one query; nothing about the others."""
    is_comment, is_readable = Q(kind=Kind.COMMENT), Q(scope.findings(), pk__isnull=False)
    events = FindingEvent.objects.filter(identity__in=set(identities)).annotate(
        comments=Window(Count("pk", filter=is_comment & is_readable), partition_by="identity"),
        is_readable=Case(When(is_readable, then=True), default=False),
    )
    # Of each finding the newest verdict, or a comment where there is none.
    rows = events.order_by("identity", Case(When(is_comment, then=1), default=0), "-pk").distinct("identity")
    return {row.identity: Said(_verdict(row), row.comments) for row in rows}


def _verdict(row: Any) -> Verdict | None:
    if row.kind not in VERDICTS:
        return None
    return Verdict(row.kind, row.actor, row.created_at, row.text if row.is_readable else "")


def verdicts_of(identities: Iterable[UUID], scope: Scope = EVERYTHING) -> dict[UUID, Verdict]:
    """Return the verdict of each finding that has one, by its identity."""
    found = said_about(identities, scope).items()
    return {identity: said.verdict for identity, said in found if said.verdict is not None}


def has_verdict(kinds: Collection[str] = VERDICTS) -> Q:
    """Return the condition on findings whose verdict is one of these."""
    said = FindingEvent.objects.exclude(kind=Kind.COMMENT)
    later = said.filter(identity=OuterRef("identity"), pk__gt=OuterRef("pk"))
    return Q(Exists(said.filter(~Exists(later), identity=OuterRef("identity"), kind__in=kinds)))


def severity_or_dismissed() -> Case:
    """Return the expression by which findings are counted: their severity, or `dismissed`."""
    return Case(When(has_verdict(DISMISSALS), then=Value(DISMISSED)), default=F("severity"))


def of_findings() -> dict[str, Combinable]:
    """Return annotations of findings for answers: the verdict that counts, by whom and when, or null."""
    newest = (
        FindingEvent.objects.filter(identity=OuterRef("identity")).exclude(kind=Kind.COMMENT).order_by("-pk")
    )
    said = {"verdict": "kind", "verdict_by": "actor", "verdict_at": "created_at"}
    # Taken back: no verdict, as if none had been given.
    return {
        name: Subquery(newest.annotate(it=Case(When(~Q(kind=Kind.UNDONE), then=F(field)))).values("it")[:1])
        for name, field in said.items()
    }


def thread(finding: FindingRow, scope: Scope) -> list[FindingEvent]:
    """Return what was said about a finding in every version, oldest first, as far as a reader may see."""
    events = FindingEvent.objects.filter(scope.findings(), identity=finding.identity)
    return list(events.select_related("job").order_by("-pk")[:MAX_EVENTS])[::-1]


def give(finding: FindingRow, kind: str, actor: str, reason: str = "") -> None:
    """Store a verdict, or with `undone` take the present one back. Repeating the last one changes nothing.

    Raises NotAccepted: an unknown kind, a reason that is missing or too long, or nothing to take back.
    """
    if kind not in (*VERDICTS, Kind.UNDONE):
        raise NotAccepted(f"Not saved: {kind[:20]!r} is no verdict. Accepted: {', '.join(VERDICTS)}, undone.")
    reason = "" if kind in (Kind.USEFUL, Kind.UNDONE) else " ".join(reason.split())
    if len(reason) > MAX_REASON:
        raise NotAccepted(f"Not saved: the reason is longer than {MAX_REASON} characters. Shorten it.")
    if kind == Kind.WONT_FIX and not reason:
        raise NotAccepted("Not saved: say in a few words why this will not be fixed.")
    _store(finding, kind, actor, reason)


def comment(finding: FindingRow, actor: str, text: str) -> None:
    """Add a comment to the finding's thread. Raises NotAccepted for an empty or too long one."""
    text = text.replace("\r\n", "\n").strip()
    if not text or len(text) > MAX_COMMENT:
        raise NotAccepted(f"Not saved: write 1 to {MAX_COMMENT} characters.")
    _store(finding, Kind.COMMENT, actor, text)


def _store(finding: FindingRow, kind: str, actor: str, text: str) -> None:
    said = FindingEvent.objects.filter(identity=finding.identity)
    with transaction.atomic():
        # One at a time: a double click is one verdict.
        FindingRow.objects.select_for_update().only("pk").get(pk=finding.pk)
        text = clean(text, MAX_COMMENT)
        if kind != Kind.COMMENT:
            last = said.exclude(kind=Kind.COMMENT).order_by("-pk").first()
            if last is not None and (last.kind, last.actor, last.text) == (kind, actor, text):
                return
            if kind == Kind.UNDONE and (last is None or last.kind == Kind.UNDONE):
                raise NotAccepted("Nothing was taken back: this finding has no verdict.")
        elif said.filter(kind=Kind.COMMENT).count() >= MAX_EVENTS:
            raise NotAccepted(f"Not saved: a finding has at most {MAX_EVENTS} comments.")
        FindingEvent.objects.create(
            identity=finding.identity,
            job_id=finding.job_id,
            file=finding.file,
            evidence=finding.evidence,
            kind=kind,
            text=text,
            actor=actor[:255],
        )
    log.info("finding_judged", job=finding.job_id, finding=finding.pk, kind=kind)
