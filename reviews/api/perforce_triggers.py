"""Turn an event of a Perforce trigger into a review request."""

from __future__ import annotations

from reviews.intake import polling, source_events
from reviews.intake.source_events import Event, Kind, Outcome


def request_from_event(
    event: str, change: int, server: str, *, recipients: tuple[str, ...], requested_by: str
) -> tuple[int | None, bool]:
    """Return (job id, whether that job existed before the event).

    Raises `review_requests.Overtaken` when the event cannot be recorded now and must be posted again, and
    `review_requests.NoNextVersion` when the changelist can have no further version.
    """
    reported = Event(Kind(event), str(change), server, recipients, requested_by)
    entry = source_events.receive(reported)
    if entry.found_late and reported.kind is Kind.SHELVE:
        # The event is late, or the shelf is newer: the poll compares the contents, now.
        polling.run_now()
    return entry.job_id, entry.outcome is not Outcome.CREATED
