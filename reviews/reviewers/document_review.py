"""The model's part of documentation drift: asks one question a section and judges answers.

    sections ─► hunks beside each ─► known? ─► call ─► readable? ── no ─► one repair turn
                                                          └─ yes ─► quotes of both sides ─► verdict

A question that fails leaves its section uncertain, with a reason, and the review as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from criticizer.redaction import RedactedText, RedactionBlocked
from criticizer.resilience.failures import DependencyUnavailable, ErrorClass, Failure
from reviews.drift.wording import Unsure
from reviews.reviewers.anchoring import EXCERPT_LINES
from reviews.reviewers.answer import UnusableAnswer
from reviews.reviewers.base import (
    MAX_EXCERPT_CHARS,
    Finding,
    FindingSeverity,
    RawId,
    Stopped,
    Usage,
)
from reviews.reviewers.checks.hidden_text import addresses_reviewer
from reviews.reviewers.chunks import Chunk, ShownHunk, tokens
from reviews.reviewers.document_answers import (
    SectionJudgement,
    SectionVerdict,
    judged,
    parse_document_answer,
)
from reviews.reviewers.document_prompt import (
    DOCUMENTS_VERSION,
    SYSTEM,
    document_schema,
    question_hunks,
    question_text,
)
from reviews.reviewers.document_sections import ShownSection
from reviews.reviewers.finished import Finished
from reviews.reviewers.model import ModelClient
from reviews.reviewers.model_calls import ENDED_EARLY, Exchange, ModelCalls, NoFurtherCall, parsed, together
from reviews.reviewers.plaintext import plain
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import repair_text
from reviews.reviewers.prompt_leaks import marks_of, repeats
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.units import AnsweredUnit

SOURCE = "llm:drift"
_FAILED_ABOVE = 0.10  # of the sections asked about
_UNSURE = {
    ErrorClass.TOKEN_LIMIT: Unsure.TOKEN_LIMIT,
    ErrorClass.REDACTION_BLOCKED: Unsure.NOT_CLEAN,
    ErrorClass.SCHEMA_INVALID: Unsure.PARSE_ERROR,
}
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Question:
    """A section with the hunks that it is compared with."""

    section: ShownSection
    chunk: Chunk
    request: RedactedText
    model: str
    key: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SectionResult:
    """Result of one section."""

    section: ShownSection
    verdict: SectionVerdict
    reason: Unsure = Unsure.SAID
    confidence: int = 0
    finding: Finding | None = None


@dataclass(slots=True)
class DocumentsOutcome:
    """Results of all sections, and what is to be stored of them.

    `failed` counts the answers that were unusable.
    """

    results: list[SectionResult] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    units: list[AnsweredUnit] = field(default_factory=list)
    prompts: Sequence[str] = ()
    answers: Sequence[str] = ()
    asked: int = 0
    note: str = ""

    @property
    def findings(self) -> list[Finding]:
        return [result.finding for result in self.results if result.finding is not None]

    @property
    def failed(self) -> int:
        return sum(result.reason is Unsure.PARSE_ERROR for result in self.results)

    @property
    def fails_often(self) -> bool:
        return bool(self.asked) and self.failed / self.asked > _FAILED_ABOVE


def questions_of(
    prepared: Prepared, sections: Sequence[ShownSection], model: str, most: int
) -> tuple[list[Question], list[SectionResult]]:
    """Return the questions about the best sections, and results of those not asked about.

    Both together are at most `most`. Redaction in doubt about one section leaves only this one uncertain.
    """
    hunks = _hunks(prepared)
    questions: list[Question] = []
    results: list[SectionResult] = []
    for section in sections:
        if len(questions) + len(results) >= most:
            break
        if not section.files:
            continue
        if addresses_reviewer(section.text.text):
            results.append(SectionResult(section, SectionVerdict.UNCERTAIN, Unsure.STEERED))
            continue
        chunk = question_hunks(section, section.files, hunks)
        if chunk is None:
            results.append(_token_limit(section, model, tokens(section.text)))
            continue
        try:
            request = question_text(prepared.text, section, chunk)
            same = question_text(prepared.text, section, chunk, "digest")
        except RedactionBlocked as blocked:
            results.append(not_clean(section, blocked))
            continue
        known = "\0".join([DOCUMENTS_VERSION, model, same.text])
        key = hashlib.sha256(known.encode(errors="surrogatepass")).hexdigest()
        questions.append(Question(section, chunk, request, model, key))
    return questions, results


def _hunks(prepared: Prepared) -> list[ShownHunk]:
    found = {hunk.name: hunk for unit in (*prepared.units, *prepared.chunks) for hunk in unit.hunks}
    return list(found.values())


def _token_limit(section: ShownSection, model: str, estimated: int) -> SectionResult:
    log.warning(
        "section_too_long",
        code=ErrorClass.TOKEN_LIMIT.value,
        document=section.path,
        line=section.line,
        model=model,
        estimated_tokens=estimated,
    )
    return SectionResult(section, SectionVerdict.UNCERTAIN, Unsure.TOKEN_LIMIT)


def not_clean(section: ShownSection, blocked: RedactionBlocked) -> SectionResult:
    """Return the result of a section about which redaction is in doubt."""
    place = {"document": section.path, "line": section.line}
    log.warning("section_not_clean", reason_code=blocked.reason_code, **place)
    return SectionResult(section, SectionVerdict.UNCERTAIN, Unsure.NOT_CLEAN)


class DocumentReview:
    """Asks about the sections of one change; `known` has answers of earlier reviews by key."""

    def __init__(
        self,
        prepared: Prepared,
        client: ModelClient,
        limits: ReviewLimits,
        progress: MutableMapping[str, str],
        around: ReviewContext,
        known: Mapping[str, tuple[Mapping[str, Any], int]],
    ) -> None:
        self._prepared, self._limits = prepared, limits
        self._progress, self._around, self._known = progress, around, known
        self._calls = ModelCalls(client, limits, around, lambda: True, SYSTEM)
        self.outcome = DocumentsOutcome()

    async def ask(self, questions: Sequence[Question]) -> DocumentsOutcome:
        """Return the outcome of the questions. Raises what `may_continue` raises, nothing else."""
        at_once = asyncio.Semaphore(self._limits.max_parallel_calls)
        found: dict[str, SectionResult] = {}

        async def work(question: Question) -> None:
            async with at_once:
                found[question.key] = await self._result(question)

        await together(work(question) for question in questions)
        if self._calls.endings:
            raise self._calls.endings[0]
        self.outcome.results += [found[question.key] for question in questions]
        self.outcome.prompts, self.outcome.answers = tuple(self._calls.prompts), tuple(self._calls.answers)
        return self.outcome

    async def _result(self, question: Question) -> SectionResult:
        """Return the result of a question."""
        answer, reason = await self._answer(question)
        if answer is None:
            return SectionResult(question.section, SectionVerdict.UNCERTAIN, reason)
        return result_of(answer, question, self._prepared.paths)

    async def _answer(self, question: Question) -> tuple[Mapping[str, Any] | None, Unsure]:
        if question.key in self._known:
            kept_answer, spent = self._known[question.key]
            self.outcome.usage += Usage(carried=1, spared_tokens=spent)
            return kept_answer, Unsure.SAID
        kept = f"document-{question.key}"
        if (known := Finished.of(self._progress, kept)) is not None:
            self.outcome.usage += known.usage
            self._keep(question, known)
            return known.answer, Unsure.SAID
        exchange = Exchange(f"{self._around.new_call_id()}-document")
        answer, reason = await self._asked(question, exchange)
        self.outcome.usage += exchange.usage
        self.outcome.asked += bool(exchange.calls)
        if answer is not None and (reply := exchange.calls[-1]) is not None:
            finished = Finished(answer, exchange.usage, reply.model, reply.by_fallback)
            finished.keep(self._progress, kept)
            self._keep(question, finished)
            self._around.on_progress()
        return answer, reason

    def _keep(self, question: Question, finished: Finished) -> None:
        if finished.answer is not None and not finished.by_fallback:
            spent = finished.usage.input_tokens
            self.outcome.units.append(AnsweredUnit(question.key, [finished.answer], finished.model, spent))

    async def _asked(self, question: Question, exchange: Exchange) -> tuple[Mapping[str, Any] | None, Unsure]:
        """Ask a question, and once more where nothing of the answer is usable."""
        request, problem, section = question.request, "", question.section
        call_id = exchange.call_id
        try:
            for suffix in ("", "-repair"):
                user = repair_text(request, problem) if problem else request
                reply = await self._calls.call(user, exchange, suffix, document_schema())
                try:
                    answer = await parsed(reply.text, parse_document_answer)
                    if repeats(answer, marks_of(request.text)):
                        raise UnusableAnswer("the answer repeats the marker of the request")
                    return answer, Unsure.SAID
                except UnusableAnswer as error:
                    problem = str(error)
                    is_cut = (
                        self._calls.is_cut(user, (), reply, call_id) or reply.finish_reason in ENDED_EARLY
                    )
                    if is_cut:
                        _token_limit(section, reply.model, tokens(request))
                        return None, Unsure.TOKEN_LIMIT
                    log.warning(
                        "document_answer_unusable",
                        call=call_id,
                        document=section.path,
                        line=section.line,
                        problem=problem,
                        characters=len(reply.text),
                        attempt=2 if suffix else 1,
                    )
            return None, Unsure.PARSE_ERROR
        except NoFurtherCall:
            over = self._calls.stopped is Stopped.OVER_LIMIT
            return None, Unsure.OVER_LIMIT if over else Unsure.NO_TIME
        except DependencyUnavailable:
            return None, Unsure.UNAVAILABLE
        except Failure as failure:
            place = {"document": section.path, "line": section.line}
            log.warning("section_not_verified", call=call_id, **place, **failure.facts)
            if failure.error_class is ErrorClass.TOKEN_LIMIT:
                _token_limit(section, question.model, tokens(request))
            return None, _UNSURE.get(failure.error_class, Unsure.UNAVAILABLE)


def result_of(answer: Mapping[str, Any], question: Question, paths: Sequence[str]) -> SectionResult:
    """Return the result of an answer; `paths` are those of the changed files."""
    found = judged(answer, question.section, question.chunk)
    if found.lacks_evidence or found.verdict is not found.said:
        log.warning(
            "section_without_evidence",
            document=question.section.path,
            line=question.section.line,
            said=found.said.value,
            adjusted=found.verdict.value,
            confidence=found.confidence,
        )
    if found.verdict is not found.said:
        return SectionResult(question.section, found.verdict, Unsure.NO_EVIDENCE, found.confidence)
    finding = _finding(answer, found, question, paths) if found.first is not None else None
    return SectionResult(question.section, found.verdict, Unsure.SAID, found.confidence, finding)


def numbered(findings: Sequence[Finding], first: int) -> list[Finding]:
    """Return the findings named as raw findings of the checks, numbered on from `first`."""
    return [replace(finding, raw=RawId(0, 1, n)) for n, finding in enumerate(findings, start=first)]


def _finding(
    answer: Mapping[str, Any], found: SectionJudgement, question: Question, paths: Sequence[str]
) -> Finding:
    section, proof = question.section, found.proof
    assert proof is not None
    assert found.first is not None
    assert found.last is not None
    lines = section.lines
    quoted = " ".join(" ".join(lines[found.first : found.last + 1]).split())[:300]
    claim = plain(answer["claim"]) or quoted
    code_path = paths[int(proof.source.split()[0])]
    reasoning = plain(answer["reasoning"])
    around = range(max(0, found.first - EXCERPT_LINES), min(len(lines), found.last + 1 + EXCERPT_LINES))
    replacement = plain(answer["replacement"])
    return Finding(
        file=section.path,
        severity=FindingSeverity.MEDIUM if found.confidence >= 50 else FindingSeverity.LOW,
        category="documentation",
        title=f"May be out of date: {claim}"[:160],
        message=f"The document says: “{quoted}” The change says otherwise at {code_path}, "
        f"{proof.where[:1].lower()}{proof.where[1:]}: `{_code(answer['quote_code'])}`. {reasoning}".strip(),
        suggestion=f"Write: {replacement}" if replacement else "Correct or remove the statement.",
        source=SOURCE,
        line=section.line + found.first,
        end_line=section.line + found.last,
        quote=lines[found.first],
        confidence=found.confidence,
        excerpt=tuple((section.line + n, " ", lines[n][:MAX_EXCERPT_CHARS]) for n in around),
        evidence=tuple(path for path in (code_path,) if path != section.path),
    )


def _code(quote: str) -> str:
    return " ".join(plain(quote).split())[:200]
