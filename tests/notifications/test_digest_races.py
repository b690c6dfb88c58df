"""Digests under concurrent jobs, operators and maintenance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.db import prepared
from criticizer.resilience import gate
from criticizer.resilience.failures import (
    DependencyUnavailable,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.resilience.health_checks import CHECKS
from notifications.delivery import audit, operator_actions, prepare, reconcile, send, store
from notifications.digests import lifecycle
from notifications.models import Delivery, DeliveryAttempt, Digest
from notifications.providers.base import Capabilities, LookUpBy
from notifications.states import DeliveryStatus
from reviews import pipeline
from reviews.models import ReviewJob
from reviews.pipeline import replay
from reviews.states import Stage
from tests.factories import DeadLetterFactory, StageRunFactory
from tests.notifications.scripted import (
    ANN,
    ScriptedProvider,
    crashed,
    deliver,
    not_sent,
    outcomes,
    refused,
    unclear,
)
from tests.notifications.together import make_due, message_about, states, tell, waiting

pytestmark = pytest.mark.django_db(transaction=True)

D = DeliveryStatus


_BLOCKED = """
SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"""


def elsewhere(work: Callable[[], Any]) -> Any:
    """Do something on a connection of its own, to its end."""

    def do() -> Any:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(do).result()


@contextmanager
def in_another_thread(work: Callable[[], Any], found: list[Any] | None = None) -> Iterator[list[Any]]:
    """Begin something on another connection that has to wait for a lock of this one."""
    is_within, found = found is not None, [] if found is None else found

    def do() -> None:
        try:
            found.append(work())
        except Exception as error:  # noqa: BLE001
            found.append(error)
        finally:
            connection.close()

    thread = Thread(target=do)
    with transaction.atomic():
        yield found
        thread.start()
        for _ in range(500):
            if prepared.value(_BLOCKED):
                break
            time.sleep(0.02)
        else:
            found.append("it did not wait")
    if not is_within:
        thread.join()


# -- a review that is taken out ------------------------------------------------------------------


@pytest.mark.long
def test_a_review_that_ends_after_proof_of_absence_is_not_sent(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.extend([unclear(), not_sent()])
    tell(jobs[:1], {"mail": asked})
    tell(jobs[:1], {"mail": asked})
    assert outcomes(rows[0]) == ["ambiguous", "absent", "not_sent"]
    assert states(rows) == ["pending"] * 3
    operator_actions.cancel_unsent(jobs[1].pk)
    make_due()
    deliver(jobs[0], {"mail": asked})
    assert asked.calls[-1].subject == "2 reviews: 2 high, 2 low (1, 3)"
    operator_actions.revive_cancelled(jobs[1].pk)
    deliver(jobs[1], {"mail": asked})
    assert states(rows) == ["sent"] * 3
    assert asked.calls[-1].token == rows[1].token


def test_an_absent_digest_is_composed_without_the_ended_job(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.append(unclear())
    tell(jobs[:1], {"mail": asked})
    assert audit.settle(jobs[0].pk, {"mail": asked}) == 0
    operator_actions.supersede_unsent(jobs[0].pk)
    deliver(jobs[1], {"mail": asked})
    assert states(rows) == ["superseded", "sent", "sent"]
    assert asked.calls[-1].subject == "2 reviews: 2 high, 2 low (2, 3)"


def taken_off(job: ReviewJob) -> None:
    with transaction.atomic():
        assert operator_actions.cancel_for_recipients(job.pk, removed=[ANN], added=[]) == ""


def tidied(job: ReviewJob) -> None:
    ReviewJob.objects.filter(pk=job.pk).update(status="cancelled", finished_at=Now())
    pipeline.expire_overdue()


def replayed(job: ReviewJob) -> None:
    store.leave_digests(job.pk)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda job: operator_actions.cancel_unsent(job.pk), "cancelled"),
        (taken_off, "superseded"),
        (tidied, "cancelled"),
        (replayed, "pending"),
    ],
)
def test_a_resent_digest_leaves_out_removed_reviews(
    end: Callable[[ReviewJob], object], status: str, mail: ScriptedProvider
) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    mail.script.append(unclear())
    tell(jobs[:1], {"mail": mail})
    assert operator_actions.resend_uncertain(rows[0].pk, "ann", "not there")
    assert Digest.objects.get().closed_at is not None, "it is resent as it was"
    end(jobs[1])
    deliver(jobs[0], {"mail": mail})
    assert states(rows) == ["sent", status, "sent"]
    assert mail.calls[-1].subject == "2 reviews: 2 high, 2 low (1, 3)"
    assert mail.calls[-1].repeat_notice


def test_a_digest_that_is_being_sent_is_not_opened(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    crashed(rows[0], "maildir")
    operator_actions.cancel_unsent(jobs[1].pk)
    store.leave_digests(jobs[2].pk)
    assert states(rows) == ["sending"] * 3
    assert Digest.objects.get().carrier_id == rows[0].pk


@pytest.mark.parametrize("stage", [Stage.FETCH, Stage.LLM, Stage.NOTIFY])
def test_a_replayed_review_leaves_its_digest(stage: Stage, asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3", status="dead_lettered", finished_at=timezone.now())
    with transaction.atomic():
        StageRunFactory(job=jobs[1], stage=stage, status="succeeded")
        DeadLetterFactory(job=jobs[1], status="replaying")
        assert replay(jobs[1].pk, stage)
    make_due()
    deliver(jobs[0], {"mail": asked})
    if stage is Stage.NOTIFY:
        assert states(rows) == ["sent"] * 3
        return
    assert states(rows) == ["sent", "pending", "sent"]
    newer = message_about(jobs[1], ANN, "critical")
    prepare.create_deliveries(jobs[1].pk, "2", jobs[1].review_version, {ANN: newer})
    deliver(jobs[1], {"mail": asked})
    assert asked.calls[-1] == newer
    assert states(rows) == ["sent"] * 3


# -- at once -------------------------------------------------------------------------------------


def released(mail: ScriptedProvider) -> tuple[list[Any], list[Delivery]]:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    mail.script.append(unclear())
    tell(jobs[:1], {"mail": mail})
    assert operator_actions.resend_uncertain(rows[0].pk, "ann", "not there")
    states(rows)
    return jobs, rows


def test_a_review_that_ends_while_its_digest_is_claimed_is_left_out(mail: ScriptedProvider) -> None:
    jobs, rows = released(mail)
    with in_another_thread(lambda: deliver(jobs[0], {"mail": mail})) as found:
        operator_actions.cancel_unsent(jobs[1].pk)
    assert found == [send.Outcome(sent=1)]
    assert states(rows) == ["sent", "cancelled", "sent"]
    assert mail.calls[-1].subject == "2 reviews: 2 high, 2 low (1, 3)"


def test_a_row_that_changed_by_other_means_does_not_move_with_the_carrier(mail: ScriptedProvider) -> None:
    """A row without a digest: the others are sent, and no job fails."""
    jobs, rows = released(mail)
    with in_another_thread(lambda: deliver(jobs[0], {"mail": mail})) as found:
        Delivery.objects.filter(pk=rows[1].pk).update(status=D.CANCELLED, digest=None)
    assert found == [send.Outcome(sent=1)]
    assert states(rows) == ["sent", "cancelled", "sent"]


def test_absence_and_claim_of_a_digest_do_not_deadlock(asked: ScriptedProvider) -> None:
    """Both hold the digest first: neither is the victim of a deadlock."""
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.append(unclear())
    tell(jobs[:1], {"mail": asked})
    row = store.read(rows[0].pk)
    real = lifecycle.reopen
    found: list[Any] = []

    def reopen(*arguments: Any) -> None:
        with in_another_thread(lambda: store.claim(row, "maildir"), found):
            pass
        real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifecycle, "reopen", reopen)
        assert store.move(row, D.PENDING, clear_markers=True)
    while not found:
        time.sleep(0.02)
    assert not isinstance(found[0], Exception)
    assert found != ["it did not wait"]
    assert len(set(states(rows))) == 1


def test_refused_credentials_fail_no_row_before_the_circuit_decides(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    seen: list[list[str]] = []
    real = gate.Permit.report

    def report(permit: gate.Permit, error: BaseException | None) -> DependencyUnavailable | None:
        seen.append(states(rows))
        return real(permit, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate.Permit, "report", report)
        asked.script.append(refused(ErrorClass.AUTH_DENIED))
        (found,) = tell(jobs[:1], {"mail": asked})
    assert isinstance(found, PermanentFailure)
    assert seen == [["pending"] * 3]
    assert states(rows) == ["failed", "pending", "pending"]


def test_a_refused_probe_leaves_all_of_a_digest_as_it_was(asked: ScriptedProvider, settings: Any) -> None:
    CHECKS.clear()
    jobs, rows = waiting("1", "2", "3")
    make_due()
    gate.check("provider:maildir")
    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now() - interval '1 hour'")
    gate.forget()
    asked.script.append(refused(ErrorClass.AUTH_DENIED))
    (found,) = tell(jobs[:1], {"mail": asked})
    assert isinstance(found, DependencyUnavailable)
    assert states(rows) == ["pending"] * 3
    assert Digest.objects.get().closed_at is None


def test_a_row_that_another_took_while_it_was_refused_is_not_failed(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    real = gate.Permit.report

    def report(permit: gate.Permit, error: BaseException | None) -> DependencyUnavailable | None:
        patch.setattr(gate.Permit, "report", real)
        make_due()
        assert elsewhere(lambda: store.claim(store.read(rows[1].pk), "maildir"))
        return real(permit, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate.Permit, "report", report)
        asked.script.append(refused(ErrorClass.AUTH_DENIED))
        (found,) = tell(jobs[:1], {"mail": asked})
    assert isinstance(found, DependencyUnavailable)
    assert states(rows) == ["sending"] * 3


def test_after_a_failure_no_other_job_tries_at_once(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.append(not_sent(wait=60.0))
    first, *others = tell(jobs, {"mail": asked})
    assert isinstance(first, RetryableFailure)
    assert all(isinstance(other, DependencyUnavailable) and other.seconds > 50 for other in others)
    assert len(asked.calls) == 1
    assert [row.attempts for row in rows if states(rows)] == [1, 1, 1]
    # A review that comes in between is sent alone or in another digest.
    _, (later,) = waiting("4")
    assert later.digest_id != rows[0].digest_id


def test_each_try_of_a_digest_waits_longer(asked: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    monkeypatch.setattr(
        lifecycle, "BACKOFF", replace_delay(lambda attempt, retry_after: (tries.append(attempt), 60.0)[1])
    )
    jobs, _ = waiting("1", "2", "3")
    for job in jobs:
        make_due()
        asked.script.append(not_sent())
        tell([job], {"mail": asked})
    assert tries == [1, 2, 3], "of the digest, whichever job made it"


def replace_delay(delay: Callable[[int, float | None], float]) -> Any:
    class Recorded:
        pass

    found: Any = Recorded()
    found.delay = delay
    return found


# -- finding out ---------------------------------------------------------------------------------


def stale(rows: list[Delivery]) -> None:
    pks = [row.pk for row in rows]
    Delivery.objects.filter(pk__in=pks).update(
        updated_at=Now() - timedelta(seconds=lifecycle.STALE_SECONDS + 1)
    )


def test_jobs_that_take_over_at_once_make_one_look_up() -> None:
    spaced = Capabilities(
        key_window_seconds=0.0,
        look_up=frozenset({LookUpBy.KEY}),
        resends_after_absence=None,
        looks=3,
        look_spacing_seconds=405.0,
    )
    asked = ScriptedProvider("maildir", capabilities=spaced)
    jobs, rows = waiting("1", "2", "3")
    make_due()
    crashed(rows[0], "maildir")
    stale(rows)
    real = asked.look_up
    others: list[object] = []
    began: list[bool] = []

    def look_up(question: Any) -> Any:
        if not began:
            began.append(True)
            stale(rows)
            others.extend(elsewhere(lambda: tell(jobs[1:], {"mail": asked})))
        return real(question)

    asked.look_up = look_up  # type: ignore[method-assign]
    (found,) = tell(jobs[:1], {"mail": asked})
    assert [type(other) for other in [found, *others]] == [DependencyUnavailable] * 3
    assert len(asked.looked_up) == 1
    assert outcomes(rows[0]) == ["ambiguous", "absent"]
    stale(rows)
    assert [type(again) for again in tell(jobs, {"mail": asked})] == [DependencyUnavailable] * 3
    assert len(asked.looked_up) == 1, "the lock was given back, and the next look is not due"


def test_two_jobs_that_reconcile_one_carrier_use_no_attempt(
    asked: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    crashed(rows[0], "maildir")
    stale(rows)
    real = store.start_reconciling

    def doubt(row: Delivery) -> bool:
        monkeypatch.setattr(store, "start_reconciling", real)
        assert elsewhere(lambda: real(row))
        return real(row)

    monkeypatch.setattr(store, "start_reconciling", doubt)
    (found,) = tell(jobs[1:2], {"mail": asked})
    assert isinstance(found, DependencyUnavailable)
    assert deliver(jobs[0], {"mail": asked}).sent == 1
    assert states(rows) == ["sent"] * 3


def test_the_row_is_read_again_after_the_lock_was_taken(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    crashed(rows[0], "maildir")
    before = store.read(rows[0].pk)
    assert deliver(jobs[0], {"mail": asked}).sent == 1
    with pytest.raises(DependencyUnavailable):
        reconcile.settle_row(before, asked)
    assert states(rows) == ["sent"] * 3


@pytest.mark.parametrize("status", [D.PENDING, D.SENDING])
def test_the_others_of_a_deleted_carrier_are_sent(status: str, asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    crashed(rows[0], "maildir")
    if status == D.PENDING:
        store.move(store.read(rows[0].pk), D.UNCERTAIN)
        assert operator_actions.resend_uncertain(rows[0].pk, "ann", "not there")
    DeliveryAttempt.objects.all().delete()
    Digest.objects.update(carrier=None)
    Delivery.objects.filter(pk=rows[0].pk).delete()
    tell(jobs[1:], {"mail": asked})
    assert states(rows[1:]) == ["sent", "sent"]
    assert max(asked.arrived.values()) == 1


def test_a_row_that_is_taken_while_it_is_found_unfit_is_not_failed(
    asked: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    failure = refused(ErrorClass.RECIPIENT_REJECTED)

    def suppressed(recipient: str) -> None:
        assert elsewhere(lambda: store.claim(store.read(rows[1].pk), "maildir"))
        raise failure

    monkeypatch.setattr("notifications.suppressions.bounces.refuse_suppressed", suppressed)
    (found,) = tell(jobs[:1], {"mail": asked})
    assert isinstance(found, DependencyUnavailable)
    assert states(rows) == ["sending"] * 3
