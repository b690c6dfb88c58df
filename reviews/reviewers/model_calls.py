"""Calls to the models of one review: their limits, the repair turn and usable answers.

slot ─► may it continue? ─► call ─► usable? ── no ─► one repair turn
                                      └─ yes ─► without leaks, and whether the server cut it
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from criticizer.redaction import RedactedText, RedactionBlocked, clean
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    kind_of,
)
from reviews.reviewers.answer import (
    MAX_ANSWER_CHARS,
    UnusableAnswer,
    outline_of,
    parse_answer,
    strict_schema,
)
from reviews.reviewers.base import Stopped, Usage
from reviews.reviewers.coverage_texts import OUT_OF_ROOM
from reviews.reviewers.instructions import system_prompt
from reviews.reviewers.model import LimitReached, ModelAnswer, ModelClient, ModelRequest
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prompt import longer_text, repair_text
from reviews.reviewers.prompt_leaks import marks_of, without_leaks, words_in
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.truncation import LEAST_TOKENS, Window, longest_gap, may_be_window

# These concern one part only: the review goes on without it.
OF_THE_PART = frozenset({ErrorClass.SCHEMA_INVALID, ErrorClass.TOKEN_LIMIT, ErrorClass.POLICY_REJECTED})
# The answer reached the limit of its length.
ENDED_EARLY = frozenset({"length", "max_tokens"})
ASK_EVERY_SECONDS = 1.0
LONG_ANSWER_CHARS = 40_000
_CUT_OFF = "it was cut off at the output limit, report fewer findings"

log = structlog.get_logger()


class NoFurtherCall(Exception):
    """Raised when the review ends before this call."""


@dataclass(slots=True)
class Exchange:
    """The calls about one thing; `calls` has None for each that failed.

    `client` is another model than that of the review, if one is called.
    """

    call_id: str
    client: ModelClient | None = None
    calls: list[ModelAnswer | None] = field(default_factory=list)

    @property
    def usage(self) -> Usage:
        answered = [call for call in self.calls if call is not None]
        return Usage(
            calls=len(self.calls),
            input_tokens=sum(call.input_tokens for call in answered),
            output_tokens=sum(call.output_tokens for call in answered),
            cached_tokens=sum(call.cached_tokens for call in answered),
            cache_write_tokens=sum(call.cache_write_tokens for call in answered),
            characters=sum(call.characters for call in answered),
            repaired=max(0, len(self.calls) - 1),
        )


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines at once; the first error ends the others.

    Raises this error as itself, not in a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def parsed(text: str, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of `parse` for an answer; a long one is parsed in a thread.

    So other calls of this event loop do not wait for it.
    """
    return parse(text) if len(text) < LONG_ANSWER_CHARS else await asyncio.to_thread(parse, text)


class ModelCalls:
    """Calls to the models of one review. Once it `is_over`, no further call starts."""

    def __init__(
        self,
        client: ModelClient,
        limits: ReviewLimits,
        around: ReviewContext,
        has_results: Callable[[], bool],
        system: str = "",
    ) -> None:
        """`system`: other instructions than those of a review."""
        self.system = system or system_prompt(
            limits.max_findings_per_chunk, limits.is_compact, around.verifier is not None
        )
        self._schema = strict_schema(limits.max_findings_per_chunk, limits.is_compact)
        self._client = client
        self._cap = limits.max_findings_per_chunk
        self._around = around
        # Compact reviews have no second pass.
        self._verify_seconds = around.verify_seconds if around.verifier and not limits.is_compact else 0.0
        self._window = Window()
        self._has_more_room = False  # for answers
        self._asked_at = around.now()
        self.endings: list[Failure | DependencyUnavailable] = []
        self._has_results = has_results
        self.stopped: Stopped | None = None
        self.limit: LimitReached | None = None  # which stopped it
        self.prompts: list[str] = []
        self.answers: list[str] = []

    @property
    def is_over(self) -> bool:
        return self.stopped is not None or bool(self.endings)

    def is_out_of_time(self, now: float) -> bool:
        """Return whether the soft deadline has come and there is something to publish."""
        return now >= self._around.until and self._has_results()

    async def answer(self, user: RedactedText, part: int, exchange: Exchange) -> dict[str, Any]:
        """Call, and call once more with the reason when nothing of the answer is usable.

        An answer that ended at its limit gets twice the room, and so do those after it.
        """
        call_id = exchange.call_id
        first = await self.call(user, exchange)
        try:
            answer = self._honest(await self._parsed(first), user, first, call_id)
            return await self._certain(answer, user, first, exchange)
        except UnusableAnswer as error:
            if may_be_window(first.input_tokens) or self.is_cut(user, (), first, call_id):
                return {"findings": [], "files_read": [], "request_cut": True}
            self._has_more_room |= first.finish_reason in ENDED_EARLY
            problem = _CUT_OFF if first.finish_reason in ENDED_EARLY else str(error)
            kind = kind_of(ErrorClass.SCHEMA_INVALID, Component.REVIEWER)
            log.warning(
                "answer_repair_asked",
                call=call_id,
                part=part,
                problem=problem,
                characters=len(first.text),
                **kind.facts,
            )
        try:
            second = await self.call(repair_text(user, problem), exchange, "-repair")
        except Failure as refused:
            if first.finish_reason not in ENDED_EARLY or refused.error_class not in OF_THE_PART:
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
                if second.finish_reason in ENDED_EARLY
                else f"two answers could not be used: {error}",
                context={
                    "call": call_id,
                    "model": self._client.model,
                    "finish_reason": clean(second.finish_reason, 40),
                    "answer": outline_of(second.text),
                },
            ) from None

    async def _parsed(self, answer: ModelAnswer) -> dict[str, Any]:
        return await parsed(answer.text, lambda text: parse_answer(text, self._cap))

    def _honest(
        self, answer: dict[str, Any], user: RedactedText, call: ModelAnswer, call_id: str
    ) -> dict[str, Any]:
        """Drop findings that repeat the marks of their request; note whether the server cut it."""
        is_cut = self.is_cut(user, answer["seen"], call, call_id)
        marks = marks_of(user.text)
        kept, leaked = without_leaks(answer, marks)
        if leaked:
            log.warning("answer_repeats_request", call=call_id, findings=leaked)
        return {**kept, "request_cut": is_cut, "boundary": marks[0]}

    async def _certain(
        self, answer: dict[str, Any], user: RedactedText, call: ModelAnswer, exchange: Exchange
    ) -> dict[str, Any]:
        """Return the answer, marked as cut where a longer request proves that the server cuts.

        The longer request is sent once a length: where a model repeats the words and the server reports no
        tokens, and where the tokens may be a window. A server that reads more of the longer request has read
        all of this one.
        """
        words = words_in(self.system, user.text)
        characters, read = len(self.system) + len(user), call.input_tokens
        is_counted = read >= LEAST_TOKENS
        if answer["request_cut"] or self._window.is_proved(characters, read):
            return answer
        if not is_counted and not set(words) <= set(answer["seen"]):
            return answer
        answer |= {"proofs": 1, "may_be_cut": is_counted}
        longer = longer_text(user, longest_gap(f"{self.system}\n{user.text}", words))
        try:
            reply = await self.call(longer, exchange, "-window")
            seen = set((await self._parsed(reply))["seen"]) & set(words)
        except (Failure, DependencyUnavailable, UnusableAnswer, NoFurtherCall) as error:
            if isinstance(error, Failure) and error.error_class is ErrorClass.REDACTION_BLOCKED:
                raise
            if not isinstance(error, Failure) or error.error_class is not ErrorClass.TOKEN_LIMIT:
                return answer
            is_whole = True  # it refuses what it cannot read
        else:
            is_whole = reply.input_tokens > read + len(longer) // 200 if is_counted else seen == set(words)
            if not is_counted and not seen:
                return answer
        if is_whole:
            self._window.prove(characters)
        else:
            log.error(
                "request_cut_by_model_server", call=exchange.call_id, tokens=read, characters=characters
            )
        # A request that ends where the window does is whole: in halves it does no harm.
        is_cut = not is_whole and not is_counted
        return {**answer, "request_cut": is_cut, "may_be_cut": not is_whole, "is_window": not is_whole}

    def is_cut(self, user: RedactedText, seen: Sequence[str], call: ModelAnswer, call_id: str) -> bool:
        """Return whether the server cut the request that `call` answers, and log it."""
        characters = len(self.system) + len(user)
        words = words_in(self.system, user.text)
        is_cut = self._window.has_cut(words, seen, characters, call.input_tokens)
        if is_cut:
            log.error(
                "request_cut_by_model_server", call=call_id, tokens=call.input_tokens, characters=characters
            )
        return is_cut

    async def call(
        self,
        user: RedactedText,
        exchange: Exchange,
        suffix: str = "",
        schema: Mapping[str, object] | None = None,
    ) -> ModelAnswer:
        """Ask once all limits admit it, and add the answer to the exchange.

        `suffix` ends the call's id. Raises NoFurtherCall when the review ends before.
        """
        call_id, calls, verifies = exchange.call_id + suffix, exchange.calls, schema is not None
        request = ModelRequest(self.system, user, schema or self._schema, call_id, self._has_more_room)
        async with self._around.slots:
            # The wait for a slot can be long: the state may have changed.
            await self._admit(verifies=verifies)
            calls.append(None)  # counts also when it fails
            try:
                answer = await (exchange.client or self._client).complete(request)
            except LimitReached as reached:
                calls.pop()  # it did not start
                self.stopped, self.limit = self.stopped or Stopped.OVER_LIMIT, reached
                raise NoFurtherCall from None
            except RedactionBlocked as blocked:
                raise PermanentFailure(
                    ErrorClass.REDACTION_BLOCKED,
                    Component.INTERNAL,
                    "the guard refused a request to the model",
                    context={"call": call_id, "reason_code": blocked.reason_code},
                ) from None
            calls[-1] = replace(answer, characters=request.characters if answer.input_tokens else 0)
        self.prompts.append(user.text)
        self.answers.append(clean(answer.text, MAX_ANSWER_CHARS))
        return answer

    async def _admit(self, *, verifies: bool) -> None:
        """Admit the next call, or raise NoFurtherCall.

        Findings of before the soft deadline are verified in the time that was kept for that (G382).
        """
        now = self._around.now()
        is_late = now >= self._around.until or not verifies
        if not self.is_over and self.is_out_of_time(now + (0 if verifies else self._verify_seconds)):
            self.stopped = Stopped.TIMED_OUT
        if not self.is_over and now - self._asked_at >= ASK_EVERY_SECONDS:
            self._asked_at = now  # before the answer, so that others skip it
            try:
                if not await self._around.may_continue():
                    self.stopped = Stopped.ENDED
            except (Failure, DependencyUnavailable) as error:
                self.endings.append(error)
        if self.is_over and (self.stopped is not Stopped.TIMED_OUT or self.endings or is_late):
            raise NoFurtherCall
