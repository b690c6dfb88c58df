"""Complete answers of the API, value by value.

Fields, nulls, empty values, the form of times and the order of lists are compared.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings

from notifications.models import Digest
from reviews.api import schemas
from reviews.intake import api_keys
from reviews.models import FindingRow
from reviews.reviewers.coverage_texts import stopped_banner
from reviews.states import JobStatus, Stage, StageStatus
from tests.api.conftest import ApiClient, review
from tests.factories import (
    CoverageRowFactory,
    DeadLetterEventFactory,
    DeadLetterFactory,
    DeliveryFactory,
    FindingRowFactory,
    ReviewJobFactory,
    StageRunFactory,
)

pytestmark = pytest.mark.django_db

URL = "/api/v1/reviews/"
LETTERS = "/api/v1/dead-letters/"
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)
NOON_TEXT, LATER_TEXT = "2026-03-01T12:00:00.123456+00:00", "2026-03-01T12:05:00.123456+00:00"
FINDING = {
    "file": "//depot/main/app.py", "line": 12, "end_line": 12, "side": "new", "severity": "high",
    "category": "bug", "title": "Division by zero when the list is empty",
    "message": "`len(rows)` is 0 for a new account.", "suggestion": "", "source": "llm",
    "evidence": [], "confidence": None, "demoted": False, "verification": "",
    "rule": "",
    "folded": "", "status": "new",
    "verdict": None, "verdict_by": None, "verdict_at": None,
}  # fmt: skip


def address(path: str) -> str:
    return settings.BASE_URL.rstrip("/") + path


def dead_lettered() -> tuple[Any, Any]:
    """Make a dead-lettered job with one of everything, and return it with its open dead letter."""
    job = ReviewJobFactory(
        status=JobStatus.DEAD_LETTERED, idempotency_key="k-1", changelist_id="77", review_version=3,
        created_at=NOON, deadline_at=LATER, finished_at=LATER, is_late=True,
        banner="1 file was skipped: submodule (1).",
    )  # fmt: skip
    StageRunFactory(job=job, stage=Stage.NOTIFY, next_attempt_at=LATER)
    StageRunFactory(job=job, stage=Stage.LLM, status=StageStatus.FAILED, error_class="AUTH_DENIED")
    StageRunFactory(job=job, stage=Stage.FETCH, status=StageStatus.SUCCEEDED, attempts=2)
    digests = [
        Digest.objects.create(recipient="mail:bob@example.com", due_at=LATER),
        Digest.objects.create(recipient="mail:cid@example.com", due_at=NOON),
    ]
    DeliveryFactory(job=job, recipient="mail:bob@example.com", digest=digests[0])
    DeliveryFactory(
        job=job, recipient="mail:ann@example.com", status="sent", notification_id="<1@x>", notified_at=LATER
    )
    DeliveryFactory(job=job, recipient="mail:cid@example.com", status="held", digest=digests[1])
    FindingRowFactory(job=job)
    FindingRowFactory(job=job, file="description", line=None, end_line=None, side="old", suggestion="Say it.")
    CoverageRowFactory(job=job, file="//depot/main/b.py", status="skipped", reason="binary")
    CoverageRowFactory(job=job, file="//depot/main/app.py")
    letter = DeadLetterFactory(
        job=job, stage=Stage.LLM, first_failure_at=NOON, last_failure_at=LATER, created_at=LATER,
        sanitized_context={"attempt": 5, "at": {"n": None}}, last_stack="Traceback", attempts=2,
        payload_reference="artifact 7",
    )  # fmt: skip
    DeadLetterEventFactory(letter=letter, action="created", created_at=NOON)
    DeadLetterEventFactory(letter=letter, action="noted", actor="ann", reason="OPS-1", created_at=LATER)
    DeadLetterFactory(
        job=job, stage=Stage.FETCH, status="resolved", first_failure_at=NOON, last_failure_at=NOON,
        created_at=NOON, closed_at=NOON,
    )  # fmt: skip
    return job, letter


def answer_of(job: Any, letter: Any) -> dict[str, Any]:
    ids = list(job.findings.order_by("pk").values_list("pk", flat=True))
    return {
        "id": job.pk, "idempotency_key": "k-1", "changelist_id": "77", "review_version": 3,
        "status": "dead_lettered", "stage": "llm", "deadline_at": LATER_TEXT, "created_at": NOON_TEXT,
        "finished_at": LATER_TEXT, "is_late": True, "partial": False,
        "banner": "1 file was skipped: submodule (1).",
        "footer": "",
        "documents": None,
        "stages": [
            {"stage": "fetch", "status": "succeeded", "attempts": 2, "max_attempts": 5,
             "next_attempt_at": None, "error_class": ""},
            {"stage": "llm", "status": "failed", "attempts": 1, "max_attempts": 5,
             "next_attempt_at": None, "error_class": "AUTH_DENIED"},
            {"stage": "notify", "status": "pending", "attempts": 0, "max_attempts": 5,
             "next_attempt_at": LATER_TEXT, "error_class": ""},
        ],
        "deliveries": [
            {"recipient": "mail:bob@example.com", "status": "pending", "notification_id": "",
             "notified_at": None, "waits_until": LATER_TEXT},
            {"recipient": "mail:ann@example.com", "status": "sent", "notification_id": "<1@x>",
             "notified_at": LATER_TEXT, "waits_until": None},
            {"recipient": "mail:cid@example.com", "status": "held", "notification_id": "",
             "notified_at": None, "waits_until": None},
        ],
        "findings": [
            {**FINDING, "id": ids[0]},
            {**FINDING, "id": ids[1], "file": "description", "line": None, "end_line": None, "side": "old",
             "suggestion": "Say it."},
        ],
        "findings_left_out": 0, "fates": [],
        "coverage": [
            {"file": "//depot/main/b.py", "status": "skipped", "reason": "binary"},
            {"file": "//depot/main/app.py", "status": "reviewed", "reason": ""},
        ],
        "coverage_left_out": 0, "configuration": None,
        "dead_letter": letter.pk,
        "links": {"self": address(f"{URL}{job.pk}/"), "html": address(f"/reviews/{job.pk}/")},
    }  # fmt: skip


def test_job_answer_is_complete(reviewer: ApiClient) -> None:
    job, letter = dead_lettered()
    assert reviewer.get(f"{URL}{job.pk}/").json() == answer_of(job, letter)


def test_list_answer_is_complete(reviewer: ApiClient) -> None:
    job, letter = dead_lettered()
    untold = ReviewJobFactory(
        changelist_id="78", recipients=[], created_at=LATER, deadline_at=LATER, idempotency_key="k-2"
    )
    assert reviewer.get(URL).json() == {
        "count": 2, "next": None, "previous": None,
        "results": [
            {
                "id": untold.pk, "idempotency_key": "k-2", "changelist_id": "78", "review_version": 1,
                "status": "queued", "stage": "notify", "deadline_at": LATER_TEXT, "created_at": LATER_TEXT,
                "finished_at": None, "is_late": False, "partial": False, "banner": "", "footer": "",
                "documents": None,
                "stages": [], "deliveries": [],
                "findings": [],
                "findings_left_out": 0, "fates": [], "coverage": [], "coverage_left_out": 0,
                "configuration": None, "dead_letter": None,
                "links": {"self": address(f"{URL}{untold.pk}/"), "html": address(f"/reviews/{untold.pk}/")},
                "message": "No one will be notified: no recipients. The request named none, and"
                " DEFAULT_RECIPIENTS is empty.",
            },
            answer_of(job, letter)
            | {"findings": [], "findings_left_out": 2, "coverage": [], "coverage_left_out": 2},
        ],
    }  # fmt: skip


def test_key_with_depot_trees_gets_the_findings_and_coverage_below_them(db: None) -> None:
    job, letter = dead_lettered()
    CoverageRowFactory(job=job, file="//depot/mais/x.py")
    FindingRowFactory(job=job, file="//depot/other/x.py")
    expected = {**answer_of(job, letter), "idempotency_key": "", "deliveries": [], "banner": ""}
    key = api_keys.create("narrow", "reviewer", ["//depot/main/...", "//depot/mai_/..."])
    assert ApiClient(key).get(f"{URL}{job.pk}/").json() == expected
    other = ApiClient(api_keys.create("other", "reviewer", ["//depot/other/..."]))
    found = other.get(f"{URL}{job.pk}/").json()
    assert [finding["file"] for finding in found["findings"]] == ["description", "//depot/other/x.py"]
    assert found["coverage"] == []


def test_a_partial_review_says_so_without_numbers_to_a_key_with_depot_trees(db: None) -> None:
    job, _ = dead_lettered()
    banner = stopped_banner("timed_out", 3, 10)
    type(job).objects.filter(pk=job.pk).update(stopped="timed_out", banner=banner)
    told = {}
    for name, trees in (("all", []), ("narrow", ["//depot/main/..."])):
        found = ApiClient(api_keys.create(name, "reviewer", trees)).get(f"{URL}{job.pk}/").json()
        told[name] = found["partial"], found["banner"]
    assert told["all"] == (True, banner)
    assert told["narrow"] == (True, banner.replace("after 3 of 10 parts", "before its last part"))


def test_dead_letter_answers_are_complete(operator: ApiClient) -> None:
    job, letter = dead_lettered()
    expected = {
        "id": letter.pk, "job": job.pk, "changelist_id": "77", "review_version": 3, "stage": "llm",
        "status": "new", "error_class": "NOT_FOUND", "code": "CRITICIZER_E107", "severity": "high",
        "detail": "the server does not know the changelist", "last_stack": "Traceback",
        "sanitized_context": {"attempt": 5, "at": {"n": None}}, "payload_reference": "artifact 7",
        "attempts": 2, "first_failure_at": NOON_TEXT, "last_failure_at": LATER_TEXT,
        "failed_replay_count": 0, "is_escalated": False, "created_at": LATER_TEXT, "closed_at": None,
        "events": [
            {"action": "created", "actor": "pipeline", "reason": "", "created_at": NOON_TEXT},
            {"action": "noted", "actor": "ann", "reason": "OPS-1", "created_at": LATER_TEXT},
        ],
        "links": {"self": address(f"{LETTERS}{letter.pk}/"), "job": address(f"{URL}{job.pk}/")},
    }  # fmt: skip
    assert operator.get(f"{LETTERS}{letter.pk}/").json() == expected
    listed = operator.get(LETTERS).json()
    assert (listed["count"], listed["next"], listed["previous"]) == (2, None, None)
    assert listed["results"][0] == expected
    closed = listed["results"][1]
    assert (closed["status"], closed["closed_at"], closed["last_stack"]) == ("resolved", NOON_TEXT, "")
    assert (closed["sanitized_context"], closed["events"]) == ({}, [])


def test_letter_without_a_payload_row_has_empty_values(operator: ApiClient) -> None:
    letter = dead_lettered()[1]
    letter.payload.delete()
    found = operator.get(f"{LETTERS}{letter.pk}/").json()
    assert (found["last_stack"], found["sanitized_context"]) == ("", {})


def test_answers_have_all_that_messages_show_of_a_finding() -> None:
    assert set(schemas.FindingSerializer().fields) >= set(FindingRow.PUBLISHED)


def test_created_job_is_answered_as_it_is_read_afterwards(trigger: ApiClient) -> None:
    for body in (review(), review(idempotency_key="k-2", changelist_id="9", recipients=[])):
        created = trigger.post_json(URL, body)
        assert created.status_code == 201
        assert created.json() == trigger.get(created["Location"].removeprefix(settings.BASE_URL)).json()
    rerun = trigger.post_json(URL, review(idempotency_key="k-3", review_version=2, rerun=True))
    assert rerun.json() == trigger.get(f"{URL}{rerun.json()['id']}/").json()
