"""Late results: shown, accepted by an operator with a reason, and only then delivered."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.utils import timezone

from criticizer.models import OutboxMessage
from reviews.models import JobEvent, ReviewJob, ViewerScope
from tests import factories

pytestmark = pytest.mark.django_db


def _client(role: str, *, staff: bool = True) -> Client:
    return factories.staff_client(role, role, is_superuser=False, is_staff=staff)


@pytest.fixture
def late() -> ReviewJob:
    """A review that timed out and whose result arrived afterwards, as the pipeline leaves it."""
    past = timezone.now() - timedelta(minutes=5)
    job: ReviewJob = factories.ReviewJobFactory(status="timed_out", deadline_at=past, is_late=True)
    factories.StageRunFactory(job=job, stage="fetch", status="succeeded")
    for stage in ("llm", "notify"):
        factories.StageRunFactory(job=job, stage=stage, status="cancelled")
    return job


def _address(job: ReviewJob) -> str:
    return f"/admin/reviews/reviewjob/{job.pk}/accept-late/"


def test_an_operator_accepts_a_late_result(late: ReviewJob) -> None:
    answer = _client("operator").post(_address(late), {"reason": "INC-7: still wanted"}, follow=True)

    assert [str(message) for message in answer.context["messages"]] == [
        "Accepted: the recipients are notified now."
    ]
    late.refresh_from_db()
    assert late.status == "queued"
    assert late.deadline_at > timezone.now()
    notify = late.stages.get(stage="notify")
    assert OutboxMessage.objects.get().aggregate_id == notify.pk
    event = late.events.get(kind=JobEvent.Kind.LATE_ACCEPTED)
    assert (event.actor, event.reason) == ("operator", "INC-7: still wanted")
    assert "INC-7: still wanted" in _client_page(late)


def _client_page(job: ReviewJob) -> str:
    factories.UserFactory(username="root", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(type(job)._meta.apps.get_model("auth", "User").objects.get(username="root"))
    return client.get(f"/admin/reviews/reviewjob/{job.pk}/change/").content.decode()


def test_a_late_result_is_not_accepted_without_a_reason(late: ReviewJob) -> None:
    answer = _client("operator").post(_address(late), {"reason": " "})
    assert "A reason is required." in answer.content.decode()
    late.refresh_from_db()
    assert late.status == "timed_out"


def test_a_second_acceptance_says_what_is_in_its_way(late: ReviewJob) -> None:
    client = _client("operator")
    client.post(_address(late), {"reason": "still wanted"})
    answer = client.post(_address(late), {"reason": "still wanted"}, follow=True)
    assert "only a review that timed out" in str(list(answer.context["messages"])[-1])


def test_reviewers_see_the_late_result_and_cannot_accept_it(late: ReviewJob) -> None:
    client = _client("reviewer")
    assert client.post(_address(late), {"reason": "please"}).status_code == 403
    late.refresh_from_db()
    assert late.status == "timed_out"


@pytest.mark.parametrize(
    ("file", "status", "job_status"),
    [("//depot/main/a.c", 302, "queued"), ("//depot/secret/a.c", 404, "timed_out")],
)
def test_a_late_result_is_accepted_within_the_viewing_scope_only(
    late: ReviewJob, file: str, status: int, job_status: str
) -> None:
    factories.CoverageRowFactory(job=late, file=file)
    group = Group.objects.create(name="release desk")
    group.permissions.add(Permission.objects.get(codename="accept_late"))
    ViewerScope.objects.create(group=group, prefix="//depot/main/...", reason="theirs")
    sam = factories.UserFactory(username="sam", is_staff=True, reads=False)
    sam.groups.add(group)
    client = Client()
    client.force_login(sam)
    assert client.post(_address(late), {"reason": "still wanted"}).status_code == status
    late.refresh_from_db()
    assert late.status == job_status


def test_the_page_offers_the_acceptance_to_operators_only(late: ReviewJob) -> None:
    page = f"/reviews/{late.pk}/"
    operators = _client("operator").get(page).content.decode()
    reviewers = _client("reviewer", staff=False).get(page).content.decode()
    assert "Late result" in operators
    assert _address(late) in operators
    assert "Late result" in reviewers
    assert _address(late) not in reviewers


def test_a_timed_out_review_without_a_result_offers_nothing(late: ReviewJob) -> None:
    ReviewJob.objects.filter(pk=late.pk).update(is_late=False)
    page = _client("operator").get(f"/reviews/{late.pk}/").content.decode()
    assert "Late result" not in page
    assert "was not finished before its deadline" in page
