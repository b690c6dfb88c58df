"""Review by agents of the customer: their tasks are parts of a change and document sections.

first attempt ─► tasks offered, attempt given back, in one commit
next attempt ──► a task is open: given back again;  all are final: findings, coverage, banner

A section's task is for keys that see the document too. The agent is trusted as far as a model: `drifted`
needs a file of the request as evidence, and a quote of the document and of a changed line. A task that is not
done leaves its section uncertain, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog
from django.conf import settings
from django.db.models import Min
from django.db.models.functions import Now

from criticizer.redaction import RedactionBlocked, clean, guard
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    PermanentFailure,
)
from criticizer.wording import plural_count
from reviews import linter_results, pipeline
from reviews.agents import expire, offer, rows
from reviews.artifacts import recipe
from reviews.artifacts.redactor import RedactedChange
from reviews.drift.wording import Unsure
from reviews.job_configuration import wants_agents
from reviews.models import AgentTask, ReviewJob
from reviews.pipeline import StageClaim
from reviews.pipeline.executor import with_reconnect
from reviews.reviewers.anchoring import LEAST_CONFIDENCE, LESS_CONFIDENCE
from reviews.reviewers.answer import answer_schema
from reviews.reviewers.base import Stopped, Usage
from reviews.reviewers.coverage_texts import (
    AGENT_FAILED,
    AGENT_LIMIT,
    AGENT_TIMEOUT,
    AGENT_TOO_LARGE,
    NO_AGENT_BANNER,
    NOT_REVIEWED,
    agents_banner,
    agents_footer,
    incomplete_banner,
)
from reviews.reviewers.document_answers import SectionVerdict
from reviews.reviewers.document_prompt import AGENT_SYSTEM, verification_schema
from reviews.reviewers.document_review import (
    DocumentsOutcome,
    Question,
    SectionResult,
    not_clean,
    questions_of,
    result_of,
)
from reviews.reviewers.finished import Finished
from reviews.reviewers.model import ModelAnswer
from reviews.reviewers.model_review import ModelReview, PartResult
from reviews.reviewers.plaintext import plain
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt_leaks import marks_of, repeats, without_leaks
from reviews.reviewers.review import ReviewOutcome, checks_only, review_by_agents
from reviews.reviewers.review_context import ReviewContext
from reviews.sources.passes import Passes
from reviews.stages import documents
from reviews.states import OPEN_TASK, AgentTaskStatus, AgentTaskType

_REASONS = {
    "llm_parse_error": Unsure.PARSE_ERROR,
    "token_limit": Unsure.TOKEN_LIMIT,
    "refused": Unsure.UNAVAILABLE,
}
_CHARS = 600  # of a reasoning and of a replacement
log = structlog.get_logger(__name__)
MODEL = "agent"
# By the class of a failed task: what the coverage says, and the class of the part's failure.
_FAILED = {
    "llm_parse_error": (NOT_REVIEWED[ErrorClass.SCHEMA_INVALID], ErrorClass.SCHEMA_INVALID),
    "token_limit": (AGENT_LIMIT, ErrorClass.TOKEN_LIMIT),
    "refused": (NOT_REVIEWED[ErrorClass.POLICY_REJECTED], ErrorClass.POLICY_REJECTED),
}


class AgentQuestions:
    """The questions about the sections of one change, the same in each attempt of its stage."""

    def __init__(self, prepared: Prepared, model: str, paths: Collection[str]) -> None:
        self._prepared, self._paths = prepared, paths
        self._questions, self._unasked = questions_of(
            prepared, prepared.sections, model, settings.DOCUMENT_SECTIONS
        )

    def drafts(self, is_covered: Callable[[Sequence[str]], bool]) -> list[offer.Draft]:
        """Return the tasks about the sections.

        A section has none where no key may see both its document and the change, where the guard refuses its
        text, or where that is too large for a task.
        """
        found = []
        for ordinal, one in enumerate(self._questions):
            directories = rows.directories_of(clean(path) for path in (*self._paths, one.section.path))
            if is_covered(directories):
                kind, schema = AgentTaskType.VERIFICATION, verification_schema()
                try:
                    found.append(
                        offer.draft(kind, ordinal, one.key, AGENT_SYSTEM, one.request, schema, directories)
                    )
                except (RedactionBlocked, offer.TooLarge):
                    continue  # `results` says which
        return found

    def results(self, tasks: Mapping[str, AgentTask], ends: Counter[str]) -> list[SectionResult]:
        """Return the results of the sections, and count in `ends` how their tasks ended."""
        return [*(self._result(one, tasks.get(one.key), ends) for one in self._questions), *self._unasked]

    def _result(self, question: Question, task: AgentTask | None, ends: Counter[str]) -> SectionResult:
        if task is None:
            return _never_offered(question)
        ends["total"] += 1
        if task.status == AgentTaskStatus.COMPLETED and task.result:
            ends["completed"] += 1
            return self._judged(question, task)
        reason = _REASONS.get(task.error_class)
        ends["missing"] += reason is None
        ends["lost"] += task.error_class == expire.LOST
        return SectionResult(question.section, SectionVerdict.UNCERTAIN, reason or Unsure.AGENT_TIMEOUT)

    def _judged(self, question: Question, task: AgentTask) -> SectionResult:
        result = task.result[0]
        if repeats(result, marks_of(task.payload[0]["request"] if task.payload else "")):
            return SectionResult(question.section, SectionVerdict.UNCERTAIN, Unsure.PARSE_ERROR)
        manifest = self._prepared.text.manifest
        shown = {manifest[index].path.text for index in question.chunk.files} | {question.section.place.text}
        is_shown = not shown.isdisjoint(result["evidence_files"])
        confidence = round(100 * result["confidence"])
        if result["verdict"] == "uncertain" and not result["evidence_files"]:
            return SectionResult(question.section, SectionVerdict.UNCERTAIN, Unsure.NO_EVIDENCE, confidence)
        if result["verdict"] == "verified":
            if result["evidence_files"] and not is_shown:  # without any it costs confidence on its submission
                confidence = max(LEAST_CONFIDENCE, confidence - LESS_CONFIDENCE)
            return SectionResult(question.section, SectionVerdict.HOLDS, Unsure.SAID, confidence)
        return result_of(_answer(result, confidence, is_shown=is_shown), question, self._prepared.paths)


def _never_offered(question: Question) -> SectionResult:
    try:
        guard(question.request)
    except RedactionBlocked as blocked:
        return not_clean(question.section, blocked)
    return SectionResult(question.section, SectionVerdict.UNCERTAIN, Unsure.UNAVAILABLE)


def _answer(result: Mapping[str, Any], confidence: int, *, is_shown: bool) -> dict[str, Any]:
    """Return a verification as a model's answer about a section.

    It has no quote of code unless its evidence was shown in the request.
    """
    return {
        "verdict": result["verdict"],
        "claim": (result.get("specific_mismatch") or "")[:160],
        "quote_document": result.get("quote_document") or "",
        "quote_code": (result.get("quote_code") or "") if is_shown else "",
        "reasoning": result["reasoning"][:_CHARS],
        "replacement": (result.get("suggested_fix") or "")[:_CHARS],
        "confidence": confidence,
    }


class _NoClient:
    """The client (`ModelClient`) of a review that calls no model."""

    model = MODEL

    async def complete(self, *args: Any, **options: Any) -> ModelAnswer:
        raise AssertionError("agents are not called: they come for their tasks")

    async def aclose(self) -> None:
        pass


def is_by_agents(claim: StageClaim) -> bool:
    """Return whether agents review a change, as the installation or its repository is set."""
    if settings.LLM_PROVIDER in ("none", "agent"):
        return bool(settings.LLM_PROVIDER == "agent")
    return wants_agents(ReviewJob.objects.only("configuration").get(pk=claim.job_id))


def review(claim: StageClaim, change: RedactedChange) -> ReviewOutcome:
    """Return the review once all its tasks are final.

    Raises DependencyUnavailable until then; its `write` offers the tasks or holds the stage. Raises
    REDACTION_BLOCKED when the guard refuses a task.
    """
    limits = recipe.limits()
    around = ReviewContext(passes=Passes(settings.REVIEW_PASSES))
    is_first = expire.OFFERED not in with_reconnect(lambda: pipeline.progress_of(claim))
    # What linters report after the offer would change the digests of the requests that are answered.
    prepared = with_reconnect(
        lambda: linter_results.given_to_model(claim.job_id, change.prepared, is_first=is_first)
    )
    asking = ModelReview(prepared, _NoClient(), limits, {}, around)
    if not asking.asked:
        return review_by_agents(asking, {}, "", "")
    paths = _paths(change)
    sections = AgentQuestions(prepared, MODEL, paths)
    if is_first:
        directories = rows.directories_of(clean(path) for path in paths)
        if not with_reconnect(lambda: offer.is_configured(directories)):
            log.warning("agent_not_configured", job=claim.job_id)
            return checks_only(prepared, limits, NO_AGENT_BANNER)
        if drafts := _drafts(asking, sections):
            raise _offering(claim, drafts, directories)
    with_reconnect(lambda: expire.settle(claim.stage_run_id))
    with_reconnect(lambda: _refuse_open(claim))
    tasks = with_reconnect(lambda: list(AgentTask.objects.filter(stage_run=claim.stage_run_id)))
    return _collected(asking, sections, {task.digest: task for task in tasks})


def _paths(change: RedactedChange) -> set[str]:
    """Return every path of which a task about a part of the change may reveal something."""
    prepared = change.prepared
    rules = (rule.path for rule in prepared.text.rules)
    shown = {block.path for chunk in (*prepared.chunks, *prepared.units) for block in chunk.context}
    shown |= {path for finding in prepared.findings for path in (finding.file, *finding.evidence)}
    asked_about = {section.path for section in prepared.sections} - shown  # in tasks of their own
    beside = set(prepared.context_paths) - asked_about
    return {*filter(None, (*change.paths, *prepared.old_paths, *beside, *rules))}


def _drafts(asking: ModelReview, sections: AgentQuestions) -> list[offer.Draft]:
    try:
        return [
            *_chunks(asking),
            *sections.drafts(lambda directories: with_reconnect(lambda: offer.is_configured(directories))),
        ]
    except RedactionBlocked as blocked:
        raise PermanentFailure(
            ErrorClass.REDACTION_BLOCKED,
            Component.INTERNAL,
            "the guard refused a task for an agent",
            context={"reason_code": blocked.reason_code},
        ) from None


def _chunks(asking: ModelReview) -> list[offer.Draft]:
    schema = answer_schema(asking.limits.max_findings_per_chunk)
    drafts = []
    for ordinal, (_, digest, request) in enumerate(asking.asked):
        try:
            drafts.append(
                offer.draft(AgentTaskType.REVIEW_CHUNK, ordinal, digest, asking.calls.system, request, schema)
            )
        except offer.TooLarge:
            log.warning("agent_task_too_large", part=ordinal + 1)
    return drafts


def _offering(
    claim: StageClaim, drafts: Sequence[offer.Draft], directories: Sequence[str]
) -> DependencyUnavailable:
    waiting = _waiting(len(drafts), with_reconnect(lambda: offer.seconds_left(claim.job_id)))

    def write() -> None:
        offer.offer(claim.job_id, claim.stage_run_id, drafts, directories)
        pipeline.keep_progress(claim, {expire.OFFERED: str(len(drafts))})
        if not _open(claim).exists():  # all of them were answered before
            waiting.seconds = 0.0

    waiting.write = write
    return waiting


def _refuse_open(claim: StageClaim) -> None:
    """Raise DependencyUnavailable while a task is open."""
    found = _open(claim).aggregate(first=Min("expires_at") - Now())
    if found["first"] is None:
        return
    waiting = _waiting(_open(claim).count(), found["first"].total_seconds())

    def write() -> None:
        rows.hold_stage(claim.stage_run_id)
        if not _open(claim).exists():  # the last one came since
            waiting.seconds = 0.0

    waiting.write = write
    raise waiting


def _waiting(count: int, seconds: float) -> DependencyUnavailable:
    # A second later, by the same clock, the first of them is over.
    return DependencyUnavailable(
        "", max(seconds, 0.0) + 1, f"waiting for agents: {plural_count(count, 'task')}"
    )


def _open(claim: StageClaim) -> Any:
    return AgentTask.objects.filter(stage_run=claim.stage_run_id, status__in=OPEN_TASK)


def _collected(
    asking: ModelReview, sections: AgentQuestions, tasks: Mapping[str, AgentTask]
) -> ReviewOutcome:
    """Return the review made of the agents' answers, with a reason for each part without one."""
    offered = {task.ordinal for task in tasks.values() if task.type == AgentTaskType.REVIEW_CHUNK}
    missing: dict[tuple[int, int], list[PartResult]] = {}
    ends: Counter[str] = Counter()
    for ordinal, (part, digest, _) in enumerate(asking.asked):
        task = tasks.get(digest)
        if task is not None and task.status == AgentTaskStatus.COMPLETED and task.result:
            _finished(task).keep(asking.progress, digest)
            ends["completed"] += 1
            continue
        reason, error_class = _why(task, was_offered=ordinal in offered)
        failure = PermanentFailure(error_class, Component.REVIEWER, reason) if error_class else None
        missing[part.turn, part.index] = [PartResult(part, reason=reason, failure=failure)]
        ends["unusable" if failure else "missing"] += 1
        ends["lost"] += task is not None and task.error_class == expire.LOST
    ends["total"], parts = len(asking.asked), len(asking.asked)
    has_all_parts = not ends["missing"]  # sections without an answer take nothing from the change's review
    results = sections.results(tasks, ends)
    total, count = ends["total"], ends["missing"]
    late = "" if has_all_parts else agents_banner(count, total, ends["completed"], is_lost=ends["lost"] > 0)
    banners = [late, incomplete_banner(ends["unusable"], parts)]
    footer = agents_footer(count, total, is_minor=has_all_parts)
    outcome = review_by_agents(asking, missing, " ".join(filter(None, banners)), footer)
    if results:
        outcome = documents.joined(asking.prepared, outcome, DocumentsOutcome(results))
    return outcome if has_all_parts else replace(outcome, stopped=Stopped.UNANSWERED)


def _why(task: AgentTask | None, *, was_offered: bool) -> tuple[str, ErrorClass | None]:
    """Return the coverage's reason for a part without an answer, and the class of its failure.

    The class is None where the agent was too slow or crashed.
    """
    if not was_offered:
        return AGENT_TOO_LARGE, ErrorClass.TOKEN_LIMIT
    if task is not None and task.error_class in _FAILED:
        return _FAILED[task.error_class]
    is_failed = task is not None and task.status == AgentTaskStatus.FAILED
    return AGENT_FAILED if is_failed else AGENT_TIMEOUT, None


def _finished(task: AgentTask) -> Finished:
    """Return the answer of a task; it costs us nothing, as the agent pays for it."""
    request = task.payload[0]["request"] if task.payload else ""
    marks = marks_of(request)
    answer, leaked = without_leaks(task.result[0], marks)
    if leaked:
        log.warning("answer_repeats_request", task=str(task.pk), findings=leaked)
    boundary = marks[0] if marks else ""
    model_name = plain(str(task.metadata.get("model_used") or ""))[:100]
    model = f"{MODEL}: {model_name}" if model_name else MODEL
    return Finished({**answer, "request_cut": False, "boundary": boundary}, Usage(), model)
