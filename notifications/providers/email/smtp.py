"""Mail through an SMTP server, with look-ups in an archive mailbox.

SMTP has neither idempotency keys nor look-ups. Instead a copy goes to an archive in the same transaction:
one reply of the server covers both, so the copy proves the message. Without an archive, the outcome of a
message without a reply stays unknown, and an operator decides.
"""

from __future__ import annotations

import smtplib
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Protocol
from uuid import UUID

import structlog

from criticizer.resilience.failures import ErrorClass, Failure
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.email import mime
from notifications.providers.email.imap_archive import TOKEN_HEADER, Archive
from notifications.providers.email.smtp_session import (
    Connections,
    SmtpConfig,
    expect,
    finish,
    hand_over,
    name_recipient,
    name_sender,
    not_sent,
    refused,
)

__all__ = ["Smtp", "SmtpConfig", "Unarchived"]

log = structlog.get_logger(__name__)

_BLIND = Capabilities(absence="nothing: an SMTP server cannot be asked")
_ARCHIVED = Capabilities(
    look_up=frozenset({LookUpBy.KEY}),
    settle_seconds=180,
    look_spacing_seconds=720,
    looks_elsewhere=True,
    retention_seconds=7 * 86_400,  # docs/mail.md asks for it
    absence="15 minutes later the archive holds a newer message of Criticizer and not this one",
)


class Unarchived(Protocol):
    """The messages whose copy the archive refused; survives the loss of a worker.

    `add` must be on disk when it returns, and raises RetryableFailure otherwise.
    """

    def add(self, token: UUID, /) -> None: ...

    def __contains__(self, token: object, /) -> bool: ...


class Smtp:
    """Sends one message to one recipient in one connection."""

    variants = {"smtp": _BLIND, "smtp+archive": _ARCHIVED}

    def __init__(
        self,
        config: SmtpConfig,
        unarchived: Unarchived | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError when the sender or the archive's address is not a mail address."""
        self._config = config
        self._connections = Connections(config)
        self._envelope_sender = mime.envelope_sender(config.sender)
        self._archive = Archive(config.archive) if config.archive else None
        self._archive_address = mime.envelope_sender(config.archive.address) if config.archive else ""
        self._unarchived: Unarchived = set() if unarchived is None else unarchived
        self._now = now
        self._probed_at = float("-inf")
        self._probing = threading.Lock()
        # Another name: an archive proves nothing about mails that were sent before it was configured.
        self.name = "smtp+archive" if config.archive else "smtp"
        self.capabilities = _ARCHIVED if config.archive else _BLIND

    def send(self, message: Message) -> str:
        """Return the Message-ID.

        Raises RetryableFailure NETWORK_*, UPSTREAM_UNAVAILABLE; PermanentFailure AUTH_DENIED,
        RECIPIENT_REJECTED, PERMISSION_DENIED, POLICY_REJECTED, CONFIG_INVALID; when the server was
        silent after the final dot UncertainFailure: NETWORK_TIMEOUT where the archive can be asked,
        else DELIVERY_UNCERTAIN.
        """
        content = mime.as_bytes(message, self._config.sender)
        with self._connections.open() as client:
            with not_sent():
                name_sender(client, self._envelope_sender, len(content))
                name_recipient(client, message.address)
                is_archived = self._copies(client, message.token)
                hand_over(client, content)
            silence = ErrorClass.NETWORK_TIMEOUT if is_archived else ErrorClass.DELIVERY_UNCERTAIN
            finish(client, self._config.final_timeout_seconds, silence)
        return mime.message_id(message, self._config.sender)

    def _copies(self, client: smtplib.SMTP, token: UUID) -> bool:
        """Name the archive as a second recipient; return whether it takes this message."""
        if not self._archive_address:
            return False
        reply = client.rcpt(self._archive_address)
        if reply[0] in {250, 251}:
            return True
        # The recipient need not wait until the archive is repaired. But now the archive's silence proves
        # nothing about this message, and that is stored before it is sent.
        log.error("archive_copy_refused", token=str(token), reply=reply[0])
        self._unarchived.add(token)
        return False

    def look_up(self, question: Question) -> LookUp:
        """Search the archive. Where it has no later message of ours, send one to it alone."""
        if self._archive is None or self._config.archive is None:
            return LookUp(Evidence.UNKNOWN, detail="no archive mailbox is configured")
        message = question.message
        seen = self._archive.look(
            message.token,
            since_epoch=message.created_at_epoch,
            attempted_at_epoch=question.attempted_at_epoch,
        )
        if seen.has_message:
            return LookUp(Evidence.FOUND, mime.message_id(message, self._config.sender), "in the archive")
        if message.token in self._unarchived:
            return LookUp(Evidence.UNKNOWN, detail="the archive refused its copy of the message")
        if not seen.has_later:
            self._send_probe()
            return LookUp(Evidence.UNKNOWN, detail="no later message of Criticizer is in the archive yet")
        if self._now() - question.attempted_at_epoch < self._config.archive.absent_after_seconds:
            return LookUp(Evidence.UNKNOWN, detail="not in the archive, and too early to say")
        return LookUp(Evidence.ABSENT, detail="the archive holds a later message and not this one")

    def _send_probe(self) -> None:
        """Send a small mail to the archive itself, so that the next look finds a later message."""
        assert self._config.archive is not None
        with self._probing:
            if self._now() - self._probed_at < self._config.archive.attempt_seconds / 2:
                return
            self._probed_at = self._now()
        content = _probe_mail(self._config.sender, self._archive_address, self._probed_at)
        try:
            with self._connections.open() as client:
                with not_sent():
                    name_sender(client, self._envelope_sender, len(content))
                    name_recipient(client, self._archive_address)
                    hand_over(client, content)
                finish(client, self._config.final_timeout_seconds, ErrorClass.NETWORK_TIMEOUT)
        except Failure as failure:
            # The look-up is unanswered either way; the next one sends another.
            log.warning("archive_probe_not_sent", **failure.facts)

    def probe(self) -> str:
        """Log in, ask whether the server accepts mail for the archive, and open the archive.

        Nothing is delivered. Raises what `send` and `Archive.look` raise.
        """
        login = " and accepts the login" if self._config.user else ""
        with self._connections.open() as client, not_sent():
            expect(client.noop(), 250, "NOOP", ErrorClass.PERMISSION_DENIED)
            if self._archive is None:
                return f"The mail server answers{login}."
            name_sender(client, self._envelope_sender, 0)
            reply = client.rcpt(self._archive_address)
            if reply[0] not in {250, 251}:
                raise refused(reply, "RCPT of IMAP_ARCHIVE_ADDRESS", ErrorClass.CONFIG_INVALID)
            client.rset()
        return f"The mail server answers{login}. {self._archive.probe()}"


def _probe_mail(sender: str, address: str, now: float) -> bytes:
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = address
    mail["Subject"] = "Criticizer checks that mail reaches this archive"
    mail["Date"] = format_datetime(datetime.fromtimestamp(now, UTC))
    mail[TOKEN_HEADER] = "probe"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("Criticizer looked for a message that may have been lost. Nothing needs to be done.\n")
    return mail.as_bytes()
