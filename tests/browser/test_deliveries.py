"""An uncertain delivery in the admin, in a browser: from its page to the decision."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests import factories
from tests.browser.conftest import Visit
from tests.browser.looking import picture

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.mark.long
def test_an_operator_decides_about_a_delivery_in_doubt(visit: Visit) -> None:
    row = factories.DeliveryFactory(
        status="uncertain",
        recipient="mail:bob@example.com",
        provider="smtp",
        attempts=1,
        subject="Review of 12345: 2 findings",
        error_class="DELIVERY_UNCERTAIN",
        detail="an attempt has no outcome and the provider offers no look-up",
    )
    factories.DeliveryAttemptFactory(delivery=row, outcome="ambiguous", detail="no outcome was recorded")
    ann = factories.UserFactory(username="ann", is_staff=True, is_superuser=True)
    page = visit(f"/admin/notifications/delivery/{row.pk}/change/", ann)
    picture(page, "delivery")
    page.get_by_role("button", name="Decide…").click()
    picture(page, "decide")
    page.get_by_label("Abandon it").check()
    page.get_by_label("Evidence or reason").fill("OPS-7: bob has left")
    page.get_by_role("button", name="Decide about 1 delivery").click()
    expect(page.locator(".messagelist")).to_contain_text("1 decided.")
    row.refresh_from_db()
    assert row.status == "abandoned"
    page.goto(f"/admin/notifications/delivery/{row.pk}/change/")
    evidence = page.get_by_role("table", name="Attempts, look-ups")
    expect(evidence).to_contain_text("abandoned by ann: OPS-7: bob has left")
