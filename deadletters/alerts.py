"""What operators are told by mail and webhook (OPERATOR_ALERTS): one row, one message, once a key.

The row is written in the commit of what it tells of. This room sends nothing: a worker of the
room that can finds the outbox message (`settings.TASKS["operator_alert"]`).
"""

from __future__ import annotations

import structlog
from django.conf import settings

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
    """Tell the operators something once for `key`; say whether it is news. Part of the caller's transaction.

    Receivers deduplicate by the same key: build it from a fingerprint and a day, say. `path` is
    that of the page which shows more.
    """
    alert = prepared.value(
        _TELL,
        {
            "key": key[:255],
            "kind": kind,
            "title": clean(title, 200),
            "text": clean(text, 4000),
            "path": path[:255],
        },
    )
    if alert is None:
        return False
    log.error("operator_alert", alert=alert, kind=kind)
    if settings.OPERATOR_ALERTS:
        outbox.publish(AGGREGATE, alert, MESSAGE, QUEUE)
    return True
