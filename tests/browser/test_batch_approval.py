"""A batch that needs a second person, in a browser: submitted by one, approved by another."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import expect

from deadletters import batches
from deadletters.models import ReplayBatch
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.test_letter_edits import BASE, approver, look
from tests.deadletters.test_edit_requests import make_letter

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _workers() -> None:
    scenes.live_workers()


def carol() -> Any:
    """Somebody who is operator and approver in one."""
    user = factories.UserFactory(username="carol", is_staff=True)
    user.groups.set(Group.objects.filter(name__in=("operator", "approver")))
    return user


@pytest.mark.long
@pytest.mark.browser(seconds=6)
def test_who_submits_a_batch_is_not_who_approves_it(visit: Visit) -> None:
    scenes.ann("operator")
    ids = [make_letter().pk for _ in range(2)]
    batch = batches.draft(filter={"q": "is:open", "picked": 2}, ids=ids, actor="ann", reason="OPS-7: mended")
    batches.dry_run(batch.pk)
    page = visit(f"{BASE}/replaybatch/{batch.pk}/change/", carol())
    page.get_by_label("What was done").fill("OPS-7: the key was rotated")
    page.get_by_label("Start at the first stage").check()
    page.get_by_role("button", name="Submit: 2 dead letters").click()
    expect(page.locator(".messagelist")).to_have_text("Submitted: another person must approve it.")
    expect(page.get_by_role("link", name="Approve…")).to_have_count(0)
    expect(page.get_by_text("Not checked with these settings.")).to_be_visible()
    look(page, "batch-1-waiting")

    other = visit(f"{BASE}/deadlettergroup/", approver())
    other.get_by_role("link", name="Replay batches 1 to approve").click()
    other.locator("#result_list th a").click()
    expect(other.get_by_text("carol; drafted or configured by ann")).to_be_visible()
    other.get_by_role("link", name="Approve…").click()
    expect(other.get_by_text("No dry run was made with these settings.")).to_be_visible()
    look(other, "batch-2-approve")
    page.get_by_role("button", name="Dry run").click()
    other.reload()
    expect(other.get_by_role("region", name="Dry run")).to_be_visible()
    other.get_by_label("Reason").fill("looked at the ticket")
    other.get_by_role("button", name="Approve: 2 dead letters").click()
    expect(other.locator(".messagelist")).to_have_text("Approved and started.")
    assert ReplayBatch.objects.get().approved_by == "bob"
