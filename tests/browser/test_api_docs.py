"""The browsable description of the API works under the strict Content-Security-Policy."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_the_api_is_browsable(visit: Visit) -> None:
    page = visit("/api/docs/")
    expect(
        page.locator(".opblock-summary-path").filter(has_text="/api/v1/triggers/perforce/")
    ).to_be_visible()
    page.locator(".opblock-post .opblock-summary-control").first.click()
    expect(page.locator(".opblock-body .model-example, .opblock-body .highlight-code").first).to_be_visible()
