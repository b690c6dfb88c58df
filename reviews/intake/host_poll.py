"""Poll of code hosts: pull requests whose webhooks were lost are reviewed all the same.

    failed deliveries   of the last three days, which this installation does not have, are asked for again
                        where the host tells of them (`Redelivers`)
    open pull requests  whose head, base or state is not the one that is known are taken in as if their
                        webhook had come

Both end in `pull_requests.receive`, which knows a head that is found twice (guarantees G241, G315). A limit
is waited for by the next run; each run is bounded.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice

import structlog
from django.conf import settings
from django.db.models import F, Max
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.codehosts.base import Host, Redelivers
from criticizer.codehosts.events import HostEvent, Noted, Wanted
from criticizer.codehosts.names import Repository, has_no_wildcard
from criticizer.codehosts.registry import repositories_variable
from criticizer.queue import outbox
from criticizer.queue.periodic import Pause, PeriodicTask
from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.exchange import one_call
from criticizer.resilience.failures import Component, DependencyUnavailable, Failure
from notifications.config import connected_hosts
from reviews import config
from reviews.intake import pull_requests
from reviews.intake.review_requests import Overtaken
from reviews.models import HostChange, HostDelivery, SourcePosition

log = structlog.get_logger(__name__)

CLOCK = PeriodicTask("host_poll", "poll_hosts")
RUN_SECONDS = 240.0
MAX_REPOSITORIES = 200  # of one run, in random order
MAX_PAGES = 10  # of one list, a hundred each
DELIVERY_DAYS = 3  # for so long a host delivers again
MAX_AGAIN = 20  # deliveries asked for in one run
MAX_TRIES = 3  # of one delivery
_FAILED = "failed webhooks"  # the part of a run that asks for them
_WRITE_SECONDS = 1.0  # between two writes


def ensure() -> None:
    """Start or stop the clock (SOURCE_POLL_SECONDS, credentials of a host). Run by maintenance."""
    CLOCK.ensure(is_enabled=settings.SOURCE_POLL_SECONDS > 0 and bool(connected_hosts(Component.SOURCE)))


def run_due() -> Pause:
    """Run once; return when the next run is due."""
    run()
    return Pause(settings.SOURCE_POLL_SECONDS)


def run() -> int:
    """Poll once; return how many reviews were missing. Lets database errors through."""
    until = time.monotonic() + RUN_SECONDS
    hosts = list(connected_hosts(Component.SOURCE).values())
    return sum(_poll(host, until) for host in random.sample(hosts, len(hosts)))


def _poll(host: Host, until: float) -> int:
    missing = 0
    if isinstance(host, Redelivers):
        _part(_stream(host, _FAILED), partial(_deliver_again, host.name, host))
    known = known_repositories(host)
    for repository in chosen(host, known):
        if time.monotonic() > until:
            break
        missing += _part(_stream(host, repository.name), partial(_compare, host, repository))
    # What is polled no longer has no problem with its poll.
    polled = [_stream(host, name) for name in (_FAILED, *known)]
    gone = SourcePosition.objects.filter(stream__startswith=_stream(host, "")).exclude(stream__in=polled)
    gone.exclude(problem="").update(problem="")
    return missing


def _stream(host: Host, name: str) -> str:
    return f"{host.name} {name}"[:192]


def _part(stream: str, work: Callable[[], int]) -> int:
    """Do one part of a run and record how it ended.

    A part that fails or waits does not stop the others.
    """
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
        log.warning("host_poll_stopped", part=stream, reason=clean(problem, 300))
    counted = {"missing": F("missing") + missing, "last_missing_at": Now()} if missing else {}
    position, _ = SourcePosition.objects.get_or_create(stream=stream)
    SourcePosition.objects.filter(pk=position.pk).update(
        polled_at=Now(), problem=clean(problem, 500), **counted
    )
    return missing


def _deliver_again(name: str, host: Redelivers) -> int:
    """Ask for failed deliveries that this installation does not have; return 0.

    The reviews come later, with the deliveries.
    """
    since = timezone.now() - timedelta(days=DELIVERY_DAYS)
    tries: Counter[str] = Counter()
    newest: dict[str, int] = {}
    dependency = gate.name_of(host.app_dependency)
    with gate.guarded(dependency, acquire=gate.acquire_paced_permit), one_call():
        for page in islice(host.failed_deliveries(), MAX_PAGES):
            for failed in page:
                if failed.at > since:
                    tries[failed.delivery_id] += 1
                    newest.setdefault(failed.delivery_id, failed.number)
            if not page or page[-1].at <= since:
                break
        known = HostDelivery.objects.filter(host=name, delivery_id__in=newest)
        known_ids = set(known.values_list("delivery_id", flat=True))
        wanted = [guid for guid in newest if guid not in known_ids and tries[guid] < MAX_TRIES]
        for guid in wanted[:MAX_AGAIN]:
            host.deliver_again(newest[guid])
            time.sleep(outbox.scaled(_WRITE_SECONDS))
    log.info("webhooks_asked_again", asked=len(wanted[:MAX_AGAIN]), failed=len(tries))
    return 0


def known_repositories(host: Host) -> dict[str, int]:
    """Return the names and ids of the known repositories.

    They are those of events, and those that a variable names.
    """
    newest: dict[int, str] = {}
    seen = HostDelivery.objects.filter(host=host.name).exclude(repository_id=None)
    changes = HostChange.objects.filter(host=host.name).exclude(state=HostChange.State.REMOVED)
    for rows in (seen, changes):
        named = rows.values_list("repository_id", "full_name").annotate(newest=Max("pk"))
        for number, name, _ in named.order_by("newest"):
            assert number is not None
            newest[number] = name.lower()
    enabled = getattr(settings, repositories_variable(host.name))
    settled = [name.lower() for name in enabled if has_no_wildcard(name)]
    return {**dict.fromkeys(settled, 0), **{name: number for number, name in newest.items()}}


def chosen(host: Host, known: Mapping[str, int]) -> Iterator[Repository]:
    """Yield the enabled of the known repositories in random order, at most MAX_REPOSITORIES."""
    made = 0
    for name in random.sample(list(known), len(known)):
        if made == MAX_REPOSITORIES:
            return
        with suppress(ValueError):  # no name of a repository
            if config.is_enabled_repository(host.name, name):
                yield host.repository(name, known[name])
                made += 1


def _compare(host: Host, repository: Repository) -> int:
    """Take in the open pull requests that are not known as they are; count the new reviews."""
    missing = 0
    dependency = gate.name_of(host.dependency(repository.name))
    with gate.guarded(dependency, acquire=gate.acquire_paced_permit), one_call():
        events = [event for page in islice(host.open_pulls(repository), MAX_PAGES) for event in page]
    found = [
        (event.repository.number, event.asked.pull.number)
        for event in events
        if event.repository is not None and isinstance(event.asked, (Wanted, Noted))
    ]
    rows = HostChange.objects.filter(
        host=host.name, repository_id__in={one for one, _ in found}, number__in=[one for _, one in found]
    )
    changes = {(row.repository_id, row.number): row for row in rows}
    for event in events:
        if _is_known(changes, event):
            continue
        assert event.repository is not None
        assert isinstance(event.asked, (Wanted, Noted))
        pull = event.asked.pull
        at = f"{pull.reported_at.timestamp():.0f}"
        delivery = f"poll:{event.repository.number}#{pull.number}:{at}:{pull.head_sha}"
        answer = pull_requests.receive(host.name, delivery[:128], event)
        if answer.job_id is not None and not answer.is_duplicate:
            missing += 1
            log.warning("head_found_without_webhook", job=answer.job_id, pull_request=pull.number)
    return missing


def _is_known(changes: Mapping[tuple[int, int], HostChange], event: HostEvent) -> bool:
    """Return whether a pull request is known as it is, or as it was reported later."""
    if event.repository is None or not isinstance(event.asked, (Wanted, Noted)):
        return True
    pull = event.asked.pull
    known = changes.get((event.repository.number, pull.number))
    if known is None:
        return False
    is_same = (known.head_sha, known.base_ref, known.state) == (pull.head_sha, pull.base_ref, pull.state)
    return is_same or known.reported_at > pull.reported_at
