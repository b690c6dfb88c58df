"""The model's part of one review: requests, their limits, and their results.

    part ─► slot ─► may it continue? ─► permit? ─► call ─► usable? ── no ─► one repair turn
                                                             └─ yes ─► progress, findings

A failure that concerns one part only (unusable, too long, refused) leaves that part out. A part
that the server cut is asked about again in halves, and those to come are halved before.
Any other ends the attempt: no further call starts, and the calls in flight are finished.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

import structlog

from criticizer.redaction import RedactedText, RedactionBlocked, Redactor, clean
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    kind_of,
)
from reviews.reviewers.anchoring import anchor
from reviews.reviewers.answer import (
    MAX_ANSWER_CHARS,
    UnusableAnswer,
    outline_of,
    parse_answer,
    strict_schema,
)
from reviews.reviewers.base import Fated, Finding, Usage
from reviews.reviewers.chunks import tokens
from reviews.reviewers.coverage_texts import CUT_BY_SERVER, NOT_REVIEWED, OUT_OF_ROOM, STOPPED
from reviews.reviewers.model import ModelAnswer, ModelClient
from reviews.reviewers.prepare import Prepared, ReviewLimits
from reviews.reviewers.prompt import (
    FINDER_VERSION,
    draw_boundary,
    marks_of,
    repair_text,
    request_text,
    shown_path,
    system_prompt,
    without_leaks,
    words_in,
)
from reviews.reviewers.splitting import Part
from reviews.reviewers.truncation import LEAST_TOKENS, may_be_window, was_cut

# These concern one part only: the review goes on without it.
OF_THE_PART = frozenset({ErrorClass.SCHEMA_INVALID, ErrorClass.TOKEN_LIMIT, ErrorClass.POLICY_REJECTED})
# These may be the part's own fault, which is assumed at the last attempt.
_OF_THE_PART_AT_LAST = frozenset({ErrorClass.NETWORK_TIMEOUT, ErrorClass.UPSTREAM_INTERNAL})
# The answer reached the limit of its length.
_ENDED_EARLY = frozenset({"length", "max_tokens"})
_SAME_WINDOW = 0.99
ASK_EVERY_SECONDS = 1.0
LONG_ANSWER_CHARS = 40_000
_CUT_OFF = "it was cut off at the output limit, report fewer findings"

log = structlog.get_logger()


async def always() -> bool:
    return True


def _nothing() -> None:
    pass


async def _keep_nothing() -> None:
    pass


def _redact(texts: Sequence[str]) -> Sequence[RedactedText]:
    return Redactor().redact_all(texts)


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The surroundings of a review, as callbacks and limits. The defaults do nothing.

    `slots` bounds the calls of one event loop.
    `may_continue` is called before a model call, once a second at most: after False, none starts.
    `on_progress` is called after each finished part but the last, `keep` when what was finished must not
    be paid for again. With `is_last_attempt` a part whose call times out is left out instead of ending the
    attempt. `verifier` judges the findings, None for no second pass; `redact` cleans what it is asked,
    by the policy of the change.
    """

    slots: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    may_continue: Callable[[], Awaitable[bool]] = always
    on_progress: Callable[[], None] = _nothing
    keep: Callable[[], Awaitable[None]] = _keep_nothing
    verifier: ModelClient | None = None
    redact: Callable[[Sequence[str]], Sequence[RedactedText]] = _redact
    is_last_attempt: bool = False
    now: Callable[[], float] = time.monotonic
    boundary: Callable[[], str] = draw_boundary
    new_call_id: Callable[[], str] = lambda: uuid.uuid4().hex


@dataclass(slots=True)
class PartResult:
    """Result of one part. `reason` says why it was not reviewed; `failure` is set if it failed.

    With findings that can be verified, `request` is what was asked.
    """

    part: Part
    findings: tuple[Finding, ...] = ()
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    by_fallback: bool = False
    reason: str = ""
    failure: Failure | None = None
    dropped: tuple[Fated, ...] = ()
    request: RedactedText | None = None


class NoFurtherCall(Exception):
    """The review ends before this call."""


class ModelReview:
    """Reviews the parts of one prepared change. `progress` is read first and added to."""

    def __init__(
        self,
        prepared: Prepared,
        client: ModelClient,
        limits: ReviewLimits,
        progress: MutableMapping[str, str],
        around: ReviewContext,
    ) -> None:
        self.prepared = prepared
        self._client = client
        self.limits = limits
        self.progress = progress
        self.around = around
        self._system = system_prompt(
            limits.max_findings_per_chunk, limits.is_compact, around.verifier is not None
        )
        self._schema = strict_schema(limits.max_findings_per_chunk, limits.is_compact)
        chunks = prepared.chunks
        self._parts = [Part(chunks, index) for index in range(len(chunks))]
        self._splits_left = limits.max_calls
        self._too_long = math.inf  # characters of the shortest part that the server cut
        self._window = math.inf  # tokens of a request that was cut, as the server counts
        self._has_more_room = False  # for answers
        self._asked_at = around.now()
        self.endings: list[Failure | DependencyUnavailable] = []
        self.is_stopped = False
        self.prompts: list[str] = []
        self.answers: list[str] = []

    @property
    def system_chars(self) -> int:
        return len(self._system)

    async def all_parts(self) -> list[PartResult]:
        """Review every part, a few at a time. Raises what ends the attempt."""
        parts = iter(self._parts)
        results: dict[int, list[PartResult]] = {}

        async def work() -> None:
            while not self._is_over() and (part := next(parts, None)) is not None:
                try:
                    results[part.index] = await self._part(part)
                except NoFurtherCall:
                    return
                except (Failure, DependencyUnavailable) as error:
                    self.endings.append(error)
                else:
                    if len(results) < len(self._parts):
                        self.around.on_progress()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.limits.max_parallel_calls, len(self._parts))):
                    group.create_task(work())
        except ExceptionGroup as group_error:
            # A bug is easier to read as itself than as a group.
            raise group_error.exceptions[0] from None
        if self.is_stopped:
            return self.known_parts(STOPPED, results)
        if self.endings:
            raise _worst([*self.endings, *_retryable(chain.from_iterable(results.values()))])
        return [result for part in self._parts for result in results[part.index]]

    def known_parts(
        self, reason: str, results: Mapping[int, list[PartResult]] | None = None
    ) -> list[PartResult]:
        """Return `results`, completed from the progress, with `reason` for unfinished parts."""
        done = results or {}
        return [found for part in self._parts for found in done.get(part.index) or self._known(part, reason)]

    def _is_over(self) -> bool:
        return self.is_stopped or bool(self.endings)

    def _known(self, part: Part, reason: str) -> list[PartResult]:
        finished = self._finished(self._digest(part))
        if finished is None:
            return [PartResult(part, reason=reason)]
        if finished["answer"] is not None:
            return [self._result(part, finished)]
        return _with_cost(
            finished, [result for half in part.halves() for result in self._known(half, reason)]
        )

    def _finished(self, digest: str) -> dict[str, Any] | None:
        """Return what the progress holds of a part; its `answer` is None if its halves are asked about."""
        known = self.progress.get(digest)
        finished: dict[str, Any] | None = json.loads(known) if known is not None else None
        return finished

    async def _part(self, part: Part) -> list[PartResult]:
        """Review a part, in halves when the server cuts requests as long as it (guarantee G184)."""
        digest = self._digest(part)
        finished = self._finished(digest)
        if finished is None and part.characters >= self._too_long and self._may_halve(part):
            finished = self._note(digest, None, Usage())
        if finished is None:
            asked = await self._asked(part, digest)
            if isinstance(asked, PartResult):
                return [asked]
            finished = asked
        if finished["answer"] is not None:
            return [self._result(part, finished)]
        self._splits_left -= 1
        self._too_long = min(self._too_long, part.characters)
        results: list[PartResult] = []
        for half in part.halves():
            results += await self._part(half)
            self.around.on_progress()
        return _with_cost(finished, results)

    def _may_halve(self, part: Part) -> bool:
        return self._splits_left > 0 and bool(part.halves())

    def _note(
        self, digest: str, answer: Mapping[str, Any] | None, usage: Usage, call: ModelAnswer | None = None
    ) -> dict[str, Any]:
        by = {"model": call.model, "by_fallback": call.by_fallback} if call else {"model": ""}
        finished = {"answer": answer, "usage": asdict(usage), **by}
        self.progress[digest] = json.dumps(finished)
        return finished

    async def _asked(self, part: Part, digest: str) -> PartResult | dict[str, Any]:
        """Ask about a part; return what the progress holds of it then, or the result of its failure."""
        call_id = self.around.new_call_id()
        calls: list[ModelAnswer | None] = []
        try:
            answer = await self._ask(part, call_id, calls)
        except Failure as error:
            if not self._is_of_the_part(error):
                raise
            log.warning(
                "chunk_not_reviewed",
                call=call_id,
                part=part.index + 1,
                calls=len(calls),
                model=self._client.model,
                estimated_tokens=tokens(self._request(part)),
                **error.facts,
            )
            why = OUT_OF_ROOM if error.detail == OUT_OF_ROOM else NOT_REVIEWED[error.error_class]
            usage = replace(usage_of(calls), failed_chunks=1)
            return PartResult(part, usage=usage, reason=f"{why} (call {call_id})", failure=error)
        usage = replace(usage_of(calls), cut=int(answer["request_cut"]))
        read = calls[-1].input_tokens if calls[-1] is not None else 0
        is_halved = (answer["request_cut"] or may_be_window(read)) and self._may_halve(part)
        return self._note(digest, None if is_halved else answer, usage, calls[-1])

    def _is_of_the_part(self, error: Failure) -> bool:
        if error.error_class in OF_THE_PART:
            return True
        return self.around.is_last_attempt and error.error_class in _OF_THE_PART_AT_LAST

    def _request(self, part: Part) -> RedactedText:
        return request_text(self.prepared.text, part.chunks, part.index, self.around.boundary)

    async def _ask(self, part: Part, call_id: str, calls: list[ModelAnswer | None]) -> dict[str, Any]:
        """Call, and call once more with the reason when nothing of the answer is usable.

        An answer that ended at its limit gets twice the room, and so do those after it.
        """
        user = self._request(part)
        first = await self.call(user, call_id, calls)
        try:
            return self._honest(await self._parsed(first), user, first, call_id)
        except UnusableAnswer as error:
            if may_be_window(first.input_tokens) or self.is_cut(user, (), first, call_id):
                return {"findings": [], "files_read": [], "request_cut": True}
            self._has_more_room |= first.finish_reason in _ENDED_EARLY
            problem = _CUT_OFF if first.finish_reason in _ENDED_EARLY else str(error)
            kind = kind_of(ErrorClass.SCHEMA_INVALID, Component.REVIEWER)
            log.warning(
                "answer_repair_asked",
                call=call_id,
                part=part.index + 1,
                problem=problem,
                characters=len(first.text),
                **kind.facts,
            )
        try:
            second = await self.call(repair_text(user, problem), f"{call_id}-repair", calls)
        except Failure as refused:
            if first.finish_reason not in _ENDED_EARLY or refused.error_class not in OF_THE_PART:
                raise
            self._has_more_room = False  # more than the server gives
            raise PermanentFailure(ErrorClass.SCHEMA_INVALID, Component.REVIEWER, OUT_OF_ROOM) from refused
        try:
            return self._honest(await self._parsed(second), user, second, call_id)
        except UnusableAnswer as error:
            raise PermanentFailure(
                ErrorClass.SCHEMA_INVALID,
                Component.REVIEWER,
                OUT_OF_ROOM
                if second.finish_reason in _ENDED_EARLY
                else f"two answers could not be used: {error}",
                context={
                    "call": call_id,
                    "model": self._client.model,
                    "finish_reason": clean(second.finish_reason, 40),
                    "answer": outline_of(second.text),
                },
            ) from None

    async def _parsed(self, answer: ModelAnswer) -> dict[str, Any]:
        cap = self.limits.max_findings_per_chunk
        if len(answer.text) < LONG_ANSWER_CHARS:
            return parse_answer(answer.text, cap)
        # The other calls of this event loop must not wait for it.
        return await asyncio.to_thread(parse_answer, answer.text, cap)

    def _honest(
        self, answer: dict[str, Any], user: RedactedText, call: ModelAnswer, call_id: str
    ) -> dict[str, Any]:
        """Drop findings that repeat the marks of their request; note when the server cut it."""
        is_cut = self.is_cut(user, answer["seen"], call, call_id)
        marks = marks_of(user.text)
        kept, leaked = without_leaks(answer, marks)
        if leaked:
            log.warning("answer_repeats_request", call=call_id, findings=leaked)
        return {**kept, "request_cut": is_cut, "boundary": marks[0]}

    def is_cut(self, user: RedactedText, seen: Sequence[str], call: ModelAnswer, call_id: str) -> bool:
        """Return whether the server cut the request that was answered so."""
        characters = len(self._system) + len(user)
        is_cut = call.input_tokens >= self._window * _SAME_WINDOW or was_cut(
            words_in(user.text), seen, characters, call.input_tokens
        )
        if is_cut:
            self._window = min(self._window, max(call.input_tokens, LEAST_TOKENS))
            log.error(
                "request_cut_by_model_server", call=call_id, tokens=call.input_tokens, characters=characters
            )
        return is_cut

    async def call(
        self,
        user: RedactedText,
        call_id: str,
        calls: list[ModelAnswer | None],
        client: ModelClient | None = None,
        schema: Mapping[str, object] | None = None,
    ) -> ModelAnswer:
        """Ask the model, or another one, once all limits admit it; add the answer to `calls`."""
        client, schema = client or self._client, schema or self._schema
        async with self.around.slots:
            # The wait for a slot can be long: the state may have changed.
            await self._look_around()
            calls.append(None)  # counts also when it fails
            try:
                answer = await client.complete(
                    self._system, user, schema, call_id, has_more_room=self._has_more_room
                )
            except RedactionBlocked as blocked:
                raise PermanentFailure(
                    ErrorClass.REDACTION_BLOCKED,
                    Component.INTERNAL,
                    "the guard refused a request to the model",
                    context={"call": call_id, "reason_code": blocked.reason_code},
                ) from None
            characters = len(self._system) + len(user) if answer.input_tokens else 0
            calls[-1] = replace(answer, characters=characters)
        self.prompts.append(user.text)
        self.answers.append(clean(answer.text, MAX_ANSWER_CHARS))
        return answer

    async def _look_around(self) -> None:
        """Let the next call start, or raise NoFurtherCall."""
        if not self._is_over() and self.around.now() - self._asked_at >= ASK_EVERY_SECONDS:
            self._asked_at = self.around.now()  # before the answer, so that others skip it
            try:
                if not await self.around.may_continue():
                    self.is_stopped = True
            except (Failure, DependencyUnavailable) as error:
                self.endings.append(error)
        if self._is_over():
            raise NoFurtherCall

    def _result(self, part: Part, finished: Mapping[str, object]) -> PartResult:
        chunk = part.chunk
        shown = {index: shown_path(self.prepared.text, index) for index in chunk.files}
        answer = finished["answer"]
        assert isinstance(answer, dict)
        anchored = anchor(answer, chunk, shown, self.prepared.paths)
        dropped = Counter(fated.reason for fated in anchored.dropped)
        coerced = answer.get("coerced", {})
        unconfirmed = len(set(shown.values()) - set(answer["files_read"]))
        demoted = sum(finding.demoted for finding in anchored.findings)
        if dropped or unconfirmed or demoted or coerced:
            (log.warning if demoted else log.info)(
                "answer_checked",
                part=part.index + 1,
                files_unconfirmed=unconfirmed,
                without_evidence=demoted,
                coerced=coerced,
                dropped=dict(dropped),
            )
        numbers = finished["usage"]
        assert isinstance(numbers, dict)
        is_cut = bool(answer.get("request_cut"))
        return PartResult(
            part,
            reason=CUT_BY_SERVER if is_cut else "",
            failure=PermanentFailure(ErrorClass.TOKEN_LIMIT, Component.REVIEWER, CUT_BY_SERVER)
            if is_cut
            else None,
            findings=anchored.findings,
            usage=replace(
                Usage(**numbers),
                coerced=sum(coerced.values()),
                dropped=dropped.total(),
                failed_chunks=int(is_cut),
            ),
            model=str(finished["model"]),
            by_fallback=bool(finished.get("by_fallback")),
            dropped=anchored.dropped,
            request=self._asked_again(part, answer["boundary"]) if anchored.findings else None,
        )

    def _asked_again(self, part: Part, boundary: str) -> RedactedText | None:
        """Return the request of a part that was answered, for the verifier."""
        if self.around.verifier is None:
            return None
        return request_text(self.prepared.text, part.chunks, part.index, lambda: boundary)

    def _digest(self, part: Part) -> str:
        """Identify a request by its content: the boundary and the call id differ each time.

        An answer of the second model counts under the first one's name: it is not paid for twice.
        """
        user = request_text(self.prepared.text, part.chunks, part.index, lambda: "digest")
        whole = "\0".join([FINDER_VERSION, self._client.model, self._system, user.text])
        return hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()


def _with_cost(finished: Mapping[str, Any], results: list[PartResult]) -> list[PartResult]:
    """Add the cost of a request that the server cut to the results of its halves."""
    first, *rest = results
    return [replace(first, usage=first.usage + Usage(**finished["usage"])), *rest]


def _retryable(results: Iterable[PartResult]) -> list[Failure]:
    return [result.failure for result in results if isinstance(result.failure, RetryableFailure)]


def _worst(endings: Sequence[Failure | DependencyUnavailable]) -> Failure | DependencyUnavailable:
    """Return the error that ends the attempt.

    A refused credential must not hide behind a timeout of another call, nor a failure that costs
    an attempt behind a wait, which costs none: the budget would never end.
    """
    failures = [error for error in endings if isinstance(error, Failure)]
    if failures:
        return next((error for error in failures if not error.retryable), failures[0])
    return max(
        (e for e in endings if isinstance(e, DependencyUnavailable)), key=lambda waiting: waiting.seconds
    )


def usage_of(calls: Sequence[ModelAnswer | None]) -> Usage:
    answered = [call for call in calls if call is not None]
    return Usage(
        calls=len(calls),
        input_tokens=sum(call.input_tokens for call in answered),
        output_tokens=sum(call.output_tokens for call in answered),
        characters=sum(call.characters for call in answered),
        repaired=max(0, len(calls) - 1),
    )
