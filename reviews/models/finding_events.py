"""Verdicts and comments on findings."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now, TruncDate

from criticizer.db.triggers import append_only
from reviews.models.jobs import ReviewJob
from reviews.reviewers.base import FindingSeverity
from reviews.states import DISMISSALS, WIDE_SCOPES, DismissalScope, FindingEventKind

# Not of a day that has passed, in UTC.
STANDING = Q(until=None) | Q(until__gte=TruncDate(Now()))
# Dismissals that may hold for findings of other reviews.
_DISMISSES = Q(kind__in=DISMISSALS, is_proposal=False, matches=None)


class FindingEvents(models.QuerySet["FindingEvent"]):
    def verdicts(self) -> FindingEvents:
        """Return what gives a verdict that counts or takes one back: no comments, no proposals."""
        return self.filter(is_proposal=False).exclude(kind=FindingEventKind.COMMENT)

    def newest(self) -> FindingEvents:
        """Return the last verdict of each finding, which is the one that counts."""
        verdicts = FindingEvent.objects.verdicts()
        return self.verdicts().filter(
            ~Exists(verdicts.filter(identity=OuterRef("identity"), pk__gt=OuterRef("pk")))
        )


class FindingEvent(models.Model):
    """A verdict on a finding, or a comment: append-only, and the last verdict counts (G260).

    It is about the finding's `identity`, so about the same finding of every version. `file` and `evidence`
    are those of the finding it was given on: only who may see them reads its text. A dismissal reaches as
    far as its `scope` says, and holds for findings of other reviews that match (`reviews.dismissals`); a
    match is an event too, which repeats the dismissal that it `matches`.
    """

    Kind = FindingEventKind

    identity = models.UUIDField()
    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="finding_events")
    file = models.CharField(max_length=1024)
    evidence = ArrayField(models.TextField(), blank=True, default=list, db_default=[])
    kind = models.CharField(max_length=8, choices=FindingEventKind.choices)
    text = models.CharField(max_length=2000, blank=True, db_default="")  # redacted
    actor = models.CharField(max_length=255)
    created_at = models.DateTimeField(db_default=Now())
    # Of one person about a critical finding: it counts once a second person agrees (G411).
    is_proposal = models.BooleanField(default=False, db_default=False)
    scope = models.CharField(
        max_length=8,
        choices=DismissalScope.choices,
        default=DismissalScope.FINDING,
        db_default=DismissalScope.FINDING,
    )
    paths = models.CharField(max_length=1024, blank=True, db_default="")  # a depot pattern; "": every file
    until = models.DateField(null=True, blank=True)  # the last day on which it counts, in UTC
    # What its giver saw: it holds for no finding beyond. Empty: every file.
    within = ArrayField(models.TextField(), blank=True, default=list, db_default=[])
    # Of the finding: what others are compared with.
    severity = models.CharField(
        max_length=8, choices=[(s.value, s.value) for s in FindingSeverity], blank=True, db_default=""
    )
    category = models.CharField(max_length=32, blank=True, db_default="")
    rule = models.CharField(max_length=1024, blank=True, db_default="")
    line = models.IntegerField(null=True, blank=True)
    fingerprint = models.CharField(max_length=64, blank=True, db_default="")
    words = ArrayField(models.TextField(), blank=True, default=list, db_default=[])
    matches = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="matched", db_index=False
    )

    objects = FindingEvents.as_manager()

    class Meta:
        db_table = "finding_events"
        verbose_name = "verdict or comment"
        verbose_name_plural = "verdicts and comments"
        ordering = ["id"]
        permissions = [("dismiss_widely", "Can dismiss findings by path, rule and category")]
        indexes = [
            models.Index(fields=["identity", "id"], name="finding_events_of_finding"),
            # Lists of findings with a verdict.
            models.Index(fields=["kind", "identity"], name="finding_events_of_kind"),
            # A review looks for dismissals of its files, and for wide ones.
            models.Index(fields=["file", "category"], condition=_DISMISSES, name="finding_events_of_file"),
            models.Index(
                fields=["category"],
                condition=_DISMISSES & Q(scope__in=WIDE_SCOPES),
                name="finding_events_wide",
            ),
            # What taking a dismissal back takes back too.
            models.Index(
                fields=["matches"], condition=Q(matches__isnull=False), name="finding_events_matched"
            ),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} by {self.actor}"
