"""The archive mailbox: a copy of every mail, searched over IMAP to prove what was accepted.

The copy is part of the message's own SMTP transaction, so one reply of the mail server covers both. A
copy proves acceptance. Its absence proves the opposite only while mail is known to arrive: a message
that was sent later must be there already.
"""

from __future__ import annotations

import imaplib
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.parser import BytesHeaderParser
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit
from uuid import UUID

from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets
from notifications.providers.email import bounded_socket
from notifications.providers.failures import connection_failure, misconfigured, retryable

TOKEN_HEADER = "X-Criticizer-Token"  # noqa: S105  a header's name

_MAX_ANSWER_BYTES = 4_194_304  # of one look-up as a whole
_NEWEST = 500  # newest messages among which a later one of ours is searched
_HEADERS_READ = 50
_CLOCKS_DIFFER = timedelta(days=2)  # time zones and clocks of mail servers
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_TEMPORARY = re.compile(rb"\[(?:UNAVAILABLE|INUSE|LIMIT|SERVERBUG)\]|temporar", re.IGNORECASE)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """The mailbox, and the address that delivers into it. `security` as in `SmtpConfig`.

    `attempt_seconds`: how long one send may take; a message made longer than that after the start of an
    attempt was sent after it. A copy that is missing after `absent_after_seconds`, while later ones are
    there, will not come.
    """

    host: str
    port: int
    mailbox: str
    address: str
    user: str
    passwords: Sequence[str] = field(repr=False)  # the next one is tried when the first is refused
    security: str = "tls"
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 20.0
    total_timeout_seconds: float = 45.0
    attempt_seconds: float = 120.0
    absent_after_seconds: float = 870.0
    tls: ssl.SSLContext | None = None  # None: the system's certificate authorities

    @classmethod
    def parse(cls, url: str, address: str) -> ArchiveConfig:
        """Read imap[s]://user[:password]@host[:port]/Mailbox, its parts percent-encoded.

        imaps is TLS from the start; imap is STARTTLS, or plain text to this very machine.
        Raises ValueError, which repeats nothing of the URL.
        """
        parts = urlsplit(url)
        port = parts.port  # raises ValueError itself
        user, password, mailbox = (
            unquote(text) for text in (parts.username or "", parts.password or "", parts.path[1:] or "INBOX")
        )
        if parts.scheme not in {"imap", "imaps"} or not parts.hostname:
            raise ValueError("is not imap:// or imaps:// with a host")
        if not user:
            raise ValueError("names no user")
        if not (user + password + mailbox).isascii() or not (user + password + mailbox).isprintable():
            raise ValueError("holds characters beyond printable ASCII in user, password or mailbox")
        security = "tls" if parts.scheme == "imaps" else "starttls"
        if security == "starttls" and parts.hostname in _LOOPBACK:
            security = "none"
        return cls(
            host=parts.hostname,
            port=port or (993 if security == "tls" else 143),
            mailbox=mailbox,
            address=address,
            user=user,
            passwords=(password,) if password else (),
            security=security,
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of one look-up in the mailbox."""

    has_message: bool
    has_later: bool  # another message of ours that was made after the attempt


class Archive:
    """Searches one mailbox. Every look-up opens a connection, so it sees the newest mail."""

    def __init__(self, config: ArchiveConfig) -> None:
        self._config = config
        self._passwords = RotatingSecrets("archive_password_refused", config.passwords, "")

    def look(self, token: UUID, *, since_epoch: float, attempted_at_epoch: float) -> Seen:
        """Search the mailbox for a token; where it is not, for any later message of ours.

        `since_epoch`: when the message was made; nothing older is searched. Raises RetryableFailure when
        the mailbox could not be searched, PermanentFailure CONFIG_INVALID when the login, the mailbox or
        the certificate is wrong.
        """
        earliest = datetime.fromtimestamp(min(since_epoch, attempted_at_epoch), UTC) - _CLOCKS_DIFFER
        with self._opened() as (client, count):
            if _search(client, "SINCE", _day(earliest), "HEADER", TOKEN_HEADER, f'"{token}"'):
                return Seen(has_message=True, has_later=False)
            newest = f"{max(1, count - _NEWEST + 1)}:*"
            ours = _search(client, newest, "HEADER", TOKEN_HEADER, '""') if count else []
            later = attempted_at_epoch + self._config.attempt_seconds
            return Seen(
                has_message=False,
                has_later=any(made > later for made in _dates(client, ours[-_HEADERS_READ:])),
            )

    def probe(self) -> str:
        """Log in and open the mailbox. Raises what `look` raises."""
        with self._opened() as (_, count):
            return f"The archive mailbox can be read and holds {count} messages."

    @contextmanager
    def _opened(self) -> Iterator[tuple[imaplib.IMAP4, int]]:
        """Yield a connection with the mailbox open for reading, and how many messages it holds."""
        config = self._config
        with _asked(), self._logged_in() as client:
            answer, data = client.select(_quoted(config.mailbox), readonly=True)
            if answer != "OK":
                raise misconfigured(
                    f"the archive has no mailbox {config.mailbox!r} for this user; make it or name another"
                )
            yield client, int(data[0] or 0)
            with suppress(OSError, imaplib.IMAP4.error):
                client.logout()

    def _logged_in(self) -> imaplib.IMAP4:
        try:
            return self._passwords.call(self._connected)
        except PermanentFailure as failure:
            if failure.error_class is not ErrorClass.AUTH_DENIED:
                raise
            raise misconfigured("the archive refused user or password of IMAP_ARCHIVE_URL") from None

    def _connected(self, password: str) -> imaplib.IMAP4:
        """Return a connection that is logged in.

        Raises PermanentFailure AUTH_DENIED when the login is refused.
        """
        config = self._config
        with ExitStack() as unless_done:
            client = unless_done.enter_context(_Connection(config))
            if config.security == "starttls":
                if "STARTTLS" not in client.capabilities:
                    raise misconfigured("the archive offers no STARTTLS; use imaps:// in IMAP_ARCHIVE_URL")
                client.starttls(bounded_socket.tls_context(client.sock, config.tls))
            if "LOGINDISABLED" in client.capabilities:
                raise misconfigured(
                    "the archive takes no login without TLS; use imaps:// in IMAP_ARCHIVE_URL"
                )
            try:
                client.login(_quoted(config.user), password)
            except imaplib.IMAP4.abort:
                raise
            except imaplib.IMAP4.error as refusal:
                words = refusal.args[0] if refusal.args else b""
                if _TEMPORARY.search(words if isinstance(words, bytes) else str(words).encode()):
                    raise _unavailable("the archive cannot check logins now", refusal) from None
                raise PermanentFailure(
                    ErrorClass.AUTH_DENIED, Component.PROVIDER, "the archive refused the login"
                ) from None
            unless_done.pop_all()
            return client


class _Connection(imaplib.IMAP4):
    """imaplib's client with bounds on time and on the size of answers."""

    def __init__(self, config: ArchiveConfig) -> None:
        self._bounds = config
        self._bytes_left = _MAX_ANSWER_BYTES
        super().__init__(config.host, config.port)

    def _create_socket(self, timeout: float | None) -> socket.socket:
        config = self._bounds
        connection = bounded_socket.connect(config.host, config.port, config.connect_timeout_seconds)
        try:
            bounded_socket.bound(connection, config.total_timeout_seconds, config.read_timeout_seconds)
            if config.security == "tls":
                context = bounded_socket.tls_context(connection, config.tls)
                return context.wrap_socket(connection, server_hostname=config.host)
        except BaseException:
            connection.close()
            raise
        return connection

    def read(self, size: int) -> bytes:
        self._spend(size)
        return super().read(size)

    def readline(self) -> bytes:
        self._spend(0)
        line = super().readline()
        self._spend(len(line))
        return line

    def _spend(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise self.abort("the answer is too large")

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError, imaplib.IMAP4.error):
            self.shutdown()


@contextmanager
def _asked() -> Iterator[None]:
    """Turn every exception of the block into a failure of a question."""
    try:
        yield
    except Failure:
        raise
    except OSError as error:
        hint = "does its port speak TLS from the start?"
        raise connection_failure(error, "the archive", "IMAP_ARCHIVE_URL", hint) from error
    except (imaplib.IMAP4.error, ValueError) as error:
        raise _unavailable("the archive closed the connection or broke the protocol", error) from error


def _search(client: imaplib.IMAP4, *criteria: str) -> list[int]:
    answer, data = client.uid("SEARCH", *criteria)
    if answer != "OK":
        raise client.error("the search was refused")
    return sorted(int(uid) for line in data if line for uid in line.split())


def _dates(client: imaplib.IMAP4, uids: list[int]) -> Iterator[float]:
    """Yield the readable dates of messages, in seconds since the epoch."""
    if not uids:
        return
    answer, data = client.uid("FETCH", ",".join(map(str, uids)), "(BODY.PEEK[HEADER.FIELDS (DATE)])")
    if answer != "OK":
        raise client.error("the headers were refused")
    for item in data:
        if isinstance(item, tuple):
            with suppress(ValueError, TypeError, OverflowError):
                yield parsedate_to_datetime(BytesHeaderParser().parsebytes(item[1])["Date"]).timestamp()


def _day(moment: datetime) -> str:
    # Not strftime: the month's name is English whatever the locale (RFC 3501, date).
    return f"{moment.day:02d}-{_MONTHS[moment.month - 1]}-{moment.year}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unavailable(detail: str, error: Exception) -> RetryableFailure:
    return retryable(ErrorClass.UPSTREAM_UNAVAILABLE, detail, {"cause": type(error).__name__})
