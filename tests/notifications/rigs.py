"""One rig per provider, for the conformance suite.

A rig is a provider with what stands behind it: a file system, a real server, or the double of a
hosted service over a real socket. A new provider adds a function and a line in `RIGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from notifications.providers.base import Provider
from notifications.providers.email.esp_base import HostedMailConfig
from notifications.providers.email.imap_archive import ArchiveConfig
from notifications.providers.email.maildir import Maildir
from notifications.providers.email.postmark import Postmark
from notifications.providers.email.resend import Resend
from notifications.providers.email.smtp import Smtp, SmtpConfig
from notifications.providers.slack.provider import Slack, SlackConfig
from notifications.providers.swarm.provider import Swarm, SwarmConfig
from notifications.providers.webhook.provider import Webhook, WebhookConfig
from notifications.providers.webhook.ssrf_policy import OutboundPolicy
from notifications.recipients import HOST_CHANNELS, host_of
from tests.fakes import github, hosts, mail_service, slack, swarm
from tests.fakes.closed import closed_port
from tests.fakes.dovecot import Dovecot
from tests.fakes.postmark import PostmarkService
from tests.fakes.resend import ResendService
from tests.fakes.smtp import SmtpServer, Switches
from tests.fakes.webhook import Behaviour, WebhookReceiver
from tests.notifications.samples import SECRET_NEW, SENDER

LOOPBACK = OutboundPolicy.parse(["127.0.0.0/8"])
ARCHIVE = "archive@reviews.test"


def _nothing() -> None:
    """Do nothing, for a rig without such a switch."""


@dataclass(slots=True)
class Rig:
    """A provider with the switches that break it, and the messages that arrived behind it."""

    provider: Provider
    address: str
    arrived: Callable[[], list[str]]  # tokens, once for each time a recipient would see it
    refuse: Callable[[], None]  # every message, from now on and for good
    # The next answer is lost after the message was accepted, or before. None: it cannot be.
    lose_answer: Callable[[], None] | None = None
    lose_message: Callable[[], None] | None = None
    prove_alive: Callable[[], None] = _nothing  # lets another message through what is searched
    far_away: Provider | None = None  # the same where nothing listens
    far_address: str = ""  # where the recipient, not the provider, is what does not listen


Make = Callable[[ExitStack, Path, pytest.FixtureRequest], Rig]


def _maildir(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
    mail = folder / "mail"
    return Rig(
        Maildir(mail, SENDER),
        "ann@example.com",
        lambda: [path.name.split(".")[1] for path in sorted(mail.glob("new/*"))],
        lambda: mail.write_text("a file where the maildir should be") and None,
    )


def _smtp(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
    server = stack.enter_context(SmtpServer())
    return _of_smtp(stack, Smtp(SmtpConfig("127.0.0.1", server.port, SENDER)), server)


def _archived(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
    imap: Dovecot = request.getfixturevalue("imap")
    server = stack.enter_context(SmtpServer(archive=ARCHIVE, deliver=imap.deliver))
    # Its waits count from the attempts' times: those of the suite are long past.
    archive = ArchiveConfig.parse(imap.url, ARCHIVE)
    rig = _of_smtp(stack, Smtp(SmtpConfig("127.0.0.1", server.port, SENDER, archive=archive)), server)
    later = b"X-Criticizer-Token: probe\r\nDate: Sat, 21 Nov 2026 07:00:00 +0000\r\n\r\nx\r\n"
    rig.prove_alive = lambda: imap.deliver(later)
    closed = stack.enter_context(closed_port())
    nowhere = replace(archive, port=closed)
    rig.far_away = Smtp(SmtpConfig("127.0.0.1", closed, SENDER, archive=nowhere))
    return rig


def _of_smtp(stack: ExitStack, provider: Smtp, server: SmtpServer) -> Rig:
    def switch(switches: Switches) -> Callable[[], None]:
        def act() -> None:
            server.switches = switches

        return act

    def arrived() -> list[str]:
        server.switches = Switches() if server.switches.then == "drop" else server.switches
        return [mail.token for mail in server.accepted]

    return Rig(
        provider,
        "ann@example.com",
        arrived,
        switch(Switches(rcpt="550 5.1.1 no such user")),
        switch(Switches(then="drop")),
        switch(Switches(then="drop", accept=False)),
        far_away=Smtp(SmtpConfig("127.0.0.1", stack.enter_context(closed_port()), SENDER)),
    )


def _webhook(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
    receiver = stack.enter_context(WebhookReceiver())
    provider = Webhook(WebhookConfig(secrets=(SECRET_NEW,), policy=LOOPBACK))
    return Rig(
        provider,
        receiver.url,
        lambda: sorted(receiver.processed.elements()),
        lambda: receiver.always(Behaviour(status=410)),
        lambda: receiver.script(Behaviour(process=True, reset=True)),
        lambda: receiver.script(Behaviour(status=500, process=False)),
        far_away=provider,
        far_address=_nowhere(stack),
    )


def _resend(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
    service = stack.enter_context(ResendService())

    def refuse() -> None:
        service.refuse = (422, {"name": "validation_error", "message": "no"})

    return Rig(
        Resend(HostedMailConfig(SENDER, service.keys, service.url)),
        "ann@example.com",
        service.tokens,
        refuse,
        lambda: service.script(mail_service.Act(accept=True, reset=True)),
        lambda: service.script(mail_service.Act(status=500)),
        far_away=Resend(HostedMailConfig(SENDER, service.keys, _nowhere(stack))),
    )


def _postmark(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
    service = stack.enter_context(PostmarkService())

    def refuse() -> None:
        service.refuse = (422, {"ErrorCode": 300, "Message": "no"})

    return Rig(
        Postmark(HostedMailConfig(SENDER, service.keys, service.url)),
        "ann@example.com",
        service.tokens,
        refuse,
        lambda: service.script(mail_service.Act(accept=True, reset=True)),
        lambda: service.script(mail_service.Act(status=500)),
        far_away=Postmark(HostedMailConfig(SENDER, service.keys, _nowhere(stack))),
    )


def _slack(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
    server = stack.enter_context(slack.SlackServer())

    def refuse() -> None:
        server.default = slack.Act(post=False, error="is_archived")

    return Rig(
        Slack(SlackConfig((slack.TOKEN,), api_url=server.url)),
        slack.CHANNEL,
        lambda: sorted(server.posted.elements()),
        refuse,
        lambda: server.script(slack.Act(then="reset")),
        lambda: server.script(slack.Act(post=False, then="reset")),
        far_away=Slack(SlackConfig((slack.TOKEN,), api_url=_nowhere(stack))),
    )


def _swarm(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
    server = stack.enter_context(swarm.SwarmServer())

    def refuse() -> None:
        server.default = swarm.Act(keep=False, status=404)

    return Rig(
        Swarm(SwarmConfig(server.url, swarm.USER, (swarm.TICKET,))),
        "review-885",
        lambda: sorted(server.kept.elements()),
        refuse,
        lambda: server.script(swarm.Act(then="reset")),
        lambda: server.script(swarm.Act(keep=False, then="reset")),
        far_away=Swarm(SwarmConfig(_nowhere(stack).rstrip("/"), swarm.USER, (swarm.TICKET,))),
    )


def _nowhere(stack: ExitStack) -> str:
    return f"http://127.0.0.1:{stack.enter_context(closed_port())}/"


def _on_host(channel: str) -> Make:
    name = host_of(channel)

    def make(stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> Rig:
        server = stack.enter_context(hosts.SERVERS[name]())
        repo = server.add("acme/web")
        calls = hosts.CALLS[name]
        post = calls.post if channel == name else calls.review

        def made(url: str) -> Provider:
            return hosts.provider_on(channel, hosts.host_at(name, url, server=server))

        def refuse() -> None:
            repo.pulls[7].is_locked = True

        return Rig(
            made(server.url),
            "acme/web#7",
            lambda: hosts.arrived_at(channel, repo),
            refuse,
            lambda: server.script(github.Act(then="reset"), on=post),
            lambda: server.script(github.Act(keep=False, status=502), on=post),
            far_away=made(_nowhere(stack)),
        )

    return make


RIGS: Mapping[str, Make] = {
    "maildir": _maildir,
    "smtp": _smtp,
    "smtp with an archive": _archived,
    "webhook": _webhook,
    "resend": _resend,
    "postmark": _postmark,
    "slack": _slack,
    "swarm": _swarm,
    **{channel: _on_host(channel) for channel in HOST_CHANNELS},
}
