"""A delivery in doubt on the console: from its page to the decision, in a browser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import factories
from tests.browser.conftest import Visit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_an_operator_decides_about_a_delivery_in_doubt(visit: Visit) -> None:
    row = factories.DeliveryFactory(
        status="uncertain",
        recipient="mail:bob@example.com",
        provider="smtp",
        attempts=1,
        subject="Review of 12345: 2 findings",
        error_class="DELIVERY_UNCERTAIN",
        detail="an attempt has no outcome and the provider cannot be asked",
    )
    factories.DeliveryAttemptFactory(delivery=row, outcome="ambiguous", detail="no outcome was recorded")
    ann = factories.UserFactory(username="ann", is_staff=True, is_superuser=True)
    page = visit(f"/admin/notifications/delivery/{row.pk}/change/", ann)
    _keep(page, "delivery")
    page.get_by_role("button", name="Decide…").click()
    _keep(page, "decide")
    page.get_by_label("Give it up").check()
    page.get_by_label("Evidence or reason").fill("OPS-7: bob has left")
    page.get_by_role("button", name="Decide about 1 delivery").click()
    assert "1 of 1 decided." in page.locator(".messagelist").inner_text()
    row.refresh_from_db()
    assert row.status == "abandoned"
    page.goto(page.url.split("/admin/")[0] + f"/admin/notifications/delivery/{row.pk}/change/")
    evidence = page.get_by_role("table", name="Attempts, look-ups")
    assert "abandoned by ann: OPS-7: bob has left" in evidence.inner_text()


def _keep(page: object, name: str) -> None:
    """Keep a screenshot for people to look at, where they want one."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)  # type: ignore[attr-defined]
