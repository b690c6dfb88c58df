"""One message as an Internet mail, the same bytes each time it is made."""

from __future__ import annotations

from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from uuid import UUID, uuid5

from notifications.providers.base import Message

_THREADS = UUID("5b0c1a0e-6f5e-5c86-9b0a-1d1f7f2f6a11")  # namespace of thread roots


def message_id(message: Message, sender: str) -> str:
    """Return the deterministic Message-ID: look-up and mail clients can rely on it."""
    return f"<{message.token}@{_domain(sender)}>"


def as_bytes(message: Message, sender: str, *, linesep: str = "\r\n") -> bytes:
    """Return the mail with plain text and HTML; `sender` may carry a display name.

    Nothing in it depends on the clock, the host or the attempt: the Date is the message's
    own and the MIME boundary comes from the token.
    """
    mail = EmailMessage(policy=SMTP.clone(linesep=linesep))
    mail["From"] = sender
    mail["To"] = message.address
    mail["Subject"] = message.subject
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.created_at_epoch, UTC))
    mail["Message-ID"] = message_id(message, sender)
    # Every version of a changelist answers the same root, which was never sent: mail
    # clients then show them as one conversation, whichever of them a recipient has.
    root = f"<{uuid5(_THREADS, message.thread)}@{_domain(sender)}>"
    mail["In-Reply-To"] = root
    mail["References"] = root
    mail["X-Criticizer-Token"] = str(message.token)
    mail["List-Id"] = f"Criticizer reviews <reviews.{_domain(sender)}>"
    mail["Auto-Submitted"] = "auto-generated"  # keeps absence notes from answering
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(message.text, cte="quoted-printable")
    mail.add_alternative(message.html, subtype="html", cte="quoted-printable")
    mail.set_boundary(f"=_{message.token.hex}")
    return mail.as_bytes()


def envelope_sender(sender: str) -> str:
    """Return the bare address of `sender`.

    Raises ValueError when there is none.
    """
    address = parseaddr(sender)[1]
    if "@" not in address or any(character.isspace() for character in address):
        raise ValueError("the sender is not a mail address")
    return address


def _domain(sender: str) -> str:
    return envelope_sender(sender).rpartition("@")[2].lower()
