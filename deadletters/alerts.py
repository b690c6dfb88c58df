"""Alerts to operators by mail and webhook (OPERATOR_ALERTS): one row and one message a key.

The row is written in the transaction of what it reports. Another app's worker sends it: the handler of the
outbox message is `settings.TASKS["operator_alert"]`.
"""

from __future__ import annotations

import structlog
from django.conf import settings
from django.urls import reverse

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean

log = structlog.get_logger(__name__)

AGGREGATE = "operator_alert"
MESSAGE = "operator_alert"
QUEUE = "stages"

_TELL = """
INSERT INTO operator_alerts (dedup_key, kind, title, text, path, detail)
VALUES (%(key)s, %(kind)s, %(title)s, %(text)s, %(path)s, '')
ON CONFLICT (dedup_key) DO NOTHING RETURNING id"""


def tell(kind: str, *, key: str, title: str, text: str = "", path: str = "") -> bool:
    """Alert the operators once for `key`; return whether it is new. Part of the caller's transaction.

    Receivers deduplicate by the same key: build it from a fingerprint and a day, for example. `path` is
    that of the page with the details.
    """
    title, text = clean(title, 200), clean(text, 4000)
    row = {"key": key[:255], "kind": kind, "title": title, "text": text, "path": path[:255]}
    alert = prepared.value(_TELL, row)
    if alert is None:
        return False
    log.error("operator_alert", alert=alert, kind=kind)
    if settings.OPERATOR_ALERTS:
        outbox.publish(AGGREGATE, alert, MESSAGE, QUEUE)
    return True


def page(model: str, pk: int | None = None) -> str:
    """Return the path of a row's page in the admin, or of the list of a model."""
    if pk is None:
        return reverse(f"admin:deadletters_{model}_changelist")
    return reverse(f"admin:deadletters_{model}_change", args=[pk])
