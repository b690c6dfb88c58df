"""Interface of a language model client: redacted text in, the answer's text and cost out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypedDict

from criticizer.redaction import RedactedText

_ASSUMED_OUTPUT_TOKENS = 8192  # of a server whose own limit was too low


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """Configuration of one model server: the `LLM_*` environment, already validated.

    The next key is tried when the first is refused, so keys rotate without downtime. Without a
    key no credential is sent (local servers). `extra_body` is added to each request and replaces
    none of its fields but the temperature.
    """

    base_url: str
    model: str
    api_keys: Sequence[str] = field(default=(), repr=False)
    timeout_seconds: float = 120.0
    max_concurrency: int = 100
    max_output_tokens: int = 8192  # 0: not sent
    extra_body: Mapping[str, object] = field(default_factory=dict)
    max_answer_bytes: int = 1_000_000
    proxy_url: str = field(default="", repr=False)
    provider: str = "openai"

    def output_tokens(self, has_more_room: bool) -> int:
        """Return the limit of an answer, 0 for none."""
        return (
            2 * (self.max_output_tokens or _ASSUMED_OUTPUT_TOKENS)
            if has_more_room
            else self.max_output_tokens
        )


class TokenCounts(TypedDict):
    """The token counts that an answer reports, named as in `ModelAnswer`; 0 where it has none."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The raw answer of one call. `text` is untrusted; `finish_reason` is the provider's term."""

    text: str = field(repr=False)
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str = ""
    model: str = ""
    by_fallback: bool = False
    characters: int = 0  # of the request, if its tokens are known
    cached_tokens: int = 0  # of `input_tokens`, read from the server's cache of prefixes
    cache_write_tokens: int = 0  # of `input_tokens`, put there


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model; `system` is this program's own constant text.

    `call_id` is sent as `X-Request-Id` and logged. With `has_more_room` the answer may be twice as long.
    """

    system: str
    user: RedactedText
    schema: Mapping[str, object]
    call_id: str
    has_more_room: bool = False

    @property
    def characters(self) -> int:
        return len(self.system) + len(self.user)


class TokenLimit(StrEnum):
    """Scope of a limit of tokens; the last two begin anew each day."""

    REVIEW = "review"
    CHANGE = "change"
    SOURCE = "source"
    DAY = "day"

    @property
    def is_daily(self) -> bool:
        return self in (TokenLimit.SOURCE, TokenLimit.DAY)


class LimitReached(Exception):
    """Raised when a call does not start because it would exceed a limit of `tokens`.

    No later call of the review starts either.
    """

    def __init__(self, limit: TokenLimit, tokens: int) -> None:
        super().__init__(f"the limit {limit} of {tokens} tokens")
        self.limit = limit
        self.tokens = tokens


class ModelClient(Protocol):
    """A language model behind a network, with one object per event loop."""

    @property
    def model(self) -> str: ...

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask once and return the answer. Nothing is retried here.

        Raises TypeError for a `user` that is not `RedactedText`, `RedactionBlocked` from the guard,
        and otherwise only `criticizer.resilience.failures` classes with `Component.REVIEWER`.
        """
        ...

    async def aclose(self) -> None: ...


def token_count(counts: object, name: str) -> int:
    """Return a count of tokens from an object of a server, 0 where it is missing or invalid."""
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
