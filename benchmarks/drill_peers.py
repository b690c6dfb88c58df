"""Peers of the drill: model server, webhook receivers, SMTP server, maildir, code hosts.

Real servers on loopback, in threads of this process, that misbehave for as long as a fault lasts and keep a
ledger of everything they took over. Faults are constructed; the wire forms are those of `tests.fakes`.
"""

from __future__ import annotations

import contextlib
import email
import email.policy
import secrets
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import drill_host
from benchmarks.drill_host import CodeHosts
from benchmarks.drill_ledger import Effect, Receipts
from benchmarks.drill_schedule import Fault
from tests.fakes.llm import FakeLlm, Recorded, Reply, error
from tests.fakes.smtp import SmtpServer, Switches
from tests.fakes.webhook import Behaviour, Received, WebhookReceiver, is_signed
from tests.hosts.kinds import KINDS

MODEL_SECONDS = 0.25  # an answer takes so long, so that kills find calls in flight
WEBHOOK_SECONDS = 0.04


class Mischief:
    """Active faults of one peer. They spoil a `share` of the requests, evenly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: dict[int, tuple[Fault, float]] = {}
        self._asked = 0

    def begin(self, fault: Fault) -> None:
        with self._lock:
            self._active[fault.number] = (fault, time.monotonic() + fault.seconds)

    def cease(self) -> None:
        with self._lock:
            self._active.clear()

    def spoils(self) -> str:
        """Return the kind of the newest fault that spoils this request, or nothing."""
        now = time.monotonic()
        with self._lock:
            self._active = {number: (f, until) for number, (f, until) in self._active.items() if until > now}
            if not self._active:
                return ""
            fault, _ = self._active[max(self._active)]
            self._asked += 1
            whole = int(self._asked * fault.share) > int((self._asked - 1) * fault.share)
            return fault.kind if whole else ""


def _model_reply(kind: str) -> Reply:
    if kind == "model_429":
        return error(429, "Rate limit reached.", "rate_limit_exceeded", Retry_After="3")
    return {
        "model_hang": Reply(hang=True),
        "model_5xx": error(503, "The server is overloaded."),
        "model_truncated": Reply(truncate=True, delay=MODEL_SECONDS),
        "model_invalid": Reply(answer="Sure! Here are my findings: {"),
        "": Reply(delay=MODEL_SECONDS),
    }[kind]


def _webhook_behaviour(kind: str) -> Behaviour:
    return {
        "webhook_5xx": Behaviour(status=503),
        "webhook_429": Behaviour(status=429, headers={"Retry-After": "3"}),
        "webhook_hang": Behaviour(hang=True, process=False),
        "webhook_drip": Behaviour(drip=True, process=True),
        "webhook_drop": Behaviour(reset=True, process=True),
        "": Behaviour(delay=WEBHOOK_SECONDS),
    }[kind]


def _stuck(request: Received) -> Behaviour:
    return _webhook_behaviour("webhook_hang" if request.path.startswith("/hang") else "webhook_drip")


@dataclass(slots=True)
class Peers:
    """Running peers. Made by `running`.

    `tarpit` hangs or drips, by path, until the faults are over.
    """

    model: FakeLlm
    receivers: tuple[WebhookReceiver, ...]
    tarpit: WebhookReceiver
    mail: SmtpServer
    maildir: Path
    hosts: CodeHosts
    secret: str
    wrong: dict[str, Mischief]  # by the first word of a fault's kind

    def begin(self, fault: Fault) -> None:
        """Misbehave for `fault.seconds` from now on."""
        peer = fault.kind.partition("_")[0]
        if peer == "webhook":
            peer = f"webhook{fault.number % len(self.receivers)}"  # the other one goes on
        if peer == "host":
            self.hosts.begin(fault)
            return
        self.wrong[peer].begin(fault)
        if peer == "smtp":
            self._spoil_mail(fault)

    def _spoil_mail(self, fault: Fault) -> None:
        # An SMTP server has phases, not requests: it is as it is until the fault is over.
        variants = {
            "smtp_4xx": (Switches(rcpt="451 4.3.0 try again later"), Switches(final="451 4.3.0 try later")),
            "smtp_drop": (Switches(then="drop"), Switches(then="drop", accept=False)),
        }[fault.kind]
        self.mail.switches = variants[fault.number % len(variants)]
        threading.Timer(fault.seconds, self._heal_mail, (self.mail.switches,)).start()

    def _heal_mail(self, switches: Switches) -> None:
        if self.mail.switches is switches:
            self.mail.switches = Switches()

    def cease(self) -> None:
        """Behave from now on."""
        for mischief in self.wrong.values():
            mischief.cease()
        self.tarpit.respond = None
        self.hosts.cease()
        self.mail.switches = Switches()

    def receipts(self) -> Receipts:
        """Return what every receiver took over, as it counts it itself."""
        effects, unsigned = [], 0
        for receiver in (*self.receivers, self.tarpit):
            bodies: dict[str, dict[bytes, str]] = {}
            for request in receiver.requests:
                unsigned += not is_signed(request, self.secret)
                bodies.setdefault(request.headers.get("webhook-id", ""), {})[request.raw] = request.path
            # A receiver that honours the key does nothing for a request that it has seen. The same
            # key with another body is another message, and counts as one.
            effects += [
                Effect(token, f"webhook:http://127.0.0.1:{receiver.port}{path}")
                for token in receiver.processed
                for path in bodies[token].values()
            ]
        effects += [Effect(taken.token, f"mail:{taken.recipient}") for taken in self.mail.accepted]
        for folder in ("new", "cur"):
            for path in sorted((self.maildir / folder).glob("*")):
                mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
                effects.append(Effect(str(mail["X-Criticizer-Token"]), f"mail:{mail['To']}"))
        effects += self.hosts.effects()
        requests = sum(len(receiver.requests) for receiver in (*self.receivers, self.tarpit))
        return Receipts(tuple(effects), unsigned, requests)


@contextlib.contextmanager
def running(files: Path, code_hosts: Sequence[str] = tuple(KINDS)) -> Iterator[Peers]:
    """Start the peers; stop them afterwards. `files`: the drill's directory."""
    wrong = {name: Mischief() for name in ("model", "webhook0", "webhook1", "smtp")}

    def answer(request: Recorded) -> Reply:
        return _model_reply(wrong["model"].spoils())

    def receiver(name: str) -> WebhookReceiver:
        return WebhookReceiver(respond=lambda _: _webhook_behaviour(wrong[name].spoils()))

    secret = "whsec_" + b64encode(secrets.token_bytes(24)).decode()
    with (
        FakeLlm(respond=answer) as model,
        receiver("webhook0") as first,
        receiver("webhook1") as second,
        WebhookReceiver(respond=_stuck) as tarpit,
        SmtpServer() as mail,
        drill_host.running(files / "hosts", code_hosts) as hosts,
    ):
        yield Peers(model, (first, second), tarpit, mail, files / "mail", hosts, secret, wrong)
