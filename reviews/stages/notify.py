"""Stage notify: notify each recipient exactly once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

import structlog
from django.core.serializers.json import DjangoJSONEncoder

from criticizer.resilience.classification import classify
from criticizer.resilience.failures import DependencyUnavailable, Failure
from notifications import config
from notifications.delivery import audit, prepare, send
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.preferences import policy
from notifications.preferences.policy import AppliedPreferences
from notifications.recipients import is_required
from notifications.rendering import Report
from notifications.states import UNSENT_DELIVERY, DeliveryStatus
from reviews import diff_places, pipeline
from reviews.artifacts import store
from reviews.models import Artifact, JobEvent, ReviewJob
from reviews.pipeline import LostLease, StageClaim
from reviews.pipeline.executor import Written
from reviews.recipients import recipient_reports
from reviews.recipients.viewing_scopes import scope_of_job
from reviews.replay import allowlist_recheck
from reviews.reports import messages_for, report_of

log = structlog.get_logger(__name__)


def run(claim: StageClaim) -> Written:
    """Freeze one message per recipient, then send those not sent yet.

    A message has only the files that its recipient may read. Recipients who are muted, or whose threshold
    the review does not reach, get none and are not required for the job's success. A message for a digest
    makes the stage wait until the digest is due, once all other messages are sent. A stage that has sent for
    `send.SENDING_SECONDS` gives its attempt back; the rest comes after other due work.

    Raises LostLease as soon as the lease is lost, the failures of `send.deliver`, and PermanentFailure
    PATH_DENIED, with a security event, when a recipient is still to be notified and the allow-list no
    longer allows the change: findings quote it.
    """
    job = ReviewJob.objects.get(pk=claim.job_id)
    if job.recipients:
        known = dict(job.deliveries.values_list("recipient", "status"))
        is_settled = all(known.get(recipient) == DeliveryStatus.SENT for recipient in job.recipients)
        reports = _reports(job, job.recipients, is_settled=is_settled)
        wishes = _wishes(known, reports)
        declined = wishes.unwanted
        messages = messages_for(
            job, {recipient: report for recipient, report in reports.items() if recipient not in declined}
        )
        is_first = prepare.create_deliveries(
            job.pk,
            job.changelist_id,
            job.review_version,
            messages,
            series=job.series,
            digest_minutes={} if job.is_late else wishes.digest_minutes,
            not_after=lifecycle.latest(job.deadline_at),
        )
        if known:
            _renew_digests(claim)
        providers = config.providers()
        if known or not is_first:
            # A row marked as sent without evidence would end the job without a notification (guarantee G53).
            audit.audit_sent(providers, job_id=job.pk)
        tried = pipeline.progress_of(claim)
        if tried:
            pipeline.keep_progress(claim, {})  # an attempt that fails tries all of them again
        outcome = send.deliver(
            job.pk, providers, may_continue=partial(pipeline.still_ours, claim), tried=tried
        )
        if not pipeline.still_ours(claim):
            raise LostLease
        if outcome.is_out_of_time:
            pipeline.keep_progress(claim, outcome.tried)
            raise DependencyUnavailable("", 0.0, "its time for sending is used up: others come first")
        return _recorded(claim, declined, frozenset(filter(is_required, messages)))
    return None


def _reports(job: ReviewJob, recipients: Sequence[str], *, is_settled: bool = False) -> dict[str, Report]:
    """Return the report that each recipient may read now.

    `is_settled`: all of them were notified. If not, raises as `refuse_outside` does.
    """
    report = report_of(job)
    if not is_settled:
        paths = allowlist_recheck.paths_shown(job.pk, [file.file for file in report.coverage])
        allowlist_recheck.refuse_outside(job.changelist_id, paths, "notify")
    reports = recipient_reports.reports_for(report, recipients, job.recipient_origins, scope_of_job(job))
    return diff_places.with_places(job, reports)


def _renew_digests(claim: StageClaim) -> None:
    """Renew the messages of other reviews in the due digests of this job (guarantee G576).

    Each message was frozen when its review ended. Since then its recipient may have lost a viewing scope, and
    the allow-list may have been edited. A review leaves the digest when nothing may be shown of it, or when
    its message cannot be made; its own stage says why. Raises LostLease.
    """
    for other, recipients in lifecycle.others_due(claim.job_id).items():
        if not pipeline.still_ours(claim):
            raise LostLease
        try:
            job = ReviewJob.objects.get(pk=other)
            messages = messages_for(job, _reports(job, recipients))
            prepare.create_deliveries(
                other, job.changelist_id, job.review_version, messages, series=job.series
            )
        except Exception as error:  # noqa: BLE001  a defect in one review fails no other one
            log.warning("digest_review_left", job=claim.job_id, other=other, **classify(error).facts)
            lifecycle.leave_due(other, recipients)


def _wishes(known: Mapping[str, str], reports: Mapping[str, Report]) -> AppliedPreferences:
    """Return the recipients who decline this message, with why, and those who want a digest.

    A message that already has a delivery row (`known`) is sent as it was prepared.
    """
    return policy.apply_preferences(
        {
            recipient: recipient_reports.worst_severity(report)
            for recipient, report in reports.items()
            if recipient not in known
        }
    )


def _recorded(claim: StageClaim, declined: Mapping[str, str], required: frozenset[str]) -> Written:
    """Return the function that records who was notified and who declined.

    Both functions raise DependencyUnavailable when a recipient in `required` has no row, or one that was
    never sent. A standby that was promoted meanwhile may lack rows that the stage wrote (guarantee G491), and
    the record may have waited for that standby.
    """
    save_mail = _stored_mail(claim, required)

    def write() -> None:
        _require_settled(claim.job_id, required)
        if save_mail is not None:
            save_mail()
        if not declined:
            return
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


def _require_settled(job_id: int, required: frozenset[str]) -> None:
    rows = Delivery.objects.filter(job_id=job_id).exclude(status__in=UNSENT_DELIVERY)
    if required - set(rows.values_list("recipient", flat=True)):
        raise send.lost_rows()


def _stored_mail(claim: StageClaim, required: frozenset[str]) -> Written:
    """Store the metadata of sent messages, encrypted; return the function that inserts its row."""
    sent = (
        Delivery.objects.filter(job_id=claim.job_id)
        .order_by("id")
        .values(
            "recipient", "token", "subject", "payload_sha256", "status", "notification_id", "notified_at",
            # For a message in a digest, the digest.
            "digest__token", "digest__subject", "digest__payload_sha256",
        )
    )  # fmt: skip
    settled = {row["recipient"] for row in sent if row["status"] not in UNSENT_DELIVERY}
    if required - settled:
        raise send.lost_rows()
    metadata = [{name: value for name, value in row.items() if value is not None} for row in sent]
    try:
        data = json.dumps(metadata, cls=DjangoJSONEncoder, ensure_ascii=False, indent=1).encode()
        return store.store(claim, Artifact.Kind.MAIL, data).save
    except (Failure, OSError) as error:
        # All recipients have been notified: a full disk must not fail the job.
        log.error("mail_metadata_not_kept", job=claim.job_id, **classify(error).facts)
        return None
