"""What an answer says in words when a request changed nothing: why, and what to post instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reviews.intake.review_requests import IntakeOutcome, IntakeResult, ReviewRequest

_NAMED = 10  # recipients that a sentence names


def with_advice(
    job: Mapping[str, Any], wanted: ReviewRequest, result: IntakeResult, *, names_recipients: bool
) -> dict[str, Any]:
    """Return the original job as a repeated request is answered with it.

    Defaults that fill in for recipients nobody named are not missed by anybody.
    """
    answer: dict[str, Any] = {**job, "duplicate": True}
    not_added = result.not_added if result.is_same_version and names_recipients else ()
    if result.payload_mismatch or not_added:
        answer["payload_mismatch"] = True
    if said := _sentence(wanted, result, not_added):
        answer["message"] = " ".join(filter(None, (said, job.get("message"))))
    if not_added:
        answer["recipients_not_added"] = list(not_added)
    return answer


def _sentence(wanted: ReviewRequest, result: IntakeResult, not_added: Sequence[str]) -> str:
    """Return why a repeated request did nothing, or "" when it asked for what is there."""
    if not result.is_same_version:
        return (
            "This idempotency_key was used before, for another changelist or version: its job is in this"
            " answer, and nothing was started. Post this request with a key of its own."
        )
    sentences = []
    repeats = result.outcome is IntakeOutcome.DUPLICATE_KEY and not result.payload_mismatch
    if wanted.rerun and not repeats:
        sentences.append(f"Version {wanted.review_version} exists already, so nothing was started.")
    elif result.payload_mismatch or not_added:
        sentences.append(
            f"Version {wanted.review_version} exists already and stays as it was first requested."
        )
    if not_added:
        sentences.append(f"Not told, because it does not name them: {_some(not_added)}.")
    if not sentences:
        return ""
    next_version = (result.newest_version or wanted.review_version) + 1
    aim = "To review it again" if wanted.rerun else "To have it reviewed and told anew"
    sentences.append(f"{aim}, post review_version {next_version} with rerun true and a new idempotency_key.")
    return " ".join(sentences)


def _some(recipients: Sequence[str]) -> str:
    left_out = len(recipients) - _NAMED
    shown = ", ".join(recipients[:_NAMED])
    return f"{shown} and {left_out} more" if left_out > 0 else shown
