"""The model's answer: the JSON schema that is asked for, and the findings that come back.

All text of a model is untrusted: it may be malformed, invented, or dictated by the change
under review. `answer_reading` finds the findings, `answer_fields` their fields, this module
judges each alone; `anchoring` puts them onto lines.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from criticizer.redaction import clean
from reviews.reviewers.answer_fields import shaped
from reviews.reviewers.answer_names import CATEGORIES, LIMITS
from reviews.reviewers.answer_reading import Reading, read_answer
from reviews.reviewers.base import SEVERITY_ORDER, FindingSeverity
from reviews.reviewers.lenient_json import values_in

MAX_ANSWER_CHARS = 400_000
MAX_SEEN = 150
MAX_OUTLINE_CHARS = 800
MAX_START_CHARS = 120
_MOST = 20  # fields of an object
_WORD = re.compile(r"[A-Za-z0-9_-]{0,20}")  # a severity, a category, a side

_TEXTS = ("quote", "quote_end", "rule_id", "context", "with", *LIMITS)


def closed_object(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the schema of an object without other properties; `required` defaults to all."""
    names = list(properties if required is None else required)
    return {"type": "object", "additionalProperties": False, "required": names, "properties": properties}


def answer_schema(max_findings: int) -> dict[str, Any]:
    """Return the JSON schema that an answer is asked to follow.

    `parse_answer` returns answers of this form. Fields that a finding may lack may also be null, because
    strict modes demand every field.
    """
    text = {"type": "string"}
    optional = {"type": ["string", "null"]}
    properties: dict[str, Any] = {
        "file": text,
        "hunk": optional,
        "line": {"type": ["integer", "null"]},
        "quote": text,
        "quote_end": optional,
        "end_line": {"type": ["integer", "null"]},
        "side": {"enum": ["new", "old", None]},
        "category": {"enum": list(CATEGORIES)},
        "rule_id": optional,
        "severity": {"enum": [str(severity) for severity in FindingSeverity]},
        "confidence": {"type": ["integer", "null"], "minimum": 0, "maximum": 100},
        "title": {**text, "maxLength": LIMITS["title"]},
        "problem": {**text, "maxLength": LIMITS["problem"]},
        "trigger": {**text, "maxLength": LIMITS["trigger"]},
        "suggestion": {**optional, "maxLength": LIMITS["suggestion"]},
        "replace": {"type": ["array", "null"], "items": text, "maxItems": 2},
        "with": optional,
        "context": optional,
    }
    finding = closed_object(properties, ("file", "quote", "title", "problem", "severity"))
    lists = {
        "files_read": {"type": "array", "items": text},
        "seen": {"type": "array", "items": text},
        "findings": {"type": "array", "maxItems": max_findings, "items": finding},
    }
    return closed_object(lists, ("findings", "files_read"))


def compact_schema() -> dict[str, Any]:
    """Return the schema for models with a small window: one finding, of few fields."""
    schema = answer_schema(1)
    finding = schema["properties"]["findings"]["items"]
    kept = ("file", "line", "quote", "severity", "title", "problem", "suggestion")
    finding["properties"] = {name: finding["properties"][name] for name in kept}
    return schema


def strict_schema(max_findings: int, is_compact: bool = False) -> dict[str, Any]:
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

    return reduced(compact_schema() if is_compact else answer_schema(max_findings))


class UnusableAnswer(Exception):
    """Raised when nothing of an answer can be used; the message is ours and quotes nothing."""


def parse_answer(text: str, max_findings: int) -> dict[str, Any]:
    """Return the `findings` and `files_read` of an answer by the schema, strings cleaned.

    Each finding is judged alone (guarantee G200). `places` has the place of each finding among all of the
    answer; `dropped` holds `[place, reason]` of each that could not be used. `coerced` counts, by field, the
    values written in another form; `cut` says that the answer ended early. Raises UnusableAnswer when the
    answer says nothing, or when none of its findings is usable.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise UnusableAnswer("the answer is too long")
    reading = read_answer(text.replace("\r\n", "\n"))
    if not reading.is_answer and not reading.raw:
        raise UnusableAnswer(_nothing_said(text, reading))
    coerced: Counter[str] = Counter()
    dropped: list[list[Any]] = []
    found: list[tuple[int, dict[str, Any]]] = []
    problems: list[str] = []
    for number, (raw, around) in enumerate(reading.raw):
        finding, problem = _judged(raw, around, coerced)
        if finding is None:
            dropped.append([number, "incomplete"])
            problems.append(f"findings/{number} {problem}")
        elif any(finding == other for _, other in found):
            dropped.append([number, "repeated"])
        else:
            found.append((number, finding))
    if reading.is_cut and not found:
        raise UnusableAnswer("the answer ended before its first finding was complete")
    if problems and not found:
        raise UnusableAnswer(problems[0])
    if len(found) > max_findings:
        found.sort(key=lambda entry: _rank(entry[1]))
        dropped += [[number, "over_the_limit"] for number, _ in found[max_findings:]]
        del found[max_findings:]
    # They are only compared with what was sent.
    files_read = [path for path in reading.files_read[:1000] if path == clean(path)]
    return {
        "findings": [finding for _, finding in found],
        "places": [number for number, _ in found],
        "files_read": files_read,
        "seen": reading.seen[:MAX_SEEN],
        "coerced": dict(coerced),
        "dropped": dropped,
        "cut": reading.is_cut,
    }


def _judged(
    raw: object, around: Mapping[str, object], coerced: Counter[str]
) -> tuple[dict[str, Any] | None, str]:
    """Return a finding by the schema, or what it lacks."""
    if not isinstance(raw, Mapping):
        return None, "is not an object"
    finding, counts = shaped(raw, around)
    missing = [name for name in ("file", "problem") if not (finding[name] or "").strip()]
    if missing:
        return None, f"lacks {', '.join(missing)}"
    for name in _TEXTS:
        if finding[name]:
            finding[name] = clean(finding[name])[: LIMITS.get(name)]
    if finding["replace"]:
        finding["replace"] = [clean(quote) for quote in finding["replace"]]
    coerced.update(counts)
    return finding, ""


def _nothing_said(text: str, reading: Reading) -> str:
    if not text.strip():
        return "the answer is empty"
    return "the answer lacks findings" if reading.is_json else "the answer is not a JSON object"


def _rank(finding: Mapping[str, Any]) -> tuple[int, int]:
    return SEVERITY_ORDER[FindingSeverity(finding["severity"])], -(finding["confidence"] or 0)


def outline_of(text: str) -> str:
    """Return the form of an answer, for operators: its fields, no prose and no code of a change.

    Fields and short words stay, longer text becomes its length. Text that is not a JSON object is
    represented by its first characters. Bounded, and cleaned of secrets.
    """
    try:
        value = next((value for value, *_ in values_in(text[:MAX_ANSWER_CHARS], bool)))
        if not isinstance(value, dict):
            raise StopIteration
        shape = json.dumps(_shape(value), ensure_ascii=False)
    except StopIteration:
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
