"""Recipients of a trigger's job.

Its pull request, subscriptions, readers that Perforce names, or else DEFAULT_RECIPIENTS. They are found
once, when the files of the change are known, and frozen in the job with its fetch: a replay notifies the
same people. Recipients that a request gave stay as given.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import structlog

from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.failures import Failure
from notifications.config import connected_hosts
from notifications.recipients import inline_recipient, normalise
from reviews import config
from reviews.models import JobEvent, RecipientMode, RecipientOrigin, ReviewJob
from reviews.pipeline import StageClaim
from reviews.recipients import subscriptions
from reviews.recipients.recipient_reports import scopes_of_addresses
from reviews.sources.base import Change, Source
from reviews.sources.perforce.source import PerforceSource
from reviews.states import ACTIVE_JOB, JobStatus

log = structlog.get_logger(__name__)

DECLINED = "All recipients chose not to be notified"
_NO_RECIPIENTS = {
    RecipientMode.GIVEN: "The request named none, and DEFAULT_RECIPIENTS is empty.",
    RecipientMode.FOUND: "No subscription covers its files, and DEFAULT_RECIPIENTS is empty.",
}


@dataclass(frozen=True, slots=True)
class Found:
    """Recipients with their origins, in the order of notification.

    `problem`: which source could not be asked.
    """

    origins: dict[str, RecipientOrigin]
    problem: str = ""


def find(claim: StageClaim, change: Change, source: Source) -> Found | None:
    """Return the recipients of a fetched change, or None when the job has them already.

    When Perforce cannot list the readers of the change, the stage is repeated while it may be. In the
    last attempt, and when repeating cannot help, the others are notified: the job never ends for this.

    Raises RetryableFailure, and DependencyUnavailable while Perforce must not be called.
    """
    job = ReviewJob.objects.only("recipients", "recipients_are").get(pk=claim.job_id)
    if job.recipients_are != RecipientMode.TO_FIND:
        return None
    paths = {path for file in change.files for path in (file.path, file.old_path) if path}
    origins = subscriptions.covering(paths, change.author, case_sensitive=source.case_sensitive)
    problem = ""
    if isinstance(source, PerforceSource):
        try:
            for recipient in _perforce_readers(source, change, paths):
                origins.setdefault(recipient, RecipientOrigin.PERFORCE)
        except Failure as failure:
            if failure.retryable and claim.attempt < claim.max_attempts:
                raise
            problem = f"Perforce could not list the readers of this change ({failure.error_class})"
            log.error("perforce_readers_unknown", job=claim.job_id, **failure.facts)
    if change.changelist_id.partition(":")[0] in connected_hosts():
        # The change's id is its recipient: who reads the code there reads its review there.
        own = (change.changelist_id, inline_recipient(change.changelist_id))
        origins = {**dict.fromkeys(map(normalise, own), RecipientOrigin.PULL_REQUEST), **origins}
    if not origins:
        origins = dict.fromkeys(job.recipients, RecipientOrigin.DEFAULT)
    return Found(origins, problem)


def freeze(claim: StageClaim, found: Found | None) -> None:
    """Save the job's recipients, once. Part of the transaction that records the fetch."""
    if found is None:
        return
    frozen = ReviewJob.objects.filter(pk=claim.job_id, recipients_are=RecipientMode.TO_FIND).update(
        recipients=list(found.origins),
        recipient_origins={recipient: origin.value for recipient, origin in found.origins.items()},
        recipients_are=RecipientMode.FOUND,
    )
    if frozen and found.problem:
        JobEvent.objects.create(
            job_id=claim.job_id,
            kind=JobEvent.Kind.ALERT,
            actor="criticizer",
            reason=clean(f"{found.problem}: they are not notified.", 1000),
        )
    log.info("recipients_found", job=claim.job_id, recipients=len(found.origins), frozen=bool(frozen))


def _perforce_readers(source: PerforceSource, change: Change, paths: Collection[str]) -> list[str]:
    """Return the addresses of the people whose `Reviews:` match.

    Those who may read no file of the change are left out.
    """
    with gate.guarded(config.perforce_dependency()):
        subscribers = source.reviewers.of(change)
    addresses = []
    for person in subscribers.people:
        try:
            addresses.append(normalise(f"mail:{person.address.strip()}"))
        except ValueError:
            log.warning("perforce_address_not_valid", changelist=change.changelist_id)
    if subscribers.left_out:
        log.error("perforce_readers_left_out", changelist=change.changelist_id, count=subscribers.left_out)
    scopes = scopes_of_addresses(addresses)
    return [
        address
        for address in dict.fromkeys(addresses)
        if address not in scopes or any(scopes[address].allows(path) for path in paths)
    ]


def no_recipients_reason(status: str, recipients: Collection[str], mode: str, deliveries: int) -> str:
    """Return the sentence that says why a job notifies no one.

    "" when it does, or while that is not known.
    """
    if deliveries:
        return ""
    if not recipients and mode in _NO_RECIPIENTS:
        verb = "will be" if status in ACTIVE_JOB else "was"
        return f"No one {verb} notified: no recipients. {_NO_RECIPIENTS[RecipientMode(mode)]}"
    if status == JobStatus.SUCCEEDED:
        return f"{DECLINED}: they are muted, or want only more severe findings."
    return ""
