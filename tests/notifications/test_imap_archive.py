"""The archive mailbox over real IMAP, and SMTP look-ups through it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.providers.base import Evidence, Question
from notifications.providers.email.imap_archive import Archive, ArchiveConfig, Seen
from notifications.providers.email.smtp import Smtp, SmtpConfig
from tests.fakes.dovecot import Dovecot
from tests.fakes.smtp import SmtpServer, Switches
from tests.notifications.samples import SENDER, message

ARCHIVE = "archive@reviews.test"
E = ErrorClass
LONG_AGO = 1_700_000_000.0


def mail(token: object = "probe", made: str = "Sat, 21 Nov 2026 07:00:00 +0000") -> bytes:
    return f"X-Criticizer-Token: {token}\r\nDate: {made}\r\nSubject: x\r\n\r\nx\r\n".encode()


def config(imap: Dovecot, **changes: object) -> ArchiveConfig:
    return replace(ArchiveConfig.parse(imap.url, ARCHIVE), **changes)  # type: ignore[arg-type]


def look(archive: Archive, token: UUID, attempted_at_epoch: float = LONG_AGO) -> Seen:
    return archive.look(token, since_epoch=attempted_at_epoch, attempted_at_epoch=attempted_at_epoch)


# -- the mailbox -------------------------------------------------------------------------------


def test_an_empty_mailbox_proves_nothing(imap: Dovecot) -> None:
    assert look(Archive(config(imap)), UUID(int=1)) == Seen(has_message=False, has_later=False)


def test_a_message_is_found_by_its_token_and_by_no_other(imap: Dovecot) -> None:
    imap.deliver(mail(UUID(int=1)))
    archive = Archive(config(imap))
    assert look(archive, UUID(int=1)).has_message
    assert not look(archive, UUID(int=2)).has_message


def test_what_arrives_between_two_looks_is_seen_by_the_second(imap: Dovecot) -> None:
    archive = Archive(config(imap))
    assert not look(archive, UUID(int=1)).has_message
    imap.deliver(mail(UUID(int=1)))
    assert look(archive, UUID(int=1)).has_message


@pytest.mark.parametrize(("made", "is_later"), [(-10.0, False), (119.0, False), (122.0, True)])
def test_only_a_message_made_after_the_attempt_can_have_ended_is_a_later_one(
    imap: Dovecot, made: float, is_later: bool
) -> None:
    attempted = time.time() - 3600
    stamp = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(attempted + made))
    imap.deliver(mail(UUID(int=1), stamp))
    assert look(Archive(config(imap)), UUID(int=2), attempted).has_later is is_later


def test_mail_of_others_is_no_later_message(imap: Dovecot) -> None:
    imap.deliver(b"From: x@y\r\nDate: Sat, 21 Nov 2026 07:00:00 +0000\r\n\r\nspam\r\n")
    imap.deliver(mail("x", "not a date"))
    assert not look(Archive(config(imap)), UUID(int=2)).has_later


@pytest.mark.parametrize("security", ["tls", "starttls", "none"])
def test_each_kind_of_security_reaches_the_mailbox(
    imap: Dovecot, imap_pem: tuple[Path, object], security: str
) -> None:
    port = imap.tls_port if security == "tls" else imap.port
    said = Archive(config(imap, security=security, port=port, tls=imap_pem[1])).probe()
    assert said == "The archive mailbox can be read and holds 0 messages."


@pytest.mark.long
def test_the_next_password_is_used_when_the_first_is_refused(imap: Dovecot) -> None:
    right = config(imap).passwords[0]
    archive = Archive(config(imap, passwords=("old", right)))
    assert archive.probe() == archive.probe() == "The archive mailbox can be read and holds 0 messages."
    with pytest.raises(PermanentFailure, match="refused user or password"):
        Archive(config(imap, passwords=("old", "older"))).probe()


# -- plain diagnoses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"passwords": ("wrong",)}, PermanentFailure, "refused user or password"),
        ({"mailbox": "Nowhere"}, PermanentFailure, "has no mailbox 'Nowhere'"),
        ({"host": "no-such-host.invalid"}, RetryableFailure, "host of IMAP_ARCHIVE_URL is unknown"),
        ({"port": 1}, RetryableFailure, "no connection to the archive"),
        ({"security": "tls"}, RetryableFailure, "TLS with the archive failed"),
        ({"security": "starttls"}, PermanentFailure, "certificate is not trusted"),
    ],
)
def test_each_fault_of_the_archive_has_a_plain_message(
    imap: Dovecot, changes: dict[str, object], kind: type[Failure], words: str
) -> None:
    with pytest.raises(kind) as failed:
        Archive(config(imap, **changes)).probe()
    assert words in failed.value.detail
    # Not AUTH_DENIED: a wrong password of the archive must not stop the sending of mail.
    assert failed.value.error_class in {E.CONFIG_INVALID, E.NETWORK_UNREACHABLE}


@contextmanager
def imposter(*lines: bytes, then_hang: bool = False) -> Iterator[int]:
    """Yield the port of a server that sends `lines` whatever it receives. Origin: constructed."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def serve() -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            try:
                for line in lines:
                    connection.sendall(line)
                if then_hang:
                    stopping.wait(30)
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stopping.set()
        listener.close()
        thread.join()


def _imposter_config(port: int, **changes: object) -> ArchiveConfig:
    parsed = ArchiveConfig.parse(f"imap://u:p@127.0.0.1:{port}/INBOX", ARCHIVE)
    return replace(parsed, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "lines",
    [
        [b"* BYE busy\r\n"],
        [b"\x00\xff\r\n"],
        [b"* OK hi\r\n", b"* CAPABILITY IMAP4rev1 {999999999999}\r\n"],
        [b"* OK hi\r\n", b"* X " + b"y" * 1_100_000],
        [b"* OK hi\r\n", *[b"* X " + b"y" * 65_000 + b"\r\n"] * 80],
    ],
    ids=["bye", "garbage", "huge literal", "huge line", "many lines"],
)
def test_a_broken_archive_is_a_question_that_could_not_be_asked(lines: list[bytes]) -> None:
    with imposter(*lines) as port, pytest.raises(RetryableFailure):
        Archive(_imposter_config(port)).probe()


def test_a_silent_archive_times_out() -> None:
    with imposter(b"* OK hi\r\n", then_hang=True) as port, pytest.raises(RetryableFailure) as failed:
        Archive(_imposter_config(port, read_timeout_seconds=0.2)).probe()
    assert failed.value.error_class is E.NETWORK_TIMEOUT


# -- the URL -----------------------------------------------------------------------------------


def test_the_url_says_how_to_connect() -> None:
    parsed = ArchiveConfig.parse("imaps://robot%40x.test:p%2Fw@mail.x.test/Archive/2026", ARCHIVE)
    assert (parsed.host, parsed.port, parsed.security) == ("mail.x.test", 993, "tls")
    assert (parsed.user, parsed.passwords[0], parsed.mailbox) == ("robot@x.test", "p/w", "Archive/2026")
    assert ArchiveConfig.parse("imap://u:p@mail.x.test", ARCHIVE).security == "starttls"
    assert ArchiveConfig.parse("imap://u:p@127.0.0.1:1143/", ARCHIVE).security == "none"
    assert "p%2Fw" not in repr(parsed)
    assert "p/w" not in repr(parsed)


@pytest.mark.parametrize(
    "url", ["", "https://u:p@h/", "imaps://h/INBOX", "imaps://u:p@", "imaps://u:p%0d@h/x"]
)
def test_a_url_that_cannot_work_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        ArchiveConfig.parse(url, ARCHIVE)
    assert not url or url not in str(refused.value)


# -- SMTP with the archive -----------------------------------------------------------------------


@contextmanager
def pair(
    imap: Dovecot, switches: Switches | None = None, **changes: object
) -> Iterator[tuple[Smtp, SmtpServer]]:
    """Yield a provider over a real SMTP server that delivers into the real mailbox."""
    with SmtpServer(switches, archive=ARCHIVE, deliver=imap.deliver) as server:
        archive = config(imap, **{"attempt_seconds": 0.0, "absent_after_seconds": 0.0, **changes})
        yield Smtp(SmtpConfig("127.0.0.1", server.port, SENDER, archive=archive)), server


def question(attempted_at_epoch: float = LONG_AGO) -> Question:
    return Question(message(), "", attempted_at_epoch)


def test_the_copy_travels_in_the_same_transaction_with_the_same_bytes(imap: Dovecot) -> None:
    with pair(imap) as (smtp, server):
        smtp.send(message())
        assert server.dialogues == 1
        (accepted,) = server.accepted
    assert accepted.recipient == "ann@example.com"
    assert imap.mails() == [accepted.raw.replace(b"\r\n", b"\n")]
    assert b"archive@" not in accepted.raw  # a blind copy


def test_a_message_in_the_archive_is_found_with_its_message_id(imap: Dovecot) -> None:
    with pair(imap) as (smtp, _):
        notification_id = smtp.send(message())
        answer = smtp.look_up(question())
    assert (answer.evidence, answer.notification_id) == (Evidence.FOUND, notification_id)


def test_silence_after_the_message_is_settled_by_the_archive(imap: Dovecot) -> None:
    with pair(imap, Switches(then="drop")) as (smtp, server):
        with pytest.raises(UncertainFailure) as failed:
            smtp.send(message())
        assert failed.value.error_class is E.NETWORK_TIMEOUT  # can be asked about
        assert smtp.look_up(question()).evidence is Evidence.FOUND
        assert len(server.accepted) == 1


def test_absence_needs_a_later_message_in_the_archive(imap: Dovecot) -> None:
    with pair(imap, Switches(then="drop", accept=False)) as (smtp, server):
        attempted = time.time() - 10
        with pytest.raises(UncertainFailure):
            smtp.send(message())
        server.switches = Switches()
        first = smtp.look_up(question(attempted))
        assert first.evidence is Evidence.UNKNOWN
        assert "no later message" in first.detail
        # The look itself sent a mail to the archive, and to no recipient.
        assert (server.archived, server.accepted) == (1, [])
        assert smtp.look_up(question(attempted)).evidence is Evidence.ABSENT
        assert server.archived == 1


def test_a_later_message_to_another_recipient_is_the_proof(imap: Dovecot) -> None:
    with pair(imap) as (smtp, server):
        attempted = time.time() - 10
        smtp.send(message("bob@example.com", token=2, created_at_epoch=int(time.time())))
        assert smtp.look_up(question(attempted)).evidence is Evidence.ABSENT
        assert server.archived == 1


def test_absence_is_not_proven_early(imap: Dovecot) -> None:
    with pair(imap, absent_after_seconds=870.0) as (smtp, _):
        smtp.send(message("bob@example.com", token=2, created_at_epoch=int(time.time())))
        early = smtp.look_up(question(time.time() - 600))
        assert early.evidence is Evidence.UNKNOWN
        assert "too early" in early.detail
        assert smtp.look_up(question(time.time() - 900)).evidence is Evidence.ABSENT


def test_a_refused_copy_delays_no_recipient_and_voids_the_archives_proof(
    imap: Dovecot,
) -> None:
    with pair(imap, Switches(archive="552 5.2.2 mailbox full", then="drop")) as (smtp, server):
        with pytest.raises(UncertainFailure) as failed:
            smtp.send(message())
        assert failed.value.error_class is E.DELIVERY_UNCERTAIN  # no archive can be searched
        assert len(server.accepted) == 1
        # Mended: a later message arrives. The first one is still not known to be absent.
        server.switches = Switches()
        smtp.send(message("bob@example.com", token=2, created_at_epoch=int(time.time())))
        answer = smtp.look_up(question(time.time() - 10))
    assert answer.evidence is Evidence.UNKNOWN
    assert "refused its copy" in answer.detail


def test_a_copy_is_refused_before_the_message_is_sent_and_that_is_on_disk_by_then(imap: Dovecot) -> None:
    class Lost(set[UUID]):
        def add(self, token: UUID, /) -> None:
            raise RetryableFailure(E.DATABASE_UNAVAILABLE, Component.DATABASE, "the database is away")

    with SmtpServer(Switches(archive="451 4.3.0 later"), archive=ARCHIVE) as server:
        smtp = Smtp(SmtpConfig("127.0.0.1", server.port, SENDER, archive=config(imap)), Lost())
        with pytest.raises(RetryableFailure) as failed:
            smtp.send(message())
        assert failed.value.error_class is E.DATABASE_UNAVAILABLE
        assert server.accepted == []


def test_a_recipient_who_is_refused_costs_the_archive_nothing(imap: Dovecot) -> None:
    with pair(imap, Switches(rcpt="550 5.1.1 no such user")) as (smtp, server):
        with pytest.raises(PermanentFailure):
            smtp.send(message())
        assert server.archived == 0


def test_a_probe_mail_that_cannot_be_sent_leaves_the_question_open(imap: Dovecot) -> None:
    with pair(imap, Switches(mail="451 4.3.0 later")) as (smtp, _):
        assert smtp.look_up(question()).evidence is Evidence.UNKNOWN


def test_many_looks_send_one_probe_mail(imap: Dovecot) -> None:
    future = time.time() + 3600
    with pair(imap, attempt_seconds=120.0) as (smtp, server):
        for _ in range(5):
            assert smtp.look_up(question(future)).evidence is Evidence.UNKNOWN
        assert server.archived == 1


def test_the_check_of_the_configuration_names_server_and_archive_and_delivers_nothing(imap: Dovecot) -> None:
    with pair(imap) as (smtp, server):
        said = smtp.probe()
        assert said == "The mail server answers. The archive mailbox can be read and holds 0 messages."
        server.switches = Switches(archive="550 5.1.1 no such mailbox")
        with pytest.raises(PermanentFailure) as failed:
            smtp.probe()
        assert "RCPT of IMAP_ARCHIVE_ADDRESS" in failed.value.detail
        assert (server.archived, server.accepted) == (0, [])
