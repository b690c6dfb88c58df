"""The surroundings of a review, as callbacks and limits."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from criticizer.redaction import RedactedText, Redactor
from reviews.reviewers.model import ModelClient
from reviews.reviewers.prompt_leaks import draw_boundary
from reviews.reviewers.units import KnownUnit
from reviews.sources.passes import Passes


async def always() -> bool:
    return True


async def _keep_nothing() -> None:
    pass


def _redact(texts: Sequence[str]) -> Sequence[RedactedText]:
    return Redactor().redact_all(texts)


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The callbacks and the limits of a review; the defaults do nothing.

    `slots` bounds the calls of one event loop.
    `may_continue` is called before a model call, once a second at most: after False, none starts.
    Once `now` has reached `until` none starts either, unless nothing at all is reviewed; calls that look for
    defects end `verify_seconds` earlier when there is something to verify.
    `on_progress` is called after each finished part but the last; before it `on_part`, with the number of
    finished parts and of all. `keep` is called when finished answers must not be paid for again.
    With `is_last_attempt` a part whose call times out is left out instead of ending the attempt.
    `verifier` judges the findings, None for no second pass; `redact` cleans the verifier's questions by the
    policy of the change.
    `passes` says how often the model is asked about which files; `second` is the model of every other pass,
    None for the first one. `known` holds, by key, the answers of earlier reviews about units of the change.
    """

    slots: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    may_continue: Callable[[], Awaitable[bool]] = always
    on_progress: Callable[[], None] = lambda: None
    on_part: Callable[[int, int], None] = lambda finished, total: None
    keep: Callable[[], Awaitable[None]] = _keep_nothing
    verifier: ModelClient | None = None
    passes: Passes = field(default_factory=Passes)
    second: ModelClient | None = None
    redact: Callable[[Sequence[str]], Sequence[RedactedText]] = _redact
    is_last_attempt: bool = False
    known: Mapping[str, KnownUnit] = field(default_factory=dict)
    now: Callable[[], float] = time.monotonic
    until: float = math.inf
    verify_seconds: float = 0.0
    boundary: Callable[[], str] = draw_boundary
    new_call_id: Callable[[], str] = lambda: uuid.uuid4().hex
