"""Results of a review: findings, coverage and encrypted artifacts."""

from __future__ import annotations

from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector
from django.db import models
from django.db.models import Case, F, Func, Q, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Collate, Lower, Now

from criticizer.db.triggers import append_only
from criticizer.security.sealed_field import SealedListField
from notifications.rendering import Ending
from notifications.rendering.report import evidence_note
from reviews.models.jobs import Attempt, ReviewJob
from reviews.reviewers.base import CoverageStatus, Edit, Fate, FindingSeverity, Side, Verification
from reviews.states import AttemptOutcome, FindingStatus, Stage


class FindingFate(models.Model):
    """Fate of one raw finding: append-only, written with the llm stage's commit (G155).

    A raw finding is named by the attempt, the part (0: the checks), the pass and its place in the answer.
    """

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="fates")
    # No index of its own: it is the first column of the unique one.
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+", db_index=False)
    part = models.IntegerField()
    turn = models.IntegerField()
    place = models.IntegerField()
    fate = models.CharField(max_length=10, choices=[(fate.value, fate.value) for fate in Fate])
    reason = models.CharField(max_length=255, blank=True, db_default="")
    merged_into = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, related_name="+", db_index=False
    )
    # Where it points, and its title where no finding shows it.
    file = models.CharField(max_length=1024, blank=True, db_default="")
    line = models.IntegerField(null=True)
    severity = models.CharField(max_length=8, blank=True, db_default="")
    title = models.CharField(max_length=160, blank=True, db_default="")

    class Meta:
        db_table = "finding_fates"
        verbose_name = "outcome of a finding"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["attempt", "part", "turn", "place"], name="finding_fates_one_each"
            ),
            models.CheckConstraint(
                condition=Q(fate=Fate.MERGED.value) ^ Q(merged_into=None), name="finding_fates_merged_into"
            ),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.part}.{self.turn}.{self.place}: {self.fate}"

    @classmethod
    def of_newest_run(cls, job: ReviewJob) -> models.QuerySet[FindingFate]:
        """Return the fates of the newest run that succeeded; none where it had no raw finding."""
        of_job = cls.objects.filter(job=job)
        newest = of_job.order_by("-attempt_id").values_list("attempt_id", flat=True).first()
        later = Attempt.objects.filter(
            stage_run__job=job, stage_run__stage=Stage.LLM, outcome=AttemptOutcome.SUCCEEDED,
            pk__gt=newest or 0,
        )  # fmt: skip
        return of_job.none() if newest is None or later.exists() else of_job.filter(attempt=newest)


# What joins words to names, or makes PostgreSQL read text as an address, a path or a tag.
WORD_MARKS = "/._-<>&"
# Words of the title, the message and the path, and of the names there (`reviews.search.words_of_findings`).
FINDING_WORDS = SearchVector(
    *(
        Func(
            F(name),
            Value(WORD_MARKS),
            Value(" " * len(WORD_MARKS)),
            function="translate",
            output_field=models.TextField(),
        )
        for name in ("title", "message", "file")
    ),
    config="simple",
)


def _facet(name: str, value: Combinable) -> Func:
    return Func(Value(f"{name} "), value, arg_joiner=" || ", template="(%(expressions)s)")


# What the lists narrow by, such as `severity high` (`reviews.search.with_facets`).
FINDING_FACETS = Func(
    _facet("severity", F("severity")),
    _facet("category", F("category")),
    _facet("source", Func(F("source"), Value(":"), Value(1), function="split_part")),
    template="ARRAY[%(expressions)s]",
    output_field=ArrayField(models.TextField()),
)


class FindingRow(models.Model):
    """A finding of a job, written with the llm stage's commit.

    The next version adds how it ended. `identity` is the same in every version that reports it. `is_new` is
    None where there was no earlier version to compare with. `fate` is its entry in the ledger; findings of
    older versions have none.
    """

    # The fields that answers of the API and messages to recipients show.
    PUBLISHED = (
        "file", "line", "end_line", "side", "severity", "category", "title", "message", "suggestion",
        "source", "evidence"
    )  # fmt: skip

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="findings")
    file = models.CharField(max_length=1024)
    line = models.IntegerField(null=True, blank=True)
    end_line = models.IntegerField(null=True, blank=True)
    side = models.CharField(max_length=3, choices=[(s.value, s.value) for s in Side], db_default="new")
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in FindingSeverity])
    category = models.CharField(max_length=32)
    title = models.CharField(max_length=160)
    message = models.TextField()
    suggestion = models.TextField(blank=True, db_default="")
    source = models.CharField(max_length=64)
    excerpt = SealedListField()  # [[line or null, kind, text], …], redacted
    edit = SealedListField()  # what its suggestion replaces, proven: the fields of `reviewers.base.Edit`
    confidence = models.IntegerField(null=True, blank=True)
    demoted = models.BooleanField(db_default=False)
    # Other files it rests on: it is shown to those who may see all of them (`recipients.viewing_scopes`).
    evidence = ArrayField(models.TextField(), blank=True, default=list, db_default=[])
    # The rule it cites: the name of one of the team, or the path of a file of rules (`models.rules`).
    rule = models.CharField(max_length=1024, blank=True, db_default="")
    fate = models.OneToOneField(FindingFate, on_delete=models.CASCADE, null=True, related_name="finding")
    verification = models.CharField(
        max_length=10, blank=True, choices=[(v.value, v.name) for v in Verification if v], db_default=""
    )
    folded = models.CharField(max_length=32, blank=True, db_default="")  # why it is behind a fold, or ""
    identity = models.UUIDField(default=uuid4, db_default=RandomUUID(), editable=False)
    is_new = models.BooleanField(null=True, blank=True)
    ending = models.CharField(
        max_length=18, choices=[(s.value, s.value) for s in Ending], blank=True, db_default=""
    )
    # The later version of its changelist that does not report it.
    ended_in = models.ForeignKey(
        ReviewJob,
        models.DO_NOTHING,
        null=True,
        blank=True,
        related_name="ended_findings",
        db_constraint=False,
        db_index=False,
    )

    status = models.GeneratedField(
        expression=Case(
            When(ending=Ending.FIXED, then=Value(FindingStatus.FIXED)),
            When(~Q(ending=""), then=Value(FindingStatus.NOT_REPORTED_AGAIN)),
            When(is_new=False, then=Value(FindingStatus.STILL_THERE)),
            default=Value(FindingStatus.NEW),
        ),
        output_field=models.CharField(max_length=18, choices=FindingStatus.choices),
        db_persist=True,
    )

    class Meta:
        db_table = "findings"
        verbose_name = "finding"
        ordering = ["id"]
        # Stored by a version that did not seal, until `artifacts.integrity` seals them.
        indexes = [
            models.Index(fields=["id"], condition=Q(excerpt__startswith="["), name="findings_unsealed"),
            models.Index(fields=["identity"], name="findings_identity"),
            # The findings list, narrowed.
            GinIndex(FINDING_WORDS, FINDING_FACETS, name="findings_by_words"),
            models.Index(fields=["file"], opclasses=["varchar_pattern_ops"], name="findings_of_file"),
            models.Index(fields=["ended_in"], condition=Q(ended_in__isnull=False), name="findings_ended_in"),
        ]

    def __str__(self) -> str:
        return f"{self.severity}: {self.title}"

    @property
    def rule_name(self) -> str:
        """Return the rule that the finding cites, or the check that found it.

        "" for a model's own findings.
        """
        return self.rule or (self.source if self.source.startswith("check:") else "")

    @property
    def status_label(self) -> str:
        return str(FindingStatus(self.status).label)

    @property
    def proven_edit(self) -> Edit | None:
        return Edit.of(*self.edit) if self.edit else None

    @property
    def evidence_note(self) -> str:
        return evidence_note(self.demoted, self.confidence)


# The name of a file without its folders, for `reviews.search.jobs_with_file`; its index serves prefixes.
FILE_NAME = Collate(
    Lower(Func(F("file"), Value("[^/]*$"), function="substring", output_field=models.TextField())), "C"
)


class CoverageRow(models.Model):
    """Coverage of one file of a job's change."""

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="coverage")
    file = models.CharField(max_length=1024)
    status = models.CharField(max_length=10, choices=[(s.value, s.value) for s in CoverageStatus])
    reason = models.CharField(max_length=255, blank=True, db_default="")

    class Meta:
        db_table = "coverage"
        verbose_name = "covered file"
        ordering = ["id"]
        # Reviews of a file, by its name.
        indexes = [models.Index(FILE_NAME, name="coverage_of_name")]

    def __str__(self) -> str:
        return f"{self.file}: {self.status}"


class ReviewUnit(models.Model):
    """Answer about one unit of content, for reviews of equal content (guarantee G360).

    `key` is a digest of all that decided the answer (`reviewers.units`); `answer` holds one object. It lives
    as long as a redacted artifact (`security.expired_copies`). Only `reviews.stages.units` writes it.
    """

    key = models.CharField(max_length=64, primary_key=True)
    answer = SealedListField()
    input_tokens = models.IntegerField()
    made_by = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="units")
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "review_units"
        verbose_name = "review unit"
        indexes = [
            # What has expired.
            models.Index(fields=["made_at"], name="review_units_made_at"),
        ]

    def __str__(self) -> str:
        return f"unit {self.key[:12]} of job {self.made_by_id}"


class Artifact(models.Model):
    """An encrypted file of a job. `reviews.artifacts.store` reads and writes it."""

    class Kind(models.TextChoices):
        CHANGE = "change", "Change as fetched"
        REDACTED = "redacted", "Redacted change"
        PROMPT = "prompt", "Prompt"
        ANSWER = "answer", "Model answer"
        MAIL = "mail", "Mail metadata"

    class Fault(models.TextChoices):
        OVERDUE = "overdue", "Kept beyond its expiry"
        MISSING = "missing", "The file is gone"
        UNREADABLE = "unreadable", "No key opens it"
        CHANGED = "changed", "Differs from the bytes that were stored"

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="artifacts")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    is_raw = models.BooleanField()
    name = models.CharField(max_length=255)  # within the storage
    sha256 = models.CharField(max_length=64)  # of the plain bytes
    size_bytes = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)
    key_id = models.CharField(max_length=12, blank=True, db_default="")  # of the key that sealed it
    # Of a redacted change that can stand for the raw one: by which rules, limits and secrets it was made.
    recipe = models.CharField(max_length=64, blank=True, db_default="")
    checked_at = models.DateTimeField(null=True, blank=True)  # by the verification
    fault = models.CharField(max_length=12, choices=Fault.choices, blank=True, db_default="")

    class Meta:
        db_table = "artifacts"
        permissions = [
            ("read_artifact", "Can read redacted artifacts"),
            ("read_raw_artifact", "Can read raw artifacts"),
        ]
        indexes = [
            # The deletion: artifacts that are due and not deleted.
            models.Index(fields=["expires_at"], condition=Q(deleted_at__isnull=True), name="artifacts_due"),
            # The verification: artifacts checked longest ago.
            models.Index(
                F("checked_at").asc(nulls_first=True),
                condition=Q(deleted_at__isnull=True),
                name="artifacts_to_check",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of job {self.job_id}"
