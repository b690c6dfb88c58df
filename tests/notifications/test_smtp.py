"""Every phase of an SMTP session fails with the right class."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from criticizer.resilience.failures import (
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.providers.email.imap_archive import Archive, ArchiveConfig
from notifications.providers.email.smtp import Smtp, SmtpConfig
from notifications.providers.email.smtp_session import Connections
from tests.fakes.smtp import SmtpServer, Switches
from tests.notifications.samples import SENDER, message, tls_contexts

E = ErrorClass


def smtp(server: SmtpServer, **changes: object) -> Smtp:
    fields: dict[str, object] = {"host": "127.0.0.1", "port": server.port, "sender": SENDER}
    return Smtp(SmtpConfig(**{**fields, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("switches", "kind", "error_class"),
    [
        (Switches(greeting="421 4.3.2 too busy"), RetryableFailure, E.UPSTREAM_UNAVAILABLE),
        (Switches(greeting="554 5.3.2 no service"), PermanentFailure, E.PERMISSION_DENIED),
        (Switches(mail="451 4.3.0 later"), RetryableFailure, E.UPSTREAM_UNAVAILABLE),
        (Switches(mail="550 5.7.1 not your domain"), PermanentFailure, E.PERMISSION_DENIED),
        (Switches(mail="530 5.7.0 authenticate first"), PermanentFailure, E.AUTH_DENIED),
        (Switches(rcpt="450 4.2.1 greylisted"), RetryableFailure, E.UPSTREAM_UNAVAILABLE),
        (Switches(rcpt="550 5.1.1 no such user"), PermanentFailure, E.RECIPIENT_REJECTED),
        (Switches(rcpt="553 5.1.3 bad address"), PermanentFailure, E.RECIPIENT_REJECTED),
        (Switches(data="451 4.3.0 later"), RetryableFailure, E.UPSTREAM_UNAVAILABLE),
        (Switches(data="554 5.7.1 no"), PermanentFailure, E.POLICY_REJECTED),
        (Switches(final="451 4.7.1 later"), RetryableFailure, E.UPSTREAM_UNAVAILABLE),
        (Switches(final="554 5.7.1 spam"), PermanentFailure, E.POLICY_REJECTED),
        (Switches(then="drop"), UncertainFailure, E.DELIVERY_UNCERTAIN),
        (Switches(then="hang"), UncertainFailure, E.DELIVERY_UNCERTAIN),
        (Switches(then="hang", accept=False), UncertainFailure, E.DELIVERY_UNCERTAIN),
        (Switches(final="gibberish", accept=False), UncertainFailure, E.DELIVERY_UNCERTAIN),
        (Switches(final="250 " + "x" * 9000), UncertainFailure, E.DELIVERY_UNCERTAIN),
    ],
)
def test_each_phase_fails_as_what_it_is(
    switches: Switches, kind: type[Failure], error_class: ErrorClass
) -> None:
    short = {"final_timeout_seconds": 0.3} if switches.then == "hang" else {}
    with SmtpServer(switches) as server:
        with pytest.raises(kind) as failed:
            smtp(server, **short).send(message())
        assert failed.value.error_class is error_class
        if kind is not UncertainFailure:
            assert server.accepted == []
        server.switches = Switches()  # the twin: the server is well again
        smtp(server).send(message())
        assert [mail.token for mail in server.accepted][-1] == str(message().token)


def test_a_connection_lost_inside_the_message_has_sent_nothing() -> None:
    # Larger than the socket's buffers: a small message is written, final dot and all, before
    # the loss can be noticed, and is uncertain then.
    long_message = message(text=("x" * 70 + "\n") * 100_000)
    with SmtpServer(Switches(drop_in_data=True)) as server:
        with pytest.raises(RetryableFailure) as failed:
            smtp(server).send(long_message)
        assert failed.value.error_class is E.NETWORK_UNREACHABLE
        assert server.accepted == []


def test_a_server_that_says_nothing_times_out_before_anything_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        provider = Smtp(SmtpConfig("127.0.0.1", silent.getsockname()[1], SENDER, read_timeout_seconds=0.2))
        with pytest.raises(RetryableFailure) as failed:
            provider.send(message())
    assert failed.value.error_class is E.NETWORK_TIMEOUT


def test_a_connection_that_is_not_accepted_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        try:
            for client in waiting:  # fills the accept queue, so that the next SYN is dropped
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
            with pytest.raises(RetryableFailure) as failed:
                Smtp(SmtpConfig("127.0.0.1", port, SENDER, connect_timeout_seconds=0.2)).send(message())
        finally:
            for client in waiting:
                client.close()
    assert failed.value.error_class is E.NETWORK_TIMEOUT


def test_a_host_without_an_address_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_address(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", no_address)
    with pytest.raises(RetryableFailure) as failed:
        Smtp(SmtpConfig("mail.invalid", 25, SENDER)).send(message())
    assert failed.value.error_class is E.NETWORK_UNREACHABLE


def test_a_wrong_password_is_denied_and_the_right_one_is_not() -> None:
    with SmtpServer(Switches(user="robot", password="right-for-tests")) as server:
        with pytest.raises(PermanentFailure) as denied:
            smtp(server, user="robot", passwords=("wrong-for-tests",)).send(message())
        assert denied.value.error_class is E.AUTH_DENIED
        assert "wrong-for-tests" not in denied.value.detail
        smtp(server, user="robot", passwords=("right-for-tests",)).send(message())
        assert len(server.accepted) == 1


def test_a_login_that_fails_for_now_is_repeated() -> None:
    switches = Switches(user="robot", password="x", refuse_login="454 4.7.0 directory is away")
    with SmtpServer(switches) as server, pytest.raises(RetryableFailure) as failed:
        smtp(server, user="robot", passwords=("x",)).send(message())
    assert failed.value.error_class is E.UPSTREAM_UNAVAILABLE


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_travels_encrypted_when_the_certificate_is_trusted(security: str, tmp_path: Path) -> None:
    server_tls, client_tls = tls_contexts(tmp_path)
    listening = SmtpServer(starttls=server_tls) if security == "starttls" else SmtpServer(tls=server_tls)
    with listening as server:
        smtp(server, security=security, tls=client_tls).send(message())
        assert len(server.accepted) == 1


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_an_untrusted_certificate_stops_before_anything_is_sent(security: str, tmp_path: Path) -> None:
    server_tls, _ = tls_contexts(tmp_path)
    listening = SmtpServer(starttls=server_tls) if security == "starttls" else SmtpServer(tls=server_tls)
    with listening as server:
        with pytest.raises(PermanentFailure, match="not trusted: self-signed") as failed:
            smtp(server, security=security).send(message())
        assert failed.value.error_class is E.CONFIG_INVALID
        assert server.accepted == []


def test_what_cannot_be_said_to_a_mail_server_is_told_apart() -> None:
    with SmtpServer(Switches(user="robot", password="x")) as server:
        for refused, error_class in (
            (lambda: smtp(server, user="robot", passwords=("gr\u00fcn",)).send(message()), E.CONFIG_INVALID),
            (
                lambda: smtp(server, user="robot", passwords=("x",)).send(
                    replace(message(), address="\u00fcli@example.com")
                ),
                E.RECIPIENT_REJECTED,
            ),
            (lambda: smtp(server, host="a..b").send(message()), E.CONFIG_INVALID),
        ):
            with pytest.raises(PermanentFailure) as failed:
                refused()
            assert failed.value.error_class is error_class
        assert server.accepted == []


def test_starttls_that_is_not_offered_is_a_matter_of_configuration() -> None:
    with SmtpServer() as server:
        with pytest.raises(PermanentFailure) as failed:
            smtp(server, security="starttls").send(message())
        assert failed.value.error_class is E.CONFIG_INVALID
        assert server.accepted == []


def test_the_mail_carries_what_clients_and_filters_need() -> None:
    with SmtpServer() as server:
        notification_id = smtp(server).send(message())
        accepted = server.accepted[0]
    mail = accepted.mail
    assert accepted.sender == "criticizer@reviews.test"
    assert accepted.recipient == mail["To"] == "ann@example.com"
    assert mail["Message-ID"] == notification_id == f"<{message().token}@reviews.test>"
    assert mail["X-Criticizer-Token"] == str(message().token)
    assert mail["List-Id"] == "Criticizer reviews <reviews.reviews.test>"
    assert mail["In-Reply-To"] == mail["References"]
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"] == "Wed, 04 Mar 2026 05:06:07 +0000"
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().replace("\r\n", "\n") == message().text
    assert html.get_content().replace("\r\n", "\n") == message().html


def test_both_attempts_have_the_same_bytes() -> None:
    with SmtpServer() as server:
        for _ in range(2):
            smtp(server).send(message())
    first, second = (mail.raw for mail in server.accepted)
    assert first == second


def test_versions_of_a_changelist_share_a_thread_and_others_do_not() -> None:
    with SmtpServer() as server:
        for token, thread in ((1, "changelist:1"), (2, "changelist:1"), (3, "changelist:2")):
            smtp(server).send(message(token=token, thread=thread))
    one, two, other = (mail.mail["References"] for mail in server.accepted)
    assert one == two != other


def test_the_servers_words_are_kept_without_addresses() -> None:
    refusal = "550 5.1.1 <ann@example.com>: user \x07unknown " + "y" * 400
    with SmtpServer(Switches(rcpt=refusal)) as server, pytest.raises(PermanentFailure) as failed:
        smtp(server).send(message())
    assert "[address]" in failed.value.detail
    assert "example.com" not in failed.value.detail
    assert "\x07" not in failed.value.detail
    assert len(failed.value.detail) < 300


def test_a_sender_that_is_no_address_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="sender"):
        Smtp(SmtpConfig("127.0.0.1", 25, "Criticizer"))


def test_the_configuration_does_not_show_its_password() -> None:
    assert "hunter" not in repr(SmtpConfig("h", 25, SENDER, user="u", passwords=("hunter-for-tests",)))


def test_connections_are_closed_after_success_and_failure() -> None:
    with SmtpServer(Switches(rcpt="550 5.1.1 no")) as server:
        before = threading.active_count()
        with pytest.raises(PermanentFailure):
            smtp(server).send(message())
        assert threading.active_count() == before
    # An unclosed socket would be a ResourceWarning, which is an error in this suite.


@pytest.mark.parametrize("security", ["none", "starttls", "tls"])
def test_the_final_dot_does_not_wait_until_the_text_is_acknowledged(security: str, tmp_path: Path) -> None:
    server_tls, client_tls = tls_contexts(tmp_path)
    how = {"starttls": {"starttls": server_tls}, "tls": {"tls": server_tls}}.get(security, {})
    with SmtpServer(**how) as server:
        config = SmtpConfig("127.0.0.1", server.port, SENDER, security=security, tls=client_tls)
        with Connections(config).open() as client:
            assert client.sock is not None
            assert client.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_next_password_is_used_when_the_first_is_refused_and_remembered() -> None:
    with SmtpServer(Switches(user="robot", password="new-for-tests")) as server:
        sender = smtp(server, user="robot", passwords=("old-for-tests", "new-for-tests"))
        sender.send(message())
        assert server.dialogues == 2
        sender.send(message())
        assert server.dialogues == 3  # the refused one is not tried again and again
        assert len(server.accepted) == 2


@contextmanager
def dripping(said: bytes = b"") -> Iterator[tuple[int, threading.Event]]:
    """A server that says something, then a byte each 20 ms for as long as the client stays."""
    gone = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(said)
            while not gone.wait(0.02):
                connection.sendall(b"2")
        gone.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], gone
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def speaking(replies: Sequence[bytes], *, endless: bytes = b"") -> Iterator[int]:
    """Send the first reply, and each other one after a line of the client.

    Then `endless` is sent until the client has gone.
    """

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as lines, suppress(OSError):
            for number, reply in enumerate(replies):
                if number:
                    lines.readline()
                connection.sendall(reply)
            while endless:
                connection.sendall(endless * 100)
            lines.read()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("said", [b"", b"220 hello\r\n250-first\r\n250-"])
def test_a_server_that_answers_a_byte_at_a_time_costs_one_attempts_time(said: bytes) -> None:
    with dripping(said) as (port, gone):
        sender = Smtp(SmtpConfig("127.0.0.1", port, SENDER, total_timeout_seconds=0.4))
        with pytest.raises(RetryableFailure) as failed:
            sender.send(message())
    assert failed.value.error_class is E.NETWORK_TIMEOUT
    assert gone.is_set()  # the client hung up


def test_an_archive_that_answers_a_byte_at_a_time_costs_one_look_ups_time() -> None:
    with dripping(b"* OK ") as (port, _):
        config = ArchiveConfig.parse(f"imap://u:p@127.0.0.1:{port}/", "archive@mail.test")
        archive = Archive(replace(config, total_timeout_seconds=0.4))
        with pytest.raises(RetryableFailure) as failed:
            archive.probe()
    assert failed.value.error_class is E.NETWORK_TIMEOUT


@pytest.mark.parametrize("said", [b"", b"220 hello\r\n"])
def test_replies_without_end_are_given_up_at_a_size(said: bytes) -> None:
    with speaking([said], endless=b"250-" + b"x" * 900 + b"\r\n") as port, pytest.raises(Failure) as failed:
        Smtp(SmtpConfig("127.0.0.1", port, SENDER)).send(message())
    assert (type(failed.value), failed.value.error_class) == (RetryableFailure, E.UPSTREAM_UNAVAILABLE)
    assert "do not end" in failed.value.detail


def test_a_reply_without_end_to_the_message_leaves_its_outcome_unknown() -> None:
    replies = [b"220 hello\r\n", *[b"250 ok\r\n"] * 3, b"354 go on\r\n"]
    with speaking(replies, endless=b"250-" + b"x" * 900 + b"\r\n") as port, pytest.raises(Failure) as failed:
        Smtp(SmtpConfig("127.0.0.1", port, SENDER)).send(message())
    assert (type(failed.value), failed.value.error_class) == (UncertainFailure, E.DELIVERY_UNCERTAIN)


def test_a_challenge_that_no_client_can_read_is_the_servers_fault() -> None:
    replies = [b"220 hello\r\n", b"250-hello\r\n250 AUTH CRAM-MD5\r\n", b"334 !!!notbase64\r\n"]
    with speaking(replies) as port, pytest.raises(Failure) as failed:
        Smtp(SmtpConfig("127.0.0.1", port, SENDER, user="u", passwords=("p",))).send(message())
    assert (type(failed.value), failed.value.error_class) == (RetryableFailure, E.UPSTREAM_UNAVAILABLE)


def test_both_passwords_refused_is_a_refused_login() -> None:
    with SmtpServer(Switches(user="robot", password="another-for-tests")) as server:
        sender = smtp(server, user="robot", passwords=("old-for-tests", "new-for-tests"))
        with pytest.raises(PermanentFailure) as failed:
            sender.send(message())
        assert failed.value.error_class is E.AUTH_DENIED
        assert server.dialogues == 2
        assert server.accepted == []


def test_another_failure_than_a_refused_login_does_not_try_the_next_password() -> None:
    switches = Switches(user="robot", password="x", refuse_login="454 4.7.0 directory is away")
    with SmtpServer(switches) as server, pytest.raises(RetryableFailure):
        smtp(server, user="robot", passwords=("x", "y")).send(message())
    assert server.dialogues == 1


def test_neither_password_shows_in_the_configurations_text() -> None:
    config = SmtpConfig("h", 25, SENDER, user="u", passwords=("hunter-one", "hunter-two"))
    assert "hunter" not in repr(config)
