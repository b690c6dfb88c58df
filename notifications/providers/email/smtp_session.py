"""An SMTP session whose failures know their phase.

A mail server takes a message over at the end of data (RFC 5321, 4.2.5). A failure before the final dot
means "not sent", a reply to it is the outcome, and silence after it leaves the outcome unknown (RFC 1047).
"""

from __future__ import annotations

import binascii
import re
import smtplib
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from criticizer.resilience.failures import ErrorClass, Failure, RetryableFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets
from criticizer.wording import server_words
from notifications.providers.base import ABOUT_RECIPIENT
from notifications.providers.email import bounded_socket
from notifications.providers.email.imap_archive import ArchiveConfig
from notifications.providers.failures import (
    connection_failure,
    misconfigured,
    permanent,
    retryable,
    uncertain,
)


@dataclass(frozen=True, slots=True)
class SmtpConfig:
    """A mail server and how to use it. `security` is `none`, `starttls` or `tls`.

    `total_timeout_seconds` bounds one attempt up to the end of data, `final_timeout_seconds` the wait for
    the reply to it; long, because a timeout there costs a look-up or an operator's decision.
    Of `passwords` the next one is tried when the first is refused.
    """

    host: str
    port: int
    sender: str
    security: str = "none"
    user: str = ""
    passwords: Sequence[str] = ()
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0
    total_timeout_seconds: float = 45.0
    final_timeout_seconds: float = 60.0
    tls: ssl.SSLContext | None = None  # None: the system's certificate authorities
    archive: ArchiveConfig | None = None  # receives a copy of everything sent

    def __repr__(self) -> str:
        return f"SmtpConfig({self.host}:{self.port}, {self.security})"


class Connections:
    """Opens connections that are logged in; a rotated password gets a connection of its own."""

    def __init__(self, config: SmtpConfig) -> None:
        self._config = config
        self._passwords = RotatingSecrets("smtp_password_refused", config.passwords, "")

    @contextmanager
    def open(self) -> Iterator[smtplib.SMTP]:
        ends_at = time.monotonic() + self._config.total_timeout_seconds
        client = self._passwords.call(lambda password: self._opened(password, ends_at))
        try:
            yield client
        finally:
            client.close()

    def _opened(self, password: str, ends_at: float) -> smtplib.SMTP:
        # The host name is given because smtplib would look it up in DNS.
        client = smtplib.SMTP(local_hostname=_own_name())
        try:
            with not_sent():
                self._connect(client, ends_at)
                self._log_in(client, password)
        except BaseException:
            client.close()
            raise
        return client

    def _connect(self, client: smtplib.SMTP, ends_at: float) -> None:
        config = self._config
        try:
            connection = bounded_socket.connect(config.host, config.port, config.connect_timeout_seconds)
        except UnicodeError:
            raise misconfigured("SMTP_HOST is not a host name") from None
        client.sock = connection
        # The final dot is sent by itself: it must not wait until the text before it is acknowledged.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bounded_socket.bound(connection, ends_at - time.monotonic(), config.read_timeout_seconds)
        if config.security == "tls":
            client.sock = self._wrap(connection)
        expect(client.getreply(), 220, "greeting", ErrorClass.PERMISSION_DENIED)
        client.ehlo_or_helo_if_needed()
        if config.security == "starttls":
            if not client.has_extn("starttls"):
                raise misconfigured(
                    "the mail server does not offer STARTTLS; set SMTP_SECURITY to tls or none"
                )
            expect(client.docmd("STARTTLS"), 220, "STARTTLS", ErrorClass.PERMISSION_DENIED)
            client.sock = self._wrap(client.sock)
            # Capabilities from before encryption are void (RFC 3207, 4.2).
            client.file = None
            client.helo_resp = client.ehlo_resp = None
            client.esmtp_features = {}
            client.does_esmtp = False
            client.ehlo_or_helo_if_needed()

    def _wrap(self, connection: socket.socket) -> socket.socket:
        context = bounded_socket.tls_context(connection, self._config.tls)
        return context.wrap_socket(connection, server_hostname=self._config.host)

    def _log_in(self, client: smtplib.SMTP, password: str) -> None:
        if not self._config.user:
            return
        try:
            client.login(self._config.user, password)
        except smtplib.SMTPNotSupportedError:
            raise misconfigured(
                "the mail server offers no login; unset SMTP_USER or set SMTP_SECURITY"
            ) from None
        except UnicodeError:
            raise misconfigured("SMTP_USER and SMTP_PASSWORD must be plain ASCII") from None
        except smtplib.SMTPResponseException as error:
            raise refused(
                (error.smtp_code, _bytes(error.smtp_error)), "AUTH", ErrorClass.AUTH_DENIED
            ) from None
        except binascii.Error as error:  # of what the server says before it is given the password
            raise _unsent(
                ErrorClass.UPSTREAM_UNAVAILABLE, "the mail server broke the protocol", error
            ) from error


def name_sender(client: smtplib.SMTP, sender: str, size: int) -> None:
    options = [f"size={size}"] if size and client.has_extn("size") else []
    expect(client.mail(sender, options), 250, "MAIL", ErrorClass.PERMISSION_DENIED)


def name_recipient(client: smtplib.SMTP, recipient: str) -> None:
    try:
        reply = client.rcpt(recipient)
    except UnicodeError:
        detail = "the address has characters that mail servers do not accept"
        raise permanent(ErrorClass.RECIPIENT_REJECTED, detail) from None
    if reply[0] != 251:  # 251: accepted, will forward
        expect(reply, 250, "RCPT", ErrorClass.RECIPIENT_REJECTED)


def hand_over(client: smtplib.SMTP, content: bytes) -> None:
    """Send everything but the final dot."""
    expect(client.docmd("DATA"), 354, "DATA", ErrorClass.POLICY_REJECTED)
    client.send(_transparent(content))


def finish(client: smtplib.SMTP, timeout_seconds: float, silence: ErrorClass) -> None:
    """Send the final dot and read the reply; `silence` is the failure's class without one."""
    try:
        bounded_socket.bound(client.sock, timeout_seconds, timeout_seconds)
        client.send(b".\r\n")
        reply = client.getreply()
    except (OSError, smtplib.SMTPException) as error:
        context = {"phase": "end of data", "cause": type(error).__name__}
        raise uncertain(silence, "the mail server received the message and sent no reply", context) from error
    if not 200 <= reply[0] <= 299:
        raise refused(reply, "end of data", ErrorClass.POLICY_REJECTED)
    with suppress(OSError, smtplib.SMTPException):
        bounded_socket.bound(client.sock, 1.0, 1.0)
        client.quit()


@contextmanager
def not_sent() -> Iterator[None]:
    """Turn every exception of the block into a failure of a message that was not sent."""
    try:
        yield
    except Failure:
        raise
    except smtplib.SMTPServerDisconnected as error:
        if isinstance(error.__context__, TimeoutError):
            raise _unsent(ErrorClass.NETWORK_TIMEOUT, "the mail server stopped answering", error) from error
        if isinstance(error.__context__, bounded_socket.AnswerTooLong):
            raise _unsent(
                ErrorClass.UPSTREAM_UNAVAILABLE, "the mail server's replies do not end", error
            ) from error
        raise _unsent(ErrorClass.NETWORK_UNREACHABLE, "the mail server hung up", error) from error
    except smtplib.SMTPResponseException as error:
        raise refused(
            (error.smtp_code, _bytes(error.smtp_error)), "dialogue", ErrorClass.POLICY_REJECTED
        ) from error
    except smtplib.SMTPException as error:
        raise _unsent(ErrorClass.UPSTREAM_UNAVAILABLE, "the mail server broke the protocol", error) from error
    except OSError as error:
        hint = "SMTP_SECURITY=tls is for ports that speak TLS from the start"
        raise connection_failure(error, "the mail server", "SMTP_HOST", hint) from error


def expect(reply: tuple[int, bytes], code: int, phase: str, refusal: ErrorClass) -> None:
    """Raise what a reply stands for unless it has `code`. `refusal` is the class of a 5yz reply."""
    if reply[0] != code:
        raise refused(reply, phase, refusal)


def refused(reply: tuple[int, bytes], phase: str, refusal: ErrorClass) -> Failure:
    """Return the failure a reply stands for."""
    code, text = reply
    context: dict[str, object] = {"phase": phase, "reply": code}
    if phase == "RCPT":
        context[ABOUT_RECIPIENT] = True
    if phase == "end of data" and not 400 <= code <= 599:
        detail = "the mail server's reply to the message cannot be read"
        return uncertain(ErrorClass.DELIVERY_UNCERTAIN, detail, context)
    detail = f"the mail server answered {code} to {phase}: {server_words(text.decode('ascii', 'replace'))}"
    if not 500 <= code <= 599:
        return retryable(ErrorClass.UPSTREAM_UNAVAILABLE, detail, context)
    refusal = ErrorClass.AUTH_DENIED if code in {530, 534, 535, 538} else refusal
    return permanent(refusal, detail, context)


def _unsent(error_class: ErrorClass, detail: str, error: Exception) -> RetryableFailure:
    return retryable(error_class, detail, {"cause": type(error).__name__})


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("ascii", "replace")


def _transparent(content: bytes) -> bytes:
    """Return the content as DATA wants it: leading dots doubled, ending in a line end."""
    content = content.replace(b"\r\n.", b"\r\n..")
    if content.startswith(b"."):
        content = b"." + content
    return content if content.endswith(b"\r\n") else content + b"\r\n"


def _own_name() -> str:
    name = socket.gethostname()
    return name if re.fullmatch(r"[A-Za-z0-9.-]{1,255}", name) else "localhost"
