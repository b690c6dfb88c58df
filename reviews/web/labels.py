"""Status labels for reviewers. The admin and the API show the status names themselves."""

from __future__ import annotations

from reviews.states import JobStatus

_FOR_READERS = {JobStatus.DEAD_LETTERED: "Failed, waiting for an operator"}

STATES_FOR_READERS = [(status.value, _FOR_READERS.get(status, str(status.label))) for status in JobStatus]


def state_for_readers(status: str) -> str:
    """Return the label of a job's status on the pages of reviewers."""
    return dict(STATES_FOR_READERS).get(status, status)
