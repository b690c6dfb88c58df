"""Uncertain deliveries through whole jobs: operators' decisions, and the audit afterwards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience.failures import ErrorClass
from deadletters import workflow
from deadletters.models import DeadLetter
from notifications import config
from notifications.delivery import operator_actions, store
from notifications.delivery.operator_actions import REPEAT_NOTICE
from notifications.models import Delivery
from notifications.states import DeliveryStatus as D
from reviews import pipeline, tasks
from reviews.models import JobEvent
from reviews.replay import delivery_audit, delivery_resolution
from tests.acceptance.world import MAIL, World
from tests.factories import UserFactory
from tests.fakes.smtp import SmtpServer, Switches
from tests.fakes.webhook import Behaviour

BOB = "mail:bob@example.com"
LIST = "/admin/notifications/delivery/"


@pytest.fixture
def server(world: World) -> SmtpServer:
    """Plain SMTP, whose answer to the next message is lost after it was accepted."""
    server: SmtpServer = world.enter(SmtpServer(Switches(then="drop")))
    world.settings.SMTP_HOST, world.settings.SMTP_PORT = "127.0.0.1", server.port
    return server


Decide = Callable[..., str]


@pytest.fixture
def decide(client: Client) -> Decide:
    client.force_login(UserFactory(username="ann", is_staff=True, is_superuser=True))

    def post(decision: str, *rows: Delivery, reason: str = "OPS-7: asked the recipient") -> str:
        chosen = {"action": "decide", "_selected_action": [row.pk for row in rows]}
        asked = client.post(LIST, chosen)
        assert "may have arrived" in asked.content.decode()
        answer = {**chosen, "selection": asked.context["selection"], "decision": decision, "reason": reason}
        return client.post(LIST, answer, follow=True).content.decode()

    return post


def held(world: World, server: SmtpServer, *recipients: str) -> tuple[int, Delivery]:
    """Bring a review to where its first recipient waits for an operator; the server works again."""
    job = world.job(world.commit, *recipients)
    world.work()
    server.switches = Switches()
    row = world.delivery(job, recipients[0])
    assert (world.status(job), row.status) == ("dead_lettered", D.UNCERTAIN)
    assert world.letter(job).error_class == ErrorClass.DELIVERY_UNCERTAIN
    return job, row


@pytest.mark.long
def test_a_confirmation_resumes_the_review(world: World, server: SmtpServer, decide: Decide) -> None:
    job, row = held(world, server, MAIL)
    page = decide("confirm", row)
    assert "1 decided. Its review goes on." in page
    world.settle()
    row.refresh_from_db()
    assert (world.status(job), row.status) == ("succeeded", D.SENT)
    assert len(server.accepted) == 1
    event = JobEvent.objects.get(job_id=job, kind=JobEvent.Kind.DELIVERY_DECIDED)
    assert (event.actor, event.reason) == ("ann", f"delivery {row.pk}: confirm: OPS-7: asked the recipient")
    last = row.attempt_rows.order_by("-id").first()
    assert last is not None
    assert last.detail == "confirmed by ann: OPS-7: asked the recipient"


def test_a_resend_arrives_says_that_it_may_be_a_repetition_and_ends_the_review(
    world: World, server: SmtpServer, decide: Decide
) -> None:
    job, row = held(world, server, MAIL)
    decide("resend", row)
    world.settle()
    assert world.status(job) == "succeeded"
    first, second = server.accepted
    assert first.token == second.token == str(row.token)
    assert REPEAT_NOTICE.split(":")[0] not in first.mail.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert REPEAT_NOTICE.split(":")[0] in second.mail.get_body(("plain",)).get_content()  # type: ignore[union-attr]


@pytest.mark.long
def test_an_abandoned_recipient_does_not_hold_up_the_others(
    world: World, server: SmtpServer, decide: Decide
) -> None:
    job = world.job(world.commit, MAIL, BOB)
    world.work()
    server.switches = Switches()
    ann, bob = (world.delivery(job, one) for one in (MAIL, BOB))
    assert (ann.status, bob.status) == (D.UNCERTAIN, D.UNCERTAIN)
    page = decide("abandon", ann)
    assert "1 decided." in page
    assert world.status(job) == "dead_lettered"  # bob waits for his decision
    decide("resend", bob)
    world.settle()
    ann.refresh_from_db()
    assert (world.status(job), ann.status) == ("succeeded", D.ABANDONED)
    assert [mail.recipient for mail in server.accepted] == ["ann@example.com"] + ["bob@example.com"] * 2


@pytest.mark.long
def test_a_superseded_review_is_not_resent(world: World, server: SmtpServer, decide: Decide) -> None:
    _, row = held(world, server, MAIL)
    world.job(world.commit, MAIL, key="k-2", version=2, rerun=True)
    page = decide("resend", row)
    assert "0 decided, 1 skipped: the reason follows. Not resent: a newer version" in page
    row.refresh_from_db()
    assert row.status == D.UNCERTAIN
    decide("abandon", row)
    row.refresh_from_db()
    assert row.status == D.ABANDONED


def test_the_audit_resumes_a_decision_whose_web_process_died(
    world: World, server: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, row = held(world, server, MAIL)
    operator_actions.confirm_delivered(row.pk, "ann", "it is in the mailbox")
    delivery_resolution.DeliveryJobs().note(job, actor="ann", words="delivery: confirm: it is in the mailbox")
    assert world.status(job) == "dead_lettered"
    delivery_audit.run()
    world.settle()
    assert world.status(job) == "succeeded"


def later(hours: float) -> None:
    """Let so much time pass since the steps of all dead letters that no process works on them."""
    DeadLetter.objects.update(triaged_at=timezone.now() - timedelta(hours=hours))
    DeadLetter.objects.exclude(validated_at=None).update(validated_at=timezone.now() - timedelta(hours=hours))


@pytest.mark.long
@pytest.mark.parametrize(
    "step",
    [
        pytest.param("remediate", marks=pytest.mark.long),
        pytest.param("validate", marks=pytest.mark.long),
        "replay",
    ],
)
def test_a_web_process_that_died_between_the_steps_strands_no_review(
    world: World, server: SmtpServer, decide: Decide, step: str
) -> None:
    job, row = held(world, server, MAIL)

    def die(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with world.monkeypatch.context() as patch:
        patch.setattr(workflow, step, die)
        with pytest.raises(KeyboardInterrupt):
            decide("confirm", row)
    delivery_audit.run()
    assert world.status(job) == "dead_lettered"  # who decided may still be at it
    later(hours=0.2)
    delivery_audit.run()
    world.settle()
    assert world.status(job) == "succeeded"
    assert world.letter(job).replayed_by == "ann"


@pytest.fixture
def unchecked(world: World, server: SmtpServer, decide: Decide) -> int:
    """Return a decided review whose mail server did not answer its validation, and does now."""
    job, row = held(world, server, MAIL)
    world.settings.SMTP_PORT = world.lines(server.port, "refuse").port
    assert "Its review stays where it is" in decide("resend", row)
    world.settings.SMTP_PORT = server.port
    return job


@pytest.mark.long
def test_a_check_that_failed_at_the_decision_is_made_again_later(world: World, unchecked: int) -> None:
    letter = world.letter(unchecked)
    assert (letter.status, letter.validation_ok) == ("remediated", False)
    later(hours=0.5)
    assert delivery_resolution.resume_decided_jobs() == 0  # asked not long ago
    later(hours=2)
    assert delivery_resolution.resume_decided_jobs() == 1
    world.settle()
    assert world.status(unchecked) == "succeeded"
    actions = list(letter.events.order_by("id").values_list("action", flat=True))
    assert [actions.count(one) for one in ("triaged", "remediated", "not_validated")] == [1, 1, 1]


@pytest.mark.long
def test_a_dead_letter_that_an_operator_took_up_since_is_left_alone(world: World, unchecked: int) -> None:
    letter = world.letter(unchecked)
    assert workflow.triage(letter.pk, actor="bob", category="data", note="asking the recipient first").ok
    later(hours=2)
    assert delivery_resolution.resume_decided_jobs() == 0
    letter.refresh_from_db()
    assert (letter.status, letter.triaged_by) == ("triaged", "bob")


@pytest.mark.long
def test_a_hard_check_is_not_repeated(world: World, server: SmtpServer, decide: Decide) -> None:
    job, row = held(world, server, MAIL)
    world.job(world.commit, MAIL, key="k-2", version=2, rerun=True)
    assert "newer version exists" in decide("abandon", row)
    later(hours=2)
    assert delivery_resolution.resume_decided_jobs() == 0
    assert world.letter(job).status == "remediated"


# -- the audit ---------------------------------------------------------------------------------


def mark_without_sending(row: Delivery) -> None:
    Delivery.objects.filter(pk=row.pk).update(status=D.RECONCILING, notified_at=None, notification_id="")
    row.attempt_rows.all().delete()
    Delivery.objects.filter(pk=row.pk).update(status=D.SENT, notified_at=Now(), notification_id="made up")


def test_a_mark_without_evidence_of_a_review_that_succeeded_is_found_and_sent(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Long after the fact: the review stays succeeded, and its recipient is notified."""
    job = world.job(world.commit, MAIL)
    world.settle()
    row = world.delivery(job, MAIL)
    for path in (world.files / "mail" / "new").iterdir():
        path.unlink()
    mark_without_sending(row)
    report = delivery_audit.run()
    assert report is not None
    assert (report.suspicious, report.redelivered) == (1, {job})
    row.refresh_from_db()
    assert (world.status(job), row.status) == ("succeeded", D.SENT)
    assert row.notification_id != "made up"
    assert len(world.mails()) == 1
    assert "delivery_evidence_missing" in caplog.text
    again = delivery_audit.run()
    assert again is not None
    assert (again.suspicious, again.redelivered) == (0, set())
    assert len(world.mails()) == 1


@pytest.mark.long
def test_a_mark_without_evidence_of_a_replaced_review_is_not_sent_late(world: World) -> None:
    job = world.job(world.commit, MAIL)
    world.settle()
    row = world.delivery(job, MAIL)
    world.job(world.commit, MAIL, key="k-2", version=2, rerun=True)
    world.settle()
    for path in (world.files / "mail" / "new").iterdir():
        path.unlink()
    mark_without_sending(row)
    delivery_audit.run()
    row.refresh_from_db()
    assert row.status == D.SUPERSEDED
    assert world.mails() == []


@pytest.mark.parametrize("arrived", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_attempt_lost_by_a_cancelled_review_is_settled(world: World, arrived: bool) -> None:
    world.receiver.always(Behaviour(status=503, process=False))
    job = world.job(world.commit, MAIL, world.hook)
    world.work()  # the mail is sent, the webhook is not
    row = world.delivery(job, world.hook)
    claimed = store.claim(store.read(row.pk), "webhook")
    assert claimed is not None
    assert pipeline.cancel(job, "ann", "not wanted")
    row.refresh_from_db()
    assert row.status == D.SENDING
    delivery_audit.run()
    row.refresh_from_db()
    assert row.status == D.SENDING  # its worker may still be at it
    Delivery.objects.update(updated_at=F("updated_at") - timedelta(hours=1))
    if arrived:
        store.mark_sent(claimed, "it was alive after all")
    delivery_audit.run()
    row.refresh_from_db()
    assert row.status == (D.SENT if arrived else D.UNCERTAIN)


@pytest.mark.long
def test_an_uncertain_delivery_of_a_dead_lettered_review_waits_for_its_replay(world: World) -> None:
    world.receiver.always(Behaviour(status=500, process=False))
    job = world.job(world.commit, world.hook)
    world.settle()
    row = world.delivery(job, world.hook)
    assert (world.status(job), row.status) == ("dead_lettered", D.RECONCILING)
    Delivery.objects.update(updated_at=F("updated_at") - timedelta(hours=1))
    delivery_audit.run()
    row.refresh_from_db()
    assert row.status == D.RECONCILING  # the same key is good for ever: no decision is needed
    world.receiver.always(Behaviour())
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"
    assert list(world.receiver.processed.values()) == [1]


def test_late_evidence_settles_a_delivery_that_waited_for_an_operator(world: World) -> None:
    job = world.job(world.commit, MAIL)
    world.settle()
    row = world.delivery(job, MAIL)
    Delivery.objects.filter(pk=row.pk).update(status=D.RECONCILING, notified_at=None, notification_id="")
    Delivery.objects.filter(pk=row.pk).update(status=D.UNCERTAIN)
    report = delivery_audit.run()
    assert report is not None
    assert report.found == {job}
    row.refresh_from_db()
    assert row.status == D.SENT


def test_the_clock_is_one_message_and_a_run_makes_it_due_again(world: World) -> None:
    world.settings.DELIVERY_AUDIT_SECONDS = 300
    for _ in range(2):
        delivery_audit.ensure()
    (message,) = outbox.claim("notify", 10)
    assert message.message_type == "audit_deliveries"
    tasks.audit_deliveries(message.id, 0, str(message.lease_token))
    due = prepared.value("SELECT available_at > now() + interval '250 s' FROM outbox_messages")
    assert due is True
    tasks.audit_deliveries(message.id, 0, str(message.lease_token))  # a duplicate is refused
    world.settings.DELIVERY_AUDIT_SECONDS = 0
    delivery_audit.ensure()
    assert prepared.value("SELECT count(*) FROM outbox_messages") == 0


@pytest.mark.long
def test_a_dead_letter_of_another_failure_is_not_replayed_by_a_decision(
    world: World, server: SmtpServer, decide: Decide
) -> None:
    job, row = held(world, server, MAIL)
    DeadLetter.objects.filter(job_id=job).update(error_class=ErrorClass.AUTH_DENIED)
    page = decide("confirm", row)
    assert "waits for dead letter" in page
    assert world.status(job) == "dead_lettered"
    assert config.providers()["mail"].name == "smtp"
