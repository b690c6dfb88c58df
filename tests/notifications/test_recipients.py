"""Recipients are keys: one spelling each, and refusals with a remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifications.config import build
from notifications.providers.registry import ProvidersConfig
from notifications.providers.slack.provider import SlackConfig
from notifications.providers.swarm.provider import SwarmConfig
from notifications.providers.webhook.provider import WebhookConfig
from notifications.recipients import CHANNELS, MAX_LENGTH, normalise, split

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
    ("teams:C0123ABCD", "mail, webhook, slack, swarm"),
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
        slack=SlackConfig("xoxb-fake"),
        swarm=SwarmConfig("https://swarm.example.com", "bot", "ticket"),
    )
    assert set(build(config)[0]) == set(CHANNELS)
