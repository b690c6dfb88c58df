"""Uncertain deliveries: look-ups are rows, waits use no attempt, resends are bounded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F

from criticizer.resilience.failures import (
    DependencyUnavailable,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.delivery import audit, operator_actions
from notifications.delivery.uncertainty_policy import UNANSWERED_LOOKS
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy
from notifications.states import DeliveryStatus, SendOutcome
from reviews.models import ReviewJob
from tests.notifications.scripted import (
    ANN,
    BOB,
    ScriptedProvider,
    crashed,
    deliver,
    not_sent,
    outcomes,
    prepare,
    refused,
    unclear,
)

pytestmark = pytest.mark.django_db

D = DeliveryStatus
KEY = frozenset({LookUpBy.KEY})
UNKNOWN = LookUp(Evidence.UNKNOWN, detail="nothing newer is there yet")


@pytest.fixture
def archive() -> ScriptedProvider:
    """Like mail with an archive: two looks, the first after three minutes, one resend."""
    return ScriptedProvider(
        "smtp", capabilities=Capabilities(look_up=KEY, settle_seconds=180, looks=2, look_spacing_seconds=720)
    )


@pytest.fixture
def keyed() -> ScriptedProvider:
    """Like a hosted mail service: a key for 23 hours, then only "found" means something."""
    return ScriptedProvider(
        "resend",
        capabilities=Capabilities(key_window_seconds=23 * 3600, look_up=KEY, resends_after_absence=0),
    )


def pass_time(seconds: float) -> None:
    """Let all that is recorded have happened so much earlier."""
    earlier = timedelta(seconds=seconds)
    DeliveryAttempt.objects.update(started_at=F("started_at") - earlier)
    DeliveryAttempt.objects.filter(finished_at__isnull=False).update(finished_at=F("finished_at") - earlier)
    Delivery.objects.update(created_at=F("created_at") - earlier, updated_at=F("updated_at") - earlier)


def waits(job: ReviewJob, provider: ScriptedProvider) -> float:
    with pytest.raises(DependencyUnavailable) as waiting:
        deliver(job, {"mail": provider})
    return waiting.value.seconds


def status(row: Delivery) -> str:
    row.refresh_from_db()
    return row.status


@pytest.fixture(autouse=True)
def _real_time(settings: object) -> None:
    settings.RETRY_TIME_SCALE = 1.0  # type: ignore[attr-defined]


def test_a_lost_answer_is_looked_up_after_it_settled_and_back_filled(
    job: ReviewJob, archive: ScriptedProvider
) -> None:
    archive.script.append((unclear(), True))
    (row,) = prepare(job, ANN)
    with pytest.raises(RetryableFailure) as failed:
        deliver(job, {"mail": archive})
    # Not "held for an operator": that class has a group of its own.
    assert failed.value.error_class is ErrorClass.NETWORK_TIMEOUT
    assert 170 < waits(job, archive) <= 180
    assert archive.looked_up == []
    pass_time(180)
    assert deliver(job, {"mail": archive}).sent == 1
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, SendOutcome.FOUND]
    assert len(archive.calls) == 1


def test_each_look_is_a_row_with_its_time_and_absence_needs_all_of_them(
    job: ReviewJob, archive: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, archive.name)
    waits(job, archive)
    pass_time(180)
    assert 710 < waits(job, archive) <= 720
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, SendOutcome.ABSENT]
    waits(job, archive)  # asked again too early: no look, no row
    assert len(archive.looked_up) == 1
    pass_time(720)
    assert deliver(job, {"mail": archive}).sent == 1
    assert outcomes(row) == [
        SendOutcome.AMBIGUOUS,
        SendOutcome.ABSENT,
        SendOutcome.ABSENT,
        SendOutcome.ACCEPTED,
    ]
    looks = row.attempt_rows.filter(outcome=SendOutcome.ABSENT)
    assert [look.finished_at is not None for look in looks] == [True, True]
    assert sum(archive.arrived.values()) == 1


def test_a_wait_delays_no_other_recipient(job: ReviewJob, archive: ScriptedProvider) -> None:
    first, second = prepare(job, ANN, BOB)
    crashed(first, archive.name)
    waits(job, archive)
    assert (status(first), status(second)) == (D.RECONCILING, D.SENT)


def test_a_wait_does_not_hide_a_failure_that_is_to_be_repeated(
    job: ReviewJob, archive: ScriptedProvider
) -> None:
    first, _ = prepare(job, ANN, BOB)
    crashed(first, archive.name)
    archive.script.append(unclear())
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": archive})


def test_nothing_is_failed_before_it_is_reconciled(job: ReviewJob, archive: ScriptedProvider) -> None:
    first, second = prepare(job, ANN, BOB)
    crashed(first, archive.name)
    archive.script.append(refused())
    waits(job, archive)
    assert (status(first), status(second)) == (D.RECONCILING, D.FAILED)
    pass_time(900)
    waits(job, archive)
    pass_time(900)
    archive.script.append(refused())
    with pytest.raises(PermanentFailure):
        deliver(job, {"mail": archive})
    assert status(first) == D.FAILED  # after proof that the uncertain attempt had not arrived


def test_a_second_uncertain_attempt_after_the_one_resend_is_held(
    job: ReviewJob, archive: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, archive.name)
    for _ in range(2):
        waits(job, archive)
        pass_time(720)
    archive.script.append(unclear())
    with pytest.raises(RetryableFailure):  # the resend, uncertain as well
        deliver(job, {"mail": archive})
    for _ in range(2):
        waits(job, archive)
        pass_time(720)
    with pytest.raises(UncertainFailure) as held:
        deliver(job, {"mail": archive})
    assert held.value.error_class is ErrorClass.DELIVERY_UNCERTAIN
    assert status(row) == D.UNCERTAIN
    assert "resent on proof of absence once" in row.detail
    assert len(archive.calls) == 1
    assert outcomes(row).count(SendOutcome.ABSENT) == 4


def test_an_operators_resend_starts_the_policy_over(job: ReviewJob, archive: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, archive.name)
    for _ in range(2):
        waits(job, archive)
        pass_time(720)
    archive.script.append(unclear())
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": archive})
    for _ in range(2):
        waits(job, archive)
        pass_time(720)
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": archive})
    assert operator_actions.resend_uncertain(row.pk, "ann", "not in the mailbox")
    archive.script.append((unclear(), True))
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": archive})
    assert 170 < waits(job, archive) <= 180
    pass_time(180)
    assert deliver(job, {"mail": archive}).sent == 1
    assert sum(archive.arrived.values()) == 1


def test_unanswered_look_ups_end_with_an_operator(job: ReviewJob, archive: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, archive.name)
    archive.answers.extend([UNKNOWN] * 10)
    told = []
    for _ in range(UNANSWERED_LOOKS + 1):
        told.append(round(waits(job, archive)))
        pass_time(told[-1] + 1)
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": archive})
    assert told == [180, 720, 720, 720, 720]
    assert status(row) == D.UNCERTAIN
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, *[SendOutcome.UNKNOWN] * (UNANSWERED_LOOKS + 1)]
    assert "nothing newer is there yet" in row.attempt_rows.last().detail  # type: ignore[union-attr]
    assert archive.calls == []


def test_a_key_is_repeated_inside_its_window_and_never_after_it(
    job: ReviewJob, keyed: ScriptedProvider
) -> None:
    keyed.script.extend([(unclear(ErrorClass.NETWORK_TIMEOUT), False), unclear(ErrorClass.NETWORK_TIMEOUT)])
    (row,) = prepare(job, ANN)
    for _ in range(2):
        with pytest.raises(RetryableFailure):
            deliver(job, {"mail": keyed})
    assert keyed.calls[0] == keyed.calls[1]
    pass_time(23 * 3600)
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": keyed})
    assert status(row) == D.UNCERTAIN
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, SendOutcome.AMBIGUOUS, SendOutcome.ABSENT]
    assert len(keyed.calls) == 2


def test_a_look_up_that_fails_costs_an_attempt_and_answers_nothing(
    job: ReviewJob, archive: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, archive.name)
    waits(job, archive)
    pass_time(180)
    archive.look_up_failure = not_sent()
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": archive})
    assert (status(row), outcomes(row)) == (D.RECONCILING, [SendOutcome.AMBIGUOUS])


def test_late_evidence_settles_a_held_delivery(job: ReviewJob, archive: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, archive.name)
    archive.answers.extend([UNKNOWN] * (UNANSWERED_LOOKS + 1))
    for _ in range(UNANSWERED_LOOKS + 1):
        waits(job, archive)
        pass_time(720)
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": archive})
    day = timedelta(days=1)
    before = outcomes(row)
    assert audit.recheck_uncertain({"mail": archive}, within=day) == set()
    assert (status(row), outcomes(row)) == (D.UNCERTAIN, before)  # absence decides nothing here
    archive.arrived[row.token] = 1
    assert audit.recheck_uncertain({"mail": archive}, within=day) == {job.pk}
    assert status(row) == D.SENT
    assert outcomes(row)[-1] == SendOutcome.FOUND


@pytest.mark.parametrize("name", ["resend", "maildir"])
def test_absence_at_another_provider_is_ignored(
    job: ReviewJob, name: str, make: Callable[[str], ScriptedProvider]
) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, "smtp")
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": make(name)})
    assert status(row) == D.UNCERTAIN


@pytest.fixture
def make() -> Callable[[str], ScriptedProvider]:
    return lambda name: ScriptedProvider(name, can_look_up=True)
