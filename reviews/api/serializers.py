"""The bodies that the API accepts, checked strictly; the texts describe them in OpenAPI.

JSON types are not converted: "1" is not 1, and 1 is not true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from criticizer.codehosts.registry import in_words
from notifications import recipients
from reviews.sources.registry import validate_changelist_id
from reviews.states import VERDICTS, DismissalScope, FindingEventKind

MAX_CHANGE = 2_147_483_647
MAX_VERSION = (
    2_000_000_000  # less: reviews that a webhook, a trigger or a person requests need versions above
)
_ECHOED_FIELDS = 20


class Whole(serializers.IntegerField):
    """A JSON number without a fraction."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return int(data)


class Number(serializers.FloatField):
    """A JSON number.

    One of more digits than a float has room for is refused like one above the maximum.
    """

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, (int, float)):
            self.fail("invalid")
        try:
            return float(data)
        except OverflowError:
            return math.inf if data > 0 else -math.inf


class Flag(serializers.BooleanField):
    """JSON true or false."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=str(data)[:40])
        return bool(data)


class Prose(serializers.CharField):
    """A JSON string of any characters but NUL."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(data)


class Text(Prose):
    """A JSON string of printable characters."""

    default_error_messages = {"printable": "Only printable characters are allowed."}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not text.isprintable():
            self.fail("printable")
        return text

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
    """A recipient in any form that `notifications.recipients` can normalise."""

    def to_internal_value(self, data: Any) -> str:
        try:
            return recipients.normalise(super().to_internal_value(data))
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses unknown fields, and reports them together with all other errors."""

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


def validated(shape: type[serializers.Serializer[Any]], data: Any, *required: str) -> dict[str, Any]:
    """Return the values of a body or a query, with its `required` fields.

    Raises ValidationError.
    """
    form = shape(data=data)
    for name in required:
        form.fields[name].required = True
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


# In backticks: Markdown would drop <…> as a tag.
ANY_CHANNEL = (
    "`mail:<address>`, `webhook:<URL>`, `slack:<channel id>`, `swarm:review-<number>`,"
    f" `swarm:change-<number>`, a pull request ({in_words('`{name}:{pull}`')}), or its inline"
    f" comments ({in_words('`{name}-review:<as above>`')})"
)


class ReviewRequestSerializer(StrictSerializer):
    """The body of `POST /api/v1/reviews/`."""

    idempotency_key = Text(
        max_length=255, required=False,
        error_messages={"required": "This field is required, here or as the header Idempotency-Key."},
        help_text="Your name for this request; a repeated name makes no second review. Send it here or as the"
        " header Idempotency-Key; in both, it must be the same.",
    )  # fmt: skip
    changelist_id = Changelist(
        max_length=128,
        help_text="A Perforce changelist, `12345`, a git commit, `git:<repository>@<40 hex digits>`, or a "
        f"pull request, {in_words('`{name}:{pull}`')}.",
    )
    review_version = Whole(
        min_value=1, max_value=MAX_VERSION, default=1,
        help_text="Counts the reviews of a changelist. A version above the newest one needs rerun.",
    )  # fmt: skip
    recipients = serializers.ListField(
        child=Recipient(), max_length=recipients.MAX_RECIPIENTS, default=list,
        help_text=f"Recipients, each notified once: {ANY_CHANNEL}; a bare address means mail. Without any,"
        " DEFAULT_RECIPIENTS are notified; subscriptions apply to triggers only.",
    )  # fmt: skip
    rerun = Flag(
        default=False,
        help_text="Allows a review_version above the newest one, which is ended if it is not final.",
    )
    from_scratch = Flag(
        default=False,
        help_text="Asks about all files, also about content that was reviewed before.",
    )

    def validate_recipients(self, found: list[str]) -> list[str]:
        try:
            recipients.require_few_hosts(found, settings.WEBHOOK_HOSTS_PER_REQUEST)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error
        return found


class CancelSerializer(StrictSerializer):
    """The body of `POST /api/v1/reviews/{id}/cancel/`; it may be empty."""

    reason = Text(
        max_length=400, required=False, default="", allow_blank=True,
        help_text="The reason, shown with the review.",
    )  # fmt: skip


class VerdictSerializer(StrictSerializer):
    """The body of `POST /api/v1/findings/{id}/verdict/`."""

    verdict = serializers.ChoiceField(
        choices=[(kind.value, kind.label) for kind in (*VERDICTS, FindingEventKind.UNDONE)],
        help_text="`wrong`, `intended` and `wont_fix` dismiss the finding; `undone` takes a verdict back.",
    )
    reason = Text(
        max_length=300, required=False, default="", allow_blank=True,
        help_text="Why; shown to those who may see the finding.",
    )  # fmt: skip
    scope = serializers.ChoiceField(
        choices=DismissalScope.choices, default=DismissalScope.FINDING.value,
        help_text="The findings of other reviews that a dismissal is about. `path`, `rule` and `category`"
        " take a key of the role operator.",
    )  # fmt: skip
    path = Text(
        max_length=1024, required=False, default="", allow_blank=True,
        help_text="Depot pattern such as `//depot/main/...`: needed for `path`, possible for `rule` and"
        " `category`, which mean every file without it.",
    )  # fmt: skip
    until = serializers.DateField(
        required=False, allow_null=True, default=None,
        help_text="The last day of a dismissal, in UTC; null: without end.",
    )  # fmt: skip


class PerforceEventSerializer(StrictSerializer):
    """The body of `POST /api/v1/triggers/perforce/`."""

    event = serializers.ChoiceField(
        choices=["change-commit", "shelve-commit"],
        help_text="The trigger's type: change-commit for a submit, shelve-commit for a shelf.",
    )
    change = Whole(min_value=1, max_value=MAX_CHANGE, help_text="The changelist's number.")
    server = serializers.RegexField(
        r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z", trim_whitespace=False,
        help_text="The server's id (%serverid%); changelist numbers of different servers are kept apart.",
    )  # fmt: skip
