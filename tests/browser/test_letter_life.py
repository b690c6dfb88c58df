"""The whole life of a dead letter in a browser, with real web and worker processes.

The model refuses its key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from deadletters.models import DeadLetter, DeadLetterGroup
from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import ReviewJob
from tests import factories
from tests.browser import scenes
from tests.browser.looking import PICTURES, picture, settled, structure
from tests.fakes.llm import FakeLlm, Reply
from tests.fakes.p4.server import FakeDepot, edited
from tests.stack import Stack, eventually, running

pytestmark = [
    pytest.mark.browser,
    pytest.mark.cluster(seconds=30),
    pytest.mark.long,
    pytest.mark.django_db(transaction=True),
]

KEY = "an-expired-key-for-tests"
FINDING = {"findings": [], "files_read": []}


@dataclass
class Life:
    stack: Stack
    depot: FakeDepot
    llm: FakeLlm
    page: Page

    def key_expires(self) -> None:
        self.llm.server.refused_keys = frozenset({KEY})

    def key_is_renewed(self) -> None:
        self.llm.server.refused_keys = frozenset()

    def post(self, number: int) -> int:
        """Submit a change and request its review for a mailbox; return the job's id."""
        change = self.depot.submit(edited("//depot/main/a.c", f"int a = {number};\n", "int a = 0;\n"))
        job_id = request_review(
            ReviewRequest(f"key-{number}", change, recipients=("mail:ann@example.com",))
        ).job_id
        assert job_id is not None
        return job_id

    def letter_of(self, job_id: int) -> DeadLetter:
        """Wait until the job is dead-lettered; return its letter."""
        eventually(lambda: DeadLetter.objects.filter(job_id=job_id).exists())
        return DeadLetter.objects.get(job_id=job_id)

    def state(self, letter: DeadLetter) -> str:
        return str(DeadLetter.objects.get(pk=letter.pk).status)

    def open(self, letter: DeadLetter) -> None:
        self.page.goto(f"/admin/deadletters/deadletter/{letter.pk}/change/")

    def said(self, text: str) -> None:
        """Check that the message about an action is shown and that the keyboard goes on from it."""
        expect(self.page.locator(".messagelist")).to_contain_text(text)
        expect(self.page.locator(".messagelist")).to_be_focused()

    def picture(self, name: str) -> None:
        """Check the page's structure, and take its picture where that is asked for."""
        if (
            settled(self.page).locator("#result_list").count() == 0
        ):  # Django's own lists name their rows otherwise
            assert structure(self.page) == []
        for scheme in ("light", "dark") if PICTURES else ():
            self.page.emulate_media(color_scheme=scheme)
            picture(self.page, f"life-{name}-{scheme}")

    # -- the steps, as ann takes them ---------------------------------------------------------

    def triage(self) -> None:
        page = self.page
        expect(page.get_by_role("heading", name="Now: Triage")).to_be_visible()
        expect(page.get_by_label("Credentials or configuration")).to_be_checked()  # suggested
        self.picture("1-triage")
        page.get_by_label("Note").fill("the provider says the key is invalid")
        page.get_by_role("button", name="Triage").click()
        self.said("Triaged")

    def remediate(self, what: str) -> None:
        page = self.page
        expect(page.get_by_role("heading", name="Now: Remediate")).to_be_visible()
        page.locator("#id_checklist input").first.check()
        page.get_by_label("Link to the ticket or incident").fill("https://tickets.example.com/OPS-7")
        page.get_by_label("What was done").fill(what)
        self.picture("2-remediate")
        page.get_by_role("button", name="Record the remediation").click()
        self.said("Remediation recorded")

    def validate(self) -> None:
        page = self.page
        expect(page.get_by_role("heading", name="Now: Validate")).to_be_visible()
        page.get_by_role("button", name="Run the checks").click()

    def replay(self) -> None:
        page = self.page
        expect(page.get_by_role("heading", name="Now: Replay")).to_be_visible()
        expect(page.get_by_label("Stage llm, where it failed")).to_be_checked()
        page.get_by_label("Reason").fill("OPS-7: the key works again")
        self.picture("4-replay")
        page.get_by_role("button", name="Replay").click()
        self.said("eplayed from stage llm")


@pytest.fixture
def life(tmp_path: Path, chromium: Browser) -> Iterator[Life]:
    depot = FakeDepot(tmp_path)
    files = tmp_path / "files"
    files.mkdir()
    with FakeLlm(respond=lambda _: Reply(answer=FINDING)) as llm:
        environment = {
            "RETRY_TIME_SCALE": "0.1",
            "CHANGE_SOURCES": "perforce",
            "P4_EXECUTABLE": str(depot.executable),
            "P4PORT": "127.0.0.1:1666",
            "P4USER": "criticizer",
            "DEPOT_ALLOW_LIST": "//depot/main/...",
            "LLM_PROVIDER": "openai",
            "LLM_REQUIRED": "true",
            "LLM_MODEL": "test",
            "LLM_BASE_URL": llm.base_url,
            "LLM_API_KEY": KEY,
        }
        with running(files, environment=environment, with_web=True) as stack:
            context = chromium.new_context(
                base_url=stack.base_url, viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
            )
            page = context.new_page()
            page.set_default_timeout(20_000)  # the first page imports everything
            troubles: list[str] = []
            page.on("console", lambda m: troubles.append(m.text) if m.type in {"error", "warning"} else None)
            page.on("pageerror", lambda error: troubles.append(str(error)))
            yield Life(stack, depot, llm, page)
            context.close()
            assert troubles == []


@dataclass
class Hand:
    """A person's hand, whose clicks are counted: the short test acts through it only."""

    page: Page
    clicks: int = 0
    texts: int = 0

    def press(self, role: Any, name: str) -> None:
        self.clicks += 1
        self.page.get_by_role(role, name=name).click()

    def write(self, label: str, text: str) -> None:
        self.texts += 1
        self.page.get_by_label(label).fill(text)


def fixed_in_four_clicks(life: Life) -> None:
    """After an outage: from the login to a resolved group in at most four clicks and one text."""
    life.key_expires()
    letters = [life.letter_of(life.post(number)) for number in (11, 12)]
    life.key_is_renewed()
    page = life.page
    page.goto("/")
    page.get_by_label("Username").fill("ann")
    page.get_by_label("Password").fill(factories.PASSWORD)
    hand = Hand(page)
    hand.press("button", "Log in")
    expect(page.get_by_role("heading", level=1)).to_have_text("Now")
    hand.press("link", "Replay when fixed")
    life.picture("0-fixed")
    hand.write("What was done", "OPS-7: the key was renewed")
    hand.press("button", "The cause is fixed: replay 2")
    expect(page.locator("#batch-progress")).to_contain_text("Finished")
    life.picture("0-replayed")
    assert hand.clicks <= 4
    assert hand.texts <= 1
    group = DeadLetterGroup.objects.get()
    assert (group.status, group.open_count) == ("resolved", 0)
    for letter in letters:
        assert life.state(letter) == "resolved"
        taken = list(letter.events.order_by("id").values_list("action", flat=True))
        assert taken == [
            "created", "triaged", "remediated", "validated", "queued", "replayed", "succeeded", "verified",
            "resolved",
        ]  # fmt: skip
    page.goto("/admin/")
    expect(page.locator("#needs-now")).to_contain_text("Nothing needs you now")


def test_a_letter_is_worked_to_resolution_and_another_fails_again_and_is_escalated(life: Life) -> None:
    page = life.page
    scenes.ann("operator")
    fixed_in_four_clicks(life)

    # A job fails for real: the model refuses the key.
    life.key_expires()
    letter = life.letter_of(life.post(1))
    assert (letter.stage, letter.error_class) == ("llm", "AUTH_DENIED")
    fetched = len(life.depot.calls("print"))
    assert fetched > 0

    # The group of what broke is the landing page of the dead letters.
    page.goto("/admin/deadletters/deadlettergroup/")
    page.wait_for_selector("#result_list")
    expect(page.get_by_role("heading", level=1)).to_have_text("Failure groups")
    life.picture("0-groups")
    page.locator("#result_list a").filter(has_text="AUTH_DENIED").click()
    life.picture("0-group")
    page.get_by_role("link", name=str(letter.job)).click()

    life.triage()
    life.key_is_renewed()
    life.remediate("the key was rotated")
    life.validate()
    life.said("Validated")
    life.replay()

    # The job is done from the llm stage on; the change is not fetched a second time.
    eventually(lambda: life.state(letter) == "verifying")
    assert len(life.depot.calls("print")) == fetched
    assert ReviewJob.objects.get(pk=letter.job_id).status == "succeeded"
    life.open(letter)
    expect(page.get_by_role("heading", name="Now: Verify")).to_be_visible()
    page.get_by_role("button", name="Check the effect").click()
    life.said("Verified")
    life.picture("5-verified")
    page.get_by_label("Resolution").fill("The key had expired; it is rotated by the calendar now.")
    page.get_by_role("button", name="Resolve").click()
    life.said("Resolved")
    life.picture("6-resolved")
    assert life.state(letter) == "resolved"
    assert page.locator(".steps li[data-step=done]").count() == 6
    actions = list(letter.events.order_by("id").values_list("action", flat=True))
    assert [action for action in actions if action != "succeeded"] == [
        "created", "triaged", "remediated", "validated", "replayed", "verified", "resolved",
    ]  # fmt: skip
    assert set(letter.events.exclude(actor="criticizer").values_list("actor", flat=True)) == {"ann"}

    # A second one: nothing is mended, the checks say so, ann insists, and it fails again.
    life.key_expires()
    second = life.letter_of(life.post(2))
    life.open(second)
    life.triage()
    life.remediate("somebody said that it works again")
    life.validate()
    expect(page.locator(".checks")).to_contain_text("Failed")
    life.picture("3-checks-failed")
    page.get_by_label("Reason for the override").fill("the check may be wrong")
    page.get_by_role("button", name="Override and continue").click()
    life.said("Validated")
    life.replay()
    eventually(lambda: life.state(second) == "new")
    life.open(second)
    expect(page.locator(".lead")).to_contain_text("Escalated")
    expect(page.get_by_role("heading", name="Now: Triage")).to_be_visible()
    life.picture("7-escalated")
    again = DeadLetter.objects.get(pk=second.pk)
    assert (again.failed_replay_count, again.is_escalated) == (1, True)
    assert DeadLetterGroup.objects.get().open_count == 1
