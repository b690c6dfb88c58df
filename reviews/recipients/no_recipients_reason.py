"""Why a review tells nobody, in one sentence: for the page and the API."""

from __future__ import annotations

from collections.abc import Collection

from reviews.models import RecipientMode
from reviews.states import ACTIVE_JOB, JobStatus

AS_THEY_WISH = "Nobody was told, as its recipients wish"
_WHY = {
    RecipientMode.GIVEN: "The request named none, and DEFAULT_RECIPIENTS is empty.",
    RecipientMode.FOUND: "No subscription covers its files, and DEFAULT_RECIPIENTS is empty.",
}


def nobody(status: str, recipients: Collection[str], recipients_are: str, deliveries: int) -> str:
    """Return why nobody is told of a job, or "" when somebody is, or when that is not known yet."""
    if deliveries:
        return ""
    is_active = status in ACTIVE_JOB
    if not recipients and recipients_are in _WHY:
        said = "will be told" if is_active else "was told"
        return f"Nobody {said}: no recipients. {_WHY[RecipientMode(recipients_are)]}"
    if status == JobStatus.SUCCEEDED:
        return f"{AS_THEY_WISH}: they are muted, or asked for worse findings only."
    return ""
