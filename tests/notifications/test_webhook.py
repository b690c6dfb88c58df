"""Webhooks: signed, deduplicable, kept out of the private network, failures classified."""

from __future__ import annotations

import datetime as dt
import socket
import threading
import time
from collections.abc import Sequence
from email.utils import format_datetime
from math import inf
from pathlib import Path

import pytest

from criticizer.resilience.failures import (
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from criticizer.security.standard_webhooks import decode_secret
from notifications.providers.base import capabilities_for
from notifications.providers.webhook import ssrf_policy
from notifications.providers.webhook.provider import Webhook, WebhookConfig
from notifications.providers.webhook.ssrf_policy import AddressRefusedError, OutboundPolicy
from tests.fakes.webhook import Behaviour, WebhookReceiver, is_signed
from tests.notifications.samples import SECRET_NEW, SECRET_OLD, message, tls_contexts

E = ErrorClass
LOOPBACK = OutboundPolicy.parse(["127.0.0.1"])
NOW = dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=dt.UTC).timestamp()


def webhook(resolve=None, **changes: object) -> Webhook:  # type: ignore[no-untyped-def]
    fields: dict[str, object] = {"secrets": (SECRET_NEW,), "policy": LOOPBACK}
    config = WebhookConfig(**{**fields, **changes})  # type: ignore[arg-type]
    keywords = {"resolve": resolve} if resolve else {}
    return Webhook(config, now=lambda: NOW, **keywords)


def test_a_receiver_with_either_secret_can_verify_the_request() -> None:
    with WebhookReceiver() as receiver:
        webhook(secrets=(SECRET_NEW, SECRET_OLD)).send(message(receiver.url))
    received = receiver.requests[0]
    assert is_signed(received, SECRET_NEW)
    assert is_signed(received, SECRET_OLD)
    assert not is_signed(received, "whsec_" + "b3RoZXI=")
    newest, _ = received.headers["webhook-signature"].split(" ")
    assert newest.startswith("v1,")


def test_the_request_carries_token_time_and_json() -> None:
    with WebhookReceiver() as receiver:
        webhook().send(message(receiver.url))
    received = receiver.requests[0]
    assert received.headers["webhook-id"] == received.headers["idempotency-key"] == str(message().token)
    assert received.headers["webhook-timestamp"] == str(int(NOW))
    assert received.headers["content-type"] == "application/json"
    assert received.body == message().payload


def test_every_attempt_has_the_same_id_and_body() -> None:
    with WebhookReceiver() as receiver:
        for _ in range(2):
            webhook().send(message(receiver.url))
    first, second = receiver.requests
    assert (first.raw, first.headers["webhook-id"]) == (second.raw, second.headers["webhook-id"])


def test_without_a_secret_the_request_is_not_signed() -> None:
    with WebhookReceiver() as receiver:
        webhook(secrets=()).send(message(receiver.url))
    assert "webhook-signature" not in receiver.requests[0].headers


@pytest.mark.parametrize("secret", ["whsec_not base64!", "whsec_\xe9\xe9\xe9\xe9", "whsec_", "", "plain"])
def test_a_malformed_secret_is_refused_without_being_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match="followed by base64") as refusal:
        decode_secret(secret)
    rest = secret.removeprefix("whsec_")
    assert not rest or rest not in str(refusal.value)


def test_the_receivers_own_id_is_kept_when_it_is_one() -> None:
    with WebhookReceiver() as receiver:
        receiver.script(
            Behaviour(status=200, headers={"X-Message-Id": "m-17"}),
            Behaviour(status=202, headers={"X-Message-Id": "two words " + "x" * 500}),
        )
        ids = [webhook().send(message(receiver.url)) for _ in range(2)]
    assert ids == ["m-17", str(message().token)]


@pytest.mark.parametrize(
    ("status", "kind", "error_class"),
    [
        (301, PermanentFailure, E.RECIPIENT_REJECTED),
        (308, PermanentFailure, E.RECIPIENT_REJECTED),
        (400, PermanentFailure, E.RECIPIENT_REJECTED),
        (401, PermanentFailure, E.AUTH_DENIED),
        (403, PermanentFailure, E.PERMISSION_DENIED),
        (404, PermanentFailure, E.NOT_FOUND),
        (409, PermanentFailure, E.RECIPIENT_REJECTED),
        (410, PermanentFailure, E.RECIPIENT_REJECTED),
        (413, PermanentFailure, E.RECIPIENT_REJECTED),
        (422, PermanentFailure, E.RECIPIENT_REJECTED),
        (408, UncertainFailure, E.NETWORK_TIMEOUT),
        (429, RetryableFailure, E.RATE_LIMITED),
        (500, UncertainFailure, E.UPSTREAM_INTERNAL),
        (502, UncertainFailure, E.UPSTREAM_UNAVAILABLE),
        (503, UncertainFailure, E.UPSTREAM_UNAVAILABLE),
        (504, UncertainFailure, E.NETWORK_TIMEOUT),
        (599, UncertainFailure, E.UPSTREAM_INTERNAL),
    ],
)
def test_each_answer_is_classified_and_the_next_one_may_succeed(
    status: int, kind: type[Failure], error_class: ErrorClass
) -> None:
    with WebhookReceiver() as receiver:
        receiver.script(Behaviour(status=status, headers={"Location": "http://127.0.0.1:1/"}))
        with pytest.raises(kind) as failed:
            webhook().send(message(receiver.url))
        assert failed.value.error_class is error_class
        assert failed.value.context["status"] == status
        webhook().send(message(receiver.url))
        assert len(receiver.requests) == 2  # a redirect was not followed


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (format_datetime(dt.datetime.fromtimestamp(NOW + 90, dt.UTC), usegmt=True), 90.0),
        (format_datetime(dt.datetime.fromtimestamp(NOW - 90, dt.UTC), usegmt=True), 0.0),
        ("soon", None),
        ("-5", None),
        ("9" * 40, None),
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(value: str, seconds: float | None) -> None:
    with WebhookReceiver() as receiver:
        receiver.script(Behaviour(status=429, headers={"Retry-After": value}))
        with pytest.raises(RetryableFailure) as failed:
            webhook().send(message(receiver.url))
    assert failed.value.retry_after_seconds == seconds


def test_503_that_names_its_end_was_refused_before_it_was_taken() -> None:
    with WebhookReceiver() as receiver:
        receiver.script(Behaviour(status=503, headers={"Retry-After": "3"}))
        with pytest.raises(RetryableFailure) as failed:
            webhook().send(message(receiver.url))
    assert (failed.value.error_class, failed.value.retry_after_seconds) == (E.UPSTREAM_UNAVAILABLE, 3.0)


@pytest.mark.parametrize(
    ("behaviour", "error_class"),
    [
        pytest.param(Behaviour(hang=True, process=True), E.NETWORK_TIMEOUT, marks=pytest.mark.long),
        pytest.param(Behaviour(drip=True, process=True), E.NETWORK_TIMEOUT, marks=pytest.mark.long),
        (Behaviour(reset=True, process=True), E.NETWORK_UNREACHABLE),
        (Behaviour(reset=True, process=False), E.NETWORK_UNREACHABLE),
    ],
)
def test_after_the_request_was_sent_every_silence_is_uncertain(
    behaviour: Behaviour, error_class: ErrorClass
) -> None:
    is_slow = behaviour.hang or behaviour.drip
    short = {"total_timeout_seconds": 1.5} if is_slow else {}
    with WebhookReceiver() as receiver:
        receiver.script(behaviour)
        with pytest.raises(UncertainFailure) as failed:
            webhook(**short).send(message(receiver.url))
        assert failed.value.error_class is error_class
        webhook().send(message(receiver.url))  # the same id again
        assert receiver.processed == {str(message().token): 1}


def test_an_answer_of_any_length_is_not_read() -> None:
    with WebhookReceiver() as receiver:
        receiver.script(Behaviour(status=200, body=b"x" * 20_000_000))
        assert webhook().send(message(receiver.url)) == str(message().token)


# -- where a webhook may go --------------------------------------------------------------------


INSIDE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "::1",
    "::",
    "fe80::1",
    "fd00::1",
    "fec0::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    "2001:db8::1",
    "fe80::1%eth0",
]


def is_allowed(policy: OutboundPolicy, host: str, address: str) -> bool:
    try:
        policy.judge(host, [address])
    except AddressRefusedError:
        return False
    return True


def test_internal_addresses_are_refused_and_public_ones_allowed() -> None:
    policy, host = OutboundPolicy(), "ci.example.com"
    assert [address for address in INSIDE if is_allowed(policy, host, address)] == []
    public = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"]
    assert [address for address in public if not is_allowed(policy, host, address)] == []


ALLOWED = [
    ("10.0.0.0/8", "ci", "10.2.3.4", True),
    ("10.0.0.0/8", "ci", "192.168.0.1", False),
    ("10.0.0.7", "ci", "10.0.0.7", True),
    ("10.0.0.7", "ci", "10.0.0.8", False),
    ("CI.internal", "ci.internal", "10.0.0.8", True),
    ("ci.internal", "evil.ci.internal", "10.0.0.8", False),
    ("fd00::/8", "ci", "fd12::1", True),
    ("[::1]", "ci", "::1", True),
]


def test_only_what_outbound_allow_names_is_allowed() -> None:
    found = [
        (allow, host, address, is_allowed(OutboundPolicy.parse([allow]), host, address))
        for allow, host, address, _ in ALLOWED
    ]
    assert found == ALLOWED


def test_one_inside_address_among_public_ones_refuses_the_host() -> None:
    with pytest.raises(AddressRefusedError):
        OutboundPolicy().judge("ci.example.com", ["8.8.8.8", "127.0.0.1"])


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        ("127.0.0.1", "OUTBOUND_ALLOW"),
        ("localhost", "OUTBOUND_ALLOW"),
        ("2130706433", "in decimals"),
        ("0x7f000001", "in decimals"),
        ("127.1", "in decimals"),
        ("0177.0.0.1", "in decimals"),
        ("017700000001", "in decimals"),
    ],
)
def test_no_spelling_of_loopback_is_reached_unless_allowed(host: str, remedy: str) -> None:
    with WebhookReceiver() as receiver:
        with pytest.raises(PermanentFailure) as refused:
            webhook(policy=OutboundPolicy()).send(message(f"http://{host}:{receiver.port}/"))
        assert receiver.requests == []
    assert refused.value.error_class is E.POLICY_REJECTED
    assert remedy in refused.value.detail


def test_the_host_is_resolved_once_and_the_judged_address_is_the_one_connected_to() -> None:
    answers: list[Sequence[str]] = [["127.0.0.1"], ["10.255.255.1"]]

    def rebinding(host: str, port: int) -> Sequence[str]:
        assert host == "ci.example.com"
        return answers.pop(0)

    with WebhookReceiver() as receiver:
        webhook(rebinding).send(message(f"http://ci.example.com:{receiver.port}/hook?a=b"))
    assert len(answers) == 1
    assert receiver.requests[0].path == "/hook?a=b"
    assert receiver.requests[0].headers["host"] == f"ci.example.com:{receiver.port}"


def test_the_next_address_is_tried_when_one_cannot_be_connected_to() -> None:
    policy = OutboundPolicy.parse(["127.0.0.0/8"])
    with WebhookReceiver() as receiver:
        # Nothing listens on .2; the receiver does on .1.
        provider = webhook(lambda host, port: ["127.0.0.2", "127.0.0.1"], policy=policy)
        provider.send(message(f"http://ci.example.com:{receiver.port}/"))
        assert len(receiver.requests) == 1


def test_no_other_address_is_tried_after_an_uncertain_attempt() -> None:
    policy = OutboundPolicy.parse(["127.0.0.0/8"])
    with WebhookReceiver() as receiver:
        receiver.script(Behaviour(reset=True))
        provider = webhook(lambda host, port: ["127.0.0.1", "127.0.0.1"], policy=policy)
        with pytest.raises(UncertainFailure):
            provider.send(message(f"http://ci.example.com:{receiver.port}/"))
        assert len(receiver.requests) == 1


def test_one_attempt_is_bounded_however_many_addresses_hang() -> None:
    with WebhookReceiver() as receiver, socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        full = [socket.create_connection(silent.getsockname()) for _ in range(1)]  # more are not accepted
        began = time.monotonic()
        provider = webhook(lambda host, port: ["127.0.0.1"] * 50, total_timeout_seconds=0.5)
        with pytest.raises((RetryableFailure, UncertainFailure)) as failed:
            provider.send(message(f"http://ci.example.com:{silent.getsockname()[1]}/"))
        assert failed.value.error_class is E.NETWORK_TIMEOUT
        assert time.monotonic() - began < 10
        assert receiver.requests == []
        for connection in full:
            connection.close()


def test_a_name_whose_server_is_silent_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(ssrf_policy, "RESOLVE_SECONDS", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **more: answer.wait(30))
    with pytest.raises(RetryableFailure) as failed:
        webhook(ssrf_policy.resolve).send(message("http://ci.example.com/"))
    answer.set()
    assert failed.value.error_class is E.NETWORK_TIMEOUT


def test_a_name_without_an_address_is_repeated_later() -> None:
    def unknown(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(RetryableFailure) as failed:
        webhook(unknown).send(message("https://ci.example.com/"))
    assert failed.value.error_class is E.NETWORK_UNREACHABLE


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with WebhookReceiver() as receiver:
        webhook().send(message(receiver.url))
        assert len(receiver.requests) == 1


# -- TLS ---------------------------------------------------------------------------------------


def test_the_certificate_is_checked_against_the_host_name_not_the_address(tmp_path: Path) -> None:
    server_tls, client_tls = tls_contexts(tmp_path, "ci.example.com")
    with WebhookReceiver(server_tls) as receiver:
        trusting = webhook(lambda host, port: ["127.0.0.1"], tls=client_tls)
        trusting.send(message(f"https://ci.example.com:{receiver.port}/hook"))
        with pytest.raises(RetryableFailure):
            trusting.send(message(f"https://other.example.com:{receiver.port}/hook"))
        assert len(receiver.requests) == 1


def test_an_untrusted_certificate_stops_before_anything_is_sent(tmp_path: Path) -> None:
    server_tls, _ = tls_contexts(tmp_path)
    with WebhookReceiver(server_tls) as receiver:
        with pytest.raises(RetryableFailure) as failed:
            webhook().send(message(receiver.url))
        assert failed.value.error_class is E.NETWORK_UNREACHABLE
        assert receiver.requests == []


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 on this machine")
def test_an_ipv6_receiver_is_reached_by_its_literal() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback on this machine")
    with listener:
        address = f"http://[::1]:{listener.getsockname()[1]}/"
        provider = webhook(policy=OutboundPolicy.parse(["::1"]), total_timeout_seconds=1.5)
        with pytest.raises(UncertainFailure):  # connected, without an answer
            provider.send(message(address))


def test_a_receiver_that_does_not_deduplicate_promises_nothing() -> None:
    provider = webhook(not_idempotent=frozenset({"old.example.com", "ci.example.com:8443"}))
    promised = [
        capabilities_for(provider, url).key_window_seconds
        for url in (
            "https://old.example.com/hook",
            "https://old.example.com:8443/hook",
            "https://ci.example.com:8443/hook",
            "https://ci.example.com/hook",
        )
    ]
    assert promised == [0, 0, 0, inf]


def test_a_message_that_may_repeat_says_so_in_its_body() -> None:
    with WebhookReceiver() as receiver:
        webhook().send(message(receiver.url, repeat_notice="This may repeat an earlier message."))
        assert receiver.requests[0].body["repeat_notice"] == "This may repeat an earlier message."


def test_the_probe_says_what_is_signed_and_posts_nothing() -> None:
    assert "signed with 1 secret" in webhook().probe()


def test_secrets_are_not_shown() -> None:
    assert SECRET_NEW not in repr(WebhookConfig(secrets=(SECRET_NEW,)))
