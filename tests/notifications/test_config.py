"""Providers made from settings."""

from __future__ import annotations

from typing import Any

import pytest

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from notifications import config, health_checks
from notifications.models import Delivery
from notifications.providers.email.maildir import Maildir
from notifications.providers.email.postmark import Postmark
from notifications.providers.email.resend import Resend
from notifications.providers.email.smtp import Smtp
from reviews.models import ReviewJob
from tests.fakes.postmark import PostmarkService
from tests.fakes.resend import ResendService
from tests.fakes.smtp import SmtpServer
from tests.notifications.samples import SECRET_NEW, SENDER, message
from tests.notifications.scripted import ANN, CI, deliver, prepare


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


def test_mail_goes_through_the_service_that_is_chosen(settings: Any) -> None:
    settings.SMTP_HOST = "mail.test"
    settings.MAIL_PROVIDER, settings.RESEND_API_KEY = "resend", ("re-for-tests",)
    made = config.providers()["mail"]
    assert isinstance(made, Resend)
    assert config.from_settings().smtp is None
    settings.MAIL_PROVIDER, settings.POSTMARK_SERVER_TOKEN = "postmark", ("pm-for-tests",)
    assert isinstance(config.providers()["mail"], Postmark)
    settings.MAIL_PROVIDER = "maildir"
    assert isinstance(config.providers()["mail"], Maildir)


def test_the_archive_belongs_to_smtp_and_its_waits_are_scaled_like_all_others(settings: Any) -> None:
    settings.SMTP_HOST, settings.RETRY_TIME_SCALE = "mail.test", 0.01
    settings.IMAP_ARCHIVE_URL = "imaps://robot:for-tests@mail.test/Archive"
    settings.IMAP_ARCHIVE_ADDRESS = "archive@mail.test"
    smtp = config.from_settings().smtp
    assert smtp is not None
    assert smtp.archive is not None
    assert (smtp.archive.mailbox, smtp.archive.address) == ("Archive", "archive@mail.test")
    waits = (smtp.archive.attempt_seconds, smtp.archive.absent_after_seconds)
    assert waits == pytest.approx((1.2, 8.7))
    assert config.providers()["mail"].capabilities.looks_elsewhere


@pytest.mark.parametrize("provider", ["resend", "postmark"])
def test_the_circuits_question_of_mail_goes_to_the_service_that_is_chosen(
    settings: Any, provider: str
) -> None:
    service = {"resend": ResendService, "postmark": PostmarkService}[provider]
    settings.MAIL_PROVIDER, settings.MAIL_FROM = provider, SENDER
    settings.RESEND_API_KEY, settings.POSTMARK_SERVER_TOKEN = ("re-for-tests",), ("pm-for-tests",)
    with service() as running:
        settings.RESEND_API_URL = settings.POSTMARK_API_URL = running.url
        health_checks.mail("provider:mail")
        assert len(running.requests) == 1
        running.keys = ()
        with pytest.raises(PermanentFailure):
            health_checks.mail("provider:mail")


def test_the_circuits_question_of_smtp_does_not_need_the_archive(settings: Any) -> None:
    with SmtpServer() as server:
        settings.SMTP_HOST, settings.SMTP_PORT = "127.0.0.1", server.port
        settings.IMAP_ARCHIVE_URL = "imap://u:p@127.0.0.1:1/"
        settings.IMAP_ARCHIVE_ADDRESS = "archive@mail.test"
        health_checks.mail("provider:mail")
        assert server.dialogues == 1


def test_webhooks_know_their_secrets_and_where_they_may_go(settings: Any) -> None:
    settings.WEBHOOK_SECRETS, settings.OUTBOUND_ALLOW = (SECRET_NEW,), ["10.0.0.0/8", "CI.internal"]
    made = config.from_settings().webhook
    assert made.secrets == (SECRET_NEW,)
    assert made.policy.hosts == {"ci.internal"}
    assert [str(network) for network in made.policy.networks] == ["10.0.0.0/8"]


def test_providers_are_made_once_for_each_configuration(settings: Any) -> None:
    first = config.providers()
    assert config.providers() is first
    settings.WEBHOOK_SECRETS = (SECRET_NEW,)
    assert config.providers() is not first


@pytest.mark.parametrize(
    ("name", "value", "channel"),
    [("MAIL_FROM", "Criticizer", "mail"), ("WEBHOOK_SECRETS", ("not base64!",), "webhook")],
)
def test_a_misconfigured_provider_affects_its_own_channel_only(
    settings: Any, name: str, value: object, channel: str
) -> None:
    setattr(settings, name, value)
    assert set(config.providers()) == {"mail", "webhook"} - {channel}
    (reason,) = (config.problems()[broken] for broken in config.problems())
    assert "not base64" not in reason
    assert set(config.problems()) == {channel}


@pytest.mark.django_db
def test_a_malformed_secret_of_webhooks_fails_their_deliveries_and_no_others(
    job: ReviewJob, settings: Any
) -> None:
    settings.WEBHOOK_SECRETS = ("not base64!",)
    prepare(job, CI, ANN)
    with pytest.raises(PermanentFailure) as failed:
        deliver(job, config.providers())
    assert failed.value.error_class is ErrorClass.CONFIG_INVALID
    rows = Delivery.objects.filter(job=job).order_by("id").values_list("status", "error_class")
    assert list(rows) == [("failed", "CONFIG_INVALID"), ("sent", "")]
    assert len(list((settings.MAILDIR / "new").iterdir())) == 1
