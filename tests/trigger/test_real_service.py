"""The script against the real API, from the trigger to the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews import keys
from reviews.models import ReviewJob
from tests.trigger.test_trigger_script import Installation


@pytest.fixture(autouse=True)
def _static_root(settings: Any) -> None:
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # whitenoise warns without it


@pytest.mark.django_db(transaction=True)
def test_an_event_posted_twice_is_one_job(live_server: Any, settings: Any, tmp_path: Path) -> None:
    site = Installation(tmp_path, live_server.url)
    site.key.write_text(keys.create("p4d", "trigger"))
    for _ in range(2):
        site.run("--flush", "change-commit", "12345", "main")
    assert site.waiting() == []
    job = ReviewJob.objects.get()
    assert (job.changelist_id, job.requested_by) == ("12345", "key:p4d")


@pytest.mark.django_db(transaction=True)
def test_an_event_waits_until_the_key_is_right(live_server: Any, tmp_path: Path) -> None:
    site = Installation(tmp_path, live_server.url)
    site.key.write_text(keys.create("bob", "reviewer"))
    site.run("--flush", "change-commit", "12345")
    assert len(site.waiting()) == 1
    assert not ReviewJob.objects.exists()
    site.key.write_text(keys.create("p4d", "trigger"))
    site.run("--flush")
    assert site.waiting() == []
    assert ReviewJob.objects.get().changelist_id == "12345"
