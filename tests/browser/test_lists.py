"""Lists and the dashboard in a browser: keys, saved views, pages, figures that update."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.models import Circuit
from reviews.dashboard import overview, rollup
from reviews.models import Rollup
from reviews.states import JobStatus
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import PICTURES, ask_now, is_too_wide, picture, settled

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
JOBS = "/admin/reviews/reviewjob/"


def some_jobs(number: int) -> list[str]:
    """Make jobs, and return their changelists, newest first."""
    names = [str(5000 + index) for index in range(number)]
    for index, name in enumerate(names):
        factories.ReviewJobFactory(
            changelist_id=name, created_at=timezone.now() - timedelta(minutes=number - index)
        )
    return names[::-1]


def row_of(page: Page) -> str:
    return page.locator("#result_list tr.at-row th").inner_text()


def test_the_list_is_walked_and_opened_with_keys(visit: Visit) -> None:
    newest = some_jobs(3)
    page = visit(JOBS, scenes.ann(is_superuser=True))
    page.keyboard.press("j")
    assert row_of(page) == newest[0]
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("j")  # the last one stays
    assert row_of(page) == newest[2]
    page.keyboard.press("k")
    assert row_of(page) == newest[1]
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Review of {newest[1]}")


@pytest.mark.long
def test_the_search_has_a_key_and_typing_is_typing(visit: Visit) -> None:
    some_jobs(2)
    page = visit(JOBS, scenes.ann(is_superuser=True))
    page.keyboard.press("/")
    expect(page.locator("#searchbar")).to_be_focused()
    page.keyboard.type("jk?x/")
    expect(page.locator("#searchbar")).to_have_value("jk?x/")
    assert page.locator("tr.at-row").count() == 0
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.locator("tr.at-row").count() == 1
    page.keyboard.press("Control+k")
    assert page.locator("dialog[open]").count() == 0


@pytest.mark.long
def test_the_shortcuts_are_shown_and_can_be_switched_off(visit: Visit) -> None:
    some_jobs(2)
    page = visit(JOBS, scenes.ann(is_superuser=True))
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("Go to the search")
    page.keyboard.press("j")  # nothing moves below
    assert page.locator("tr.at-row").count() == 0
    dialog.get_by_label("Single-key shortcuts are on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.locator("tr.at-row").count() == 0
    page.reload()
    page.keyboard.press("j")
    assert page.locator("tr.at-row").count() == 0
    page.get_by_role("button", name="Keyboard shortcuts (?)").click()
    page.get_by_label("Single-key shortcuts are on").check()
    page.get_by_role("button", name="Close").click()
    page.locator("h1").click()
    page.keyboard.press("j")
    assert page.locator("tr.at-row").count() == 1


@pytest.mark.long
def test_pages_are_turned_with_keys(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysetAdmin, "list_per_page", 2)
    monkeypatch.setattr("criticizer.admin_site.base.ReadOnlyAdmin.list_per_page", 2)
    newest = some_jobs(5)
    page = visit(JOBS, scenes.ann(is_superuser=True))
    page.keyboard.press("n")
    expect(page.locator("#result_list")).to_contain_text(newest[2])
    settled(page).keyboard.press("n")
    expect(page.locator("#result_list")).to_contain_text(newest[4])
    settled(page).keyboard.press("p")
    expect(page.locator("#result_list")).to_contain_text(newest[3])
    page.get_by_role("link", name="First page").click()
    expect(page.locator("#result_list")).to_contain_text(newest[0])


@pytest.mark.long
def test_a_view_is_saved_used_and_forgotten(visit: Visit) -> None:
    some_jobs(2)
    page = visit(JOBS, scenes.ann(is_superuser=True), width=360)
    page.locator("#searchbar").fill("cl:5001")
    page.keyboard.press("Enter")
    expect(page.locator("#search-found")).to_contain_text("1 found")
    page.get_by_text("Save this view").click()
    page.get_by_label("Name").fill("The second")
    page.get_by_role("button", name="Save", exact=True).click()
    view = page.get_by_role("link", name="The second")
    expect(view).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="All", exact=True).first.click()
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    view.click()
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    assert not is_too_wide(page)
    page.get_by_role("button", name="Delete the view The second").click()
    expect(page.get_by_text("View deleted.")).to_be_visible()
    expect(view).to_have_count(0)


def busy_day() -> None:
    """Write a day of figures as the workers would, and a present that asks for attention."""
    now = timezone.now()
    rows = []
    for slot in range(280):
        at = now - timedelta(minutes=5 * slot)
        at -= timedelta(minutes=at.minute % 5, seconds=at.second, microseconds=at.microsecond)
        numbers = {
            ("jobs", "succeeded"): 20 + slot * 7 % 31,
            ("jobs", "dead_lettered"): 9 if 100 < slot < 130 else slot % 2,
            ("jobs", "timed_out"): int(slot % 17 == 0),
            ("jobs", "superseded"): int(slot % 11 == 0),
            ("attempts", "llm:failed:RATE_LIMITED"): 12 if 100 < slot < 130 else 1,
            ("attempts", "llm:failed:UPSTREAM_UNAVAILABLE"): slot % 3,
            ("attempts", "fetch:failed:NETWORK_TIMEOUT"): slot % 5 // 4,
            ("latency", f"fetch:{slot % 3 - 4}"): 20,
            ("latency", f"llm:{14 + slot % 4 + (6 if 100 < slot < 130 else 0)}"): 20,
            ("latency", f"notify:{slot % 2 - 8}"): 20,
            ("latency", f"review:{16 + slot % 5}"): 20,
            ("deliveries", "sent"): 25,
            ("deliveries", "failed"): int(slot % 40 == 0),
        }
        rows += [
            Rollup(seconds=rollup.FINE, started_at=at, kind=kind, label=label, number=number)
            for (kind, label), number in numbers.items()
            if number
        ]
    Rollup.objects.bulk_create(rows)
    Rollup.objects.create(
        seconds=0, started_at=now, kind="mark", label="", number=int((now + timedelta(hours=1)).timestamp())
    )


@pytest.mark.long
def test_the_figures_renew_themselves_until_they_are_paused(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "REFRESH_SECONDS", 1)
    scenes.live_workers()
    busy_day()
    page = visit("/admin/?window=1h", scenes.ann("operator"), has_clock=True)
    active = page.locator(".tile", has_text="Running").locator("strong")
    expect(active).to_have_text("0")
    page.locator("#chart-throughput summary").click()
    factories.ReviewJobFactory()
    ask_now(page)
    expect(active).to_have_text("1")
    expect(page.locator("#chart-throughput details")).to_have_attribute("open", "")  # what is open stays
    page.get_by_role("button", name="Pause updates").click()
    expect(page.locator("#live-note")).to_contain_text("Paused.")
    factories.ReviewJobFactory()
    page.get_by_role("button", name="Resume updates").click()
    ask_now(page)
    expect(active).to_have_text("2")


@pytest.mark.long
def test_the_dashboard_fits_and_its_charts_say_what_they_show(visit: Visit) -> None:
    scenes.live_workers()
    busy_day()
    page = visit("/admin/", scenes.ann("operator"), width=360)
    assert not is_too_wide(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    assert not is_too_wide(page)
    charts = page.get_by_role("img")
    assert charts.count() >= 3
    expect(page.get_by_role("img", name="Reviews that ended")).to_be_visible()
    described = page.locator("#chart-throughput desc").text_content() or ""
    assert "succeeded" in described
    page.get_by_text("Show the numbers").first.click()
    expect(page.locator("#chart-throughput table")).to_be_visible()
    assert not is_too_wide(page)


@pytest.mark.long
def test_a_number_leads_to_its_rows(visit: Visit) -> None:
    at = timezone.now() - timedelta(minutes=10)
    factories.ReviewJobFactory(
        status=JobStatus.TIMED_OUT, finished_at=at, created_at=at - timedelta(minutes=1), changelist_id="777"
    )
    rollup.roll_up()
    page = visit("/admin/", scenes.ann("operator"))
    page.get_by_role("link", name="timed out").click()
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    expect(page.locator("#result_list")).to_contain_text("777")


LISTS = {
    "reviews/reviewjob": ".field-state .state",
    "notifications/delivery": ".field-state_with_error .state",
    "criticizer/circuit": ".field-shown_state .state",
    "reviews/attempt": ".field-state .state",
    "criticizer/outboxmessage": ".field-state .state",
    "criticizer/workercluster": ".field-state .state",
    "reviews/apikey": ".field-state .state",
    "deadletters/deadlettergroup": ".field-state .state",
    "deadletters/deadletter": ".field-state .state",
}


def one_row_of_each() -> None:
    scenes.live_workers()
    job = scenes.finished_review()
    factories.DeliveryFactory(
        job=job,
        recipient=f"mail:{'long.' * 12}name@engineering.example.com",
        error_class="RECIPIENT_REJECTED",
    )
    Circuit.objects.create(
        name="provider:webhook:https://ci.example.com", state="open", reason="10 of 10 calls failed"
    )
    scenes.failures()
    factories.OutboxMessageFactory()
    factories.ApiKeyFactory(name="the-trigger-of-the-server-in-the-cellar")


@pytest.mark.long
def test_fields_of_forms_keep_their_distance_from_the_edge(visit: Visit) -> None:
    page = visit("/admin/", scenes.ann(is_superuser=True), width=390)
    for name in (
        "reviews/apikey",
        "reviews/allowlistentry",
        "reviews/subscription",
        "reviews/teamrule",
        "auth/user",
    ):
        page.goto(f"/admin/{name}/add/")
        outside = settled(page).evaluate(
            """() => [...document.querySelectorAll("fieldset :is(input, textarea, select)")]
              .filter((field) => {
                const [box, card] = [field, field.closest("fieldset")].map((e) => e.getBoundingClientRect());
                return box.width && (box.left < card.left + 8 || box.right > card.right - 8);
              }).map((field) => field.name)"""
        )
        assert (name, outside, is_too_wide(page)) == (name, [], False)


@pytest.mark.skipif(not PICTURES, reason="pictures are taken only with CRITICIZER_SCREENSHOTS=directory")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_of_lists_and_the_dashboard(visit: Visit, width: int, scheme: str) -> None:
    busy_day()
    factories.WorkerClusterFactory(queue="stages", beat_at=timezone.now() + timedelta(hours=1))
    scenes.list_of_reviews()
    ann = scenes.ann("operator")
    factories.OutboxMessageFactory(available_at=timezone.now() - timedelta(minutes=3))
    for name, path in (
        ("dashboard", "/admin/"),
        ("jobs", JOBS + "?q=state:dead_lettered,succeeded"),
        ("jobs-nothing", JOBS + "?q=stat:new"),
        ("attempts", "/admin/reviews/attempt/"),
        ("queue", "/admin/criticizer/outboxmessage/"),
        ("letters", "/admin/deadletters/deadletter/"),
        ("groups", "/admin/deadletters/deadlettergroup/"),
        ("deliveries", "/admin/notifications/delivery/"),
        ("circuits", "/admin/criticizer/circuit/"),
        ("workers", "/admin/criticizer/workercluster/"),
        ("key-add", "/admin/reviews/apikey/add/"),
    ):
        page = visit(path, ann, width=width, scheme=scheme)
        if name == "attempts":
            page.keyboard.press("j")
            page.keyboard.press("?")
        picture(page, f"{name}-{width}-{scheme}")
