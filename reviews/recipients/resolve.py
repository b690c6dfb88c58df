"""Whom a trigger's job tells: subscriptions, readers that Perforce names, else DEFAULT_RECIPIENTS.

Found once, when the files of the change are known, and frozen in the job with its fetch: a replay
tells the same people. Recipients that a request gave stay as given.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import structlog

from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.failures import Failure
from notifications.recipients import normalise
from reviews import config
from reviews.models import JobEvent, RecipientMode, RecipientOrigin, ReviewJob
from reviews.pipeline import StageClaim
from reviews.recipients import subscriptions
from reviews.recipients.visibility import scopes_of_addresses
from reviews.sources.base import Change, Source
from reviews.sources.perforce.source import PerforceSource

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """Recipient -> origin, in the order in which they are told. `problem`: who could not be asked for."""

    origins: dict[str, RecipientOrigin]
    problem: str = ""


def find(claim: StageClaim, change: Change, source: Source) -> Found | None:
    """Return whom to tell of a fetched change, or None when that is settled.

    Perforce being unable to say who reads the change repeats the stage as long as it may be, and
    never ends the job: in the last attempt, and when repeating cannot help, the others are told.

    Raises RetryableFailure, and Waiting while Perforce must not be called.
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
            problem = f"Perforce could not say who reads this change ({failure.error_class})"
            log.error("perforce_readers_unknown", job=claim.job_id, error_class=str(failure.error_class))
    if not origins:
        origins = dict.fromkeys(job.recipients, RecipientOrigin.DEFAULT)
    return Found(origins, problem)


def freeze(claim: StageClaim, found: Found | None) -> None:
    """Write whom the job tells, once. Part of the transaction that records the fetch."""
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
            reason=clean(f"{found.problem}: its readers there are not told.", 1000),
        )
    log.info("recipients_found", job=claim.job_id, recipients=len(found.origins), frozen=bool(frozen))


def _perforce_readers(source: PerforceSource, change: Change, paths: Collection[str]) -> list[str]:
    """Return the addresses of the people whose `Reviews:` match, those who may read nothing left out."""
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
