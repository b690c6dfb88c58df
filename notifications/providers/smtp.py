"""Mail through an SMTP server, with the phase of the dialogue known at every failure.

SMTP has neither idempotency keys nor look-up. What it has is a precise moment at which the
server takes the message over: the end of data (RFC 5321, 4.2.5). Any failure before the
final dot is sent means "not sent"; a reply to it means what it says; silence after it means
that nobody can say (RFC 1047), and an operator decides.
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

from criticizer.failures import (
    ErrorClass,
    Failure,
    PermanentFailure,
    Place,
    RetryableFailure,
    UncertainFailure,
)
from notifications.providers import mime
from notifications.providers.base import ABOUT_RECIPIENT, Capabilities, Evidence, LookUp, Message

log = structlog.get_logger(__name__)

_ADDRESS = re.compile(r"\S+@\S+")
_NOT_PRINTABLE = re.compile(r"[^ -~]+")


@dataclass(frozen=True, slots=True)
class SmtpConfig:
    """Where and how to submit mail. `security` is `none`, `starttls` or `tls`.

    `final_timeout_seconds` is the wait for the reply to the end of data, which is long
    because giving up there costs an operator's decision. `password_next` is tried when
    `password` is refused, so that the password rotates without downtime (001, 9.3).
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

    def __repr__(self) -> str:
        return f"SmtpConfig({self.host}:{self.port}, {self.security})"


class Smtp:
    """Sends one message to one recipient in one connection."""

    name = "smtp"
    capabilities = Capabilities(deduplicates=False, can_look_up=False)

    def __init__(self, config: SmtpConfig) -> None:
        """Raises ValueError when the sender is not a mail address."""
        self._config = config
        self._passwords = [config.password, *([config.password_next] if config.password_next else [])]
        self._password_in_use = 0
        self._envelope_sender = mime.envelope_sender(config.sender)

    def send(self, message: Message) -> str:
        """Return the Message-ID.

        Raises RetryableFailure NETWORK_*, UPSTREAM_UNAVAILABLE; PermanentFailure AUTH_DENIED,
        RECIPIENT_REJECTED, PERMISSION_DENIED, POLICY_REJECTED, CONFIG_INVALID;
        UncertainFailure DELIVERY_UNCERTAIN when the server was silent after the final dot.
        """
        content = mime.as_bytes(message, self._config.sender)
        with self._connected() as client:
            with _not_sent():
                self._announce(client, message.address, content)
                client.send(_transparent(content))
            self._finish(client)
        return mime.message_id(message, self._config.sender)

    def probe(self) -> None:
        """Greet the server, log in and send NOOP: nothing is delivered. Raises what `send` raises."""
        with self._connected() as client, _not_sent():
            _expect(client.noop(), 250, "NOOP", ErrorClass.PERMISSION_DENIED)

    @contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        """Yield a connection that is logged in; the other password gets a connection of its own."""
        known = len(self._passwords)
        for turn in range(known):
            index = (self._password_in_use + turn) % known
            # The host name is given because smtplib would ask DNS for it.
            client = smtplib.SMTP(local_hostname=_own_name())
            try:
                with _not_sent():
                    self._open(client)
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

    def look_up(self, message: Message, notification_id: str) -> LookUp:
        """Answer UNKNOWN: an SMTP server cannot be asked what it accepted."""
        return LookUp(Evidence.UNKNOWN)

    def _open(self, client: smtplib.SMTP) -> None:
        config = self._config
        try:
            connection = socket.create_connection(
                (config.host, config.port), timeout=config.connect_timeout_seconds
            )
        except UnicodeError:
            raise PermanentFailure(
                ErrorClass.CONFIG_INVALID, Place.CONFIGURATION, "SMTP_HOST is not a host name"
            ) from None
        client.sock = connection
        if config.security == "tls":
            client.sock = self._wrap(connection)
        client.sock.settimeout(config.read_timeout_seconds)
        _expect(client.getreply(), 220, "greeting", ErrorClass.PERMISSION_DENIED)
        client.ehlo_or_helo_if_needed()
        if config.security == "starttls":
            if not client.has_extn("starttls"):
                raise PermanentFailure(
                    ErrorClass.CONFIG_INVALID,
                    Place.CONFIGURATION,
                    "the mail server does not offer STARTTLS; set SMTP_SECURITY to tls or none",
                )
            _expect(client.docmd("STARTTLS"), 220, "STARTTLS", ErrorClass.PERMISSION_DENIED)
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
            raise PermanentFailure(
                ErrorClass.CONFIG_INVALID,
                Place.CONFIGURATION,
                "the mail server offers no login; unset SMTP_USER or set SMTP_SECURITY",
            ) from None
        except UnicodeError:
            raise PermanentFailure(
                ErrorClass.CONFIG_INVALID,
                Place.CONFIGURATION,
                "SMTP_USER and SMTP_PASSWORD must be plain ASCII",
            ) from None
        except smtplib.SMTPResponseException as error:
            raise _refused(
                (error.smtp_code, _bytes(error.smtp_error)), "AUTH", ErrorClass.AUTH_DENIED
            ) from None

    def _announce(self, client: smtplib.SMTP, recipient: str, content: bytes) -> None:
        options = [f"size={len(content)}"] if client.has_extn("size") else []
        _expect(client.mail(self._envelope_sender, options), 250, "MAIL", ErrorClass.PERMISSION_DENIED)
        try:
            reply = client.rcpt(recipient)
        except UnicodeError:
            raise PermanentFailure(
                ErrorClass.RECIPIENT_REJECTED,
                Place.PROVIDER,
                "the address holds characters that mail servers do not take",
            ) from None
        if reply[0] != 251:  # 251: accepted, will forward
            _expect(reply, 250, "RCPT", ErrorClass.RECIPIENT_REJECTED)
        _expect(client.docmd("DATA"), 354, "DATA", ErrorClass.POLICY_REJECTED)

    def _finish(self, client: smtplib.SMTP) -> None:
        """Send the final dot and read what became of the message."""
        try:
            assert client.sock is not None
            client.sock.settimeout(self._config.final_timeout_seconds)
            client.send(b".\r\n")
            reply = client.getreply()
        except (OSError, smtplib.SMTPException) as error:
            raise UncertainFailure(
                ErrorClass.DELIVERY_UNCERTAIN,
                Place.PROVIDER,
                "the mail server took the whole message and did not say what became of it",
                context={"phase": "end of data", "cause": type(error).__name__},
            ) from error
        if not 200 <= reply[0] <= 299:
            raise _refused(reply, "end of data", ErrorClass.POLICY_REJECTED)
        with suppress(OSError, smtplib.SMTPException):
            client.sock.settimeout(1.0)
            client.quit()


@contextmanager
def _not_sent() -> Iterator[None]:
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
        raise _refused(
            (error.smtp_code, _bytes(error.smtp_error)), "dialogue", ErrorClass.POLICY_REJECTED
        ) from error
    except smtplib.SMTPException as error:
        raise _unsent(ErrorClass.UPSTREAM_UNAVAILABLE, "the mail server broke the protocol", error) from error
    except ssl.SSLCertVerificationError as error:
        raise PermanentFailure(
            ErrorClass.CONFIG_INVALID,
            Place.CONFIGURATION,
            f"the mail server's certificate is not trusted: {error.verify_message}",
        ) from error
    except ssl.SSLError as error:
        raise _unsent(ErrorClass.NETWORK_UNREACHABLE, "TLS with the mail server failed", error) from error
    except OSError as error:
        raise _unsent(ErrorClass.NETWORK_UNREACHABLE, "no connection to the mail server", error) from error


def _unsent(error_class: ErrorClass, detail: str, error: Exception) -> RetryableFailure:
    return RetryableFailure(error_class, Place.PROVIDER, detail, context={"cause": type(error).__name__})


def _expect(reply: tuple[int, bytes], code: int, phase: str, permanent: ErrorClass) -> None:
    if reply[0] != code:
        raise _refused(reply, phase, permanent)


def _refused(reply: tuple[int, bytes], phase: str, permanent: ErrorClass) -> Failure:
    """Return the failure a reply stands for. `permanent` is the class of a 5yz reply there."""
    code, text = reply
    context: dict[str, object] = {"phase": phase, "reply": code}
    if phase == "RCPT":
        context[ABOUT_RECIPIENT] = True
    if phase == "end of data" and not 400 <= code <= 599:
        return UncertainFailure(
            ErrorClass.DELIVERY_UNCERTAIN,
            Place.PROVIDER,
            "the mail server's reply to the message cannot be read",
            context=context,
        )
    detail = f"the mail server answered {code} to {phase}: {_safe(text)}"
    if not 500 <= code <= 599:
        return RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Place.PROVIDER, detail, context=context)
    if code in {530, 534, 535, 538}:
        permanent = ErrorClass.AUTH_DENIED
    return PermanentFailure(permanent, Place.PROVIDER, detail, context=context)


def _safe(text: bytes) -> str:
    """Return a server's words for operators: bounded, one line, without addresses."""
    plain = _NOT_PRINTABLE.sub(" ", text.decode("ascii", "replace"))
    return _ADDRESS.sub("[address]", plain)[:200].strip()


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
