"""Status labels for reviewers. The admin and the API show the status names themselves."""

from __future__ import annotations

from datetime import datetime

from reviews.states import JobStatus

_FOR_READERS = {JobStatus.DEAD_LETTERED: "Stopped: needs an operator"}

STATES_FOR_READERS = [(status.value, _FOR_READERS.get(status, str(status.label))) for status in JobStatus]


def state_for_readers(status: str) -> str:
    """Return the label of a job's status on the pages of reviewers."""
    return dict(STATES_FOR_READERS).get(status, status)


def took(start: datetime | None, end: datetime | None) -> str:
    """Show a duration: `120 ms`, `3.4 s`, `2 min 5 s`."""
    if start is None or end is None:
        return "\N{EN DASH}"
    seconds = (end - start).total_seconds()
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
