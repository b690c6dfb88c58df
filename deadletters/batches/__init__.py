"""Replay batches as operators use them: a frozen selection, a dry run, approval, a rate.

    draft -> (dry_run) -> submit -> [awaiting -> approve] -> running -> finished
                                    running <-> paused -> stopped, running <-> stopped
                                    any of them -> cancelled; awaiting -> refuse: cancelled

`worker` runs them. Only this package writes states of batches and items. (guarantees G67 to G70)
"""

from __future__ import annotations

from deadletters.batches.approval import (
    approve,
    cancel,
    is_dangerous,
    makers,
    needs_approval,
    pause,
    refuse,
    resume,
    submit,
    why_not_approve,
)
from deadletters.batches.cause_fixed import give_up_recipients, replay_fixed, replayable
from deadletters.batches.drafts import MAX_ITEMS, MAX_RATE_PER_MINUTE, configure, draft, set_pace
from deadletters.batches.preflight import dry_run
from deadletters.batches.report import Progress, csv_rows, progress
from deadletters.batches.store import AGGREGATE, MESSAGE, QUEUE, overruled_by_hand
