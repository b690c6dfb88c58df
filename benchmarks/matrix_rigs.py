"""Servers behind each provider in the matrix.

Servers are doubles of documented protocols (`tests.fakes`), an SMTP server and Dovecot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import matrix_mail_rigs
from benchmarks.matrix_rig import (
    ARCHIVE,
    BROKEN,
    DIGEST,
    KEY,
    LAGS,
    LIMITS,
    LINE_COMMENTS,
    LOST,
    NORMAL,
    NOT_TAKEN,
    REFUSES,
    RESET,
    REVIEWS_TOGETHER,
    SENDER,
    SILENT,
    SLOWER,
    TIMEOUT_SECONDS,
    Hook,
    Ledger,
    MakeRig,
    Rig,
    nothing,
)
from criticizer.codehosts.registry import sign_of
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
from tests.fakes import dovecot, github, hosts, slack, swarm
from tests.fakes.accounts import AccountServer
from tests.fakes.webhook import Behaviour, WebhookReceiver


def provider_of(spec: Sequence[str], unarchived: Any = None) -> Provider:
    """Return the product's provider for a rig, in whatever process."""
    name, where, *rest = spec
    if name == "maildir":
        return Maildir(Path(where), SENDER)
    if name in {"smtp", "smtp+archive"}:
        archive = None
        if rest:
            scale = float(rest[1])
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
        return Resend(HostedMailConfig(SENDER, ("re-for-tests",), where, LIMITS))
    if name == "postmark":
        return Postmark(HostedMailConfig(SENDER, ("pm-for-tests",), where, LIMITS))
    if name == "slack":
        return Slack(SlackConfig((slack.TOKEN,), api_url=where, limits=LIMITS))
    if host := host_of(name):
        return hosts.provider_on(name, hosts.host_at(host, where, key=rest[0], limits=LIMITS))
    return Swarm(SwarmConfig(where, swarm.USER, (swarm.TICKET,), LIMITS))


def _webhook(stack: ExitStack, folder: Path, scale: float) -> Rig:
    return _hooked(stack, "webhook")


def _webhook_once(stack: ExitStack, folder: Path, scale: float) -> Rig:
    return _hooked(stack, "webhook, not idempotent")


class _Seen(Counter[str]):
    """Ledger of a receiver.

    With `repeats`, of a receiver that takes an id as often as it comes.
    """

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
        NORMAL: nothing,
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
    """Yield the token of each review as often as its comments were made.

    Never where a comment is missing.
    """
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


def _on_host(channel: str) -> MakeRig:
    """Return the maker of a code host's rig.

    Each number has a repository, and its owner limits of its own.
    """
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
            return f"{channel.removesuffix(hosts.CHECK)}:owner{number}/web{sign_of(name)}1"

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
        NORMAL: nothing,
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
        NORMAL: nothing,
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


def _digest(make: MakeRig) -> MakeRig:
    def made(stack: ExitStack, folder: Path, scale: float) -> Rig:
        rig = make(stack, folder, scale)
        return replace(rig, name=f"{rig.name}{DIGEST}", together=REVIEWS_TOGETHER)

    return made


CHECK_CHANNELS = tuple(f"{name}{hosts.CHECK}" for name in hosts.SERVERS)
RIGS: Mapping[str, MakeRig] = {
    "maildir": matrix_mail_rigs.maildir,
    "smtp": matrix_mail_rigs.smtp,
    "smtp+archive": matrix_mail_rigs.archived,
    "resend": matrix_mail_rigs.resend,
    "postmark": matrix_mail_rigs.postmark,
    "webhook": _webhook,
    "webhook, not idempotent": _webhook_once,
    "slack": _slack,
    "swarm": _swarm,
    **{channel: _on_host(channel) for channel in (*HOST_CHANNELS, *CHECK_CHANNELS)},
}
# Mail alone has digests.
DIGEST_RIGS: Mapping[str, MakeRig] = {
    f"{name}{DIGEST}": _digest(RIGS[name])
    for name in ("maildir", "smtp", "smtp+archive", "resend", "postmark")
}


def why_missing(name: str) -> str:
    """Return why a rig cannot be had on this machine, or nothing."""
    return dovecot.why_missing() if name.startswith("smtp+archive") else ""
