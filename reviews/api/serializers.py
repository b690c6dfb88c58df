"""What the API takes, checked strictly, and what it answers, described for OpenAPI.

JSON types are taken as they are: no "1" for 1, no 1 for true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from deadletters.states import LetterAction, LetterStatus
from notifications import recipients
from notifications.states import DeliveryStatus
from reviews.reviewers.base import CoverageStatus, FindingSeverity, Side
from reviews.sources.registry import validate_changelist_id
from reviews.states import JobStatus, Stage, StageStatus

MAX_RECIPIENTS = 100
MAX_VERSION = 2_147_483_647
_ECHOED_FIELDS = 20


class Whole(serializers.IntegerField):
    """A JSON number without a fraction."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return int(data)


class Flag(serializers.BooleanField):
    """JSON true or false."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=str(data)[:40])
        return bool(data)


class Text(serializers.CharField):
    """A JSON string of printable characters."""

    default_error_messages = {"printable": "Only printable characters are allowed."}

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if not data.isprintable():
            self.fail("printable")
        return str(data)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        if isinstance(data, str) and data and not data.strip():
            self.fail("blank")
        return super().run_validation(data)


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]})
class Changelist(Text):
    """A changelist's id; a plain number may come as a number."""

    def to_internal_value(self, data: Any) -> str:
        if isinstance(data, int) and not isinstance(data, bool):
            data = str(data)
        try:
            return validate_changelist_id(super().to_internal_value(data))
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error


class Recipient(Text):
    """A recipient in any form `notifications.recipients` can normalise."""

    def to_internal_value(self, data: Any) -> str:
        try:
            return recipients.normalise(super().to_internal_value(data))
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses fields it does not know, together with everything else that is wrong."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError({"body": ["The body must be a JSON object."]})
        unknown = [str(name)[:64] for name in data if name not in self.fields][:_ECHOED_FIELDS]
        errors: dict[str, Any] = {name: ["This field is unknown."] for name in unknown}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            found = error.detail if isinstance(error.detail, dict) else {"body": error.detail}
            raise serializers.ValidationError({**errors, **found}) from error
        if errors:
            raise serializers.ValidationError(errors)
        return value


# -- requests ---------------------------------------------------------------------------------


class ReviewRequestSerializer(StrictSerializer):
    """The body of `POST /api/v1/reviews/`."""

    idempotency_key = Text(max_length=255, required=False, help_text="Or the header Idempotency-Key.")
    changelist_id = Changelist(max_length=128, help_text="12345, or git:<repository>@<40 hex digits>.")
    review_version = Whole(min_value=1, max_value=MAX_VERSION, default=1)
    recipients = serializers.ListField(
        child=Recipient(), max_length=MAX_RECIPIENTS, default=list,
        help_text="mail:<address> or webhook:<URL>; a bare address means mail.",
    )  # fmt: skip
    rerun = Flag(default=False)


class CancelSerializer(StrictSerializer):
    """The body of `POST /api/v1/reviews/{id}/cancel/`; it may be empty."""

    reason = Text(max_length=400, required=False, default="", allow_blank=True)


class PerforceEventSerializer(StrictSerializer):
    """The body of `POST /api/v1/triggers/perforce/`."""

    event = serializers.ChoiceField(choices=["change-commit", "shelve-commit"])
    change = Whole(min_value=1, max_value=MAX_VERSION)
    server = serializers.RegexField(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z", trim_whitespace=False)


# -- answers: shapes for OpenAPI; `rendering` makes the values ---------------------------------


class StageSerializer(serializers.Serializer[Any]):
    stage = serializers.ChoiceField(choices=Stage.choices)
    status = serializers.ChoiceField(choices=StageStatus.choices)
    attempts = serializers.IntegerField()
    max_attempts = serializers.IntegerField()
    next_attempt_at = serializers.DateTimeField(allow_null=True)
    error_class = serializers.CharField(allow_blank=True)


class DeliverySerializer(serializers.Serializer[Any]):
    recipient = serializers.CharField()
    status = serializers.ChoiceField(choices=DeliveryStatus.choices)
    notification_id = serializers.CharField(allow_blank=True)
    notified_at = serializers.DateTimeField(allow_null=True)


class FindingSerializer(serializers.Serializer[Any]):
    file = serializers.CharField()
    line = serializers.IntegerField(allow_null=True)
    end_line = serializers.IntegerField(allow_null=True)
    side = serializers.ChoiceField(choices=[(s.value, s.value) for s in Side])
    severity = serializers.ChoiceField(choices=[(s.value, s.value) for s in FindingSeverity])
    category = serializers.CharField()
    title = serializers.CharField()
    message = serializers.CharField()
    suggestion = serializers.CharField(allow_blank=True)
    source = serializers.CharField()  # type: ignore[assignment]


class CoverageSerializer(serializers.Serializer[Any]):
    file = serializers.CharField()
    status = serializers.ChoiceField(choices=[(s.value, s.value) for s in CoverageStatus])
    reason = serializers.CharField(allow_blank=True)


class JobLinksSerializer(serializers.Serializer[Any]):
    self = serializers.URLField()
    html = serializers.URLField()


class JobSerializer(serializers.Serializer[Any]):
    """A review job. Every key but the last two is always present."""

    id = serializers.IntegerField()
    idempotency_key = serializers.CharField()
    changelist_id = serializers.CharField()
    review_version = serializers.IntegerField()
    status = serializers.ChoiceField(choices=JobStatus.choices)
    stage = serializers.ChoiceField(choices=Stage.choices)
    deadline_at = serializers.DateTimeField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    is_late = serializers.BooleanField()
    stages = StageSerializer(many=True)
    deliveries = DeliverySerializer(many=True)
    findings = FindingSerializer(many=True)
    coverage = CoverageSerializer(many=True)
    dead_letter = serializers.IntegerField(allow_null=True)
    links = JobLinksSerializer()
    duplicate = serializers.BooleanField(
        required=False, help_text="Only, and true, when a request is repeated."
    )
    payload_mismatch = serializers.BooleanField(
        required=False, help_text="Only, and true, when it was repeated with another body."
    )


class JobPageSerializer(serializers.Serializer[Any]):
    """One page of jobs, newest first. `count` stops at 10,000."""

    count = serializers.IntegerField()
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = JobSerializer(many=True)


class TriggerAnswerSerializer(serializers.Serializer[Any]):
    job = serializers.IntegerField(allow_null=True)
    duplicate = serializers.BooleanField()


class LetterEventSerializer(serializers.Serializer[Any]):
    action = serializers.ChoiceField(choices=LetterAction.choices)
    actor = serializers.CharField()
    reason = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()


class LetterLinksSerializer(serializers.Serializer[Any]):
    self = serializers.URLField()
    job = serializers.URLField()


class DeadLetterSerializer(serializers.Serializer[Any]):
    """A dead letter with its 8.4 payload, redacted."""

    id = serializers.IntegerField()
    job = serializers.IntegerField()
    changelist_id = serializers.CharField()
    review_version = serializers.IntegerField()
    stage = serializers.ChoiceField(choices=Stage.choices)
    status = serializers.ChoiceField(choices=LetterStatus.choices)
    error_class = serializers.CharField()
    code = serializers.CharField()
    severity = serializers.CharField()
    detail = serializers.CharField(allow_blank=True)
    last_stack = serializers.CharField(allow_blank=True)
    sanitized_context = serializers.DictField()
    payload_reference = serializers.CharField(allow_blank=True)
    attempts = serializers.IntegerField()
    first_failure_at = serializers.DateTimeField()
    last_failure_at = serializers.DateTimeField()
    failed_replay_count = serializers.IntegerField()
    is_escalated = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    closed_at = serializers.DateTimeField(allow_null=True)
    events = LetterEventSerializer(many=True)
    links = LetterLinksSerializer()


class DeadLetterPageSerializer(serializers.Serializer[Any]):
    """One page of dead letters, latest failure first. `count` stops at 10,000."""

    count = serializers.IntegerField()
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = DeadLetterSerializer(many=True)


class ErrorSerializer(serializers.Serializer[Any]):
    """Every error answer."""

    error = serializers.CharField()
    code = serializers.CharField()
    message = serializers.CharField()
    details = serializers.DictField()
