"""An event of a Perforce trigger becomes a review request (specification 004, 10.1).

Events come in any order and more than once. The idempotency key is derived from the event,
so a repeated event finds its job; a new event of a known changelist is a versioned rerun.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from reviews import intake
from reviews.intake import IntakeOutcome, ReviewRequest
from reviews.models import ReviewJob

log = structlog.get_logger(__name__)

# A shelf may be shelved again and again under one number: each minute is an event of its own.
_BUCKET_SECONDS = 60
# A trigger's second try must not become a second job because the minute ended in between.
_GRACE = timedelta(seconds=10)
_TRIES = 5


def request_from_event(
    event: str, change: int, server: str, *, recipients: tuple[str, ...], requested_by: str, now: datetime
) -> tuple[int | None, bool]:
    """Return (job id, whether the event was seen before).

    The job id is None when events of the same changelist kept overtaking this one; whatever
    they requested reads the same shelf or changelist.
    """
    key = _idempotency_key(event, change, server, now)
    if event == "shelve-commit" and (seen := _just_before(event, change, server, now)) is not None:
        return seen, True
    request = ReviewRequest(key, str(change), recipients=recipients, requested_by=requested_by)
    for _ in range(_TRIES):
        newest = _newest_version(request.changelist_id)
        request = replace(request, review_version=newest + 1, rerun=newest > 0)
        result = intake.request_review(request)
        if result.outcome is IntakeOutcome.CREATED:
            return result.job_id, False
        if result.outcome is IntakeOutcome.DUPLICATE_KEY:
            return result.job_id, True
        # Another event took this version between the look and the insert: look again.
    log.warning("trigger_overtaken", changelist=request.changelist_id)
    return None, True


def _idempotency_key(event: str, change: int, server: str, now: datetime) -> str:
    key = f"perforce:{server}:{event}:{change}"
    return f"{key}:{int(now.timestamp()) // _BUCKET_SECONDS}" if event == "shelve-commit" else key


def _just_before(event: str, change: int, server: str, now: datetime) -> int | None:
    """Return the job of the same event in the minute before, when it is only seconds old."""
    earlier = _idempotency_key(event, change, server, now - timedelta(seconds=_BUCKET_SECONDS))
    found = ReviewJob.objects.filter(idempotency_key=earlier, created_at__gt=now - _GRACE)
    return found.values_list("pk", flat=True).first()


def _newest_version(changelist_id: str) -> int:
    versions = ReviewJob.objects.filter(changelist_id=changelist_id).order_by("-review_version")
    return versions.values_list("review_version", flat=True).first() or 0
