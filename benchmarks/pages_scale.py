"""Speed of reviewers' pages: a large review, a million findings, both lists, the admin.

Server time as in `admin_scale`, and the first paint in Chromium from the product's web server, where
Playwright is installed. `--data DIR` keeps the database there, so that a second run measures at once.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks import admin_load, admin_scale, ground, pages_load
from benchmarks.admin_scale import Page
from benchmarks.figures import Figure, Must, emit, percentile, say
from benchmarks.ground import CannotRun, Ground, until
from benchmarks.intake import serves
from criticizer.workers.supervisor import web
from reviews.demo import free_port

PAINT_MS = 1000.0
_PAINTS = "performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)"


def pages(large: int) -> list[Page]:
    """Return what is measured; `large` is the id of the newer version of the large change."""
    old = (datetime.now(UTC) - timedelta(days=25)).date()
    middle = old + timedelta(days=13)
    narrowed = (
        *(
            "severity=critical",
            "category=concurrency",
            "author=ann",
            "source=check",
            "path=//bench/value/src/",
        ),
        *("verdict=useful", "verdict=open", f"until={old}", f"since={middle}&until={middle}"),
        *(f"until={old}&severity=critical", "severity=critical&category=concurrency"),
        *("severity=critical&category=secret&author=ann&source=check", "category=nothing", "author=nobody"),
        *("path=//bench/value/src/check/check_2&severity=critical", "verdict=wrong&severity=critical"),
    )
    words = (
        *("text=value", "text=parser_41", "text=nowhere", "text=value+check", "text=shader+vertex"),
        *("text=replay+packet", "text=divide+by+null", f"until={old}&text=shader+vertex", "text=s+e+r"),
        *("author=ann&text=shader+vertex", "verdict=wrong&text=shader", "severity=critical&text=query+lock"),
    )
    return [
        Page(
            "review", [f"reviews/{large}/", f"reviews/{large}/?view=findings", f"reviews/{large}/?view=files"]
        ),
        Page("compare", [f"reviews/{large}/compare/", f"reviews/{large}/compare/?files=50&findings=50"]),
        Page("findings", ["findings/", *(f"findings/?{query}" for query in narrowed)], follows=2),
        Page("findings_search", [f"findings/?{query}" for query in words], follows=2),
        Page("list", ["", *(f"?{query}" for query in narrowed)], follows=2),
    ]


@contextmanager
def _chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    with sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, names)), None)
        yield playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])


def paint(place: Ground, session: Any, measured: Sequence[Page], rounds: int) -> list[Figure]:
    """Measure the first paint of the first address of each page, from the product's web server."""
    if importlib.util.find_spec("playwright") is None:
        say("  first paint: not measured, Playwright is not installed")
        return []
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    made = []
    with place.running([web("127.0.0.1", port, place.environment)]):
        until(lambda: serves(port), 30, "the web server")
        with _chromium() as browser:
            context = browser.new_context(base_url=base, viewport={"width": 1280, "height": 900})
            context.add_cookies([{"name": session.key, "value": session.value, "url": base}])
            for page in measured:
                address = f"/{page.ours[-1]}"
                times = [_paint(context, address) for _ in range(rounds + 1)][1:]  # the first one warms
                made.append(
                    Figure(
                        f"pages_{page.figure}_first_paint", percentile(times, 95), "ms",
                        lower_is_better=True, must=Must("value", "<=", PAINT_MS),
                    )
                )  # fmt: skip
                say(f"  first paint of {address}: {', '.join(f'{time:.0f}' for time in times)} ms")
    return made


def _paint(context: Any, address: str) -> float:
    page = context.new_page()
    page.goto(address)
    times: list[float] = []
    while not times:  # it comes soon after, if at all
        times = page.evaluate(_PAINTS)
    page.close()
    return times[0]


def run(place: Ground, rounds: int) -> list[Figure]:
    """Measure as an operator who may see everything."""
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.test import Client

    from reviews.models import ReviewJob

    fields = {"is_staff": True, "is_superuser": True}
    user, _ = get_user_model().objects.get_or_create(username="ann", defaults=fields)
    client = Client()
    client.force_login(user)
    gc.freeze()  # as the web server does
    measured = pages(ReviewJob.objects.get(idempotency_key=pages_load.LARGE).pk)
    figures = [admin_scale.measure(client, page, rounds, root="/") for page in measured]
    figures.append(admin_scale.measure(client, Page("now", [""] * 10), rounds))
    return figures + paint(place, client.cookies[settings.SESSION_COOKIE_NAME], measured, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--findings", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a directory that keeps the database for another run")
    given = parser.parse_args()
    # Django's connections are of the thread that Playwright's loop runs in.
    with ground.prepared(
        {"DJANGO_ALLOW_ASYNC_UNSAFE": "true"}, given.data and given.data.absolute()
    ) as place:
        if not pages_load.is_loaded():
            say(f"pages_scale: loading {given.jobs} jobs and {given.findings} findings")
            admin_load.load(given.jobs, given.jobs // 10)
            pages_load.load(given.findings)
        say("pages_scale: measuring")
        emit(run(place, given.rounds))


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        sys.exit(f"pages_scale: {error}")
