"""Tasks for agents of the customer, and submissions. Only `reviews.agents` writes them."""

from __future__ import annotations

from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.db.triggers import append_only, fsm
from criticizer.security.sealed_field import SealedListField
from reviews.models.jobs import ReviewJob, StageRun
from reviews.states import (
    AGENT_TASK_TRANSITIONS,
    OPEN_TASK,
    AgentTaskStatus,
    AgentTaskType,
    SubmissionVerdict,
)

INDEXED_DEPTHS = (1, 2, 3)  # of depot directories: //depot/, //depot/project/, //github/owner/repository/


def ancestor_sql(depth: int, directories: str = "directories") -> str:
    """Return SQL of the first components of a task's first directory.

    Such as `depot/project` for a depth of 2.
    """
    return " || '/' || ".join(f"split_part({directories}[1], '/', {3 + n})" for n in range(depth))


def _open_below(depth: int) -> models.Index:
    """Return the index of open tasks below directories of a depth, oldest first.

    `agents.claim` uses it.
    """
    ancestor = models.Func(
        models.F("directories"),
        template=f"({ancestor_sql(depth, '(%(expressions)s)')})",
        output_field=models.TextField(),
    )
    return models.Index(
        ancestor,
        "created_at",
        "ordinal",
        "id",
        condition=Q(status__in=[status.value for status in OPEN_TASK]),
        name=f"agent_tasks_open_below_{depth}",
    )


class AgentTask(models.Model):
    """One question of a stage that an agent of the customer answers with its own model (G520).

    `payload` holds one object of redacted text, `result` what was accepted; both are sealed, and emptied
    when a redacted artifact would be deleted. The database's clock decides on every time here.
    """

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="agent_tasks")
    # No index of its own: it is the first column of the unique one.
    stage_run = models.ForeignKey(StageRun, on_delete=models.CASCADE, related_name="+", db_index=False)
    type = models.CharField(max_length=16, choices=AgentTaskType.choices)
    ordinal = models.IntegerField()
    digest = models.CharField(max_length=64)  # of the question: another run of the stage asks the same
    # Those of all files whose names or text it holds; a key that may not see one of them gets no task.
    directories = ArrayField(models.TextField())
    payload = SealedListField()
    status = models.CharField(
        max_length=11, choices=AgentTaskStatus.choices, db_default=AgentTaskStatus.PENDING
    )
    claim_sha256 = models.CharField(max_length=64, blank=True, db_default="")  # of the claim's token
    claimed_by = models.CharField(max_length=200, blank=True, db_default="")  # the agent's own name
    claimed_key = models.CharField(max_length=64, blank=True, db_default="")  # the name of its API key
    claims = models.IntegerField(db_default=0)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField()
    progress = models.CharField(max_length=200, blank=True, db_default="")  # as the agent said last
    parse_failures = models.IntegerField(db_default=0)  # results that could not be used
    failures = models.IntegerField(db_default=0)  # that the agent reported
    result = SealedListField()
    metadata = models.JSONField(db_default={})  # of the result: the agent's word, never counted as ours
    error_class = models.CharField(max_length=32, blank=True, db_default="")
    detail = models.CharField(max_length=512, blank=True, db_default="")  # redacted
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "agent_tasks"
        verbose_name = "agent task"
        ordering = ["created_at", "ordinal"]
        permissions = [("decide_agenttask", "Can expire agent tasks and offer them again")]
        constraints = [
            # A retried stage makes no second set.
            models.UniqueConstraint(fields=["stage_run", "type", "ordinal"], name="agent_tasks_once"),
            models.CheckConstraint(
                condition=Q(status=AgentTaskStatus.IN_PROGRESS, lease_expires_at__isnull=False)
                & ~Q(claim_sha256="")
                | (~Q(status=AgentTaskStatus.IN_PROGRESS) & Q(lease_expires_at__isnull=True)),
                name="agent_tasks_claimed_are_leased",
            ),
        ]
        indexes = [
            # The agents' list and their next claim, oldest first; and what the sweep looks at.
            models.Index(
                fields=["created_at", "ordinal", "id"],
                condition=Q(status__in=[status.value for status in OPEN_TASK]),
                name="agent_tasks_open",
            ),
            # The same, for a key that sees a small part of the tasks.
            *map(_open_below, INDEXED_DEPTHS),
            models.Index(fields=["-created_at", "-id"], name="agent_tasks_newest"),  # the admin's list
            # The sweep: a stage that waits has a task whose time is not over. An index of stages by their
            # progress would be written, and with it all others of theirs, at each part of a review.
            models.Index(fields=["expires_at"], name="agent_tasks_by_expiry"),
        ]
        triggers = [fsm(AGENT_TASK_TRANSITIONS)]

    def __str__(self) -> str:
        return f"{self.type} {self.ordinal} of job {self.job_id}"


class AgentSubmission(models.Model):
    """One submission of a result: append-only, without its body.

    Of refused submissions only the first of each task are stored.
    """

    task = models.ForeignKey(AgentTask, on_delete=models.CASCADE, related_name="submissions")
    verdict = models.CharField(max_length=18, choices=SubmissionVerdict.choices)
    sha256 = models.CharField(max_length=64)  # of the body in its canonical form, which holds the token
    size_bytes = models.IntegerField()
    key = models.CharField(max_length=64)  # the name of the API key
    client = models.CharField(max_length=64, blank=True, db_default="")  # its address
    late_by_ms = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "agent_submissions"
        verbose_name = "submission of an agent"
        verbose_name_plural = "submissions of agents"
        ordering = ["id"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.verdict} for task {self.task_id}"
