"""The results that agents submit: their schemas, and what of them is kept.

A result is untrusted text: every string is redacted and bounded here, and made harmless where it is shown.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from criticizer.redaction import clean
from reviews.agents.submit import Invalid, NotJson, Result
from reviews.api.parsers import refuse_constant
from reviews.api.serializers import Flag, Number, Prose, StrictSerializer, Whole
from reviews.reviewers.answer import UnusableAnswer, parse_answer
from reviews.reviewers.answer_names import CATEGORIES
from reviews.reviewers.base import FindingSeverity
from reviews.states import AgentTaskType

MAX_FINDINGS = 50
MAX_DETAILS = 20
LESS_CONFIDENCE, LEAST_CONFIDENCE = 0.3, 0.2  # of a claim that is called true without evidence


def _optional(length: int, **options: Any) -> Prose:
    return Prose(max_length=length, required=False, allow_null=True, allow_blank=True, **options)


class AgentFindingSerializer(StrictSerializer):
    """One finding, with the fields that the payload's schema names.

    It may have `message` for `problem`.
    """

    file = Prose(max_length=1024, help_text="The path as the request lists it.")
    quote = Prose(allow_blank=True, help_text="One complete line, copied: it places the finding.")
    severity = serializers.ChoiceField(
        choices=[(s.value, s.value) for s in FindingSeverity], help_text="By effect."
    )
    title = Prose(max_length=200, help_text="One line.")
    message = _optional(4000, help_text="What is wrong. This or `problem`.")
    problem = _optional(4000, help_text="The name that the payload's schema has for `message`.")
    trigger = _optional(4000, help_text="What makes it fail.")
    suggestion = _optional(4000, help_text="How to repair it.")
    category = serializers.ChoiceField(
        choices=[(c, c) for c in CATEGORIES], required=False, help_text="Its kind."
    )
    hunk = _optional(64, help_text="The id of its hunk.")
    line = Whole(min_value=1, required=False, allow_null=True, help_text="As the request numbers it.")
    end_line = Whole(min_value=1, required=False, allow_null=True, help_text="The last line.")
    quote_end = _optional(4000, help_text="The last line, copied.")
    side = serializers.ChoiceField(
        choices=[("new", "new"), ("old", "old")], required=False, allow_null=True, help_text="Of the diff."
    )
    rule_id = _optional(200, help_text="The rule that it cites.")
    confidence = Whole(min_value=0, max_value=100, required=False, allow_null=True, help_text="Of 100.")
    context = _optional(1000, help_text="What of the context it rests on.")  # type: ignore[assignment]
    replace = serializers.ListField(
        child=Prose(max_length=4000), max_length=2, required=False, allow_null=True,
        help_text="The first and the last line to replace, copied.",
    )  # fmt: skip

    def get_fields(self) -> dict[str, Any]:
        return {
            **super().get_fields(),
            "with": _optional(8000, help_text="The new text of these lines."),
        }  # no name of Python

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not (attrs.get("message") or attrs.get("problem") or "").strip():
            raise ValidationError({"message": ["This field is required."]})
        return attrs


class ReviewChunkSerializer(StrictSerializer):
    """The `data` of a `review_chunk`."""

    type = serializers.ChoiceField(choices=[AgentTaskType.REVIEW_CHUNK.value])
    findings = AgentFindingSerializer(many=True, max_length=MAX_FINDINGS)  # type: ignore[call-arg]
    files_read = serializers.ListField(child=Prose(max_length=1024), max_length=1000, required=False)
    seen = serializers.ListField(child=Prose(max_length=100), max_length=200, required=False)


class VerificationSerializer(StrictSerializer):
    """The `data` of a `verification`."""

    type = serializers.ChoiceField(choices=[AgentTaskType.VERIFICATION.value])
    verdict = serializers.ChoiceField(choices=["verified", "drifted", "uncertain"])
    confidence = Number(min_value=0, max_value=1)
    reasoning = Prose(max_length=5000)
    evidence_files = serializers.ListField(child=Prose(max_length=512), max_length=50)
    specific_mismatch = _optional(2000)
    suggested_fix = _optional(5000)
    quote_document = _optional(5000, help_text="The sentence, copied: without it, drifted is uncertain.")
    quote_code = _optional(5000, help_text="A changed line, copied: without it, drifted is uncertain.")


class ExtractedClaimSerializer(StrictSerializer):
    """One claim of a document."""

    claim_text = Prose(max_length=2000)
    claim_type = Prose(max_length=64)
    source_file = Prose(max_length=1024)
    source_line = Whole(min_value=1)
    confidence = Number(min_value=0, max_value=1)
    keywords = serializers.ListField(child=Prose(max_length=100), max_length=50)


class ClaimExtractionSerializer(StrictSerializer):
    """The `data` of a `claim_extraction`."""

    type = serializers.ChoiceField(choices=[AgentTaskType.CLAIM_EXTRACTION.value])
    claims = ExtractedClaimSerializer(many=True, max_length=500)  # type: ignore[call-arg]


class FixGenerationSerializer(StrictSerializer):
    """The `data` of a `fix_generation`."""

    type = serializers.ChoiceField(choices=[AgentTaskType.FIX_GENERATION.value])
    file_path = Prose(max_length=1024)
    line_start = Whole(min_value=1)
    line_end = Whole(min_value=1)
    new_text = Prose(max_length=10_000)
    explanation = Prose(max_length=2000)


DATA: Mapping[str, type[StrictSerializer]] = {
    AgentTaskType.REVIEW_CHUNK: ReviewChunkSerializer,
    AgentTaskType.VERIFICATION: VerificationSerializer,
    AgentTaskType.CLAIM_EXTRACTION: ClaimExtractionSerializer,
    AgentTaskType.FIX_GENERATION: FixGenerationSerializer,
}


class MetadataSerializer(StrictSerializer):
    """Cost of the work, by the agent's own word.

    It is shown as such and never added to our budgets.
    """

    duration_ms = Whole(min_value=0, max_value=10**10, required=False, help_text="Of the work.")
    model_used = _optional(200, help_text="The name of the model.")
    tokens_used = Whole(
        min_value=0, max_value=10**10, required=False, allow_null=True, help_text="Of all calls."
    )
    cost_usd = Number(min_value=0, max_value=1e6, required=False, allow_null=True, help_text="Of all calls.")


class AgentResultSerializer(StrictSerializer):
    """The body of `POST /api/v1/agent-tasks/{id}/result/`."""

    claim_token = Prose(max_length=100, help_text="From the claim.")
    success = Flag(help_text="false: the agent failed, and `error` says why.")
    error = _optional(
        5000, help_text="`token_limit_exceeded` and `refused` are final; another failure is tried once more."
    )
    data = serializers.JSONField(  # type: ignore[assignment]
        required=False, allow_null=True, help_text="By the type of the task; also as a string of JSON."
    )
    metadata = MetadataSerializer(required=False, allow_null=True, help_text="What the work cost.")


def read(kind: str, content: Mapping[str, Any]) -> Result:
    """Return the result that a body holds for a task of a type. Raises Invalid and NotJson."""
    body = AgentResultSerializer(data=content)
    if not body.is_valid():
        raise Invalid(_details(body.errors))
    given = body.validated_data
    metadata = _cleaned(given.get("metadata") or {})
    if not given["success"]:
        return Result(None, clean(given.get("error") or "the agent gave no reason", 512), metadata)
    data = _decoded(given.get("data"))
    form = DATA[kind](data=data)
    if not form.is_valid():
        raise Invalid(_details(form.errors, "data"))
    return Result(_kept(kind, form.validated_data), metadata=metadata)


def _decoded(data: Any) -> Any:
    if not isinstance(data, str):
        return data
    try:
        return json.loads(data, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise NotJson from None


def _kept(kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    if kind == AgentTaskType.REVIEW_CHUNK:
        try:
            return parse_answer(json.dumps(_as_model_answer(data)), MAX_FINDINGS)
        except UnusableAnswer as error:
            raise Invalid([{"path": "data.findings", "message": str(error)}]) from None
    found: dict[str, Any] = _cleaned(data)
    return _judged(found) if kind == AgentTaskType.VERIFICATION else found


def _as_model_answer(data: Mapping[str, Any]) -> dict[str, Any]:
    findings = [
        {
            **{k: v for k, v in finding.items() if k != "message"},
            "problem": finding.get("problem") or finding.get("message"),
        }
        for finding in data["findings"]
    ]
    return {"files_read": [], **data, "findings": findings}


def _judged(data: dict[str, Any]) -> dict[str, Any]:
    """Return a verification whose verdict is no stronger than its evidence.

    Without evidence `drifted` becomes `uncertain`, and `verified` loses confidence.
    """
    evidence = [path for path in data["evidence_files"] if _is_inside(path)]
    verdict, confidence = data["verdict"], data["confidence"]
    if not evidence and verdict == "drifted":
        verdict = "uncertain"
    if not evidence and verdict == "verified":
        confidence = max(confidence - LESS_CONFIDENCE, min(confidence, LEAST_CONFIDENCE))
    return {**data, "evidence_files": evidence, "verdict": verdict, "confidence": confidence}


def _is_inside(path: str) -> bool:
    """Return whether a path may name a file of the repository.

    Paths are as the request writes them, or begin at the repository's root.
    """
    path = path.removeprefix("//")
    return not path.startswith(("/", "~")) and posixpath.normpath(path) == path and not path.startswith("..")


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {name: _cleaned(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner) for inner in value]
    return value


def _details(errors: Any, path: str = "") -> list[dict[str, str]]:
    """Return the errors of a serializer as a flat list.

    Their paths read `data.findings[0].title`.
    """
    return [{"path": where[:200], "message": text} for where, text in _flat(errors, path)][:MAX_DETAILS]


def _flat(errors: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(errors, Mapping):
        for name, inner in errors.items():
            if name in ("non_field_errors", "body"):
                yield from _flat(inner, path)
            elif isinstance(name, int):
                yield from _flat(inner, f"{path}[{name}]")
            else:
                yield from _flat(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(errors, list):
        for place, inner in enumerate(errors):
            if isinstance(inner, (Mapping, list)):
                yield from _flat(inner, f"{path}[{place}]")
            else:
                yield path, clean(str(inner), 300)
