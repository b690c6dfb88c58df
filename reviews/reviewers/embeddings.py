"""Client of any server that speaks OpenAI's embeddings protocol.

Redacted texts go in, their vectors come out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any, Self

from criticizer.redaction import RedactedText
from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.model import LlmConfig, ModelAnswer, token_count
from reviews.reviewers.openai import OpenAIClient
from reviews.reviewers.provider_errors import failure, failure_of_answer
from reviews.reviewers.transport import Transport

MAX_TEXTS = 64  # of one call
MAX_DIMENSIONS = 4_096

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Embedded(ModelAnswer):
    """The vectors of a call's texts, in order; all have the same dimension and unit length."""

    vectors: tuple[Vector, ...] = ()


class EmbeddingsClient:
    """A server of embeddings, used as an async context manager in one event loop.

    `dimensions` is the length of its vectors; 0: the model's own length.
    """

    def __init__(self, config: LlmConfig, dimensions: int = 0) -> None:
        self._config, self._dimensions = config, dimensions
        self._transport = Transport(config, OpenAIClient.credentials)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._transport.aclose()

    async def embed(self, texts: Sequence[RedactedText], call_id: str) -> Embedded:
        """Return the vectors of at most MAX_TEXTS texts.

        Raises `RedactionBlocked` from the guard, and `criticizer.resilience.failures` classes with
        `Component.REVIEWER`: SCHEMA_INVALID for anything but that many vectors of numbers.
        """
        return await self._transport.within_deadline(call_id, lambda: self._embed(texts, call_id))

    async def _embed(self, texts: Sequence[RedactedText], call_id: str) -> Embedded:
        joined = RedactedText.joined(texts)  # one text for the guard

        def body(text: str) -> Mapping[str, object]:
            pieces, at = [], 0
            for one in texts:
                pieces.append(text[at : at + len(one)])
                at += len(one) + 1
            wanted = {"dimensions": self._dimensions} if self._dimensions else {}
            return {"model": self._config.model, "input": pieces, "encoding_format": "float", **wanted}

        answer = await self._transport.post("/embeddings", joined, body, call_id)
        if answer.status >= 300:
            raise failure_of_answer(answer, call_id)
        content: Any = answer.json()
        vectors = _vectors(content, len(texts))
        if vectors is None:
            raise failure(ErrorClass.SCHEMA_INVALID, "the answer holds no usable vectors", call=call_id)
        usage = content.get("usage")
        tokens = token_count(usage, "prompt_tokens") or token_count(usage, "total_tokens")
        return Embedded("", input_tokens=tokens, model=self._config.model, vectors=vectors)


def _vectors(content: object, count: int) -> tuple[Vector, ...] | None:
    """Return `count` normalised vectors of equal length, or None for any other answer."""
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(data, list) or len(data) != count or not all(isinstance(one, dict) for one in data):
        return None
    indexes = [one.get("index", place) for place, one in enumerate(data)]
    if sorted(map(str, indexes)) != sorted(map(str, range(count))):
        return None
    order = sorted(range(count), key=lambda place: int(indexes[place]))
    found = [_unit(data[place].get("embedding")) for place in order]
    lengths = {len(vector) for vector in found if vector is not None}
    if None in found or len(lengths) != 1:
        return None
    return tuple(vector for vector in found if vector is not None)


def _unit(values: object) -> Vector | None:
    if not isinstance(values, list) or not 0 < len(values) <= MAX_DIMENSIONS:
        return None
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return None
    try:
        length = math.hypot(*values)
        vector = tuple(one / length for one in values) if math.isfinite(length) and length else None
    except OverflowError:
        return None
    return vector


def similarity(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors of length 1."""
    if len(one) != len(other):
        raise ValueError("vectors of different lengths")
    return float(sum(map(mul, one, other)))
