"""Reviews that wait for one digest, for the tests of digests."""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models.functions import Now

from criticizer.resilience.failures import DependencyUnavailable, Failure
from notifications.delivery.outcome import Outcome
from notifications.delivery.prepare import create_deliveries
from notifications.delivery.snapshot import token_for
from notifications.models import Delivery, Digest
from notifications.providers.base import Message, Provider
from notifications.rendering import Report, ReportFinding, render
from notifications.states import DeliveryStatus
from reviews.models import ReviewJob
from tests.factories import ReviewJobFactory
from tests.notifications.samples import finding, report
from tests.notifications.scripted import ANN, deliver


def review(changelist: str, *severities: str, **changes: object) -> Report:
    """Return a report with a finding of each severity."""
    findings: tuple[ReportFinding, ...] = tuple(
        finding(severity=severity, title=f"Finding {number} of {changelist}", anchor=f"finding-{number}")
        for number, severity in enumerate(severities, 1)
    )
    url = f"https://reviews.test/reviews/{changelist}/"
    return report(**{"changelist_id": changelist, "findings": findings, "url": url, **changes})


def message_about(job: ReviewJob, recipient: str, *severities: str) -> Message:
    made = review(job.changelist_id, *severities, review_version=job.review_version)
    token = token_for(job.changelist_id, recipient, job.review_version)
    return render(made, recipient, token, unsubscribe_url=f"https://reviews.test/unsubscribe/{token}/")


def waiting(
    *changelists: str, recipient: str = ANN, minutes: int = 10, **job: object
) -> tuple[list[ReviewJob], list[Delivery]]:
    """Make a job with one delivery for each changelist, kept for one digest."""
    jobs = [ReviewJobFactory(changelist_id=changelist, **job) for changelist in changelists]
    for made in jobs:
        messages = {recipient: message_about(made, recipient, "high", "low")}
        create_deliveries(
            made.pk,
            made.changelist_id,
            made.review_version,
            messages,
            digest_minutes={recipient: minutes} if minutes else {},
        )
    return jobs, list(Delivery.objects.filter(job__in=jobs).order_by("id"))


def make_due() -> None:
    """Let the time of every digest be over."""
    Digest.objects.update(due_at=Now())


def tell(
    jobs: list[ReviewJob], providers: Mapping[str, Provider]
) -> list[Outcome | Failure | DependencyUnavailable]:
    """Deliver each job once, in order; return what came of each."""
    found: list[Outcome | Failure | DependencyUnavailable] = []
    for job in jobs:
        try:
            found.append(deliver(job, providers))
        except (Failure, DependencyUnavailable) as error:
            found.append(error)
    return found


def states(rows: list[Delivery]) -> list[str]:
    for row in rows:
        row.refresh_from_db()
    return [DeliveryStatus(row.status).value for row in rows]
