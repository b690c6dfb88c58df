"""An SMTP server on loopback (aiosmtpd) with switches for every phase of the dialogue.

Origin of the dialogue: documented (RFC 5321, RFC 3207, RFC 4954), spoken by aiosmtpd; the
refusals are constructed::

    with SmtpServer(Switches(rcpt="550 5.1.1 no such user")) as server:
        ... send to server.port ...
        assert server.accepted == []
"""

# ruff: noqa: N802  aiosmtpd finds its hooks by these names

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, Self, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session, syntax


@dataclass(frozen=True, slots=True)
class Switches:
    """Faults of the phases of a dialogue: a reply text replaces the normal one of its phase.

    After the final dot: `accept` decides whether the message counts as accepted, and `then`
    is `reply`, `hang` (silence until the client closes) or `drop` (hang up).
    """

    greeting: str = ""
    mail: str = ""
    rcpt: str = ""
    archive: str = ""  # the reply to the archive's RCPT
    data: str = ""
    final: str = ""
    accept: bool = True
    then: str = "reply"
    drop_in_data: bool = False  # hang up after 354, before the content is complete
    user: str = ""
    password: str = ""
    refuse_login: str = ""


@dataclass(slots=True)
class Accepted:
    """One message the server took over."""

    sender: str
    recipient: str
    raw: bytes
    mail: EmailMessage = field(init=False)

    def __post_init__(self) -> None:
        self.mail = email.message_from_bytes(self.raw, policy=email.policy.default)

    @property
    def token(self) -> str:
        return str(self.mail["X-Criticizer-Token"])


class _Dialogue(SMTP):
    """aiosmtpd's own dialogue, with the greeting and DATA made to fail."""

    switches: Switches

    async def _handle_client(self) -> None:
        if self.switches.greeting:
            await self.push(self.switches.greeting)
            self.transport.close()
            return
        await super()._handle_client()

    @syntax("DATA")
    async def smtp_DATA(self, arg: str) -> None:
        if self.switches.data:
            await self.push(self.switches.data)
            return
        if self.switches.drop_in_data:
            await self.push("354 go on")
            await self._reader.readline()
            self.transport.abort()
            return
        await super().smtp_DATA(arg)


class SmtpServer:
    """One server in a thread of its own. `accepted` grows as messages are taken over.

    What is taken over for the address `archive` goes to `deliver`, and counts as a recipient's
    mail only when another recipient was named as well.

    Not aiosmtpd's Controller: that one connects to itself first, which a server whose
    greeting is a refusal does not survive.
    """

    def __init__(
        self,
        switches: Switches | None = None,
        *,
        starttls: ssl.SSLContext | None = None,
        tls: ssl.SSLContext | None = None,
        archive: str = "",
        deliver: Callable[[bytes], None] = lambda raw: None,
    ) -> None:
        self.switches = switches or Switches()
        self.accepted: list[Accepted] = []
        self.archived = 0  # copies, and mails to the archive alone
        self._archive = archive
        self._deliver = deliver
        self.dialogues = 0
        self.port = 0
        self._starttls = starttls
        self._tls = tls
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(self._dialogue, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    def _dialogue(self) -> SMTP:
        dialogue = _Dialogue(
            self,
            hostname="mail.test",
            tls_context=self._starttls,
            authenticator=self._authenticate if self.switches.user else None,
            auth_require_tls=False,
            loop=self._loop,
        )
        dialogue.switches = self.switches
        self.dialogues += 1
        return dialogue

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        if self.switches.refuse_login:
            return AuthResult(success=False, handled=False, message=self.switches.refuse_login)
        expected = (self.switches.user, self.switches.password)
        given = (data.login.decode(), data.password.decode()) if isinstance(data, LoginPassword) else ("", "")
        return AuthResult(success=given == expected, handled=False)

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.switches.mail:
            return self.switches.mail
        envelope.mail_from = address
        return "250 2.1.0 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        refusal = self.switches.archive if address == self._archive else self.switches.rcpt
        if refusal:
            return refusal
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        act = self.switches
        refused = act.final[:1] in {"4", "5"}
        if act.accept and not refused:
            content = cast("bytes", envelope.content)
            if self._archive in envelope.rcpt_tos:
                self.archived += 1
                self._deliver(content)
            for recipient in envelope.rcpt_tos:
                if recipient != self._archive:
                    self.accepted.append(Accepted(envelope.mail_from or "", recipient, content))
        if act.then == "hang":
            await asyncio.sleep(60)
        if act.then == "drop":
            assert server.transport is not None
            server.transport.abort()
        return act.final or "250 2.0.0 queued as 4f3a"
