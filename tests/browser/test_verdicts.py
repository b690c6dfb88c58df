"""Verdicts in a browser: reach a finding by keyboard, judge it, take the verdict back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import Page, expect

from reviews import fixes, verdicts
from reviews.models import FindingEvent, ReviewJob
from reviews.recipients import verdict_links
from reviews.reports import messages_for, report_of
from reviews.states import STAGE_ORDER
from tests import factories, sarif
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import LOOKS, axe_says, is_too_wide, picture, structure
from tests.changes import store_diff
from tests.links import path_of
from tests.reviewers.build import added

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

FILES, CRITICAL = 49, 9


def reviewed(**fields: Any) -> ReviewJob:
    job: ReviewJob = factories.ReviewJobFactory(
        changelist_id="48213",
        title="Charge stored cards through the new gateway",
        author="bob",
        status="succeeded",
        **fields,
    )
    for stage in STAGE_ORDER:
        factories.StageRunFactory(job=job, stage=stage, status="succeeded")
    return job


def large_review() -> ReviewJob:
    """Return a review of 49 files with 48 findings, nine of them critical."""
    job = reviewed(review_version=1)
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
    """Return version 2, which reports the same findings; one file differs."""
    later = reviewed(review_version=2, compared_with=1)
    files = sorted(job.coverage.values_list("file", flat=True))
    texts = ["import os\n\nos.remove('y')\n", *["import os\n\nos.remove('x')\n"] * (FILES - 1)]
    store_diff(later, *map(added, files, texts))
    for row in job.findings.all():
        fields = {
            name: getattr(row, name) for name in ("file", "line", "end_line", "severity", "title", "identity")
        }
        factories.FindingRowFactory(job=later, is_new=False, **fields)
    for file in files:
        factories.CoverageRowFactory(job=later, file=file)
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


@pytest.mark.parametrize(
    ("is_alone", "width"), [(False, 390), pytest.param(True, 1280, marks=pytest.mark.long)]
)
def test_enter_in_the_reason_of_a_dismissal_chooses_no_verdict(
    visit: Visit, is_alone: bool, width: int
) -> None:
    scenes.live_workers()
    job = scenes.finished_review()
    row = job.findings.exclude(severity="critical").earliest("pk")
    address = f"/reviews/{job.pk}/findings/{row.pk}/" if is_alone else f"/reviews/{job.pk}/?view=findings"
    page = visit(address, reviewer(), width=width)
    verdict = page.locator(f"#finding-{row.pk} .verdict")
    verdict.locator("summary").click()
    expect(verdict.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("by design")
    press(page, "Enter")
    looks = [
        verdict.get_by_role("button", name=name).evaluate("e => getComputedStyle(e).background + e.className")
        for name in ("Won\N{RIGHT SINGLE QUOTATION MARK}t fix", "Wrong, for this", "Intended, for this")
    ]
    assert len(set(looks)) == 1
    picture(page, f"dismiss-{is_alone}")
    verdict.get_by_role("button", name="Wrong, for this reason").click()
    expect(page.locator(f"#finding-{row.pk} summary").first).to_contain_text("Dismissed as wrong by bob")
    assert list(FindingEvent.objects.values_list("kind", "text")) == [("wrong", "by design")]


@pytest.mark.long
@pytest.mark.browser(seconds=10)
def test_the_seventh_critical_finding_is_judged_by_keyboard_and_stays_so(
    visit: Visit, tmp_path: Path
) -> None:
    scenes.live_workers()
    job = large_review()
    row = job.findings.get(title__startswith="Remark 7:")
    verdicts.give(row, "wont_fix", "ann")  # the first of two people
    page = visit(f"/reviews/{job.pk}/?view=findings", reviewer())
    expect(page.get_by_text("ann wants to dismiss this critical finding")).to_be_visible()
    press(page, *"nnnnnnn")
    assert focused(page) == "Remark 7: the file may be gone"
    press(page, "f")
    page.keyboard.type("we own that file")
    press(page, "Enter")
    expect(page).to_have_url(re.compile(rf"view=findings#finding-{row.pk}$"))
    card = page.locator(f"#finding-{row.pk}")
    expect(card.locator("summary").first).to_contain_text("Dismissed: won't fix by bob")
    expect(card).to_be_focused()
    expect(page.get_by_text("8 critical")).to_be_visible()
    expect(page.get_by_role("link", name="1 dismissed")).to_be_visible()

    later = next_version(job)
    page.goto(f"/reviews/{later.pk}/?view=findings")
    expect(page.get_by_text("8 critical")).to_be_visible()
    page.locator("#group-dismissed > summary").click()
    kept = page.locator("#group-dismissed article")
    expect(kept).to_contain_text("Remark 7")
    expect(kept.locator("summary").first).to_contain_text("we own that file")
    with page.expect_download() as download:
        page.get_by_role("link", name="SARIF").click()
    download.value.save_as(tmp_path / "found.sarif")
    text = (tmp_path / "found.sarif").read_text()
    assert sarif.wrong_in(text) == []
    results = json.loads(text)["runs"][0]["results"]
    assert len(results) == FILES - 1
    assert sum(bool(result["suppressions"]) for result in results) == 1

    press(page, "c")
    expect(page).to_have_url(re.compile(r"/compare/$"))
    expect(page.get_by_text("1 differs, 48 the same in both versions")).to_be_visible()
    assert page.locator(".row.removed, .row.added").all_inner_texts() == [
        "os.remove('x')\n",
        "os.remove('y')\n",
    ]
    expect(page.get_by_role("cell", name="Still there")).to_have_count(FILES - 1)

    page.goto("/findings/")
    page.get_by_text("More filters").click()
    page.get_by_label("Severity").select_option("critical")
    page.get_by_label("Verdict").select_option("wont_fix")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("Remark 7")

    page.get_by_role("link", name="Findings", exact=True).click()
    page.get_by_label("Words").fill("remark part06")
    page.get_by_text("More filters").click()
    page.get_by_label("Verdict").select_option("wont_fix")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("we own that file")
    picture(page, "findings-1280-light")
    page.get_by_role("link", name="Remark 7").click()
    page.wait_for_url(f"**/reviews/{later.pk}/**")
    page.goto(f"/reviews/{later.pk}/?view=findings")
    page.locator("#group-dismissed > summary").click()
    kept.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("9 critical")).to_be_visible()


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.browser(seconds=6)
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
    expect(page.locator(".finding .said")).to_contain_text("bob wants to dismiss this critical finding")
    assert rules_broken(page) == []
    picture(page, f"finding-proposed-{width}-{scheme}")
    verdicts.give(row, "wrong", "ann")
    page.goto(f"/reviews/{job.pk}/")
    expect(page.get_by_text("Dismissed as wrong by ann")).to_be_attached()
    assert rules_broken(page) == []
    picture(page, f"review-dismissed-{width}-{scheme}")
    page.context.clear_cookies()
    page.goto(path_of(verdict_links.link(row.pk, message.token, scenes.now())))
    assert rules_broken(page) == []
    picture(page, f"verdict-link-{width}-{scheme}")
    page.get_by_label("Why it is wrong or intended").fill("it is meant so")
    page.keyboard.press("Enter")  # of two verdicts, Enter chooses neither
    expect(page.get_by_role("heading", level=1)).to_have_text("Your verdict?")
    page.get_by_label("Why it will not be fixed").fill("the gateway refuses doubles")
    page.get_by_role("button", name="Won").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Your verdict is saved")
    assert rules_broken(page) == []


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_an_operator_dismisses_a_category_and_applies_a_proposal(
    visit: Visit, width: int, scheme: str
) -> None:
    scenes.live_workers()
    job = scenes.finished_review()
    row = job.findings.exclude(severity="critical").earliest("pk")
    for number in range(24):
        factories.FindingRowFactory(
            job=job,
            category="naming",
            title=f"Name {number}",
            ending="fixed" if number < 3 else "not_reported_again",
        )
    olga = factories.UserFactory(username="olga")
    olga.groups.add(Group.objects.get(name="operator"))
    page = visit(f"/reviews/{job.pk}/findings/{row.pk}/", olga, width=width, scheme=scheme)
    page.locator(".verdict details > summary").click()
    form = page.locator(".verdict details form")
    form.get_by_label("Reason").fill("generated code")
    form.get_by_label("Dismiss").select_option("category")
    form.get_by_role("textbox", name="Path").fill(f"//{row.file.split(chr(47))[2]}/...")
    form.get_by_label("Until").fill("2099-12-31")
    assert rules_broken(page) == []
    picture(page, f"finding-wide-{width}-{scheme}")
    form.get_by_role("button", name="Intended, for this reason").click()
    expect(page.locator(".finding summary").first).to_contain_text("Everything of this category")
    assert rules_broken(page) == []
    picture(page, f"finding-wide-dismissed-{width}-{scheme}")

    page.goto("/quality/")
    assert axe_says(page) == []
    assert not is_too_wide(page)
    picture(page, f"quality-acceptance-{width}-{scheme}")
    page.get_by_role("button", name="Fold naming").click()
    expect(page.locator(".finding summary").first).to_contain_text("Folded: 3 of 24 accepted")
    page.goto("/quality/")
    expect(page.get_by_role("row", name=re.compile("naming.*folded"))).to_be_visible()


def rules_broken(page: Page) -> list[str]:
    return [*structure(page), *axe_says(page), *(["too wide"] if is_too_wide(page) else [])]


@pytest.mark.long
def test_link_fix_and_patch_are_copied_by_keyboard_and_without_a_clipboard_of_the_browser(
    visit: Visit,
) -> None:
    """The second round takes the way of pages without HTTPS, where browsers offer no clipboard."""
    job = scenes.delivery_with_message().job
    row = job.findings.get(severity="critical")
    page = visit(f"/reviews/{job.pk}/?view=findings", reviewer())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card = page.locator(f"#finding-{row.pk}")
    pasted = "navigator.clipboard.readText()"
    for is_offered in (True, False):
        if not is_offered:
            page.evaluate("window.kept = navigator.clipboard")
            page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
            pasted = "window.kept.readText()"
        copied = []
        for name in ("Copy link", "Copy fix", "Copy as patch"):
            button = card.get_by_role("button", name=name)
            button.evaluate("button => button.removeAttribute('data-said')")  # what the round before said
            button.focus()
            press(page, "Enter")
            expect(button).to_have_attribute("data-said", "Copied")
            copied.append(page.evaluate(pasted))
        link, fix, patch = copied
        assert urlsplit(link).path == f"/reviews/{job.pk}/findings/{row.pk}/"
        assert fix == fixes.replacement_of(row)
        assert patch == fixes.patch_of(row)
        assert patch.startswith("--- a/payments/charge.py")
    page.set_viewport_size({"width": 390, "height": 900})
    for text in card.locator(".message, .suggestion").all():
        box, frame = text.bounding_box(), card.bounding_box()
        assert box is not None
        assert frame is not None
        assert box["x"] + box["width"] <= frame["x"] + frame["width"]  # long code scrolls, prose is not cut
    with page.expect_download() as download:
        card.get_by_role("link", name="Patch").click()
    assert Path(download.value.path()).read_text() == patch


@pytest.mark.long
def test_the_login_page_is_not_copied_in_place_of_a_patch(visit: Visit) -> None:
    job = scenes.delivery_with_message().job
    row = job.findings.get(severity="critical")
    page = visit(f"/reviews/{job.pk}/?view=findings", reviewer())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('mine')")
    page.context.clear_cookies()
    button = page.locator(f"#finding-{row.pk}").get_by_role("button", name="Copy as patch")
    button.click()
    expect(button).to_have_attribute("data-said", "Sign in again")
    assert page.evaluate("navigator.clipboard.readText()") == "mine"
