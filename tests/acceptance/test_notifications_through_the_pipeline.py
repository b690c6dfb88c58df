"""Exactly-once delivery through whole jobs on real stages (guarantees G45 to G54)."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import FileSystemStorage
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from criticizer.queue import outbox
from criticizer.resilience.failures import Component, ErrorClass, RetryableFailure
from notifications import config
from notifications.delivery import audit, operator_actions, send, snapshot, store
from notifications.delivery.outcome import Outcome
from notifications.models import Delivery
from notifications.states import DeliveryStatus as D
from reviews import pipeline
from reviews.intake.review_requests import IntakeOutcome
from reviews.models import Artifact, ReviewJob
from reviews.pipeline import executor
from reviews.states import Stage
from tests.acceptance import troubles
from tests.acceptance.world import MAIL, World
from tests.fakes.smtp import SmtpServer
from tests.fakes.webhook import Behaviour


@contextlib.contextmanager
def marks_are_refused(world: World) -> Iterator[None]:
    """Let PostgreSQL refuse every write of "sent", as with a full disk."""
    world.monkeypatch.setattr(store, "RECORD_PAUSES_SECONDS", (0.0,))
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE FUNCTION refuse_marks() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$;
            CREATE TRIGGER refuse_marks BEFORE UPDATE ON deliveries FOR EACH ROW
            WHEN (NEW.notified_at IS NOT NULL) EXECUTE FUNCTION refuse_marks()"""
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse_marks() CASCADE")


def outcomes(row: Delivery) -> list[str]:
    return list(row.attempt_rows.order_by("id").values_list("outcome", flat=True))


# -- a standby takes over that lacks the rows -----------------------------------------


def lose(job: int, *, is_reverted: bool = False) -> None:
    """Remove what a promoted standby may lack: the attempts, and the deliveries.

    With `is_reverted` the deliveries stay and are as before their first attempt.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger: nobody deleted them
        cursor.execute("DELETE FROM delivery_attempts")
        if is_reverted:
            Delivery.objects.filter(job_id=job).update(
                status=D.PENDING, attempts=0, notified_at=None, notification_id=""
            )
        else:
            cursor.execute("DELETE FROM deliveries")


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.long), "after"])
def test_deliveries_that_a_database_lost_during_the_stage_are_made_again(world: World, when: str) -> None:
    real, losses = send.deliver, []

    def deliver(job_id: int, *given: Any, **options: Any) -> Outcome:
        if not losses and when == "before":
            lose(job_id)
            losses.append(job_id)
        outcome = real(job_id, *given, **options)
        if not losses:
            lose(job_id)
            losses.append(job_id)
        return outcome

    world.monkeypatch.setattr(send, "deliver", deliver)
    job = world.job(world.commit, MAIL)
    world.settle()
    assert losses == [job]
    assert world.status(job) == "succeeded"
    assert world.delivery(job, MAIL).status == D.SENT
    assert world.stage(job, "notify").attempts == 1  # the first was given back


@pytest.mark.parametrize(
    "is_reverted",
    [pytest.param(False, id="gone"), pytest.param(True, id="not sent", marks=pytest.mark.long)],
)
def test_deliveries_that_a_database_lost_before_the_record_are_made_again(
    world: World, is_reverted: bool
) -> None:
    real, losses = pipeline.record, []

    def record(claim: pipeline.StageClaim, *given: Any, **options: Any) -> pipeline.Due | None:
        if claim.stage == Stage.NOTIFY and not losses:
            losses.append(world.delivery(claim.job_id, MAIL).token)
            lose(claim.job_id, is_reverted=is_reverted)
        return real(claim, *given, **options)

    world.monkeypatch.setattr(pipeline, "record", record)
    job = world.job(world.commit, MAIL)
    world.settle()
    assert world.status(job) == "succeeded"
    row = world.delivery(job, MAIL)
    assert [row.token] == losses
    assert row.status == D.SENT
    assert world.stage(job, "notify").attempts == 1  # the first was given back


@pytest.mark.long
def test_a_delivery_that_is_not_marked_as_sent_repeats_the_last_stage(world: World) -> None:
    real, losses = pipeline.record, []

    def record(claim: pipeline.StageClaim, write: Any, **options: Any) -> pipeline.Due | None:
        if claim.stage == Stage.NOTIFY and not losses:
            losses.append(claim.job_id)
            lose(claim.job_id, is_reverted=True)
            write = None  # whatever the stage looked at
        return real(claim, write, **options)

    world.monkeypatch.setattr(pipeline, "record", record)
    job = world.job(world.commit, MAIL)
    world.work()
    assert losses == [job]
    assert world.status(job) == "retryable_failed"
    assert world.stage(job, "notify").error_class == "DATABASE_UNAVAILABLE"
    world.settle()
    assert world.status(job) == "succeeded"
    assert world.delivery(job, MAIL).status == D.SENT


# -- sent, and the database write failed ------------------------------------------


@pytest.mark.long
def test_a_mail_sent_but_not_marked_is_looked_up_and_back_filled(world: World) -> None:
    with marks_are_refused(world):
        job = world.job(world.commit, MAIL)
        world.work()
        row = world.delivery(job, MAIL)
        # The mail is there, the row still appears unsent, and nothing is failed for good.
        assert len(world.mails()) == 1
        assert (row.status, row.notified_at, row.notification_id) == (D.SENDING, None, "")
        assert world.status(job) == "retryable_failed"
        assert world.stage(job, "notify").error_class == "DATABASE_UNAVAILABLE"
    world.settle()
    row.refresh_from_db()
    assert world.status(job) == "succeeded"
    assert row.status == D.SENT
    assert row.notification_id
    assert row.notified_at is not None
    assert outcomes(row) == ["ambiguous", "found"]
    assert len(world.mails()) == 1


@pytest.mark.long
def test_a_partially_updated_row_is_looked_up_by_its_prior_id(world: World) -> None:
    with marks_are_refused(world):
        job = world.job(world.commit, MAIL)
        world.work()
    Delivery.objects.update(notification_id="a prior id")
    world.settle()
    assert world.status(job) == "succeeded"
    assert outcomes(world.delivery(job, MAIL)) == ["ambiguous", "found"]
    assert len(world.mails()) == 1


@pytest.mark.long
def test_a_mail_that_never_arrived_is_sent_after_the_look_up(world: World) -> None:
    with marks_are_refused(world):
        job = world.job(world.commit, MAIL)
        world.work()
    for path in (world.files / "mail" / "new").rglob("*"):
        path.unlink()
    world.settle()
    assert world.status(job) == "succeeded"
    assert outcomes(world.delivery(job, MAIL)) == ["ambiguous", "absent", "accepted"]
    assert len(world.mails()) == 1


@pytest.mark.long
def test_a_webhook_is_repeated_under_the_same_key(world: World) -> None:
    with marks_are_refused(world):
        job = world.job(world.commit, world.hook)
        world.work()
    world.settle()
    assert world.status(job) == "succeeded"
    first, second = world.receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.raw == second.raw
    assert list(world.receiver.processed.values()) == [1]


@pytest.mark.long
def test_mail_of_a_server_that_cannot_be_asked_is_held_not_failed(world: World) -> None:
    server = world.enter(SmtpServer())
    world.settings.SMTP_HOST, world.settings.SMTP_PORT = "127.0.0.1", server.port
    with marks_are_refused(world):
        job = world.job(world.commit, MAIL)
        world.work()
    world.settle()
    row = world.delivery(job, MAIL)
    assert (world.status(job), row.status) == ("dead_lettered", D.UNCERTAIN)
    assert world.letter(job).error_class == "DELIVERY_UNCERTAIN"
    assert len(server.accepted) == 1

    operator_actions.confirm_delivered(row.pk, actor="ann", reason="it is in the mailbox")
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"
    assert len(server.accepted) == 1


# -- marked as sent, and the provider has no record --------------------------------


def mark_without_sending(job: int, recipient: str) -> None:
    """Write what code that marks before it sends would leave behind."""
    row = Delivery.objects.filter(job_id=job, recipient=recipient)
    row.update(status=D.SENDING, attempts=F("attempts") + 1)
    row.update(status=D.SENT, notified_at=Now(), notification_id="made up")


def maildir_that_cannot_be_reached(world: World) -> Path:
    """Make a maildir on which nothing can be written for now; return what to remove."""
    loop = world.files / "mail"
    loop.symlink_to(loop)
    return loop


def alerts(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if isinstance(record.msg, dict)]
    return [record.msg["event"] for record in records if record.levelname == "ERROR"]


def test_a_mark_without_a_send_is_cleared_requeued_and_alerted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    loop = maildir_that_cannot_be_reached(world)
    job = world.job(world.commit, MAIL)
    world.work()
    loop.unlink()
    mark_without_sending(job, MAIL)
    assert world.status(job) == "retryable_failed"

    result = audit.audit_sent(config.providers())
    assert (result.suspicious, result.requeued) == (1, {job})
    assert "delivery_evidence_missing" in alerts(caplog)
    row = world.delivery(job, MAIL)
    assert (row.status, row.notified_at, row.notification_id) == (D.PENDING, None, "")

    world.settle()
    row.refresh_from_db()
    assert (world.status(job), row.status) == ("succeeded", D.SENT)
    assert row.notification_id != "made up"
    assert len(world.mails()) == 1
    assert audit.audit_sent(config.providers()).suspicious == 0


@pytest.mark.long
def test_the_job_reconciles_a_mark_without_evidence(world: World, caplog: pytest.LogCaptureFixture) -> None:
    loop = maildir_that_cannot_be_reached(world)
    job = world.job(world.commit, MAIL)
    world.work()
    loop.unlink()
    mark_without_sending(job, MAIL)
    world.settle()
    assert world.status(job) == "succeeded"
    assert "delivery_evidence_missing" in alerts(caplog)
    assert outcomes(world.delivery(job, MAIL)) == ["not_sent", "ambiguous", "absent", "accepted"]
    assert len(world.mails()) == 1


@pytest.mark.long
def test_a_time_without_an_id_is_reconciled_before_any_send(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    loop = maildir_that_cannot_be_reached(world)
    job = world.job(world.commit, MAIL)
    world.work()
    loop.unlink()
    Delivery.objects.filter(job_id=job).update(notified_at=Now())
    world.settle()
    assert world.status(job) == "succeeded"
    assert "delivery_evidence_missing" in alerts(caplog)
    assert outcomes(world.delivery(job, MAIL)) == ["not_sent", "ambiguous", "absent", "accepted"]
    assert len(world.mails()) == 1


@pytest.mark.long
def test_the_database_refuses_a_mark_without_an_id(world: World) -> None:
    world.receiver.always(Behaviour(status=429))
    job = world.job(world.commit, world.hook)
    world.work()
    row = Delivery.objects.filter(job_id=job)
    row.update(status=D.SENDING)
    with pytest.raises(IntegrityError, match="deliveries_send_then_mark"), transaction.atomic():
        row.update(status=D.SENT, notified_at=Now(), notification_id="")


# -- one job per key ----------------------------------------------------------------------------


def body(world: World, **fields: object) -> dict[str, object]:
    return {
        "idempotency_key": "k-1",
        "changelist_id": world.commit,
        "recipients": [MAIL, world.hook],
        **fields,
    }


@pytest.mark.long
def test_a_repeated_key_returns_the_original_job_before_and_after_its_end(world: World) -> None:
    first = world.api.post_json("/api/v1/reviews/", body(world))
    again = world.api.post_json("/api/v1/reviews/", body(world))
    world.settle()
    late = world.api.post_json("/api/v1/reviews/", body(world, recipients=["mail:bob@example.com"]))
    assert [answer.status_code for answer in (first, again, late)] == [201, 200, 200]
    assert {answer.json()["id"] for answer in (first, again, late)} == {first.json()["id"]}
    assert late.json()["payload_mismatch"] is True
    assert late.json()["status"] == "succeeded"
    world.settle()
    assert ReviewJob.objects.count() == 1
    assert len(world.mails()) == len(world.receiver.requests) == 1


@pytest.mark.long
def test_keys_that_race_make_one_job(world: World) -> None:
    def post(_: int) -> IntakeOutcome:
        try:
            return world.request(world.commit, MAIL).outcome
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, range(16)))
    assert answers.count(IntakeOutcome.CREATED) == 1
    assert answers.count(IntakeOutcome.DUPLICATE_KEY) == 15
    world.settle()
    assert len(world.mails()) == 1


def test_the_database_holds_the_key_unique(world: World) -> None:
    job = world.job(world.commit, MAIL)
    with pytest.raises(IntegrityError, match="idempotency_key"), transaction.atomic():
        ReviewJob.objects.create(
            idempotency_key=ReviewJob.objects.get(pk=job).idempotency_key,
            changelist_id="999",
            deadline_at=Now(),
            request_sha256="",
        )


# -- one delivery per recipient -------------------------------------------------------------------


def test_a_replay_of_the_whole_job_makes_no_second_delivery(world: World) -> None:
    end = troubles.hook(status=401)(world)
    job = world.job(world.commit, MAIL, world.hook)
    world.settle()
    assert world.status(job) == "dead_lettered"
    end()
    world.replay(job, restart=True)
    world.settle()
    assert world.status(job) == "succeeded"
    assert Delivery.objects.count() == 2
    assert len(world.mails()) == 1
    assert list(world.receiver.processed.values()) == [1]
    row = world.delivery(job, MAIL)
    row.pk, row.token = None, snapshot.token_for("another", MAIL, 1)
    with pytest.raises(IntegrityError, match="deliveries_one_per_intent"), transaction.atomic():
        row.save(force_insert=True)


# -- retries are safe -------------------------------------------------------------------------


@pytest.mark.long
def test_a_network_timeout_is_repeated_under_the_same_key(world: World) -> None:
    end = troubles.hook_line("silent")(world)
    job = world.job(world.commit, world.hook)
    world.work()
    assert world.stage(job, "notify").error_class == "NETWORK_TIMEOUT"
    end()
    world.settle()
    assert world.status(job) == "succeeded"
    token = str(snapshot.token_for(world.commit, world.hook, 1))
    assert dict(world.receiver.processed) == {token: 1}
    assert world.receiver.requests[-1].headers["idempotency-key"] == token


@pytest.mark.long
def test_an_answer_lost_after_acceptance_reaches_the_receiver_once(world: World) -> None:
    world.receiver.script(Behaviour(process=True, reset=True))
    job = world.job(world.commit, world.hook)
    world.settle()
    assert world.status(job) == "succeeded"
    assert len(world.receiver.requests) == 2
    assert list(world.receiver.processed.values()) == [1]


def test_a_retry_sends_only_to_recipients_not_yet_notified(world: World) -> None:
    world.receiver.script(Behaviour(status=503, process=False))
    job = world.job(world.commit, MAIL, world.hook)
    world.work()
    told = world.delivery(job, MAIL)
    assert (told.status, told.attempts) == (D.SENT, 1)
    assert world.status(job) == "retryable_failed"  # not every recipient is notified
    world.settle()
    assert world.status(job) == "succeeded"
    again = world.delivery(job, MAIL)
    assert (again.attempts, again.notified_at) == (1, told.notified_at)
    assert len(world.mails()) == 1


# -- versions ---------------------------------------------------------------------------------


@pytest.mark.long
def test_the_same_version_returns_the_prior_success_and_sends_nothing(world: World) -> None:
    job = world.job(world.commit, MAIL, world.hook)
    world.settle()
    for rerun in (False, True):
        answer = world.api.post_json(
            "/api/v1/reviews/", body(world, idempotency_key=f"other-{rerun}", rerun=rerun)
        )
        assert (answer.status_code, answer.json()["id"]) == (200, job)
        assert answer.json()["duplicate"] is True
    world.settle()
    assert len(world.mails()) == len(world.receiver.requests) == 1


@pytest.mark.long
def test_a_higher_version_is_a_new_delivery_and_only_as_a_rerun(world: World) -> None:
    first = world.job(world.commit, MAIL, world.hook)
    world.settle()
    refused = world.api.post_json("/api/v1/reviews/", body(world, idempotency_key="k-2", review_version=2))
    assert (refused.status_code, refused.json()["error"]) == (409, "VERSION_CONFLICT")
    made = world.api.post_json(
        "/api/v1/reviews/", body(world, idempotency_key="k-2", review_version=2, rerun=True)
    )
    assert made.status_code == 201
    world.settle()
    second = made.json()["id"]
    assert (world.status(first), world.status(second)) == ("succeeded", "succeeded")
    assert world.delivery(first, MAIL).token != world.delivery(second, MAIL).token
    assert len(world.mails()) == len(world.receiver.processed) == 2
    lower = world.api.post_json(
        "/api/v1/reviews/", body(world, idempotency_key="k-3", review_version=1, rerun=True)
    )
    assert (lower.status_code, lower.json()["id"]) == (200, first)


@pytest.mark.long
def test_a_version_that_is_superseded_sends_nothing_further(world: World) -> None:
    world.receiver.script(Behaviour(status=503, process=False))
    first = world.job(world.commit, MAIL, world.hook)
    world.work()
    second = world.job(world.commit, MAIL, world.hook, key="k-2", version=2, rerun=True)
    world.settle()
    assert (world.status(first), world.status(second)) == ("superseded", "succeeded")
    assert world.delivery(first, MAIL).status == D.SENT
    assert world.delivery(first, world.hook).status != D.SENT
    assert dict(world.receiver.processed) == {str(snapshot.token_for(world.commit, world.hook, 2)): 1}


# -- what is kept of it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RetryableFailure(
            ErrorClass.UPSTREAM_UNAVAILABLE, Component.INTERNAL, "the storage of artifacts failed"
        ),
    ],
    ids=["full disk", "bucket away"],
)
def test_a_storage_failure_after_the_last_send_makes_no_dead_letter(world: World, error: Exception) -> None:
    save = FileSystemStorage._save

    def fails_for_mail(storage: FileSystemStorage, name: str, content: Any) -> str:
        if "/mail-" in name:
            raise error
        return save(storage, name, content)

    world.monkeypatch.setattr(FileSystemStorage, "_save", fails_for_mail)
    job = world.job(world.commit, MAIL)
    world.settle()
    assert world.delivery(job, MAIL).status == D.SENT
    assert world.status(job) == "succeeded"
    assert len(world.attempts(job, "notify")) == 1
    assert not Artifact.objects.filter(job_id=job, kind=Artifact.Kind.MAIL).exists()


def test_to_notify_two_recipients_takes_few_statements(
    world: World, django_assert_max_num_queries: Any
) -> None:
    """A busy installation loads PostgreSQL with one statement a step, not one a question."""
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.job(world.change(), MAIL, world.hook)
    world.work()  # what a process learns once
    job = world.job(world.change(), MAIL, world.hook, key="k-2")
    for queue in ("stages", "llm"):
        (message,) = outbox.claim(queue, 1)
        executor.run_stage(message.id, message.aggregate_id, message.lease_token)
    (message,) = outbox.claim("notify", 1)
    with django_assert_max_num_queries(48):
        executor.run_stage(message.id, message.aggregate_id, message.lease_token)
    assert world.status(job) == "succeeded"
