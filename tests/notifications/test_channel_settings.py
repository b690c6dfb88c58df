"""Settings of Slack, P4 Code Review and webhooks: malformed ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from criticizer.environment.variables import VARIABLES
from criticizer.resilience.failures import PermanentFailure
from criticizer.security.configured_secrets import own_secrets
from notifications import config, health_checks
from notifications.providers.base import capabilities_for
from notifications.providers.slack.provider import Slack
from notifications.providers.swarm.provider import Swarm
from tests.fakes.slack import NEXT_TOKEN, TOKEN, SlackServer
from tests.fakes.swarm import TICKET, USER, SwarmServer


def test_a_channel_has_a_provider_once_it_is_configured(settings: Any) -> None:
    settings.SLACK_BOT_TOKEN, settings.SWARM_URL = "", ""
    assert set(config.providers()) == {"mail", "webhook"}
    settings.SLACK_BOT_TOKEN = (TOKEN,)
    settings.SWARM_URL, settings.SWARM_USER, settings.SWARM_TICKET = "https://swarm.test", USER, (TICKET,)
    made = config.providers()
    assert isinstance(made["slack"], Slack)
    assert isinstance(made["swarm"], Swarm)


def test_hosts_that_do_not_deduplicate_are_known_to_the_provider(settings: Any) -> None:
    settings.WEBHOOK_NOT_IDEMPOTENT = frozenset({"old.example.com"})
    made = config.providers()["webhook"]
    assert capabilities_for(made, "https://old.example.com/hook").key_window_seconds == 0
    assert capabilities_for(made, "https://ci.example.com/hook").key_window_seconds > 0


def test_their_secrets_are_known_to_the_redactor(settings: Any) -> None:
    settings.SLACK_BOT_TOKEN, settings.SWARM_TICKET = (TOKEN, NEXT_TOKEN), (TICKET,)
    assert {TOKEN, NEXT_TOKEN, TICKET} <= set(own_secrets())


@pytest.mark.parametrize(
    "value", ["https://ci.example.com", "ci example", "ci.example.com:0", "ci.example.com/x"]
)
def test_what_is_no_host_is_refused(value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"WEBHOOK_NOT_IDEMPOTENT: .* is not a host"):
        VARIABLES["WEBHOOK_NOT_IDEMPOTENT"].parse(value)


def test_hosts_are_read_in_lower_case_with_their_ports() -> None:
    found = VARIABLES["WEBHOOK_NOT_IDEMPOTENT"].parse("Old.example.com, ci.example.com:8443,[::1]:81")
    assert found == {"old.example.com", "ci.example.com:8443", "[::1]:81"}


def test_a_token_that_no_header_can_hold_is_refused_and_not_repeated() -> None:
    with pytest.raises(ImproperlyConfigured, match="SLACK_BOT_TOKEN: holds spaces") as refused:
        VARIABLES["SLACK_BOT_TOKEN"].parse("xoxb fake")
    assert "xoxb" not in str(refused.value)


def test_the_circuits_questions_are_asked_and_post_nothing(settings: Any) -> None:
    with SlackServer() as workspace, SwarmServer() as server:
        settings.SLACK_BOT_TOKEN, settings.SLACK_API_URL = (TOKEN,), workspace.url
        settings.SWARM_URL, settings.SWARM_USER, settings.SWARM_TICKET = server.url, USER, (TICKET,)
        health_checks.slack("provider:slack")
        health_checks.swarm("provider:swarm")
        workspace.tokens.clear()
        server.tickets.clear()
        for probe in (health_checks.slack, health_checks.swarm):
            with pytest.raises(PermanentFailure):
                probe("provider")
        assert workspace.messages == server.comments == []
