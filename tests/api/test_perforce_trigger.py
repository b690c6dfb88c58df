"""`POST /api/v1/triggers/perforce/`: events in any order, and more than once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reviews import intake
from reviews.api import perforce
from reviews.intake import IntakeOutcome, IntakeResult, ReviewRequest
from reviews.models import ReviewJob
from reviews.states import JobStatus
from tests.api.conftest import ApiClient, assert_error
from tests.factories import ReviewJobFactory

pytestmark = pytest.mark.django_db

URL = "/api/v1/triggers/perforce/"
NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def event(**fields: object) -> dict[str, object]:
    return {"event": "change-commit", "change": 12345, "server": "main", **fields}


def happen(name: str, at: datetime, change: int = 12345, server: str = "main") -> tuple[int | None, bool]:
    """Let an event come in at a time of the test's choice."""
    return perforce.request_from_event(name, change, server, recipients=(), requested_by="key:ci", now=at)


def test_an_event_becomes_one_job_however_often_it_comes(trigger: ApiClient, settings: Any) -> None:
    settings.DEFAULT_RECIPIENTS = ["team@example.com"]
    first = trigger.post_json(URL, event())
    assert (first.status_code, first.json()["duplicate"]) == (202, False)
    again = trigger.post_json(URL, event())
    assert (again.status_code, again.json()) == (202, {"job": first.json()["job"], "duplicate": True})
    job = ReviewJob.objects.get()
    assert (job.pk, job.changelist_id, job.review_version) == (first.json()["job"], "12345", 1)
    assert (job.recipients, job.requested_by) == (["mail:team@example.com"], "key:the trigger")


def test_a_shelf_posted_twice_within_a_minute_is_one_job() -> None:
    first, _ = happen("shelve-commit", NOON)
    assert happen("shelve-commit", NOON + timedelta(seconds=59)) == (first, True)


def test_a_repeat_across_the_full_minute_is_still_one_job() -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    first, _ = happen("shelve-commit", now - timedelta(seconds=1))
    ReviewJob.objects.filter(pk=first).update(created_at=now - timedelta(seconds=1))
    assert happen("shelve-commit", now + timedelta(seconds=2)) == (first, True)
    assert ReviewJob.objects.count() == 1


def test_a_later_shelf_of_the_same_changelist_is_a_new_version() -> None:
    first, _ = happen("shelve-commit", NOON)
    ReviewJob.objects.filter(pk=first).update(created_at=NOON)
    second, is_duplicate = happen("shelve-commit", NOON + timedelta(seconds=61))
    assert (second != first, is_duplicate) == (True, False)
    versions = ReviewJob.objects.order_by("review_version").values_list("pk", "review_version", "status")
    assert list(versions) == [(first, 1, JobStatus.SUPERSEDED), (second, 2, JobStatus.QUEUED)]


def test_the_submit_of_a_shelf_is_a_new_version() -> None:
    shelf, _ = happen("shelve-commit", NOON)
    submit, is_duplicate = happen("change-commit", NOON)
    assert (submit != shelf, is_duplicate) == (True, False)
    assert ReviewJob.objects.get(pk=submit).review_version == 2
    assert happen("change-commit", NOON + timedelta(days=1)) == (submit, True)
    assert happen("shelve-commit", NOON) == (shelf, True)


def test_events_of_different_servers_are_different_events() -> None:
    first, _ = happen("change-commit", NOON, server="a")
    second, is_duplicate = happen("change-commit", NOON, server="b")
    assert (second != first, is_duplicate) == (True, False)


def test_a_version_taken_by_another_event_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two events look at the newest version at once; the slower one looks again."""
    request_review = intake.request_review
    raced = False

    def overtaken(request: ReviewRequest) -> IntakeResult:
        nonlocal raced
        if not raced:
            raced = True
            ReviewJobFactory(changelist_id=request.changelist_id, review_version=request.review_version)
        return request_review(request)

    monkeypatch.setattr(intake, "request_review", overtaken)
    job_id, is_duplicate = happen("change-commit", NOON)
    assert (ReviewJob.objects.get(pk=job_id).review_version, is_duplicate) == (2, False)


def test_an_event_that_is_always_overtaken_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    conflict = IntakeResult(IntakeOutcome.VERSION_CONFLICT, None, newest_version=9)
    monkeypatch.setattr(intake, "request_review", lambda request: conflict)
    assert happen("change-commit", NOON) == (None, True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("event", "shelve-delete"),
        ("event", None),
        ("event", ["change-commit"]),
        ("change", 0),
        ("change", -1),
        ("change", "12345"),
        ("change", 10**12),
        ("change", True),
        ("server", ""),
        ("server", "main;reboot"),
        ("server", "x" * 65),
        ("server", "main\n"),
        ("user", "ann"),
    ],
)
def test_a_bad_event_is_refused_by_field(trigger: ApiClient, field: str, value: object) -> None:
    details = assert_error(trigger.post_json(URL, event(**{field: value})), 400, "SCHEMA_INVALID")
    assert list(details) == [field]
    assert not ReviewJob.objects.exists()
