"""The page "My notifications" in a browser: by keyboard, narrow, dark, without CSP errors."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import expect

from notifications.preferences import policy
from reviews.models import Subscription
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import LOOKS, is_too_wide, structure

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_reader_subscribes_and_mutes(visit: Visit, width: int, scheme: str) -> None:
    scenes.live_workers()
    bob = factories.UserFactory(username="bob", email="bob@example.com")
    bob.groups.add(Group.objects.get(name="reviewer"))
    page = visit("/subscriptions/", bob, width=width, scheme=scheme)
    page.get_by_label("Depot path").fill("depot/main")
    page.keyboard.press("Enter")
    expect(page.get_by_text("is not a depot path")).to_be_visible()
    page.get_by_label("Depot path").fill("//depot/main/src/...")
    page.keyboard.press("Enter")
    expect(page.get_by_role("rowheader", name="//depot/main/src/...")).to_be_visible()
    page.get_by_role("button", name="Mute", exact=True).click()
    expect(page.get_by_role("button", name="Unmute")).to_be_visible()
    assert policy.preference_of("mail:bob@example.com").muted_until is not None
    assert structure(page) == []
    assert not is_too_wide(page)
    page.get_by_role("button", name="Remove //depot/main/src/...").click()
    expect(page.get_by_text("No paths yet")).to_be_visible()
    assert not Subscription.objects.exists()
