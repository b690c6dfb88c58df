"""Layout of the admin's pages from a telephone to a wide screen, measured in a browser."""

from __future__ import annotations

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from criticizer.models import Circuit
from reviews.models import Attempt, ReviewJob
from tests import factories, skips
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import is_too_wide, picture, settled
from tests.browser.test_lists import LISTS, one_row_of_each

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
WIDTHS = (390, 600, 700, 768, 960, 1024, 1100, 1200, 1280, 1440)
# What of a list is out of sight: each question alone would be a round trip at every width of every list.
_OUT_OF_SIGHT = """async (state) => {
  const root = document.documentElement, results = document.querySelector("#changelist-form .results");
  const looked = [...document.querySelectorAll("#changelist .actions .button")];
  looked.unshift(document.querySelector("#result_list tbody").querySelector(state));
  const part = (shown) => new Promise((tell) => {
    const watch = new IntersectionObserver(([seen]) => { watch.disconnect(); tell(seen.intersectionRatio); });
    watch.observe(shown);
  });
  const parts = await Promise.all(looked.map(part));
  const found = looked.filter((_, i) => parts[i] < 1 - 1e-9).map((shown) => shown.outerHTML);
  if (root.scrollWidth > innerWidth) found.push("the page is too wide");
  if (results.scrollWidth > results.clientWidth) found.push("the list is too wide");
  return found;
}"""
_WORDS = """(cell) => getComputedStyle(cell, "::before").content"""
_APART = """(names) => names.filter((name) => {
  const [one, other] = [name, name.nextElementSibling].map((box) => box.getBoundingClientRect());
  return Math.abs(one.top - other.top) > 4 || other.left < one.right;
}).map((name) => name.textContent)"""
_BORDER = """(box) => getComputedStyle(box).borderLeftColor"""


def at(page: Page, width: int) -> Page:
    page.set_viewport_size({"width": width, "height": 900})
    return page


@pytest.mark.parametrize("widths", [(390, 1100), pytest.param(WIDTHS, marks=pytest.mark.long)], ids=str)
def test_no_column_or_button_of_a_list_is_out_of_sight_at_any_width(
    visit: Visit, widths: tuple[int, ...]
) -> None:
    one_row_of_each()
    page = visit("/admin/", scenes.ann(is_superuser=True))
    # A third of the lists in `make test`: all are made by one template and one style sheet.
    for name, state in list(LISTS.items())[:: 1 if skips.is_all() else 3]:
        page.goto(f"/admin/{name}/")
        settled(page)
        for width in widths:
            at(page, width)
            assert (width, page.evaluate(_OUT_OF_SIGHT, state)) == (width, []), name


@pytest.mark.long
def test_what_a_search_found_stands_in_one_line_at_every_width(visit: Visit) -> None:
    factories.ReviewJobFactory(changelist_id="5001")
    page = visit("/admin/reviews/reviewjob/?q=cl:5001", scenes.ann(is_superuser=True))
    card = page.locator("#changelist")
    for width in WIDTHS:
        found, outer = at(page, width).locator("#search-found").bounding_box(), card.bounding_box()
        assert found is not None
        assert outer is not None
        assert (width, found["height"] < 30, found["width"] > 100) == (width, True, True)
        assert found["x"] + found["width"] <= outer["x"] + outer["width"]


@pytest.mark.long
def test_actions_keep_their_distance_from_the_edge_of_the_list(visit: Visit) -> None:
    one_row_of_each()
    page = visit("/admin/deadletters/deadletter/", scenes.ann(is_superuser=True))
    for width in WIDTHS:
        label = at(page, width).locator("#changelist .actions label").first.bounding_box()
        card = page.locator("#changelist").bounding_box()
        assert label is not None
        assert card is not None
        assert (width, label["x"] - card["x"] >= 8) == (width, True)


@pytest.mark.long
def test_the_words_of_cards_stand_on_lists_alone(visit: Visit) -> None:
    attempt = factories.AttemptFactory()
    ann = scenes.ann(is_superuser=True)
    listed = visit("/admin/reviews/attempt/", ann, width=390).locator("#result_list .field-worker")
    assert listed.evaluate(_WORDS) == '"Worker "'
    page = visit(reverse("admin:reviews_attempt_change", args=[attempt.pk]), ann, width=390)
    assert page.locator(".field-worker").count() == 1
    assert page.locator("[class*=field-]").evaluate_all(f"(rows) => rows.map({_WORDS})") == ["none"] * (
        page.locator("[class*=field-]").count()
    )


@pytest.mark.long
def test_an_attempt_is_told_in_one_line(visit: Visit) -> None:
    one_row_of_each()
    assert Attempt.objects.exists()
    page = visit("/admin/reviews/attempt/", scenes.ann(is_superuser=True))
    expect(page.locator("#result_list tbody th").first).to_have_text("1")
    for name in ("number_of", "took"):
        heights = page.locator(f"#result_list tbody .field-{name}").evaluate_all(
            "(cells) => cells.map((cell) => { const range = document.createRange();"
            " range.selectNodeContents(cell); return range.getBoundingClientRect().height; })"
        )
        assert [height for height in heights if height > 24] == [], name


@pytest.mark.long
def test_each_fact_stands_beside_its_name(visit: Visit) -> None:
    scenes.finished_review()
    job = ReviewJob.objects.get(review_version=2)
    page = visit(f"/admin/reviews/reviewjob/{job.pk}/change/", scenes.ann(is_superuser=True))
    names = page.locator(".facts dt")
    assert names.count() > 8
    for width in (390, 960, 1280):
        at(page, width)
        assert (width, names.evaluate_all(_APART)) == (width, [])


@pytest.mark.long
def test_only_a_circuit_that_holds_calls_back_has_the_border_of_an_alarm(visit: Visit) -> None:
    ann = scenes.ann(is_superuser=True)
    borders = {}
    for state in ("closed", "open"):
        Circuit.objects.create(name=f"llm:{state}", state=state)
        page = visit(reverse("admin:criticizer_circuit_change", args=[f"llm_3A{state}"]), ann)
        borders[state] = page.locator(".lead").evaluate(_BORDER)
        page.evaluate("document.body.append(document.createElement('hr'))")
        page.locator("body > hr").evaluate("(line) => { line.style.borderLeft = '1px solid var(--danger)'; }")
        alarm = page.locator("body > hr").evaluate(_BORDER)
    assert borders["open"] == alarm
    assert borders["closed"] != alarm


@pytest.mark.long
def test_no_tile_of_the_dashboard_is_left_alone(visit: Visit) -> None:
    page = visit("/admin/", scenes.ann("operator"))
    for width in (390, 768, 960, 1280, 1600):
        tiles = (
            at(page, width)
            .locator(".tile")
            .evaluate_all(
                "(tiles) => tiles.map((tile) => { const box = tile.getBoundingClientRect();"
                " return [Math.round(box.top), Math.round(box.width)]; })"
            )
        )
        last = [wide for top, wide in tiles if top == tiles[-1][0]]
        assert len(tiles) >= 7, width
        assert len(last) > 1 or last[0] > 2 * tiles[0][1], width
        assert not is_too_wide(page), width


def test_every_page_of_a_task_is_in_sight_on_a_telephone(visit: Visit) -> None:
    page = visit("/admin/reviews/skippedpath/", scenes.ann(is_superuser=True), width=390)
    links = page.locator(".task-pages a")
    assert links.count() > 3
    for link in links.all():
        box = link.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390, link.inner_text()
    picture(page, "task-pages-390")


@pytest.mark.long
def test_the_change_below_a_title_breaks_off_as_a_whole(visit: Visit) -> None:
    job = factories.ReviewJobFactory(
        changelist_id=f"git:payments@{'a' * 40}",
        title="Retry payments that the gateway refuses once more",
        author="Ann / Example of the Payments",
        review_version=2,
    )
    page = visit("/", scenes.bob(), width=1280)
    row = page.locator(f"#job-{job.pk} th")
    lines, below, left, title = row.evaluate(
        "th => { const [a, div] = [...th.children].map((each) => each.getBoundingClientRect());"
        " return [th.children[1].getClientRects().length, div.top > a.top + 5, div.left, a.left]; }"
    )
    assert (lines, below) == (1, True)
    assert abs(left - title) < 1
    picture(page, "list-1280")
