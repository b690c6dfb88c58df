"""Offering of tasks to agents, in the commit that gives their stage's attempt back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.redaction import RedactedText, guard
from reviews.agents import rows
from reviews.models import AgentTask, ApiKey, ReviewJob
from reviews.states import OPEN_TASK, AgentTaskStatus, AgentTaskType

MAX_PAYLOAD_BYTES = 256 * 1024
SPARE_SECONDS = 60.0  # before the job's deadline: for the report


class TooLarge(Exception):
    """The payload of a task would be larger than MAX_PAYLOAD_BYTES."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A task to be offered. `payload` is what its claim hands out.

    `directories`: of all files that it says something of, where these are others than those of the offer.
    """

    type: AgentTaskType
    ordinal: int
    digest: str
    payload: Mapping[str, Any]
    directories: Sequence[str] = ()


def draft(
    kind: AgentTaskType,
    ordinal: int,
    digest: str,
    instructions: str,
    request: RedactedText,
    schema: Mapping[str, object],
    directories: Sequence[str] = (),
) -> Draft:
    """Return a task. `instructions` and `schema` are this program's own constants.

    Raises RedactionBlocked from the guard, also for a `request` that is no RedactedText, and TooLarge.
    """
    payload = {
        "type": kind.value, "instructions": instructions, "request": guard(request), "answer_schema": schema,
    }  # fmt: skip
    if len(json.dumps(payload).encode()) > MAX_PAYLOAD_BYTES:
        raise TooLarge
    return Draft(kind, ordinal, digest, payload, directories)


def is_configured(directories: Sequence[str]) -> bool:
    """Return whether some valid key of the role agent may see all of these directories."""
    keys = ApiKey.objects.filter(role=ApiKey.Role.AGENT, revoked_at=None).values_list("prefixes", flat=True)
    scopes = [tuple(prefix.removesuffix("...") for prefix in prefixes) for prefixes in keys]
    return any(all(directory.startswith(scope) for directory in directories) for scope in scopes)


def seconds_left(job_id: int) -> float:
    """Return how long a task of a job that is offered now can be worked on."""
    job = ReviewJob.objects.annotate(now=Now()).only("deadline_at").get(pk=job_id)
    left = (job.deadline_at - job.now).total_seconds() - SPARE_SECONDS
    return float(min(left, settings.AGENT_TASK_TIMEOUT_MINUTES * 60))


def offer(job_id: int, stage_run_id: int, drafts: Iterable[Draft], directories: Sequence[str]) -> None:
    """Store tasks as pending. Inside a transaction.

    Another run of the stage finds those of the earlier one: what was answered to the same question stays,
    everything else is asked again.
    """
    assert connection.in_atomic_block
    rows.hold_stage(stage_run_id)
    expires_at = Now() + timedelta(seconds=seconds_left(job_id))
    # Neither payload nor result: opening what is sealed takes longer than all else here.
    earlier = AgentTask.objects.filter(stage_run=stage_run_id).annotate(has_result=~Q(result=""))
    before = {
        (task.type, task.ordinal): task
        for task in earlier.values_list("type", "ordinal", "pk", "status", "digest", "has_result", named=True)
    }
    made = []
    for one in drafts:
        fields: dict[str, Any] = {
            "digest": one.digest,
            "directories": list(one.directories or directories),
            "payload": [dict(one.payload)],
            "expires_at": expires_at,
        }
        task = before.pop((one.type.value, one.ordinal), None)
        if task is None:
            made.append(
                AgentTask(
                    job_id=job_id, stage_run_id=stage_run_id, type=one.type, ordinal=one.ordinal, **fields
                )
            )
        elif not (task.status == AgentTaskStatus.COMPLETED and task.digest == one.digest and task.has_result):
            again = AgentTask.objects.filter(pk=task.pk, status=task.status)
            # By the day of its first offer the payload of an old task would be emptied within minutes.
            again.update(**{**AFRESH, **fields, "created_at": Now()})
    AgentTask.objects.bulk_create(made)
    rows.announce()
    left = AgentTask.objects.filter(pk__in=[task.pk for task in before.values()], status__in=OPEN_TASK)
    left.update(status=AgentTaskStatus.CANCELLED, lease_expires_at=None, finished_at=Now())


# A task that is offered again.
AFRESH: dict[str, Any] = {
    "status": AgentTaskStatus.PENDING,
    "claim_sha256": "",
    "claims": 0,
    "lease_expires_at": None,
    "parse_failures": 0,
    "failures": 0,
    "progress": "",
    "error_class": "",
    "detail": "",
    "finished_at": None,
    "result": [],
    "metadata": {},
}
