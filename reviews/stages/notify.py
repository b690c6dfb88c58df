"""Stage notify: tell each recipient exactly once (specification 004)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

import structlog
from django.core.serializers.json import DjangoJSONEncoder

from criticizer.resilience.failures import Failure, classify
from notifications import config
from notifications.delivery import audit, prepare, send
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.preferences import policy
from notifications.preferences.policy import AppliedPreferences
from notifications.rendering import Report
from notifications.states import DeliveryStatus
from reviews import pipeline
from reviews.artifacts import store
from reviews.models import Artifact, JobEvent, ReviewJob
from reviews.pipeline import LostLease, StageClaim
from reviews.pipeline.executor import Written
from reviews.recipients import visibility
from reviews.replay import allowlist_recheck
from reviews.reports import messages_for, report_of

log = structlog.get_logger(__name__)


def run(claim: StageClaim) -> Written:
    """Freeze one message per recipient, then send what is not sent yet.

    Each recipient reads of the files they may read; who is muted, or has set a threshold that the
    review does not reach, has no message and is not required for the job's success. What is kept for
    a digest makes the stage wait until it is due, after everybody else was told.

    Raises LostLease as soon as the job is no longer ours to tell about, the failures of
    `sending.deliver`, and PermanentFailure PATH_DENIED, with a security event, while somebody is
    still to be told and the allow-list does not allow the change any more: findings quote it.
    """
    job = ReviewJob.objects.get(pk=claim.job_id)
    if job.recipients:
        if _is_to_tell(job):
            allowlist_recheck.refuse_outside(
                job.changelist_id, allowlist_recheck.paths_told(job.pk), "notify"
            )
        reports = visibility.reports_for(report_of(job), job.recipients, job.recipient_origins)
        wishes = _wishes(job, reports)
        declined = wishes.unwanted
        messages = messages_for(
            job, {recipient: report for recipient, report in reports.items() if recipient not in declined}
        )
        prepare.create_deliveries(
            job.pk,
            job.changelist_id,
            job.review_version,
            messages,
            digest_minutes={} if job.is_late else wishes.digest_minutes,
            not_after=lifecycle.latest(job.deadline_at),
        )
        providers = config.providers()
        # A row that says sent without evidence would end the job untold (004, 8.2 second row).
        audit.audit_sent(providers, job_id=job.pk)
        send.deliver(job.pk, providers, may_continue=partial(pipeline.still_ours, claim))
        if not pipeline.still_ours(claim):
            raise LostLease
        return _told(claim, declined)
    return None


def _is_to_tell(job: ReviewJob) -> bool:
    told = job.deliveries.filter(status=DeliveryStatus.SENT).values_list("recipient", flat=True)
    return not set(job.recipients) <= set(told)


def _wishes(job: ReviewJob, reports: Mapping[str, Report]) -> AppliedPreferences:
    """Return who does not want this message and why, and who wants it in a digest.

    A message that has its row is sent as it was promised.
    """
    promised = set(job.deliveries.filter(recipient__in=reports).values_list("recipient", flat=True))
    return policy.apply_preferences(
        {
            recipient: visibility.worst_severity(report)
            for recipient, report in reports.items()
            if recipient not in promised
        }
    )


def _told(claim: StageClaim, declined: Mapping[str, str]) -> Written:
    """Return what records who was told and who did not want to be."""
    kept = _mail_kept(claim)
    if not declined:
        return kept

    def write() -> None:
        if kept is not None:
            kept()
        counts = {why: list(declined.values()).count(why) for why in sorted(set(declined.values()))}
        JobEvent.objects.create(
            job_id=claim.job_id,
            kind=JobEvent.Kind.NOT_TOLD,
            actor="criticizer",
            reason="not notified, by their preferences: "
            + ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in counts.items()),
            context={"recipients": dict(declined)},
        )

    return write


def _mail_kept(claim: StageClaim) -> Written:
    """Keep the metadata of what was sent, encrypted (001, 9.4); return what inserts its row."""
    sent = (
        Delivery.objects.filter(job_id=claim.job_id)
        .order_by("id")
        .values(
            "recipient", "token", "subject", "payload_sha256", "status", "notification_id", "notified_at",
            # Of what was told in a digest, the message that was sent.
            "digest__token", "digest__subject", "digest__payload_sha256",
        )
    )  # fmt: skip
    kept = [{name: value for name, value in row.items() if value is not None} for row in sent]
    try:
        data = json.dumps(kept, cls=DjangoJSONEncoder, ensure_ascii=False, indent=1).encode()
        return store.store(claim, Artifact.Kind.MAIL, data).save
    except (Failure, OSError) as error:
        # Everybody has been told: a full disk must not end the job as a failure.
        error_class = str(classify(error).error_class)
        log.error("mail_metadata_not_kept", job=claim.job_id, error_class=error_class)
        return None
