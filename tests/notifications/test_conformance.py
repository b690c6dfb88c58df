"""What every provider promises, checked against each over a real file system or socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from criticizer.failures import Failure, PermanentFailure, Place, RetryableFailure, UncertainFailure
from notifications.providers.base import Evidence, Message, Provider
from notifications.providers.maildir import Maildir
from notifications.providers.outbound import OutboundPolicy
from notifications.providers.smtp import Smtp, SmtpConfig
from notifications.providers.webhook import Webhook, WebhookConfig
from tests.fakes.smtp import SmtpServer, Switches
from tests.fakes.webhook import Behaviour, WebhookReceiver
from tests.notifications.samples import SECRET_NEW, SENDER, message

LOOPBACK = OutboundPolicy.parse(["127.0.0.0/8"])


@dataclass(slots=True)
class Rig:
    """A provider with what stands behind it: how to break it and what arrived there."""

    provider: Provider
    address: str
    arrived: Callable[[], list[str]]  # tokens, once for each time a recipient would see it
    refuse: Callable[[], None]  # from now on permanently


def _maildir(stack: ExitStack, tmp_path: Path) -> Rig:
    folder = tmp_path / "mail"

    def arrived() -> list[str]:
        return [path.name.split(".")[1] for path in sorted(folder.glob("new/*"))]

    def refuse() -> None:
        folder.write_text("a file where the maildir should be")

    return Rig(Maildir(folder, SENDER), "ann@example.com", arrived, refuse)


def _smtp(stack: ExitStack, tmp_path: Path) -> Rig:
    server = stack.enter_context(SmtpServer())

    def refuse() -> None:
        server.switches = Switches(rcpt="550 5.1.1 no such user")

    provider = Smtp(SmtpConfig("127.0.0.1", server.port, SENDER))
    return Rig(provider, "ann@example.com", lambda: [mail.token for mail in server.accepted], refuse)


def _webhook(stack: ExitStack, tmp_path: Path) -> Rig:
    receiver = stack.enter_context(WebhookReceiver())
    provider = Webhook(WebhookConfig(secrets=(SECRET_NEW,), policy=LOOPBACK))
    return Rig(
        provider,
        receiver.url,
        lambda: sorted(receiver.processed.elements()),
        lambda: receiver.always(Behaviour(status=410)),
    )


@pytest.fixture(params=[_maildir, _smtp, _webhook], ids=["maildir", "smtp", "webhook"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path)


def test_send_reaches_the_recipient_once_and_returns_an_id(rig: Rig) -> None:
    sent = message(rig.address)
    notification_id = rig.provider.send(sent)
    assert 0 < len(notification_id) <= 512
    assert rig.arrived() == [str(sent.token)]


def test_the_id_is_the_same_on_every_attempt(rig: Rig) -> None:
    assert rig.provider.send(message(rig.address)) == rig.provider.send(message(rig.address))


def test_two_tokens_are_two_messages(rig: Rig) -> None:
    for token in (1, 2):
        rig.provider.send(message(rig.address, token))
    assert len(set(rig.arrived())) == 2


def test_a_provider_that_deduplicates_shows_a_repeated_message_once(rig: Rig) -> None:
    for _ in range(2):
        rig.provider.send(message(rig.address))
    if rig.provider.capabilities.deduplicates:
        assert len(rig.arrived()) == 1


def test_look_up_tells_the_truth_or_says_that_it_cannot(rig: Rig) -> None:
    before = rig.provider.look_up(message(rig.address), "")
    notification_id = rig.provider.send(message(rig.address))
    after = rig.provider.look_up(message(rig.address), "")
    if rig.provider.capabilities.can_look_up:
        assert (before.evidence, after.evidence) == (Evidence.ABSENT, Evidence.FOUND)
        assert after.notification_id == notification_id
    else:
        assert before.evidence is after.evidence is Evidence.UNKNOWN


def test_looking_up_sends_nothing(rig: Rig) -> None:
    rig.provider.look_up(message(rig.address), "some-id")
    assert rig.arrived() == []


def test_a_permanent_refusal_is_a_permanent_failure_and_nothing_arrives(rig: Rig) -> None:
    rig.refuse()
    with pytest.raises(PermanentFailure) as refusal:
        rig.provider.send(message(rig.address))
    assert rig.arrived() == []
    assert refusal.value.place in {Place.PROVIDER, Place.CONFIGURATION}


def test_failures_do_not_name_the_recipient(rig: Rig) -> None:
    rig.refuse()
    with pytest.raises(Failure) as refusal:
        rig.provider.send(message(rig.address))
    told = f"{refusal.value.detail} {refusal.value.context}"
    assert rig.address not in told
    assert "example.com" not in told


def test_hostile_text_arrives_whole_and_makes_no_header(rig: Rig) -> None:
    hostile = message(rig.address, text=".\r\n.\r\nQUIT\r\nFrom mallory\nBcc: x@y\n" + "long " * 500)
    rig.provider.send(hostile)
    assert rig.arrived() == [str(hostile.token)]


def test_names_and_capabilities_are_declared(rig: Rig) -> None:
    assert rig.provider.name in {"maildir", "smtp", "webhook"}
    assert isinstance(rig.provider.capabilities.deduplicates, bool)


# -- nothing listens ---------------------------------------------------------------------------


def _closed_port() -> int:
    with WebhookReceiver() as receiver:
        return receiver.port


@pytest.mark.parametrize("kind", ["smtp", "webhook"])
def test_a_refused_connection_is_certain_not_to_have_sent(kind: str) -> None:
    port = _closed_port()
    provider: Provider = (
        Smtp(SmtpConfig("127.0.0.1", port, SENDER))
        if kind == "smtp"
        else Webhook(WebhookConfig(policy=LOOPBACK))
    )
    sent: Message = message("ann@example.com" if kind == "smtp" else f"http://127.0.0.1:{port}/")
    with pytest.raises(RetryableFailure):
        provider.send(sent)


# -- the moment of doubt -----------------------------------------------------------------------


def test_smtp_silence_after_the_message_is_uncertain_and_its_twin_is_not() -> None:
    with SmtpServer(Switches(then="drop")) as server:
        with pytest.raises(UncertainFailure):
            Smtp(SmtpConfig("127.0.0.1", server.port, SENDER)).send(message())
        assert len(server.accepted) == 1  # it did arrive: "failed" would have been a lie
    with SmtpServer(Switches(data="451 4.3.0 later")) as server, pytest.raises(RetryableFailure):
        Smtp(SmtpConfig("127.0.0.1", server.port, SENDER)).send(message())
