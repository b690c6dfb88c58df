"""The readers' pages in a browser: they work, stay up to date and are well-formed."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from reviews.models import ReviewJob, StageRun
from reviews.sources.base import SkipReason
from reviews.web import files_tab
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import LIVE_MS, ask_now, axe_says, is_too_wide, picture, structure
from tests.changes import store_diff
from tests.reviewers.build import added

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def finish(job: ReviewJob) -> None:
    """Write the rows that the workers write at the end of the last stage."""
    now = timezone.now()
    StageRun.objects.filter(job=job, stage="llm").update(
        status="succeeded", lease_token=None, finished_at=now, progress={}
    )
    factories.FindingRowFactory(job=job, title="Found just now")
    factories.CoverageRowFactory(job=job)
    ReviewJob.objects.filter(pk=job.pk).update(status="succeeded", finished_at=now)


def test_bob_logs_in_sees_the_list_and_logs_out(visit: Visit) -> None:
    scenes.live_workers()
    bob = scenes.bob()
    job = scenes.finished_review()
    page = visit("/")
    expect(page).to_have_url(re.compile("/login/"))
    page.get_by_label("Username").fill("bob")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("correct username and password")
    page.get_by_label("Password").fill(factories.PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Reviews")
    page.locator(f"#job-{job.pk} a.title").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(job.title)
    expect(page.get_by_role("link", name="Admin")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    assert bob.is_active


@pytest.mark.long
@pytest.mark.browser(seconds=6)
def test_a_running_review_updates_itself_until_it_has_ended(visit: Visit) -> None:
    job = scenes.running_review()
    page = visit(f"/reviews/{job.pk}/", scenes.bob(), has_clock=True)
    expect(page.locator("#review-head .state")).to_have_text("In progress")
    said = "Review is running, attempt 1 of 5: {} of 10 parts are reviewed."
    expect(page.locator("[aria-live=polite]")).to_have_text(said.format(2))
    page.locator("#attempts-fetch summary").click()
    job.stages.filter(stage="llm").update(progress={"a": "{}", StageRun.PARTS: [3, 10]})
    ask_now(page)
    expect(page.get_by_text("3 of 10 parts are reviewed", exact=True)).to_be_visible()
    expect(page.locator("[aria-live=polite]")).to_have_text(said.format(3))

    finish(job)
    ask_now(page)

    expect(page.locator("#review-head .state")).to_have_text("Succeeded")
    expect(page.get_by_role("heading", name="Found just now")).to_be_visible()
    expect(page.locator("[aria-live=polite]")).to_have_text("This review has ended: Succeeded.")
    expect(page.locator("#attempts-fetch")).to_have_attribute("open", "")
    expect(page.get_by_role("button", name="Pause updates")).to_be_hidden()


@pytest.mark.long
def test_updates_pause_and_resume(visit: Visit) -> None:
    job = scenes.running_review()
    page = visit(f"/reviews/{job.pk}/", scenes.bob(), has_clock=True)
    page.get_by_role("button", name="Pause updates").click()
    expect(page.locator("#live-note")).to_contain_text("Paused.")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    finish(job)
    page.clock.run_for(LIVE_MS)  # nothing may be asked

    assert asked == []
    page.get_by_role("button", name="Resume updates").click()
    ask_now(page)
    expect(page.locator("#review-head .state")).to_have_text("Succeeded")


@pytest.mark.browser(seconds=8)
def test_server_errors_are_said_and_survived(visit: Visit) -> None:
    job = scenes.running_review()
    page = visit(f"/reviews/{job.pk}/", scenes.bob(), expects="503", has_clock=True)
    page.route("**/live/**", lambda route: route.fulfill(status=503, body="down"))
    ask_now(page)
    expect(page.locator("#live-note")).to_contain_text("The server answered with an error.")
    expect(page.locator("#review-head .state")).to_have_text("In progress")

    finish(job)
    page.unroute("**/live/**")
    ask_now(page)

    expect(page.locator("#review-head .state")).to_have_text("Succeeded", timeout=60_000)
    expect(page.locator("#live-note")).to_be_hidden()


@pytest.mark.long
def test_what_is_gone_is_said_in_words_that_suit_every_page(visit: Visit) -> None:
    """Reviews, dead letters and batches follow what happens with the same script."""
    job = scenes.running_review()
    page = visit(f"/reviews/{job.pk}/", scenes.bob(), expects="404", has_clock=True)
    page.route("**/live/**", lambda route: route.fulfill(status=404, body="gone"))
    ask_now(page)
    expect(page.locator("#live-note")).to_have_text("What this page shows does not exist any more.")


def test_a_session_that_ended_is_said(visit: Visit) -> None:
    job = scenes.running_review()
    page = visit(f"/reviews/{job.pk}/", scenes.bob(), has_clock=True)
    page.context.clear_cookies()
    ask_now(page)
    expect(page.locator("#live-note")).to_contain_text("You are logged out.")


def test_the_list_shows_a_new_review_by_itself(visit: Visit) -> None:
    scenes.live_workers()
    first = scenes.running_review()
    page = visit("/", scenes.bob(), has_clock=True)
    expect(page.locator(f"#job-{first.pk} .state")).to_have_text("In progress")

    second = factories.ReviewJobFactory(title="Posted a moment ago")
    ask_now(page)

    expect(page.locator(f"#job-{second.pk}")).to_contain_text("Posted a moment ago")
    expect(page.locator("tbody tr").first).to_have_id(f"job-{second.pk}")


@pytest.mark.long
def test_the_worker_banner_comes_and_goes_by_itself(visit: Visit) -> None:
    scenes.running_review()
    page = visit("/", scenes.bob(), has_clock=True)
    expect(page.locator("#worker-banner")).to_contain_text(
        "No worker is serving the queues llm, notify, stages."
    )
    scenes.live_workers()
    ask_now(page)
    expect(page.locator("#worker-banner")).to_be_hidden()


def test_the_skip_link_comes_first_and_the_theme_is_remembered_and_shared_with_the_admin(
    visit: Visit,
) -> None:
    page = visit("/", scenes.ann("operator"))
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('content').contains(document.activeElement)")

    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Change the colour theme").click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    assert page.evaluate(background) == dark
    page.goto("/admin/")
    assert page.evaluate(background) == dark


@pytest.mark.long
def test_the_dark_scheme_of_the_system_is_followed(visit: Visit) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    bob = scenes.bob()
    pages = [visit("/", bob, scheme=scheme) for scheme in ("light", "dark")]
    assert [page.evaluate(background) for page in pages] == ["rgb(245, 246, 248)", "rgb(15, 18, 23)"]


@pytest.mark.long
def test_text_from_outside_stays_text(visit: Visit) -> None:
    """mallory's names, titles and code are shown, never run and never obeyed."""
    attack = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    job = scenes.finished_review()
    ReviewJob.objects.filter(pk=job.pk).update(title=attack, author=attack, banner=attack)
    factories.FindingRowFactory(
        job=job,
        file=f"//shop/{attack}.py",
        title=attack,
        message=f"`{attack}` and \u202egnp.exe",
        suggestion=attack,
        category=attack[:32],
        excerpt=[[1, "+", f"x = '{attack}'"], [2, "+", "\u202e hidden"]],
    )
    factories.CoverageRowFactory(job=job, file=attack, status="skipped", reason=attack)
    page = visit(f"/reviews/{job.pk}/", scenes.bob())
    expect(page.get_by_role("heading", level=1)).to_have_text(attack)
    expect(page.locator(".code").get_by_text("\u27e8U+202E\u27e9")).to_be_visible()
    assert page.locator("main img, main script").count() == 0


@pytest.mark.browser(seconds=8)
def test_every_page_fits_its_window_and_is_well_formed(visit: Visit) -> None:
    def wrong_with(page: Page) -> list[object]:
        found: list[object] = [*structure(page)]
        for width in (360, 1280, 2200):
            page.set_viewport_size({"width": width, "height": 900})
            found += [width] * is_too_wide(page)
        return found

    assert wrong_with(visit("/login/")) == []
    page = visit("/", scenes.bob())
    assert wrong_with(page) == []
    scenes.list_of_reviews()
    reviews = [f"/reviews/{job.pk}/" for job in ReviewJob.objects.exclude(title__startswith="A change")]
    lists = ("/", "/?text=nothing-has-this&severity=high", "/findings/", "/findings/?author=bob")
    for path in (*lists, *reviews):
        page.goto(path)
        assert (path, wrong_with(page)) == (path, [])


@pytest.mark.parametrize("path", ["/reviews/999999/", pytest.param("/nowhere/", marks=pytest.mark.long)])
def test_the_page_of_a_wrong_address_is_one_of_ours(visit: Visit, path: str) -> None:
    page = visit(path, scenes.bob(), expects="404")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    assert structure(page) == []


@pytest.mark.long
def test_a_folded_file_counts_as_viewed_until_its_lines_change(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_tab, "MAX_OPEN_LINES", 0)
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded")
    path = "//shop/payments/charge.py"
    factories.CoverageRowFactory(job=job, file=path, status="reviewed")
    evidence = ["//shop/payments/tax.py"]
    factories.FindingRowFactory(job=job, file=path, line=1, end_line=1, evidence=evidence)
    store_diff(job, added(path, "first\n"))
    page = visit(f"/reviews/{job.pk}/?view=files", scenes.bob(), width=390)
    viewed = page.get_by_label("Viewed")
    expect(page.get_by_text(evidence[0])).to_be_visible()
    assert not is_too_wide(page)
    viewed.check()
    page.reload()
    expect(viewed).to_be_checked()
    viewed.uncheck()
    page.get_by_text("show the diff").click()
    expect(page.locator(".row.added")).to_have_count(1)
    viewed.check()
    page.reload()
    expect(viewed).to_be_checked()
    store_diff(job, added(path, "second\n"))
    page.reload()
    expect(viewed).not_to_be_checked()


@pytest.mark.long
def test_live_updates_keep_an_opened_diff_the_marks_and_the_buttons(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_tab, "MAX_OPEN_LINES", 0)
    job = scenes.running_review()
    path = "//shop/payments/charge.py"
    factories.CoverageRowFactory(job=job, file=path, status="reviewed")
    factories.FindingRowFactory(job=job, file=path, line=1, end_line=1)
    store_diff(job, added(path, "first\n"))
    page = visit(f"/reviews/{job.pk}/?view=files", scenes.bob(), has_clock=True)
    fold, lines = page.get_by_text("show the diff"), page.locator(".row.added")
    fold.click()
    expect(lines).to_have_count(1)

    factories.FindingRowFactory(job=job, file=path, line=1, end_line=1, title="Found later")
    ask_now(page)
    expect(page.get_by_role("heading", name="Found later")).to_be_visible()
    expect(lines).to_have_count(0)  # the lines that are here lack the new finding
    fold.click()
    expect(lines).to_have_count(1)

    page.get_by_label("Viewed").check()
    finish(job)
    ask_now(page)
    expect(page.get_by_role("heading", name="Found just now")).to_be_visible()
    expect(lines).to_have_count(1)
    expect(page.get_by_label("Viewed")).to_be_checked()
    expect(page.locator("section.file.is-viewed")).to_have_count(1)
    expect(page.get_by_role("button", name="Keys")).to_be_visible()
    expect(page.get_by_role("button", name="Copy link").last).to_be_visible()


@pytest.mark.long
def test_keys_of_the_comparison_move_among_its_files_and_versions(visit: Visit) -> None:
    path = "//shop/payments/charge.py"
    jobs = [
        factories.ReviewJobFactory(changelist_id="4711", review_version=version, status="succeeded")
        for version in (1, 2, 3)
    ]
    for job in jobs:
        factories.CoverageRowFactory(job=job, file=path, status="reviewed")
        factories.CoverageRowFactory(job=job, file="//shop/logo.png", status="skipped", reason="binary file")
        picture_file = added("//shop/logo.png", None, skipped=SkipReason.BINARY)
        store_diff(job, added(path, f"version {job.review_version}\n"), picture_file)
    page = visit(f"/reviews/{jobs[1].pk}/compare/?with=1", scenes.bob())
    page.get_by_text("Not compared (1): binary file").click()
    expect(page.get_by_role("row", name="//shop/logo.png binary file")).to_be_visible()
    assert (axe_says(page), is_too_wide(page)) == ([], False)
    picture(page, "compare-left-out")
    file = page.locator("section.file")
    page.keyboard.press("j")
    expect(file).to_be_focused()
    for key in "xjk[":  # no mark, no other file, and no older version to compare
        page.keyboard.press(key)
    expect(file).to_be_focused()
    expect(file).not_to_have_class(re.compile("is-viewed"))
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(rf"/reviews/{jobs[2].pk}/compare/\?with=1$"))
