"""Mail through Postmark: found by its metadata, and the meaning of each answer."""

from __future__ import annotations

from collections.abc import Iterator

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
from notifications.providers.email.postmark import Postmark
from tests.fakes.mail_service import Act
from tests.fakes.postmark import PostmarkService
from tests.notifications.samples import PATIENT, SENDER, SHORT, message

E = ErrorClass


@pytest.fixture
def service() -> Iterator[PostmarkService]:
    with PostmarkService() as running:
        yield running


def postmark(service: PostmarkService, *tokens: str, limits: Limits = PATIENT) -> Postmark:
    return Postmark(HostedMailConfig(SENDER, tokens or service.keys, service.url, limits))


def question(notification_id: str = "") -> Question:
    return Question(message(), notification_id, 1_772_600_767.0)


def error(code: int, words: str = "no") -> bytes:
    return f'{{"ErrorCode": {code}, "Message": "{words}"}}'.encode()


def test_the_mail_carries_the_token_as_metadata_the_headers_and_both_parts(service: PostmarkService) -> None:
    notification_id = postmark(service).send(message())
    (mail,) = service.accepted
    assert mail["MessageID"] == notification_id
    assert mail["Metadata"] == {"criticizer": str(message().token)}
    assert (mail["To"], mail["From"], mail["Subject"]) == ("ann@example.com", SENDER, message().subject)
    assert (mail["TextBody"], mail["HtmlBody"]) == (message().text, message().html)
    headers = {header["Name"]: header["Value"] for header in mail["Headers"]}
    assert headers["X-Criticizer-Token"] == str(message().token)


def test_both_attempts_have_the_same_bytes(service: PostmarkService) -> None:
    for _ in range(2):
        postmark(service).send(message())
    assert service.requests[0].raw == service.requests[1].raw


@pytest.mark.parametrize(
    "act",
    [
        Act(status=500, accept=True),
        Act(status=503, accept=True),
        Act(status=200, accept=True, body=b"<html>"),
        pytest.param(Act(accept=True, hang=True), marks=pytest.mark.long),
        Act(accept=True, reset=True),
    ],
    ids=["500", "503", "not json", "timeout", "reset"],
)
def test_an_accepted_mail_without_a_clear_answer_is_found_by_its_metadata(
    service: PostmarkService, act: Act
) -> None:
    service.script(act)
    with pytest.raises(UncertainFailure):
        postmark(service, limits=SHORT if act.hang else PATIENT).send(message())
    answer = postmark(service).look_up(question())
    assert (answer.evidence, answer.notification_id) == (Evidence.FOUND, service.accepted[0]["MessageID"])


def test_a_mail_that_was_not_taken_is_absent(service: PostmarkService) -> None:
    service.script(Act(reset=True))
    provider = postmark(service)
    with pytest.raises(UncertainFailure):
        provider.send(message())
    provider.send(message("bob@example.com", token=2))
    assert provider.look_up(question()).evidence is Evidence.ABSENT


def test_an_index_that_lags_is_why_one_look_is_not_enough(service: PostmarkService) -> None:
    provider = postmark(service)
    provider.send(message())
    service.hidden = 1
    assert provider.look_up(question()).evidence is Evidence.ABSENT
    service.hidden = 0
    assert provider.look_up(question()).evidence is Evidence.FOUND
    capabilities = provider.capabilities
    span = capabilities.settle_seconds + (capabilities.looks - 1) * capabilities.look_spacing_seconds
    assert (capabilities.looks, span) == (3, 900)


def test_a_mail_is_found_by_its_id_and_an_unknown_id_is_searched_by_metadata(
    service: PostmarkService,
) -> None:
    provider = postmark(service)
    notification_id = provider.send(message())
    assert provider.look_up(question(notification_id)).evidence is Evidence.FOUND
    answer = provider.look_up(question("another-id"))
    assert (answer.evidence, answer.notification_id) == (Evidence.FOUND, notification_id)


def test_a_search_that_does_not_filter_proves_nothing(service: PostmarkService) -> None:
    body = b'{"TotalCount": 1, "Messages": [{"MessageID": "x", "Metadata": {"criticizer": "another"}}]}'
    service.look_up_act = Act(200, body)
    assert postmark(service).look_up(question()).evidence is Evidence.UNKNOWN


@pytest.mark.parametrize(
    "act",
    [
        Act(500),
        Act(429),
        pytest.param(Act(hang=True), marks=pytest.mark.long),
        Act(200, b"[]"),
        Act(200, b'{"TotalCount": "0"}'),
    ],
)
def test_a_question_without_a_usable_answer_is_asked_again_later(service: PostmarkService, act: Act) -> None:
    service.look_up_act = act
    with pytest.raises(RetryableFailure):
        postmark(service, limits=SHORT if act.hang else PATIENT).look_up(question())


def test_a_refused_question_is_no_refused_send(service: PostmarkService) -> None:
    with pytest.raises(PermanentFailure) as failed:
        postmark(service, "wrong-for-tests").look_up(question())
    assert failed.value.error_class is E.CONFIG_INVALID


@pytest.mark.parametrize(
    ("status", "code", "words", "kind", "error_class"),
    [
        (429, 429, "slow down", RetryableFailure, E.RATE_LIMITED),
        (401, 10, "no", PermanentFailure, E.AUTH_DENIED),
        (422, 300, "Error parsing 'To': no domain", PermanentFailure, E.RECIPIENT_REJECTED),
        (422, 300, "Invalid 'From' address", PermanentFailure, E.CONFIG_INVALID),
        (422, 300, "Invalid metadata content", PermanentFailure, E.POLICY_REJECTED),
        (422, 400, "Sender signature not found", PermanentFailure, E.CONFIG_INVALID),
        (422, 405, "Out of credits", PermanentFailure, E.PERMISSION_DENIED),
        (422, 406, "Inactive, in words of tomorrow", PermanentFailure, E.RECIPIENT_REJECTED),
        (422, 412, "Account is pending", PermanentFailure, E.PERMISSION_DENIED),
        (413, 0, "too large", PermanentFailure, E.POLICY_REJECTED),
        (504, 0, "", UncertainFailure, E.NETWORK_TIMEOUT),
    ],
)
def test_each_answer_has_its_class(
    service: PostmarkService, status: int, code: int, words: str, kind: type[Failure], error_class: ErrorClass
) -> None:
    service.script(Act(status, error(code, words), {"Retry-After": "7"}))
    with pytest.raises(kind) as failed:
        postmark(service).send(message())
    assert failed.value.error_class is error_class
    assert type(failed.value) is kind
    assert service.accepted == []


def test_an_inactive_recipient_is_refused_without_naming_the_address(service: PostmarkService) -> None:
    service.inactive = {"ann@example.com"}
    with pytest.raises(PermanentFailure) as failed:
        postmark(service).send(message())
    assert failed.value.error_class is E.RECIPIENT_REJECTED
    assert failed.value.context["code"] == "406"
    assert "example.com" not in failed.value.detail


def test_nothing_listening_is_certain_not_to_have_sent() -> None:
    with pytest.raises(RetryableFailure):
        Postmark(HostedMailConfig(SENDER, ("t",), "http://127.0.0.1:1/")).send(message())


def test_the_next_token_is_used_when_the_first_is_refused(service: PostmarkService) -> None:
    postmark(service, "old-for-tests", *service.keys).send(message())
    assert len(service.accepted) == 1


def test_the_check_says_what_works_and_what_does_not(service: PostmarkService) -> None:
    assert postmark(service).probe() == "Postmark accepts the token of its server 'Reviews'."
    service.delivery_type = "Sandbox"
    with pytest.raises(PermanentFailure, match="sandbox"):
        postmark(service).probe()
    with pytest.raises(PermanentFailure) as failed:
        postmark(service, "wrong-for-tests").probe()
    assert failed.value.error_class is E.AUTH_DENIED
    assert service.accepted == []
