"""What stands behind each provider in the matrix: a real server, how it misbehaves, its ledger.

A behaviour is set for the next message alone, except a permanent refusal; `calm` ends them all.
Servers are doubles of documented protocols (`tests.fakes`), an SMTP server and Dovecot.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from criticizer.http_client import Limits
from notifications.providers.base import Provider
from notifications.providers.email import smtp
from notifications.providers.email.imap_archive import ArchiveConfig
from notifications.providers.email.maildir import Maildir
from notifications.providers.email.postmark import Postmark, PostmarkConfig
from notifications.providers.email.resend import Resend, ResendConfig
from notifications.providers.email.smtp import Smtp, SmtpConfig
from notifications.providers.slack.provider import Slack, SlackConfig
from notifications.providers.swarm.provider import Swarm, SwarmConfig
from notifications.providers.webhook.provider import Webhook, WebhookConfig
from notifications.providers.webhook.ssrf_policy import OutboundPolicy
from notifications.recipients import HOST_CHANNELS, host_of
from tests.fakes import dovecot, github, hosts, mail_service, slack, swarm
from tests.fakes.accounts import AccountServer
from tests.fakes.postmark import PostmarkService
from tests.fakes.resend import ResendService
from tests.fakes.smtp import SmtpServer, Switches
from tests.fakes.webhook import Behaviour, WebhookReceiver

SENDER = "Criticizer <criticizer@reviews.test>"
ARCHIVE = "archive@reviews.test"
TIMEOUT_SECONDS = 0.5  # until a provider that is silent counts as silent
DIGEST = ", digest"  # in a rig's name
REVIEWS_TOGETHER = 3
LINE_COMMENTS = 2  # of a review, where its provider makes them before its own comment
NORMAL = "normal"
SILENT = "accepts, then silence"
RESET = "accepts, then resets"
BROKEN = "5xx after accepting"
NOT_TAKEN = "5xx, not accepted"
REFUSES = "refuses"
SLOWER = "429 or 4yz"
LAGS = "silence, index lags"
LOST = "silence, look-up lost"
KEY = "silence, answers the key again"
BEHAVIOURS = (NORMAL, SILENT, RESET, BROKEN, NOT_TAKEN, REFUSES, SLOWER, LAGS, LOST, KEY)

LIMITS = Limits(2.0, TIMEOUT_SECONDS, 5.0)


class Hook:
    """Is called with every message that a server takes over, before the server answers."""

    def __init__(self) -> None:
        self.then: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self.then is not None:
            self.then()


class Ledger(list[Any]):
    """A server's list of what it took over."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook = hook

    def append(self, entry: Any) -> None:
        super().append(entry)
        self._hook()


@dataclass
class Rig:
    """`behave` has what the server can do; `lag_seconds` is kept by those whose index lags.

    `together`: so many reviews, of a job each, are told in one message.
    """

    name: str
    spec: tuple[str, ...]  # what `provider_of` makes the provider of
    recipient: Callable[[int], str]
    tokens: Callable[[], Iterable[str]]  # one for each time that a recipient sees a message
    behave: Mapping[str, Callable[[], object]]
    calm: Callable[[], None]
    hook: Hook = field(default_factory=Hook)
    together: int = 1

    def arrived(self) -> Counter[str]:
        return Counter(self.tokens())


def provider_of(spec: Sequence[str], unarchived: Any = None) -> Provider:
    """Return the product's provider for a rig, in whatever process."""
    name, where, *rest = spec
    if name == "maildir":
        return Maildir(Path(where), SENDER)
    if name in {"smtp", "smtp+archive"}:
        archive = None
        if rest:
            scale = float(rest[1])
            smtp._PROBES_APART_SECONDS = 60.0 * scale
            archive = replace(
                ArchiveConfig.parse(rest[0], ARCHIVE),
                attempt_seconds=120 * scale,
                absent_after_seconds=870 * scale,
                total_timeout_seconds=5.0,
            )
        config = SmtpConfig(
            "127.0.0.1",
            int(where),
            SENDER,
            read_timeout_seconds=2.0,
            final_timeout_seconds=TIMEOUT_SECONDS,
            archive=archive,
        )
        return Smtp(config, unarchived)
    if name in {"webhook", "webhook, not idempotent"}:
        repeats = frozenset({"127.0.0.1"}) if name != "webhook" else frozenset[str]()
        return Webhook(
            WebhookConfig(
                policy=OutboundPolicy.parse(["127.0.0.1"]),
                not_idempotent=repeats,
                total_timeout_seconds=TIMEOUT_SECONDS,
            )
        )
    if name == "resend":
        return Resend(ResendConfig(SENDER, ("re-for-tests",), where, LIMITS))
    if name == "postmark":
        return Postmark(PostmarkConfig(SENDER, ("pm-for-tests",), where, LIMITS))
    if name == "slack":
        return Slack(SlackConfig((slack.TOKEN,), api_url=where, limits=LIMITS))
    if host := host_of(name):
        return hosts.provider_on(name, hosts.host_at(host, where, key=rest[0], limits=LIMITS))
    return Swarm(SwarmConfig(where, swarm.USER, (swarm.TICKET,), LIMITS))


def _mailbox(number: int) -> str:
    return f"mail:ann{number}@example.com"


# -- one function a provider -------------------------------------------------------------------


def _maildir(stack: ExitStack, folder: Path, scale: float) -> Rig:
    directory = folder / "maildir"

    def tokens() -> Iterable[str]:
        return (path.name.split(".")[1] for path in directory.glob("new/*"))

    return Rig("maildir", ("maildir", str(directory)), _mailbox, tokens, {NORMAL: _nothing}, _nothing)


class _Smtp(SmtpServer):
    """Misbehaves once, then as it did before."""

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


def _smtp(stack: ExitStack, folder: Path, scale: float) -> Rig:
    return _over_smtp(stack, "smtp", _Smtp(), lambda server: ("smtp", str(server.port)), {})


def _archived(stack: ExitStack, folder: Path, scale: float) -> Rig:
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
            NORMAL: _nothing,
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


def _webhook(stack: ExitStack, folder: Path, scale: float) -> Rig:
    return _hooked(stack, "webhook")


def _webhook_once(stack: ExitStack, folder: Path, scale: float) -> Rig:
    return _hooked(stack, "webhook, not idempotent")


class _Seen(Counter[str]):
    """The receiver's ledger; with `repeats`, of a receiver that takes an id as often as it comes."""

    def __init__(self, hook: Hook, *, repeats: bool) -> None:
        super().__init__()
        self._hook, self._repeats, self.times = hook, repeats, list[str]()

    def __missing__(self, key: str) -> int:
        return 0

    def __getitem__(self, key: str) -> int:
        return 0 if self._repeats else super().__getitem__(key)

    def __setitem__(self, key: str, value: int) -> None:
        super().__setitem__(key, value)
        self.times.append(key)
        self._hook()


def _hooked(stack: ExitStack, name: str) -> Rig:
    hook = Hook()
    seen = _Seen(hook, repeats=name != "webhook")
    receiver = WebhookReceiver()
    receiver.processed = seen
    stack.enter_context(receiver)

    def once(behaviour: Behaviour) -> Callable[[], object]:
        return lambda: receiver.script(behaviour)

    def calm() -> None:
        receiver._scripted.clear()
        receiver.always(Behaviour())

    behave: dict[str, Callable[[], object]] = {
        NORMAL: _nothing,
        SILENT: once(Behaviour(process=True, hang=True)),
        RESET: once(Behaviour(process=True, reset=True)),
        BROKEN: once(Behaviour(status=500, process=True)),
        NOT_TAKEN: once(Behaviour(status=500, process=False)),
        REFUSES: lambda: receiver.always(Behaviour(status=410)),
        SLOWER: once(Behaviour(status=429, headers={"Retry-After": "1"})),
    }
    if name == "webhook":
        behave[KEY] = lambda: receiver.script(Behaviour(process=True, hang=True), Behaviour(status=200))
    return Rig(
        name,
        (name, ""),
        lambda number: f"webhook:{receiver.url}/{number}",
        lambda: list(seen.times),
        behave,
        calm,
        hook,
    )


def _resend(stack: ExitStack, folder: Path, scale: float) -> Rig:
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
    """Its index shows a mail `lag_seconds` after it was accepted; `lost` searches are not answered."""

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


def _postmark(stack: ExitStack, folder: Path, scale: float) -> Rig:
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
        NORMAL: _nothing,
        SILENT: once(act(accept=True, hang=True)),
        RESET: once(act(accept=True, reset=True)),
        BROKEN: once(act(500, accept=True)),
        NOT_TAKEN: once(act(500)),
        SLOWER: once(act(429, headers={"retry-after": "1"})),
    }


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


def _slack(stack: ExitStack, folder: Path, scale: float) -> Rig:
    hook = Hook()
    server = slack.SlackServer()
    server.messages = Ledger(hook)
    server.channels = server.members = _Everything()  # type: ignore[assignment]
    stack.enter_context(server)
    return Rig(
        "slack",
        ("slack", server.url),
        lambda number: f"slack:C{number:09d}",
        lambda: server.posted.elements(),
        _documented(server, slack.Act, "post", {"error": "is_archived"}, 25 * scale),
        lambda: _calm(server, slack.Act()),
        hook,
    )


def _swarm(stack: ExitStack, folder: Path, scale: float) -> Rig:
    hook = Hook()
    server = swarm.SwarmServer()
    server.comments = Ledger(hook)
    stack.enter_context(server)
    return Rig(
        "swarm",
        ("swarm", server.url),
        lambda number: f"swarm:review-{number + 1}",
        lambda: _with_lines(server),
        _documented(server, swarm.Act, "keep", {"status": 404}, 0.0),
        lambda: _calm(server, swarm.Act()),
        hook,
    )


def _with_lines(server: swarm.SwarmServer) -> Iterable[str]:
    """Yield the token of each review as often as its comments were made; never where one is missing."""
    lines = server.lines
    for token, times in server.kept.items():
        found = lines.get(token, Counter())
        if len(found) == LINE_COMMENTS:
            yield from [token] * max(times, *found.values())


class _Kept(dict[int, Any]):
    """A server's table of what it took over, by number."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook = hook

    def __setitem__(self, number: int, comment: Any) -> None:
        super().__setitem__(number, comment)
        self._hook()


def _on_host(channel: str) -> _Make:
    """Return the rig of a code host: each number has a repository, and its owner limits of its own."""
    name = host_of(channel.removesuffix(hosts.CHECK))

    def make(stack: ExitStack, folder: Path, scale: float) -> Rig:
        hook = Hook()
        server = stack.enter_context(hosts.SERVERS[name]())
        if isinstance(server, AccountServer):
            server.statuses = Ledger(hook)

        def recipient(number: int) -> str:
            pull = github.Pull(hunks={"app.py": ((12, 14, 12, 14),)})
            kept = {"comments": _Kept(hook), "reviews": Ledger(hook), "checks": _Kept(hook)}
            server.repos.setdefault(f"owner{number}/web", github.Repo(number + 1, {1: pull}, **kept))
            return f"{channel.removesuffix(hosts.CHECK)}:owner{number}/web#1"

        def arrived() -> Iterable[str]:
            if channel.endswith(hosts.CHECK):
                return hosts.concluded_at(server)
            return (one for repo in list(server.repos.values()) for one in hosts.arrived_at(channel, repo))

        behave, calm = _of_host(server, name)
        spec = (channel, server.url, github.private_key())
        return Rig(channel, spec, recipient, arrived, behave, calm, hook)

    return make


def _of_host(
    server: github.GitHubServer, name: str
) -> tuple[dict[str, Callable[[], object]], Callable[[], None]]:
    """Return what a host can do, and what ends it."""
    writes = ("POST /repos/", "PATCH /repos/") if name == "github" else ("POST ",)

    def once(**what: Any) -> Callable[[], None]:
        def behave() -> None:
            for on in writes:
                server.script(github.Act(**what), on=on)

        return behave

    def archive(*, archived: bool) -> None:
        for repo in list(server.repos.values()):
            repo.is_archived = archived

    def calm() -> None:
        server._acts.clear()
        archive(archived=False)

    return {
        NORMAL: _nothing,
        SILENT: once(then="hang"),
        RESET: once(then="reset"),
        BROKEN: once(status=500),
        NOT_TAKEN: once(status=500, keep=False),
        REFUSES: lambda: archive(archived=True),
        SLOWER: once(status=429, keep=False, headers={"Retry-After": "1"}),
    }, calm


def _documented(
    server: Any, act: Any, takes: str, refusal: Mapping[str, object], lag_seconds: float
) -> dict[str, Callable[[], object]]:
    def once(**what: object) -> Callable[[], object]:
        return lambda: server.script(act(**what))

    def silence(**changes: float) -> Callable[[], None]:
        def behave() -> None:
            server.script(act(then="hang"))
            for name, value in changes.items():
                setattr(server, name, value)

        return behave

    behave: dict[str, Callable[[], object]] = {
        NORMAL: _nothing,
        SILENT: once(then="hang"),
        RESET: once(then="reset"),
        BROKEN: once(status=500),
        NOT_TAKEN: once(status=500, **{takes: False}),
        REFUSES: lambda: setattr(server, "default", act(**{takes: False}, **refusal)),
        SLOWER: once(status=429, retry_after="1", **{takes: False}),
        LOST: silence(lost=2),
    }
    if lag_seconds:
        behave[LAGS] = silence(lag_seconds=lag_seconds)
    return behave


def _calm(server: Any, default: object) -> None:
    server._scripted.clear()
    server.default, server.lost, server.lag_seconds = default, 0, 0.0


def _bound(act: Callable[[_Smtp], None], server: _Smtp) -> Callable[[], None]:
    return lambda: act(server)


def _nothing() -> None:
    """Behave."""


def _write_certificate(pem: Path) -> None:
    from tests.notifications.samples import tls_contexts

    tls_contexts(pem.parent)
    (pem.parent / "127.0.0.1.pem").rename(pem)


_Make = Callable[[ExitStack, Path, float], Rig]


def _digest(make: _Make) -> _Make:
    def made(stack: ExitStack, folder: Path, scale: float) -> Rig:
        rig = make(stack, folder, scale)
        return replace(rig, name=f"{rig.name}{DIGEST}", together=REVIEWS_TOGETHER)

    return made


CHECK_CHANNELS = tuple(f"{name}{hosts.CHECK}" for name in hosts.SERVERS)
RIGS: Mapping[str, _Make] = {
    "maildir": _maildir,
    "smtp": _smtp,
    "smtp+archive": _archived,
    "resend": _resend,
    "postmark": _postmark,
    "webhook": _webhook,
    "webhook, not idempotent": _webhook_once,
    "slack": _slack,
    "swarm": _swarm,
    **{channel: _on_host(channel) for channel in (*HOST_CHANNELS, *CHECK_CHANNELS)},
}
# Mail alone has digests.
DIGEST_RIGS: Mapping[str, _Make] = {
    f"{name}{DIGEST}": _digest(RIGS[name])
    for name in ("maildir", "smtp", "smtp+archive", "resend", "postmark")
}


def why_missing(name: str) -> str:
    """Return why a rig cannot be had on this machine, or nothing."""
    return dovecot.why_missing() if name.startswith("smtp+archive") else ""
