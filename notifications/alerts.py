"""Sends alerts to operators (OPERATOR_ALERTS), by the outbox message `operator_alert`.

Each recipient gets an alert once, by the protocol of deliveries (guarantee G171): the attempt is on disk
before the provider is called, and the recipient is stored after it. What an attempt without an outcome did
is decided by `uncertainty_policy`: repeat what the provider deduplicates, or look it up. Where neither is
possible it is not repeated; another alert says that this one may not have arrived.

The row has room for one such attempt: until it is decided, other recipients wait, except those whose provider
deduplicates for ever, who need no record of an attempt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import Any
from uuid import UUID, uuid5

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.template.defaultfilters import linebreaksbr
from django.utils import timezone
from django.utils.html import format_html

from criticizer.inert_links import break_links
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.classification import classify
from criticizer.resilience.exchange import one_call
from criticizer.resilience.failures import DependencyUnavailable, Failure, RetryableFailure, UncertainFailure
from criticizer.resilience.retry import BACKOFF, MAX_ATTEMPTS_PER_STAGE
from deadletters import alerts
from deadletters.models import OperatorAlert
from notifications import config
from notifications.config import dependency_of
from notifications.delivery.uncertainty_policy import Decision, DeliveryHistory, PolicyStep, next_step
from notifications.providers.base import (
    ABOUT_RECIPIENT,
    Evidence,
    Message,
    Provider,
    Question,
    capabilities_for,
)
from notifications.recipients import normalise, split

log = structlog.get_logger(__name__)

LONG_PAUSE_SECONDS = 300.0
LEASE_SECONDS = 180.0  # above the longest call of a provider; renewed for each recipient
_NAMESPACE = UUID("5b0f8f0e-6c4f-5e9e-9d38-1d2f7f0b7a11")  # never change it, like that of deliveries


class _Lost(Exception):
    """Another worker has the message and continues from `sent_to`."""


def run_message(outbox_id: int, alert_id: int, token: str) -> None:
    """Send one alert to the recipients who do not have it yet. The django-q2 task: never raises."""
    lease = UUID(token)

    def hold() -> None:
        _require_lease(outbox.hold(outbox_id, lease, seconds=LEASE_SECONDS))

    try:
        seconds = send(alert_id, hold)
        if seconds is None:
            _require_lease(outbox.done(outbox_id, lease))
        else:
            _require_lease(outbox.put_back(outbox_id, lease, seconds=outbox.scaled(seconds), has_failed=True))
    except _Lost:
        log.info("operator_alert_taken", alert=alert_id)
    except Exception:
        # The lease expires, and the other recipients get it then.
        log.exception("operator_alert_failed", alert=alert_id)


def _require_lease(has_lease: bool) -> None:
    if not has_lease:
        raise _Lost


def send(alert_id: int, hold: Callable[[], None] = lambda: None) -> float | None:
    """Send an alert to recipients without it; return the seconds until the next try, or None.

    `hold` is called before each send and raises when another worker has the alert.
    """
    hold()
    OperatorAlert.objects.filter(pk=alert_id).update(attempts=F("attempts") + 1)
    alert = OperatorAlert.objects.filter(pk=alert_id, sent_at=None).first()
    if alert is None:
        return None
    problems: list[str] = []
    waits: list[float] = []
    for recipient in sorted(_recipients(), key=lambda one: one != alert.sending_to):
        if recipient in alert.sent_to:
            continue
        hold()
        try:
            waits += _send_to(recipient, alert)
        except DependencyUnavailable as waiting:
            waits.append(waiting.seconds)
        except Exception as error:  # noqa: BLE001  one recipient's failure must not stop the others
            failure = classify(error)
            alert.refresh_from_db()  # a write may have failed
            if isinstance(failure, (RetryableFailure, UncertainFailure)):
                waits.append(_pause(alert))
            elif alert.sending_to == recipient:  # a defect, or a refusal after an undecided attempt
                _close(alert, recipient, is_unconfirmed=True)
            problems.append(f"{split(recipient)[0]}: {_describe(failure)}")
            log.warning("operator_alert_not_sent", alert=alert_id, **failure.facts)
    is_undecided = alert.sending_to in _recipients()
    if waits and (is_undecided or timezone.now() - alert.created_at < alerts.SENT_FOR):
        return max(waits)
    detail = clean("; ".join(filter(None, (alert.detail, *problems))), 1000)
    _save(alert, sent_at=timezone.now(), detail=detail)
    log.info("operator_alert_sent", alert=alert_id, recipients=len(alert.sent_to), problems=len(problems))
    return None


def _recipients() -> list[str]:
    return [normalise(recipient) for recipient in settings.OPERATOR_ALERTS]


def _pause(alert: OperatorAlert) -> float:
    """Return the seconds until the next try: a server that is away for hours is asked for a day."""
    is_long = alert.attempts > MAX_ATTEMPTS_PER_STAGE
    return LONG_PAUSE_SECONDS if is_long else BACKOFF.delay(alert.attempts)


def _send_to(recipient: str, alert: OperatorAlert) -> list[float]:
    """Send an alert to one recipient.

    Returns [seconds until it can be decided] if it cannot be now, else [].
    """
    channel, address = split(recipient)
    provider = config.providers().get(channel)
    if provider is None:
        raise ValueError(f"no provider is configured for {channel}")
    message = _message(recipient, address, alert)
    needs_mark = capabilities_for(provider, address).key_window_seconds < inf
    may_have_it = needs_mark and alert.sending_to == recipient
    if may_have_it:
        decision = _decision(provider, message, alert)
        if decision.step is PolicyStep.WAIT:
            return [decision.seconds]
        if decision.step in {PolicyStep.LOOK, PolicyStep.HOLD}:
            _close(alert, recipient, is_unconfirmed=decision.step is PolicyStep.HOLD)
            return []
        may_have_it = decision.step is PolicyStep.REPEAT
    elif needs_mark and alert.sending_to in _recipients():
        return [_pause(alert)]  # that one is decided first
    permit = gate.acquire_permit(dependency_of(recipient, provider))
    try:
        if not needs_mark:
            _unmark(alert, recipient)
        elif not may_have_it:
            _save(alert, sending_to=recipient, sending_since=timezone.now())
        with one_call():
            provider.send(message)
        permit.report(None)
    except Failure as failure:
        if not (may_have_it or isinstance(failure, UncertainFailure)):
            _unmark(alert, recipient)  # certainly nothing was sent
        permit.report(None if failure.context.get(ABOUT_RECIPIENT) else failure)
        raise
    finally:
        permit.release()  # unless it was reported
    _close(alert, recipient)
    return []


def _decision(provider: Provider, message: Message, alert: OperatorAlert) -> Decision:
    """Return what to do after an attempt without an outcome; LOOK: the provider has the message.

    A provider that cannot be asked for long is not waited for: the others wait for this decision.
    """
    since = (alert.sending_since or alert.created_at).timestamp()
    history = DeliveryHistory(timezone.now().timestamp(), since, since, since)
    capabilities = capabilities_for(provider, message.address)
    decision = next_step(capabilities, history, time_scale=settings.RETRY_TIME_SCALE)
    if decision.step is not PolicyStep.LOOK:
        return decision
    try:
        with one_call():
            evidence = provider.look_up(Question(message, "", since)).evidence
    except RetryableFailure:
        if alert.attempts <= MAX_ATTEMPTS_PER_STAGE:
            raise
        return Decision(PolicyStep.HOLD)
    is_proof = capabilities.looks == 1 and capabilities.resends_after_absence != 0
    if evidence is Evidence.ABSENT and is_proof:
        return Decision(PolicyStep.RESEND)
    return decision if evidence is Evidence.FOUND else Decision(PolicyStep.HOLD)


def _close(alert: OperatorAlert, recipient: str, *, is_unconfirmed: bool = False) -> None:
    """Store that a recipient has an alert, or may have it; another alert then says so."""
    with transaction.atomic():
        if is_unconfirmed:
            key = f"unconfirmed:{alert.pk}:{recipient}"
            alerts.tell("unconfirmed", key=key, path=alert.path, title=alert.title, text=alert.text)
            _save(alert, detail=f"{split(recipient)[0]}: it is not known whether it arrived")
        _save(alert, sent_to=[*alert.sent_to, recipient])
        _unmark(alert, recipient)


def _unmark(alert: OperatorAlert, recipient: str) -> None:
    if alert.sending_to == recipient:
        _save(alert, sending_to="", sending_since=None)


def _save(alert: OperatorAlert, **facts: Any) -> None:
    OperatorAlert.objects.filter(pk=alert.pk).update(**facts)
    for name, value in facts.items():
        setattr(alert, name, value)


def _message(recipient: str, address: str, alert: OperatorAlert) -> Message:
    link = settings.BASE_URL.rstrip("/") + alert.path if alert.path else ""
    title, text = break_links(alert.title), _inert(alert.text)
    return Message(
        token=uuid5(_NAMESPACE, f"{alert.dedup_key} {recipient}"),
        address=address,
        subject=f"[Criticizer] {title}",
        text="\n\n".join(filter(None, (title, text, link))) + "\n",
        html=format_html(
            "<h1>{}</h1><p>{}</p><p><a href='{}'>{}</a></p>",
            title,
            linebreaksbr(text, autoescape=True),
            link,
            link,
        ),
        payload={
            "type": "operator.alert",
            "kind": alert.kind,
            "severity": alerts.KINDS[alert.kind].severity.value,
            "dedup_key": alert.dedup_key,
            "title": alert.title,
            "text": alert.text,
            "url": link,
        },
        thread=f"alert {alert.kind}",
        created_at_epoch=int(alert.created_at.timestamp()),
    )


def _inert(text: str) -> str:
    """Return text with broken links, except lines that are the address of a page of ours."""
    ours = re.compile(re.escape(settings.BASE_URL.rstrip("/")) + r"/[\w/-]*")
    return "\n".join(line if ours.fullmatch(line) else break_links(line) for line in text.split("\n"))


def _describe(failure: Failure) -> str:
    return clean(failure.detail or str(failure.error_class), 200)
