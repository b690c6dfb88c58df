"""The fields of the API's answers: `representations` reads rows by them, OpenAPI describes them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from deadletters.states import LetterAction, LetterStatus
from notifications.states import DeliveryStatus
from reviews.api.serializers import ANY_CHANNEL
from reviews.reviewers.base import CoverageStatus, FindingSeverity, Side
from reviews.states import JobStatus, Stage, StageStatus


class StageSerializer(serializers.Serializer[Any]):
    """One of the three stages of a review."""

    stage = serializers.ChoiceField(choices=Stage.choices, help_text="In the order fetch, llm, notify.")
    status = serializers.ChoiceField(choices=StageStatus.choices, help_text="Where this stage is.")
    attempts = serializers.IntegerField(help_text="Attempts begun. Waiting for what is away uses none.")
    max_attempts = serializers.IntegerField(help_text="The stage's budget.")
    next_attempt_at = serializers.DateTimeField(
        allow_null=True, help_text="When it is tried or looked at again; null when it is due or done."
    )
    error_class = serializers.CharField(
        allow_blank=True,
        help_text="What the last failed attempt met (docs/failures.md); empty if none failed.",
    )


class DeliverySerializer(serializers.Serializer[Any]):
    """What became of telling one recipient."""

    recipient = serializers.CharField(help_text=f"{ANY_CHANNEL}.")
    status = serializers.ChoiceField(
        choices=DeliveryStatus.choices,
        help_text="`uncertain`: it may have arrived, and an operator decides; it is never sent twice.",
    )
    notification_id = serializers.CharField(
        allow_blank=True, help_text="The provider's id of the message; empty until it was taken."
    )
    notified_at = serializers.DateTimeField(allow_null=True, help_text="When it was taken; null until then.")
    waits_until = serializers.DateTimeField(
        allow_null=True, help_text="When the recipient's digest is due that this is kept for; null otherwise."
    )


class FindingSerializer(serializers.Serializer[Any]):
    """One finding. Text is redacted."""

    file = serializers.CharField(help_text="Depot path; a finding about the description names none.")
    line = serializers.IntegerField(allow_null=True, help_text="From 1; null for a whole file.")
    end_line = serializers.IntegerField(allow_null=True, help_text="Last line of a range; null for one line.")
    side = serializers.ChoiceField(
        choices=[(s.value, s.value) for s in Side], help_text="Which content the lines count in."
    )
    severity = serializers.ChoiceField(
        choices=[(s.value, s.value) for s in FindingSeverity], help_text="How bad it is."
    )
    category = serializers.CharField(help_text="Its kind, such as bug, security or secret.")
    title = serializers.CharField(help_text="One line.")
    message = serializers.CharField(help_text="What is wrong, and when it matters.")
    suggestion = serializers.CharField(allow_blank=True, help_text="What to do instead; may be empty.")
    source = serializers.CharField(  # type: ignore[assignment]
        help_text="Who found it: a check by name, or the language model."
    )


class CoverageSerializer(serializers.Serializer[Any]):
    """What was read of one file of the change."""

    file = serializers.CharField(help_text="Depot path.")
    status = serializers.ChoiceField(
        choices=[(s.value, s.value) for s in CoverageStatus],
        help_text="`checked`: by the deterministic checks alone.",
    )
    reason = serializers.CharField(allow_blank=True, help_text="Why it was not read in full; may be empty.")


class JobLinksSerializer(serializers.Serializer[Any]):
    """Where the review is."""

    self = serializers.URLField(help_text="This answer.")
    html = serializers.URLField(help_text="The page for people.")


class JobSerializer(serializers.Serializer[Any]):
    """A review job. Every key but the last four is always present."""

    id = serializers.IntegerField(help_text="The review's number.")
    idempotency_key = serializers.CharField(help_text="The key of the request that made it.")
    changelist_id = serializers.CharField(help_text="As requested, in its normal form.")
    review_version = serializers.IntegerField(help_text="Counts the reviews of the changelist.")
    status = serializers.ChoiceField(
        choices=JobStatus.choices,
        help_text="The first three are still at work; all others are final, and finished_at is set.",
    )
    stage = serializers.ChoiceField(
        choices=Stage.choices, help_text="The first stage that has not succeeded; the last when all have."
    )
    deadline_at = serializers.DateTimeField(help_text="When it is given up (`timed_out`).")
    created_at = serializers.DateTimeField(help_text="When it was requested.")
    finished_at = serializers.DateTimeField(allow_null=True, help_text="When it ended; null while at work.")
    is_late = serializers.BooleanField(help_text="Its result came after the deadline.")
    stages = StageSerializer(many=True, help_text="Always three.")
    deliveries = DeliverySerializer(many=True, help_text="One a recipient, from stage notify on.")
    findings = FindingSerializer(many=True, help_text="From the end of stage llm on.")
    coverage = CoverageSerializer(many=True, help_text="Every file of the change, with the findings.")
    dead_letter = serializers.IntegerField(
        allow_null=True, help_text="The open dead letter that an operator has to work; null without one."
    )
    links = JobLinksSerializer(help_text="Addresses of this review.")
    duplicate = serializers.BooleanField(
        required=False, help_text="Only, and true, in the answer to a POST that made nothing new."
    )
    payload_mismatch = serializers.BooleanField(
        required=False,
        help_text="Only, and true, with duplicate: the review was first requested with another body.",
    )
    message = serializers.CharField(
        required=False,
        help_text="Only where something needs saying: why a POST made nothing and what to post instead; that"
        " nobody is told, and why.",
    )
    recipients_not_added = serializers.ListField(
        child=serializers.CharField(), required=False,
        help_text="Only with duplicate: recipients of this request that the review does not tell.",
    )  # fmt: skip


_COUNT = "How many there are; it stops at 10,000."
_NEXT, _PREVIOUS = "The next page; null on the last.", "The page before; null on the first."


class JobPageSerializer(serializers.Serializer[Any]):
    """One page of jobs, newest first."""

    count = serializers.IntegerField(help_text=_COUNT)
    next = serializers.URLField(allow_null=True, help_text=_NEXT)
    previous = serializers.URLField(allow_null=True, help_text=_PREVIOUS)
    results = JobSerializer(many=True, help_text="At most 50.")


class TriggerAnswerSerializer(serializers.Serializer[Any]):
    """What became of a Perforce event."""

    job = serializers.IntegerField(allow_null=True, help_text="The review that covers the event.")
    duplicate = serializers.BooleanField(help_text="That review was there before this event.")


class LetterEventSerializer(serializers.Serializer[Any]):
    """One step of a dead letter's history."""

    action = serializers.ChoiceField(choices=LetterAction.choices, help_text="What was done.")
    actor = serializers.CharField(help_text="Who did it.")
    reason = serializers.CharField(allow_blank=True, help_text="Why, in their words.")
    created_at = serializers.DateTimeField(help_text="When.")


class LetterLinksSerializer(serializers.Serializer[Any]):
    """Where the dead letter and its review are."""

    self = serializers.URLField(help_text="This answer.")
    job = serializers.URLField(help_text="The review.")


class DeadLetterSerializer(serializers.Serializer[Any]):
    """A dead letter with its 8.4 payload, redacted."""

    id = serializers.IntegerField(help_text="The letter's number.")
    job = serializers.IntegerField(help_text="The review that stopped.")
    changelist_id = serializers.CharField(help_text="Its changelist.")
    review_version = serializers.IntegerField(help_text="Its version.")
    stage = serializers.ChoiceField(choices=Stage.choices, help_text="The stage that failed.")
    status = serializers.ChoiceField(
        choices=LetterStatus.choices, help_text="How far operators are; resolved and discarded are closed."
    )
    error_class = serializers.CharField(help_text="The failure's class (docs/failures.md).")
    code = serializers.CharField(help_text="Its code, `CRITICIZER_E<number>`.")
    severity = serializers.CharField(help_text="How urgent it is.")
    detail = serializers.CharField(allow_blank=True, help_text="What happened, in a sentence.")
    last_stack = serializers.CharField(allow_blank=True, help_text="Where in the code; may be empty.")
    sanitized_context = serializers.DictField(help_text="What was known about it.")
    payload_reference = serializers.CharField(allow_blank=True, help_text="The artifact it was about.")
    attempts = serializers.IntegerField(help_text="Attempts the stage had used.")
    first_failure_at = serializers.DateTimeField(help_text="When the stage first failed.")
    last_failure_at = serializers.DateTimeField(help_text="When it last failed.")
    failed_replay_count = serializers.IntegerField(help_text="Replays that failed again.")
    is_escalated = serializers.BooleanField(
        help_text="A replay failed with the same, permanent class, or succeeded without its effect."
    )
    created_at = serializers.DateTimeField(help_text="When the review stopped.")
    closed_at = serializers.DateTimeField(allow_null=True, help_text="When it was closed; null while open.")
    events = LetterEventSerializer(many=True, help_text="Its history, oldest first.")
    links = LetterLinksSerializer(help_text="Addresses.")


class DeadLetterPageSerializer(serializers.Serializer[Any]):
    """One page of dead letters, latest failure first."""

    count = serializers.IntegerField(help_text=_COUNT)
    next = serializers.URLField(allow_null=True, help_text=_NEXT)
    previous = serializers.URLField(allow_null=True, help_text=_PREVIOUS)
    results = DeadLetterSerializer(many=True, help_text="At most 50.")


class ErrorSerializer(serializers.Serializer[Any]):
    """Every error answer."""

    error = serializers.CharField(help_text="The name to branch on, such as VERSION_CONFLICT.")
    code = serializers.CharField(help_text="`CRITICIZER_E<number>` (docs/failures.md).")
    message = serializers.CharField(help_text="A sentence for people.")
    details = serializers.DictField(help_text="Per field or fact; may be empty.")
