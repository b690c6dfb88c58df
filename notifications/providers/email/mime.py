"""A message as Internet mail: the same bytes each time."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime, parseaddr
from uuid import UUID, uuid5

from notifications.providers.base import Message

_THREADS = UUID("5b0c1a0e-6f5e-5c86-9b0a-1d1f7f2f6a11")  # namespace of thread roots
# Where the HTML takes a notice that was unknown when it was frozen.
NOTICE_MARK = "<!-- repeat notice -->"
_NOTICE = (
    '<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0" class="note"'
    ' bgcolor="#fcf2d9" style="margin:0 0 14px;border-left:4px solid #7d5200"><tr>'
    '<td class="text" style="padding:10px 14px;color:#1a1f26">{}</td></tr></table>'
)


class _Policy(EmailPolicy):
    """Keeps long addresses whole: the library would encode them, which RFC 8058 forbids."""

    def fold_binary(self, name: str, value: str) -> bytes:
        if name == "List-Unsubscribe":
            return f"{name}: {value}{self.linesep}".encode("ascii")
        return super().fold_binary(name, value)


def message_id(message: Message, sender: str) -> str:
    """Return the Message-ID, which depends on the token and the sender's domain alone."""
    return _id_of(message.token, sender)


def as_bytes(message: Message, sender: str, *, linesep: str = "\r\n") -> bytes:
    """Return the mail with plain text and HTML; `sender` may carry a display name.

    Nothing depends on clock, host or attempt: the Date is the message's own, the boundary its token.
    """
    mail = EmailMessage(policy=_Policy(linesep=linesep))
    for name, value in headers(message, sender).items():
        mail[name] = value
    mail.set_content(text_of(message), cte="quoted-printable")
    mail.add_alternative(html_of(message), subtype="html", cte="quoted-printable")
    mail.set_boundary(f"=_{message.token.hex}")
    return mail.as_bytes()


def headers(message: Message, sender: str) -> dict[str, str]:
    """Return the mail's own headers in their order, those of MIME excepted."""
    domain = _domain(sender)
    # Every version of a changelist answers the same root, which is never sent: mail clients then show
    # them as one conversation, whichever versions a recipient has.
    thread = [f"<{uuid5(_THREADS, message.thread)}@{domain}>"]
    if message.answers is not None:
        thread.append(_id_of(message.answers, sender))
    found = {
        "From": sender,
        "To": message.address,
        "Subject": message.subject,
        "Date": format_datetime(datetime.fromtimestamp(message.created_at_epoch, UTC)),
        "Message-ID": message_id(message, sender),
        "In-Reply-To": thread[-1],
        "References": " ".join(thread),
        "X-Criticizer-Token": str(message.token),
        "List-Id": f"Criticizer reviews <reviews.{domain}>",
        "Auto-Submitted": "auto-generated",  # keeps absence notes from answering
        "X-Auto-Response-Suppress": "All",
    }
    if message.unsubscribe_url:
        found["List-Unsubscribe"] = f"<{message.unsubscribe_url}>"
        # One click needs https (RFC 8058, 3.1); otherwise the link leads to a confirmation page.
        if message.unsubscribe_url.startswith("https://"):
            found["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    if message.repeat_notice:
        found["X-Criticizer-Attempt"] = "2"
    return found


def text_of(message: Message) -> str:
    """Return the plain text, with the notice of a possible repetition first."""
    return f"{message.repeat_notice}\n\n{message.text}" if message.repeat_notice else message.text


def html_of(message: Message) -> str:
    """Return the HTML, with the notice of a possible repetition first."""
    if not message.repeat_notice:
        return message.html
    notice = _NOTICE.format(html.escape(message.repeat_notice))
    if NOTICE_MARK in message.html:
        return message.html.replace(NOTICE_MARK, notice, 1)
    # Messages frozen before the mark existed: after the opening body tag.
    start = message.html.find(">", max(message.html.find("<body"), 0)) + 1
    return message.html[:start] + notice + message.html[start:]


def envelope_sender(sender: str) -> str:
    """Return the bare address of `sender`.

    Raises ValueError when there is none.
    """
    address = parseaddr(sender)[1]
    if "@" not in address or any(character.isspace() for character in address):
        raise ValueError("the sender is not a mail address")
    return address


def _id_of(token: UUID, sender: str) -> str:
    return f"<{token}@{_domain(sender)}>"


def _domain(sender: str) -> str:
    return envelope_sender(sender).rpartition("@")[2].lower()
