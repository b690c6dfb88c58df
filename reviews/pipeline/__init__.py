"""The only writer of job, stage and attempt states.

Each transition is one guarded statement whose row count is checked; a worker that lost its
lease matches no row and changes nothing (fencing by `lease_token`).

    claim ─► executor, async_executor ─► complete       an attempt, from start to end
    terminate                                           cancel, supersede, time out; late results
    replay                                              of a dead letter
    sweep                                               finds all due work from the rows alone
"""

from reviews.pipeline.base import (
    AGGREGATE,
    MESSAGE,
    Due,
    LostLease,
    StageClaim,
    deadline_seconds,
    note_kind,
    queue_of,
)
from reviews.pipeline.claim import claim, give_back, keep_progress, progress_of, still_ours, wait
from reviews.pipeline.complete import fail, record
from reviews.pipeline.replay import replay
from reviews.pipeline.sweep import sweep
from reviews.pipeline.terminate import (
    accept_late,
    cancel,
    expire,
    expire_overdue,
    record_after_end,
    supersede,
    why_not_acceptable,
)
