"""Lost marks and false marks against a real SMTP server and a real IMAP archive (G50, G53)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import structlog
from django.db import OperationalError
from django.db.models import F
from django.db.models.functions import Now

from criticizer.resilience.failures import ErrorClass, RetryableFailure, UncertainFailure
from notifications.delivery import audit, snapshot, store
from notifications.models import Delivery, UnarchivedMail
from notifications.providers.email.smtp import Smtp
from notifications.states import DeliveryStatus, SendOutcome
from reviews.models import ReviewJob
from tests.fakes.dovecot import Dovecot
from tests.fakes.smtp import SmtpServer, Switches
from tests.notifications.scripted import ANN, deliver, outcomes, prepare
from tests.notifications.test_imap_archive import pair
from tests.notifications.together import make_due, states, waiting

D = DeliveryStatus


@pytest.fixture(autouse=True)
def _no_waits(settings: Any) -> None:
    # No wait between looks is longer than the clock can tell: what the waits decide is the policy's own test.
    settings.RETRY_TIME_SCALE = 1e-9


@pytest.fixture
def mail(imap: Dovecot) -> Iterator[tuple[Smtp, SmtpServer]]:
    with pair(imap) as (smtp, server):
        yield smtp, server


def old(row: Delivery) -> None:
    """Let the row and its attempts be an hour old: longer than a mail is under way."""
    Delivery.objects.filter(pk=row.pk).update(created_at=F("created_at") - timedelta(hours=1))
    row.attempt_rows.update(started_at=F("started_at") - timedelta(hours=1))


def test_sent_but_not_marked_is_found_in_the_archive_and_back_filled_without_resending(
    job: ReviewJob, mail: tuple[Smtp, SmtpServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    smtp, server = mail
    (row,) = prepare(job, ANN)

    def fails(claimed: store.Claim, notification_id: str) -> bool:
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as patch:
        patch.setattr(store, "mark_sent", fails)
        patch.setattr(store, "RECORD_PAUSES_SECONDS", ())
        with pytest.raises(RetryableFailure) as failed:  # never permanent before reconciliation
            deliver(job, {"mail": smtp})
    assert failed.value.error_class is ErrorClass.DATABASE_UNAVAILABLE
    row.refresh_from_db()
    assert (row.status, row.notified_at) == (D.SENDING, None)  # still appears unsent

    assert deliver(job, {"mail": smtp}).sent == 1
    row.refresh_from_db()
    assert (row.status, row.notification_id) == (D.SENT, f"<{row.token}@reviews.test>")
    assert row.notified_at is not None
    assert [accepted.token for accepted in server.accepted] == [str(row.token)]
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, SendOutcome.FOUND]


@pytest.mark.django_db
def test_a_digest_sent_but_not_marked_is_found_in_the_archive(
    mail: tuple[Smtp, SmtpServer], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    smtp, server = mail
    scale, settings.RETRY_TIME_SCALE = settings.RETRY_TIME_SCALE, 1.0
    jobs, rows = waiting("1", "2", "3")
    settings.RETRY_TIME_SCALE = scale
    make_due()

    def fails(claimed: store.Claim, notification_id: str) -> bool:
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as patch:
        patch.setattr(store, "mark_sent", fails)
        patch.setattr(store, "RECORD_PAUSES_SECONDS", ())
        with pytest.raises(RetryableFailure):
            deliver(jobs[0], {"mail": smtp})
    assert states(rows) == ["sending"] * 3
    assert deliver(jobs[0], {"mail": smtp}).sent == 1
    assert states(rows) == ["sent"] * 3
    (accepted,) = server.accepted
    assert {row.notification_id for row in rows} == {f"<{accepted.token}@reviews.test>"}
    assert outcomes(rows[0]) == [SendOutcome.AMBIGUOUS, SendOutcome.FOUND]


def test_silence_of_the_server_is_looked_up_too(job: ReviewJob, mail: tuple[Smtp, SmtpServer]) -> None:
    smtp, server = mail
    (row,) = prepare(job, ANN)
    server.switches = Switches(then="drop")
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": smtp})
    server.switches = Switches()
    assert deliver(job, {"mail": smtp}).sent == 1
    row.refresh_from_db()
    assert row.status == D.SENT
    assert len(server.accepted) == 1


def test_a_message_absent_in_the_archive_is_sent_again(job: ReviewJob, mail: tuple[Smtp, SmtpServer]) -> None:
    smtp, server = mail
    (row,) = prepare(job, ANN)
    server.switches = Switches(then="drop", accept=False)
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": smtp})
    old(row)
    server.switches = Switches()
    assert deliver(job, {"mail": smtp}).sent == 1
    # The first look found no later message and sent one to the archive: the second is the proof.
    assert outcomes(row) == [
        SendOutcome.AMBIGUOUS,
        SendOutcome.UNKNOWN,
        SendOutcome.ABSENT,
        SendOutcome.ACCEPTED,
    ]
    assert [accepted.token for accepted in server.accepted] == [str(row.token)]
    assert server.archived == 2


def test_an_archive_that_refused_the_copy_leaves_the_decision_to_an_operator(
    job: ReviewJob, imap: Dovecot
) -> None:
    with SmtpServer(
        Switches(archive="552 5.2.2 full", then="drop"), archive="archive@reviews.test", deliver=imap.deliver
    ) as server:
        with pair(imap) as (other, _):
            config = other._config
        smtp = Smtp(replace(config, port=server.port), UnarchivedMail.objects)
        (row,) = prepare(job, ANN)
        with pytest.raises(RetryableFailure):
            deliver(job, {"mail": smtp})
        assert list(UnarchivedMail.objects.values_list("token", flat=True)) == [row.token]
        old(row)
        server.switches = Switches()
        with pytest.raises(UncertainFailure):
            deliver(job, {"mail": smtp})
    row.refresh_from_db()
    assert row.status == D.UNCERTAIN
    assert len(server.accepted) == 1


def marked_too_early(row: Delivery) -> None:
    """Write what a violation of the ordering contract would leave."""
    Delivery.objects.filter(pk=row.pk).update(
        status=D.SENDING,
        attempts=F("attempts") + 1,
        provider="smtp+archive",
        created_at=Now() - timedelta(hours=1),
    )
    Delivery.objects.filter(pk=row.pk).update(status=D.SENT, notified_at=Now(), notification_id="made-up")


def test_marked_but_not_sent_is_absent_in_the_archive_cleared_alerted_and_then_sent(
    job: ReviewJob, mail: tuple[Smtp, SmtpServer]
) -> None:
    smtp, server = mail
    (row,) = prepare(job, ANN)
    marked_too_early(row)
    with structlog.testing.capture_logs() as logs:
        result = audit.audit_sent({"mail": smtp})
    assert (result.suspicious, result.requeued) == (1, {job.pk})
    alert = next(entry for entry in logs if entry["event"] == "delivery_evidence_missing")
    assert (alert["log_level"], alert["delivery"]) == ("error", row.pk)
    row.refresh_from_db()
    assert (row.status, row.notified_at, row.notification_id) == (D.PENDING, None, "")
    assert server.accepted == []

    assert deliver(job, {"mail": smtp}).sent == 1
    row.refresh_from_db()
    assert (row.status, row.notification_id) == (D.SENT, f"<{row.token}@reviews.test>")
    assert [accepted.token for accepted in server.accepted] == [str(row.token)]
    assert audit.audit_sent({"mail": smtp}).suspicious == 0


def test_a_false_mark_is_back_filled_where_the_archive_has_the_message(
    job: ReviewJob, mail: tuple[Smtp, SmtpServer]
) -> None:
    smtp, server = mail
    (row,) = prepare(job, ANN)
    smtp.send(snapshot.thaw(row))
    marked_too_early(row)
    result = audit.audit_sent({"mail": smtp})
    assert (result.back_filled, result.requeued) == (1, set())
    row.refresh_from_db()
    assert (row.status, row.notification_id) == (D.SENT, f"<{row.token}@reviews.test>")
    assert len(server.accepted) == 1
