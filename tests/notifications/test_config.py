"""Settings become providers in one place."""

from __future__ import annotations

from typing import Any

import pytest

from notifications import config
from notifications.providers.maildir import Maildir
from notifications.providers.smtp import Smtp
from tests.notifications.samples import SECRET_NEW, message


def test_mail_goes_to_the_maildir_while_no_host_is_set(settings: Any) -> None:
    settings.SMTP_HOST = ""
    provider = config.providers()["mail"]
    assert isinstance(provider, Maildir)
    name = provider.send(message())
    assert (settings.MAILDIR / "new" / name).exists()


def test_mail_goes_to_the_host_that_is_set(settings: Any) -> None:
    settings.SMTP_HOST, settings.SMTP_PORT, settings.SMTP_SECURITY = "mail.test", 2525, "starttls"
    assert isinstance(config.providers()["mail"], Smtp)
    smtp = config.from_settings().smtp
    assert smtp is not None
    assert (smtp.host, smtp.port, smtp.security, smtp.sender) == (
        "mail.test",
        2525,
        "starttls",
        settings.MAIL_FROM,
    )


def test_webhooks_know_their_secrets_and_where_they_may_go(settings: Any) -> None:
    settings.WEBHOOK_SECRETS, settings.OUTBOUND_ALLOW = [SECRET_NEW], ["10.0.0.0/8", "CI.internal"]
    made = config.from_settings().webhook
    assert made.secrets == (SECRET_NEW,)
    assert made.policy.hosts == {"ci.internal"}
    assert [str(network) for network in made.policy.networks] == ["10.0.0.0/8"]


def test_providers_are_made_once_for_each_configuration(settings: Any) -> None:
    first = config.providers()
    assert config.providers() is first
    settings.WEBHOOK_SECRETS = [SECRET_NEW]
    assert config.providers() is not first


@pytest.mark.parametrize(
    ("name", "value"), [("MAIL_FROM", "Criticizer"), ("WEBHOOK_SECRETS", ["not base64!"])]
)
def test_what_cannot_work_is_refused_when_providers_are_made(settings: Any, name: str, value: object) -> None:
    setattr(settings, name, value)
    with pytest.raises(ValueError):
        config.providers()
