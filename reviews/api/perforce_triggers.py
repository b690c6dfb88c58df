"""An event of a Perforce trigger becomes a review request (specification 004, 10.1).

Events come in any order and more than once; `reviews.intake.source_events` knows what each of them means.
"""

from __future__ import annotations

from reviews.intake import polling, source_events
from reviews.intake.source_events import Event, Kind, Outcome


def request_from_event(
    event: str, change: int, server: str, *, recipients: tuple[str, ...], requested_by: str
) -> tuple[int | None, bool]:
    """Return (job id, whether the event found a job that was there before).

    Raises `ledger.Overtaken` when the event cannot be recorded now; posting it again is right.
    """
    told = Event(Kind(event), str(change), server, recipients, requested_by)
    entry = source_events.receive(told)
    if entry.found_late and told.kind is Kind.SHELVE:
        # Late, or a newer shelf: comparing the contents tells, and need not wait for its time.
        polling.run_now()
    return entry.job_id, entry.outcome is not Outcome.CREATED
