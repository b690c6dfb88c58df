"""Reads answers about sections, and believes them as far as their quotes were sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from criticizer.redaction import clean
from reviews.reviewers.anchoring import LEAST_CONFIDENCE, LESS_CONFIDENCE, PLACEHOLDER
from reviews.reviewers.answer import MAX_ANSWER_CHARS, UnusableAnswer
from reviews.reviewers.answer_names import letters_of
from reviews.reviewers.answer_reading import without_reasoning
from reviews.reviewers.checks.hidden_text import addresses_reviewer
from reviews.reviewers.chunks import Chunk
from reviews.reviewers.document_sections import ShownSection
from reviews.reviewers.lenient_json import values_in
from reviews.reviewers.quote_readings import normal, readings_of
from reviews.reviewers.quotes import MIN_PART_CHARS, ShownText
from reviews.reviewers.refutations import MIN_QUOTE_CHARS, Proof, proof_of

NO_JSON = "the answer holds no JSON object"
NO_VERDICT = "the answer has no verdict of drifted, holds, uncertain"
_LIMITS = {"claim": 160, "quote_document": 2_000, "quote_code": 2_000, "reasoning": 600, "replacement": 600}
_NAMES = {
    **dict.fromkeys(("verdict", "decision", "conclusion"), "verdict"),
    **dict.fromkeys(("claim", "title"), "claim"),
    **dict.fromkeys(("quotedocument", "documentquote", "quotedoc"), "quote_document"),
    **dict.fromkeys(("quotecode", "codequote"), "quote_code"),
    **dict.fromkeys(("reasoning", "why", "reason", "explanation"), "reasoning"),
    **dict.fromkeys(("replacement", "suggestedfix", "suggestion"), "replacement"),
    "confidence": "confidence",
}
_MAX_CONFIDENCE = 60  # of what a model alone says is untrue


class SectionVerdict(StrEnum):
    DRIFTED = "drifted"
    HOLDS = "holds"
    UNCERTAIN = "uncertain"


_SAID = {
    **dict.fromkeys(("drifted", "refuted", "outdated", "untrue"), SectionVerdict.DRIFTED),
    **dict.fromkeys(("holds", "verified", "true", "uptodate"), SectionVerdict.HOLDS),
    **dict.fromkeys(("uncertain", "unsure", "unknown"), SectionVerdict.UNCERTAIN),
}


@dataclass(frozen=True, slots=True)
class SectionJudgement:
    """The verdict on a section once its quotes are looked up.

    `first` to `last` are the quoted lines of the section, from 0.
    """

    verdict: SectionVerdict
    said: SectionVerdict
    confidence: int
    first: int | None = None
    last: int | None = None
    proof: Proof | None = None

    @property
    def lacks_evidence(self) -> bool:
        return self.said is not SectionVerdict.UNCERTAIN and self.proof is None


def parse_document_answer(text: str) -> dict[str, Any]:
    """Return the first answer with a verdict, every string cleaned and bounded.

    Raises UnusableAnswer where there is none, or the text is too long.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise UnusableAnswer("the answer is too long")
    problem = NO_JSON
    for block in without_reasoning(text):
        for value, *_ in values_in(block, lambda name: letters_of(name) in _NAMES):
            for raw in _objects(value):
                problem = NO_VERDICT
                if (found := _answer(raw)) is not None:
                    return found
    raise UnusableAnswer(problem)


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    """Yield an object, or the objects of a list, each followed by those among its values."""
    for one in value[:10] if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            yield one
            yield from (inner for inner in one.values() if isinstance(inner, dict))


def _answer(raw: Mapping[str, object]) -> dict[str, Any] | None:
    found: dict[str, Any] = dict.fromkeys(_LIMITS, "")
    confidence, verdict = 50, None
    for name, value in raw.items():
        field = _NAMES.get(letters_of(name))
        if field == "confidence" and isinstance(value, int | float) and math.isfinite(value):
            confidence = int(max(0, min(100, value * 100 if 0 < value < 1 else value)))
        elif field == "verdict" and isinstance(value, str):
            verdict = _SAID.get(letters_of(value))
        elif field in _LIMITS and isinstance(value, str):
            found[field] = clean(value)[: _LIMITS[field]]
    return None if verdict is None else {**found, "verdict": verdict.value, "confidence": confidence}


def judged(answer: Mapping[str, Any], section: ShownSection, chunk: Chunk) -> SectionJudgement:
    """Return the judgement of an answer: `drifted` counts only with a quote of either side.

    `holds` without evidence keeps its verdict, with less confidence.
    """
    verdict, confidence = SectionVerdict(answer["verdict"]), int(answer["confidence"])
    proof = None
    if PLACEHOLDER not in answer["quote_code"]:
        proof = proof_of(answer["quote_code"], chunk, ShownText(chunk))
        proof = proof if proof and _is_near_change(proof, chunk) else None
    place = _place(answer["quote_document"], section)
    if verdict is SectionVerdict.DRIFTED:
        if proof is None or place is None:
            return SectionJudgement(SectionVerdict.UNCERTAIN, verdict, LEAST_CONFIDENCE)
        return SectionJudgement(verdict, verdict, min(confidence, _MAX_CONFIDENCE), *place, proof)
    if verdict is SectionVerdict.HOLDS and proof is None:
        confidence = max(LEAST_CONFIDENCE, confidence - LESS_CONFIDENCE)
    return SectionJudgement(verdict, verdict, confidence, proof=proof)


def _is_near_change(proof: Proof, chunk: Chunk) -> bool:
    return any(
        line.is_near_change
        for hunk in chunk.hunks
        for line in hunk.lines
        if (f"{hunk.file} {line.side}", line.number) == (proof.source, proof.number)
    )


def _place(quote: str, section: ShownSection) -> tuple[int, int] | None:
    """Return the first and last line, from 0, of a quote in a section: verbatim but for spaces."""
    if PLACEHOLDER in quote or addresses_reviewer(quote):
        return None
    normals = [normal(line) for line in section.lines]
    joined = "".join(normals)
    for reading in readings_of(quote):
        needle = "".join(map(normal, reading.lines))
        at = joined.find(needle)
        is_enough = len(needle) >= MIN_PART_CHARS or (len(needle) >= MIN_QUOTE_CHARS and needle in normals)
        if at >= 0 and is_enough:
            return _line_of(normals, at), _line_of(normals, at + len(needle) - 1)
    return None


def _line_of(normals: list[str], offset: int) -> int:
    end = 0
    for number, line in enumerate(normals):
        end += len(line)
        if offset < end:
            return number
    return len(normals) - 1
