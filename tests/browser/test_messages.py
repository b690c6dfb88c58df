"""Messages as a browser shows them, and the link in them that stops the mail."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Frame, Request

from notifications.preferences import policy, unsubscribe
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import is_too_wide
from tests.links import path_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

_OVERFLOWS = "document.documentElement.scrollWidth > innerWidth"
_GROUND = "getComputedStyle(document.querySelector('.sheet')).backgroundColor"


def evaluated(frame: Frame, expression: str) -> Any:
    frame.wait_for_selector("h1")
    return frame.evaluate(expression)


def test_the_preview_shows_the_mail_light_dark_and_narrow_without_a_script_in_it(visit: Visit) -> None:
    delivery = scenes.delivery_with_message()
    page = visit(f"/admin/deliveries/{delivery.pk}/message/", scenes.ann(is_superuser=True))
    light, dark, telephone = (frame for frame in page.frames if frame.parent_frame)
    assert evaluated(light, _GROUND) == "rgb(255, 255, 255)"
    assert evaluated(dark, _GROUND) == "rgb(23, 27, 34)"
    for frame in (light, dark, telephone):
        assert not evaluated(frame, _OVERFLOWS)
        assert evaluated(frame, "self.origin") == "null"  # nothing of ours is within its reach
    assert page.get_by_role("heading", name="Plain text").is_visible()
    page.set_viewport_size({"width": 390, "height": 900})
    assert not is_too_wide(page)


@pytest.mark.long
def test_the_mail_fits_every_screen(visit: Visit) -> None:
    delivery = scenes.delivery_with_message()
    page = visit(f"/admin/deliveries/{delivery.pk}/message/html/", scenes.ann(is_superuser=True), width=320)
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(23, 27, 34)")):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(_GROUND) == ground
        for width in (320, 390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert not is_too_wide(page), (scheme, width)


@pytest.mark.long
def test_the_mail_can_be_stopped_and_resumed_on_the_page(visit: Visit) -> None:
    delivery = scenes.delivery_with_message()
    address = path_of(unsubscribe.link(delivery.recipient, delivery.token))
    page = visit(address)
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request))
    page.get_by_role("button", name="Stop the messages").click()
    page.get_by_role("heading", name="Messages stopped").wait_for()
    assert policy.preference_of(delivery.recipient).muted_until is not None
    page.get_by_role("button", name="Send them again").click()
    page.get_by_role("heading", name="Messages resumed").wait_for()
    referrers = {request.all_headers().get("referer", "") for request in requests}
    assert any(referrers)
    assert not any("key=" in referrer for referrer in referrers)
    assert policy.preference_of(delivery.recipient).muted_until is None


@pytest.mark.long
def test_providers_are_tested_from_the_page(visit: Visit, settings: Any, tmp_path: Any) -> None:
    settings.MAILDIR = tmp_path / "mail"
    page = visit("/admin/providers/", scenes.ann(is_superuser=True))
    page.locator("#mail").get_by_label("Send a test message to").fill("bob@example.com")
    page.locator("#mail").get_by_role("button", name="Check and send").click()
    page.get_by_text("Message: works").wait_for()
    assert len(list((tmp_path / "mail" / "new").iterdir())) == 1
