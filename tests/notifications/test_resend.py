"""Mail through Resend: one mail per key, and the meaning of each answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from criticizer.http_client import Limits
from criticizer.resilience.failures import (
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.providers.base import Evidence, Question
from notifications.providers.email.esp_base import HostedMailConfig
from notifications.providers.email.resend import Resend
from tests.fakes.mail_service import Act
from tests.fakes.resend import ResendService
from tests.notifications.samples import PATIENT, SENDER, SHORT, message

E = ErrorClass
URL = "https://api.resend.com/"


@pytest.fixture
def service() -> Iterator[ResendService]:
    with ResendService() as running:
        yield running


def resend(service: ResendService, *keys: str, limits: Limits = PATIENT) -> Resend:
    return Resend(HostedMailConfig(SENDER, keys or service.keys, service.url, limits))


def question(notification_id: str = "", attempted_at_epoch: float | None = None) -> Question:
    return Question(message(), notification_id, attempted_at_epoch or time.time() - 5)


def error(name: str, words: str = "no") -> bytes:
    return f'{{"statusCode": 0, "name": "{name}", "message": "{words}"}}'.encode()


def test_the_mail_carries_the_key_the_headers_and_both_parts(service: ResendService) -> None:
    notification_id = resend(service).send(message())
    (mail,) = service.accepted
    assert (mail["id"], mail["key"]) == (notification_id, str(message().token))
    assert (mail["to"], mail["from"]) == (["ann@example.com"], SENDER)
    assert (mail["subject"], mail["text"], mail["html"]) == (
        message().subject,
        message().text,
        message().html,
    )
    assert mail["headers"]["X-Criticizer-Token"] == str(message().token)
    assert mail["headers"]["List-Id"] == "Criticizer reviews <reviews.reviews.test>"
    assert not {"From", "To", "Message-ID"} & set(mail["headers"])


def test_both_attempts_have_the_same_bytes_and_are_one_mail(service: ResendService) -> None:
    provider = resend(service)
    assert provider.send(message()) == provider.send(message())
    assert service.requests[0].raw == service.requests[1].raw
    assert service.tokens() == [str(message().token)]


def test_what_an_operator_resends_has_a_key_of_its_own(service: ResendService) -> None:
    provider = resend(service)
    provider.send(message())
    provider.send(replace(message(), repeat_notice="This may repeat an earlier message."))
    assert [mail["key"] for mail in service.accepted] == [str(message().token), f"{message().token}-again"]
    assert service.accepted[1]["text"].startswith("This may repeat")


@pytest.mark.parametrize(
    "act",
    [
        Act(status=500, accept=True),
        Act(status=502, accept=True),
        Act(status=200, accept=True, body=b"<html>"),
        Act(status=200, accept=True, body=b'{"id": 7}'),
        pytest.param(Act(accept=True, hang=True), marks=pytest.mark.long),
        Act(accept=True, reset=True),
    ],
    ids=["500", "502", "not json", "no id", "timeout", "reset"],
)
def test_an_accepted_mail_without_a_clear_answer_is_repeated_as_one(service: ResendService, act: Act) -> None:
    service.script(act)
    with pytest.raises(UncertainFailure):
        resend(service, limits=SHORT if act.hang else PATIENT).send(message())
    assert resend(service).send(message()) == service.accepted[0]["id"]
    assert len(service.accepted) == 1


def test_a_request_that_is_still_running_is_repeated_later_with_the_same_key(service: ResendService) -> None:
    provider = resend(service)
    service.script(Act(accept=True, reset=True))
    with pytest.raises(UncertainFailure):
        provider.send(message())
    service.is_running = True
    with pytest.raises(UncertainFailure) as running:
        provider.send(message())
    assert running.value.context["code"] == "concurrent_idempotent_requests"
    assert running.value.retry_after_seconds
    service.is_running = False
    provider.send(message())
    assert len(service.accepted) == 1


def test_another_payload_under_the_same_key_is_our_defect(service: ResendService) -> None:
    provider = resend(service)
    provider.send(message())
    with pytest.raises(PermanentFailure) as failed:
        provider.send(message(subject="Another subject"))
    assert failed.value.error_class is E.INTERNAL_BUG
    assert len(service.accepted) == 1


@pytest.mark.parametrize(
    ("status", "name", "words", "kind", "error_class"),
    [
        (429, "rate_limit_exceeded", "slow down", RetryableFailure, E.RATE_LIMITED),
        (401, "missing_api_key", "no", PermanentFailure, E.AUTH_DENIED),
        (403, "invalid_api_key", "no", PermanentFailure, E.AUTH_DENIED),
        (403, "validation_error", "domain not verified", PermanentFailure, E.PERMISSION_DENIED),
        (422, "invalid_from_address", "no", PermanentFailure, E.CONFIG_INVALID),
        (422, "validation_error", "Invalid `to` field", PermanentFailure, E.RECIPIENT_REJECTED),
        (451, "security_error", "no", PermanentFailure, E.POLICY_REJECTED),
        (413, "", "too large", PermanentFailure, E.POLICY_REJECTED),
        (302, "", "", PermanentFailure, E.CONFIG_INVALID),
        (408, "", "", UncertainFailure, E.NETWORK_TIMEOUT),
        (503, "", "", UncertainFailure, E.UPSTREAM_UNAVAILABLE),
    ],
)
def test_each_answer_has_its_class(
    service: ResendService, status: int, name: str, words: str, kind: type[Failure], error_class: ErrorClass
) -> None:
    service.script(Act(status, error(name, words), {"Retry-After": "7"}))
    with pytest.raises(kind) as failed:
        resend(service).send(message())
    assert failed.value.error_class is error_class
    assert type(failed.value) is kind
    assert service.accepted == []
    if kind is RetryableFailure:
        assert failed.value.retry_after_seconds == 7.0


def test_nothing_listening_is_certain_not_to_have_sent(service: ResendService) -> None:
    provider = Resend(HostedMailConfig(SENDER, ("k",), "http://127.0.0.1:1/"))
    with pytest.raises(RetryableFailure) as failed:
        provider.send(message())
    assert failed.value.error_class is E.NETWORK_UNREACHABLE


def test_the_services_words_are_kept_without_addresses(service: ResendService) -> None:
    service.script(Act(422, error("validation_error", "bad ann@example.com")))
    with pytest.raises(PermanentFailure) as failed:
        resend(service).send(message())
    assert "[address]" in failed.value.detail
    assert "example.com" not in f"{failed.value.detail} {failed.value.context}"


def test_the_next_key_is_used_when_the_first_is_refused(service: ResendService) -> None:
    resend(service, "old-for-tests", *service.keys).send(message())
    assert len(service.accepted) == 1
    with pytest.raises(PermanentFailure) as failed:
        resend(service, "old-for-tests", "older-for-tests").send(message())
    assert failed.value.error_class is E.AUTH_DENIED


# -- look-up, for when the key has run out --------------------------------------------------------


def test_a_mail_is_found_by_its_id(service: ResendService) -> None:
    provider = resend(service)
    notification_id = provider.send(message())
    answer = provider.look_up(question(notification_id))
    assert (answer.evidence, answer.notification_id) == (Evidence.FOUND, notification_id)


def test_a_mail_without_an_id_is_found_in_the_list_of_sent_mails(service: ResendService) -> None:
    provider = resend(service)
    service.page_size = 2  # the list is paged
    service.script(Act(accept=True, reset=True))
    with pytest.raises(UncertainFailure):
        provider.send(message())
    for token in range(2, 7):
        provider.send(message("bob@example.com", token))
    answer = provider.look_up(question())
    assert (answer.evidence, answer.notification_id) == (Evidence.FOUND, service.accepted[0]["id"])


@pytest.mark.parametrize(
    "changes",
    [{"address": "bob@example.com"}, {"subject": "Other"}, {"text": "Version 2, with the same subject.\n"}],
)
def test_another_mail_is_not_taken_for_it(service: ResendService, changes: dict[str, str]) -> None:
    provider = resend(service)
    provider.send(message(**{"token": 2, **changes}))  # type: ignore[arg-type]
    assert provider.look_up(question()).evidence is Evidence.UNKNOWN


def test_a_list_without_it_is_no_proof(service: ResendService) -> None:
    provider = resend(service)
    assert provider.look_up(question()).evidence is Evidence.UNKNOWN
    provider.send(message())
    service.hidden = 1
    assert provider.look_up(question()).evidence is Evidence.UNKNOWN
    assert provider.capabilities.resends_after_absence == 0


def test_mails_before_the_attempt_are_not_read(service: ResendService) -> None:
    provider = resend(service)
    provider.send(message())
    assert provider.look_up(question(attempted_at_epoch=time.time() + 3600)).evidence is Evidence.UNKNOWN


def test_a_question_that_is_not_answered_is_asked_again_later(service: ResendService) -> None:
    for act in (Act(500), Act(429, headers={"Retry-After": "3"}), Act(hang=True)):
        service.look_up_act = act
        with pytest.raises(RetryableFailure):
            resend(service, limits=SHORT if act.hang else PATIENT).look_up(question("some-id"))


def test_a_key_that_may_only_send_does_not_stop_the_sending(service: ResendService) -> None:
    service.restricted = set(service.keys)
    provider = resend(service)
    provider.send(message())
    with pytest.raises(PermanentFailure) as failed:
        provider.look_up(question())
    assert failed.value.error_class is E.CONFIG_INVALID  # a refused key would open the circuit


# -- the check of the configuration ------------------------------------------------------------


def test_the_check_says_what_works_and_what_does_not(service: ResendService) -> None:
    assert resend(service).probe() == "Resend accepts the key and sends for reviews.test."
    service.domains = []
    with pytest.raises(PermanentFailure, match=r"domain reviews\.test of MAIL_FROM is not verified"):
        resend(service).probe()
    service.restricted = set(service.keys)
    assert "may only send" in resend(service).probe()
    with pytest.raises(PermanentFailure) as failed:
        resend(service, "wrong-for-tests").probe()
    assert failed.value.error_class is E.AUTH_DENIED
    assert service.accepted == []


def test_a_configuration_without_key_or_sender_is_refused_and_shows_no_key() -> None:
    with pytest.raises(ValueError, match="key"):
        Resend(HostedMailConfig(SENDER, (), URL))
    with pytest.raises(ValueError, match="sender"):
        Resend(HostedMailConfig("Criticizer", ("k",), URL))
    assert "hunter" not in repr(HostedMailConfig(SENDER, ("hunter-for-tests",), URL))
