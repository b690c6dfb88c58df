"""The poll of GitHub: what it never delivers again finds its way to a review all the same.

    failed deliveries   of the last three days, which this installation does not have, are asked for again
    open pull requests  whose head, base or state is not the one that is known are taken in as if their
                        webhook had come

Both end in `pull_requests.receive`, which knows a head that is found twice (guarantees G241, G315). A limit
is waited for by the next run; each run is bounded.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import islice
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.codehosts.events import HostEvent, Noted, Wanted
from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.names import Repository
from criticizer.queue import outbox
from criticizer.queue.periodic import PeriodicTask
from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.failures import Component, DependencyUnavailable, Failure
from notifications import config as notification_config
from reviews import config
from reviews.intake import pull_requests
from reviews.intake.pull_requests import Overtaken
from reviews.models import HostChange, HostDelivery, SourcePosition
from reviews.pipeline.executor import LEASE_RENEWER

log = structlog.get_logger(__name__)

CLOCK = PeriodicTask("host_poll", "poll_hosts")
RUN_SECONDS = 240.0
MAX_REPOSITORIES = 200  # of one run, in random order
MAX_PAGES = 10  # of one list, a hundred each
DELIVERY_DAYS = 3  # for so long GitHub delivers again
MAX_AGAIN = 20  # deliveries asked for in one run
MAX_TRIES = 3  # of one delivery
_PACE_SECONDS = 2.5  # the longest wait for one call a second
_WRITE_SECONDS = 1.0  # between two writes


def ensure() -> None:
    """Start or stop the clock (SOURCE_POLL_SECONDS, GITHUB_APP_ID). Run by maintenance."""
    CLOCK.ensure(is_enabled=_host() is not None and settings.SOURCE_POLL_SECONDS > 0)


def run_message(outbox_id: int, token: UUID) -> None:
    """Run once for a leased message. The django-q2 task: never raises, refuses a lost lease."""
    try:
        if not CLOCK.begin(outbox_id, token):
            return
        with LEASE_RENEWER.holding(token):
            run()
        CLOCK.end(outbox_id, token, seconds=settings.SOURCE_POLL_SECONDS)
    except Exception:
        # The lease expires and the next run starts again.
        log.exception("host_poll_failed")


def run() -> int:
    """Poll once; return how many reviews were missing. Lets database errors through."""
    host = _host()
    if host is None:
        return 0
    until = time.monotonic() + RUN_SECONDS
    _part("failed webhooks", partial(_deliver_again, host))
    missing = 0
    for repository in _repositories(host):
        if time.monotonic() > until:
            break
        missing += _part(repository.name, partial(_compare, host, repository))
    return missing


def _host() -> GitHubHost | None:
    host = notification_config.host("github", Component.SOURCE)
    return host if isinstance(host, GitHubHost) and host.is_connected else None


def _part(name: str, work: Callable[[], int]) -> int:
    """Do one part of a run and record how it ended; one that fails or waits does not stop the others."""
    missing, problem = 0, ""
    try:
        missing = work()
    except DependencyUnavailable as waiting:
        problem = f"waiting: {waiting.reason}"
    except Failure as failure:
        problem = f"{failure.error_class}: {failure.detail}"
    except Overtaken:
        problem = "other requests came first each time"
    if problem:
        log.warning("host_poll_stopped", part=name, reason=clean(problem, 300))
    counted = {"missing": F("missing") + missing, "last_missing_at": Now()} if missing else {}
    position, _ = SourcePosition.objects.get_or_create(stream=f"github {name}"[:192])
    SourcePosition.objects.filter(pk=position.pk).update(
        polled_at=Now(), problem=clean(problem, 500), **counted
    )
    return missing


@contextmanager
def _permitted(dependency: str) -> Iterator[None]:
    """Hold the one permit for calls of an owner; wait for it where the pace alone holds it up."""
    try:
        gate.check(dependency)
        permit = gate.acquire_permit(dependency)
    except DependencyUnavailable as waiting:
        if waiting.seconds > _PACE_SECONDS:
            raise
        time.sleep(waiting.seconds)
        permit = gate.acquire_permit(dependency)
    try:
        yield
    except BaseException as error:
        if (waits := permit.report(error)) is not None:
            raise waits from error
        raise
    permit.report(None)


def _deliver_again(host: GitHubHost) -> int:
    """Ask for deliveries that failed and that this installation does not have; return 0: they come later."""
    since = timezone.now() - timedelta(days=DELIVERY_DAYS)
    tries: Counter[str] = Counter()
    newest: dict[str, int] = {}
    with _permitted(gate.name_of(host.app_dependency)):
        for page in islice(host.failed_deliveries(), MAX_PAGES):
            for failed in page:
                if failed.at > since:
                    tries[failed.delivery_id] += 1
                    newest.setdefault(failed.delivery_id, failed.number)
            if not page or page[-1].at <= since:
                break
        known = HostDelivery.objects.filter(host=host.name, delivery_id__in=newest)
        known_ids = set(known.values_list("delivery_id", flat=True))
        wanted = [guid for guid in newest if guid not in known_ids and tries[guid] < MAX_TRIES]
        for guid in wanted[:MAX_AGAIN]:
            host.deliver_again(newest[guid])
            time.sleep(outbox.scaled(_WRITE_SECONDS))
    log.info("webhooks_asked_again", asked=len(wanted[:MAX_AGAIN]), failed=len(tries))
    return 0


def _repositories(host: GitHubHost) -> list[Repository]:
    """Return the enabled repositories that are known: from events, and those that a variable names."""
    found: dict[str, int] = {
        name: 0 for name in settings.GITHUB_REPOSITORIES if not any(sign in name for sign in "*?[")
    }
    seen = HostDelivery.objects.filter(host=host.name).exclude(repository_id=None)
    changes = HostChange.objects.filter(host=host.name).exclude(state=HostChange.State.REMOVED)
    for rows in (seen.order_by("pk"), changes.order_by("pk")):
        for name, number in rows.values_list("full_name", "repository_id").distinct():
            assert number is not None
            found[name.lower()] = number
    made = []
    for name, number in found.items():
        try:
            if config.is_enabled_repository(host.name, name):
                made.append(host.repository(name, number))
        except ValueError:
            continue
    random.shuffle(made)
    return made[:MAX_REPOSITORIES]


def _compare(host: GitHubHost, repository: Repository) -> int:
    """Take in what differs from what is known of a repository's open pull requests; count its reviews."""
    missing = 0
    with _permitted(gate.name_of(host.dependency(repository.name))):
        events = [event for page in islice(host.open_pulls(repository), MAX_PAGES) for event in page]
    for event in events:
        if _is_known(host.name, event):
            continue
        assert event.repository is not None
        assert isinstance(event.asked, (Wanted, Noted))
        pull = event.asked.pull
        at = f"{pull.reported_at.timestamp():.0f}"
        found = f"poll:{event.repository.number}#{pull.number}:{at}:{pull.head_sha}"
        answer = pull_requests.receive(host.name, found[:128], event)
        if answer.job_id is not None and not answer.is_duplicate:
            missing += 1
            log.warning("head_found_without_webhook", job=answer.job_id, pull_request=pull.number)
    return missing


def _is_known(host: str, event: HostEvent) -> bool:
    """Say whether a pull request is known as it is, or as it was reported later."""
    if event.repository is None or not isinstance(event.asked, (Wanted, Noted)):
        return True
    pull = event.asked.pull
    known = HostChange.objects.filter(
        host=host, repository_id=event.repository.number, number=pull.number
    ).first()
    if known is None:
        return False
    is_same = (known.head_sha, known.base_ref, known.state) == (pull.head_sha, pull.base_ref, pull.state)
    return is_same or known.reported_at > pull.reported_at
