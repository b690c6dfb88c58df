"""Reviewing again and cancelling in a browser; the API's description in both colour schemes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from reviews.models import ReviewJob
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import LOOKS, axe_says, is_too_wide, picture, structure

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def breaks_no_rule(page: Page) -> bool:
    assert structure(page) == []
    assert axe_says(page) == []
    return not is_too_wide(page)


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_operator_reruns_and_cancels_a_review(visit: Visit, width: int, scheme: str) -> None:
    scenes.live_workers()
    job = scenes.finished_review()
    ReviewJob.objects.filter(pk=job.pk).update(
        banner="Only deterministic checks ran. It did not answer. A rerun gets the full review.",
        recipients=["mail:ann@example.com", "webhook:https://ci.example.com/hooks/" + "review/" * 20],
    )
    page = visit(f"/reviews/{job.pk}/", scenes.ann("operator"), width=width, scheme=scheme, expects="inline")
    picture(page, f"actions-review-{width}-{scheme}")
    page.locator(".notice").get_by_role("link", name="Review again").click()
    assert breaks_no_rule(page)
    picture(page, f"again-{width}-{scheme}")
    # A double click sends the form twice.
    page.get_by_role("button", name="Request version 3").dblclick()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Review again")
    assert ReviewJob.objects.filter(changelist_id=job.changelist_id).count() == 3
    expect(page.get_by_role("link", name="Review again")).to_be_visible()
    page.get_by_role("link", name="Cancel this review").click()
    assert breaks_no_rule(page)
    picture(page, f"cancel-{width}-{scheme}")
    page.get_by_label("Reason").fill("asked for by mistake")
    page.get_by_role("button", name="Cancel this review").click()
    expect(page.get_by_text("This review is cancelled: nothing more is sent for it.")).to_be_visible()
    picture(page, f"cancelled-{width}-{scheme}")


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_review_page_explains_missing_recipients(visit: Visit, width: int, scheme: str) -> None:
    job = factories.job_with_stages(status="dead_lettered", recipients=[])
    page = visit(f"/reviews/{job.pk}/", scenes.ann("operator"), width=width, scheme=scheme)
    expect(page.get_by_text("No one was notified: no recipients.")).to_be_visible()
    picture(page, f"no-recipients-{width}-{scheme}")
    page.get_by_role("link", name="Review again").click()
    expect(page.get_by_text("None:")).to_be_visible()
    picture(page, f"again-no-recipients-{width}-{scheme}")


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_api_docs_follow_the_colour_scheme(visit: Visit, width: int, scheme: str) -> None:
    page = visit("/api/docs/", width=width, scheme=scheme)
    page.locator("[id$=reviews_create] .opblock-summary-control").click()
    expect(page.get_by_text("slack:<channel id>").first).to_be_visible()
    red, green, blue = page.evaluate(
        "getComputedStyle(document.querySelector('.swagger-ui')).backgroundColor.match(/\\d+/g).map(Number)"
    )[:3]
    is_dark = scheme == "dark"
    # Light: transparent on the white of the page.
    assert (0 < red + green + blue < 200) == is_dark
    assert not is_too_wide(page)
    picture(page, f"api-docs-{width}-{scheme}")


@pytest.mark.long
def test_the_description_of_the_api_follows_the_chosen_theme(visit: Visit) -> None:
    page = visit("/api/docs/", scheme="light")
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    expect(page.locator("html.dark-mode")).to_be_visible()
