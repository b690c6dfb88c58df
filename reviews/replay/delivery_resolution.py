"""Resume the review of a delivery that an operator decided about (settings.DELIVERY_JOBS)."""

from __future__ import annotations

from datetime import timedelta

import structlog
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from criticizer.queue.periodic import PeriodicTask
from criticizer.redaction import clean
from criticizer.resilience.failures import ErrorClass
from deadletters import workflow
from deadletters.models import DeadLetter, DeadLetterEvent
from deadletters.states import BEFORE_REPLAY, EventSource, LetterAction
from deadletters.types import Actor
from notifications.states import DeliveryStatus
from reviews.models import JobEvent, ReviewJob
from reviews.states import JobStatus, Stage

log = structlog.get_logger(__name__)

AUDIT_CLOCK = PeriodicTask("delivery_audit", "audit_deliveries", "notify")
_AT_ONCE = 100
_SOURCE = EventSource.DELIVERY_RESOLUTION
# The decision's own request may still be taking the steps: that takes seconds.
_GRACE = timedelta(minutes=5)
_RECHECK_AFTER = timedelta(hours=1)  # when checks failed
_NO_STEPS = (
    LetterAction.VALIDATED, LetterAction.NOT_VALIDATED, LetterAction.STALE, LetterAction.REFUSED,
)  # fmt: skip

_NOTHING_MORE = {
    JobStatus.SUPERSEDED: "a newer version of this review was requested: nothing more is sent for this one",
    JobStatus.CANCELLED: "the review was cancelled: nothing more is sent for it",
    JobStatus.TIMED_OUT: "the review missed its deadline: accept its late result first",
}


class DeliveryJobs:
    """Implements `notifications.ports`: what deliveries need of their jobs."""

    def why_no_resend(self, job_id: int) -> str:
        """Return why nothing more may be sent for a job, one sentence, or an empty string."""
        job = ReviewJob.objects.get(pk=job_id)
        if reason := _NOTHING_MORE.get(JobStatus(job.status)):
            return reason
        newer = job.versions().filter(review_version__gt=job.review_version)
        return _NOTHING_MORE[JobStatus.SUPERSEDED] if newer.exists() else ""

    def note(self, job_id: int, *, actor: str, words: str) -> None:
        """Record a decision in the job's append-only history."""
        JobEvent.objects.create(
            job_id=job_id, kind=JobEvent.Kind.DELIVERY_DECIDED, actor=actor[:255], reason=clean(words, 1000)
        )

    def resume_job(self, job_id: int, *, actor: str, reason: str) -> str:
        """Resume a job whose deliveries are decided; return a sentence about it."""
        return resume_job(job_id, actor=actor, reason=reason)

    def resume_soon(self) -> None:
        """Run the next audit now: it resumes every decided job."""
        AUDIT_CLOCK.run_now()


def resume_decided_jobs() -> int:
    """Resume every job whose deliveries are decided; return how many there were.

    Only where no operator has touched its dead letter since. Run by the audit: a web process may die between
    the steps, and a check that failed because a circuit was open may pass later.
    """
    events = JobEvent.objects.filter(kind=JobEvent.Kind.DELIVERY_DECIDED)
    letters = list(_stranded().order_by("id")[:_AT_ONCE])
    for letter in letters:
        last = events.filter(job=letter.job_id).latest("id")
        resume_job(letter.job_id, actor=last.actor, reason=last.reason)
    return len(letters)


def _stranded() -> QuerySet[DeadLetter]:
    """Return the dead letters whose deliveries were decided since the failure.

    Only those that no operator touched. Failed checks that cannot be overruled, such as a newer version, are
    left to an operator.
    """
    now = timezone.now()
    decisions = JobEvent.objects.filter(job=OuterRef("job"), kind=JobEvent.Kind.DELIVERY_DECIDED)
    touched = DeadLetterEvent.objects.filter(letter=OuterRef("pk"), created_at__gt=OuterRef("decided_at"))
    return (
        DeadLetter.objects.filter(
            stage=Stage.NOTIFY, error_class=ErrorClass.DELIVERY_UNCERTAIN, status__in=BEFORE_REPLAY
        )
        .exclude(job__deliveries__status=DeliveryStatus.UNCERTAIN)
        .annotate(decided_at=Subquery(decisions.order_by("-id").values("created_at")[:1]))
        .filter(decided_at__gt=F("last_failure_at"))
        .exclude(Exists(touched.exclude(Q(action__in=_NO_STEPS) | Q(source=_SOURCE))))
        .exclude(triaged_at__gt=now - _GRACE)
        .exclude(validation_ok=False, validated_at__gt=now - _RECHECK_AFTER)
        .exclude(validation__contains=[{"ok": False, "is_hard": True}])
    )


def resume_job(job_id: int, *, actor: str, reason: str) -> str:
    """Take the dead letter of uncertain deliveries through its steps.

    The decision about them is its remediation. A dead letter of another failure waits for an operator. Runs
    health checks, which may take seconds: call it in no transaction.
    """
    letter = (
        DeadLetter.objects.filter(job_id=job_id, stage=Stage.NOTIFY, status__in=BEFORE_REPLAY)
        .order_by("-id")
        .first()
    )
    if letter is None:
        # The job has succeeded: the audit sends what is due again.
        AUDIT_CLOCK.run_now()
        return ""
    if letter.error_class != ErrorClass.DELIVERY_UNCERTAIN:
        return f"Its review waits for dead letter {letter.pk} ({letter.error_class})."
    problem = _walk(letter, Actor(actor, _SOURCE), f"deliveries decided: {reason}")
    log.info("deliveries_decided", job=job_id, letter=letter.pk, actor=actor, problem=problem)
    return f"Its review stays where it is: {problem}" if problem else "Its review goes on."


def _walk(letter: DeadLetter, actor: Actor, words: str) -> str:
    """Triage, remediate, validate and replay; return why that failed, or an empty string.

    A dead letter that was remediated here continues from there.
    """
    if not _is_remediated_here(letter):
        category = workflow.suggested_category(ErrorClass.DELIVERY_UNCERTAIN)
        done = workflow.triage(letter.pk, actor=actor, category=category, note=words)
        if not done.ok:
            return done.message
        done = workflow.remediate(letter.pk, actor=actor, evidence_note=words)
        if not done.ok:
            return done.message
    validation = workflow.validate(letter.pk, actor=actor)
    if not validation.ok:
        return "; ".join(check.message for check in validation.checks if not check.ok)
    replayed = workflow.replay(letter.pk, actor=actor, reason=words)
    return "" if replayed.ok else replayed.message


def _is_remediated_here(letter: DeadLetter) -> bool:
    if letter.remediated_at is None:
        return False
    remedies = letter.events.filter(action=LetterAction.REMEDIATED)
    return remedies.order_by("-id").values_list("source", flat=True).first() == _SOURCE
