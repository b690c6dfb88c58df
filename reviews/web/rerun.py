"""Reviewing a changelist again because a person asks: what the button does (specification 004, 6.2).

The next version is requested through intake, as the API does it. The key is made of the changelist
and the version, so that a form sent twice, or by two people at once, makes one review, and of this
installation's secret, so that nobody takes it through the API first.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils.crypto import salted_hmac

from reviews import config
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, ReviewRequest
from reviews.models import RecipientMode, ReviewJob

LAST_VERSION = 2_147_483_647


@dataclass(frozen=True, slots=True)
class RerunResult:
    """What came of the wish. `job_id`: the review of the next version, None when there is none."""

    job_id: int | None
    is_new: bool
    said: str


def key_of(changelist_id: str, version: int) -> str:
    """Return the idempotency key of a version that a person requests."""
    name = f"page:{changelist_id}:v{version}"
    return f"{name}:{salted_hmac('reviews.web.rerun', name, algorithm='sha256').hexdigest()[:16]}"


def newer_than(job: ReviewJob) -> ReviewJob | None:
    """Return the newest version of the job's changelist, None when the job is it."""
    newer = ReviewJob.objects.filter(
        changelist_id=job.changelist_id, review_version__gt=job.review_version
    ).order_by("-review_version")
    return newer.only("id", "review_version").first()


def why_not(job: ReviewJob, seen: QuerySet[ReviewJob]) -> str:
    """Return why the job's changelist cannot be reviewed again from this version, or "".

    `seen`: the jobs that whoever asks may see; others are not named.
    """
    if newest := newer_than(job):
        if not seen.filter(pk=newest.pk).exists():
            return "A newer version of this changelist exists, which you do not see."
        version = newest.review_version
        return f"A newer version of this changelist exists: version {version}. Review that one again."
    if job.review_version >= LAST_VERSION:
        return "This version has the highest number there is, so none can follow it."
    return ""


def finds_recipients(job: ReviewJob) -> bool:
    """Say whether the next version finds its recipients, because this one's were not given with a request.

    Copied, they would count as given, which shows unknown readers more (`reviews.recipients`), and people
    who unsubscribed since would be told.
    """
    return job.recipients_are != RecipientMode.GIVEN


def recipients_of(job: ReviewJob) -> tuple[str, ...]:
    """Return who the next version is requested for; for found ones the recipients that fill in."""
    return config.default_recipients() if finds_recipients(job) else tuple(job.recipients)


def request(job: ReviewJob, actor: str, seen: QuerySet[ReviewJob]) -> RerunResult:
    """Request the next version of the job's changelist; an older one still at work is superseded.

    `seen`: the jobs that the actor may see; of others no version is named.
    """
    version = job.review_version + 1
    if version > LAST_VERSION:
        return RerunResult(None, False, why_not(job, seen))
    wanted = ReviewRequest(
        key_of(job.changelist_id, version),
        job.changelist_id,
        review_version=version,
        recipients=recipients_of(job),
        rerun=True,
        requested_by=actor,
        finds_recipients=finds_recipients(job),
    )
    found = review_requests.request_review(wanted)
    if found.outcome is IntakeOutcome.CREATED:
        return RerunResult(found.job_id, True, f"Version {version} was requested.")
    if found.outcome is IntakeOutcome.VERSION_CONFLICT:
        newest = newer_than(job)
        is_seen = newest is not None and seen.filter(pk=newest.pk).exists()
        what = f"version {found.newest_version}" if is_seen else "a newer version"
        return RerunResult(None, False, f"Nothing was requested: {what} exists by now.")
    if not found.is_same_version:  # somebody posted another changelist under this key
        return RerunResult(
            None,
            False,
            "Nothing was requested: the idempotency key of this request is taken by another review."
            f" Post version {version} through the API with a key of its own.",
        )
    return RerunResult(found.job_id, False, f"Version {version} was requested already: this is it.")
