"""Submissions of results: acceptance and refusal, decided in this order.

    visible? ─► done? ─► expired? ─► the claim's token? ─► JSON? ─► by the schema? ─► accepted
                 └─ the same again: the same answer

A body is read and validated before the transaction; the rules are applied to the locked row. A body that
does not hold the current token takes no claim away (guarantee G522).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean
from reviews.agents import rows
from reviews.agents.claim import LEASE_SECONDS, TOKEN_PREFIX, digest
from reviews.agents.rows import Caller, Refusal, Refused
from reviews.models import AgentSubmission, AgentTask
from reviews.states import ACCEPTED_SUBMISSION, AgentTaskStatus, SubmissionVerdict

log = structlog.get_logger(__name__)

MAX_PARSE_FAILURES = 2
MAX_REFUSED = 50  # submissions of one task that are recorded
_TOKEN = re.compile(rb'"(' + TOKEN_PREFIX.encode() + rb'[A-Za-z0-9_-]{43})"')


class Unusable(Exception):
    """A result that cannot be used. `details` are `{"path", "message"}` of ours."""

    def __init__(self, details: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__("the result cannot be used")
        self.details = tuple(details)


class NotJson(Unusable):
    """A result that is no JSON: its body, or its data."""


class Invalid(Unusable):
    """A result that does not follow the schema of its type."""


@dataclass(frozen=True, slots=True)
class Result:
    """A valid result. `data` is None where the agent reports a failure, by `error`."""

    data: Mapping[str, Any] | None
    error: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to the agent. A `verdict` of a refusal is one that keeps the claim."""

    verdict: SubmissionVerdict
    is_duplicate: bool = False
    details: Sequence[Mapping[str, str]] = ()


# Reads a decoded body as the result of a task of a type. Raises Invalid and NotJson.
Reader = Callable[[str, Mapping[str, Any]], Result]


@dataclass(slots=True)
class _Body:
    """A body as far as it could be read. `token` is "" where it holds none."""

    size: int
    sha256: str
    token: str
    content: Mapping[str, Any] | None
    result: Result | None = None
    problem: Unusable | None = None

    @classmethod
    def of(cls, raw: bytes) -> _Body:
        try:
            content = json.loads(raw.decode(), parse_constant=_refuse_constant)
            # Without escapes: half a surrogate pair is no text, and no answer could repeat it.
            canonical = json.dumps(
                content, sort_keys=True, separators=(",", ":"), ensure_ascii=False
            ).encode()
        except (ValueError, RecursionError):
            found = _TOKEN.search(raw)
            token = found[1].decode() if found else ""
            return cls(len(raw), hashlib.sha256(raw).hexdigest(), token, None, problem=NotJson())
        token = content.get("claim_token") if isinstance(content, dict) else None
        content = content if isinstance(content, dict) else {}
        sha256 = hashlib.sha256(canonical).hexdigest()
        return cls(len(raw), sha256, token if isinstance(token, str) else "", content)

    def read(self, kind: str, reader: Reader) -> None:
        if self.content is None:
            return
        try:
            self.result = reader(kind, self.content)
        except Unusable as problem:
            self.problem = problem


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def submit(caller: Caller, task_id: UUID, read_body: Callable[[], bytes], reader: Reader) -> Answer:
    """Apply one submission. The body is read once the task is known to be the caller's.

    Raises Refused: NOT_FOUND, DONE, EXPIRED or CLAIM_LOST; and what `read_body` raises.
    """
    rows.state_of(task_id, caller)
    body = _Body.of(read_body())
    task = AgentTask.objects.only("type", "claim_sha256", "stage_run_id").get(pk=task_id)
    if body.token and digest(body.token) == task.claim_sha256:  # else it is refused anyway
        body.read(task.type, reader)
    with transaction.atomic():
        rows.hold_stage(task.stage_run_id)
        outcome = _decided(caller, task_id, body)
    if isinstance(outcome, Refusal):
        raise Refused(outcome)
    return outcome


_LOCKED = rows.statement("""
SELECT t.status, t.claim_sha256, t.parse_failures, t.failures, t.stage_run_id, t.job_id, $DEAD AS dead,
       least(t.expires_at, t.finished_at) AS ended_at,
       (extract(epoch FROM clock_timestamp() - least(t.expires_at, t.finished_at)) * 1000)::bigint
           AS late_by_ms
  FROM agent_tasks t WHERE t.id = %(id)s FOR NO KEY UPDATE""")


def _decided(caller: Caller, task_id: UUID, body: _Body) -> Answer | Refusal:
    task = prepared.row(_LOCKED, {"id": task_id})
    assert task is not None
    log_facts = {"task": str(task_id), "job": task["job_id"], "key": caller.key}

    def note(verdict: SubmissionVerdict, late_by_ms: int | None = None) -> None:
        _note(caller, task_id, body, verdict, late_by_ms)

    refusal = rows.refusal_of(task["status"], is_dead=task["dead"])
    if refusal is not Refusal.EXPIRED and (earlier := _same_before(task_id, body)):
        note(SubmissionVerdict.DUPLICATE)
        return Answer(earlier, is_duplicate=True)
    if refusal is Refusal.EXPIRED:
        note(SubmissionVerdict.EXPIRED, late_by_ms := max(task["late_by_ms"], 0))
        log.info(
            "agent_result_late", late_by_ms=late_by_ms, expired_at=task["ended_at"].isoformat(),
            status=task["status"], **log_facts,
        )  # fmt: skip
        return refusal
    if refusal is not None:
        note(SubmissionVerdict.DONE)
        return refusal
    if not body.token and isinstance(body.problem, NotJson):
        note(SubmissionVerdict.NOT_JSON)
        return Answer(SubmissionVerdict.NOT_JSON)
    if task["status"] != AgentTaskStatus.IN_PROGRESS or digest(body.token) != task["claim_sha256"]:
        note(SubmissionVerdict.CLAIM_LOST)
        return Refusal.CLAIM_LOST
    if body.problem is not None:
        return _unusable(caller, task_id, task, body, body.problem)
    if body.result is None:  # claimed while the body was read, with its token: not possible
        return Refusal.CLAIM_LOST
    note(SubmissionVerdict.ACCEPTED)
    _accept(task_id, task, body.result)
    log.info("agent_result_accepted", size=body.size, **log_facts)
    return Answer(SubmissionVerdict.ACCEPTED)


def _same_before(task_id: UUID, body: _Body) -> SubmissionVerdict | None:
    """Return the verdict on the same body, if it was accepted before.

    Its answer may have been lost.
    """
    found = AgentSubmission.objects.filter(
        task=task_id, sha256=body.sha256, verdict__in=[verdict.value for verdict in ACCEPTED_SUBMISSION]
    )
    verdict = found.values_list("verdict", flat=True).first() if body.token else None
    return SubmissionVerdict(verdict) if verdict else None


def _unusable(
    caller: Caller, task_id: UUID, task: Mapping[str, Any], body: _Body, problem: Unusable
) -> Answer:
    """Answer a result that cannot be used.

    The first one is refused, with a fresh lease; the second is accepted as a failure.
    """
    count = task["parse_failures"] + 1
    is_json = isinstance(problem, Invalid)
    log.warning(
        "agent_result_invalid", task=str(task_id), job=task["job_id"], size=body.size, attempt=count,
        is_json=is_json, paths=[each["path"] for each in problem.details[:5]],
    )  # fmt: skip
    if count < MAX_PARSE_FAILURES:
        verdict = SubmissionVerdict.INVALID if is_json else SubmissionVerdict.NOT_JSON
        _note(caller, task_id, body, verdict)
        prepared.rows(
            """
            UPDATE agent_tasks SET parse_failures = %(count)s, lease_expires_at =
                   least(clock_timestamp() + make_interval(secs => %(lease)s), expires_at)
             WHERE id = %(id)s""",
            {"id": task_id, "count": count, "lease": outbox.scaled(LEASE_SECONDS)},
        )
        return Answer(verdict, details=problem.details)
    verdict = SubmissionVerdict.ACCEPTED_AS_FAILED
    _note(caller, task_id, body, verdict)
    _end(
        task_id, task, status=AgentTaskStatus.FAILED, parse_failures=count, error_class="llm_parse_error",
        detail="two results could not be used",
    )  # fmt: skip
    return Answer(verdict)


def _accept(task_id: UUID, task: Mapping[str, Any], result: Result) -> None:
    metadata = dict(result.metadata)
    if result.data is not None:
        data = [dict(result.data)]
        _end(task_id, task, status=AgentTaskStatus.COMPLETED, result=data, metadata=metadata, error_class="")
        return
    error_class = _class_of(result.error)
    failure = {"error_class": error_class, "detail": clean(result.error, 512), "metadata": metadata}
    if error_class == "agent_error" and task["failures"] == 0:
        # Once more, while time is left: its time and its claims still bound it.
        again = AgentTask.objects.filter(pk=task_id, status=AgentTaskStatus.IN_PROGRESS)
        again.update(
            status=AgentTaskStatus.PENDING, claim_sha256="", lease_expires_at=None, failures=1, **failure
        )
        return
    _end(task_id, task, status=AgentTaskStatus.FAILED, **failure)


def _class_of(error: str) -> str:
    """Return the class of the error that an agent reports.

    `agent_error` is tried once more; the others would end alike.
    """
    if "token_limit" in error:  # specification, scenario 6
        return "token_limit"
    # A word alone, with or without its reason: "connection refused" is no refusal.
    return "refused" if error.partition(":")[0].strip() == "refused" else "agent_error"


def _end(task_id: UUID, task: Mapping[str, Any], **fields: Any) -> None:
    """Make a task final; the last one makes its stage due in the same commit (guarantee G523)."""
    found = AgentTask.objects.filter(pk=task_id, status=AgentTaskStatus.IN_PROGRESS)
    if found.update(lease_expires_at=None, finished_at=Now(), **fields) != 1:
        raise AssertionError("a locked task changed its state")
    rows.wake_if_last(task["stage_run_id"])


def _note(
    caller: Caller,
    task_id: UUID,
    body: _Body,
    verdict: SubmissionVerdict,
    late_by_ms: int | None = None,
) -> None:
    is_refused = verdict not in ACCEPTED_SUBMISSION
    if is_refused and AgentSubmission.objects.filter(task=task_id).count() >= MAX_REFUSED:
        return
    AgentSubmission.objects.create(
        task_id=task_id,
        verdict=verdict,
        sha256=body.sha256,
        size_bytes=body.size,
        key=caller.key,
        client=caller.address[:64],
        late_by_ms=late_by_ms,
    )
