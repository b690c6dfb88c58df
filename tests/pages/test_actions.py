"""Rerun and cancellation from the review page: permissions, confirmation, once only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client

from reviews.intake import review_requests
from reviews.intake.review_requests import ReviewRequest
from reviews.models import ReviewJob, ViewerScope
from reviews.states import ACTIVE_JOB, JobStatus
from reviews.web import actions, rerun
from reviews.web.labels import state_for_readers
from tests import factories

pytestmark = pytest.mark.django_db


def operator(name: str = "ann", *, is_staff: bool = True) -> Client:
    return factories.staff_client(name, "operator", is_staff=is_staff)


@pytest.fixture
def ann() -> Client:
    return operator()


@pytest.fixture
def bob() -> Client:
    client = Client()
    client.force_login(factories.UserFactory())
    return client


def said(answer: Any) -> str:
    assert answer.status_code == 200, answer.status_code
    text: str = answer.content.decode()
    return text


def page(client: Client, job: ReviewJob, action: str = "") -> str:
    return said(client.get(f"/reviews/{job.pk}/{action}", follow=True))


def post(client: Client, job: ReviewJob, action: str, **fields: str) -> Any:
    return client.post(f"/reviews/{job.pk}/{action}/", fields, follow=True)


def ended(**fields: Any) -> ReviewJob:
    return factories.job_with_stages(
        **{"status": "succeeded", "recipients": ["mail:carol@example.com"], **fields}
    )


# -- again ------------------------------------------------------------------------------------


def test_rerun_shows_recipients_and_requests_the_next_version(ann: Client) -> None:
    job = ended(recipients=["mail:carol@example.com", "slack:C0123ABCD"])
    asked = page(ann, job, "again/")
    assert "mail:carol@example.com" in asked
    assert "slack:C0123ABCD" in asked
    assert "Request version 2" in asked
    assert ReviewJob.objects.count() == 1
    assert "Version 2 was requested." in said(post(ann, job, "again"))
    new = ReviewJob.objects.get(review_version=2)
    assert (new.changelist_id, new.recipients, new.recipients_are) == (
        job.changelist_id, job.recipients, "given"
    )  # fmt: skip
    assert (new.requested_by, new.idempotency_key) == ("ann", rerun.key_of(job.changelist_id, 2))
    assert new.idempotency_key.startswith(f"page:{job.changelist_id}:v2:")
    job.refresh_from_db()
    assert job.status == "succeeded"


def test_rerun_submitted_twice_creates_one_review(ann: Client) -> None:
    job = ended()
    first, second = post(ann, job, "again"), post(ann, job, "again")
    assert "Version 2 was already requested; it is shown here." in said(second)
    assert first.redirect_chain[-1] == second.redirect_chain[-1]
    assert ReviewJob.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_concurrent_reruns_create_one_review() -> None:
    job = ended()

    def ask(_: int) -> bool:
        try:
            return rerun.request(ReviewJob.objects.get(pk=job.pk), "ann", ReviewJob.objects.all()).is_new
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(ask, range(12))) == [False] * 11 + [True]
    assert ReviewJob.objects.filter(changelist_id=job.changelist_id).count() == 2


def test_rerun_warns_and_supersedes_a_running_review(ann: Client) -> None:
    job = factories.job_with_stages(status="queued")
    assert "is still running" in page(ann, job, "again/")
    post(ann, job, "again")
    job.refresh_from_db()
    assert job.status == "superseded"


def test_rerun_resolves_found_recipients_again_and_never_copies_them(ann: Client, settings: Any) -> None:
    settings.DEFAULT_RECIPIENTS = ["team@example.com"]
    job = ended(recipients_are="found", recipients=["mail:dave@example.com"])
    asked = page(ann, job, "again/")
    assert "Found when the files of the change are known" in asked
    assert asked.index("mail:team@example.com") < asked.index("mail:dave@example.com")
    post(ann, job, "again")
    new = ReviewJob.objects.get(review_version=2)
    assert (new.recipients_are, new.recipients) == ("to_find", ["mail:team@example.com"])


def test_rerun_page_states_missing_recipients(ann: Client) -> None:
    assert "<strong>None:</strong>" in page(ann, ended(recipients=[]), "again/")


def test_rerun_of_an_old_version_is_refused(ann: Client) -> None:
    old = ended()
    newest = ended(changelist_id=old.changelist_id, review_version=3)
    assert "Review again" not in page(ann, old)
    refused = page(ann, old, "again/")
    assert "Nothing was requested. A newer version of this changelist exists: version 3." in refused
    posted = said(post(ann, old, "again"))
    assert "Nothing was requested: version 3 already exists." in posted
    assert ReviewJob.objects.count() == 2
    assert f"/reviews/{newest.pk}/again/" in page(ann, newest)


def test_rerun_shows_the_version_that_the_api_created_first(ann: Client) -> None:
    job = ended()
    made = review_requests.request_review(ReviewRequest("other", job.changelist_id, 2, (), rerun=True))
    answer = post(ann, job, "again")
    assert "Version 2 was already requested" in said(answer)
    assert answer.redirect_chain[-1][0] == f"/reviews/{made.job_id}/"


def test_rerun_reports_an_idempotency_key_used_by_another_review(ann: Client) -> None:
    job = ended()
    review_requests.request_review(ReviewRequest(rerun.key_of(job.changelist_id, 2), "99999"))
    assert "already used by another review" in said(post(ann, job, "again"))
    assert ReviewJob.objects.filter(changelist_id=job.changelist_id).count() == 1


def test_guessed_idempotency_key_does_not_block_a_rerun(ann: Client) -> None:
    job = ended()
    review_requests.request_review(ReviewRequest(f"page:{job.changelist_id}:v2", "99999"))
    assert "Version 2 was requested." in said(post(ann, job, "again"))


def test_rerun_key_depends_on_the_secret_key(settings: Any) -> None:
    here = rerun.key_of("12345", 2)
    settings.SECRET_KEY = "of another installation"
    assert rerun.key_of("12345", 2) != here


def test_rerun_after_the_highest_version_is_refused(ann: Client) -> None:
    job = ended(review_version=review_requests.LAST_VERSION)
    assert "highest possible number" in page(ann, job, "again/")
    assert "highest possible number" in said(post(ann, job, "again"))


@pytest.mark.parametrize("status", [JobStatus.DEAD_LETTERED, JobStatus.TIMED_OUT])
def test_rerun_page_warns_about_late_results_and_open_dead_letters(ann: Client, status: JobStatus) -> None:
    job = ended(status=status, is_late=True)
    if status == JobStatus.DEAD_LETTERED:
        assert "any more" not in page(ann, job, "again/")  # an operator gave it up
        factories.DeadLetterFactory(job=job)
    assert "can no longer be" in page(ann, job, "again/")


def test_a_reviewer_asks_again_within_limits(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_AN_HOUR", 1)
    bob = factories.staff_client("bob", "reviewer", is_staff=False, reads=True)
    running, stopped = factories.job_with_stages(), ended(status="dead_lettered")
    factories.DeadLetterFactory(job=stopped)
    for job, why in ((running, "still being reviewed"), (stopped, "operator can continue it")):
        assert why in said(post(bob, job, "again"))
        assert "Review again" not in page(bob, job)
        assert "Review again" in page(ann, job)
    first, second = ended(), ended()
    assert "Review again" in page(bob, first)
    assert "Version 2 was requested." in said(post(bob, first, "again"))
    assert "Try again later" in said(post(bob, second, "again"))
    assert "Version 2 was requested." in said(post(ann, second, "again"))
    assert ReviewJob.objects.filter(review_version=2).count() == 2


def reader_of_some_files() -> Client:
    """Dave sees //depot/main/... and may request reviews."""
    user = factories.UserFactory(username="dave", reads=False)
    group = Group.objects.create(name="leads")
    group.permissions.set(factories.Permission.objects.filter(
        content_type__app_label="reviews", codename__in=["view_reviewjob", "add_reviewjob"]
    ))  # fmt: skip
    ViewerScope.objects.create(group=group, prefix="//depot/main/...", reason="theirs")
    user.groups.add(group)
    dave = Client()
    dave.force_login(user)
    return dave


def test_rerun_does_not_name_versions_outside_the_viewing_scope() -> None:
    job = ended()
    factories.CoverageRowFactory(job=job, file="//depot/main/a.c")
    hidden = ended(changelist_id=job.changelist_id, review_version=7)
    factories.CoverageRowFactory(job=hidden, file="//depot/secret/b.c")
    dave = reader_of_some_files()
    for answer in (page(dave, job, "again/"), said(post(dave, job, "again"))):
        assert "Nothing was requested" in answer
        assert "newer version" in answer
        assert "version 7" not in answer


def test_rerun_within_a_viewing_scope_masks_recipients_and_announces_the_review() -> None:
    job = ended()
    factories.CoverageRowFactory(job=job, file="//depot/main/a.c")
    dave = reader_of_some_files()
    assert "mail:c…@example.com" in page(dave, job, "again/")
    answer = post(dave, job, "again")
    assert "It appears here when its files are known." in said(answer)
    assert answer.redirect_chain[-1][0] == f"/reviews/{job.pk}/"


# -- cancelling -------------------------------------------------------------------------------


def test_operator_cancels_with_a_reason(ann: Client) -> None:
    job = factories.job_with_stages(status="queued")
    assert "No recipient has been notified" in page(ann, job, "cancel/")
    assert "This field is required." in said(post(ann, job, "cancel", reason="  "))
    job.refresh_from_db()
    assert job.is_active
    answer = said(post(ann, job, "cancel", reason="the branch is gone"))
    assert "This review is cancelled: nothing more is sent for it." in answer
    job.refresh_from_db()
    assert (job.status, job.status_reason) == ("cancelled", "cancelled by ann: the branch is gone")
    assert job.events.get().actor == "ann"
    assert "is already cancelled" in said(post(ann, job, "cancel", reason="again"))
    assert job.events.count() == 1


def test_cancel_page_counts_recipients_already_notified(ann: Client) -> None:
    job = factories.job_with_stages(status="in_progress")
    factories.DeliveryFactory(job=job, status="sent")
    assert "1 recipient has already been notified" in page(ann, job, "cancel/")


@pytest.mark.parametrize("status", [s for s in JobStatus if s not in {*ACTIVE_JOB, JobStatus.CANCELLED}])
def test_ended_review_is_not_cancelled(ann: Client, status: JobStatus) -> None:
    job = ended(status=status)
    assert "Cancel this review" not in page(ann, job)
    for answer in (page(ann, job, "cancel/"), said(post(ann, job, "cancel", reason="x"))):
        assert f"this review has already ended ({state_for_readers(status).lower()})" in answer
    job.refresh_from_db()
    assert job.status == status


def test_review_that_ends_during_cancellation_is_reported(
    ann: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = factories.job_with_stages(status="in_progress")

    def overtaken(job_id: int, actor: str, reason: str) -> bool:
        ReviewJob.objects.filter(pk=job_id).update(status="succeeded", finished_at=job.created_at)
        return False

    monkeypatch.setattr("reviews.web.actions.pipeline.cancel", overtaken)
    assert "Nothing was cancelled" in said(post(ann, job, "cancel", reason="x"))


# -- who may, and where it is offered ----------------------------------------------------------


@pytest.mark.parametrize("action", ["again", "cancel"])
def test_action_without_permission_is_neither_offered_nor_allowed(bob: Client, action: str) -> None:
    job = factories.job_with_stages(status="queued")
    assert f"/{action}/" not in page(bob, job)
    for answer in (bob.get(f"/reviews/{job.pk}/{action}/"), post(bob, job, action, reason="x")):
        assert answer.status_code == 403
    assert ReviewJob.objects.get().status == "queued"


@pytest.mark.parametrize("action", ["again", "cancel"])
def test_post_without_csrf_token_is_rejected(ann: Client, action: str) -> None:
    job = factories.job_with_stages(status="queued")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = ann.cookies
    assert strict.post(f"/reviews/{job.pk}/{action}/", {"reason": "x"}).status_code == 403
    assert ReviewJob.objects.get().status == "queued"


@pytest.mark.parametrize("action", ["again", "cancel"])
def test_action_on_an_unknown_review_is_not_found(ann: Client, action: str) -> None:
    assert ann.get(f"/reviews/4711/{action}/").status_code == 404
    assert post(ann, ReviewJob(pk=4711), action, reason="x").status_code == 404


def test_banner_links_to_a_rerun_or_names_the_operator(ann: Client, bob: Client) -> None:
    job = ended(banner="Only deterministic checks ran. A rerun gets the full review.")
    link = f'<a href="/reviews/{job.pk}/again/">Review again</a>'
    assert link in page(ann, job)
    for_bob = page(bob, job)
    assert "/again/" not in for_bob
    assert "An operator can request another review." in for_bob
    ended(changelist_id=job.changelist_id, review_version=2)
    assert link not in page(ann, job)
    assert "An operator can" not in page(bob, job)


@pytest.mark.long
def test_no_rerun_is_offered_for_files_that_have_no_text(ann: Client, bob: Client) -> None:
    job = ended(banner="1 of 2 files read: 1 skipped (binary file).")
    factories.CoverageRowFactory(job=job, status="reviewed")
    factories.CoverageRowFactory(
        job=job, status="skipped", reason="binary file: the new side is not text", file="//depot/main/a.png"
    )
    link = f'<a href="/reviews/{job.pk}/again/">Review again</a>'
    assert "1 skipped (binary file)" in page(ann, job)
    assert link not in page(ann, job)
    assert "An operator can" not in page(bob, job)
    factories.CoverageRowFactory(job=job, status="skipped", reason="content could not be read")
    assert link in page(ann, job)
    assert "An operator can" in page(bob, job)


@pytest.mark.parametrize("status", [JobStatus.CANCELLED, JobStatus.TIMED_OUT])
def test_cancelled_and_timed_out_reviews_link_to_a_rerun(ann: Client, status: JobStatus) -> None:
    job = factories.ReviewJobFactory(status=status)
    assert f'<a href="/reviews/{job.pk}/again/">Review again</a></div>' in page(ann, job)


# -- reviews without recipients ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"status": "queued", "recipients": []},
            "No one will be notified: no recipients. The request named none, and DEFAULT_RECIPIENTS is"
            " empty.",
        ),
        (
            {"status": "succeeded", "recipients": []},
            "No one was notified: no recipients. The request named none",
        ),
        (
            {"status": "succeeded", "recipients": [], "recipients_are": "found"},
            "No one was notified: no recipients. No subscription covers its files",
        ),
        (
            {"status": "queued", "recipients_are": "to_find"},
            "Recipients are notified when the review is done.",
        ),
        ({"status": "cancelled"}, "No recipient was notified of this review."),
        ({"status": "succeeded"}, "All recipients chose not to be notified: they are muted"),
    ],
)
def test_review_page_explains_missing_recipients(bob: Client, fields: dict[str, Any], words: str) -> None:
    assert words in page(bob, ended(**fields))
