"""A review with one row in every table that reaches it, for tests of who may see what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from criticizer.models import SecurityEvent
from deadletters.models import LetterArchive, LetterEdit, ReplayBatch, ReplayItem
from reviews.models import (
    AgentTask,
    HostChange,
    HostDelivery,
    HostInstallation,
    JobEvent,
    LedgerEntry,
    RepositoryConfiguration,
    SourceEvent,
)
from tests import factories


def review_rows(mark: str, *files: str) -> dict[str, Any]:
    """Make a review of `files` and its rows, with `mark` in every text; return table -> key."""
    job = factories.job_with_stages(
        changelist_id=f"{mark}-cl", title=f"{mark} title", author=f"{mark} author",
        status_reason=f"{mark} status", banner=f"{mark} banner", recipients=[f"mail:{mark}@example.com"],
        status="dead_lettered", idempotency_key=f"{mark}-key", requested_by=f"{mark}-ci",
    )  # fmt: skip
    for file in files:
        factories.CoverageRowFactory(job=job, file=file, reason=f"{mark} reason")
        factories.FindingRowFactory(job=job, file=file, title=f"{mark} finding", message=f"{mark} message")
    JobEvent.objects.create(job=job, kind="alert", reason=f"{mark} happened to {files[-1]}")
    run = job.stages.get(stage="fetch")
    attempt = factories.AttemptFactory(
        stage_run=run, outcome="failed", error_class="NOT_FOUND", detail=f"{mark} attempt at {files[-1]}",
        context={"path": f"{mark} context"},
    )  # fmt: skip
    RepositoryConfiguration.objects.create(
        root=f"{files[-1].rpartition('/')[0]}/", branch=mark, text=f"{mark} file", job=job,
        configuration={
            "name": ".criticizer.yml", "warnings": [], "hidden": 0, "sources": {}, "values": {"llm": True},
        },
    )  # fmt: skip
    call = LedgerEntry.objects.create(
        job=job, attempt=attempt, call=f"{mark}-call", dependency="llm:openai", model="m",
        source=f"git:{mark}", reserved_tokens=1,
    )  # fmt: skip
    delivery = factories.DeliveryFactory(
        job=job, status="uncertain", recipient=f"mail:{mark}@example.com", subject=f"{mark} subject",
        error_class="DELIVERY_UNCERTAIN", detail=f"{mark} delivery",
    )  # fmt: skip
    factories.DeliveryAttemptFactory(
        delivery=delivery, outcome="ambiguous", error_class="TIMEOUT", detail=f"{mark} try"
    )
    group = factories.DeadLetterGroupFactory(normalized_message=f"{mark} failure", note=f"{mark} note")
    letter = factories.DeadLetterFactory(job=job, group=group, detail=f"{mark} letter about {files[-1]}")
    factories.DeadLetterEventFactory(letter=letter, reason=f"{mark} event")
    batch = ReplayBatch.objects.create(reason=f"{mark} batch", requested_by="ann", item_count=1)
    ReplayItem.objects.create(
        batch=batch, letter=letter, job_id=job.pk, group_id=group.pk, detail=f"{mark} item"
    )
    ReplayBatch.objects.filter(pk=batch.pk).update(status="awaiting", needs_approval=True)
    edit = LetterEdit.objects.create(
        letter=letter, before={"recipients": [mark]}, after={"recipients": [f"{mark} after"]},
        reason=f"{mark} edit", requested_by="ann",
    )  # fmt: skip
    archive = LetterArchive.objects.create(
        name=f"{mark}-archive", sha256="0" * 64, letter_count=1, first_letter=1, last_letter=1
    )
    event = SourceEvent.objects.create(
        server=f"{mark}-server", event="submitted", changelist_id=job.changelist_id, origin="trigger",
        outcome="created", job=job,
    )  # fmt: skip
    head = {"head_sha": "a" * 40, "base_sha": "b" * 40, "base_ref": "main"}
    pull = HostChange.objects.create(
        host="github", repository_id=job.pk, number=7, full_name=f"acme/{mark}",
        changelist_id=f"github:acme/{mark}#7", reported_at=job.created_at, **head,
    )  # fmt: skip
    installation = HostInstallation.objects.create(
        host="github", installation_id=job.pk, account=f"{mark}-owner"
    )
    delivery_of_host = HostDelivery.objects.create(
        host="github",
        delivery_id=f"{mark}-guid",
        event="pull_request.opened",
        full_name=f"acme/{mark}",
        job=job,
    )
    task = AgentTask.objects.create(
        job=job, stage_run=job.stages.get(stage="llm"), type="review_chunk", ordinal=0, digest=mark,
        directories=[f"{files[-1].rpartition('/')[0]}/"], expires_at=timezone.now() + timedelta(hours=1),
        payload=[{"type": "review_chunk", "instructions": "x", "request": mark, "answer_schema": {}}],
        claimed_by=f"{mark} agent", detail=f"{mark} task",
    )  # fmt: skip
    seen = SecurityEvent.objects.create(
        kind="artifact_read", changelist_id=job.changelist_id, path=f"{mark}-artifact", reason=f"{mark} read"
    )
    return {
        "criticizer_securityevent": seen.pk,
        "reviews_reviewjob": job.pk,
        "reviews_attempt": attempt.pk,
        "reviews_agenttask": task.pk,
        "reviews_ledgerentry": call.pk,
        "reviews_artifact": factories.ArtifactFactory(job=job, name=f"{mark}-artifact").pk,
        "reviews_sourceevent": event.pk,
        "reviews_hostinstallation": installation.pk,
        "reviews_hostchange": pull.pk,
        "reviews_hostdelivery": delivery_of_host.pk,
        "notifications_delivery": delivery.pk,
        "deadletters_deadlettergroup": group.pk,
        "deadletters_deadletter": letter.pk,
        "deadletters_replaybatch": batch.pk,
        "deadletters_letteredit": edit.pk,
        "deadletters_letterarchive": archive.pk,
        "criticizer_outboxmessage": factories.OutboxMessageFactory(
            aggregate_id=run.pk, error_message=f"{mark} queue"
        ).pk,
    }
