"""One review from a fetched change to findings and coverage (specification 000, 8.1; 001, 9.5).

`prepare` does the work of the processor (diffs, redaction, checks, packing) and may run in a
thread. `review_prepared` only waits for the network. Both together are `review_change`.

    change ─► diff ─► checks ─────────────────────────────► findings ─► merge ─► Review
                 └─► redact ─► pack ─► model, per chunk ─► anchor ──┘

A chunk whose answer cannot be used, even after one repair turn, is named in the coverage and
the review goes on. Retryable failures end the attempt; the answers already paid for are in
`progress`, and the next attempt starts from them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import structlog

from criticizer.failures import ErrorClass, Failure, PermanentFailure, Place
from criticizer.redaction import RedactedText, RedactionBlocked, Redactor, clean
from reviews.reviewers.anchoring import anchor, merged
from reviews.reviewers.answer import MAX_ANSWER_CHARS, UnusableAnswer, parse_answer, strict_schema
from reviews.reviewers.base import Finding, Review, Usage
from reviews.reviewers.model import ModelAnswer, ModelClient
from reviews.reviewers.preparation import Prepared, ReviewLimits, prepare
from reviews.reviewers.prompt import (
    PROMPT_VERSION,
    draw_boundary,
    repair_text,
    request_text,
    shown_path,
    system_prompt,
)
from reviews.sources.base import Change

NO_MODEL_BANNER = "Only deterministic checks ran: no language model is configured."

# These say nothing about the other chunks: the review goes on without this one.
_CHUNK_FAILURES = frozenset({ErrorClass.SCHEMA_INVALID, ErrorClass.TOKEN_LIMIT, ErrorClass.POLICY_REJECTED})
_REASONS = {
    ErrorClass.SCHEMA_INVALID: "not reviewed: the model's answer could not be used",
    ErrorClass.TOKEN_LIMIT: "not reviewed: too long for the model's window",
    ErrorClass.POLICY_REJECTED: "not reviewed: the model refused this part",
}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """A review, and the redacted artifacts that led to it, for storage.

    `prompts[i]` was answered by `answers[i]`; a repair turn is a pair of its own. Answers
    taken over from an earlier attempt are not repeated. `dropped` counts rejected findings.
    """

    review: Review
    prompts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _ChunkResult:
    findings: tuple[Finding, ...] = ()
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    reason: str = ""  # why it was not reviewed
    failure: Failure | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)


async def review_change(
    change: Change,
    redactor: Redactor,
    client: ModelClient | None,
    limits: ReviewLimits = ReviewLimits(),  # noqa: B008 - frozen
    progress: MutableMapping[str, str] | None = None,
) -> ReviewOutcome:
    """Review a change: `prepare` in a thread, then `review_prepared`."""
    prepared = await asyncio.to_thread(prepare, change, redactor, limits)
    return await review_prepared(prepared, client, limits, progress)


async def review_prepared(
    prepared: Prepared,
    client: ModelClient | None,
    limits: ReviewLimits = ReviewLimits(),  # noqa: B008 - frozen
    progress: MutableMapping[str, str] | None = None,
    *,
    banner: str = NO_MODEL_BANNER,
    boundary: Callable[[], str] = draw_boundary,
    new_call_id: Callable[[], str] = lambda: uuid.uuid4().hex,
) -> ReviewOutcome:
    """Ask the model about every chunk and put the review together.

    `progress` maps a chunk's digest to its finished answer as JSON; it is read first and added
    to as answers arrive, also when this raises. Without a client the outcome is that of the
    checks, under `banner`. No findings is a valid outcome.

    Raises RetryableFailure as the client does, once the calls in flight have ended;
    PermanentFailure AUTH_DENIED, PERMISSION_DENIED, NOT_FOUND or CONFIG_INVALID at the first
    such answer; SCHEMA_INVALID or POLICY_REJECTED when no chunk could be reviewed for that
    reason; REDACTION_BLOCKED when the guard refuses a request.
    """
    if client is None:
        return ReviewOutcome(
            Review(merged(prepared.findings), prepared.coverage_by_checks(), banner, Usage(), "")
        )
    asking = _Asking(
        prepared, client, limits, progress if progress is not None else {}, boundary, new_call_id
    )
    results = await asking.all_chunks()
    failures = [result.failure for result in results if result.failure is not None]
    unusable = [f for f in failures if f.error_class is not ErrorClass.TOKEN_LIMIT]
    if unusable and len(failures) == len(results):
        raise unusable[0]
    usage = sum((result.usage for result in results), Usage())
    review = Review(
        findings=merged([*prepared.findings, *(f for result in results for f in result.findings)]),
        coverage=prepared.coverage([result.reason for result in results]),
        usage=usage,
        model=next((result.model for result in results if result.model), client.model),
    )
    dropped: Counter[str] = Counter()
    for result in results:
        dropped.update(result.dropped)
    return ReviewOutcome(review, tuple(asking.prompts), tuple(asking.answers), dict(dropped))


class _Asking:
    """The model's part of one review."""

    def __init__(
        self,
        prepared: Prepared,
        client: ModelClient,
        limits: ReviewLimits,
        progress: MutableMapping[str, str],
        boundary: Callable[[], str],
        new_call_id: Callable[[], str],
    ) -> None:
        self._prepared = prepared
        self._client = client
        self._limits = limits
        self._progress = progress
        self._boundary = boundary
        self._new_call_id = new_call_id
        self._system = system_prompt(limits.max_findings_per_chunk)
        self._schema = strict_schema(limits.max_findings_per_chunk)
        self.prompts: list[str] = []
        self.answers: list[str] = []

    async def all_chunks(self) -> list[_ChunkResult]:
        """Ask about every chunk, a few at a time. Raises what ends the attempt."""
        parts = iter(range(len(self._prepared.chunks)))
        results: dict[int, _ChunkResult] = {}
        ending: list[Failure] = []

        async def work() -> None:
            # Calls in flight are paid for, so they end; no new one starts after a failure.
            while not ending and (part := next(parts, None)) is not None:
                try:
                    results[part] = await self._chunk(part)
                except Failure as error:
                    ending.append(error)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._limits.max_parallel_calls, len(self._prepared.chunks))):
                    group.create_task(work())
        except ExceptionGroup as group_error:
            # A bug reads better as itself than as a group.
            raise group_error.exceptions[0] from None
        if ending:
            # A refused credential must not hide behind a timeout of another call.
            raise next((error for error in ending if not error.retryable), ending[0])
        return [results[part] for part in range(len(self._prepared.chunks))]

    async def _chunk(self, part: int) -> _ChunkResult:
        digest = self._digest(part)
        known = self._progress.get(digest)
        if known is not None:
            return self._result(part, json.loads(known))
        call_id = self._new_call_id()
        calls: list[ModelAnswer | None] = []
        try:
            answer = await self._ask(part, call_id, calls)
        except RedactionBlocked as blocked:
            raise PermanentFailure(
                ErrorClass.REDACTION_BLOCKED,
                Place.INTERNAL,
                "the guard refused a request to the model",
                context={"call": call_id, "reason_code": blocked.reason_code},
            ) from None
        except Failure as error:
            if error.error_class not in _CHUNK_FAILURES:
                raise
            log.warning("chunk_not_reviewed", call=call_id, part=part + 1, error_class=str(error.error_class))
            reason = f"{_REASONS[error.error_class]} (call {call_id})"
            return _ChunkResult(usage=replace(_usage(calls), failed_chunks=1), reason=reason, failure=error)
        model = next((call.model for call in reversed(calls) if call is not None), "")
        finished = {"answer": answer, "usage": asdict(_usage(calls)), "model": model}
        self._progress[digest] = json.dumps(finished)
        return self._result(part, finished)

    async def _ask(self, part: int, call_id: str, calls: list[ModelAnswer | None]) -> dict[str, object]:
        """Call, and call once more with the reason when the answer cannot be used."""
        user = request_text(self._prepared.text, self._prepared.chunks, part, self._boundary)
        cap = self._limits.max_findings_per_chunk
        first = await self._call(user, call_id, calls)
        try:
            return parse_answer(first.text, cap)
        except UnusableAnswer as error:
            was_cut = first.finish_reason in {"length", "max_tokens"}
            problem = "it was cut off at the output limit, report fewer findings" if was_cut else str(error)
            log.info("answer_repair_asked", call=call_id, problem=problem)
        second = await self._call(repair_text(user, problem), f"{call_id}-repair", calls)
        try:
            return parse_answer(second.text, cap)
        except UnusableAnswer as error:
            raise PermanentFailure(
                ErrorClass.SCHEMA_INVALID,
                Place.REVIEWER,
                f"two answers could not be used: {error}",
                context={"call": call_id, "model": self._client.model},
            ) from None

    async def _call(self, user: RedactedText, call_id: str, calls: list[ModelAnswer | None]) -> ModelAnswer:
        calls.append(None)  # counts also when it fails
        answer = await self._client.complete(self._system, user, self._schema, call_id)
        calls[-1] = answer
        self.prompts.append(user.text)
        self.answers.append(clean(answer.text, MAX_ANSWER_CHARS))
        return answer

    def _result(self, part: int, finished: Mapping[str, object]) -> _ChunkResult:
        chunk = self._prepared.chunks[part]
        shown = {index: shown_path(self._prepared.text, index) for index in chunk.files}
        answer = finished["answer"]
        assert isinstance(answer, dict)
        anchored = anchor(answer, chunk, shown, self._prepared.paths)
        unconfirmed = len(set(shown.values()) - set(answer["files_read"]))
        if anchored.dropped or unconfirmed:
            log.info("answer_checked", part=part + 1, files_unconfirmed=unconfirmed, **anchored.dropped)
        numbers = finished["usage"]
        assert isinstance(numbers, dict)
        return _ChunkResult(
            findings=anchored.findings,
            usage=Usage(**numbers),
            model=str(finished["model"]),
            dropped=anchored.dropped,
        )

    def _digest(self, part: int) -> str:
        """Identify a request by its content: the boundary and the call id differ each time."""
        user = request_text(self._prepared.text, self._prepared.chunks, part, lambda: "digest")
        whole = "\0".join([PROMPT_VERSION, self._client.model, self._system, user.text])
        return hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()


def _usage(calls: Sequence[ModelAnswer | None]) -> Usage:
    answered = [call for call in calls if call is not None]
    return Usage(
        calls=len(calls),
        input_tokens=sum(call.input_tokens for call in answered),
        output_tokens=sum(call.output_tokens for call in answered),
        repaired=max(0, len(calls) - 1),
    )


__all__ = [
    "Prepared",
    "ReviewLimits",
    "ReviewOutcome",
    "prepare",
    "review_change",
    "review_prepared",
]
