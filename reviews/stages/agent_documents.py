"""Sections of documents as tasks for agents of the customer: a verification each, and what counts of it.

    section of the change ─► task, for keys that see the document too ─► quotes of both sides ─► verdict

The agent is believed as far as a model is: `drifted` needs a file of the request as evidence, and a quote of
the document and of a changed line. Whatever is left undone leaves its section uncertain, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from django.conf import settings

from criticizer.redaction import RedactionBlocked, clean, guard
from reviews.agents import expire, offer, rows
from reviews.drift.meaning.wording import Unsure
from reviews.models import AgentTask
from reviews.reviewers.anchoring import LEAST_CONFIDENCE, LESS_CONFIDENCE
from reviews.reviewers.document_answers import SectionVerdict
from reviews.reviewers.document_prompt import AGENT_SYSTEM, verification_schema
from reviews.reviewers.document_review import Question, SectionResult, not_clean, questions_of, result_of
from reviews.reviewers.prepare import Prepared
from reviews.reviewers.prompt_leaks import marks_of, repeats
from reviews.states import AgentTaskStatus, AgentTaskType

_REASONS = {
    "llm_parse_error": Unsure.PARSE_ERROR,
    "token_limit": Unsure.TOKEN_LIMIT,
    "refused": Unsure.UNAVAILABLE,
}
_CHARS = 600  # of a reasoning and of a replacement


class AgentQuestions:
    """The questions about the sections of one change; equal in each attempt of its stage."""

    def __init__(self, prepared: Prepared, model: str, paths: Collection[str]) -> None:
        self._prepared, self._paths = prepared, paths
        self._questions, self._unasked = questions_of(
            prepared, prepared.sections, model, settings.DOCUMENT_SECTIONS
        )

    def drafts(self, is_covered: Callable[[Sequence[str]], bool]) -> list[offer.Draft]:
        """Return the tasks. A section has none where no key may see its document with the change.

        It has none either where the guard refuses its text, or where that is too large for a task.
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
        """Return what became of the sections; count in `ends` how the tasks ended."""
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
        said = task.result[0]
        if repeats(said, marks_of(task.payload[0]["request"] if task.payload else "")):
            return SectionResult(question.section, SectionVerdict.UNCERTAIN, Unsure.PARSE_ERROR)
        manifest = self._prepared.text.manifest
        shown = {manifest[index].path.text for index in question.chunk.files} | {question.section.place.text}
        is_shown = not shown.isdisjoint(said["evidence_files"])
        confidence = round(100 * said["confidence"])
        if said["verdict"] == "uncertain" and not said["evidence_files"]:
            return SectionResult(question.section, SectionVerdict.UNCERTAIN, Unsure.NO_EVIDENCE, confidence)
        if said["verdict"] == "verified":
            if said["evidence_files"] and not is_shown:  # without any it costs confidence on its submission
                confidence = max(LEAST_CONFIDENCE, confidence - LESS_CONFIDENCE)
            return SectionResult(question.section, SectionVerdict.HOLDS, Unsure.SAID, confidence)
        return result_of(_answer(said, confidence, is_shown=is_shown), question, self._prepared.paths)


def _never_offered(question: Question) -> SectionResult:
    try:
        guard(question.request)
    except RedactionBlocked as blocked:
        return not_clean(question.section, blocked)
    return SectionResult(question.section, SectionVerdict.UNCERTAIN, Unsure.UNAVAILABLE)


def _answer(said: Mapping[str, Any], confidence: int, *, is_shown: bool) -> dict[str, Any]:
    """Return a verification as a model's answer about a section; without evidence it has no quote."""
    return {
        "verdict": said["verdict"],
        "claim": (said.get("specific_mismatch") or "")[:160],
        "quote_document": said.get("quote_document") or "",
        "quote_code": (said.get("quote_code") or "") if is_shown else "",
        "reasoning": said["reasoning"][:_CHARS],
        "replacement": (said.get("suggested_fix") or "")[:_CHARS],
        "confidence": confidence,
    }
