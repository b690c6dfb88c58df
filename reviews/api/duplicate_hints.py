"""Explain in an answer why a request changed nothing, and what to post instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reviews.api.serializers import MAX_VERSION
from reviews.intake.review_requests import IntakeOutcome, IntakeResult, ReviewRequest

_NAMED = 10  # recipients that a sentence names


def with_hints(
    job: Mapping[str, Any], wanted: ReviewRequest, result: IntakeResult, *, names_recipients: bool
) -> dict[str, Any]:
    """Return the original job as the answer to a repeated request.

    Recipients from DEFAULT_RECIPIENTS are not reported as missing: the request did not name them.
    """
    answer: dict[str, Any] = {**job, "duplicate": True}
    not_added = result.not_added if result.is_same_version and names_recipients else ()
    if result.payload_mismatch or not_added:
        answer["payload_mismatch"] = True
    if hint := _hint(wanted, result, not_added):
        answer["message"] = " ".join(filter(None, (hint, job.get("message"))))
    if not_added:
        answer["recipients_not_added"] = list(not_added)
    return answer


def _hint(wanted: ReviewRequest, result: IntakeResult, not_added: Sequence[str]) -> str:
    """Return why a repeated request did nothing, or "" when it asked for nothing more."""
    if not result.is_same_version:
        return (
            "This idempotency_key was used before, for another changelist or version. The answer shows that"
            " job; nothing was started. Post this request with a new idempotency_key."
        )
    sentences = []
    repeats = result.outcome is IntakeOutcome.DUPLICATE_KEY and not result.payload_mismatch
    if wanted.rerun and not repeats:
        sentences.append(f"Version {wanted.review_version} exists already, so nothing was started.")
    elif result.payload_mismatch or not_added:
        sentences.append(f"Version {wanted.review_version} exists already and was not changed.")
    if not_added:
        more = f" and {len(not_added) - _NAMED} more" if len(not_added) > _NAMED else ""
        sentences.append(f"It does not notify these recipients: {', '.join(not_added[:_NAMED])}{more}.")
    if not sentences:
        return ""
    next_version = (result.newest_version or wanted.review_version) + 1
    way = f"post review_version {next_version} with rerun true and a new idempotency_key"
    if next_version > MAX_VERSION:
        way = f"choose Review again on its page: a request names {MAX_VERSION} at most"
    sentences.append(f"To review it again, {way}.")
    return " ".join(sentences)
