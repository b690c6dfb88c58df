"""Dependencies that failed stages are going to call again."""

from __future__ import annotations

from criticizer.db import prepared
from deadletters.types import Failed
from reviews.pipeline.dependencies import dependencies_of

MAX_STAGES = 1000  # that wait at once: more only keep a circuit half-open, which costs nothing

# From the messages: there are few, while stages are never deleted.
_RETRIED = """
SELECT s.job_id, s.stage FROM outbox_messages m JOIN stage_runs s ON s.id = m.aggregate_id
 WHERE m.aggregate_type = 'stage_run' AND m.retry_count > 0 AND s.status = 'retry_wait'
 ORDER BY m.id DESC LIMIT %(limit)s"""


def dependencies_to_retry() -> frozenset[str]:
    """Return the names of the dependencies that stages in `retry_wait` need."""
    waiting = [Failed(**row) for row in prepared.rows(_RETRIED, {"limit": MAX_STAGES})]
    return frozenset(name for names in dependencies_of(waiting).values() for name in names)
