"""The fields of the API's answers about dead letters, as `schemas` are those of all others."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from deadletters.states import LetterAction, LetterStatus
from reviews.api.schemas import PageSerializer
from reviews.states import Stage


class LetterEventSerializer(serializers.Serializer[Any]):
    """One event of a dead letter's history."""

    action = serializers.ChoiceField(choices=LetterAction.choices, help_text="The action.")
    actor = serializers.CharField(help_text="Who took the action.")
    reason = serializers.CharField(allow_blank=True, help_text="Their reason.")
    created_at = serializers.DateTimeField(help_text="When it was taken.")


class LetterLinksSerializer(serializers.Serializer[Any]):
    """URLs of the dead letter and its review."""

    self = serializers.URLField(help_text="The URL of this answer.")
    job = serializers.URLField(help_text="The URL of the review.")


class DeadLetterSerializer(serializers.Serializer[Any]):
    """A dead letter with its payload, redacted."""

    id = serializers.IntegerField(help_text="The dead letter's id.")
    job = serializers.IntegerField(help_text="The id of the review that stopped.")
    changelist_id = serializers.CharField(help_text="The review's changelist.")
    review_version = serializers.IntegerField(help_text="The review's version.")
    stage = serializers.ChoiceField(choices=Stage.choices, help_text="The stage that failed.")
    status = serializers.ChoiceField(
        choices=LetterStatus.choices,
        help_text="The state in the workflow; resolved and discarded are closed.",
    )
    error_class = serializers.CharField(help_text="The failure's class (docs/failures.md).")
    code = serializers.CharField(help_text="The failure's code, `CRITICIZER_E<number>`.")
    severity = serializers.CharField(help_text="The failure's severity.")
    detail = serializers.CharField(allow_blank=True, help_text="The failure in one sentence.")
    last_stack = serializers.CharField(allow_blank=True, help_text="The redacted stack trace; may be empty.")
    sanitized_context = serializers.DictField(help_text="Redacted facts about the failure.")
    payload_reference = serializers.CharField(
        allow_blank=True, help_text="The artifact or changelist that the stage worked on."
    )
    attempts = serializers.IntegerField(help_text="Attempts that the stage had used.")
    first_failure_at = serializers.DateTimeField(help_text="When the stage first failed.")
    last_failure_at = serializers.DateTimeField(help_text="When it last failed.")
    failed_replay_count = serializers.IntegerField(help_text="The number of failed replays.")
    is_escalated = serializers.BooleanField(
        help_text="A replay failed with the same, permanent class, or succeeded without its effect."
    )
    created_at = serializers.DateTimeField(help_text="When the review stopped.")
    closed_at = serializers.DateTimeField(allow_null=True, help_text="When it was closed; null while open.")
    events = LetterEventSerializer(many=True, help_text="Its history, oldest first.")
    links = LetterLinksSerializer(help_text="URLs of the dead letter and its review.")


class DeadLetterPageSerializer(PageSerializer):
    """One page of dead letters, latest failure first."""

    results = DeadLetterSerializer(many=True, help_text="At most 50.")
