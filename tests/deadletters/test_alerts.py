"""Operators' alerts: one row and one message a key, sent to each recipient with one key."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import OperationalError
from django.utils import timezone

from criticizer.db import prepared
from criticizer.models import Circuit
from criticizer.queue import outbox
from criticizer.resilience import gate, overrides
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from criticizer.resilience.states import CircuitState
from deadletters import alerts
from deadletters.models import OperatorAlert
from notifications import alerts as operators
from notifications.providers.base import Capabilities, LookUpBy, Message
from tests.notifications.scripted import ANN, BOB, CI, ScriptedProvider, not_sent, refused, unclear

pytestmark = pytest.mark.django_db


class Provider:
    name = "scripted"
    capabilities = Capabilities()

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


@pytest.fixture
def two(settings: Any, monkeypatch: pytest.MonkeyPatch) -> ScriptedProvider:
    """A mail provider that deduplicates for an hour, and two operators."""
    settings.OPERATOR_ALERTS = [ANN, BOB]
    mail = ScriptedProvider("scripted", capabilities=Capabilities(key_window_seconds=3600))
    monkeypatch.setattr("notifications.config.providers", lambda: {"mail": mail})
    return mail


def _addresses(mail: ScriptedProvider) -> list[str]:
    return [message.address.partition("@")[0] for message in mail.calls]


@pytest.mark.parametrize("how", ["unclear", "killed", "not_stored"])
def test_an_attempt_without_an_outcome_is_decided_before_the_next_recipient(
    two: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Without a key and a look-up it is not repeated: another alert names it."""
    two.capabilities = Capabilities()
    _tell()
    with monkeypatch.context() as patch:
        if how == "not_stored":
            patch.setattr(operators, "_close", Mock(side_effect=OperationalError))
        else:
            two.script.append((SystemExit() if how == "killed" else unclear(), True))
        with suppress(SystemExit):
            _work()
    assert OperatorAlert.objects.get().sending_to == ANN
    assert _addresses(two) == ["ann"]
    prepared.rows("UPDATE outbox_messages SET lease_token = NULL, started_at = NULL")
    _work()
    _work()
    assert _addresses(two) == ["ann", "bob"]
    assert OperatorAlert.objects.get(kind="unconfirmed").title.startswith("An earlier alert may not have")
    assert OperatorAlert.objects.get(kind="batch_stopped").sent_at is not None


def test_the_others_wait_while_the_look_up_of_an_attempt_would_prove_nothing(two: ScriptedProvider) -> None:
    two.capabilities = Capabilities(look_up=frozenset({LookUpBy.KEY}), settle_seconds=3600)
    two.script.append((unclear(), True))
    _tell()
    _work()
    _work()
    assert _addresses(two) == ["ann"]
    past = timezone.now() - timedelta(hours=2)
    OperatorAlert.objects.update(sending_since=past)
    _work()
    assert _addresses(two) == ["ann", "bob"]
    assert OperatorAlert.objects.get().sent_to == [ANN, BOB]


@pytest.mark.parametrize("failure", [not_sent(), refused()])
def test_a_refused_repeat_leaves_the_attempt_before_it_undecided(
    two: ScriptedProvider, failure: Exception
) -> None:
    two.script.extend([(unclear(), True), failure])
    _tell()
    _work()
    began = OperatorAlert.objects.get().sending_since
    _work()
    alert = OperatorAlert.objects.get(kind="batch_stopped")
    if isinstance(failure, RetryableFailure):
        assert (alert.sending_to, alert.sending_since) == (ANN, began)
        assert _addresses(two) == ["ann", "ann"]
    else:
        assert OperatorAlert.objects.filter(kind="unconfirmed").exists()
        assert _addresses(two) == ["ann", "ann", "bob"]


def test_a_receiver_that_deduplicates_for_ever_keeps_nobody_waiting(
    two: ScriptedProvider, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = ScriptedProvider("webhook", deduplicates=True)
    hook.script.extend([(unclear(), True)] * 2)
    settings.OPERATOR_ALERTS = [CI, ANN]
    monkeypatch.setattr("notifications.config.providers", lambda: {"mail": two, "webhook": hook})
    _tell()
    _work()
    assert _addresses(two) == ["ann"]
    _work()
    _work()
    assert set(hook.arrived.values()) == {1}
    assert OperatorAlert.objects.get().sent_to == [ANN, CI]


def test_an_archive_that_cannot_be_asked_keeps_the_others_waiting_for_some_tries_only(
    two: ScriptedProvider,
) -> None:
    two.capabilities = Capabilities(look_up=frozenset({LookUpBy.KEY}))
    two.script.append((unclear(), True))
    two.look_up_failure = not_sent()
    _tell()
    for _ in range(7):
        _work()
    assert _addresses(two) == ["ann", "bob"]
    assert OperatorAlert.objects.filter(kind="unconfirmed").exists()


def test_links_in_the_words_of_others_are_inert_in_alerts_and_ours_are_not(
    two: ScriptedProvider, settings: Any
) -> None:
    settings.BASE_URL = "https://review.example.com"
    ours = "https://review.example.com/admin/deadletters/deadletter/"
    lines = f"Letter 7: https://evil.example/x\n{ours}\n{ours} https://evil.example/y"
    alerts.tell(alerts.TOGETHER, key="1", title="https://evil.example/t", lines=lines, path="/admin/")
    _work()
    mail = two.calls[0]
    assert "://evil" not in mail.subject + mail.text + mail.html
    assert f"\n{ours}\n" in mail.text
    assert "https://review.example.com/admin/\n" in mail.text


def test_alerts_wait_while_their_provider_must_not_be_called(providers: dict[str, Provider]) -> None:
    name = "provider:webhook:ops.example.com"
    Circuit.objects.create(name=name)
    overrides.force(name, CircuitState.FORCED_OPEN, actor="ann", reason="OPS-1", seconds=60.0)
    _tell()
    _work()
    assert providers["webhook"].sent == []
    alert = OperatorAlert.objects.get()
    assert (alert.sent_at, alert.sending_to, alert.sent_to) == (None, "", ["mail:ops@example.com"])
    Circuit.objects.filter(name=name).delete()
    gate.forget()
    _work()
    assert len(providers["webhook"].sent) == 1
