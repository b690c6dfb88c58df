"""Pictures of the pages, taken only on request.

CRITICIZER_SCREENSHOTS=directory python -m pytest tests/browser/test_screens.py

With the directory docs/images and `-k readme`, the pictures of the README are made again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deadletters.models import DeadLetter
from reviews.models import ReviewJob
from tests.browser import scenes
from tests.browser.conftest import Visit

DIRECTORY = os.environ.get("CRITICIZER_SCREENSHOTS", "")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not DIRECTORY, reason="pictures are taken only with CRITICIZER_SCREENSHOTS=directory"),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_the_readme(visit: Visit, scheme: str) -> None:
    scenes.live_workers()
    job = scenes.finished_review()
    page = visit(f"/reviews/{job.pk}/", scenes.bob(), scheme=scheme)
    page.set_viewport_size({"width": 1280, "height": 1080})
    page.screenshot(path=Path(DIRECTORY) / f"review-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_of_all_pages(visit: Visit, width: int, scheme: str) -> None:
    ann = scenes.ann(is_superuser=True)

    def take(name: str, path: str, *, anonymous: bool = False) -> None:
        page = visit(path, None if anonymous else ann, width=width, scheme=scheme)
        page.screenshot(path=Path(DIRECTORY) / f"{name}-{width}-{scheme}.png", full_page=True)

    take("empty", "/")
    scenes.live_workers()
    take("login", "/login/", anonymous=True)
    scenes.list_of_reviews()
    finished = ReviewJob.objects.get(review_version=2)
    take("list", "/")
    take("running", f"/reviews/{ReviewJob.objects.get(changelist_id='48213').pk}/")
    take("done", f"/reviews/{finished.pk}/")
    take("dead", f"/reviews/{ReviewJob.objects.get(changelist_id='48190').pk}/")
    take("admin", "/admin/")
    take("admin-letters", "/admin/deadletters/deadletter/")
    take("admin-letter", f"/admin/deadletters/deadletter/{DeadLetter.objects.get().pk}/change/")
    take("admin-job", f"/admin/reviews/reviewjob/{finished.pk}/change/")
    take("admin-allow", "/admin/reviews/allowlistentry/add/")
