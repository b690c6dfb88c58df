"""Team rules, their use in reviews, and the paths that no model reads."""

from __future__ import annotations

from datetime import date

from django.contrib.postgres.fields import ArrayField
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from criticizer.db.triggers import audited
from reviews.models.jobs import ReviewJob
from reviews.reviewers.base import FindingSeverity


def today() -> date:
    return timezone.now().date()


@audited("rule edit")
class TeamRule(models.Model):
    """A rule that the changes of some paths are reviewed by; audited by pghistory."""

    name = models.CharField(
        max_length=40,
        unique=True,
        validators=[RegexValidator(r"^[a-z][a-z0-9-]*$", "Use small letters, digits and hyphens.")],
        help_text="What findings cite it by, such as no-raw-sql.",
    )
    pattern = models.CharField(max_length=1024, help_text="Such as //depot/project/... or //depot/a/*.sql")
    severity = models.CharField(
        max_length=8,
        choices=[(severity.value, severity.value) for severity in FindingSeverity],
        default=FindingSeverity.MEDIUM.value,
        help_text="The least that a finding counts which cites the rule.",
    )
    text = models.CharField(max_length=600, help_text="What code must or must not do, and when.")
    good = models.CharField("good example", max_length=300, blank=True, db_default="")
    bad = models.CharField("bad example", max_length=300, blank=True, db_default="")
    owner = models.CharField(max_length=150, help_text="The person or team to ask about it.")
    since = models.DateField(default=today, help_text="Changes fetched from this day on are reviewed by it.")
    reason = models.CharField(max_length=255, help_text="Why this rule exists: a ticket or a sentence.")

    class Meta:
        db_table = "team_rules"
        verbose_name = "team rule"
        verbose_name_plural = "team rules"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


@audited("skipped-path edit")
class SkippedPath(models.Model):
    """Depot files that the checks alone read, as no model needs to; audited by pghistory."""

    pattern = models.CharField(
        max_length=1024,
        unique=True,
        help_text="Such as //depot/project/docs/..., //depot/project/*.svg or one file.",
    )
    reason = models.CharField(
        max_length=255, help_text="Why the model need not read them: a ticket or a sentence."
    )

    class Meta:
        db_table = "skipped_paths"
        verbose_name = "skipped path"
        ordering = ["pattern"]

    def __str__(self) -> str:
        return self.pattern


class RuleUse(models.Model):
    """A rule that some parts of a review had: its provenance, and with `cited` its hit rate.

    `name` is that of a team rule, or the path of a file of rules; `text` is what the rule said, of
    the team's alone. `parts` count from 1, 0 stands for what earlier reviews answered. Written with the
    llm stage's commit (guarantee G422).
    """

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="rule_uses", db_index=False)
    name = models.CharField(max_length=1024)
    text = models.CharField(max_length=600, blank=True, db_default="")
    parts = ArrayField(models.IntegerField())
    cited = models.IntegerField(db_default=0)  # findings, not counting those merged into others

    class Meta:
        db_table = "rule_uses"
        verbose_name = "rule of a review"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="rule_uses_once")]
        indexes = [
            # The hit rate of a rule.
            models.Index(fields=["name"], condition=~Q(name__startswith="//"), name="rule_uses_of_team"),
        ]

    def __str__(self) -> str:
        return f"{self.name} of job {self.job_id}"

    @property
    def where(self) -> str:
        """Return for people which parts had it."""
        parts = [str(part) for part in self.parts if part]
        named = [f"part{'s' * (len(parts) > 1)} {', '.join(parts)}"] if parts else []
        return " and ".join([*named, *(["earlier reviews"] if 0 in self.parts else [])])


def text_of_cited() -> Coalesce:
    """Return, to annotate findings, what the team rule says that each cites; "" of other rules."""
    cited = RuleUse.objects.filter(job=OuterRef("job"), name=OuterRef("rule")).order_by()
    return Coalesce(Subquery(cited.values("text")), Value(""))
