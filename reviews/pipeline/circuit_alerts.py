"""Alerts of circuits: those open longer than reviews can wait, and refused credentials."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse

from criticizer.db import prepared
from criticizer.resilience import circuit_breaker
from criticizer.wording import plural_count
from deadletters import alerts
from reviews.pipeline.base import statement

# Circuits that are open when work that waits for them reaches its deadline: now, or before they may close.
# An outage lasts from one closing to the next, however often the circuit was half-open in between.
_OUTLASTING = statement("""
SELECT c.name, c.state, c.reason, closed.id AS closed, count(*) AS jobs,
       coalesce((SELECT min(created_at) FROM circuit_events e WHERE e.name = c.name AND e.id > closed.id),
                c.changed_at) AS since
  FROM circuits c JOIN outbox_messages o ON o.waiting_for = c.name
  JOIN stage_runs s ON o.aggregate_type = 'stage_run' AND s.id = o.aggregate_id
  JOIN jobs j ON j.id = s.job_id,
       LATERAL (SELECT coalesce(max(id), 0) AS id FROM circuit_events
                 WHERE name = c.name AND change IN ('closed', 'forced_closed')) closed
 WHERE c.state IN ('open', 'forced_open', 'half_open') AND j.status IN $ACTIVE
   AND (j.id = ANY(%(jobs)s)
        OR j.deadline_at <= greatest(now() + make_interval(secs => %(ahead)s), c.retry_at))
 GROUP BY c.name, closed.id""")
# Circuits whose newest failure is a refusal, whatever opened them: no call comes through that would tell.
_REFUSED = statement("""
SELECT c.name, c.reason, (SELECT count(*) FROM outbox_messages o WHERE o.waiting_for = c.name) AS waiting,
       (SELECT coalesce(max(id), 0) FROM circuit_events
         WHERE name = c.name AND change IN ('closed', 'forced_closed')) AS closed
  FROM circuits c WHERE c.state IN ('open', 'half_open') AND c.error_class = ANY(%(refusals)s)""")
_AHEAD_SECONDS = 60.0  # maintenance comes twice a minute


def tell_outlasting(overdue: Collection[int] = ()) -> None:
    """Alert once an outage of circuits that stay open longer than reviews can wait.

    Run by maintenance. `overdue`: jobs that are about to be ended, whose deadline is known to have passed.
    """
    for row in prepared.rows(_OUTLASTING, {"jobs": list(overdue), "ahead": _AHEAD_SECONDS}):
        state, since = row["state"].replace("_", " "), row["since"].astimezone(UTC)
        reviews = plural_count(row["jobs"], "review")
        _tell("circuit_outlasts", row, reviews=reviews, state=state, since=since)


def tell_refused() -> None:
    """Alert once an outage of circuits whose credentials are refused. Run by maintenance."""
    for row in prepared.rows(_REFUSED, {"refusals": list(circuit_breaker.AUTH)}):
        _tell("credentials_refused", row, waiting=plural_count(row["waiting"], "task"))


def _tell(kind: str, row: Mapping[str, Any], **more: object) -> None:
    alerts.tell(
        kind,
        key=f"{kind.replace('_', '-')}:{row['name']}:{row['closed']}",
        path=reverse("admin:criticizer_circuit_change", args=[quote(row["name"])]),
        name=row["name"],
        reason=row["reason"],
        **more,
    )
