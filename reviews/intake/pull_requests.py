"""Webhooks of code hosts: each makes a job, or states why not (guarantees G241 to G243).

A delivery is decided once, in the commit that stores it with its job. Hosts deliver the same event more than
once, under the same id and under others, in any order:

- a delivery id that made a job is answered with that job;
- a head and base that have an automatic review are answered with it;
- an event that is older than what is known of its pull request replaces nothing;
- a person's wish for another review is a new version, once for each delivery id and for each comment.

A pull request is a changelist: each head, and each wish, is its next version, which supersedes the older one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.db.models.functions import Now

from criticizer.codehosts import fields
from criticizer.codehosts.events import (
    HostEvent,
    Ignored,
    InstallationChanged,
    Noted,
    PullRequest,
    RepositoriesRemoved,
    RepositoryRenamed,
    Rerun,
    Stopped,
    Wanted,
)
from criticizer.codehosts.names import Repository
from criticizer.codehosts.registry import repositories_variable
from reviews import config, pipeline
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, NoNextVersion, Overtaken, ReviewRequest
from reviews.models import HostChange, HostDelivery, HostInstallation, HostVersion, ReviewJob
from reviews.sources.pull import canonical_id, pull_request_id
from reviews.states import ACTIVE_JOB, JobStatus

log = structlog.get_logger(__name__)

KEEP_DAYS = 30
_DELETE_BATCH = 5000
_TRIES = 5
_SHA_1 = 40  # digits
_REPEATED = "the command was followed before"
_State, _Status = HostChange.State, HostInstallation.Status


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a delivery: a job, made by it or known before, or why there is none."""

    job_id: int | None = None
    is_duplicate: bool = False
    ignored: str = ""


def receive(host: str, delivery_id: str, event: HostEvent) -> Answer:
    """Record an authentic delivery with what it asks for.

    Raises Overtaken when it has to come again.
    """
    answer = review_requests.past_deadlocks(lambda: _receive(host, delivery_id, event))
    log.info(
        "webhook_received",
        host=host,
        delivery=delivery_id,
        name=event.name,
        job=answer.job_id,
        duplicate=answer.is_duplicate,
        ignored=answer.ignored,
    )
    return answer


def find_head(change_id: int, head_sha: str) -> int | None:
    """Request a review of a head that no webhook has reported yet; return its job.

    None if the head is known, or the pull request can have no further version.
    """
    return review_requests.past_deadlocks(lambda: _find_head(change_id, head_sha))


def _find_head(change_id: int, head_sha: str) -> int | None:
    with transaction.atomic():
        review_requests.lock_changelist(HostChange.objects.get(pk=change_id).changelist_id)
        change = HostChange.objects.select_for_update(no_key=True).get(pk=change_id)
        is_known = change.versions.filter(head_sha=head_sha).exists()
        if is_known or change.head_sha == head_sha or change.state != _State.OPEN:
            return None
        change.head_sha = head_sha
        HostChange.objects.filter(pk=change.pk).update(head_sha=head_sha)
        log.warning("head_found_without_webhook", changelist=change.changelist_id)
        try:
            return _request(change, is_automatic=True)
        except NoNextVersion as error:
            log.error("head_cannot_be_requested", changelist=change.changelist_id, reason=str(error))
            return None


def delete_expired() -> int:
    """Delete a batch of deliveries older than KEEP_DAYS; return how many. Run by maintenance.

    What keeps a head from a second review stays: the row of its version.
    """
    old = HostDelivery.objects.filter(received_at__lt=Now() - timedelta(days=KEEP_DAYS))
    batch = old.order_by("received_at").values("pk")[:_DELETE_BATCH]
    deleted, _ = HostDelivery.objects.filter(pk__in=batch).delete()
    if deleted:
        log.info("host_deliveries_deleted", rows=deleted)
    return deleted


def _receive(host: str, delivery_id: str, event: HostEvent) -> Answer:
    with transaction.atomic():
        row, is_first = _delivery(host, delivery_id, event)
        if row.job_id is not None:
            return Answer(row.job_id, is_duplicate=True)
        # A repeated event of a pull request that made no job is decided again: what stood in its way may be
        # gone, and its time shows whether it still counts. Those of installations have no time.
        if not is_first and not isinstance(event.asked, (Wanted, Noted, Stopped, Rerun)):
            return Answer(ignored=row.ignored)
        try:
            answer = _decide(host, event)
        except NoNextVersion as error:
            log.error("webhook_cannot_request", host=host, delivery=delivery_id, reason=str(error))
            answer = Answer(ignored=str(error))
        is_new = answer.job_id is not None and not answer.is_duplicate
        comment = event.asked.comment if isinstance(event.asked, Rerun) and is_new else None
        HostDelivery.objects.filter(pk=row.pk).update(
            job=answer.job_id, is_duplicate=answer.is_duplicate, ignored=answer.ignored[:255], comment=comment
        )
        return answer


def _delivery(host: str, delivery_id: str, event: HostEvent) -> tuple[HostDelivery, bool]:
    """Return the row of the delivery, locked, and whether it is new.

    Repeats of the delivery wait for our commit.
    """
    repository = event.repository
    row, is_first = HostDelivery.objects.select_for_update(of=("self",)).get_or_create(
        host=host,
        delivery_id=delivery_id,
        defaults={
            "event": event.name,
            "repository_id": repository.number if repository else None,
            "full_name": repository.name[:255] if repository else "",
            "installation_id": event.installation_id,
        },
    )
    if not is_first:
        HostDelivery.objects.filter(pk=row.pk).update(repeats=F("repeats") + 1, repeated_at=Now())
    return row, is_first


def _decide(host: str, event: HostEvent) -> Answer:
    asked, repository, installation = event.asked, event.repository, event.installation_id
    if isinstance(asked, Ignored):
        return Answer(ignored=asked.reason)
    if isinstance(asked, InstallationChanged):
        assert installation is not None
        return _change_installation(host, installation, asked)
    if isinstance(asked, RepositoriesRemoved):
        if installation is not None:
            _lock_installation(host, installation)
        changes = HostChange.objects.filter(host=host, repository_id__in=asked.numbers)
        if repository is None:
            # Repositories that left one installation, it may be for another one that we have.
            changes = changes.filter(Q(installation_id=installation) | Q(installation_id=None))
        return _remove(changes, asked.reason)
    assert repository is not None
    if isinstance(asked, RepositoryRenamed):
        rename(host, repository.number, repository.name)
        return Answer(ignored=asked.reason)
    if why := _why_not_ours(host, repository, installation):
        return Answer(ignored=why)
    if isinstance(asked, Rerun):
        return _rerun(host, repository, asked)
    if len(asked.pull.head_sha) > _SHA_1:
        return Answer(ignored="the repository's commits have ids of SHA-256, which are not read here")
    return _report(host, repository, installation, asked)


def _why_not_ours(host: str, repository: Repository, installation_id: int | None) -> str:
    if not config.is_enabled_repository(host, repository.name):
        return (
            f"the repository is not enabled: add it to {repositories_variable(host)}, or where that is not"
            " set to the allow-list"
        )
    longest = canonical_id(pull_request_id(host, repository.name, fields.MAX_NUMBER))
    if longest is None or len(longest) > 128:
        return "the name of the repository is too long"
    if installation_id is None:
        return ""
    row = _lock_installation(host, installation_id, repository.name.partition("/")[0])
    return "" if row.status == _Status.ACTIVE else f"the installation is {row.get_status_display().lower()}"


def _lock_installation(host: str, installation_id: int, account: str = "") -> HostInstallation:
    """Return the installation, locked.

    An event that ends it waits for our commit, and then ends our job as well.
    """
    installations = HostInstallation.objects.select_for_update(no_key=True)
    row, _ = installations.get_or_create(
        host=host, installation_id=installation_id, defaults={"account": account}
    )
    return row


# -- heads ---------------------------------------------------------------------------------------


def _report(
    host: str, repository: Repository, installation_id: int | None, asked: Wanted | Noted | Stopped
) -> Answer:
    """Record what an event reports of a pull request, with the review that it wants."""
    pull = asked.pull
    changelist_id = pull_request_id(host, repository.name, pull.number)
    review_requests.lock_changelist(changelist_id)
    facts = {
        "full_name": repository.name,
        "changelist_id": changelist_id,
        "state": pull.state,
        **({"head_sha": pull.head_sha} if pull.head_sha else {}),
        "base_sha": pull.base_sha,
        "base_ref": pull.base_ref,
        "reported_at": pull.reported_at,
        "is_mergeable": pull.is_mergeable,
        **({"installation_id": installation_id} if installation_id else {}),
    }
    change, is_first = HostChange.objects.select_for_update(no_key=True).get_or_create(
        host=host, repository_id=repository.number, number=pull.number, defaults=facts
    )
    is_same_head = (change.head_sha, change.base_ref) == (pull.head_sha, pull.base_ref)
    known = _known(change, pull)
    is_older, is_newer = pull.reported_at < change.reported_at, pull.reported_at > change.reported_at
    # An older event replaces nothing, but that a pull request is open again may come late: at most it costs
    # a review.
    is_opening = isinstance(asked, Wanted) and asked.is_opening and is_same_head
    if is_older and not is_opening:
        if known is not None and isinstance(asked, Wanted):
            return _duplicate(known)
        return Answer(ignored="a newer event was reported before it")
    if not is_first:
        for name, value in facts.items():
            setattr(change, name, value)
        change.save(update_fields=facts)
    if isinstance(asked, Stopped):
        ended = _end([change], asked.reason)
        return Answer(ignored=f"{asked.reason}: {ended} running reviews cancelled")
    if isinstance(asked, Noted):
        return Answer(ignored=asked.reason)
    if known is not None and is_newer and (not is_same_head or known.job.status == JobStatus.CANCELLED):
        # Its head came back after another one, or its review was cancelled and the pull request goes on.
        HostVersion.objects.filter(pk=known.pk).update(is_retired=True)
        known = None
    return _duplicate(known) if known else Answer(_request(change, is_automatic=True))


def rename(host: str, repository_id: int, full_name: str) -> None:
    """Record the new name of a repository.

    Whether it may be read under that name is asked when it is read.
    """
    HostChange.objects.filter(host=host, repository_id=repository_id).update(full_name=full_name)


def _duplicate(known: HostVersion) -> Answer:
    """Return the newest review of a head that has one."""
    newest = HostVersion.objects.filter(
        change=known.change_id, head_sha=known.head_sha, base_ref=known.base_ref, job__series=""
    ).latest("pk")
    return Answer(newest.job_id, is_duplicate=True)


def _known(change: HostChange, pull: PullRequest) -> HostVersion | None:
    """Return the automatic review of the head and base."""
    same = change.versions.filter(
        head_sha=pull.head_sha, base_ref=pull.base_ref, is_automatic=True, is_retired=False
    )
    return same.select_related("job").first()


def _rerun(host: str, repository: Repository, asked: Rerun) -> Answer:
    changes = HostChange.objects.filter(host=host, repository_id=repository.number)
    if asked.number is not None:
        changes = changes.filter(number=asked.number)
    if asked.head_sha:
        changes = changes.filter(head_sha=asked.head_sha)
    # With one head in two pull requests, the one that was reviewed last.
    newest_first = changes.annotate(newest=Max("versions")).order_by(F("newest").desc(nulls_last=True), "-pk")
    found = newest_first.first()
    if found is None:
        return Answer(ignored="no pull request with this head is known: push to it, or reopen it")
    review_requests.lock_changelist(found.changelist_id)
    change = HostChange.objects.select_for_update(no_key=True).get(pk=found.pk)
    if asked.comment is not None:
        same = HostDelivery.objects.filter(host=host, repository_id=repository.number, comment=asked.comment)
        if (known := same.first()) is not None:
            return Answer(known.job_id, is_duplicate=True) if known.job_id else Answer(ignored=_REPEATED)
    if asked.head_sha and change.head_sha != asked.head_sha:
        return Answer(ignored="the pull request has a newer head")
    if change.state not in (_State.OPEN, _State.DRAFT):
        return Answer(ignored=f"the pull request is {change.get_state_display().lower()}")
    return Answer(_request(change, is_automatic=False))


def _request(change: HostChange, *, is_automatic: bool) -> int:
    """Make the next version of the pull request, with its job; return the job's id.

    Raises NoNextVersion.
    """
    for _ in range(_TRIES):
        # Also above those under the name that its repository had before: its summary says which one it is of.
        jobs = ReviewJob.objects.filter(series="")
        reviewed = (jobs.filter(changelist_id=change.changelist_id), jobs.filter(host_version__change=change))
        version = review_requests.version_after(max(map(review_requests.newest_version, reviewed)))
        request = ReviewRequest(
            # A name that no other request has: the row of the version keeps its review from being made twice.
            f"{change.changelist_id}:v{version}:{uuid.uuid4().hex}",
            change.changelist_id,
            review_version=version,
            recipients=config.default_recipients(),
            rerun=version > 1,
            from_scratch=not is_automatic,
            requested_by=f"{change.host}:{change.full_name.lower()}",
            finds_recipients=True,
        )
        result = review_requests.request_review(request)
        if result.outcome is IntakeOutcome.CREATED and result.job_id is not None:
            # Under the name that its repository had before: another changelist, the same pull request.
            renamed = change.versions.filter(job__status__in=ACTIVE_JOB, job__series="")
            pipeline.supersede(list(renamed.values_list("job_id", flat=True)), version)
            HostVersion.objects.create(
                change=change,
                job_id=result.job_id,
                head_sha=change.head_sha,
                base_sha=change.base_sha,
                base_ref=change.base_ref,
                is_automatic=is_automatic,
            )
            return result.job_id
        # A request through the API took this version between the look and the insert: look again.
    raise Overtaken


# -- ends ----------------------------------------------------------------------------------------


def _end(changes: Iterable[HostChange], reason: str) -> int:
    """Cancel the running reviews of pull requests; return how many.

    Their heads may be reviewed again.
    """
    versions = HostVersion.objects.filter(change__in=changes, job__status__in=ACTIVE_JOB)
    ended = 0
    for version in versions.order_by("job_id"):
        if pipeline.cancel(version.job_id, "criticizer", reason):
            HostVersion.objects.filter(pk=version.pk).update(is_retired=True)
            ended += 1
    return ended


def _remove(changes: QuerySet[HostChange], reason: str) -> Answer:
    locked = list(changes.select_for_update(no_key=True).order_by("pk"))
    ended = _end(locked, reason)
    HostChange.objects.filter(pk__in=[change.pk for change in locked]).update(state=_State.REMOVED)
    return Answer(ignored=f"{reason}: {ended} running reviews cancelled")


def _change_installation(host: str, installation_id: int, asked: InstallationChanged) -> Answer:
    row = _lock_installation(host, installation_id, asked.account)
    if row.status == _Status.DELETED:  # a later installation has another number: this event comes late
        return Answer(ignored="the installation is uninstalled")
    HostInstallation.objects.filter(pk=row.pk).update(
        status=asked.status or row.status, account=asked.account or row.account, changed_at=Now()
    )
    changes = HostChange.objects.filter(host=host, installation_id=installation_id)
    if asked.status == _Status.DELETED:
        return _remove(changes, asked.reason)
    if asked.status == _Status.SUSPENDED:
        ended = _end(changes, asked.reason)
        return Answer(ignored=f"{asked.reason}: {ended} running reviews cancelled")
    return Answer(ignored=asked.reason)
