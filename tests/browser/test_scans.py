"""The pages of scans in a browser: on a telephone and wide, light and dark, by their links."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from reviews.models import ReviewJob
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import LOOKS, ask_now, axe_says, is_too_wide, picture, structure

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_reader_follows_a_path_to_its_claims_and_its_history(visit: Visit, width: int, scheme: str) -> None:
    scenes.live_workers()
    scenes.scans()
    page = visit("/scans/", scenes.bob(), width=width, scheme=scheme, expects="inline")
    assert (structure(page), is_too_wide(page), axe_says(page)) == ([], False, [])
    picture(page, f"scans-{width}-{scheme}")
    page.get_by_role("link", name="//shop/...").click()
    expect(page.get_by_text("Scan timed out after verifying 4 of 7 claims.")).to_be_visible()
    expect(page.get_by_text("src/payments/gateway.py")).to_be_visible()
    wrong = [said for said in structure(page) if "svg" not in said]  # a chart is named by two elements
    assert (wrong, is_too_wide(page), axe_says(page)) == ([], False, [])
    picture(page, f"scan-{width}-{scheme}")
    page.get_by_role("link", name="Refuted 1 claim").click()
    expect(page.get_by_text("make lint")).to_have_count(0)
    page.get_by_role("region", name="History").get_by_role("rowheader").last.get_by_role("link").click()
    expect(page.get_by_text("2 of 2").or_(page.get_by_text("4 of 4")).first).to_be_visible()
    assert not is_too_wide(page)


@pytest.mark.long
def test_the_page_of_a_running_scan_shows_each_document_as_it_is_verified(visit: Visit) -> None:
    scenes.live_workers()
    target = scenes.scans(newest="in_progress")
    running = target.scans.latest("job_id")
    page = visit(f"/scans/{target.pk}/", scenes.bob(), has_clock=True)
    expect(page.get_by_text("4 of 7 claims verified")).to_be_visible()
    expect(page.get_by_role("button", name="Pause updates")).to_be_visible()
    running.documents.filter(digest="b").update(verified_at=datetime.now(UTC), holds=3)
    ask_now(page)
    expect(page.get_by_text("7 of 7 claims verified")).to_be_visible()
    ReviewJob.objects.filter(pk=running.pk).update(status="succeeded", finished_at=datetime.now(UTC))
    ask_now(page)
    expect(page.get_by_text("A scan is running.")).to_have_count(0)
    expect(page.get_by_role("button", name="Pause updates")).to_be_hidden()
    assert not is_too_wide(page)
