"""The model's answer: its JSON schema, and validation and cleaning of what came back.

All text of a model is untrusted: it may be malformed, invented, or dictated by the change
under review. `anchoring` puts valid findings onto lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from criticizer.redaction import clean
from reviews.reviewers.base import SEVERITY_ORDER, FindingSeverity

MAX_ANSWER_CHARS = 400_000
MAX_OUTLINE_CHARS = 800
MAX_START_CHARS = 120
_MOST = 20  # fields of an object, errors of an answer
_WORD = re.compile(r"[A-Za-z0-9_-]{0,20}")  # a severity, a category, a side

_LIMITS = {"title": 80, "problem": 600, "trigger": 300, "suggestion": 1200}
_TEXTS = ("quote", "quote_end", "rule_id", *_LIMITS)
_CATEGORIES = [
    "bug",
    "security",
    "concurrency",
    "resource",
    "api",
    "data-loss",
    "performance",
    "test",
    "rule",
]


def answer_schema(max_findings: int) -> dict[str, Any]:
    """Return the full JSON schema of an answer, against which every answer is validated.

    Fields that a finding may lack may also be null, because strict modes demand every field.
    """
    text = {"type": "string"}
    optional = {"type": ["string", "null"]}
    properties: dict[str, Any] = {
        "file": text,
        "hunk": optional,
        "quote": text,
        "quote_end": optional,
        "side": {"enum": ["new", "old", None]},
        "category": {"enum": _CATEGORIES},
        "rule_id": optional,
        "severity": {"enum": [str(severity) for severity in FindingSeverity]},
        "confidence": {"type": "integer", "minimum": 0, "maximum": 100},
        "title": {**text, "maxLength": _LIMITS["title"]},
        "problem": {**text, "maxLength": _LIMITS["problem"]},
        "trigger": {**text, "maxLength": _LIMITS["trigger"]},
        "suggestion": {**optional, "maxLength": _LIMITS["suggestion"]},
    }
    required = ["file", "quote", "category", "severity", "confidence", "title", "problem", "trigger"]
    finding = {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["findings", "files_read"],
        "properties": {
            "files_read": {"type": "array", "items": text},
            "findings": {"type": "array", "maxItems": max_findings, "items": finding},
        },
    }


def strict_schema(max_findings: int) -> dict[str, Any]:
    """Return the reduced schema that strict decoding modes accept: all required, no bounds."""

    def reduced(schema: Mapping[str, Any]) -> dict[str, Any]:
        kept = {k: v for k, v in schema.items() if k not in {"maxItems", "maxLength", "minimum", "maximum"}}
        if "enum" in kept:
            kept["type"] = ["string", "null"] if None in kept["enum"] else "string"
        if "items" in kept:
            kept["items"] = reduced(kept["items"])
        if "properties" in kept:
            kept["properties"] = {name: reduced(value) for name, value in kept["properties"].items()}
            kept["required"] = list(kept["properties"])
        return kept

    return reduced(answer_schema(max_findings))


class UnusableAnswer(Exception):
    """An answer that breaks the schema. The message is ours: it quotes nothing.

    It names the field by its place, such as `findings/0/severity`, and the rule of the schema.
    """


def parse_answer(text: str, max_findings: int) -> dict[str, Any]:
    """Return the validated answer with every string cleaned.

    Text that is merely too long and findings beyond the cap are cut here, because another call
    would cost more than they are worth. Raises UnusableAnswer for anything else the schema refuses.
    """
    answer = _json_object(text)
    # Optional: which files were read is only counted.
    answer.setdefault("files_read", [])
    _shorten(answer, max_findings)
    errors = islice(_validator(max_findings).iter_errors(answer), _MOST)
    # Missing fields first: an unknown field is often a misspelt one.
    error = min(errors, key=lambda found: found.validator != "required", default=None)
    if error is not None:
        raise UnusableAnswer(_in_words(error))
    for finding in answer["findings"]:
        for name in _TEXTS:
            if isinstance(finding.get(name), str):
                finding[name] = clean(finding[name])
    # They are only compared with what was sent.
    answer["files_read"] = [path for path in answer["files_read"][:1000] if path == clean(path)]
    return answer


def _in_words(error: ValidationError) -> str:
    """Return which field breaks which rule, in the schema's own words."""
    where = "/".join(str(part) for part in error.absolute_path)
    where = re.sub(r"[^A-Za-z0-9_/]", "", where)[:80] or "the answer"
    rule: Any = error.validator_value
    instance: Any = error.instance
    if error.validator == "required":
        missing = [name for name in rule if name not in instance]
        return f"{where} lacks {', '.join(missing)}"
    if error.validator == "additionalProperties":
        return f"{where} holds a field that the schema does not have"
    if error.validator == "enum":
        return f"{where} is not one of: {', '.join(str(value) for value in rule if value is not None)}"
    if error.validator == "type":
        return f"{where} is not of type {rule if isinstance(rule, str) else ' or '.join(rule)}"
    return f"{where} breaks the rule {error.validator} ({rule}) of the schema"


@lru_cache(maxsize=8)
def _validator(max_findings: int) -> Draft202012Validator:
    return Draft202012Validator(answer_schema(max_findings))


def _json_object(text: str) -> dict[str, Any]:
    if len(text) > MAX_ANSWER_CHARS:
        raise UnusableAnswer("the answer is too long")
    # By plain search: a pattern with a lazy middle takes quadratic time on a hostile answer.
    opening = text.find("\n", text.find("```")) if "```" in text else -1
    closing = text.find("```", opening) if opening >= 0 else -1
    fenced = text[opening:closing] if closing >= 0 else ""
    first, last = text.find("{"), text.rfind("}")
    for candidate in (text, fenced, text[first : last + 1] if first >= 0 else ""):
        try:
            parsed = json.loads(candidate, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            return parsed
    raise UnusableAnswer("the answer is not a JSON object" if text.strip() else "the answer is empty")


def outline_of(text: str) -> str:
    """Return the form of an answer, for operators: its fields, no prose and no code of a change.

    Fields and short words stay, longer text becomes its length. Text that is not a JSON object is
    represented by its first characters. Bounded, and cleaned of secrets.
    """
    try:
        shape = json.dumps(_shape(_json_object(text)), ensure_ascii=False)
    except UnusableAnswer:
        start = " ".join(text[:2000].split())[:MAX_START_CHARS]
        shape = f"{len(text)} characters, beginning: {start}" if start else "nothing"
    return clean(shape, MAX_OUTLINE_CHARS)


def _shape(value: object, depth: int = 0) -> object:
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else f"… {len(value)} characters"
    if isinstance(value, dict) and depth < 3:
        shown = {_key(name): _shape(inner, depth + 1) for name, inner in list(value.items())[:_MOST]}
        return shown if len(value) <= _MOST else {**shown, "…": f"{len(value) - _MOST} more"}
    if isinstance(value, list) and depth < 3:
        more = [f"… {len(value) - 2} more"] if len(value) > 2 else []
        return [*(_shape(inner, depth + 1) for inner in value[:2]), *more]
    if isinstance(value, dict | list):
        return "…"
    return value if len(str(value)) <= 20 else "…"


def _key(name: str) -> str:
    return name if len(name) <= 40 else name[:40] + "…"


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _shorten(answer: dict[str, Any], max_findings: int) -> None:
    findings = answer.get("findings")
    if not isinstance(findings, list):
        return
    if len(findings) > max_findings:
        findings.sort(key=_rank_of_raw)
        del findings[max_findings:]
    for finding in findings:
        for name, limit in _LIMITS.items() if isinstance(finding, dict) else ():
            value = finding.get(name)
            if isinstance(value, str) and len(value) > limit:
                finding[name] = value[: limit - 1].rstrip() + "…"


def _rank_of_raw(finding: object) -> tuple[int, int]:
    severity = finding.get("severity") if isinstance(finding, dict) else None
    confidence = finding.get("confidence") if isinstance(finding, dict) else None
    known = SEVERITY_ORDER.get(FindingSeverity(severity), 9) if severity in list(FindingSeverity) else 9
    return known, -confidence if isinstance(confidence, int) else 0
