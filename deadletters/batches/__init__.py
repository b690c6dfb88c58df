"""Replay batches, as operators see them: a frozen selection, a dry run, a second pair of eyes.

    draft ─► (dry_run) ─► submit ─► [awaiting ─► approve] ─► running ─► finished
                                         running ◄─► paused ─► stopped, running ◄─► stopped
                                         any of them ─► cancelled; awaiting ─► refuse: cancelled

    draft(*, filter, ids, actor, reason, **settings) -> ReplayBatch
    configure(batch_id, *, actor, **settings)        -> Result     drafts only; `set_pace` later
    dry_run(batch_id)                                -> dict        {"verdicts": {verdict: n}, …}
    submit, approve, refuse, pause, resume, cancel(batch_id, *, actor, reason="") -> Result
    makers(batch) -> names ; why_not_approve(batch, actor) -> "" or why
    needs_approval(batch), is_dangerous(batch) -> bool ; overruled_by_hand(batch) -> items
    progress(batch_id) -> Progress ; csv_rows(batch_id) -> rows

The worker's half is `runs`. Only this package writes states of batches and items.
"""

from __future__ import annotations

from deadletters.batches.approval import (
    AGGREGATE,
    MESSAGE,
    QUEUE,
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
from deadletters.batches.drafts import MAX_ITEMS, MAX_RATE_PER_MINUTE, configure, draft, set_pace
from deadletters.batches.preflight import dry_run
from deadletters.batches.report import Progress, csv_rows, progress
from deadletters.batches.store import overruled_by_hand

__all__ = [
    "AGGREGATE",
    "MAX_ITEMS",
    "MAX_RATE_PER_MINUTE",
    "MESSAGE",
    "QUEUE",
    "Progress",
    "approve",
    "cancel",
    "configure",
    "csv_rows",
    "draft",
    "dry_run",
    "is_dangerous",
    "makers",
    "needs_approval",
    "overruled_by_hand",
    "pause",
    "progress",
    "refuse",
    "resume",
    "set_pace",
    "submit",
    "why_not_approve",
]
