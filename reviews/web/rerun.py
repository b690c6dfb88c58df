"""Request the next version of a review from its page, through the same intake as the API.

The idempotency key is derived from changelist, version and SECRET_KEY: a form sent twice, or by two
people at once, creates one review, and an API client cannot claim the key beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from reviews import config
from reviews.intake import kept_requests, review_requests
from reviews.intake.review_requests import IntakeOutcome, ReviewRequest
from reviews.models import RecipientMode, ReviewJob
from reviews.models.jobs import SCAN


@dataclass(frozen=True, slots=True)
class RerunResult:
    """Result of a rerun request.

    `job_id` is the review of the next version, None if there is none.
    """

    job_id: int | None
    is_new: bool
    message: str


def key_of(changelist_id: str, version: int) -> str:
    """Return the idempotency key of a version that a person requests."""
    return review_requests.signed(f"page:{changelist_id}:v{version}")


def newer_than(job: ReviewJob) -> ReviewJob | None:
    """Return the newest version of the job's changelist, None when the job is it."""
    newer = job.versions().filter(review_version__gt=job.review_version).order_by("-review_version")
    return newer.only("id", "review_version").first()


def why_not(job: ReviewJob, seen: QuerySet[ReviewJob]) -> str:
    """Return why this version cannot be followed by another, or "".

    `seen` are the jobs the user may see; the message names no other.
    """
    if job.kind == SCAN:
        return "This is a scan of documentation: request another one on the page of its path."
    if newest := newer_than(job):
        if not seen.filter(pk=newest.pk).exists():
            return "A newer version of this changelist exists, which you cannot see."
        version = newest.review_version
        return f"A newer version of this changelist exists: version {version}. Review that one again."
    if job.review_version >= review_requests.LAST_VERSION:
        return "This version has the highest possible number."
    return ""


def finds_recipients(job: ReviewJob) -> bool:
    """Return whether the next version resolves its own recipients, as this one did.

    Copied recipients would count as given in the request, which shows unknown readers more
    (`reviews.recipients`), and would notify people who have unsubscribed since.
    """
    return job.recipients_are != RecipientMode.GIVEN


def recipients_of(job: ReviewJob) -> tuple[str, ...]:
    """Return the recipients of the next request; defaults where recipients are resolved later."""
    return config.default_recipients() if finds_recipients(job) else tuple(job.recipients)


def request(job: ReviewJob, actor: str, seen: QuerySet[ReviewJob]) -> RerunResult:
    """Request the next version of the job's changelist; a running older version is superseded.

    `seen` are the jobs the actor may see; the message names no version of any other.
    """
    version = job.review_version + 1
    if version > review_requests.LAST_VERSION or job.kind == SCAN:
        return RerunResult(None, False, why_not(job, seen))
    wanted = ReviewRequest(
        key_of(job.changelist_id, version),
        job.changelist_id,
        review_version=version,
        recipients=recipients_of(job),
        rerun=True,
        from_scratch=True,
        requested_by=actor,
        finds_recipients=finds_recipients(job),
        series=job.series,
        scope_prefixes=tuple(job.scope_prefixes),
    )
    found = review_requests.request_review(wanted)
    kept_requests.keep_review(wanted, found)
    if found.outcome is IntakeOutcome.CREATED:
        return RerunResult(found.job_id, True, f"Version {version} was requested.")
    if found.outcome is IntakeOutcome.VERSION_CONFLICT:
        newest = newer_than(job)
        is_seen = newest is not None and seen.filter(pk=newest.pk).exists()
        what = f"version {found.newest_version}" if is_seen else "a newer version"
        return RerunResult(None, False, f"Nothing was requested: {what} already exists.")
    if not found.is_same_version:  # another changelist uses this key
        return RerunResult(
            None,
            False,
            "Nothing was requested: the idempotency key of this request is already used by another review."
            f" Post version {version} through the API with a key of its own.",
        )
    return RerunResult(found.job_id, False, f"Version {version} was already requested; it is shown here.")
