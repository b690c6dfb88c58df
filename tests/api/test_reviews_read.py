"""Reading, listing and cancelling reviews."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from rest_framework.serializers import Serializer

from reviews.api import pagination, representations, schemas
from reviews.api.auth import ApiClient as Client
from reviews.models import CoverageRow, FindingRow, ReviewJob
from reviews.recipients.viewing_scopes import scope_of_lines
from reviews.states import JobStatus, Stage, StageStatus
from tests import factories
from tests.api.conftest import ApiClient, assert_error, review
from tests.factories import (
    CoverageRowFactory,
    DeadLetterFactory,
    DeliveryFactory,
    FindingRowFactory,
    ReviewJobFactory,
    StageRunFactory,
    job_with_stages,
)

pytestmark = pytest.mark.django_db

URL = "/api/v1/reviews/"


def full_job(**fields: Any) -> ReviewJob:
    """Make a job with two of everything."""
    job = job_with_stages(**fields)
    for _ in range(2):
        DeliveryFactory(job=job)
        FindingRowFactory(job=job)
        CoverageRowFactory(job=job)
    return job


def test_a_job_shows_all_it_produced(reviewer: ApiClient) -> None:
    job = ReviewJobFactory(status=JobStatus.DEAD_LETTERED)
    StageRunFactory(job=job, stage=Stage.NOTIFY)
    StageRunFactory(job=job, stage=Stage.LLM, status=StageStatus.FAILED, error_class="AUTH_DENIED")
    StageRunFactory(job=job, stage=Stage.FETCH, status=StageStatus.SUCCEEDED, attempts=2)
    sent = DeliveryFactory(job=job, recipient="mail:ann@example.com", status="sent")
    FindingRowFactory(job=job, line=None, end_line=None, suggestion="Check `rows` first.")
    CoverageRowFactory(job=job, file="//depot/main/a.bin", status="skipped", reason="binary")
    letter = DeadLetterFactory(job=job, stage=Stage.LLM)
    DeadLetterFactory(job=job, stage=Stage.FETCH, status="resolved")

    body = reviewer.get(f"{URL}{job.pk}/").json()

    assert (body["status"], body["stage"], body["dead_letter"]) == ("dead_lettered", "llm", letter.pk)
    assert body["finished_at"] is not None
    assert [(run["stage"], run["status"], run["attempts"], run["error_class"]) for run in body["stages"]] == [
        ("fetch", "succeeded", 2, ""), ("llm", "failed", 1, "AUTH_DENIED"), ("notify", "pending", 0, "")
    ]  # fmt: skip
    assert body["deliveries"] == [
        {
            "recipient": "mail:ann@example.com",
            "status": "sent",
            "notification_id": sent.notification_id,
            "waits_until": None,
            "notified_at": body["deliveries"][0]["notified_at"],
        }
    ]
    assert body["deliveries"][0]["notified_at"].endswith("+00:00")
    assert body["findings"] == [
        {
            "file": "//depot/main/app.py", "line": None, "end_line": None, "side": "new", "severity": "high",
            "category": "bug", "title": "Division by zero when the list is empty",
            "message": "`len(rows)` is 0 for a new account.", "suggestion": "Check `rows` first.",
            "source": "llm", "rule": "", "evidence": [], "id": FindingRow.objects.get().pk,
            "confidence": None, "demoted": False, "verification": "", "folded": "", "status": "new",
            "verdict": None, "verdict_by": None, "verdict_at": None,
        }
    ]  # fmt: skip
    assert body["coverage"] == [{"file": "//depot/main/a.bin", "status": "skipped", "reason": "binary"}]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("stages", schemas.StageSerializer),
        ("deliveries", schemas.DeliverySerializer),
        ("findings", schemas.FindingSerializer),
        ("coverage", schemas.CoverageSerializer),
    ],
)
def test_schema_has_exactly_the_answered_fields(
    reviewer: ApiClient, name: str, shape: type[Serializer[Any]]
) -> None:
    body = reviewer.get(f"{URL}{full_job().pk}/").json()
    assert set(body[name][0]) == set(shape().fields)
    optional = {"limited_to", "duplicate", "payload_mismatch", "message", "recipients_not_added"}
    assert set(body) == set(schemas.JobSerializer().fields) - optional


def test_finished_job_shows_its_last_stage(reviewer: ApiClient) -> None:
    job = ReviewJobFactory(status=JobStatus.SUCCEEDED)
    for stage in Stage:
        StageRunFactory(job=job, stage=stage, status=StageStatus.SUCCEEDED)
    assert reviewer.get(f"{URL}{job.pk}/").json()["stage"] == "notify"


@pytest.mark.parametrize("job_id", ["0", "999999", "9" * 30, "9" * 5000])
def test_an_unknown_job_is_not_found(reviewer: ApiClient, job_id: str) -> None:
    assert_error(reviewer.get(f"{URL}{job_id}/"), 404, "NOT_FOUND")


# -- lists ------------------------------------------------------------------------------------


def test_the_newest_job_comes_first(reviewer: ApiClient) -> None:
    made = [job_with_stages().pk for _ in range(3)]
    body = reviewer.get(URL).json()
    assert [job["id"] for job in body["results"]] == made[::-1]
    assert (body["count"], body["next"], body["previous"]) == (3, None, None)


def test_list_needs_the_same_number_of_queries_for_one_job_and_for_many(
    reviewer: ApiClient, django_assert_num_queries: Any
) -> None:
    reviewer.get(URL)
    for jobs in (1, 10):
        for _ in range(jobs):
            full_job()
        # the key, the count, the page, the jobs, their stages and their deliveries
        with django_assert_num_queries(6):
            reviewer.get(URL)


def test_how_the_raw_findings_ended_is_counted_in_the_scope_of_the_key(reviewer: ApiClient) -> None:
    """Counts stay few however many reasons there are (guarantee G281)."""
    attempt = factories.AttemptFactory()
    job, hidden = attempt.stage_run.job, "//depot/secret/app.py"
    kept = factories.FindingFateFactory(attempt=attempt, fate="shown", reason="")
    factories.FindingFateFactory(attempt=attempt, fate="merged", merged_into=kept, reason="", file=hidden)
    factories.FindingFateFactory(attempt=attempt)
    for number in range(4):
        reason = "not_near_a_change" if number else "unknown_file"
        factories.FindingFateFactory(attempt=attempt, fate="dropped", reason=reason)
    dropped = [
        {"fate": "dropped", "reason": "not_near_a_change", "count": 3},
        {"fate": "dropped", "reason": "unknown_file", "count": 1},
    ]
    merged = {"fate": "merged", "reason": "", "count": 1}
    rest = [{"fate": fate, "reason": "", "count": 1} for fate in ("refuted", "shown")]
    assert reviewer.get(f"{URL}{job.pk}/").json()["fates"] == [*dropped, merged, *rest]
    client = Client(1, "key", "reviewer", scope_of_lines(["//depot/main/..."]))
    scoped = representations.job(job.pk, client)
    assert scoped is not None
    assert scoped["fates"] == [*dropped, *rest]
    for number in range(representations.MAX_FATES + 5):
        factories.FindingFateFactory(attempt=attempt, fate="dropped", reason=f"reason_{number}")
    assert len(reviewer.get(f"{URL}{job.pk}/").json()["fates"]) == representations.MAX_FATES


def test_a_large_review_is_answered_in_bounded_parts_and_read_in_pages(reviewer: ApiClient) -> None:
    job = job_with_stages()
    files = [f"//depot/main/{number:05}.c" for number in range(2500)]
    CoverageRow.objects.bulk_create(CoverageRow(job=job, file=file, status="reviewed") for file in files)
    FindingRow.objects.bulk_create(
        FindingRow(
            job=job, file=file, severity="low", category="bug", title="t", message="m" * 500, source="llm"
        )
        for file in files[:1200]
    )
    (listed,) = reviewer.get(URL).json()["results"]
    assert (listed["findings"], listed["coverage"]) == ([], [])
    assert (listed["findings_left_out"], listed["coverage_left_out"]) == (1200, 2500)
    one = reviewer.get(f"{URL}{job.pk}/").json()
    assert (len(one["findings"]), one["findings_left_out"]) == (1000, 200)
    assert (len(one["coverage"]), one["coverage_left_out"]) == (1000, 1500)
    for name, expected in (("findings", files[:1200]), ("coverage", files)):
        found: list[str] = []
        address = f"{URL}{job.pk}/{name}/"
        while address:
            page = reviewer.get(address).json()
            assert len(page["results"]) <= 1000
            found += [row["file"] for row in page["results"]]
            address = (page["next"] or "").removeprefix(settings.BASE_URL)
        assert found == expected
    assert page["results"][0] == one["coverage"][0] | {"file": files[2000]}


@pytest.mark.parametrize("after", ["x", "-1", "9" * 19, ""])
def test_a_place_that_is_no_number_is_refused(reviewer: ApiClient, after: str) -> None:
    address = f"{URL}{job_with_stages().pk}/findings/?after={after}"
    assert_error(reviewer.get(address), 400, "SCHEMA_INVALID")


def test_the_parts_of_a_review_that_is_not_there_are_not_found(reviewer: ApiClient) -> None:
    for name in ("findings", "coverage"):
        assert_error(reviewer.get(f"{URL}999999/{name}/"), 404, "NOT_FOUND")


def test_a_webhooks_address_is_shown_to_its_requester_and_to_operators(
    client_with_role: Any, reviewer: ApiClient
) -> None:
    secret = "webhook:https://ann:pw@ci.example.com/hooks/T0KEN?sig=abc"
    job = ReviewJobFactory(recipients=[secret], requested_by="key:ci")
    DeliveryFactory(job=job, recipient=secret)
    ci, other = client_with_role("trigger", "ci"), client_with_role("trigger", "other")
    operator = client_with_role("operator")
    for client, shown in ((ci, True), (operator, True), (other, False), (reviewer, False)):
        one, listed = client.get(f"{URL}{job.pk}/").json(), client.get(URL).json()["results"][0]
        expected = secret if shown else "webhook:https://ci.example.com/\u2026"
        assert [row["recipient"] for row in one["deliveries"] + listed["deliveries"]] == [expected] * 2


def test_lists_are_filtered(reviewer: ApiClient) -> None:
    first = ReviewJobFactory(changelist_id="7", status=JobStatus.SUCCEEDED)
    second = ReviewJobFactory(changelist_id="7", review_version=2)
    other = ReviewJobFactory(changelist_id="8")

    def listed(query: str) -> list[int]:
        return [job["id"] for job in reviewer.get(f"{URL}?{query}").json()["results"]]

    assert listed("changelist_id=7") == [second.pk, first.pk]
    assert listed("changelist_id=7&status=succeeded") == [first.pk]
    assert listed("status=queued") == [other.pk, second.pk]
    assert listed("changelist_id=9") == []
    assert listed("changelist_id=&status=&page=1") == [other.pk, second.pk, first.pk]


@pytest.mark.parametrize(
    "query",
    ["status=done", "status=%00", "changelist_id=%00", "changelist_id=" + "9" * 200, "page=x", "page=-1"],
)
def test_a_bad_filter_is_refused_by_name(reviewer: ApiClient, query: str) -> None:
    details = assert_error(reviewer.get(f"{URL}?{query}"), 400, "SCHEMA_INVALID")
    assert list(details) == [query.partition("=")[0]]


@pytest.mark.parametrize(
    "address",
    [
        *("reviews/", "reviews/{}/", "reviews/{}/findings/", "reviews/{}/coverage/"),
        *("dead-letters/", "dead-letters/{}/"),
    ],
)
@pytest.mark.parametrize("query", ["author=Kevin", "format=csv"])
def test_an_unknown_query_parameter_is_refused_by_name(operator: ApiClient, address: str, query: str) -> None:
    """G221: a filter that does not exist never answers with everything."""
    found = operator.get(f"/api/v1/{address.format(1)}?{query}")
    details = assert_error(found, 400, "SCHEMA_INVALID")
    assert list(details) == [query.partition("=")[0]]


def test_posts_take_no_query_and_a_missing_key_is_said_first(trigger: ApiClient, mallory: ApiClient) -> None:
    for name in ("rerun", "status"):  # what only a GET of the same address takes is refused as well
        answer = trigger.post_json(f"{URL}?{name}=1", {})
        assert assert_error(answer, 400, "SCHEMA_INVALID") == {
            name: ["Unknown query parameter; accepted: none."]
        }
    assert_error(mallory.get(f"{URL}?author=Kevin"), 401, "AUTH_DENIED")


def test_pages_link_to_each_other(reviewer: ApiClient, settings: Any) -> None:
    made = [ReviewJobFactory().pk for _ in range(51)]
    first = reviewer.get(URL).json()
    assert (len(first["results"]), first["count"]) == (50, 51)
    assert first["next"].endswith("/api/v1/reviews/?page=2")
    second = reviewer.get(first["next"]).json()
    assert [job["id"] for job in second["results"]] == [made[0]]
    assert second["previous"].endswith("/api/v1/reviews/")


@pytest.mark.parametrize("page", ["0", "2", "999999999"])
def test_a_page_that_is_not_there_is_not_found(reviewer: ApiClient, page: str) -> None:
    assert_error(reviewer.get(f"{URL}?page={page}"), 404, "NOT_FOUND")


def test_counting_stops_at_a_limit(reviewer: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, "COUNT_LIMIT", 2)
    for _ in range(4):
        ReviewJobFactory()
    assert reviewer.get(URL).json()["count"] == 2


# -- cancelling -------------------------------------------------------------------------------


def cancel(client: ApiClient, job_id: int) -> Any:
    """Cancel without a body: none is needed."""
    return client.generic("POST", f"{URL}{job_id}/cancel/")


def test_a_trigger_cancels_its_own_review(trigger: ApiClient) -> None:
    job = trigger.post_json(URL, review()).json()
    response = trigger.post_json(f"{URL}{job['id']}/cancel/", {"reason": "posted by mistake"})
    assert response.status_code == 200
    body = response.json()
    assert body["status"] == "cancelled"
    assert body["finished_at"] is not None
    assert {run["status"] for run in body["stages"]} == {"cancelled"}
    reason = ReviewJob.objects.get().status_reason
    assert "key:the trigger" in reason
    assert "posted by mistake" in reason


def test_second_cancel_gets_the_same_answer(trigger: ApiClient) -> None:
    job = trigger.post_json(URL, review()).json()
    first = cancel(trigger, job["id"])
    second = cancel(trigger, job["id"])
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()


def test_trigger_key_cannot_cancel_reviews_of_others(trigger: ApiClient, operator: ApiClient) -> None:
    job = job_with_stages(requested_by="key:another trigger")
    assert_error(cancel(trigger, job.pk), 403, "PERMISSION_DENIED")
    job.refresh_from_db()
    assert job.status == JobStatus.QUEUED
    assert cancel(operator, job.pk).json()["status"] == "cancelled"


@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.DEAD_LETTERED, JobStatus.SUPERSEDED])
def test_final_review_cannot_be_cancelled(operator: ApiClient, status: JobStatus) -> None:
    job = job_with_stages(status=status)
    details = assert_error(cancel(operator, job.pk), 409, "STATE_CONFLICT")
    assert details == {"status": status.value}


def test_an_unknown_job_cannot_be_cancelled(operator: ApiClient) -> None:
    assert_error(cancel(operator, 4711), 404, "NOT_FOUND")


@pytest.mark.parametrize("body", [{"reason": 5}, {"why": "x"}, [], {"reason": "x" * 401}])
def test_a_bad_reason_is_refused(operator: ApiClient, body: object) -> None:
    job = job_with_stages()
    assert_error(operator.post_json(f"{URL}{job.pk}/cancel/", body), 400, "SCHEMA_INVALID")
