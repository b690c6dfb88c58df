"""Verification of a replay by its effects: change, review, deliveries (guarantee G63)."""

from __future__ import annotations

from django.db.models import Count, Exists, OuterRef, Q
from django.db.models.functions import Coalesce

from criticizer.resilience.failures import Failure
from criticizer.wording import plural_count
from deadletters.types import Check, CheckKind, Failed
from notifications.models import DeliveryAttempt
from notifications.states import EVIDENCE, UNSENT_DELIVERY, DeliveryStatus
from reviews.artifacts import redactor, store
from reviews.models import JobEvent, ReviewJob
from reviews.recipients import resolve
from reviews.states import ACTIVE_JOB, JobStatus, Stage, StageStatus


def verify(failed: Failed) -> list[Check]:
    """Return whether the effects of the stage exist, and of the whole job if it succeeded."""
    job = ReviewJob.objects.filter(pk=failed.job_id).first()
    if job is None:
        return [Check(CheckKind.JOB, False, "the job no longer exists")]
    stages = list(Stage)
    if job.status == JobStatus.SUCCEEDED:
        first = Check(CheckKind.JOB, True, "the job succeeded")
    else:
        first = _stage(job, failed.stage)
        stages = stages[: stages.index(Stage(failed.stage)) + 1]
    return [first, *(_EFFECT_OF[stage](job) for stage in stages)]


def _stage(job: ReviewJob, stage: str) -> Check:
    status = job.stages.filter(stage=stage).values_list("status", flat=True).first()
    passed = status == StageStatus.SUCCEEDED
    words = f"stage {stage} succeeded" if passed else f"stage {stage} is {status or 'missing'}"
    return Check(CheckKind.STAGE, passed, words, is_waiting=job.status in ACTIVE_JOB)


def _change(job: ReviewJob) -> Check:
    is_stored = job.artifacts.filter(kind__in=store.FETCHED).exists()
    words = "the fetched change was stored" if is_stored else "no fetched change was stored"
    return Check(CheckKind.CHANGE, is_stored, words)


def _review(job: ReviewJob) -> Check:
    findings, files = job.findings.count(), job.coverage.count()
    if not files and _file_count(job.pk) == 0:
        return Check(CheckKind.FINDINGS, True, "the review is stored; the change has no files")
    if not findings + files:
        return Check(CheckKind.FINDINGS, False, "neither findings nor coverage are stored")
    words = (
        f"{plural_count(findings, 'finding')} and the coverage of {plural_count(files, 'file')} are stored"
    )
    return Check(CheckKind.FINDINGS, True, words)


def _file_count(job_id: int) -> int | None:
    """Return how many files the fetched change has, or None if it can no longer be read."""
    try:
        return len(redactor.paths(job_id))
    except Failure:
        return None


def _deliveries(job: ReviewJob) -> Check:
    deliveries = job.deliveries.exclude(status=DeliveryStatus.SUPERSEDED)
    if job.recipients and not deliveries.exists():
        # Recipients who want no message have no delivery; events of the job name them.
        events = JobEvent.objects.filter(job=job, kind=JobEvent.Kind.NOT_TOLD)
        unwilling = {
            one for context in events.values_list("context", flat=True) for one in context["recipients"]
        }
        if unwilling.issuperset(job.recipients):
            return Check(CheckKind.DELIVERIES, True, resolve.DECLINED)
        return Check(CheckKind.DELIVERIES, False, "the review has recipients, and none was notified")
    # The evidence of a delivery in a digest belongs to the delivery that carries it.
    evidence = DeliveryAttempt.objects.filter(delivery=OuterRef("carrier"), outcome__in=EVIDENCE)
    is_sent = Q(status=DeliveryStatus.SENT, notified_at__isnull=False) & ~Q(notification_id="")
    # One statement: counts of different moments would not add up while messages are being sent.
    found = deliveries.annotate(
        carrier=Coalesce("digest__carrier", "pk"), has_evidence=Exists(evidence)
    ).aggregate(
        count=Count("pk"),
        abandoned=Count("pk", filter=Q(status=DeliveryStatus.ABANDONED)),
        unsettled=Count("pk", filter=Q(status__in=UNSENT_DELIVERY)),
        proven=Count("pk", filter=is_sent & Q(has_evidence=True)),
    )
    abandoned, unsettled, proven = found["abandoned"], found["unsettled"], found["proven"]
    wanted = found["count"] - abandoned
    words = f"{proven} of {plural_count(wanted, 'delivery')} with their provider's evidence"
    words += f", {abandoned} abandoned" if abandoned else ""
    words += f", {unsettled} not settled yet" if unsettled else ""
    is_waiting = wanted - proven == unsettled > 0
    return Check(CheckKind.DELIVERIES, proven == wanted, words, is_waiting=is_waiting)


_EFFECT_OF = {Stage.FETCH: _change, Stage.LLM: _review, Stage.NOTIFY: _deliveries}
