"""The model's part of one review: its parts, and their results.

    part ─► slot ─► may it continue? ─► permit? ─► call ─► usable? ── no ─► one repair turn
                                                             └─ yes ─► progress, findings

A failure that concerns one part only (unusable, too long, refused) leaves that part out. A part
that the server cut is asked about again in halves, and those to come are halved before.
Any other failure ends the attempt: no further call starts, and the calls in flight are finished.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import structlog

from criticizer.redaction import RedactedText
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from reviews.reviewers.anchoring import anchor
from reviews.reviewers.base import Fated, Finding, Stopped, Usage
from reviews.reviewers.chunks import Chunk, tokens
from reviews.reviewers.coverage_texts import CUT_BY_SERVER, NOT_REVIEWED, OUT_OF_ROOM, UNREACHED
from reviews.reviewers.finished import Finished
from reviews.reviewers.instructions import FINDER_VERSION
from reviews.reviewers.model import ModelClient
from reviews.reviewers.model_calls import OF_THE_PART, Exchange, ModelCalls, NoFurtherCall, together
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import MAX_PATH_CHARS, request_text, shown_path
from reviews.reviewers.reported import with_reported
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.rules import rules_of
from reviews.reviewers.splitting import Part, turned
from reviews.reviewers.truncation import may_be_window
from reviews.reviewers.units import carried, keys_of, packed, room_beside

# These may be the part's own fault, which is assumed at the last attempt.
_OF_THE_PART_AT_LAST = frozenset({ErrorClass.NETWORK_TIMEOUT, ErrorClass.UPSTREAM_INTERNAL})
log = structlog.get_logger()


@dataclass(slots=True)
class PartResult:
    """Result of one part. `reason` says why it was not reviewed; `failure` is set if it failed.

    `boundary` is that of the request that was answered.
    """

    part: Part
    findings: tuple[Finding, ...] = ()
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    by_fallback: bool = False
    reason: str = ""
    failure: Failure | None = None
    dropped: tuple[Fated, ...] = ()
    boundary: str = ""


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
        self.client = client
        self.limits = limits
        self.progress = progress
        self.around = around
        self.calls = ModelCalls(client, limits, around, self._has_results)
        self._mark = around.boundary()  # one for all parts: a server may keep what they share
        verifier = around.verifier.model if around.verifier is not None else ""
        second = around.second.model if around.second is not None else ""
        keys = keys_of(prepared, limits, client.model, verifier, around.passes, second)
        self.carried = carried(
            prepared, {n: around.known[key] for n, key in enumerate(keys) if key in around.known}
        )
        self.asked_keys = {n: key for n, key in enumerate(keys) if key not in around.known}
        parts = packed(prepared, list(self.asked_keys), limits.context_share)
        self.chunks = chunks = tuple(self._with_reported(chunk) for chunk in parts)
        self.passes = {path: around.passes.of(path) for path in prepared.paths}  # asked about so often (G423)
        self._parts = first = [Part(chunks, index) for index in range(len(chunks))]
        for turn in range(2, max(self.passes.values(), default=1) + 1):
            wanted = {file for file, path in enumerate(prepared.paths) if self.passes[path] >= turn}
            self._parts = [*self._parts, *turned(first, turn, wanted)]
        self._splits_left = limits.max_calls
        self._cut: list[int] = []  # characters of the parts that the server cut
        self._too_long = math.inf  # characters of the shortest of them, once it is no accident

    def _with_reported(self, chunk: Chunk) -> Chunk:
        paths = [entry.path.truncated(MAX_PATH_CHARS) for entry in self.prepared.text.manifest]
        return with_reported(chunk, self.prepared.reported, room_beside(self.prepared, chunk), paths)

    def _client_of(self, part: Part) -> ModelClient:
        return self.around.second or self.client if part.turn % 2 == 0 else self.client

    async def all_parts(self) -> list[PartResult]:
        """Review every part, a few at a time. Raises the error that ends the attempt."""
        parts = iter(self._parts)
        results: dict[tuple[int, int], list[PartResult]] = {}

        async def work() -> None:
            while not self.calls.is_over and (part := next(parts, None)) is not None:
                try:
                    results[part.turn, part.index] = await self._part(part)
                except NoFurtherCall:
                    return
                except (Failure, DependencyUnavailable) as error:
                    self.calls.endings.append(error)
                else:
                    self.around.on_part(len(results), len(self._parts))
                    if len(results) < len(self._parts):
                        self.around.on_progress()

        await together(work() for _ in range(min(self.limits.max_parallel_calls, len(self._parts))))
        if self.calls.stopped is None and self.calls.endings and self.calls.is_out_of_time(self.around.now()):
            self.calls.stopped = Stopped.TIMED_OUT  # there is no time for another attempt
        may_be_partial = self.calls.stopped is Stopped.ENDED or all(map(_is_of_model, self.calls.endings))
        if self.calls.stopped is not None and may_be_partial:
            if self.calls.stopped is Stopped.OVER_LIMIT and not self._has_results():
                assert self.calls.limit is not None
                raise self.calls.limit
            return self.known_parts(UNREACHED[self.calls.stopped], results)
        if self.calls.endings:
            raise _worst([*self.calls.endings, *_retryable(chain.from_iterable(results.values()))])
        return [result for part in self._parts for result in results[part.turn, part.index]]

    def _has_results(self) -> bool:
        return bool(self.carried.models) or any(map(self._is_known, self._parts))

    def _is_known(self, part: Part) -> bool:
        finished = Finished.of(self.progress, self._digest(part))
        if finished is None:
            return False
        if finished.answer is None:
            return any(map(self._is_known, part.halves()))
        return not finished.answer.get("request_cut")

    def known_parts(
        self, reason: str, results: Mapping[tuple[int, int], list[PartResult]] | None = None
    ) -> list[PartResult]:
        """Return `results`, completed from the progress, with `reason` for unfinished parts."""
        done = results or {}
        return [
            found
            for part in self._parts
            for found in done.get((part.turn, part.index)) or self._known(part, reason)
        ]

    def _known(self, part: Part, reason: str) -> list[PartResult]:
        finished = Finished.of(self.progress, self._digest(part))
        if finished is None:
            return [PartResult(part, reason=reason)]
        if finished.answer is not None:
            return [self._result(part, finished)]
        return _with_cost(
            finished, [result for half in part.halves() for result in self._known(half, reason)]
        )

    async def _part(self, part: Part) -> list[PartResult]:
        """Review a part, in halves when the server cuts requests as long as it (guarantee G184)."""
        digest = self._digest(part)
        finished = Finished.of(self.progress, digest)
        if finished is None:
            is_too_long = part.characters >= self._too_long and self._may_halve(part)
            asked = Finished(None, Usage()) if is_too_long else await self._asked(part)
            if isinstance(asked, PartResult):
                return [asked]
            finished = asked
            finished.keep(self.progress, digest)
        if finished.answer is not None:
            return [self._result(part, finished)]
        self._splits_left -= 1
        # One odd answer may be an accident. Two are not, nor is a count that windows have.
        self._cut.append(part.characters)
        if len(self._cut) > 1 or may_be_window(finished.usage.input_tokens):
            self._too_long = min(self._cut)
        results: list[PartResult] = []
        for half in part.halves():
            results += await self._part(half)
            self.around.on_progress()
        return _with_cost(finished, results)

    def _may_halve(self, part: Part) -> bool:
        return self._splits_left > 0 and bool(part.halves())

    async def _asked(self, part: Part) -> PartResult | Finished:
        """Ask about a part; return its finished answer, or the result of its failure."""
        call_id = self.around.new_call_id() + (f"-pass{part.turn}" if part.turn > 1 else "")
        client = self._client_of(part)
        exchange = Exchange(call_id, client)
        request = self._request(part, self._mark)
        try:
            answer = await self.calls.answer(request, part.index + 1, exchange)
        except Failure as error:
            if not self._is_of_the_part(error):
                raise
            log.warning(
                "chunk_not_reviewed",
                call=call_id,
                part=part.index + 1,
                calls=len(exchange.calls),
                model=client.model,
                estimated_tokens=tokens(request),
                **error.facts,
            )
            why = OUT_OF_ROOM if error.detail == OUT_OF_ROOM else NOT_REVIEWED[error.error_class]
            usage = replace(exchange.usage, failed_chunks=1)
            return PartResult(part, usage=usage, reason=f"{why} (call {call_id})", failure=error)
        usage = exchange.usage
        repaired, may_be_cut = usage.repaired - answer.pop("proofs", 0), answer.pop("may_be_cut", False)
        is_halved = (answer["request_cut"] or may_be_cut) and self._may_halve(part)
        answer["request_cut"] |= answer.pop("is_window", False) and not is_halved
        usage = replace(usage, cut=int(answer["request_cut"]), repaired=repaired)
        by = (last.model, last.by_fallback) if (last := exchange.calls[-1]) is not None else ()
        return Finished(None if is_halved else answer, usage, *by)

    def _is_of_the_part(self, error: Failure) -> bool:
        if error.error_class in OF_THE_PART:
            return True
        return self.around.is_last_attempt and error.error_class in _OF_THE_PART_AT_LAST

    @cached_property
    def asked(self) -> list[tuple[Part, str, RedactedText]]:
        """Return each part with its digest and its request, for others to answer it."""
        return [(part, self._digest(part), self._request(part, self._mark)) for part in self._parts]

    def request_of(self, result: PartResult) -> RedactedText:
        """Return the request that led to a result."""
        return self._request(result.part, result.boundary)

    def _request(self, part: Part, boundary: str) -> RedactedText:
        return request_text(self.prepared.text, part.chunks, part.index, boundary, part.turn)

    def _result(self, part: Part, finished: Finished) -> PartResult:
        chunk, answer = part.chunk, finished.answer
        assert answer is not None
        shown = {index: shown_path(self.prepared.text, index) for index in chunk.files}
        rules = rules_of(self.prepared.text.rules, chunk.files)
        anchored = anchor(answer, chunk, shown, self.prepared.paths, rules)
        dropped = Counter(fated.reason for fated in anchored.dropped)
        coerced = answer.get("coerced", {})
        unconfirmed = len(set(shown.values()) - set(answer["files_read"]))
        demoted = sum(finding.demoted for finding in anchored.findings)
        if dropped or unconfirmed or demoted or coerced or anchored.unknown_rules:
            (log.warning if demoted else log.info)(
                "answer_checked",
                part=part.index + 1,
                files_unconfirmed=unconfirmed,
                without_evidence=demoted,
                coerced=coerced,
                dropped=dict(dropped),
                unknown_rules=anchored.unknown_rules,
            )
        is_cut = bool(answer.get("request_cut"))
        return PartResult(
            part,
            reason=CUT_BY_SERVER if is_cut else "",
            failure=PermanentFailure(ErrorClass.TOKEN_LIMIT, Component.REVIEWER, CUT_BY_SERVER)
            if is_cut
            else None,
            findings=anchored.findings,
            usage=replace(
                finished.usage,
                coerced=sum(coerced.values()),
                dropped=dropped.total(),
                edits=anchored.unplaced_edits,
                edits_refused=anchored.unplaced_edits,
                unknown_rules=anchored.unknown_rules,
                failed_chunks=int(is_cut),
            ),
            model=finished.model,
            by_fallback=finished.by_fallback,
            dropped=anchored.dropped,
            boundary=answer.get("boundary", ""),
        )

    def _digest(self, part: Part) -> str:
        """Return a digest of a request's content, without its boundary, which differs each time.

        An answer of the second model counts under the first one's name, so that it is not paid for twice.
        """
        user = self._request(part, "digest")
        model = self._client_of(part).model
        whole = "\0".join([FINDER_VERSION, model, self.calls.system, user.text])
        return hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()


def _with_cost(finished: Finished, results: list[PartResult]) -> list[PartResult]:
    """Add the cost of a request that the server cut to the results of its halves."""
    first, *rest = results
    return [replace(first, usage=first.usage + finished.usage), *rest]


def _retryable(results: Iterable[PartResult]) -> list[Failure]:
    return [result.failure for result in results if isinstance(result.failure, RetryableFailure)]


def _is_of_model(error: Failure | DependencyUnavailable) -> bool:
    """Return whether an error says only that the model cannot answer now."""
    return not isinstance(error, Failure) or (error.retryable and error.component is Component.REVIEWER)


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
