"""The drill's reconciliation: each kind of falsified entry in its books is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from benchmarks.drill_ledger import Effect, Facts, Posted, Receipts, Verdict, reconcile, take_out_repeated
from benchmarks.drill_schedule import WEIGHTS, schedule

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAIL, HOOK = "mail:ann@example.com", "webhook:http://127.0.0.1:1/hook"
STAGES = ("fetch", "llm", "notify")
Books = tuple[list[Posted], Facts, Receipts]


def books() -> Books:
    """Return the books of one job that went well."""
    job = {
        "id": 1,
        "idempotency_key": "k1",
        "status": "succeeded",
        "status_reason": "",
        "created_at": NOW,
        "finished_at": NOW + timedelta(seconds=10),
        "recipients": [MAIL, HOOK],
    }
    stages = [
        {"id": n, "job_id": 1, "stage": stage, "status": "succeeded", "attempts": 1, "max_attempts": 5,
         "error_class": ""}
        for n, stage in enumerate(STAGES, 1)
    ]  # fmt: skip
    attempts = [
        {"id": n, "stage_run_id": n, "worker": "w", "started_at": NOW, "finished_at": NOW,
         "outcome": "succeeded", "error_class": ""}
        for n in (1, 2, 3)
    ]  # fmt: skip
    deliveries = [
        {"id": 1, "job_id": 1, "recipient": MAIL, "status": "sent", "token": "t1", "notified_at": NOW},
        {"id": 2, "job_id": 1, "recipient": HOOK, "status": "sent", "token": "t2", "notified_at": NOW},
    ]
    tries = [{"id": n, "delivery_id": n, "outcome": "accepted"} for n in (1, 2)]
    facts = Facts([job], stages, attempts, deliveries, tries)
    return [Posted("k1", 1, (MAIL, HOOK))], facts, Receipts((Effect("t1", MAIL), Effect("t2", HOOK)))


def changed(rows: Any, position: int, **values: object) -> list[Mapping[str, Any]]:
    return [{**row, **values} if n == position else row for n, row in enumerate(rows)]


def with_facts(falsify: Callable[[Facts], Facts]) -> Verdict:
    posted, facts, receipts = books()
    return reconcile(posted, falsify(facts), receipts)


def with_receipts(*effects: Effect) -> Verdict:
    posted, facts, _ = books()
    return reconcile(posted, facts, Receipts(effects))


def test_good_books_are_good() -> None:
    verdict = reconcile(*books())
    assert verdict == Verdict(max_attempts=1)
    assert verdict.ok


def test_a_receiver_without_the_message_is_a_loss() -> None:
    verdict = with_receipts(Effect("t1", MAIL))
    assert verdict.lost == [f"delivery 2 of job 1 to {HOOK} says sent, and the receiver has nothing"]
    assert not verdict.ok


def test_an_accepted_request_without_a_job_is_a_loss() -> None:
    posted, facts, receipts = books()
    verdict = reconcile([*posted, Posted("k2", 2, (MAIL,))], facts, receipts)
    assert verdict.lost == ["k2 was accepted as job 2, which is not there"]


def test_a_succeeded_job_without_a_delivery_is_a_loss() -> None:
    verdict = with_facts(lambda facts: replace(facts, deliveries=facts.deliveries[:1]))
    assert verdict.lost == [f"job 1 succeeded without a delivery to {HOOK}"]


def test_a_message_taken_twice_is_a_duplicate() -> None:
    verdict = with_receipts(Effect("t1", MAIL), Effect("t1", MAIL), Effect("t2", HOOK))
    assert verdict.duplicated == [f"{MAIL} has t1 2 times"]


@pytest.mark.parametrize(
    ("lost_after", "keys", "is_kept"),
    [(5, {"k9"}, False), (-5, {"k1"}, False), (-5, {"k9"}, True), (15, {"k9"}, True)],
    ids=[
        "the record was lost",
        "the request was lost",
        "it began after the loss",
        "it ended before the loss",
    ],
)
def test_only_a_repetition_whose_record_was_lost_is_none(
    lost_after: int, keys: set[str], is_kept: bool
) -> None:
    _, facts, _ = books()
    verdict = with_receipts(Effect("t1", MAIL), Effect("t1", MAIL), Effect("t2", HOOK), Effect("t2", HOOK))
    repeated = take_out_repeated(verdict, facts, [NOW.timestamp() + lost_after], keys)
    assert repeated == dict.fromkeys(("mail", "webhook"), 0 if is_kept else 1)
    assert len(verdict.duplicated) == (2 if is_kept else 0)


def test_one_review_under_two_keys_is_a_duplicate() -> None:
    verdict = with_receipts(Effect("t1", MAIL), Effect("t2", HOOK), Effect("t9", HOOK))
    assert verdict.duplicated == [f"{HOOK} was told under 2 keys"]
    assert verdict.wrong_state == ["a receiver has t9, which no delivery names"]


def test_one_key_answered_with_two_jobs_is_a_duplicate() -> None:
    posted, facts, receipts = books()
    second = {**facts.jobs[0], "id": 2, "recipients": []}
    verdict = reconcile([*posted, Posted("k1", 2, ())], replace(facts, jobs=[*facts.jobs, second]), receipts)
    assert verdict.duplicated == ["k1 was answered with 2 jobs"]


def test_a_job_without_an_end_is_stuck() -> None:
    verdict = with_facts(
        lambda facts: replace(facts, jobs=changed(facts.jobs, 0, status="in_progress", finished_at=None))
    )
    assert verdict.stuck == ["job 1 is in_progress ()"]


def falsified(name: str, position: int, **values: object) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, **{name: changed(getattr(facts, name), position, **values)})


def _dead(facts: Facts) -> Facts:
    return falsified("jobs", 0, status="dead_lettered")(facts)


WRONG: dict[str, tuple[Callable[[Facts], Facts], str]] = {
    "success with an unsent delivery": (
        falsified("deliveries", 0, status="pending"), f"job 1 succeeded while {MAIL} is pending"),
    "sent without evidence": (
        falsified("delivery_attempts", 1, outcome="started"),
        f"delivery 2 of job 1 to {HOOK} says sent without evidence"),
    "told and failed": (
        lambda facts: falsified("deliveries", 0, status="failed")(_dead(facts)),
        f"delivery 1 of job 1 to {MAIL} is failed, and the receiver has it"),
    "no letter": (_dead, "job 1 is dead-lettered with 0 letters"),
    "a letter too many": (
        lambda facts: replace(facts, letters=[
            {"id": 1, "job_id": 1, "stage": "llm", "status": "open", "error_class": "NETWORK_TIMEOUT"}]),
        "job 1 is succeeded and has a letter"),
    "a class no fault has": (
        lambda facts: replace(_dead(facts), letters=[
            {"id": 1, "job_id": 1, "stage": "llm", "status": "open", "error_class": "INTERNAL_BUG"}]),
        "job 1 has a letter INTERNAL_BUG in llm: no fault does that"),
    "an end nobody asked for": (
        falsified("jobs", 0, status="timed_out"), "job 1 ended as timed_out, which nobody asked for"),
    "queued after the end": (
        lambda facts: replace(facts, outbox=[{"id": 1, "aggregate_id": 3}]),
        "notify of job 1 is still queued after the end of its job"),
    "open attempt after the end": (
        falsified("attempts", 1, outcome="started"),
        "llm of job 1 has an open attempt after the end of its job"),
    "miscounted attempts": (
        falsified("stages", 1, attempts=2), "llm of job 1 counts 2 attempts and has 1"),
    "too many attempts": (
        lambda facts: replace(
            falsified("stages", 0, attempts=6, max_attempts=6)(facts),
            attempts=[*facts.attempts, *[{**facts.attempts[0], "id": 9 + n} for n in range(5)]]),
        "fetch of job 1 was tried 6 times"),
    "unfinished stage": (
        falsified("stages", 1, status="pending"), "llm of job 1 is pending in a job that succeeded"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_contradiction_is_a_wrong_state(case: str) -> None:
    falsify, sentence = WRONG[case]
    verdict = with_facts(falsify)
    assert sentence in verdict.wrong_state
    assert not verdict.ok


def test_an_unsigned_request_and_a_job_nobody_was_told_of_are_wrong() -> None:
    _, facts, receipts = books()
    verdict = reconcile([], facts, replace(receipts, unsigned=2))
    assert verdict.wrong_state == [
        "job 1 exists and nobody was told",
        "2 webhook requests were not signed",
    ]


@pytest.mark.parametrize("has_it", [True, False])
def test_a_held_delivery_is_counted_and_is_no_failure(has_it: bool) -> None:
    posted, facts, receipts = books()
    letter = {"id": 1, "job_id": 1, "stage": "notify", "status": "open", "error_class": "DELIVERY_UNCERTAIN"}
    facts = replace(falsified("deliveries", 0, status="uncertain")(_dead(facts)), letters=[letter])
    facts = replace(facts, stages=changed(facts.stages, 2, status="failed"))
    verdict = reconcile(posted, facts, receipts if has_it else Receipts(receipts.effects[1:]))
    assert verdict.ok
    assert (verdict.uncertain, verdict.uncertain_received) == (1, int(has_it))
    assert verdict.dead_lettered == {"DELIVERY_UNCERTAIN": 1}


def test_the_schedule_is_the_seeds_and_has_every_kind() -> None:
    faults = schedule(200, 7)
    assert faults == schedule(200, 7)
    assert faults != schedule(200, 8)
    assert len(faults) == 200
    assert {fault.kind for fault in faults} == set(WEIGHTS)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert len(schedule(3, 1)) == 3
    assert {fault.kind for fault in schedule(len(WEIGHTS), 1)} == set(WEIGHTS)
