"""The script against the real API, from the trigger to the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.intake import api_keys, polling
from reviews.models import ReviewJob, SourceEvent
from tests.fakes.p4.server import FakeDepot, added
from tests.trigger.test_trigger_script import Installation


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_event_posted_twice_makes_one_job(live_server: Any, settings: Any, tmp_path: Path) -> None:
    site = Installation(tmp_path, live_server.url)
    site.key.write_text(api_keys.create("p4d", "trigger"))
    for _ in range(2):
        site.run("--flush", "change-commit", "12345", "main")
    assert site.waiting() == []
    job = ReviewJob.objects.get()
    assert (job.changelist_id, job.requested_by) == ("12345", "key:p4d")


@pytest.mark.django_db(transaction=True)
def test_event_waits_until_the_key_is_right(live_server: Any, tmp_path: Path) -> None:
    site = Installation(tmp_path, live_server.url)
    site.key.write_text(api_keys.create("bob", "reviewer"))
    site.run("--flush", "change-commit", "12345")
    assert len(site.waiting()) == 1
    assert not ReviewJob.objects.exists()
    site.key.write_text(api_keys.create("p4d", "trigger"))
    site.run("--flush")
    assert site.waiting() == []
    assert ReviewJob.objects.get().changelist_id == "12345"


@pytest.fixture
def depot(settings: Any, tmp_path: Path) -> FakeDepot:
    """A Perforce server that the poll has looked at."""
    made = FakeDepot(tmp_path)
    settings.DATA_DIR = tmp_path
    settings.CHANGE_SOURCES, settings.DEPOT_ALLOW_LIST = ["perforce"], ["//depot/main/..."]
    settings.P4PORT, settings.P4USER = "127.0.0.1:1666", "criticizer"
    settings.P4_EXECUTABLE = str(made.executable)
    polling.run()
    return made


@pytest.mark.parametrize("event", ["change-commit", pytest.param("shelve-commit", marks=pytest.mark.long)])
@pytest.mark.django_db(transaction=True)
def test_spooled_event_finds_the_job_that_a_poll_made(
    live_server: Any, tmp_path: Path, depot: FakeDepot, event: str
) -> None:
    site = Installation(tmp_path, "http://127.0.0.1:9")  # nobody answers there
    site.key.write_text(api_keys.create("p4d", "trigger"))
    file = added("//depot/main/a.c", "a\n")
    change = depot.submit(file) if event == "change-commit" else depot.shelve(file)
    site.run("--flush", event, change, "edge-1")
    assert len(site.waiting()) == 1
    assert not ReviewJob.objects.exists()

    polling.run()
    job = ReviewJob.objects.get()
    if event == "shelve-commit":  # the poll's job has read the shelf before the trigger gets through
        read = SourceEvent.objects.get().version_key
        ReviewJob.objects.filter(pk=job.pk).update(
            version_key=read, status="cancelled", finished_at=job.created_at
        )

    site.config.write_text(site.config.read_text().replace("http://127.0.0.1:9", live_server.url))
    site.run("--flush")
    assert site.waiting() == []
    assert ReviewJob.objects.get().changelist_id == change
    polling.run()
    assert ReviewJob.objects.count() == 1
    assert list(SourceEvent.objects.order_by("id").values_list("origin", "outcome", "job_id")) == [
        ("poll", "found_by_poll", job.pk),
        ("trigger", "seen_before", job.pk),
    ]


@pytest.mark.django_db(transaction=True)
def test_spooled_event_makes_its_job_without_a_poll(live_server: Any, tmp_path: Path, settings: Any) -> None:
    site = Installation(tmp_path, "http://127.0.0.1:9")
    site.key.write_text(api_keys.create("p4d", "trigger"))
    site.run("--flush", "change-commit", "12345", "edge-1")
    assert not ReviewJob.objects.exists()
    site.config.write_text(site.config.read_text().replace("http://127.0.0.1:9", live_server.url))
    site.run("--flush")
    assert ReviewJob.objects.get().changelist_id == "12345"
    assert SourceEvent.objects.get().outcome == "created"


@pytest.mark.django_db(transaction=True)
def test_event_waits_until_its_host_is_allowed_and_a_bad_one_is_dropped(
    live_server: Any, tmp_path: Path, settings: Any
) -> None:
    site = Installation(tmp_path, live_server.url)
    site.key.write_text(api_keys.create("p4d", "trigger"))
    allowed, settings.ALLOWED_HOSTS = settings.ALLOWED_HOSTS, ["review.example.com"]
    site.run("--flush", "change-commit", "12345")
    assert len(site.waiting()) == 1
    settings.ALLOWED_HOSTS = allowed
    site.spool.write_text('\n {"event": "change-commit"}\n')
    site.run("--flush")
    assert site.waiting() == []
    assert ReviewJob.objects.get().changelist_id == "12345"
