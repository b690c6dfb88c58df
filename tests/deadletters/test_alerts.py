"""Operators' alerts: one row and one message a key, sent to each recipient with one key."""

from __future__ import annotations

from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from deadletters import alerts
from deadletters.models import OperatorAlert
from notifications import alerts as operators
from notifications.providers.base import Message

pytestmark = pytest.mark.django_db


class Provider:
    name = "scripted"

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.failures: list[Exception] = []

    def send(self, message: Message) -> str:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append(message)
        return "id"


@pytest.fixture
def providers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Provider]:
    settings.OPERATOR_ALERTS = ["mail:ops@example.com", "webhook:https://ops.example.com/hook"]
    made = {"mail": Provider(), "webhook": Provider()}
    monkeypatch.setattr("notifications.config.providers", lambda: made)
    return made


def _tell(key: str = "escalated:v1:a:2026-03-01") -> bool:
    return alerts.tell("batch_stopped", key=key, batch=7, reason="OPS-1", path="/admin/")


def _work() -> None:
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    for message in outbox.claim("notify", 10):
        operators.run_message(message.id, message.aggregate_id, str(message.lease_token))


def test_alert_is_sent_once_to_every_recipient(providers: dict[str, Provider]) -> None:
    assert _tell()
    assert not _tell()
    _work()
    _work()
    mail, hook = providers["mail"].sent, providers["webhook"].sent
    assert (len(mail), len(hook)) == (1, 1)
    assert hook[0].payload["dedup_key"] == "escalated:v1:a:2026-03-01"
    assert "Replay batch 7 stopped" in mail[0].subject
    assert mail[0].token != hook[0].token
    assert OperatorAlert.objects.get().sent_at is not None
    assert not prepared.value("SELECT count(*) FROM outbox_messages")


def test_failed_alert_recipient_is_retried_with_the_same_key(providers: dict[str, Provider]) -> None:
    providers["webhook"].failures.append(
        RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Component.PROVIDER, "slow")
    )
    _tell()
    _work()
    assert OperatorAlert.objects.get().sent_at is None
    _work()
    assert (len(providers["mail"].sent), len(providers["webhook"].sent)) == (1, 1)
    assert OperatorAlert.objects.get().sent_at is not None


def test_worker_without_the_lease_sends_no_alert(providers: dict[str, Provider]) -> None:
    def taken(message: Message) -> str:
        """Answer late: the lease has expired and another worker has the message."""
        prepared.rows("UPDATE outbox_messages SET lease_token = gen_random_uuid()")
        providers["mail"].sent.append(message)
        return "id"

    providers["mail"].send = taken  # type: ignore[method-assign]
    _tell()
    _work()
    assert (len(providers["mail"].sent), len(providers["webhook"].sent)) == (1, 0)
    assert OperatorAlert.objects.get().sent_to == ["mail:ops@example.com"]
    assert prepared.value("SELECT count(*) FROM outbox_messages WHERE lease_token IS NOT NULL") == 1
    prepared.rows("UPDATE outbox_messages SET lease_token = NULL, started_at = NULL")
    _work()
    assert (len(providers["mail"].sent), len(providers["webhook"].sent)) == (1, 1)


def test_refused_alert_is_recorded_and_not_retried(providers: dict[str, Provider]) -> None:
    providers["mail"].failures.append(
        PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, "no such mailbox")
    )
    _tell()
    _work()
    alert = OperatorAlert.objects.get()
    assert alert.detail == "mail: no such mailbox"
    assert alert.sent_to == ["webhook:https://ops.example.com/hook"]


def test_lost_alert_message_is_published_again(providers: dict[str, Provider]) -> None:
    _tell()
    prepared.rows("DELETE FROM outbox_messages")
    alerts.ensure()
    _work()
    assert len(providers["mail"].sent) == 1


def test_alert_without_recipients_is_only_stored(settings: Any) -> None:
    settings.OPERATOR_ALERTS = []
    assert _tell()
    assert OperatorAlert.objects.count() == 1
    assert not prepared.value("SELECT count(*) FROM outbox_messages")
