"""Pictures of the pages, taken only on request.

CRITICIZER_SCREENSHOTS=directory python -m pytest tests/browser/test_screenshots.py

With the directory docs/images and `-k readme`, the pictures of README and docs/mail.md are made again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import Group

from deadletters import batches
from deadletters.models import DeadLetter
from notifications.preferences import unsubscribe
from reviews.models import ReviewJob
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import PICTURES, picture
from tests.links import path_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PICTURES, reason="pictures are taken only with CRITICIZER_SCREENSHOTS=directory"),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_the_readme_of_a_review(visit: Visit, scheme: str) -> None:
    scenes.live_workers()
    job = scenes.finished_review()
    job.findings.exclude(severity__in=["critical", "high"]).delete()  # what is worth a newcomer's look
    bob = scenes.bob()
    bob.groups.add(Group.objects.get(name="reviewer"))
    page = visit(f"/reviews/{job.pk}/", bob, scheme=scheme)
    page.set_viewport_size({"width": 1280, "height": 1080})
    page.screenshot(path=Path(PICTURES) / f"review-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_the_readme_of_the_admin(visit: Visit, scheme: str) -> None:
    scenes.live_workers()
    scenes.failures()
    letter = DeadLetter.objects.get(status="remediated", error_class="AUTH_DENIED")
    page = visit(f"/admin/deadletters/deadletter/{letter.pk}/change/", scenes.ann("operator"), scheme=scheme)
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.screenshot(path=Path(PICTURES) / f"admin-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_the_readme_of_a_mail(visit: Visit, scheme: str) -> None:
    delivery = scenes.delivery_with_message()
    ann = scenes.ann(is_superuser=True)
    page = visit(f"/admin/deliveries/{delivery.pk}/message/html/", ann, scheme=scheme)
    page.set_viewport_size({"width": 780, "height": 1000})
    page.screenshot(path=Path(PICTURES) / f"mail-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_of_messages_and_providers(visit: Visit, width: int, scheme: str) -> None:
    delivery = scenes.delivery_with_message()
    ann = scenes.ann(is_superuser=True)
    for name, path in (
        ("mail", f"/admin/deliveries/{delivery.pk}/message/html/"),
        ("message", f"/admin/deliveries/{delivery.pk}/message/"),
        ("providers", "/admin/providers/"),
        ("unsubscribe", path_of(unsubscribe.link(delivery.recipient, delivery.token))),
    ):
        page = visit(path, ann, width=width, scheme=scheme)
        page.set_viewport_size({"width": width, "height": 3000})  # frames off the screen are not painted
        for frame in page.frames[1:]:
            frame.wait_for_selector("h1")
        picture(page, f"{name}-{width}-{scheme}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_of_all_pages(visit: Visit, width: int, scheme: str) -> None:
    ann = scenes.ann(is_superuser=True)

    def take(name: str, path: str, *, anonymous: bool = False) -> None:
        page = visit(path, None if anonymous else ann, width=width, scheme=scheme)
        picture(page, f"{name}-{width}-{scheme}")

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_of_the_dead_letters(visit: Visit, width: int, scheme: str) -> None:
    ann = scenes.ann("operator")
    base = "/admin/deadletters"

    def take(name: str, path: str, press: str = "") -> None:
        page = visit(path, ann, width=width, scheme=scheme)
        if press:
            page.get_by_role("button", name=press).first.click()
        picture(page, f"{name}-{width}-{scheme}")

    take("groups-empty", f"{base}/deadlettergroup/")
    scenes.live_workers()
    letter = scenes.failures()
    take("groups", f"{base}/deadlettergroup/")
    take("group", f"{base}/deadlettergroup/{letter.group_id}/change/")
    take("group-snooze", f"{base}/deadlettergroup/{letter.group_id}/change/", "Snooze")
    take("letters", f"{base}/deadletter/")
    for status in ("new", "triaged", "remediated", "validated"):
        found = DeadLetter.objects.get(status=status, error_class="AUTH_DENIED")
        take(f"letter-{status}", f"{base}/deadletter/{found.pk}/change/")
    take("letter-discard", f"{base}/deadletter/{letter.pk}/discard/")
    take("letters-triage", f"{base}/deadlettergroup/{letter.group_id}/change/", "Triage 1")
    take("batches-empty", f"{base}/replaybatch/")
    ids = list(DeadLetter.objects.filter(group=letter.group).values_list("pk", flat=True))
    batch = batches.draft(filter={"groups": [letter.group_id]}, ids=ids, actor="ann", reason="OPS-7: mended")
    batches.dry_run(batch.pk)
    take("batch-draft", f"{base}/replaybatch/{batch.pk}/change/")
    batches.configure(batch.pk, actor="ann", evidence_note="the key was rotated")
    batches.submit(batch.pk, actor="ann")
    take("batch-running", f"{base}/replaybatch/{batch.pk}/change/")
    take("batch-cancel", f"{base}/replaybatch/{batch.pk}/cancel/")
    take("batches", f"{base}/replaybatch/")
