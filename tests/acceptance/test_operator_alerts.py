"""Alerts in an operator's mailbox: of the real pipeline, through a real SMTP server."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from criticizer.db import prepared, timeline
from criticizer.models import Circuit
from criticizer.resilience import gate, overrides
from criticizer.resilience.states import CircuitState
from deadletters import alerts
from deadletters.models import DeadLetter, OperatorAlert
from notifications import alerts as operators
from notifications import config as notification_config
from notifications.delivery import audit
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.email.smtp import Smtp
from reviews import config
from reviews.models import ReviewJob
from reviews.pipeline import circuit_alerts, promotion_alerts, terminate
from tests.acceptance.world import World
from tests.fakes.llm import error
from tests.fakes.smtp import SmtpServer, Switches

OPS = "mail:ops@example.com"


@pytest.fixture
def mailbox(world: World) -> SmtpServer:
    """The mail server of an installation whose operator reads ops@example.com."""
    server: SmtpServer = world.enter(SmtpServer(Switches()))
    world.settings.SMTP_HOST, world.settings.SMTP_PORT = "127.0.0.1", server.port
    world.settings.OPERATOR_ALERTS = [OPS]
    return server


def subjects(mailbox: SmtpServer) -> list[str]:
    return [
        str(one.mail["Subject"]).strip() for one in mailbox.accepted if one.recipient == "ops@example.com"
    ]


def text(mailbox: SmtpServer) -> str:
    body = mailbox.accepted[-1].mail.get_body(("plain",))
    assert body is not None
    return str(body.get_content())


def maintain(world: World) -> None:
    """Let maintenance and workers come by several times."""
    for _ in range(3):
        circuit_alerts.tell_outlasting()
        circuit_alerts.tell_refused()
        terminate.expire_overdue()
        alerts.ensure()
        prepared.rows("UPDATE outbox_messages SET available_at = now() WHERE message_type = 'operator_alert'")
        world.work()


def an_hour_later() -> None:
    OperatorAlert.objects.filter(kind=alerts.TOGETHER).update(
        created_at=timezone.now() - timedelta(seconds=alerts.TOGETHER_SECONDS)
    )


def test_failures_of_severity_high_are_told_within_the_hour_in_one_message(
    world: World, mailbox: SmtpServer
) -> None:
    for number in range(3):
        world.job("99999", world.hook, key=f"k-{number}", version=number + 1, rerun=number > 0)
        world.work()
    maintain(world)
    assert subjects(mailbox) == ["[Criticizer] NOT_FOUND in fetch: reviews fail"]
    letter = DeadLetter.objects.order_by("pk").first()
    assert letter is not None
    assert f"Letter {letter.pk}:" in text(mailbox)
    assert f"/admin/deadletters/deadletter/{letter.pk}/change/" in text(mailbox)
    # Others of the same hour wait for it to end, and come together.
    world.settings.DEPOT_ALLOW_LIST = ["//depot/other/..."]
    world.job(world.change(), world.hook, key="denied")
    world.work()
    with transaction.atomic():
        alerts.tell(
            "storage_fault", key="one", reason="A file that no row names", name="7/a", namespace="raw"
        )
    maintain(world)
    assert len(subjects(mailbox)) == 1
    an_hour_later()
    maintain(world)
    assert subjects(mailbox)[1:] == ["[Criticizer] 2 alerts"]
    assert "PATH_DENIED in fetch" in text(mailbox)
    assert "A file that no row names" in text(mailbox)


def test_each_promotion_of_the_database_is_told_once(world: World, mailbox: SmtpServer) -> None:
    for found in ((1, 7), None, (2, 7), (2, 7), (3, 7)):
        world.monkeypatch.setattr(timeline, "read", lambda found=found: found)
        promotion_alerts.tell_promotion()
        maintain(world)
    title = "[Criticizer] The database was promoted or restored: it is on timeline"
    assert subjects(mailbox) == [f"{title} 2", f"{title} 3"]
    assert "again with their idempotency keys" in " ".join(text(mailbox).split())
    assert "PostgreSQL was restarted since" in " ".join(text(mailbox).split())


@pytest.mark.long
def test_a_promotion_is_told_with_the_time_of_the_last_commit_that_is_kept(
    world: World, mailbox: SmtpServer
) -> None:
    last = datetime(2026, 11, 28, 21, 34, 5, 120_000, tzinfo=UTC)
    world.monkeypatch.setattr(timeline, "read", lambda: (2, 7))
    world.monkeypatch.setattr(timeline, "last_taken_over", lambda: last)
    promotion_alerts.tell_promotion()
    maintain(world)
    assert "committed after 2026-11-28 21:34:05.120000 UTC" in " ".join(text(mailbox).split())


@pytest.mark.long
def test_network_failures_that_use_up_their_attempts_are_told(world: World, mailbox: SmtpServer) -> None:
    world.llm.server.respond = lambda request: error(503, "overloaded", "overloaded")
    job = world.job(world.change(), world.hook)
    for _ in range(6):
        world.work()
        world.make_due()
    assert world.letter(job).retryable
    maintain(world)
    assert subjects(mailbox) == [
        "[Criticizer] UPSTREAM_UNAVAILABLE in llm: every attempt of a review was used up"
    ]


def test_reviews_that_time_out_are_told(world: World, mailbox: SmtpServer) -> None:
    job = world.job(world.change(), world.hook)
    ReviewJob.objects.filter(pk=job).update(deadline_at=timezone.now())
    maintain(world)
    assert world.status(job) == "timed_out"
    assert subjects(mailbox) == ["[Criticizer] 1 review missed the deadline"]
    assert f"Reviews {job}" in text(mailbox)


@pytest.mark.parametrize(
    "passes",
    [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["before_the_deadline", "at_the_deadline"],
)
def test_a_circuit_that_is_open_longer_than_reviews_can_wait_is_told_once(
    world: World, mailbox: SmtpServer, passes: bool
) -> None:
    name = config.perforce_dependency()
    Circuit.objects.create(name=name)
    job = world.job(world.change(), world.hook)
    seconds = 30.0 if passes else 3 * 3600.0
    overrides.force(name, CircuitState.FORCED_OPEN, actor="ann", reason="OPS-1: repair", seconds=seconds)
    world.work()
    assert prepared.value("SELECT waiting_for FROM outbox_messages") == name
    if passes:
        maintain(world)
        assert subjects(mailbox) == []
        ReviewJob.objects.filter(pk=job).update(deadline_at=timezone.now())
        terminate.expire([job])  # by a worker, before maintenance comes
        maintain(world)
    Circuit.objects.filter(name=name).update(changed_at=timezone.now(), generation=99)  # half-open in between
    maintain(world)
    [told] = [each for each in subjects(mailbox) if "circuit" in each]
    assert told == f"[Criticizer] The circuit of {name} is open longer than reviews can wait"


@pytest.mark.long
def test_an_expired_key_behind_an_outage_is_told_once(world: World, mailbox: SmtpServer) -> None:
    """No call comes through that could become a letter, so the health check's answer is sent."""
    name = config.perforce_dependency()
    Circuit.objects.create(name=name, state=CircuitState.OPEN, error_class="NETWORK_UNREACHABLE")
    maintain(world)
    assert subjects(mailbox) == []
    reason = "a health check failed with AUTH_DENIED"
    Circuit.objects.filter(name=name).update(error_class="AUTH_DENIED", reason=reason)
    maintain(world)
    Circuit.objects.filter(name=name).update(generation=99)  # half-open in between
    maintain(world)
    assert subjects(mailbox) == [f"[Criticizer] {name} refuses our credentials"]
    assert reason in text(mailbox)


@pytest.mark.long
def test_a_delivery_without_evidence_of_its_send_is_told(world: World, mailbox: SmtpServer) -> None:
    job = world.job(world.change(), world.hook)
    world.settle()
    row = Delivery.objects.get(job_id=job)
    DeliveryAttempt.objects.filter(delivery=row).delete()  # marked first, then sent: never by this code
    for _ in range(2):
        audit.audit_sent({})
        maintain(world)
    assert subjects(mailbox) == ["[Criticizer] A delivery is marked as sent without evidence"]
    assert f"Delivery {row.pk} of review {job}" in text(mailbox)


def test_an_alert_whose_worker_was_killed_after_the_send_is_not_sent_again(
    world: World, mailbox: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mail server accepted the alert and offers no look-up, so another alert says so.

    It is sent an hour later.
    """
    alerts.tell("batch_stopped", key="stopped:1", batch=1, reason="OPS-1")
    with monkeypatch.context() as patch:
        patch.setattr(operators, "_close", lambda *args, **more: sys.exit())
        with pytest.raises(SystemExit):
            world.work()
    assert len(subjects(mailbox)) == 1
    prepared.rows("UPDATE outbox_messages SET lease_token = NULL, started_at = NULL")
    maintain(world)
    assert subjects(mailbox) == [
        "[Criticizer] Replay batch 1 stopped",
        "[Criticizer] An earlier alert may not have arrived: Replay batch 1 stopped",
    ]
    an_hour_later()
    maintain(world)
    assert len(subjects(mailbox)) == 2


@pytest.mark.long
def test_a_mail_server_that_is_away_gets_the_alert_when_it_is_back(world: World, mailbox: SmtpServer) -> None:
    mailbox.switches = Switches(greeting="421 4.3.2 try later")
    alerts.tell("batch_stopped", key="stopped:1", batch=1, reason="OPS-1")
    for _ in range(8):
        maintain(world)
    mailbox.switches = Switches()
    Circuit.objects.update(retry_at=timezone.now() - timedelta(hours=1))  # and no check came by
    gate.forget()
    maintain(world)
    assert subjects(mailbox) == ["[Criticizer] Replay batch 1 stopped"]
    assert OperatorAlert.objects.get().sent_to == [OPS]


def test_the_first_page_of_the_admin_warns_when_alerts_reach_nobody(admin_client: Any, settings: Any) -> None:
    settings.OPERATOR_ALERTS = []
    assert "No person is alerted" in admin_client.get("/admin/").content.decode()
    settings.OPERATOR_ALERTS = [OPS]
    assert "No person is alerted" not in admin_client.get("/admin/").content.decode()


def test_smtp_offers_no_look_up_without_an_archive(world: World, mailbox: SmtpServer) -> None:
    """With a look-up the test above would end otherwise."""
    provider = notification_config.providers()["mail"]
    assert isinstance(provider, Smtp)
    assert not provider.capabilities.look_up
