"""Deliveries under circuits and limits: a wait changes no row, no provider delays another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.models import Circuit, CircuitBucket
from criticizer.resilience import gate, health_checks, overrides
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.states import CircuitState
from notifications import health_checks as harmless
from notifications.config import dependency_of
from notifications.delivery import audit
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import ABOUT_RECIPIENT
from notifications.providers.email.smtp import Smtp, SmtpConfig
from notifications.states import DeliveryStatus, SendOutcome
from reviews.models import ReviewJob
from tests.factories import ReviewJobFactory
from tests.fakes.smtp import SmtpServer, Switches
from tests.notifications.samples import SENDER, message
from tests.notifications.scripted import (
    ANN,
    BOB,
    CI,
    ScriptedProvider,
    crashed,
    deliver,
    not_sent,
    outcomes,
    prepare,
    refused,
    unclear,
)

E = ErrorClass
D = DeliveryStatus
MAIL, HOOK = "provider:mail", "provider:webhook:ci.example.com"


@pytest.fixture(autouse=True)
def _no_harmless_probe(settings: Any) -> Iterator[None]:
    CHECKS.clear()
    gate.forget()
    yield
    gate.forget()


def stop(name: str) -> None:
    gate.check(name)
    overrides.force(name, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)


def go(name: str) -> None:
    overrides.force(name, CircuitState.FORCED_CLOSED, actor="ann", reason="INC-7", seconds=60)


def cool_down_ends() -> None:
    prepared.rows("UPDATE circuits SET retry_at = now() - interval '1 second' WHERE state = 'open'")


def jobs(count: int) -> list[ReviewJob]:
    """Jobs with one mail each."""
    made = [ReviewJobFactory(changelist_id=str(number)) for number in range(1, count + 1)]
    for job in made:
        prepare(job, ANN)
    return made


def delivered(made: list[ReviewJob], provider: ScriptedProvider) -> list[str]:
    """Deliver each job once; return what came of each: done, wait or the error class."""
    found = []
    for job in made:
        try:
            deliver(job, {"mail": provider})
            found.append("done")
        except DependencyUnavailable:
            found.append("wait")
        except (RetryableFailure, PermanentFailure, UncertainFailure) as failure:
            found.append(str(failure.error_class))
    return found


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipient", "provider", "expected"),
    [
        (ANN, "smtp", MAIL),
        (ANN, "maildir", "provider:maildir"),
        (CI, "webhook", HOOK),
        ("webhook:https://ci.example.com:8443/x", "webhook", f"{HOOK}:8443"),
        ("webhook:http://[::1]:81/x", "webhook", "provider:webhook:[::1]:81"),
    ],
)
def test_each_receiver_of_webhooks_is_a_dependency_of_its_own(
    recipient: str, provider: str, expected: str
) -> None:
    assert dependency_of(recipient, ScriptedProvider(provider)) == expected


# -- waiting ----------------------------------------------------------------------------------


def test_an_open_circuit_touches_no_row(job: ReviewJob, mail: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    stop(MAIL)
    with pytest.raises(DependencyUnavailable) as caught:
        deliver(job, {"mail": mail})
    assert caught.value.dependency == MAIL
    row.refresh_from_db()
    assert (row.status, row.attempts, mail.calls) == (D.PENDING, 0, [])
    assert not DeliveryAttempt.objects.exists()
    go(MAIL)
    assert deliver(job, {"mail": mail}).sent == 1


def test_one_dead_receiver_does_not_hold_the_others(
    job: ReviewJob, mail: ScriptedProvider, hook: ScriptedProvider
) -> None:
    other = "webhook:https://other.example.com/hook"
    prepare(job, CI, ANN, other)
    stop(HOOK)
    with pytest.raises(DependencyUnavailable) as caught:
        deliver(job, {"mail": mail, "webhook": hook})
    assert caught.value.dependency == HOOK
    assert set(Delivery.objects.filter(status=D.SENT).values_list("recipient", flat=True)) == {ANN, other}
    go(HOOK)
    assert deliver(job, {"mail": mail, "webhook": hook}).sent == 1


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (not_sent(E.UPSTREAM_UNAVAILABLE), RetryableFailure),
        (ValueError("a defect"), ValueError),
        (refused(), DependencyUnavailable),
        (unclear(), DependencyUnavailable),
    ],
)
def test_what_is_raised_when_one_row_waits_and_another_fails(
    job: ReviewJob,
    mail: ScriptedProvider,
    hook: ScriptedProvider,
    script: Exception,
    expected: type[Exception],
) -> None:
    prepare(job, CI, ANN)
    stop(HOOK)
    mail.script.append(script)
    with pytest.raises(expected):
        deliver(job, {"mail": mail, "webhook": hook})


def test_a_look_up_waits_too(job: ReviewJob, asked: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, "maildir")
    stop("provider:maildir")
    with pytest.raises(DependencyUnavailable):
        deliver(job, {"mail": asked})
    assert asked.looked_up == []
    assert audit.settle(job.pk, {"mail": asked}) == 1
    go("provider:maildir")
    assert deliver(job, {"mail": asked}).sent == 1


def test_look_ups_that_fail_count(job: ReviewJob, asked: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, "maildir")
    asked.look_up_failure = not_sent(E.NETWORK_TIMEOUT)
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": asked})
    bucket = CircuitBucket.objects.get(name="provider:maildir")
    assert (bucket.calls, bucket.failures) == (1, 1)


# -- outages ----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_outage_costs_the_attempts_that_opened_the_circuit_and_no_more(mail: ScriptedProvider) -> None:
    made = jobs(14)
    mail.script.extend([not_sent()] * 10)
    assert delivered(made, mail) == ["NETWORK_UNREACHABLE"] * 10 + ["wait"] * 4
    assert len(mail.calls) == 10
    cool_down_ends()
    assert delivered(made, mail) == ["done"] * 14  # the twin: the first two are the trial calls
    assert Circuit.objects.get(pk=MAIL).state == CircuitState.CLOSED
    assert max(mail.arrived.values()) == 1


@pytest.mark.django_db
def test_refused_credentials_fail_a_handful_and_hold_the_rest(mail: ScriptedProvider) -> None:
    made = jobs(20)
    mail.script.extend([refused(E.AUTH_DENIED)] * 3)
    assert delivered(made, mail) == ["AUTH_DENIED"] * 3 + ["wait"] * 17
    assert Delivery.objects.filter(status=D.FAILED).count() == 3
    assert Delivery.objects.filter(status=D.PENDING).count() == 17
    cool_down_ends()
    assert delivered(made[3:], mail) == ["done"] * 17


@pytest.mark.django_db
def test_a_refused_trial_call_leaves_its_row_as_it_was(mail: ScriptedProvider) -> None:
    made = jobs(4)
    mail.script.extend([refused(E.AUTH_DENIED)] * 4)
    delivered(made[:3], mail)
    cool_down_ends()
    assert delivered(made[3:], mail) == ["wait"]
    row = Delivery.objects.get(job=made[3])
    assert (row.status, outcomes(row)) == (D.PENDING, [SendOutcome.REJECTED])
    cool_down_ends()
    assert delivered(made[3:], mail) == ["done"]


@pytest.mark.django_db
def test_an_uncertain_half_open_attempt_is_repeated_with_the_same_key(hook: ScriptedProvider) -> None:
    job = ReviewJobFactory(changelist_id="7")
    (row,) = prepare(job, CI)
    gate.check(HOOK)
    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now() - interval '1 second'")
    hook.script.append((unclear(E.NETWORK_TIMEOUT), True))
    with pytest.raises(DependencyUnavailable):
        deliver(job, {"webhook": hook})
    row.refresh_from_db()
    assert row.status == D.RECONCILING
    cool_down_ends()
    deliver(job, {"webhook": hook})
    assert hook.arrived[row.token] == 1


@pytest.mark.django_db
def test_a_held_delivery_reaches_an_operator_whatever_the_circuit(mail: ScriptedProvider) -> None:
    (job,) = jobs(1)
    gate.check(MAIL)
    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now() - interval '1 second'")
    mail.script.append(unclear())
    assert delivered([job], mail) == ["DELIVERY_UNCERTAIN"]
    assert Circuit.objects.get(pk=MAIL).state == CircuitState.OPEN


@pytest.mark.django_db
def test_answers_about_one_recipient_open_nothing(mail: ScriptedProvider) -> None:
    made = jobs(12)
    greylisted = RetryableFailure(
        E.UPSTREAM_UNAVAILABLE, Component.PROVIDER, "greylisted", context={ABOUT_RECIPIENT: True}
    )
    mail.script.extend([greylisted] * 12)
    assert delivered(made, mail) == ["UPSTREAM_UNAVAILABLE"] * 12
    assert Circuit.objects.get(pk=MAIL).state == CircuitState.CLOSED


@pytest.mark.parametrize(("reply", "about"), [("450 4.2.1 greylisted", True), ("", None)])
def test_the_mail_server_says_what_is_about_the_recipient(reply: str, about: bool | None) -> None:
    switches = Switches(rcpt=reply) if reply else Switches(mail="451 4.3.0 later")
    with SmtpServer(switches) as server, pytest.raises(RetryableFailure) as failed:
        Smtp(SmtpConfig(host="127.0.0.1", port=server.port, sender=SENDER)).send(message())
    assert failed.value.context.get(ABOUT_RECIPIENT) == about


@pytest.mark.django_db
def test_a_provider_that_asks_for_a_pause_gets_it_from_all(mail: ScriptedProvider) -> None:
    made = jobs(5)
    mail.script.append(not_sent(E.RATE_LIMITED, 60))
    assert delivered(made, mail) == ["RATE_LIMITED"] + ["wait"] * 4
    assert len(mail.calls) == 1
    prepared.rows("DELETE FROM paces")
    assert delivered(made, mail) == ["done"] * 5


@pytest.mark.django_db
def test_a_slot_is_released_whatever_the_outcome(settings: Any, mail: ScriptedProvider) -> None:
    settings.CONCURRENCY_LIMITS = {MAIL: 1}
    made = jobs(4)
    mail.script.extend([not_sent(), refused(), ValueError("a defect")])
    assert delivered(made[:2], mail) == ["NETWORK_UNREACHABLE", "RECIPIENT_REJECTED"]
    with pytest.raises(ValueError, match="a defect"):
        delivered(made[2:3], mail)
    assert delivered(made[3:], mail) == ["done"]


def test_a_row_that_another_worker_took_gives_the_permit_back(
    settings: Any, job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CONCURRENCY_LIMITS = {MAIL: 1}
    prepare(job, ANN, BOB)
    with monkeypatch.context() as patch:
        patch.setattr("notifications.delivery.store.claim", lambda row, provider: None)
        with pytest.raises(RetryableFailure) as failed:
            deliver(job, {"mail": mail})
    assert failed.value.error_class is E.WRITE_CONFLICT
    assert not CircuitBucket.objects.exists()
    assert deliver(job, {"mail": mail}).sent == 2


# -- the health check ------------------------------------------------------------------------


def test_the_mail_server_is_greeted_and_nothing_is_sent(settings: Any) -> None:
    with SmtpServer() as server:
        settings.SMTP_HOST, settings.SMTP_PORT = "127.0.0.1", server.port
        harmless.mail(MAIL)
        assert server.accepted == []


@pytest.mark.parametrize(
    ("switches", "error_class"),
    [
        (Switches(greeting="421 4.3.2 too busy"), E.UPSTREAM_UNAVAILABLE),
        (Switches(user="u", password="p", refuse_login="535 5.7.8 no"), E.AUTH_DENIED),
    ],
)
def test_a_mail_server_that_does_not_work_is_reported(
    settings: Any, switches: Switches, error_class: ErrorClass
) -> None:
    with SmtpServer(switches) as server:
        settings.SMTP_HOST, settings.SMTP_PORT = "127.0.0.1", server.port
        settings.SMTP_USER, settings.SMTP_PASSWORD = ("u", ("p",)) if switches.user else ("", ())
        with pytest.raises((RetryableFailure, PermanentFailure)) as failed:
            harmless.mail(MAIL)
        assert failed.value.error_class is error_class


@pytest.mark.django_db
def test_an_open_mail_circuit_is_checked_until_the_server_answers(
    settings: Any, mail: ScriptedProvider
) -> None:
    CHECKS[MAIL] = harmless.mail
    made = jobs(12)
    mail.script.extend([not_sent()] * 10)
    delivered(made, mail)
    settings.SMTP_HOST = "127.0.0.1"
    with SmtpServer() as server:
        settings.SMTP_PORT = server.port
    cool_down_ends()
    assert health_checks.run_due() == 1  # no server listens any more
    assert Circuit.objects.get(pk=MAIL).probe_detail.startswith("NETWORK_UNREACHABLE")
    assert health_checks.run_due() == 0  # another cool-down first
    assert delivered(made[-2:], mail) == ["wait"] * 2
    with SmtpServer() as server:
        settings.SMTP_PORT = server.port
        cool_down_ends()
        assert health_checks.run_due() == 1
    assert Circuit.objects.get(pk=MAIL).state == CircuitState.HALF_OPEN
    assert delivered(made, mail) == ["done"] * 12
