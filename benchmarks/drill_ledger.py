"""Books of the drill: the posted requests, the database and the receivers' ledgers.

`reconcile` is a pure function of the three and finds every contradiction. What counts as what:

lost         a request that was answered 200 or 201 has no job; or a delivery says "sent" (or its
             job "succeeded") and the receiver has nothing
duplicated   a recipient has one review twice, as the recipient counts: an SMTP server by messages,
             a maildir by files, a webhook receiver by keys (and by bodies under one key)
stuck        a job without a final state when time was up
wrong_state  a final row that contradicts another row, or the receivers (`_contradictions`)
uncertain    deliveries held for an operator, because the mail server can neither deduplicate nor
             be asked: neither lost nor duplicated, whatever the receiver has
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from criticizer.codehosts.registry import HOSTS
from notifications.recipients import is_required

MAX_ATTEMPTS = 5  # of a stage
FINAL = {"succeeded", "dead_lettered"}  # no request cancels, supersedes or is late in a drill
PULLS = tuple(HOSTS)  # begin what is of a pull request: a key, or a recipient, that several jobs have
# What the injected faults can end in. Anything else is a defect that the faults brought to light.
EXPECTED_CLASSES = {
    "NETWORK_TIMEOUT",
    "NETWORK_UNREACHABLE",
    "UPSTREAM_UNAVAILABLE",
    "UPSTREAM_INTERNAL",
    "RATE_LIMITED",
    "SCHEMA_INVALID",  # every answer of the model was unreadable
    "DELIVERY_UNCERTAIN",
    "WORKER_LOST",
}
_UNKNOWN = {"reconciling", "sending", "uncertain"}  # the row itself says that nobody knows
_EVIDENCE = {"accepted", "found", "confirmed"}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """One message that a receiver took over. `recipient` is channel-qualified."""

    token: str
    recipient: str


@dataclass(frozen=True, slots=True)
class Receipts:
    """The receivers' ledgers. `unsigned` counts webhook requests without a valid signature."""

    effects: tuple[Effect, ...] = ()
    unsigned: int = 0
    webhook_requests: int = 0


@dataclass(frozen=True, slots=True)
class Posted:
    """A request that was answered 200 or 201: the job it was told."""

    key: str
    job: int
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows of the database, each a mapping by column. Made by `read`."""

    jobs: Sequence[Row] = ()
    stages: Sequence[Row] = ()
    attempts: Sequence[Row] = ()
    deliveries: Sequence[Row] = ()
    delivery_attempts: Sequence[Row] = ()
    letters: Sequence[Row] = ()
    outbox: Sequence[Row] = ()


_QUERIES = {
    "jobs": "SELECT id, idempotency_key, status, status_reason, created_at, finished_at, recipients"
    " FROM jobs",
    "stages": "SELECT id, job_id, stage, status, attempts, max_attempts, error_class FROM stage_runs",
    "attempts": "SELECT id, stage_run_id, worker, started_at, finished_at, outcome FROM attempts",
    "deliveries": "SELECT id, job_id, recipient, status, token::text, notified_at FROM deliveries",
    "delivery_attempts": "SELECT id, delivery_id, outcome FROM delivery_attempts",
    "letters": "SELECT id, job_id, stage, status, error_class FROM dead_letters",
    "outbox": "SELECT id, aggregate_id, waiting_for, available_at FROM outbox_messages"
    " WHERE aggregate_type = 'stage_run'",
}


def read(connection: psycopg.Connection[Any]) -> Facts:
    """Read the rows in one snapshot. `connection` is in autocommit mode."""
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return Facts(
            **{name: cursor.execute(f"{sql} ORDER BY id").fetchall() for name, sql in _QUERIES.items()}
        )


@dataclass(slots=True)
class Verdict:
    """Verdict on the books. Each list holds one sentence a case."""

    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    wrong_state: list[str] = field(default_factory=list)
    uncertain: int = 0
    uncertain_received: int = 0  # of those, what the receiver has
    dead_lettered: dict[str, int] = field(default_factory=dict)  # by error class
    max_attempts: int = 0

    def add(self, other: Verdict) -> None:
        """Take another verdict's cases over."""
        for name in ("lost", "duplicated", "stuck", "wrong_state"):
            getattr(self, name).extend(getattr(other, name))

    @property
    def is_settled(self) -> bool:
        """Return whether nothing is left that time could mend."""
        return not (self.lost or self.stuck or self.wrong_state)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.duplicated or self.stuck or self.wrong_state)


def reconcile(posted: Sequence[Posted], facts: Facts, receipts: Receipts) -> Verdict:
    """Compare the three books."""
    verdict = Verdict()
    received = Counter(effect.token for effect in receipts.effects)
    told = Counter(effect for effect in receipts.effects)
    jobs = {row["id"]: row for row in facts.jobs}
    _compare_posted(verdict, posted, jobs)
    _compare_deliveries(verdict, facts, jobs, received)
    for effect, times in told.items():
        if times > 1:
            verdict.duplicated.append(f"{effect.recipient} has {effect.token} {times} times")
    for recipient, tokens in _tokens_of(receipts.effects).items():
        if len(tokens) > 1 and not recipient.startswith(PULLS):  # every other job has recipients of its own
            verdict.duplicated.append(f"{recipient} was told under {len(tokens)} keys")
    known = {row["token"] for row in facts.deliveries}
    verdict.wrong_state += [
        f"a receiver has {token}, which no delivery names" for token in sorted(set(received) - known)
    ]
    if receipts.unsigned:
        verdict.wrong_state.append(f"{receipts.unsigned} webhook requests were not signed")
    for row in facts.jobs:
        if row["finished_at"] is None:
            verdict.stuck.append(f"job {row['id']} is {row['status']} ({row['status_reason']})")
    verdict.wrong_state += _contradictions(facts, jobs)
    verdict.dead_lettered = dict(sorted(Counter(row["error_class"] for row in facts.letters).items()))
    verdict.max_attempts = max((row["attempts"] for row in facts.stages), default=0)
    return verdict


def take_out_repeated(
    verdict: Verdict, facts: Facts, losses: Iterable[float], lost: Collection[str]
) -> dict[str, int]:
    """Take out of `duplicated` the messages that were repeated because their record was lost.

    A receiver has them again under one key. With its record a database lost the result too: the message is
    made anew, with another time of review. A receiver that honours the key drops it; people see the mail
    again. `losses` says when a database was lost, in seconds of the epoch, and `lost` has the keys of the
    requests that it lost. A job that ended before, or began after, has kept its record: its repetition
    stays. Returns how many there were, by channel.
    """
    moments = [datetime.fromtimestamp(seconds, UTC) for seconds in losses]
    jobs = {
        job["id"]
        for job in facts.jobs
        if job["idempotency_key"] in lost
        or any(
            job["created_at"] < moment and not (job["finished_at"] and job["finished_at"] < moment)
            for moment in moments
        )
    }
    repeated = dict.fromkeys(("mail", "webhook"), 0)
    for row in facts.deliveries:
        channel, case = row["recipient"].partition(":")[0], f"{row['recipient']} has {row['token']} "
        if row["job_id"] in jobs and channel in repeated:
            kept = [one for one in verdict.duplicated if not one.startswith(case)]
            repeated[channel] += len(verdict.duplicated) - len(kept)
            verdict.duplicated = kept
    return repeated


def _compare_posted(verdict: Verdict, posted: Sequence[Posted], jobs: Mapping[int, Row]) -> None:
    answered: dict[str, set[int]] = {}
    for entry in posted:
        answered.setdefault(entry.key, set()).add(entry.job)
        job = jobs.get(entry.job)
        if job is None or job["idempotency_key"] != entry.key:
            verdict.lost.append(f"{entry.key} was accepted as job {entry.job}, which is not there")
        elif set(job["recipients"]) != set(entry.recipients):
            verdict.wrong_state.append(f"job {entry.job} has other recipients than were posted")
    for key, ids in answered.items():
        if len(ids) > 1:
            verdict.duplicated.append(f"{key} was answered with {len(ids)} jobs")
    for job in jobs.values():
        if job["idempotency_key"] not in answered and not _is_of_pull(job):
            verdict.wrong_state.append(f"job {job['id']} exists and nobody was told")


def _compare_deliveries(
    verdict: Verdict, facts: Facts, jobs: Mapping[int, Row], received: Mapping[str, int]
) -> None:
    evidence = {row["delivery_id"] for row in facts.delivery_attempts if row["outcome"] in _EVIDENCE}
    of_job: dict[int, dict[str, Row]] = {}
    for row in facts.deliveries:
        of_job.setdefault(row["job_id"], {})[row["recipient"]] = row
        name = f"delivery {row['id']} of job {row['job_id']} to {row['recipient']}"
        has = received.get(row["token"], 0) > 0
        if row["status"] == "sent":
            if not has:
                verdict.lost.append(f"{name} says sent, and the receiver has nothing")
            if row["id"] not in evidence:
                verdict.wrong_state.append(f"{name} says sent without evidence")
        elif row["status"] == "uncertain":
            verdict.uncertain += 1
            verdict.uncertain_received += has
        elif has and row["status"] not in _UNKNOWN and jobs[row["job_id"]]["finished_at"]:
            verdict.wrong_state.append(f"{name} is {row['status']}, and the receiver has it")
    for job in jobs.values():
        if job["status"] != "succeeded":
            continue
        for recipient in job["recipients"]:
            found = of_job.get(job["id"], {}).get(recipient)
            # Inline comments that stand there from an earlier version are not repeated.
            if found is None and is_required(recipient):
                verdict.lost.append(f"job {job['id']} succeeded without a delivery to {recipient}")
            elif (
                found
                and found["status"] != "sent"
                and not (_is_of_pull(job) and found["status"] == "superseded")
            ):
                verdict.wrong_state.append(
                    f"job {job['id']} succeeded while {recipient} is {found['status']}"
                )


def _is_of_pull(job: Row) -> bool:
    return str(job["idempotency_key"]).partition(":")[0] in PULLS


def _tokens_of(effects: Iterable[Effect]) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for effect in effects:
        found.setdefault(effect.recipient, set()).add(effect.token)
    return found


def _contradictions(facts: Facts, jobs: Mapping[int, Row]) -> Iterator[str]:
    """Yield every row that contradicts another."""
    letters: dict[int, list[Row]] = {}
    for row in facts.letters:
        letters.setdefault(row["job_id"], []).append(row)
    for job in jobs.values():
        name, has = f"job {job['id']}", letters.get(job["id"], [])
        final = FINAL | {"superseded"} if _is_of_pull(job) else FINAL
        if job["finished_at"] is not None and job["status"] not in final:
            yield f"{name} ended as {job['status']}, which nobody asked for"
        if job["status"] == "dead_lettered" and len(has) != 1:
            yield f"{name} is dead-lettered with {len(has)} letters"
        if job["status"] != "dead_lettered" and has:
            yield f"{name} is {job['status']} and has a letter"
        for letter in has:
            if letter["error_class"] not in EXPECTED_CLASSES:
                yield f"{name} has a letter {letter['error_class']} in {letter['stage']}: no fault does that"
    counted: Counter[int] = Counter()
    open_attempts: Counter[int] = Counter()
    for row in facts.attempts:
        counted[row["stage_run_id"]] += row["outcome"] != "given_back"
        open_attempts[row["stage_run_id"]] += row["outcome"] == "started"
    waiting = Counter(row["aggregate_id"] for row in facts.outbox)
    for stage in facts.stages:
        yield from _of_stage(stage, jobs[stage["job_id"]], counted, open_attempts, waiting)


def _of_stage(
    stage: Row, job: Row, counted: Counter[int], open_attempts: Counter[int], waiting: Counter[int]
) -> Iterator[str]:
    name, key = f"{stage['stage']} of job {job['id']}", stage["id"]
    if max(stage["attempts"], counted[key]) > min(MAX_ATTEMPTS, stage["max_attempts"]):
        yield f"{name} was tried {max(stage['attempts'], counted[key])} times"
    if stage["attempts"] != counted[key]:
        yield f"{name} counts {stage['attempts']} attempts and has {counted[key]}"
    if job["finished_at"] is None:
        return
    if open_attempts[key]:
        yield f"{name} has an open attempt after the end of its job"
    if waiting[key]:
        yield f"{name} is still queued after the end of its job"
    if job["status"] == "succeeded" and stage["status"] != "succeeded":
        yield f"{name} is {stage['status']} in a job that succeeded"
