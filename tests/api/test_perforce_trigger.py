"""`POST /api/v1/triggers/perforce/`: events in any order, and more than once."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from criticizer.db import prepared
from criticizer.queue import outbox
from reviews import pipeline
from reviews.api import perforce_triggers
from reviews.intake import review_requests, source_events
from reviews.intake.review_requests import IntakeOutcome, IntakeResult, ReviewRequest
from reviews.models import ReviewJob, SourceEvent
from reviews.pipeline import Due
from reviews.states import JobStatus
from tests.api.conftest import ApiClient, assert_error
from tests.factories import ReviewJobFactory

pytestmark = pytest.mark.django_db

URL = "/api/v1/triggers/perforce/"


def event(**fields: object) -> dict[str, object]:
    return {"event": "change-commit", "change": 12345, "server": "main", **fields}


def happen(name: str, change: int = 12345, server: str = "main") -> tuple[int | None, bool]:
    return perforce_triggers.request_from_event(name, change, server, recipients=(), requested_by="key:ci")


def begin_to_read() -> None:
    """Let a worker claim the fetch that waits."""
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    (message,) = outbox.claim("stages", 10)
    assert pipeline.claim(Due(message.id, message.aggregate_id, message.lease_token), "worker") is not None


def test_an_event_becomes_one_job_however_often_it_comes(trigger: ApiClient, settings: Any) -> None:
    settings.DEFAULT_RECIPIENTS = ["team@example.com"]
    first = trigger.post_json(URL, event())
    assert (first.status_code, first.json()["duplicate"]) == (202, False)
    again = trigger.post_json(URL, event())
    assert (again.status_code, again.json()) == (202, {"job": first.json()["job"], "duplicate": True})
    job = ReviewJob.objects.get()
    assert (job.pk, job.changelist_id, job.review_version) == (first.json()["job"], "12345", 1)
    assert (job.recipients, job.requested_by) == (["mail:team@example.com"], "key:the trigger")


def test_a_repeated_event_finds_its_row(trigger: ApiClient) -> None:
    for _ in range(3):
        trigger.post_json(URL, event())
    row = SourceEvent.objects.get()
    assert (row.event, row.server, row.changelist_id) == ("change-commit", "main", "12345")
    assert (row.origin, row.outcome, row.repeats) == ("trigger", "created", 2)
    assert row.job == ReviewJob.objects.get()


def test_a_shelf_posted_twice_before_it_is_read_is_one_job() -> None:
    first, _ = happen("shelve-commit")
    assert happen("shelve-commit") == (first, True)
    assert ReviewJob.objects.count() == 1


def test_shelf_event_after_its_fetch_began_is_a_new_version() -> None:
    first, _ = happen("shelve-commit")
    begin_to_read()
    second, is_duplicate = happen("shelve-commit")
    assert (second != first, is_duplicate) == (True, False)
    versions = ReviewJob.objects.order_by("review_version").values_list("pk", "review_version", "status")
    assert list(versions) == [(first, 1, JobStatus.SUPERSEDED), (second, 2, JobStatus.QUEUED)]


def test_the_submit_of_a_shelf_is_a_new_version() -> None:
    shelf, _ = happen("shelve-commit")
    submit, is_duplicate = happen("change-commit")
    assert (submit != shelf, is_duplicate) == (True, False)
    assert ReviewJob.objects.get(pk=submit).review_version == 2
    assert happen("change-commit") == (submit, True)


def test_shelf_event_after_its_submit_makes_no_job() -> None:
    shelf, _ = happen("shelve-commit")
    happen("change-commit")
    assert happen("shelve-commit") == (shelf, True)
    assert ReviewJob.objects.count() == 2


def test_events_of_different_servers_are_different_events() -> None:
    first, _ = happen("change-commit", server="a")
    second, is_duplicate = happen("change-commit", server="b")
    assert (second != first, is_duplicate) == (True, False)


def test_version_taken_by_another_event_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two events look at the newest version at once; the slower one looks again."""
    request_review = review_requests.request_review
    raced = False

    def overtaken(request: ReviewRequest, **more: Any) -> IntakeResult:
        nonlocal raced
        if not raced:
            raced = True
            ReviewJobFactory(changelist_id=request.changelist_id, review_version=request.review_version)
        return request_review(request, **more)

    monkeypatch.setattr(review_requests, "request_review", overtaken)
    job_id, is_duplicate = happen("change-commit")
    assert (ReviewJob.objects.get(pk=job_id).review_version, is_duplicate) == (2, False)


def test_an_event_of_a_changelist_without_a_further_version_is_refused_with_the_reason(
    trigger: ApiClient,
) -> None:
    """An earlier version of the API accepted the highest number that the column holds."""
    ReviewJobFactory(changelist_id="12345", review_version=review_requests.LAST_VERSION)
    refused = trigger.post_json(URL, event())
    details = assert_error(refused, 400, "SCHEMA_INVALID")
    assert "this changelist has the highest possible version, 2147483647" in details["change"][0]
    assert list(SourceEvent.objects.values_list("outcome", "job")) == [("refused", None)]
    with transaction.atomic():
        shelf = source_events.Event(source_events.Kind.SHELVE, "12345", "main", version_key="new")
        ReviewJob.objects.update(version_key="old")
        assert source_events.find(shelf) is None
    assert ReviewJob.objects.count() == 1


def test_event_overtaken_every_time_is_refused_and_recorded(
    trigger: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    conflict = IntakeResult(IntakeOutcome.VERSION_CONFLICT, None, newest_version=9)
    with monkeypatch.context() as patch:
        patch.setattr(review_requests, "request_review", lambda request, **more: conflict)
        refused = trigger.post_json(URL, event())
    assert_error(refused, 503, "BUSY")
    assert refused.headers["Retry-After"]
    assert list(SourceEvent.objects.values_list("outcome", "job")) == [("refused", None)]
    # The trigger tells it again, and then it is an event like any other.
    again = trigger.post_json(URL, event())
    assert (again.status_code, again.json()["duplicate"]) == (202, False)
    assert list(SourceEvent.objects.order_by("id").values_list("outcome", flat=True)) == [
        "refused",
        "created",
    ]


def test_event_that_cannot_be_recorded_makes_no_job(
    trigger: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(source_events, "_write", lambda *args, **more: 1 / 0)
        assert trigger.post_json(URL, event()).status_code == 500
    assert not ReviewJob.objects.exists()
    assert trigger.post_json(URL, event()).status_code == 202
    assert (ReviewJob.objects.count(), SourceEvent.objects.count()) == (1, 1)


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
