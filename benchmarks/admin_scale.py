"""Speed of the admin's pages with a million jobs and two hundred thousand dead letters.

Server time: a request through the whole middleware, in this process, to the end of its rendering.
The peer is the stock admin (`benchmarks.stock_admin`) on the same rows in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from benchmarks import ground
from benchmarks.figures import Figure, Must, emit, percentile, say
from benchmarks.ground import CannotRun

BOUND_MS = 150.0
OURS = {"HTTP_HOST": "localhost"}
PEER = "stock Django admin"
_WARM = 2
_NEXT = re.compile(r'rel="next" href="(\?[^"]+)"')

LETTERS, GROUPS = "deadletters/deadletter/", "deadletters/deadlettergroup/"
JOBS, ATTEMPTS = "reviews/reviewjob/", "reviews/attempt/"
DELIVERIES = "notifications/delivery/"


@dataclass(frozen=True, slots=True)
class Page:
    """A kind of page: the addresses that are asked for, ours and the peer's ("" for none)."""

    figure: str
    ours: Sequence[str]
    peer: Sequence[str] = ()
    follows: int = 0  # next pages


def pages(last: int) -> list[Page]:
    """Return the pages that are measured; `last` is the highest id of a job."""
    from deadletters.models import DeadLetter, DeadLetterGroup

    letters = list(DeadLetter.objects.order_by("-id").values_list("pk", flat=True)[:60:6])
    groups = list(DeadLetterGroup.objects.order_by("-total_count").values_list("pk", flat=True)[:10])
    jobs = [int(last * share / 11) for share in range(1, 11)]
    return [
        Page("group_list", _searches(GROUPS, "", "state:open", "stage:llm", "is:open", "age:<7d"),
             _filters(GROUPS, {}, {"status": "open"}, {"stage": "llm"}), follows=3),
        Page("group_page", [f"{GROUPS}{pk}/change/" for pk in groups],
             [f"{GROUPS}{pk}/change/" for pk in groups]),
        Page("letter_list", _searches(LETTERS, ""), _filters(LETTERS, {}), follows=10),
        Page("letter_list_filtered",
             _searches(LETTERS, "state:new", "state:triaged", "state:resolved", "stage:llm state:new age:>2d",
                       "error:RATE_LIMITED state:new", "severity:critical age:<7d", "is:escalated",
                       "error:WORKER_LOST stage:llm -severity:low", "category:data state:resolved",
                       "state:verifying", "replays:>0", "code:CRITICIZER_E702"),
             _filters(LETTERS, {"status": "new"}, {"status": "triaged"}, {"status": "resolved"},
                      {"stage": "llm", "status": "new"}, {"error_class": "RATE_LIMITED", "status": "new"},
                      {"severity": "critical"}, {"error_class": "WORKER_LOST", "stage": "llm"}),
             follows=2),
        Page("letter_search",
             _searches(LETTERS, *(f"cl:{100_000 + pk}" for pk in jobs), *(f"job:{pk}" for pk in jobs[:4])),
             _searches(LETTERS, *(str(100_000 + pk) for pk in jobs[:3]), "RATE_LIMITED")),
        Page("letter_page", [f"{LETTERS}{pk}/change/" for pk in letters],
             [f"{LETTERS}{pk}/change/" for pk in letters]),
        Page("job_list", _searches(JOBS, "", by=("newest", "oldest", "finished")), _filters(JOBS, {}),
             follows=10),
        Page("job_list_filtered",
             _searches(JOBS, "state:succeeded", "state:dead_lettered", "state:timed_out", "state:cancelled",
                       "is:active", "is:late", "age:<2h", "age:>20d", "state:dead_lettered age:<1d",
                       "error:RATE_LIMITED", "stage:llm error:WORKER_LOST", "finished:<1h -state:succeeded"),
             _filters(JOBS, {"status": "succeeded"}, {"status": "dead_lettered"}, {"status": "timed_out"},
                      {"status": "queued"}, {"is_late__exact": "1"}),
             follows=2),
        Page("job_search",
             _searches(JOBS, "fix", "reader ann", "Speed cache", "900000", "cl:123456", "key:bench-77777",
                       "state:dead_lettered physics eve", "rename shader gus -state:succeeded", "nowhere"),
             _searches(JOBS, "fix", "reader ann", "900000", "nowhere")),
        Page("job_page", [f"{JOBS}{pk}/change/" for pk in jobs],
             [f"{JOBS}{pk}/change/" for pk in jobs[:4]]),
        Page("now", [""]),
        Page("dashboard", ["?window=1h", "?window=24h", "?window=7d", "dashboard/?window=24h"]),
        Page("attempts",
             _searches(ATTEMPTS, "", "outcome:failed age:<1d", "error:RATE_LIMITED age:<1d", "stage:notify",
                       "error:TOKEN_LIMIT age:<7d"), follows=2),
        Page("deliveries",
             _searches(DELIVERIES, "", "state:failed", "state:uncertain", "mail:ann@example.com",
                       "mail:nobody@example.com", "cl:123456", "state:failed age:<1d", "id:n-77"),
             follows=2),
    ]  # fmt: skip


def _searches(table: str, *searches: str, by: Sequence[str] = ("",)) -> list[str]:
    made = []
    for search, order in itertools.product(searches, by):
        query = {**({"q": search} if search else {}), **({"by": order} if order else {})}
        made.append(f"{table}?{urlencode(query)}" if query else table)
    return made


def _filters(table: str, *filters: dict[str, str]) -> list[str]:
    return [f"{table}?{urlencode(one)}" if one else table for one in filters]


def ask(client: Any, address: str) -> tuple[float, str]:
    """Return the milliseconds that an answer took, and its text.

    Raises CannotRun unless the status is 200.
    """
    started = time.perf_counter()
    response = client.get(address, **OURS)
    milliseconds = (time.perf_counter() - started) * 1000
    if response.status_code != 200:
        raise CannotRun(f"{address} answered {response.status_code}")
    return milliseconds, response.content.decode()


def _walk(client: Any, root: str, page: Page, addresses: Sequence[str]) -> Iterator[tuple[float, str]]:
    for address in addresses:
        milliseconds, text = ask(client, root + address)
        yield milliseconds, address
        if "This takes too long to find" in text or "The search took too long" in text:
            raise CannotRun(f"{address} was given up")
        for _ in range(page.follows):
            found = _NEXT.search(text)
            if found is None:
                break
            address = address.partition("?")[0] + found[1].replace("&amp;", "&")
            milliseconds, text = ask(client, root + address)
            yield milliseconds, address


def measure(client: Any, page: Page, rounds: int, root: str = "/admin/") -> Figure:
    """Measure a kind of page, ours and the peer's, in turns.

    `root` is where our addresses begin.
    """
    ours: list[tuple[float, str]] = []
    for _ in range(_WARM):
        ask(client, root + page.ours[0])
    for _ in range(rounds):
        ours += _walk(client, root, page, page.ours)
    peer: list[float] = []
    if page.peer:
        ask(client, "/stock/" + page.peer[0])
        peer = [milliseconds for milliseconds, _ in _walk(client, "/stock/", page, page.peer)]
    worst = max(ours)
    p95 = percentile([milliseconds for milliseconds, _ in ours], 95)
    say(
        f"  {page.figure}: {len(ours)} requests, p50 {percentile([m for m, _ in ours], 50):.0f} ms, "
        f"p95 {p95:.0f} ms, worst {worst[0]:.0f} ms ({worst[1]})"
        + (f"; {PEER} p95 {percentile(peer, 95):.0f} ms of {len(peer)}" if peer else "")
    )
    return Figure(
        f"{root.strip('/') or 'pages'}_{page.figure}_p95",
        p95,
        "ms",
        PEER if peer else None,
        percentile(peer, 95) if peer else None,
        lower_is_better=True,
        must=Must("value", "<=", BOUND_MS),
    )


def run(rounds: int, chosen: Callable[[str], bool] = lambda _: True) -> list[Figure]:
    """Measure every kind of page as an operator who may see everything."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    from reviews.models import ReviewJob

    user, _ = get_user_model().objects.get_or_create(
        username="ann", defaults={"is_staff": True, "is_superuser": True}
    )
    client = Client(raise_request_exception=True)
    client.force_login(user)
    measured = pages(ReviewJob.objects.latest("id").pk)
    return [measure(client, page, rounds) for page in measured if chosen(page.figure)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--letters", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    from benchmarks import admin_load

    with ground.prepared({"BENCHMARK_URLCONF": "benchmarks.stock_admin"}):
        say(f"admin_scale: loading {given.jobs} jobs and {given.letters} dead letters")
        admin_load.load(given.jobs, given.letters)
        say("admin_scale: measuring")
        emit(run(given.rounds))


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        sys.exit(f"admin_scale: {error}")
