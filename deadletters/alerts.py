"""Alerts to operators (OPERATOR_ALERTS): what they are about, and when they are sent.

`KINDS` lists them. An alert is a row, written in the transaction of what it reports; its key
makes it unique. Alerts of severity high wait to be sent together, in one message an hour; all others are
sent at once. Another app's worker sends them: the handler of the outbox message is
`settings.TASKS["operator_alert"]`. (guarantee G170)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.urls import reverse

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience.failures import Severity
from deadletters.models import OperatorAlert

log = structlog.get_logger(__name__)

AGGREGATE = "operator_alert"
MESSAGE = "operator_alert"
QUEUE = "notify"
TOGETHER = "together"  # the kind of a message about several alerts
MAX_LINES = 30  # of a message about several alerts
# Between two messages about several. Less than an hour: each alert is on its way within the hour.
TOGETHER_SECONDS = 58 * 60.0
SENT_FOR = timedelta(days=1)  # an alert that could not be sent for so long is given up


@dataclass(frozen=True, slots=True)
class Kind:
    """Texts of an alert, filled with the facts given to `tell`, and its severity.

    Critical: the system needs a person now. High: reviews fail; notified within the hour, together. Medium:
    a person is asked for a decision.
    """

    severity: Severity
    title: str
    text: str = ""

    @property
    def is_together(self) -> bool:
        return self.severity is Severity.HIGH


_NOW, _HOUR, _ASKED = Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM
KINDS: Mapping[str, Kind] = {
    # Failures of reviews
    "critical": Kind(_NOW, "{error_class} in {stage}: a critical failure", "Letter {letter}: {detail}"),
    "high": Kind(_HOUR, "{error_class} in {stage}: reviews fail", "Letter {letter}: {detail}"),
    "exhausted": Kind(
        _HOUR, "{error_class} in {stage}: every attempt of a review was used up", "Letter {letter}: {detail}"
    ),
    "timed_out": Kind(_HOUR, "{reviews} missed the deadline", "Reviews {jobs}"),
    "circuit_outlasts": Kind(
        _NOW,
        "The circuit of {name} is open longer than reviews can wait",
        "{reviews} that wait for it reach their deadline. It is {state} since {since:%Y-%m-%d %H:%M} UTC: "
        "{reason}",
    ),
    "credentials_refused": Kind(
        _NOW,
        "{name} refuses our credentials",
        "{reason}. Renew the key, token or ticket; what waits for it then goes on by itself ({waiting}).",
    ),
    "escalated": Kind(
        _NOW, "{error_class} in {stage} failed again after a replay", "Letter {letter}: {detail}"
    ),
    "reopened": Kind(
        _NOW, "{error_class} in {stage} came back after its group was resolved", "Group {group}: {message}"
    ),
    "too_many": Kind(
        _NOW,
        "More than {limit} dead letters today",
        "{count} failures ended as dead letters on {day} so far.",
    ),
    "not_verified": Kind(
        _NOW, "A replay of {stage} succeeded without its effect", "Letter {letter}: {missing}"
    ),
    "batch_stopped": Kind(_NOW, "Replay batch {batch} stopped", "{reason}"),
    "requests_cut": Kind(
        _HOUR,
        "The model server cuts requests: reviews take more calls, and may be partial",
        "{model} read only a part of {requests} of review {job}. Enlarge its window (num_ctx, --ctx-size, "
        "--max-model-len) or lower LLM_MAX_INPUT_TOKENS to what it holds.",
    ),
    # Deliveries
    "evidence_missing": Kind(
        _NOW,
        "A delivery is marked as sent without evidence",
        "Delivery {delivery} of review {job}: {reason}. It is checked before anything else is sent.",
    ),
    "unconfirmed": Kind(_HOUR, "An earlier alert may not have arrived: {title}", "{text}"),
    # What is stored
    "promoted": Kind(
        _NOW,
        "The database was promoted or restored: it is on timeline {timeline}",
        "A standby took over, or a backup was restored. With asynchronous replication, or after the point of "
        "the backup, what was recorded last may be missing: {since}. Accepted requests that a running web "
        "server still knows are requested again and named in another alert. Post others again with their "
        "idempotency keys; those that are not missing are not reviewed twice. Check what people did in the "
        "admin in that time. With synchronous replication, or if it was before Criticizer was installed, "
        "nothing is missing.",
    ),
    "requests_lost": Kind(
        _HOUR,
        "{requests} had been lost when the database came to timeline {timeline}",
        "The database lacked these reviews. They were requested again under the keys of their clients, with "
        "other numbers, unless a line says why not:\n{lines}",
    ),
    "storage_fault": Kind(_HOUR, "{reason}", "{name}, {namespace}. See the security events."),
    "archive_damaged": Kind(
        _NOW,
        "A file of removed dead letters is damaged",
        "{name}, with {letters} letters, {why}: restore the file from a backup.",
    ),
    "archive_orphan": Kind(
        _NOW,
        "A file of removed dead letters is unknown to the database",
        "{why}. Was the database restored from a backup, or does another installation keep its files "
        "in the same place? read_letter_archive --file prints it. Delete it if it is not needed.",
    ),
    "over_size": Kind(
        _NOW,
        "More than {limit} dead letters, and none of them may be removed",
        "{excess} too many on {day}: each that is left is in work, escalated, in a batch, or "
        "has an edit that waits for approval. Resolve or discard some, or cancel edits and batches.",
    ),
    # Decisions that are asked for
    "expiring": Kind(
        _ASKED,
        "{count} dead letters that are not triaged expire within a day",
        "They will be archived, and can be restored. Triage them to keep them.",
    ),
    "expired": Kind(
        _ASKED,
        "Untouched dead letters were archived",
        "{count} on {day} so far. Restore them on the page of the archive.",
    ),
    "edit_requested": Kind(
        _ASKED, "An edit of dead letter {letter} waits for approval", "Requested by {actor}."
    ),
    "batch_awaiting": Kind(
        _ASKED, "Replay batch {batch} waits for approval", "Submitted by {actor}: {what}."
    ),
    TOGETHER: Kind(_NOW, "{title}", "{lines}"),
}
_TOGETHER_KINDS = [name for name, kind in KINDS.items() if kind.is_together]

_TELL = """
INSERT INTO operator_alerts (dedup_key, kind, title, text, path, detail)
VALUES (%(key)s, %(kind)s, %(title)s, %(text)s, %(path)s, '')
ON CONFLICT (dedup_key) DO NOTHING RETURNING id"""


def tell(kind: str, *, key: str, path: str = "", **facts: object) -> bool:
    """Alert the operators once for `key`; return whether the alert is new.

    Part of the caller's transaction. Receivers deduplicate by the same key: build it from a fingerprint and a
    day, for example. `path` is that of the page with the details; `facts` fill the texts of the kind.
    """
    texts = KINDS[kind]
    row = {
        "key": key[:255],
        "kind": kind,
        "title": clean(texts.title.format(**facts), 200),
        "text": clean(texts.text.format(**facts), 16_000),
        "path": path[:255],
    }
    alert = prepared.value(_TELL, row)
    if alert is None:
        return False
    log.error("operator_alert", alert=alert, kind=kind, severity=texts.severity.value)
    if settings.OPERATOR_ALERTS and not texts.is_together:
        outbox.publish(AGGREGATE, alert, MESSAGE, QUEUE)
    return True


def ensure() -> None:
    """Publish the message of every unsent alert of the last day. Run by the maintenance."""
    if not settings.OPERATOR_ALERTS:
        return
    _put_together()
    unsent = OperatorAlert.objects.filter(sent_at=None, created_at__gt=Now() - SENT_FOR)
    for alert in unsent.exclude(kind__in=_TOGETHER_KINDS).values_list("pk", flat=True):
        outbox.publish(AGGREGATE, alert, MESSAGE, QUEUE)


def _put_together() -> None:
    """Combine the alerts that wait into one.

    Does nothing while the last combined one is younger than TOGETHER_SECONDS.
    """
    pause = timedelta(seconds=outbox.scaled(TOGETHER_SECONDS))
    if OperatorAlert.objects.filter(kind=TOGETHER, created_at__gt=Now() - pause).exists():
        return
    with transaction.atomic():
        waiting = OperatorAlert.objects.select_for_update().filter(
            kind__in=_TOGETHER_KINDS, sent_at=None, created_at__gt=Now() - SENT_FOR
        )
        found = list(waiting.order_by("pk"))
        if not found:
            return
        lines = [f"{one.title}\n{one.text}\n{_link(one)}".rstrip() for one in found[:MAX_LINES]]
        if len(found) > MAX_LINES:
            lines.append(f"and {len(found) - MAX_LINES} more")
        title = found[0].title if len(found) == 1 else f"{len(found)} alerts"
        tell(TOGETHER, key=f"{TOGETHER}:{found[0].pk}", title=title, lines="\n\n".join(lines))
        waiting.filter(pk__in=[one.pk for one in found]).update(sent_at=Now())


def _link(alert: OperatorAlert) -> str:
    return settings.BASE_URL.rstrip("/") + alert.path if alert.path else ""


def page(model: str, pk: int | None = None) -> str:
    """Return the path of a row's page in the admin, or of the list of a model."""
    if pk is None:
        return reverse(f"admin:deadletters_{model}_changelist")
    return reverse(f"admin:deadletters_{model}_change", args=[pk])
