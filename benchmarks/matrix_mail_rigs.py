"""Rigs of mail: a maildir, an SMTP server with and without Dovecot, mail services."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from benchmarks.matrix_rig import (
    ARCHIVE,
    BROKEN,
    KEY,
    LAGS,
    LOST,
    NORMAL,
    NOT_TAKEN,
    REFUSES,
    RESET,
    SILENT,
    SLOWER,
    Hook,
    Ledger,
    Rig,
    nothing,
)
from tests.fakes import dovecot, mail_service
from tests.fakes.postmark import PostmarkService
from tests.fakes.resend import ResendService
from tests.fakes.smtp import SmtpServer, Switches


def maildir(stack: ExitStack, folder: Path, scale: float) -> Rig:
    directory = folder / "maildir"

    def tokens() -> Iterable[str]:
        return (path.name.split(".")[1] for path in directory.glob("new/*"))

    return Rig("maildir", ("maildir", str(directory)), _mailbox, tokens, {NORMAL: nothing}, nothing)


class _Smtp(SmtpServer):
    """Server that misbehaves once, then behaves as before."""

    once: Switches | None = None

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        once, self.once = self.once, None
        if once is None:
            return await super().handle_DATA(server, session, envelope)
        usual, self.switches = self.switches, once
        answering = asyncio.ensure_future(super().handle_DATA(server, session, envelope))
        await asyncio.sleep(0)  # it has read the switches by now
        self.switches = usual
        return await answering


def smtp(stack: ExitStack, folder: Path, scale: float) -> Rig:
    return _over_smtp(stack, "smtp", _Smtp(), lambda server: ("smtp", str(server.port)), {})


def archived(stack: ExitStack, folder: Path, scale: float) -> Rig:
    pem = folder / "archive.pem"
    _write_certificate(pem)
    imap = stack.enter_context(dovecot.Dovecot(pem))
    lag = [0.0]

    def deliver(raw: bytes) -> None:
        if not lag[0]:
            imap.deliver(raw)
            return
        late = threading.Timer(lag[0], imap.deliver, [raw])
        late.daemon = True
        late.start()

    def lags(server: _Smtp) -> None:
        server.once = Switches(then="hang")
        lag[0] = 400 * scale

    def calm() -> None:
        lag[0] = 0.0

    server = _Smtp(archive=ARCHIVE, deliver=deliver)
    spec = ("smtp+archive", imap.url, str(scale))
    return _over_smtp(
        stack, "smtp+archive", server, lambda s: (spec[0], str(s.port), *spec[1:]), {LAGS: lags}, calm
    )


def _over_smtp(
    stack: ExitStack,
    name: str,
    server: _Smtp,
    spec: Callable[[_Smtp], tuple[str, ...]],
    more: Mapping[str, Callable[[_Smtp], None]],
    also_calm: Callable[[], None] = lambda: None,
) -> Rig:
    hook = Hook()
    server.accepted = Ledger(hook)
    stack.enter_context(server)

    def once(switches: Switches) -> Callable[[], object]:
        return lambda: setattr(server, "once", switches)

    def calm() -> None:
        server.once, server.switches = None, Switches()
        also_calm()

    return Rig(
        name,
        spec(server),
        _mailbox,
        lambda: [mail.token for mail in list(server.accepted)],
        {
            NORMAL: nothing,
            SILENT: once(Switches(then="hang")),
            RESET: once(Switches(then="drop")),
            NOT_TAKEN: once(Switches(accept=False, then="drop")),
            REFUSES: lambda: setattr(server, "switches", Switches(rcpt="550 5.1.1 no such user")),
            SLOWER: once(Switches(final="451 4.3.0 try again later")),
            **{behaviour: _bound(act, server) for behaviour, act in more.items()},
        },
        calm,
        hook,
    )


def _bound(act: Callable[[_Smtp], None], server: _Smtp) -> Callable[[], None]:
    return lambda: act(server)


def resend(stack: ExitStack, folder: Path, scale: float) -> Rig:
    hook = Hook()
    service = ResendService()
    service.accepted = Ledger(hook)
    stack.enter_context(service)
    running = mail_service.Act(
        409, b'{"name": "concurrent_idempotent_requests", "message": "in progress"}', accept=False
    )
    behave = _hosted(service)
    behave[REFUSES] = lambda: setattr(service, "refuse", (422, {"name": "validation_error", "message": "no"}))
    behave[KEY] = lambda: service.script(mail_service.Act(accept=True, hang=True), running)

    def calm() -> None:
        service._scripted.clear()
        service.refuse = None

    return Rig("resend", ("resend", service.url), _mailbox, service.tokens, behave, calm, hook)


class _Postmark(PostmarkService):
    """Double whose index shows a mail `lag_seconds` after it was accepted.

    `lost` searches are not answered.
    """

    def __init__(self) -> None:
        self.lag_seconds, self.lost = 0.0, 0
        self.accepted_at: list[float] = []
        super().__init__()

    @property
    def hidden(self) -> int:
        shown_before = time.monotonic() - self.lag_seconds
        return sum(moment > shown_before for moment in self.accepted_at[-50:]) if self.lag_seconds else 0

    @hidden.setter
    def hidden(self, value: int) -> None:
        """The double's own switch is not used."""

    @property
    def look_up_act(self) -> mail_service.Act | None:
        if self.lost <= 0:
            return None
        self.lost -= 1
        return mail_service.Act(503)

    @look_up_act.setter
    def look_up_act(self, value: object) -> None:
        """The double's own switch is not used."""


def postmark(stack: ExitStack, folder: Path, scale: float) -> Rig:
    hook = Hook()
    service = _Postmark()

    def noted() -> None:
        service.accepted_at.append(time.monotonic())
        hook()

    noting = Hook()
    noting.then = noted
    service.accepted = Ledger(noting)
    stack.enter_context(service)
    behave = _hosted(service)
    refusal = (422, {"ErrorCode": 300, "Message": "Invalid 'To' address."})
    behave[REFUSES] = lambda: setattr(service, "refuse", refusal)

    def silence(**changes: float) -> Callable[[], None]:
        def act() -> None:
            service.script(mail_service.Act(accept=True, hang=True))
            for name, value in changes.items():
                setattr(service, name, value)

        return act

    behave[LAGS] = silence(lag_seconds=600 * scale)
    behave[LOST] = silence(lost=2)

    def calm() -> None:
        service._scripted.clear()
        service.refuse = None
        service.lag_seconds, service.lost = 0.0, 0

    return Rig("postmark", ("postmark", service.url), _mailbox, service.tokens, behave, calm, hook)


def _hosted(service: mail_service.MailService) -> dict[str, Callable[[], object]]:
    act = mail_service.Act

    def once(what: mail_service.Act) -> Callable[[], object]:
        return lambda: service.script(what)

    return {
        NORMAL: nothing,
        SILENT: once(act(accept=True, hang=True)),
        RESET: once(act(accept=True, reset=True)),
        BROKEN: once(act(500, accept=True)),
        NOT_TAKEN: once(act(500)),
        SLOWER: once(act(429, headers={"retry-after": "1"})),
    }


def _mailbox(number: int) -> str:
    return f"mail:ann{number}@example.com"


def _write_certificate(pem: Path) -> None:
    from tests.notifications.samples import tls_contexts

    tls_contexts(pem.parent)
    (pem.parent / "127.0.0.1.pem").rename(pem)
