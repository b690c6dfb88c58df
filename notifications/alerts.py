"""Sends alerts to operators (OPERATOR_ALERTS), by the outbox message `operator_alert`.

At least once, with one key: a message's token derives from the alert's key and the recipient, so that a
provider that deduplicates shows it once. Recipients who have it are stored after each send.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid5

import structlog
from django.conf import settings
from django.db.models import F
from django.utils import timezone
from django.utils.html import format_html

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience.failures import Failure, RetryableFailure, UncertainFailure, classify
from criticizer.resilience.retry import BACKOFF, MAX_ATTEMPTS_PER_STAGE
from deadletters import alerts
from deadletters.models import OperatorAlert
from notifications import config
from notifications.providers.base import Message
from notifications.recipients import normalise, split

log = structlog.get_logger(__name__)

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


def ensure() -> None:
    """Publish the message of every unsent alert of the last day. Run by the maintenance."""
    if not settings.OPERATOR_ALERTS:
        return
    for row in prepared.rows(
        "SELECT id FROM operator_alerts WHERE sent_at IS NULL AND created_at > now() - interval '1 day'"
    ):
        outbox.publish(alerts.AGGREGATE, row["id"], alerts.MESSAGE, alerts.QUEUE)


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
    may_help = False
    for recipient in map(normalise, settings.OPERATOR_ALERTS):
        if recipient in alert.sent_to:
            continue
        hold()
        try:
            _send_to(recipient, alert)
        except Exception as error:  # noqa: BLE001  one recipient's failure must not stop the others
            failure = classify(error)
            may_help = may_help or isinstance(failure, (RetryableFailure, UncertainFailure))
            problems.append(f"{split(recipient)[0]}: {_describe(failure)}")
        else:
            alert.sent_to.append(recipient)
            OperatorAlert.objects.filter(pk=alert_id).update(sent_to=alert.sent_to)
    if problems and may_help and alert.attempts < MAX_ATTEMPTS_PER_STAGE:
        return BACKOFF.delay(alert.attempts)
    OperatorAlert.objects.filter(pk=alert_id).update(
        sent_at=timezone.now(), detail=clean("; ".join(problems), 1000)
    )
    log.info("operator_alert_sent", alert=alert_id, recipients=len(alert.sent_to), problems=len(problems))
    return None


def _send_to(recipient: str, alert: OperatorAlert) -> None:
    channel, address = split(recipient)
    provider = config.providers().get(channel)
    if provider is None:
        raise ValueError(f"no provider is configured for {channel}")
    link = settings.BASE_URL.rstrip("/") + alert.path if alert.path else ""
    provider.send(
        Message(
            token=uuid5(_NAMESPACE, f"{alert.dedup_key} {recipient}"),
            address=address,
            subject=f"[Criticizer] {alert.title}",
            text="\n\n".join(filter(None, (alert.title, alert.text, link))) + "\n",
            html=format_html(
                "<h1>{}</h1><p>{}</p><p><a href='{}'>{}</a></p>", alert.title, alert.text, link, link
            ),
            payload={
                "type": "operator.alert",
                "kind": alert.kind,
                "dedup_key": alert.dedup_key,
                "title": alert.title,
                "text": alert.text,
                "url": link,
            },
            thread=f"alert {alert.kind}",
            created_at_epoch=int(alert.created_at.timestamp()),
        )
    )


def _describe(failure: Failure) -> str:
    return clean(failure.detail or str(failure.error_class), 200)
