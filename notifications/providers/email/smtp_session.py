"""The dialogue with a mail server, with its phase known at every failure.

SMTP has a precise moment at which the server takes a message over: the end of data (RFC 5321,
4.2.5). Any failure before the final dot is sent means "not sent"; a reply to it means what it
says; silence after it means that nobody can say (RFC 1047).
"""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from criticizer.wording import server_words
from notifications.providers.base import ABOUT_RECIPIENT
from notifications.providers.email.imap_archive import ArchiveConfig

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SmtpConfig:
    """Where and how to submit mail. `security` is `none`, `starttls` or `tls`.

    `final_timeout_seconds` is the wait for the reply to the end of data, which is long
    because giving up there costs a look-up or an operator's decision. `password_next` is
    tried when `password` is refused, so that the password rotates without downtime (001, 9.3).
    """

    host: str
    port: int
    sender: str
    security: str = "none"
    user: str = ""
    password: str = ""
    password_next: str = ""
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0
    final_timeout_seconds: float = 60.0
    tls: ssl.SSLContext | None = None  # None: the system's certificate authorities
    archive: ArchiveConfig | None = None  # receives a copy of everything sent

    def __repr__(self) -> str:
        return f"SmtpConfig({self.host}:{self.port}, {self.security})"


class Connections:
    """Opens connections that are logged in, and remembers which password was taken last."""

    def __init__(self, config: SmtpConfig) -> None:
        self._config = config
        self._passwords = [config.password, *([config.password_next] if config.password_next else [])]
        self._password_in_use = 0

    @contextmanager
    def open(self) -> Iterator[smtplib.SMTP]:
        """Yield a connection that is logged in; the other password gets a connection of its own."""
        known = len(self._passwords)
        for turn in range(known):
            index = (self._password_in_use + turn) % known
            # The host name is given because smtplib would ask DNS for it.
            client = smtplib.SMTP(local_hostname=_own_name())
            try:
                with not_sent():
                    self._connect(client)
                    self._log_in(client, self._passwords[index])
            except PermanentFailure as refused:
                client.close()
                if refused.error_class is not ErrorClass.AUTH_DENIED or turn + 1 == known:
                    raise
                log.warning("smtp_password_refused", position=index + 1)
                continue
            except BaseException:
                client.close()
                raise
            self._password_in_use = index
            try:
                yield client
            finally:
                client.close()
            return

    def _connect(self, client: smtplib.SMTP) -> None:
        config = self._config
        try:
            connection = socket.create_connection(
                (config.host, config.port), timeout=config.connect_timeout_seconds
            )
        except UnicodeError:
            raise _misconfigured("SMTP_HOST is not a host name") from None
        client.sock = connection
        # The final dot goes out by itself: it must not wait until the text before it is acknowledged.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if config.security == "tls":
            client.sock = self._wrap(connection)
        client.sock.settimeout(config.read_timeout_seconds)
        expect(client.getreply(), 220, "greeting", ErrorClass.PERMISSION_DENIED)
        client.ehlo_or_helo_if_needed()
        if config.security == "starttls":
            if not client.has_extn("starttls"):
                raise _misconfigured(
                    "the mail server does not offer STARTTLS; set SMTP_SECURITY to tls or none"
                )
            expect(client.docmd("STARTTLS"), 220, "STARTTLS", ErrorClass.PERMISSION_DENIED)
            client.sock = self._wrap(client.sock)
            # What was said before encryption counts for nothing (RFC 3207, 4.2).
            client.file = None
            client.helo_resp = client.ehlo_resp = None
            client.esmtp_features = {}
            client.does_esmtp = False
            client.ehlo_or_helo_if_needed()

    def _wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        context = self._config.tls or ssl.create_default_context()
        return context.wrap_socket(connection, server_hostname=self._config.host)

    def _log_in(self, client: smtplib.SMTP, password: str) -> None:
        if not self._config.user:
            return
        try:
            client.login(self._config.user, password)
        except smtplib.SMTPNotSupportedError:
            raise _misconfigured(
                "the mail server offers no login; unset SMTP_USER or set SMTP_SECURITY"
            ) from None
        except UnicodeError:
            raise _misconfigured("SMTP_USER and SMTP_PASSWORD must be plain ASCII") from None
        except smtplib.SMTPResponseException as error:
            raise refused(
                (error.smtp_code, _bytes(error.smtp_error)), "AUTH", ErrorClass.AUTH_DENIED
            ) from None


def name_sender(client: smtplib.SMTP, sender: str, size: int) -> None:
    options = [f"size={size}"] if size and client.has_extn("size") else []
    expect(client.mail(sender, options), 250, "MAIL", ErrorClass.PERMISSION_DENIED)


def name_recipient(client: smtplib.SMTP, recipient: str) -> None:
    try:
        reply = client.rcpt(recipient)
    except UnicodeError:
        raise PermanentFailure(
            ErrorClass.RECIPIENT_REJECTED,
            Component.PROVIDER,
            "the address holds characters that mail servers do not take",
        ) from None
    if reply[0] != 251:  # 251: accepted, will forward
        expect(reply, 250, "RCPT", ErrorClass.RECIPIENT_REJECTED)


def hand_over(client: smtplib.SMTP, content: bytes) -> None:
    """Send everything but the final dot: until then nothing is sent."""
    expect(client.docmd("DATA"), 354, "DATA", ErrorClass.POLICY_REJECTED)
    client.send(_transparent(content))


def finish(client: smtplib.SMTP, timeout_seconds: float, in_doubt: ErrorClass) -> None:
    """Send the final dot and read what became of the message.

    `in_doubt` is the class of the UncertainFailure when the server stays silent.
    """
    try:
        assert client.sock is not None
        client.sock.settimeout(timeout_seconds)
        client.send(b".\r\n")
        reply = client.getreply()
    except (OSError, smtplib.SMTPException) as error:
        raise UncertainFailure(
            in_doubt,
            Component.PROVIDER,
            "the mail server took the whole message and did not say what became of it",
            context={"phase": "end of data", "cause": type(error).__name__},
        ) from error
    if not 200 <= reply[0] <= 299:
        raise refused(reply, "end of data", ErrorClass.POLICY_REJECTED)
    with suppress(OSError, smtplib.SMTPException):
        client.sock.settimeout(1.0)
        client.quit()


@contextmanager
def not_sent() -> Iterator[None]:
    """Turn every failure of the block into "nothing was sent": the final dot is outside it."""
    try:
        yield
    except Failure:
        raise
    except TimeoutError as error:
        raise _unsent(ErrorClass.NETWORK_TIMEOUT, "no connection within the time limit", error) from error
    except smtplib.SMTPServerDisconnected as error:
        if isinstance(error.__context__, TimeoutError):
            raise _unsent(ErrorClass.NETWORK_TIMEOUT, "the mail server stopped answering", error) from error
        raise _unsent(ErrorClass.NETWORK_UNREACHABLE, "the mail server hung up", error) from error
    except smtplib.SMTPResponseException as error:
        raise refused(
            (error.smtp_code, _bytes(error.smtp_error)), "dialogue", ErrorClass.POLICY_REJECTED
        ) from error
    except smtplib.SMTPException as error:
        raise _unsent(ErrorClass.UPSTREAM_UNAVAILABLE, "the mail server broke the protocol", error) from error
    except ssl.SSLCertVerificationError as error:
        raise _misconfigured(
            f"the mail server's certificate is not trusted: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        detail = (
            "TLS with the mail server failed: SMTP_SECURITY=tls is for ports that speak TLS from the start"
        )
        raise _unsent(ErrorClass.NETWORK_UNREACHABLE, detail, error) from error
    except socket.gaierror as error:
        raise _unsent(ErrorClass.NETWORK_UNREACHABLE, "the host of SMTP_HOST is unknown", error) from error
    except ConnectionRefusedError as error:
        detail = "nothing listens at SMTP_HOST and SMTP_PORT"
        raise _unsent(ErrorClass.NETWORK_UNREACHABLE, detail, error) from error
    except OSError as error:
        raise _unsent(ErrorClass.NETWORK_UNREACHABLE, "no connection to the mail server", error) from error


def expect(reply: tuple[int, bytes], code: int, phase: str, permanent: ErrorClass) -> None:
    """Raise what a reply stands for unless it has `code`. `permanent` is the class of a 5yz reply."""
    if reply[0] != code:
        raise refused(reply, phase, permanent)


def refused(reply: tuple[int, bytes], phase: str, permanent: ErrorClass) -> Failure:
    """Return the failure a reply stands for."""
    code, text = reply
    context: dict[str, object] = {"phase": phase, "reply": code}
    if phase == "RCPT":
        context[ABOUT_RECIPIENT] = True
    if phase == "end of data" and not 400 <= code <= 599:
        return UncertainFailure(
            ErrorClass.DELIVERY_UNCERTAIN,
            Component.PROVIDER,
            "the mail server's reply to the message cannot be read",
            context=context,
        )
    detail = f"the mail server answered {code} to {phase}: {server_words(text.decode('ascii', 'replace'))}"
    if not 500 <= code <= 599:
        return RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.PROVIDER, detail, context=context)
    if code in {530, 534, 535, 538}:
        permanent = ErrorClass.AUTH_DENIED
    return PermanentFailure(permanent, Component.PROVIDER, detail, context=context)


def _unsent(error_class: ErrorClass, detail: str, error: Exception) -> RetryableFailure:
    return RetryableFailure(error_class, Component.PROVIDER, detail, context={"cause": type(error).__name__})


def _misconfigured(detail: str) -> PermanentFailure:
    return PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, detail)


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
