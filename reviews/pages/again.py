"""Reviewing a changelist again because a person asks: what the button does (specification 004, 6.2).

The next version is requested through intake, as the API does it. The key is made of the changelist
and the version, so that a form sent twice, or by two people at once, makes one review.
"""

from __future__ import annotations

from dataclasses import dataclass

from reviews import config, intake
from reviews.intake import IntakeOutcome, ReviewRequest
from reviews.models import RecipientsAre, ReviewJob

LAST_VERSION = 2_147_483_647


@dataclass(frozen=True, slots=True)
class Again:
    """What came of the wish. `job_id`: the review of the next version, None when there is none."""

    job_id: int | None
    is_new: bool
    said: str


def key_of(changelist_id: str, version: int) -> str:
    """Return the idempotency key of a version that a person requests."""
    return f"page:{changelist_id}:v{version}"


def newer_than(job: ReviewJob) -> ReviewJob | None:
    """Return the newest version of the job's changelist, None when the job is it."""
    newer = ReviewJob.objects.filter(
        changelist_id=job.changelist_id, review_version__gt=job.review_version
    ).order_by("-review_version")
    return newer.only("id", "review_version").first()


def why_not(job: ReviewJob) -> str:
    """Return why the job's changelist cannot be reviewed again from this version, or ""."""
    if newest := newer_than(job):
        version = newest.review_version
        return f"A newer version of this changelist exists: version {version}. Review that one again."
    if job.review_version >= LAST_VERSION:
        return "This version has the highest number there is, so none can follow it."
    return ""


def finds_recipients(job: ReviewJob) -> bool:
    """Say whether the next version finds its recipients, because this one's were not given with a request.

    Copied, they would count as given, which shows unknown readers more (`reviews.audience`), and people
    who unsubscribed since would be told.
    """
    return job.recipients_are != RecipientsAre.GIVEN


def recipients_of(job: ReviewJob) -> tuple[str, ...]:
    """Return who the next version is requested for; for found ones the recipients that fill in."""
    return config.default_recipients() if finds_recipients(job) else tuple(job.recipients)


def request(job: ReviewJob, actor: str) -> Again:
    """Request the next version of the job's changelist; an older one still at work is superseded."""
    version = job.review_version + 1
    if version > LAST_VERSION:
        return Again(None, False, why_not(job))
    wanted = ReviewRequest(
        key_of(job.changelist_id, version),
        job.changelist_id,
        review_version=version,
        recipients=recipients_of(job),
        rerun=True,
        requested_by=actor,
        finds_recipients=finds_recipients(job),
    )
    found = intake.request_review(wanted)
    if found.outcome is IntakeOutcome.CREATED:
        return Again(found.job_id, True, f"Version {version} was requested.")
    if found.outcome is IntakeOutcome.VERSION_CONFLICT:
        return Again(None, False, f"Nothing was requested: version {found.newest_version} exists by now.")
    if not found.is_same_version:  # somebody posted another changelist under this key
        return Again(
            None,
            False,
            "Nothing was requested: the idempotency key of this request is taken by another review."
            f" Post version {version} through the API with a key of its own.",
        )
    return Again(found.job_id, False, f"Version {version} was requested already: this is it.")
