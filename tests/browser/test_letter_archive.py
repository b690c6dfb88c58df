"""The archive of dead letters in a browser: its rules, its width, and one letter's way back."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from deadletters import workflow
from deadletters.models import DeadLetter, LetterArchive
from deadletters.retention import policy
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import PICTURES, picture
from tests.browser.test_axe import violations
from tests.letters import archive_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
BASE = "/admin/deadletters"


@pytest.fixture(autouse=True)
def _own_files(settings: Any, tmp_path: Path) -> None:
    archive_in(tmp_path / "letters", settings)


def archived() -> tuple[DeadLetter, LetterArchive]:
    """Let retention remove the letters of a busy week; return one of them and its file."""
    scenes.failures()
    letter = scenes.open_letter()
    old = timezone.now() - timedelta(days=8)
    DeadLetter.objects.filter(status="new").update(first_failure_at=old, last_failure_at=old)
    assert policy.enforce(timezone.now())
    return letter, LetterArchive.objects.get()


@pytest.mark.long
@pytest.mark.browser(seconds=15)
def test_archive_pages_break_no_axe_rule_and_fit_their_width(visit: Visit) -> None:
    letter, archive = archived()
    lost = LetterArchive.objects.create(
        name="2026/11/20261101-120000-0123456789abcdef0123456789abcdef.jsonl.sealed",
        sha256="0" * 64,
        letter_count=3,
        first_letter=1,
        last_letter=9,
    )
    discarded = DeadLetter.objects.filter(status="triaged").first()
    assert discarded is not None
    assert workflow.discard(discarded.pk, actor="ann", reason="OPS-3: by mistake").ok
    paths = {
        "list": f"{BASE}/letterarchive/",
        "file": f"{BASE}/letterarchive/{archive.pk}/change/",
        "letter": f"{BASE}/letterarchive/{archive.pk}/change/?letter={letter.pk}",
        "restore": f"{BASE}/letterarchive/{archive.pk}/restore/",
        "damaged": f"{BASE}/letterarchive/{lost.pk}/change/",
        "discarded": f"{BASE}/deadletter/{discarded.pk}/change/",
    }
    ann = scenes.ann(is_superuser=True)
    assert violations(visit, list(paths.values()), ann, (1280, 390), must_fit=True) == []
    page = visit(paths["list"], ann)
    for name, path in paths.items() if PICTURES else ():
        page.goto(path)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                picture(page, f"archive-{name}-{width}-{scheme}")


@pytest.mark.long
def test_a_letter_comes_back_by_hand(visit: Visit) -> None:
    letter, _ = archived()
    page = visit(f"{BASE}/deadletter/{letter.pk}/change/", scenes.ann("operator"))
    page.get_by_role("link", name="Restore this dead letter").click()
    page.get_by_label("Reason").fill("OPS-4: still needed")
    page.get_by_role("button", name=f"Restore dead letter {letter.pk}").click()
    page.get_by_role("link", name="Open it").click()
    expect(page).to_have_url(re.compile(f"{BASE}/deadletter/{letter.pk}/change/$"))
    expect(page.locator("#letter-history")).to_contain_text("Restored from the archive by")


@pytest.mark.long
def test_a_discard_is_taken_back_by_hand(visit: Visit) -> None:
    letter = scenes.open_letter()
    page = visit(f"{BASE}/deadletter/{letter.pk}/discard/", scenes.ann("operator"))
    page.get_by_label("Reason").fill("OPS-3: the wrong one")
    page.get_by_role("button", name="Discard the dead letter").click()
    page.get_by_role("button", name="Reopen").click()
    page.get_by_label("Reason").fill("OPS-3: it was needed")
    page.get_by_role("button", name="Reopen: 1 dead letter").click()
    expect(page.locator("#letter-now")).to_contain_text("Now: Triage")
    assert DeadLetter.objects.get().status == "new"
