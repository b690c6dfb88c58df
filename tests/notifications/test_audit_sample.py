"""The sample of sent deliveries: an absent message raises an alert and changes nothing else."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
import structlog
from django.db.models import F

from notifications.delivery import audit
from notifications.models import Delivery
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy
from notifications.states import DeliveryStatus, SendOutcome
from reviews.models import ReviewJob
from tests.notifications.scripted import ANN, BOB, ScriptedProvider, deliver, not_sent, outcomes, prepare

pytestmark = pytest.mark.django_db

SETTLES = Capabilities(look_up=frozenset({LookUpBy.KEY}), settle_seconds=60, retention_seconds=7 * 86_400)


def sent(job: ReviewJob, provider: ScriptedProvider, *recipients: str, ago: float = 3600.0) -> list[Delivery]:
    prepare(job, *recipients)
    deliver(job, {"mail": provider})
    Delivery.objects.update(notified_at=F("notified_at") - timedelta(seconds=ago))
    return list(Delivery.objects.order_by("id"))


@pytest.fixture
def service() -> ScriptedProvider:
    return ScriptedProvider("service", capabilities=SETTLES)


def sample(provider: ScriptedProvider, size: int = 50) -> Counter[Evidence]:
    return audit.audit_sample({"mail": provider}, size)


def test_found_messages_are_counted_and_not_recorded(job: ReviewJob, service: ScriptedProvider) -> None:
    rows = sent(job, service, ANN, BOB)
    assert sample(service) == {Evidence.FOUND: 2}
    assert [outcomes(row) for row in rows] == [[SendOutcome.ACCEPTED], [SendOutcome.ACCEPTED]]


def test_an_absent_message_raises_an_alert_and_is_not_sent_again(
    job: ReviewJob, service: ScriptedProvider
) -> None:
    (row,) = sent(job, service, ANN)
    service.arrived.clear()
    with structlog.testing.capture_logs() as logs:
        assert sample(service) == {Evidence.ABSENT: 1}
    alert = next(entry for entry in logs if entry["event"] == "delivery_sample_absent")
    assert (alert["log_level"], alert["delivery"]) == ("error", row.pk)
    row.refresh_from_db()
    assert row.status == DeliveryStatus.SENT
    assert outcomes(row) == [SendOutcome.ACCEPTED, SendOutcome.ABSENT]
    assert len(service.calls) == 1


@pytest.mark.parametrize("ago", [30.0, 8 * 86_400.0])
def test_no_look_up_while_absence_would_prove_nothing(
    job: ReviewJob, service: ScriptedProvider, ago: float
) -> None:
    sent(job, service, ANN, ago=ago)
    assert sample(service) == {}
    assert service.looked_up == []


@pytest.mark.parametrize(
    "capabilities",
    [
        Capabilities(),
        Capabilities(look_up=frozenset({LookUpBy.KEY}), recipients_delete=True),
    ],
)
def test_providers_without_proof_of_absence_are_not_asked(job: ReviewJob, capabilities: Capabilities) -> None:
    provider = ScriptedProvider("service", capabilities=capabilities)
    sent(job, provider, ANN)
    assert sample(provider) == {}


def test_a_provider_that_is_away_is_asked_once(job: ReviewJob, service: ScriptedProvider) -> None:
    sent(job, service, ANN, BOB)
    service.look_up_failure = not_sent()
    assert sample(service) == {}
    assert len(service.looked_up) == 1


def test_an_unknown_answer_is_no_alert(job: ReviewJob, service: ScriptedProvider) -> None:
    (row,) = sent(job, service, ANN)
    service.answers.append(LookUp(Evidence.UNKNOWN))
    assert sample(service) == {Evidence.UNKNOWN: 1}
    assert outcomes(row) == [SendOutcome.ACCEPTED]


def test_another_providers_messages_are_left_alone(job: ReviewJob, service: ScriptedProvider) -> None:
    sent(job, service, ANN)
    assert sample(ScriptedProvider("another", capabilities=SETTLES)) == {}
