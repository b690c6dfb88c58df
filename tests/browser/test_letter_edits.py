"""Edits of letters in a browser; rows of a batch that update while somebody reads them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import Page, expect

from deadletters import batches
from deadletters.models import DeadLetter, LetterEdit, ReplayItem
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import PICTURES, ask_now, is_too_wide, picture, structure
from tests.browser.test_axe import violations
from tests.deadletters.test_edit_requests import ANN, asked, make_letter

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
BASE = "/admin/deadletters"
_EDGES = """cells => cells.map(cell => {
  const box = cell.getBoundingClientRect();
  return [box.left, box.right];
})"""


@pytest.fixture(autouse=True)
def _on(settings: Any) -> None:
    settings.DEADLETTER_EDIT = True
    scenes.live_workers()


def approver() -> Any:
    user = factories.UserFactory(username="bob", is_staff=True)
    user.groups.set(Group.objects.filter(name="approver"))
    return user


def look(page: Page, name: str) -> None:
    """Check the page's structure and its list, wide and narrow, and take the pictures asked for."""
    assert structure(page) == []
    look_at_list(page, name)


def look_at_list(page: Page, name: str) -> None:
    """Check as `look` does but for the structure: Django's own lists name their rows otherwise."""
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert not is_too_wide(page), (name, width)
        for scheme in ("light", "dark") if PICTURES else ():
            page.emulate_media(color_scheme=scheme)
            picture(page, f"edit-{name}-{width}-{scheme}")
        page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.long
@pytest.mark.browser(seconds=8)
def test_one_asks_and_another_approves_by_hand(visit: Visit) -> None:
    letter = make_letter()
    page = visit(f"{BASE}/deadletter/{letter.pk}/change/", scenes.ann("operator"))
    page.get_by_role("link", name="Edit the data…").click()
    look(page, "1-page")
    page.get_by_label("Recipients").fill(f"{ANN}\nbob@example")
    page.get_by_role("button", name="Show the changes").click()
    expect(page.get_by_role("alert")).to_contain_text("bob@example: ")
    look(page, "2-wrong")
    page.get_by_label("Recipients").fill(f"{ANN}\ncarol@example.com")
    page.get_by_role("button", name="Show the changes").click()
    expect(page.locator(".difference")).to_contain_text("Added mail:carol@example.com")
    look(page, "3-difference")
    page.get_by_label("Reason").fill("OPS-7: bob has left, carol leads his team now")
    page.get_by_role("button", name="Request approval").click()
    expect(page.locator(".messagelist")).to_contain_text("Requested: another person must approve it.")
    look(page, "4-waiting")

    other = visit(f"{BASE}/deadlettergroup/", approver())
    other.get_by_role("link", name="Edits 1 to approve").click()
    look_at_list(other, "5-list")
    other.locator("#result_list th a").click()
    look(other, "6-edit")
    other.get_by_role("link", name="Approve the edit…").click()
    look(other, "7-approve")
    other.get_by_label("Reason").fill("asked carol")
    other.get_by_role("button", name="Approve the edit").click()
    new = letter.generations.get()
    expect(other.locator(".messagelist")).to_contain_text(f"Replaced by dead letter {new.pk}")
    look(other, "8-applied")

    page.goto(f"{BASE}/deadletter/{letter.pk}/change/")
    look(page, "9-old")
    page.get_by_role("link", name=f"dead letter {new.pk}", exact=True).click()
    expect(page.locator(".lineage")).to_contain_text(
        f"Generation 2: the edited copy of dead letter {letter.pk}"
    )
    expect(page.locator("#now-title")).to_have_text("Now: Validate")
    look(page, "10-new")


@pytest.mark.long
def test_the_reader_begins_at_what_is_wrong_not_at_a_notice_above_it(visit: Visit) -> None:
    letter = factories.DeadLetterFactory(error_class="AUTH_DENIED", stage="fetch")
    page = visit(f"{BASE}/deadletter/{letter.pk}/edit/", scenes.ann("operator"))
    expect(page.locator(".changed")).to_contain_text("AUTH_DENIED is rarely caused by data")
    expect(page.locator(".changed")).not_to_be_focused()  # it stands there from the beginning
    page.get_by_role("button", name="Show the changes").click()
    expect(page.locator(".changed")).to_be_visible()
    expect(page.locator(".error-summary")).to_be_focused()


@pytest.mark.long
def test_edit_pages_break_no_axe_rule(visit: Visit) -> None:
    letter, other = make_letter(), make_letter()
    edit = asked(letter)
    paths = [
        f"{BASE}/letteredit/",
        f"{BASE}/letteredit/{edit.pk}/change/",
        f"{BASE}/letteredit/{edit.pk}/approve/",
        f"{BASE}/deadletter/{letter.pk}/change/",
        f"{BASE}/deadletter/{other.pk}/edit/",
    ]
    boss = factories.UserFactory(username="xena", is_staff=True, is_superuser=True)
    assert violations(visit, paths, boss) == []
    assert LetterEdit.objects.count() == 1


@pytest.mark.long
@pytest.mark.browser(seconds=7)
def test_a_batchs_rows_follow_and_the_reader_stays_where_they_are(visit: Visit) -> None:
    letter = scenes.failures()
    ids = list(DeadLetter.objects.filter(group=letter.group).values_list("pk", flat=True))
    ids += [make_letter().pk for _ in range(30)]
    batch = batches.draft(filter={}, ids=ids, actor="ann", reason="OPS-7: mended", evidence_note="OPS-7")
    batches.submit(batch.pk, actor="ann")
    page = visit(f"{BASE}/replaybatch/{batch.pk}/change/", scenes.ann("operator"), has_clock=True)
    look(page, "11-batch")
    last = ReplayItem.objects.filter(batch=batch).order_by("-id")[0]
    row = page.locator(f"#item-{last.pk}")
    link = row.get_by_role("link").first  # to the dead letter
    link.scroll_into_view_if_needed()
    link.focus()
    place = page.evaluate("scrollY")
    assert place > 0
    row.evaluate("(row) => { row.seen = true; }")
    ReplayItem.objects.filter(pk=last.pk).update(status="skipped", detail="already resolved by bob")
    ask_now(page)
    expect(row).to_contain_text("already resolved by bob")
    expect(link).to_be_focused()
    assert row.evaluate("(row) => row.seen")  # the same row, patched
    assert page.evaluate("scrollY") == place
    rate = page.get_by_label("Dead letters per minute")
    rate.fill("120")
    ReplayItem.objects.filter(pk=last.pk).update(detail="already resolved by dora")
    ask_now(page)
    expect(row).to_contain_text("already resolved by dora")
    expect(rate).to_have_value("120")  # what is being typed stays
    page.get_by_role("button", name="Change the rate").click()
    expect(page.locator(".messagelist")).to_have_text(re.compile("120 a minute, at most 20 at once"))


@pytest.mark.long
@pytest.mark.browser(seconds=6)
def test_lists_on_a_narrow_screen_are_read_without_scrolling_sideways(visit: Visit) -> None:
    letter = scenes.failures()
    asked(make_letter())
    batches.draft(filter={}, ids=[letter.pk], actor="ann", reason="OPS-7: mended")
    page = visit("/admin/", scenes.ann("operator"), width=390)
    for name in ("deadlettergroup", "deadletter", "replaybatch", "letteredit"):
        page.goto(f"{BASE}/{name}/")
        assert not is_too_wide(page), name
        cells = page.locator("#result_list tbody").locator("td:visible, th:visible")
        assert cells.count() > 4, name
        edges = cells.evaluate_all(_EDGES)
        assert [(left, right) for left, right in edges if left < 0 or right > 390] == [], name
