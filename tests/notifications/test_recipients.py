"""Recipients are keys: one spelling each, and refusals with a remedy."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from criticizer.codehosts.client import TokenConfig
from criticizer.codehosts.github.tokens import AppConfig
from criticizer.http_client import Answer, Request
from criticizer.resilience.failures import PermanentFailure
from notifications.config import build, dependency_of
from notifications.providers.registry import ProvidersConfig
from notifications.providers.slack.provider import SlackConfig
from notifications.providers.swarm.provider import SwarmConfig
from notifications.providers.webhook.provider import Webhook, WebhookConfig
from notifications.providers.webhook.ssrf_policy import OutboundPolicy
from notifications.recipients import CHANNELS, MAX_LENGTH, normalise, require_few_hosts, split
from tests.notifications.samples import message

SPELLINGS = [
    ("ann@example.com", "mail:ann@example.com"),
    ("mail:ann@example.com", "mail:ann@example.com"),
    ("  Mail:Ann@EXAMPLE.com ", "mail:Ann@example.com"),  # only the domain is case-insensitive
    ("mail:ann@example.com.", "mail:ann@example.com"),
    ("mail:ann@münchen.example", "mail:ann@xn--mnchen-3ya.example"),
    ("mail:ann+reviews@example.com", "mail:ann+reviews@example.com"),
    ("mail:ann@localhost", "mail:ann@localhost"),
    ("webhook:https://CI.Example.com", "webhook:https://ci.example.com/"),
    ("webhook:HTTPS://ci.example.com:443/a?b=c", "webhook:https://ci.example.com/a?b=c"),
    ("webhook:http://ci.example.com:80/", "webhook:http://ci.example.com/"),
    ("webhook:http://ci.example.com:8080/A%20b", "webhook:http://ci.example.com:8080/A%20b"),
    ("webhook:http://[2001:DB8:0::1]:81/x", "webhook:http://[2001:db8::1]:81/x"),
    ("slack:C0123ABCD", "slack:C0123ABCD"),
    (" Slack:C0123ABCD", "slack:C0123ABCD"),
    ("slack:G0123ABCD", "slack:G0123ABCD"),
    ("swarm:review-123", "swarm:review-123"),
    ("SWARM:Reviews/00123", "swarm:review-123"),
    ("swarm:change-7", "swarm:change-7"),
    ("swarm:changes/7", "swarm:change-7"),
    ("GitHub:Acme/Web.Site#012", "github:acme/web.site#12"),
    ("GitHub-Review:Acme/Web#12", "github-review:acme/web#12"),
    ("GitLab-Review:Acme/Lib/Web#12", "gitlab-review:acme/lib/web!12"),
    ("GitLab:Acme/Lib/Web!012", "gitlab:acme/lib/web!12"),
]


def test_spellings_of_one_recipient_have_one_normal_form() -> None:
    assert [(given, normalise(given)) for given, _ in SPELLINGS] == SPELLINGS
    assert [normalise(normal) for _, normal in SPELLINGS] == [normal for _, normal in SPELLINGS]


INVALID = [
    ("", "empty"),
    ("Ann <ann@example.com>", "display name"),
    ('"ann"@example.com', "display name"),
    ("mail:ann", "lacks its domain"),
    ("mail:ann@", "host name"),
    ("mail:@example.com", "not valid"),
    ("mail:ann@[127.0.0.1]", "brackets"),
    ("mail:ann@example", "not valid"),
    ("mail:ann@example.com,bob@example.com", "bare address"),
    ("ann@example.com\nBcc: mallory@example.com", "control characters"),
    ("mail:ann@exam\x00ple.com", "control characters"),
    ("mail:" + "a" * 65 + "@example.com", "64"),
    ("mail:a@" + "b" * 300 + ".com", "host name"),
    ("mail:ann@example.com" + "m" * MAX_LENGTH, "longer than"),
    (
        "teams:C0123ABCD",
        "swarm, github, github-review, gitea, gitea-review, gitlab, gitlab-review",
    ),
    ("slack:#general", "not its name"),
    ("slack:general", "not its name"),
    ("slack:", "not its name"),
    ("slack:C123", "slack:C0123ABCD"),
    ("slack:U0123ABCD", "not a person"),
    ("slack:C0123ABCD/1", "not its name"),
    ("slack:c0123abcd", "not its name"),
    ("slack:\N{ROMAN NUMERAL ONE HUNDRED}0123ABCD", "not its name"),
    ("swarm:123", "swarm:review-123"),
    ("swarm:review-0", "swarm:review-123"),
    ("swarm:review-", "swarm:review-123"),
    ("swarm:review-1٢", "swarm:review-123"),  # an Arabic digit
    ("swarm:job-1", "swarm:review-123"),
    ("github:acme", "github:owner/repository#12"),
    ("gitea:acme/a/b#1", "gitea:owner/repository#12"),
    ("gitlab:acme/../b!1", "gitlab:owner/repository!12"),
    ("github:acme/..#1", "github:owner/repository#12"),
    ("github:acme/web#0", "github:owner/repository#12"),
    ("github:acme/web!1", "github:owner/repository#12"),
    ("github:acme/web/x#1", "github:owner/repository#12"),
    ("github:acme/web#1?x=2", "github:owner/repository#12"),
    ("https://ci.example.com/hook", "webhook:https://ci.example.com/hook"),
    ("webhook:ftp://ci.example.com/", "https://"),
    ("webhook:https:///path", "name a host"),
    ("webhook:https://ann:pw@ci.example.com/", "user name"),
    ("webhook:https://ci.example.com/#x", "fragment"),
    ("webhook:https://ci.example.com\\@evil.example/", "user name"),
    ("webhook:https://ci.example.com/a b", "spaces"),
    ("webhook:https://ci.example.com:99999/", "malformed"),
    ("webhook:https://ci.example.com:0/", "port 0"),
    ("webhook:http://[fe80::1%25eth0]/", "interface"),
    ("webhook:https://exa_mple..com/", "host name"),
    # Other ways to write 127.0.0.1, and what only looks like an address.
    *(
        (f"webhook:http://{host}/", "four decimal numbers")
        for host in (
            "0177.0.0.1",
            "0x7f.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "127.0.0.01",
            "1.2.3.4.5",
            "256.1.1.1",
            "a.0x",
            "example.1",
            "127.0.0.0x1",
            "017700000001.",
        )
    ),
    ("webhook:http://[::ffff:1.2.3.400]/", "webhook URL"),
    ("webhook:http://[127.0.0.1]/", "webhook URL"),
    ("webhook:http://[v1.a]/", "IPv6"),
    ("webhook:http://%31%32%37.0.0.1/", "host name"),
    ("webhook:http://127。0。0。1/", "ASCII"),
    ("webhook:http://ci.example.com:+80/", "malformed"),
    ("webhook:http://ci.example.com:8a/", "malformed"),
    ("webhook:http://@ci.example.com/", "user name"),
    ("webhook:http://ci.example.com/#", "fragment"),
]


def test_an_invalid_recipient_is_refused_with_a_remedy() -> None:
    failures = []
    for text, remedy in INVALID:
        try:
            failures.append((text, normalise(text)))
        except ValueError as error:
            if remedy not in str(error):
                failures.append((text, str(error)))
    assert failures == []


@given(st.text(max_size=80))
def test_normalising_is_idempotent_or_refuses(text: str) -> None:
    try:
        normal = normalise(text)
    except ValueError:
        return
    assert normalise(normal) == normal
    assert split(normal)[0] in CHANNELS


_HOSTS = st.one_of(
    st.text(min_size=1, max_size=20),
    st.lists(st.text("0123456789abcdefxX_-", min_size=1, max_size=11), min_size=1, max_size=5).map(".".join),
    st.ip_addresses().map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}%eth0]"),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.sampled_from(["xn--", "xn--zz--.com", "a" * 63 + ".com", "localhost.", "[::1", "::1", "ann@host"]),
)
_URLS = st.one_of(
    st.text(max_size=80),
    st.text(st.characters(codec="ascii"), max_size=80),
    st.tuples(
        st.sampled_from(["http://", "https://", "HTTP://", "http:/", "http:\\\\"]),
        _HOSTS,
        st.sampled_from(["", ":", ":80", ":0080", ":65535", ":65536", ":-1", ":8a", ":²"]),
        st.one_of(
            st.just(""), st.text(max_size=20).map(lambda path: f"/{path}"), st.just("//a/../[;?%zz{|}")
        ),
    ).map("".join),
)


@given(_URLS, st.ip_addresses().map(str))
def test_a_webhook_is_refused_at_intake_or_called_without_a_surprise(url: str, address: str) -> None:
    """Any text gives a sentence for the caller or a request, never an exception (G137)."""
    provider = Webhook(
        WebhookConfig(policy=OutboundPolicy.parse(["0.0.0.0/0", "::/0"])),
        resolve=lambda host, port: [address],
    )
    made: list[Request] = []

    def exchange(request: Request, *rest: object, **more: object) -> Answer:
        made.append(request)
        return Answer(204, httpx.Headers())

    with patch("notifications.providers.webhook.provider.exchange", exchange):
        try:
            recipient = normalise(f"webhook:{url}")
        except ValueError:
            with suppress(PermanentFailure):
                provider.send(message(url))  # a row of an earlier version
            return
        assert dependency_of(recipient, provider).startswith("provider:webhook:")
        provider.send(message(split(recipient)[1]))
    (request,) = made
    assert request.url.host == ip_address(address).compressed  # type: ignore[union-attr]
    httpx.Request("POST", request.url, headers=dict(request.headers))


def test_a_request_names_webhooks_on_a_few_hosts_only() -> None:
    found = [normalise(f"webhook:http://{name}.example.com/{n}") for name in "abc" for n in range(9)]
    require_few_hosts([*found, "mail:ann@example.com"], 3)
    with pytest.raises(ValueError, match=r"webhooks on 4 hosts.*may notify 3.*WEBHOOK_HOSTS_PER_REQUEST"):
        require_few_hosts([*found, "webhook:http://c.example.com:81/"], 3)


def test_split_gives_channel_and_address() -> None:
    assert split("webhook:https://ci.example.com/x") == ("webhook", "https://ci.example.com/x")


@pytest.mark.parametrize("text", ["ann@example.com", "teams:C1", "mail:", ""])
def test_split_takes_normal_forms_only(text: str) -> None:
    with pytest.raises(ValueError, match="mail, webhook"):
        split(text)


def test_every_channel_has_a_provider_once_it_is_configured(tmp_path: Path) -> None:
    config = ProvidersConfig(mail_from="criticizer@reviews.test", maildir=tmp_path, webhook=WebhookConfig())
    assert set(build(config)[0]) == {"mail", "webhook"}
    config = replace(
        config,
        slack=SlackConfig(("xoxb-fake",)),
        swarm=SwarmConfig("https://swarm.example.com", "bot", ("ticket",)),
        hosts=(
            ("github", AppConfig("1", ("key",))),
            ("gitea", TokenConfig("https://gitea.example.com", ("token",))),
            ("gitlab", TokenConfig("https://gitlab.com", ("token",))),
        ),
    )
    assert set(build(config)[0]) == set(CHANNELS)
