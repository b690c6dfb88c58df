"""The tab Files by keyboard and by link: a target is never left folded, viewed or covered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from reviews.models import FindingEvent, ReviewJob
from reviews.web import files_tab
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import axe_says, is_too_wide, picture, structure
from tests.browser.test_axe import IS_ALL
from tests.browser.test_verdicts import reviewed, reviewer
from tests.changes import store_diff
from tests.reviewers.build import edited

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

FILES = [f"//shop/payments/part{number}.py" for number in (1, 2, 3)]
OLD = "".join(f"step_{number}()\n" for number in range(1, 201))
_ON_TOP = """element => {
  const box = element.getBoundingClientRect();
  const [x, y] = [Math.min(9, box.width / 2), Math.min(9, box.height / 2)];
  const found = document.elementFromPoint(box.left + x, box.top + y);
  return found === element || element.contains(found);
}"""


def changed(*lines: int) -> str:
    text = OLD
    for line in lines:
        text = text.replace(f"step_{line}()\n", f"leap_{line}()\n")
    return text


def review_of_three(**fields: object) -> ReviewJob:
    """Return a review of three files, of which each has a finding.

    That of the first file is far down, that of the second is about the whole file.
    """
    job = reviewed(**fields)
    store_diff(job, *(edited(file, OLD, changed(*range(20, 80))) for file in FILES))
    for file in FILES:
        factories.CoverageRowFactory(job=job, file=file)
    factories.FindingRowFactory(job=job, file=FILES[0], line=50, end_line=50, title="Leaps", severity="high")
    factories.FindingRowFactory(
        job=job, file=FILES[1], line=None, end_line=None, title="All of it", severity="critical"
    )
    factories.FindingRowFactory(job=job, file=FILES[2], line=70, end_line=70, title="Falls", severity="low")
    return job


def files_shown(page: Page) -> list[str | None]:
    return [file.get_attribute("data-path") for file in page.locator("section.file").all()]


def is_on_top(page: Page, selector: str) -> bool:
    found: bool = page.locator(selector).evaluate(_ON_TOP)
    return found


@pytest.mark.long
@pytest.mark.browser(seconds=9)
def test_each_severity_leads_to_its_findings_on_either_tab(visit: Visit) -> None:
    job = review_of_three()
    page = visit(f"/reviews/{job.pk}/", reviewer())
    titles = {"critical": "All of it", "high": "Leaps", "low": "Falls"} if IS_ALL else {"high": "Leaps"}
    for tab in ("Files", "By severity"):
        page.get_by_role("navigation", name="Views of this review").get_by_role("link", name=tab).click()
        for severity, title in titles.items():
            page.locator(".summary").get_by_role("link", name=f"1 {severity}").click()
            expect(page.get_by_text("1 of 3 findings match")).to_be_visible()
            expect(page.get_by_role("heading", name=title)).to_have_count(1)
            expect(page.locator("article.finding")).to_have_count(1)
            page.locator(".summary").get_by_role("link", name=f"1 {severity}").click()
            expect(page.locator("article.finding")).to_have_count(3)
    page.get_by_text("Filter", exact=True).first.click()
    page.get_by_label("File", exact=True).select_option(FILES[2])
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("article.finding")).to_have_count(1)
    page.get_by_role("navigation", name="Views of this review").get_by_role("link", name="Files").click()
    assert files_shown(page) == [FILES[2]]
    page.get_by_role("button", name="Useful").click()
    expect(page.get_by_text("Marked as useful by bob")).to_be_visible()
    assert files_shown(page) == [FILES[2]]  # the filter outlives a verdict


@pytest.mark.long
def test_keys_show_what_they_go_to_and_keep_the_marks(visit: Visit) -> None:
    older, job = review_of_three(review_version=1), review_of_three(review_version=2)
    page = visit(f"/reviews/{job.pk}/", reviewer())
    first, second, third = (page.locator("section.file").nth(number) for number in range(3))
    page.keyboard.press("n")
    expect(page.locator(".is-current h4")).to_have_text("Leaps")
    assert is_on_top(page, ".is-current h4")
    for _ in range(3):
        page.keyboard.press("Tab")
        assert page.evaluate(f"({_ON_TOP})(document.activeElement)")
    page.keyboard.press("u")
    expect(page.get_by_text("Marked as useful by bob")).to_be_visible()
    page.keyboard.press("z")
    expect(page.get_by_text("Marked as useful by bob")).to_have_count(0)
    assert [event.kind for event in FindingEvent.objects.order_by("pk")] == ["useful", "undone"]
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page.locator(".is-current h4")).to_have_text("Falls")
    page.keyboard.press("p")
    page.keyboard.press("p")
    expect(page.locator(".is-current h4")).to_have_text("Leaps")

    page.keyboard.press("x")
    expect(first.get_by_label("Viewed")).to_be_checked()
    expect(first.locator(".file-body")).to_be_hidden()
    page.keyboard.press("j")
    expect(second).to_be_focused()
    page.keyboard.press("k")
    expect(first).to_be_focused()
    expect(first.locator(".file-body")).to_be_visible()
    expect(first.get_by_label("Viewed")).to_be_checked()
    page.keyboard.press("j")
    expect(first.locator(".file-body")).to_be_hidden()
    page.reload()
    expect(first.get_by_label("Viewed")).to_be_checked()
    expect(third.get_by_label("Viewed")).not_to_be_checked()
    page.keyboard.press("[")
    expect(page).to_have_url(re.compile(rf"/reviews/{older.pk}/"))
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(rf"/reviews/{job.pk}/"))


@pytest.mark.long
def test_links_to_findings_and_lines_open_viewed_and_folded_files(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = review_of_three()
    page = visit(f"/reviews/{job.pk}/", reviewer())
    first = page.locator("section.file").first
    first.get_by_label("Viewed").check()
    leaps = job.findings.get(title="Leaps")
    page.goto("/")
    page.goto(f"/reviews/{job.pk}/#finding-{leaps.pk}")
    expect(page.locator(f"#finding-{leaps.pk}")).to_be_focused()
    assert is_on_top(page, f"#finding-{leaps.pk} h4")
    expect(first.get_by_label("Viewed")).to_be_checked()

    page.locator("#file-2-L30 > a").click()
    expect(page).to_have_url(re.compile("#file-2-L30$"))
    assert is_on_top(page, "#file-2-L30")

    monkeypatch.setattr(files_tab, "MAX_OPEN_LINES", 0)
    page.goto("/")
    page.goto(f"/reviews/{job.pk}/#file-3-L33")
    expect(page.locator("#file-3-L33")).to_be_focused()
    assert is_on_top(page, "#file-3-L33")
    expect(page.locator("#file-3-L33")).to_have_class(re.compile("is-linked"))
    page.goto("/")
    page.goto(f"/reviews/{job.pk}/#finding-{leaps.pk}")
    expect(page.locator("#file-1-L50 ~ *, .file-body #file-1-L50").first).to_be_attached()
    expect(page.locator(f"#finding-{leaps.pk}")).to_be_focused()

    page.goto("/")
    page.goto(f"/reviews/{job.pk}/#file-2-L90")  # among the lines around the changes
    expect(page.locator("#file-2-L90")).to_be_focused()
    expect(page.locator("#file-2 .more-context")).to_have_count(0)

    hidden = factories.FindingRowFactory(job=job, file=FILES[0], severity="low", title="Filtered out")
    page.goto(f"/reviews/{job.pk}/?severity=high#finding-{hidden.pk}")
    expect(page).to_have_url(re.compile(rf"/reviews/{job.pk}/findings/{hidden.pk}/$"))


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(390, "dark", marks=pytest.mark.long),
        pytest.param(1280, "light", marks=pytest.mark.long),
        (1920, "light"),
        pytest.param(1920, "dark", marks=pytest.mark.long),
    ],
)
def test_the_review_breaks_no_rule_and_uses_its_width(visit: Visit, width: int, scheme: str) -> None:
    scenes.live_workers()
    job = scenes.finished_review()
    page = visit(f"/reviews/{job.pk}/", reviewer(), width=width, scheme=scheme, expects="inline")
    page.get_by_text("Filter", exact=True).first.click()
    assert [*structure(page), *axe_says(page), *(["too wide"] if is_too_wide(page) else [])] == []
    tree, diffs = page.locator(".tree").bounding_box(), page.locator(".diffs").bounding_box()
    assert tree is not None
    assert diffs is not None
    assert (tree["x"] + tree["width"] <= diffs["x"]) == (width >= 1280)  # side by side where there is width
    picture(page, f"files-{width}-{scheme}")


@pytest.mark.long
def test_the_type_is_ours_and_a_list_has_rows_of_forty_pixels(visit: Visit) -> None:
    scenes.live_workers()
    for number in (1, 2):
        job = factories.ReviewJobFactory(title=f"Retry uploads {number}", status="succeeded")
        factories.FindingRowFactory(job=job)
    page = visit("/", reviewer())
    page.evaluate("document.fonts.ready")
    assert page.evaluate(
        "[...document.fonts].filter(font => font.status === 'loaded').map(font => font.family)"
    )
    assert page.evaluate("document.fonts.check('1rem Inter')")
    boxes = [row.bounding_box() for row in page.locator(".jobs tbody tr").all()]
    assert [box and 36 <= box["height"] <= 44 for box in boxes] == [True, True]
    licences = {path.name for path in Path("reviews/static/reviews/fonts").iterdir()}
    assert any("OFL" in name or "LICEN" in name.upper() for name in licences)
