"""A reviewer's work in a browser: reach a finding by keyboard, judge it, see it kept, take it away."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import Page, expect

from reviews.models import FindingEvent, ReviewJob
from reviews.recipients import verdict_links
from reviews.reports import messages_for, report_of
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import LOOKS, axe_says, is_too_wide, picture, structure
from tests.changes import store_diff
from tests.reviewers.build import added

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

FILES, CRITICAL = 49, 9


def large_review() -> ReviewJob:
    """Return a review of 49 files with 48 findings, nine of them critical."""
    job: ReviewJob = factories.job_with_stages(
        changelist_id="48213",
        title="Charge stored cards through the new gateway",
        author="bob",
        status="succeeded",
    )
    files = [f"//shop/payments/part{number:02}.py" for number in range(FILES)]
    store_diff(job, *(added(file, "import os\n\nos.remove('x')\n") for file in files))
    for file in files:
        factories.CoverageRowFactory(job=job, file=file)
    for number in range(FILES - 1):
        factories.FindingRowFactory(
            job=job,
            file=files[number],
            line=3,
            end_line=3,
            severity="critical" if number < CRITICAL else ("high", "medium", "low")[number % 3],
            title=f"Remark {number + 1}: the file may be gone",
        )
    return job


def next_version(job: ReviewJob) -> ReviewJob:
    """Return version 2, which reports the same findings."""
    later: ReviewJob = factories.job_with_stages(
        changelist_id=job.changelist_id,
        review_version=2,
        title=job.title,
        status="succeeded",
        compared_with=1,
    )
    for row in job.findings.all():
        fields = {
            name: getattr(row, name) for name in ("file", "line", "end_line", "severity", "title", "identity")
        }
        factories.FindingRowFactory(job=later, is_new=False, **fields)
        factories.CoverageRowFactory(job=later, file=row.file)
    return later


def reviewer(**fields: Any) -> Any:
    user = factories.UserFactory(username="bob", **fields)
    user.groups.add(Group.objects.get(name="reviewer"))
    return user


def focused(page: Page) -> str:
    found: str = page.evaluate("document.activeElement.querySelector('h4')?.textContent || ''")
    return found


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_the_seventh_critical_finding_is_judged_by_keyboard_and_stays_so(
    visit: Visit, tmp_path: Path
) -> None:
    scenes.live_workers()
    job = large_review()
    page = visit(f"/reviews/{job.pk}/?view=findings", reviewer())
    press(page, *"nnnnnnn")
    assert focused(page) == "Remark 7: the file may be gone"
    press(page, "f")
    page.keyboard.type("we own that file")
    press(page, "Enter")
    row = job.findings.get(title__startswith="Remark 7:")
    expect(page).to_have_url(re.compile(rf"view=findings#finding-{row.pk}$"))
    card = page.locator(f"#finding-{row.pk}")
    expect(card.locator("summary").first).to_contain_text("Dismissed: won't fix by bob")
    expect(card).to_be_focused()
    expect(page.get_by_text("8 critical")).to_be_visible()
    expect(page.get_by_role("link", name="1 dismissed")).to_be_visible()

    later = next_version(job)
    page.goto(f"/reviews/{later.pk}/")
    expect(page.get_by_text("8 critical")).to_be_visible()
    page.locator("#group-dismissed > summary").click()
    kept = page.locator("#group-dismissed article")
    expect(kept).to_contain_text("Remark 7")
    expect(kept.locator("summary").first).to_contain_text("we own that file")
    with page.expect_download() as download:
        page.get_by_role("link", name="SARIF").click()
    download.value.save_as(tmp_path / "found.sarif")
    results = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"]
    assert len(results) == FILES - 1
    assert sum(bool(result["suppressions"]) for result in results) == 1

    page.get_by_role("link", name="Findings", exact=True).click()
    page.get_by_label("Words").fill("remark part06")
    page.get_by_text("More filters").click()
    page.get_by_label("Verdict").select_option("wont_fix")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("we own that file")
    picture(page, "findings-1280-light")
    page.get_by_role("link", name="Remark 7").click()
    page.goto(f"/reviews/{later.pk}/?view=findings")
    page.locator("#group-dismissed > summary").click()
    kept.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("9 critical")).to_be_visible()


def test_single_keys_can_be_turned_off(visit: Visit) -> None:
    job = scenes.finished_review()
    page = visit(f"/reviews/{job.pk}/", reviewer())
    press(page, "?")
    page.get_by_label("Single keys are on").uncheck()
    page.get_by_role("button", name="Close").click()
    press(page, "n", "w")
    page.reload()
    press(page, "n", "w", "?")
    expect(page.get_by_role("dialog")).not_to_be_visible()
    assert page.locator(".finding.is-current").count() == 0
    page.locator("#keys-help").click()
    page.get_by_label("Single keys are on").check()
    page.get_by_role("button", name="Close").click()
    press(page, "n", "u")
    expect(page.get_by_text("Marked as useful by bob")).to_be_visible()
    assert FindingEvent.objects.get().kind == "useful"


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_pages_of_a_finding_break_no_rule(visit: Visit, width: int, scheme: str) -> None:
    scenes.live_workers()
    job = scenes.finished_review()
    bob = reviewer(email="bob@example.com")
    recipient = "mail:bob@example.com"
    message = messages_for(job, {recipient: report_of(job)})[recipient]
    factories.DeliveryFactory(job=job, recipient=recipient, token=message.token)
    row = job.findings.get(severity="critical")
    page = visit(f"/reviews/{job.pk}/findings/{row.pk}/", bob, width=width, scheme=scheme, expects="inline")
    page.get_by_role("textbox", name="Comment").fill("Is the key really new?\n<b>I think so.</b>")
    page.get_by_role("button", name="Add comment").click()
    expect(page.get_by_text("<b>I think so.</b>")).to_be_visible()
    page.locator(".verdict details > summary").click()
    assert rules_broken(page) == []
    picture(page, f"finding-{width}-{scheme}")
    page.get_by_role("button", name="Wrong").first.click()
    expect(page.locator(".finding summary").first).to_contain_text("Dismissed as wrong by bob")
    page.goto(f"/reviews/{job.pk}/")
    assert rules_broken(page) == []
    picture(page, f"review-dismissed-{width}-{scheme}")
    page.context.clear_cookies()
    page.goto(urlsplit(verdict_links.link(row.pk, message.token, scenes.now())).path)
    assert rules_broken(page) == []
    picture(page, f"verdict-link-{width}-{scheme}")
    page.get_by_label("Why it will not be fixed").fill("the gateway refuses doubles")
    page.get_by_role("button", name="Won").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Your verdict is saved")
    assert rules_broken(page) == []


def rules_broken(page: Page) -> list[str]:
    return [*structure(page), *axe_says(page), *(["too wide"] if is_too_wide(page) else [])]
