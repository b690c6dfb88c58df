"""The page of a letter in a real browser while its replay runs, and when it is over."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from deadletters import workflow
from deadletters.models import DeadLetter
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import LIVE_MS, ask_now

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def replaying() -> DeadLetter:
    letter = scenes.open_letter()
    factories.ArtifactFactory(job=letter.job)
    workflow.triage(letter.pk, actor="bob", category="transient")
    workflow.remediate(letter.pk, actor="bob", evidence_note="the server is back")
    workflow.validate(letter.pk, actor="bob", override_reason="tried by hand")
    assert workflow.replay(letter.pk, actor="bob", reason="OPS-7: mended").ok
    return letter


@pytest.mark.long
def test_a_letter_comes_back_by_itself_and_what_is_typed_then_stays(visit: Visit) -> None:
    letter = replaying()
    ann = scenes.ann("operator")
    page = visit(f"/admin/deadletters/deadletter/{letter.pk}/change/", ann, has_clock=True)
    expect(page.locator("#now-title")).to_have_text("Now: Replay")
    expect(page.get_by_role("button", name="Pause updates")).to_be_visible()
    expect(page.locator("#letter-word")).to_have_attribute("aria-live", "polite")
    expect(page.locator("#letter-word")).to_have_text("The dead letter is replaying.")
    steps = page.locator("#letter-steps").element_handle()
    DeadLetter.objects.filter(pk=letter.pk).update(status="new", failed_replay_count=1)
    ask_now(page)
    expect(page.locator("#now-title")).to_have_text("Now: Triage")
    expect(page.locator("#letter-word")).to_have_text("The dead letter is new.")
    assert steps is not None
    assert steps.evaluate("(steps) => steps.isConnected")  # patched, not drawn anew
    expect(page.get_by_role("button", name="Pause updates")).to_be_hidden()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("Note").fill("seen before")
    DeadLetter.objects.filter(pk=letter.pk).update(detail="told by somebody else")
    page.clock.run_for(2 * LIVE_MS)
    assert asked == []
    expect(page.get_by_label("Note")).to_have_value("seen before")
