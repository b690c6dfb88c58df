"""Several reviews in one message: joining, closing, sending, failing, deciding."""

from __future__ import annotations

import html
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from criticizer.resilience.failures import (
    DependencyUnavailable,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.delivery import audit, operator_actions, send, snapshot, store
from notifications.delivery.operator_actions import OperatorAction
from notifications.digests import lifecycle
from notifications.models import Delivery, Digest
from notifications.preferences import policy, unsubscribe
from notifications.providers.base import Evidence
from notifications.states import DeliveryState, DeliveryStatus, SendOutcome
from notifications.suppressions.bounces import MailReport, record
from reviews.models import JobEvent, ReviewJob
from reviews.replay import delivery_audit
from reviews.reports import _messages_before
from tests.admin.test_letters import answer
from tests.factories import ReviewJobFactory, UserFactory
from tests.notifications.scripted import (
    ANN,
    BOB,
    CI,
    ScriptedProvider,
    crashed,
    deliver,
    not_sent,
    outcomes,
    prepare,
    refused,
    unclear,
)
from tests.notifications.together import make_due, states, tell, waiting

pytestmark = pytest.mark.django_db(transaction=True)

D = DeliveryStatus
ALL_SENT = ["sent", "sent", "sent"]


@pytest.fixture
def lost_letters(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Resume jobs without the apps above; return their ids."""
    went: list[int] = []
    monkeypatch.setattr(
        "reviews.replay.delivery_resolution.resume_job", lambda job_id, **_: went.append(job_id) or ""
    )
    return went


# -- waiting and closing ---------------------------------------------------------------------------


def test_reviews_wait_for_one_digest_and_are_sent_in_one_message(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    first, *others = tell(jobs, {"mail": asked})
    assert isinstance(first, DependencyUnavailable)
    assert 590 < first.seconds <= 600
    assert first.dependency == ""
    # The others come a little later: the first one tells for all of them.
    assert all(isinstance(other, DependencyUnavailable) and other.seconds > first.seconds for other in others)
    assert asked.calls == []

    make_due()
    assert tell(jobs, {"mail": asked}) == [
        send.Outcome(sent=1),
        send.Outcome(already_sent=1),
        send.Outcome(already_sent=1),
    ]
    (message,) = asked.calls
    assert message.subject == "3 reviews: 3 high, 3 low (1, 2, 3)"
    assert states(rows) == ALL_SENT
    assert {row.notification_id for row in rows} == {f"id-{message.token}"}
    assert len({row.notified_at for row in rows}) == 1
    assert [outcomes(row) for row in rows] == [["accepted"], [], []]
    assert message.token == snapshot.token_of_all(row.token for row in rows)
    assert audit.audit_sent({"mail": asked}).suspicious == 0


def test_the_first_job_after_the_due_time_sends_the_digest(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    assert deliver(jobs[2], {"mail": asked}).sent == 1
    assert states(rows) == ALL_SENT
    assert [outcomes(row) for row in rows] == [[], [], ["accepted"]]


def test_a_digest_of_one_review_is_its_own_message(asked: ScriptedProvider) -> None:
    (job,), (row,) = waiting("1")
    make_due()
    assert deliver(job, {"mail": asked}).sent == 1
    assert [call.token for call in asked.calls] == [row.token]
    assert not Digest.objects.exists()


def test_others_are_not_held_up_by_a_digest_that_waits(
    asked: ScriptedProvider, hook: ScriptedProvider
) -> None:
    job = ReviewJobFactory(changelist_id="1")
    prepare(job, ANN, digest_minutes=10)
    prepare(job, CI)
    with pytest.raises(DependencyUnavailable):
        deliver(job, {"mail": asked, "webhook": hook})
    assert len(hook.calls) == 1
    assert asked.calls == []


def test_another_recipient_and_a_full_digest_get_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MAX_REVIEWS", 2)
    _, ann = waiting("1", "2", "3")
    _, bob = waiting("4", recipient=BOB)
    states([*ann, *bob])
    assert ann[0].digest_id == ann[1].digest_id
    assert len({row.digest_id for row in [*ann, *bob]}) == 3
    assert Digest.objects.get(pk=bob[0].digest_id).recipient == BOB


def test_a_review_that_comes_after_the_time_begins_another_digest(asked: ScriptedProvider) -> None:
    _, (first,) = waiting("1")
    make_due()
    _, (second,) = waiting("2")
    assert states([first, second]) == ["pending", "pending"]
    assert first.digest_id != second.digest_id


def test_a_deadline_makes_the_whole_digest_due_earlier() -> None:
    _, (row,) = waiting("1", minutes=60)
    other = ReviewJobFactory(changelist_id="2")
    deadline = timezone.now() + timedelta(minutes=20)
    (late,) = prepare(other, ANN, digest_minutes=60, not_after=lifecycle.latest(deadline))
    states([row])
    assert late.digest_id == row.digest_id
    assert Digest.objects.get().due_at == lifecycle.latest(deadline)


def test_a_review_past_its_latest_time_is_sent_at_once(asked: ScriptedProvider) -> None:
    job = ReviewJobFactory(changelist_id="1")
    prepare(job, ANN, digest_minutes=60, not_after=lifecycle.latest(timezone.now() + timedelta(seconds=30)))
    assert deliver(job, {"mail": asked}).sent == 1


def test_a_row_that_exists_is_not_taken_into_a_digest_again(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2")
    lifecycle.leave(store.read(rows[0].pk))
    prepare(jobs[0], ANN)
    assert deliver(jobs[0], {"mail": asked}).sent == 1


def test_two_that_join_at_once_make_one_digest() -> None:
    jobs = [ReviewJobFactory(changelist_id=str(number)) for number in range(6)]

    def join(job: Any) -> None:
        try:
            prepare(job, ANN, digest_minutes=10)
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(join, jobs))
    assert Digest.objects.count() == 1
    assert Delivery.objects.filter(digest=Digest.objects.get()).count() == 6


def test_two_that_close_at_once_send_once(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    first, second = (store.read(row.pk) for row in rows[:2])
    assert store.claim(first, "maildir") is not None
    assert store.claim(second, "maildir") is None
    assert states(rows) == ["sending"] * 3
    (other,) = tell(jobs[1:2], {"mail": asked})
    assert isinstance(other, DependencyUnavailable)
    assert asked.calls == []


def test_whose_digest_was_taken_between_look_and_claim_waits_without_an_attempt(
    asked: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, rows = waiting("1", "2")
    make_due()
    real = lifecycle.row_for_job

    def turn(row: Delivery) -> Delivery:
        found = real(row)
        monkeypatch.setattr(lifecycle, "row_for_job", real)
        deliver(jobs[0], {"mail": asked})
        return found

    monkeypatch.setattr(lifecycle, "row_for_job", turn)
    (second,) = tell(jobs[1:], {"mail": asked})
    assert isinstance(second, DependencyUnavailable)
    assert states(rows) == ["sent", "sent"]
    assert len(asked.calls) == 1


def test_the_database_keeps_an_open_digest_without_a_message() -> None:
    waiting("1", "2")
    with pytest.raises(IntegrityError, match="closed_with_a_message"), transaction.atomic():
        Digest.objects.update(closed_at=Now())
    with pytest.raises(IntegrityError, match="closed_with_a_message"), transaction.atomic():
        Digest.objects.update(token=UUID(int=1))


def test_a_recipient_without_a_digest_costs_no_statement_more(asked: ScriptedProvider) -> None:
    """Of the statements, six create the circuit's row and two are of an empty transaction.

    That transaction is not sent.
    """
    job = ReviewJobFactory(changelist_id="1")
    with CaptureQueriesContext(
        connection,
    ) as preparing:
        prepare(job, ANN)
    with CaptureQueriesContext(connection) as delivering:
        deliver(job, {"mail": asked})
    assert not [q["sql"] for q in [*preparing, *delivering] if "digests" in q["sql"]]
    assert (len(preparing), len(delivering)) == (2, 14)


# -- endings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [operator_actions.supersede_unsent, operator_actions.cancel_unsent])
def test_a_review_that_ended_is_left_out_of_its_digest(
    end: Callable[[int], int], asked: ScriptedProvider
) -> None:
    jobs, rows = waiting("1", "2", "3")
    assert end(jobs[0].pk) == 1
    make_due()
    tell(jobs, {"mail": asked})
    assert states(rows)[1:] == ["sent", "sent"]
    assert rows[0].status in {D.SUPERSEDED, D.CANCELLED}
    (message,) = asked.calls
    assert message.subject == "2 reviews: 2 high, 2 low (2, 3)"
    assert "of 1" not in message.text


def test_a_review_that_ends_while_its_digest_is_sent_stays_in_it(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.before_send = lambda message: (operator_actions.supersede_unsent(jobs[1].pk), None)[1]
    deliver(jobs[0], {"mail": asked})
    assert states(rows) == ALL_SENT


def test_a_newer_version_replaces_the_older_one_in_a_digest(asked: ScriptedProvider) -> None:
    # The older job is dead-lettered, say: nothing has ended its row.
    _, (old_row,) = waiting("1", status="dead_lettered", finished_at=timezone.now())
    jobs, rows = waiting("1", "2", review_version=2)
    make_due()
    deliver(jobs[0], {"mail": asked})
    (message,) = asked.calls
    assert message.subject == "2 reviews: 2 high, 2 low (1, 2)"
    assert "version 1" not in message.text
    assert states([old_row, *rows]) == ["pending", "sent", "sent"]
    assert old_row.digest_id is None


def test_a_superseded_review_with_a_pending_row_is_left_out(asked: ScriptedProvider) -> None:
    _, (old,) = waiting("1", status="dead_lettered", finished_at=timezone.now())
    jobs, rows = waiting("2", "3")
    ReviewJobFactory(changelist_id="1", review_version=2)  # still at its review: no row yet
    make_due()
    deliver(jobs[0], {"mail": asked})
    assert asked.calls[0].subject == "2 reviews: 2 high, 2 low (2, 3)"
    assert states([old, *rows]) == ["pending", "sent", "sent"]
    assert old.digest_id is None


def test_a_damaged_message_is_left_to_its_own_job(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    Delivery.objects.filter(pk=rows[1].pk).update(payload_sha256="f" * 64)
    make_due()
    _, damaged, _ = tell(jobs, {"mail": asked})
    assert isinstance(damaged, PermanentFailure)
    assert states(rows) == ["sent", "failed", "sent"]


def test_a_stalled_job_delays_no_digest(asked: ScriptedProvider) -> None:
    """Dead-lettered while it waits, for another recipient's sake: the next one tells for both."""
    jobs, rows = waiting("1", "2")
    make_due()
    deliver(jobs[1], {"mail": asked})
    assert states(rows) == ["sent", "sent"]


def test_an_accepted_late_result_is_sent_alone_and_at_once(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2")
    operator_actions.cancel_unsent(jobs[0].pk)
    operator_actions.revive_cancelled(jobs[0].pk)
    assert deliver(jobs[0], {"mail": asked}).sent == 1
    assert states(rows) == ["sent", "pending"]


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_digest_that_was_not_sent_is_composed_again(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.append(not_sent())
    (failure,) = tell(jobs[:1], {"mail": asked})
    assert isinstance(failure, RetryableFailure)
    assert states(rows) == ["pending"] * 3
    operator_actions.supersede_unsent(jobs[2].pk)
    make_due()
    # Another job carries it now; its message leaves out what was superseded, under another token.
    assert deliver(jobs[1], {"mail": asked}).sent == 1
    first, second = asked.calls
    assert first.token != second.token
    assert second.subject == "2 reviews: 2 high, 2 low (1, 2)"
    assert states(rows) == ["sent", "sent", "superseded"]
    assert [outcomes(row) for row in rows] == [["not_sent"], ["accepted"], []]
    assert audit.audit_sent({"mail": asked}).suspicious == 0


def test_a_message_that_may_have_arrived_keeps_its_bytes(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.append(unclear())
    tell(jobs[:1], {"mail": asked})
    assert states(rows) == ["reconciling"] * 3
    operator_actions.supersede_unsent(jobs[2].pk)  # too late: a message that may be sent is not withdrawn
    assert isinstance(tell(jobs[1:2], {"mail": asked})[0], DependencyUnavailable)
    assert deliver(jobs[0], {"mail": asked}).sent == 1
    assert asked.calls[0] == asked.calls[1]
    assert states(rows) == ALL_SENT
    assert outcomes(rows[0]) == ["ambiguous", "absent", "accepted"]


def test_other_jobs_take_over_from_a_stale_carrier(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    crashed(rows[0], "maildir")
    assert isinstance(tell(jobs[1:2], {"mail": asked})[0], DependencyUnavailable)
    Delivery.objects.update(updated_at=Now() - timedelta(seconds=lifecycle.STALE_SECONDS + 1))
    assert deliver(jobs[1], {"mail": asked}).sent == 1
    assert states(rows) == ALL_SENT
    assert outcomes(rows[0]) == ["ambiguous", "absent", "accepted"]


def test_a_refused_digest_fails_all_and_a_replay_sends_each_alone(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.append(refused())
    assert [type(found) for found in tell(jobs, {"mail": asked})] == [PermanentFailure] * 3
    assert states(rows) == ["failed"] * 3
    for job in jobs:
        assert operator_actions.reset_failed(job.pk) == 1
        assert deliver(job, {"mail": asked}).sent == 1
    assert states(rows) == ALL_SENT
    assert [call.token for call in asked.calls[1:]] == [row.token for row in rows]
    assert audit.audit_sent({"mail": asked}).suspicious == 0


@pytest.mark.long
def test_a_resent_digest_leaves_out_a_withdrawn_carrier(mail: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    mail.script.append(unclear())
    tell(jobs[:1], {"mail": mail})
    assert states(rows) == ["uncertain"] * 3
    assert operator_actions.resend_uncertain(rows[0].pk, "ann", "not there")
    operator_actions.cancel_unsent(jobs[0].pk)
    tell(jobs, {"mail": mail})
    assert states(rows) == ["cancelled", "sent", "sent"]
    (_, again) = mail.calls
    assert again.token == snapshot.token_of_all(row.token for row in rows[1:])
    assert again.repeat_notice


def test_the_audit_settles_uncertain_rows_of_an_ended_job(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.append((unclear(), True))
    tell(jobs[:1], {"mail": asked})
    assert audit.settle(jobs[1].pk, {"mail": asked}) == 0
    assert states(rows) == ["reconciling"] * 3, "it is decided with the job that sent it"
    assert audit.settle(jobs[0].pk, {"mail": asked}) == 0
    assert states(rows) == ALL_SENT
    assert len(asked.calls) == 1


# -- an operator's word ----------------------------------------------------------------------------


def held(mail: ScriptedProvider) -> tuple[list[Any], list[Delivery]]:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    mail.script.append((unclear(), True))
    assert [type(found) for found in tell(jobs, {"mail": mail})] == [UncertainFailure] * 3
    assert states(rows) == ["uncertain"] * 3
    return jobs, rows


@pytest.mark.parametrize(
    ("decision", "ends"), [("confirm", "sent"), ("resend", "pending"), ("abandon", "abandoned")]
)
def test_a_decision_about_one_delivery_counts_for_the_whole_digest(
    decision: str, ends: str, mail: ScriptedProvider, lost_letters: list[int]
) -> None:
    jobs, rows = held(mail)
    done, sentences = operator_actions.decide(
        [rows[1].pk], OperatorAction(decision), actor="ann", reason="OPS-7: looked"
    )
    assert done == 1
    assert "one message about 3 reviews" in sentences[0]
    assert states(rows) == [ends] * 3
    assert lost_letters == [jobs[1].pk]  # the others go on with the next audit, which begins now
    kept = JobEvent.objects.filter(kind=JobEvent.Kind.DELIVERY_DECIDED).order_by("job_id")
    assert [(event.job_id, event.actor) for event in kept] == [(job.pk, "ann") for job in jobs]
    for job, row in zip(jobs, rows, strict=True):
        assert kept.get(job=job).reason == f"delivery {row.pk}: {decision}: OPS-7: looked"
    if decision == "resend":
        tell(jobs, {"mail": mail})
        first, second = mail.calls
        assert second.token == first.token
        assert (first.repeat_notice, second.repeat_notice) == ("", operator_actions.REPEAT_NOTICE)
        assert states(rows) == ALL_SENT
    assert audit.audit_sent({"mail": mail}).suspicious == 0


def test_a_set_of_decisions_counts_a_message_once(mail: ScriptedProvider, lost_letters: list[int]) -> None:
    _, rows = held(mail)
    done, words = operator_actions.decide(
        [row.pk for row in rows], OperatorAction.CONFIRM, actor="ann", reason="OPS-7"
    )
    assert done == 3
    assert words == ["Confirmed as delivered. It is one message about 3 reviews."]
    assert outcomes(rows[0]) == ["ambiguous", "confirmed"]
    assert sorted(lost_letters) == sorted(row.job_id for row in rows)


@pytest.mark.long
def test_a_superseded_review_does_not_stop_the_resend_of_the_others(
    mail: ScriptedProvider, lost_letters: list[int]
) -> None:
    jobs, rows = held(mail)
    ended = {"status": "dead_lettered", "finished_at": timezone.now()}
    ReviewJob.objects.filter(pk__in=[job.pk for job in jobs]).update(**ended)
    ReviewJobFactory(changelist_id="1", review_version=2)
    assert operator_actions.decide([rows[0].pk], OperatorAction.RESEND, actor="ann", reason="OPS-7")[0] == 1
    for number in "23":
        ReviewJobFactory(changelist_id=number, review_version=2)
    Delivery.objects.update(status=D.SENDING)
    Delivery.objects.update(status=D.UNCERTAIN)
    done, sentences = operator_actions.decide(
        [rows[0].pk], OperatorAction.RESEND, actor="ann", reason="OPS-7"
    )
    assert done == 0
    assert "newer version" in sentences[0]


def test_evidence_that_arrives_late_is_evidence_for_all(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    asked.script.append((unclear(), True))
    tell(jobs[:1], {"mail": asked})
    store.move(store.read(rows[0].pk), D.UNCERTAIN)
    assert states(rows) == ["uncertain"] * 3
    found = audit.recheck_uncertain({"mail": asked}, within=timedelta(days=1))
    assert found == {job.pk for job in jobs}
    assert states(rows) == ALL_SENT


# -- the audit -------------------------------------------------------------------------------------


def marked_without_evidence(asked: ScriptedProvider, *, arrived: bool) -> tuple[list[Any], list[Delivery]]:
    jobs, rows = waiting("1", "2", "3", status="succeeded", finished_at=timezone.now())
    make_due()
    deliver(jobs[0], {"mail": asked})
    rows[0].attempt_rows.all().delete()
    if not arrived:
        asked.arrived.clear()
    return jobs, rows


def test_a_digest_marked_without_evidence_is_looked_up(asked: ScriptedProvider) -> None:
    _, rows = marked_without_evidence(asked, arrived=True)
    result = audit.audit_sent({"mail": asked})
    assert (result.suspicious, result.back_filled, result.requeued) == (1, 1, set())
    assert states(rows) == ALL_SENT
    assert outcomes(rows[0]) == ["ambiguous", "found"]


def test_a_digest_that_is_not_there_is_cleared_and_sent(
    asked: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, rows = marked_without_evidence(asked, arrived=False)
    result = audit.audit_sent({"mail": asked}, job_id=jobs[1].pk)
    assert (result.suspicious, result.requeued) == (1, {job.pk for job in jobs})
    assert states(rows) == ["pending"] * 3
    assert all(row.notified_at is None and row.notification_id == "" for row in rows)
    monkeypatch.setattr("notifications.config.providers", lambda: {"mail": asked})
    report = delivery_audit.run()
    assert report is not None
    assert (len(report.redelivered), report.unsettled) == (1, 0)
    assert states(rows) == ALL_SENT
    assert asked.calls[0] == asked.calls[1]


def test_a_sample_asks_for_the_digest(asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    deliver(jobs[0], {"mail": asked})
    Delivery.objects.update(notified_at=F("notified_at") - timedelta(hours=1))
    assert audit.audit_sample({"mail": asked}, 30)[Evidence.FOUND] >= 1
    assert {token for token, _ in asked.looked_up} == {asked.calls[0].token}
    asked.arrived.clear()
    assert audit.audit_sample({"mail": asked}, 30)[Evidence.ABSENT] >= 1
    assert set(outcomes(rows[0])[1:]) == {SendOutcome.ABSENT}
    assert states(rows) == ALL_SENT


@pytest.mark.parametrize("by", ["token", "notification_id"])
def test_a_bounce_of_the_digest_is_recorded_on_all_its_deliveries(by: str, asked: ScriptedProvider) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    deliver(jobs[0], {"mail": asked})
    message = asked.calls[0]
    names = {
        "token": None,
        "notification_id": "",
        by: {"token": message.token}.get(by, f"id-{message.token}"),
    }
    report = MailReport("maildir", "event-1", DeliveryState.BOUNCED, address="ann@example.com", **names)
    record(report)
    states(rows)
    assert [row.delivery_state for row in rows] == ["bounced"] * 3


# -- wishes ----------------------------------------------------------------------------------------


def test_only_mail_has_digests_and_only_of_known_lengths() -> None:
    with pytest.raises(ValueError, match="Only mail has digests"):
        policy.set_digest(CI, 10, "ann")
    with pytest.raises(ValueError, match="5, 10, 15, 30, 60"):
        policy.set_digest(ANN, 7, "ann")
    policy.set_digest(CI, 0, "ann")
    policy.set_digest(ANN, 15, "ann")
    assert policy.preference_of(ANN).digest_minutes == 15
    with pytest.raises(IntegrityError, match="recipient_preferences_digest"), transaction.atomic():
        policy.RecipientPreference.objects.update(digest_minutes=10)


def test_an_operator_sets_digests_with_a_reason(client: Client) -> None:
    client.force_login(UserFactory(username="oli", is_staff=True, is_superuser=True))
    for recipient in (ANN, CI):
        policy.set_threshold(recipient, "high", "ann")
    rows = policy.RecipientPreference.objects.values_list("pk", flat=True)
    address = "/admin/notifications/recipientpreference/"
    body: dict[str, Any] = {"action": "set_digest", "_selected_action": list(rows)}
    question = client.post(address, body)
    assert "Collect reviews for" in question.content.decode()
    done = html.unescape(answer(client, question, minutes="15", reason="OPS-7").content.decode())
    assert f"1 set, 1 skipped: {CI}: Only mail has digests" in done
    row = policy.RecipientPreference.objects.get(recipient=ANN)
    assert (row.digest_minutes, row.actor, row.reason) == (15, "oli", "OPS-7")
    history = html.unescape(client.get(f"{address}{row.pk}/history/").content.decode())
    assert "digest_minutes: 0 \N{RIGHTWARDS ARROW} 15" in history


def test_a_critical_review_does_not_wait_for_a_digest() -> None:
    policy.set_digest(ANN, 15, "ann")
    assert policy.apply_preferences({ANN: "critical"}).digest_minutes == {}
    assert policy.apply_preferences({ANN: "high", BOB: ""}).digest_minutes == {ANN: 15}
    policy.mute(ANN, None, "ann")
    assert policy.apply_preferences({ANN: "high"}) == policy.AppliedPreferences({ANN: policy.MUTED}, {})


def test_a_changed_preference_does_not_affect_waiting_deliveries(asked: ScriptedProvider) -> None:
    policy.set_digest(ANN, 10, "ann")
    jobs, rows = waiting("1", "2")
    policy.set_digest(ANN, 0, "ann")
    unsubscribe.stop(ANN)
    assert [type(found) for found in tell(jobs, {"mail": asked})] == [
        DependencyUnavailable,
        DependencyUnavailable,
    ]
    make_due()
    tell(jobs, {"mail": asked})
    assert states(rows) == ["sent", "sent"]
    link = asked.calls[0].unsubscribe_url
    assert str(rows[0].token) in link


def test_a_shorter_interval_makes_the_open_digest_due_earlier() -> None:
    waiting("1", minutes=60)
    waiting("2", minutes=5)
    left = Digest.objects.get().due_at - timezone.now()
    assert timedelta(minutes=4) < left <= timedelta(minutes=5)


def test_a_later_version_answers_the_digest_that_is_in_the_mailbox(asked: ScriptedProvider) -> None:
    jobs, _ = waiting("1", "2", status="succeeded", finished_at=timezone.now())
    make_due()
    deliver(jobs[0], {"mail": asked})
    newer = ReviewJobFactory(changelist_id="1", review_version=2)
    assert _messages_before(newer, {ANN: None}) == {ANN: asked.calls[0].token}  # type: ignore[dict-item]
