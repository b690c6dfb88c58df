"""The agents of the customer as operators see them: who asked last, and what became of tasks in a day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from criticizer.db import prepared
from criticizer.db.query_limits import MAX_COUNTED, BoundedCount
from reviews.dashboard.trends import list_address

SHOWN = 8
_TASKS = "reviews_agenttask"

_KEYS = f"""
SELECT name, last_used_at FROM api_keys WHERE role = 'agent' AND revoked_at IS NULL
 ORDER BY last_used_at DESC NULLS LAST, id LIMIT {SHOWN + 1}"""  # noqa: S608  constants of this module
# One statement. No task lives longer than its review, and the newest submissions are those of the day.
_COUNTS = f"""
SELECT CASE WHEN status = 'pending' THEN 'open' ELSE 'claimed' END AS name, count(*) AS number FROM (
  SELECT status FROM agent_tasks WHERE status IN ('pending', 'in_progress') LIMIT {MAX_COUNTED + 1}) t
 GROUP BY 1
UNION ALL
SELECT 'expired', count(*) FROM (
  SELECT status FROM agent_tasks WHERE created_at > now() - interval '1 day'
   ORDER BY created_at DESC LIMIT {MAX_COUNTED + 1}) t WHERE status = 'expired'
UNION ALL
SELECT CASE WHEN verdict = 'expired' THEN 'late' ELSE 'refused' END, count(*) FROM (
  SELECT verdict, created_at FROM agent_submissions ORDER BY id DESC LIMIT {MAX_COUNTED + 1}) s
 WHERE created_at > now() - interval '1 day'
   AND verdict NOT IN ('accepted', 'accepted_as_failed', 'duplicate')
 GROUP BY 1"""  # noqa: S608  constants of this module


@dataclass(frozen=True, slots=True)
class AgentLine:
    """One key of an agent. `seen`: when it asked last, None: never."""

    name: str
    seen: datetime | None


@dataclass(frozen=True, slots=True)
class AgentPanel:
    """`counts` has (name, number); `more`: there are further keys."""

    keys: Sequence[AgentLine]
    more: bool
    counts: Sequence[tuple[str, BoundedCount]]
    href: str


def agent_panel() -> AgentPanel | None:
    """Return the panel; None for an installation without keys of agents."""
    keys = [AgentLine(row["name"], row["last_used_at"]) for row in prepared.rows(_KEYS)]
    if not keys:
        return None
    found = {row["name"]: row["number"] for row in prepared.rows(_COUNTS)}
    counts = [
        (title, BoundedCount.up_to(found.get(name, 0)))
        for name, title in (
            ("open", "Open"), ("claimed", "Claimed"), ("expired", "Expired in a day"),
            ("late", "Late results in a day"), ("refused", "Other refused results in a day"),
        )
    ]  # fmt: skip
    return AgentPanel(keys[:SHOWN], len(keys) > SHOWN, counts, list_address(_TASKS))
