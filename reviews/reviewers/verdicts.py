"""Verdicts of a verifying model, with the JSON schema it is asked for.

The text is as untrusted as any of a model. An object that is no verdict is left out: its finding then counts
as not verified, and stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from criticizer.redaction import clean
from reviews.reviewers.answer import MAX_ANSWER_CHARS, MAX_SEEN, UnusableAnswer, closed_object
from reviews.reviewers.answer_names import letters_of, severity_in
from reviews.reviewers.answer_reading import without_reasoning
from reviews.reviewers.base import FindingSeverity
from reviews.reviewers.lenient_json import values_in

MAX_VERDICTS = 50
MAX_WHY_CHARS = 240
_MAX_DEPTH = 6
_LIMITS = {"id": 40, "title": 400, "quote": 2_000, "why": MAX_WHY_CHARS}
_NAMES = {
    **dict.fromkeys(("id", "findingid", "finding", "key"), "id"),
    **dict.fromkeys(("title", "findingtitle"), "title"),
    **dict.fromkeys(("verdict", "decision", "judgement", "judgment", "conclusion"), "verdict"),
    **dict.fromkeys(("quote", "quotedline", "evidence", "line"), "quote"),
    "severity": "severity",
    **dict.fromkeys(("why", "reason", "reasoning", "explanation", "rationale"), "why"),
}
_KNOWN = {*_NAMES, "verdicts", "seen"}


class Verdict(StrEnum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNSURE = "unsure"


_SAID = {
    **dict.fromkeys(("confirmed", "confirm", "confirms", "valid"), Verdict.CONFIRMED),
    **dict.fromkeys(("refuted", "refute", "refutes", "disproved", "falsepositive"), Verdict.REFUTED),
}


def verdict_schema() -> dict[str, Any]:
    """Return the JSON schema that a verifier is asked to follow, in the form of strict modes."""
    text = {"type": "string"}
    properties = {
        "id": text,
        "title": text,
        "verdict": {"type": "string", "enum": [str(verdict) for verdict in Verdict]},
        "quote": {"type": ["string", "null"]},
        "severity": {"type": "string", "enum": [str(severity) for severity in FindingSeverity]},
        "why": text,
    }
    lists = {
        "verdicts": {"type": "array", "items": closed_object(properties)},
        "seen": {"type": "array", "items": text},
    }
    return closed_object(lists)


def parse_verdicts(text: str) -> dict[str, Any]:
    """Return `verdicts` by the schema, every string cleaned and bounded, and `seen`.

    Raises UnusableAnswer when there is none.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise UnusableAnswer("the answer is too long")
    verdicts: list[dict[str, str]] = []
    seen: list[str] = []
    for block in without_reasoning(text):
        for value, *_ in values_in(block, lambda name: letters_of(name) in _KNOWN):
            for raw in _objects(value, 0):
                if isinstance(words := raw.get("seen"), list):
                    seen += [word[:40] for word in words if isinstance(word, str)]
                if (verdict := _verdict(raw)) is not None:
                    verdicts.append(verdict)
        if verdicts:
            break
    if not verdicts:
        raise UnusableAnswer("the answer holds no verdict")
    return {"verdicts": verdicts[:MAX_VERDICTS], "seen": seen[:MAX_SEEN]}


def _objects(value: object, depth: int) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a value; a verdict that stands below a key takes the key as its id."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        yield value
        for name, inner in value.items():
            if isinstance(inner, dict) and "verdict" in inner:
                inner = {"id": name, **inner}
            yield from _objects(inner, depth + 1)
    elif isinstance(value, list):
        for item in value[: 4 * MAX_VERDICTS]:
            yield from _objects(item, depth + 1)


def _verdict(raw: Mapping[str, object]) -> dict[str, str] | None:
    found = {"title": "", "quote": "", "severity": "", "why": ""}
    for name, value in raw.items():
        if (field := _NAMES.get(letters_of(name))) and isinstance(value, str):
            found[field] = value
    if not found.get("id") or "verdict" not in found:
        return None
    found["verdict"] = _SAID.get(letters_of(found["verdict"]), Verdict.UNSURE)
    found["severity"] = severity_in(found["severity"]) or ""
    return {name: clean(value)[: _LIMITS.get(name, 40)] for name, value in found.items()}
