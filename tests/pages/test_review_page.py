"""The review page in each state of a job, for each reader."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.utils import timezone

from notifications.models import Delivery, Digest
from notifications.rendering.summary import summarise
from reviews.models import FindingRow, ReviewJob
from reviews.recipients.viewing_scopes import EVERYTHING
from reviews.reports import report_of
from reviews.reviewers.base import Usage
from reviews.states import ACTIVE_JOB, JobStatus
from reviews.web import review_results
from reviews.web.labels import state_for_readers
from tests import factories
from tests.pages.test_actions import reader_of_some_files

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob(client: Client) -> Client:
    client.force_login(factories.UserFactory())
    return client


@pytest.fixture
def ann(client: Client) -> Client:
    client.force_login(factories.UserFactory(is_staff=True))
    return client


def text_of(client: Client, job: ReviewJob) -> str:
    answer = client.get(f"/reviews/{job.pk}/")
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("status", JobStatus)
def test_review_page_renders_every_status(bob: Client, status: JobStatus) -> None:
    job = factories.job_with_stages(status=status)
    assert f'data-state="{status}">{state_for_readers(status)}<' in text_of(bob, job)


@pytest.mark.parametrize("status", JobStatus)
def test_live_updates_continue_only_while_the_job_is_active(bob: Client, status: JobStatus) -> None:
    job = factories.job_with_stages(status=status)
    live = bob.get(f"/reviews/{job.pk}/live/")
    assert ("X-Live-Next" in live) == (status in ACTIVE_JOB)


def test_progress_shows_attempts_last_failure_and_next_attempt(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="retryable_failed")
    run = factories.StageRunFactory(
        job=job, status="retry_wait", attempts=2, next_attempt_at=timezone.now() + timedelta(minutes=3)
    )
    factories.AttemptFactory(
        stage_run=run, outcome="failed", error_class="NETWORK_TIMEOUT", code="CRITICIZER_E101"
    )
    text = text_of(bob, job)
    assert "Attempt 2 of 5" in text
    assert "Next attempt <time" in text
    assert "The version control server did not answer in time." in text
    assert "Fetch failed in attempt 2 of 5 and is tried again." in text


def test_results_are_sent_again_only_when_they_changed(bob: Client) -> None:
    job = factories.job_with_stages(status="in_progress")
    have = bob.get(f"/reviews/{job.pk}/live/")["X-Live-Have"]
    assert "review-results" not in bob.get(f"/reviews/{job.pk}/live/", {"have": have}).content.decode()
    factories.FindingRowFactory(job=job, title="New")
    answer = bob.get(f"/reviews/{job.pk}/live/", {"have": have})
    assert "New" in answer.content.decode()
    assert answer["X-Live-Have"] != have


@pytest.mark.parametrize("what", ["finding", "coverage", "delivery", "banner", "letter", "version"])
def test_results_revision_changes_with_each_shown_row(what: str) -> None:
    job = factories.ReviewJobFactory(status="succeeded")
    before = review_results.results_revision(job)
    match what:
        case "finding":
            factories.FindingRowFactory(job=job)
        case "coverage":
            factories.CoverageRowFactory(job=job)
        case "delivery":
            factories.DeliveryFactory(job=job)
        case "banner":
            job.banner = "degraded"
        case "letter":
            factories.DeadLetterFactory(job=job)
        case "version":
            factories.ReviewJobFactory(changelist_id=job.changelist_id, review_version=2)
    assert review_results.results_revision(job) != before


def test_findings_are_grouped_worst_first_and_file_findings_apart() -> None:
    job = factories.ReviewJobFactory(status="succeeded")
    for severity, line in [("low", 1), ("critical", 9), ("critical", 2), ("high", None)]:
        factories.FindingRowFactory(job=job, severity=severity, line=line)
    results = review_results.results_of(job, EVERYTHING)
    assert [(g.severity, [f.row.line for f in g.findings]) for g in results.groups] == [
        ("critical", [2, 9]),
        ("low", [1]),
    ]
    assert [f.row.severity for f in results.about_files] == ["high"]


def test_too_many_findings_show_the_worst_and_count_the_rest(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_results, "MAX_FINDINGS", 2)
    job = factories.ReviewJobFactory(status="succeeded")
    for severity in ("low", "low", "critical", "medium"):
        factories.FindingRowFactory(job=job, severity=severity)
    assert [g.severity for g in review_results.results_of(job, EVERYTHING).groups] == ["critical", "medium"]
    text = text_of(bob, job)
    assert "1 to 2 of 4 findings" in text
    assert "the API" not in text
    assert 'href="?findings=2#findings-title">2 more</a>' in text
    rest = bob.get(f"/reviews/{job.pk}/?findings=2").content.decode()
    assert re.findall(r'<article[^>]*data-severity="(\w+)"', rest) == ["low", "low"]
    assert "1 critical" in rest


def test_files_of_the_coverage_come_page_by_page(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_results, "MAX_COVERED", 2)
    job = factories.ReviewJobFactory(status="succeeded")
    for name in "abc":
        factories.CoverageRowFactory(job=job, file=f"//depot/{name}.py")
    text = text_of(bob, job)
    assert "//depot/c.py" not in text
    assert 'href="?coverage=2#coverage-title">1 more</a>' in text
    assert "//depot/c.py" in bob.get(f"/reviews/{job.pk}/?coverage=2").content.decode()


def test_no_findings_is_shown_with_the_coverage(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="succeeded")
    assert "No findings" not in text_of(bob, job)
    assert text_of(bob, job).lower().count("there was no file to read") == 2
    ended = factories.ReviewJobFactory(status="cancelled")
    assert "ended before any file was read" in text_of(bob, ended)
    factories.CoverageRowFactory(job=job)
    factories.CoverageRowFactory(job=job, status="skipped", reason="binary file")
    text = text_of(bob, job)
    assert "<strong>No findings.</strong> 1 of 2 files read." in text
    assert "binary file" in text


def test_findings_that_the_version_before_had_are_listed_with_what_became_of_them(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="succeeded", review_version=2, compared_with=1)
    before = factories.ReviewJobFactory(changelist_id=job.changelist_id, status="succeeded")
    for ending in ("fixed", "not_reported_again"):
        factories.FindingRowFactory(job=before, title=f"It is {ending}", ending=ending, ended_in=job)
    text = text_of(bob, job)
    assert "No longer reported since version 1 (2)" in text
    assert text.index("It is fixed") < text.index(">Fixed<") < text.index(">Not reported again<")
    assert "no longer reported" not in text_of(bob, before)
    assert ">Fixed<" in text_of(bob, before)  # the badge of the finding itself


def test_findings_of_files_that_were_not_read_again_are_not_said_to_be_gone(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="succeeded", review_version=2, compared_with=1)
    before = factories.ReviewJobFactory(changelist_id=job.changelist_id, status="succeeded")
    factories.FindingRowFactory(job=before, ending="not_read", ended_in=job)
    text = text_of(bob, job)
    assert "Not read again since version 1 (1)" in text
    assert "No longer reported" not in text
    factories.FindingRowFactory(job=before, ending="fixed", ended_in=job)
    assert "No longer reported since version 1 (2, 1 of them not read again)" in text_of(bob, job)


def test_pages_and_messages_count_read_files_alike(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="succeeded")
    factories.StageRunFactory(job=job, stage="llm", status="succeeded")
    for status in ("reviewed", "reviewed", "partial", "skipped"):
        factories.CoverageRowFactory(job=job, status=status)
    files = "2 of 4 files read, 1 in part"
    assert str(summarise(report_of(job)).files) == files
    assert text_of(bob, job).count(files) > 1
    assert files in bob.get("/").content.decode()


def test_a_reader_of_some_files_is_told_how_many_are_hidden() -> None:
    job = factories.ReviewJobFactory(status="succeeded")
    for name in ("main/a.py", "main/b.py", "secret/c.py", "secret/d.py"):
        factories.CoverageRowFactory(job=job, file=f"//depot/{name}", status="reviewed")
    dave = reader_of_some_files()
    for text in (text_of(dave, job), dave.get("/").content.decode()):
        assert "2 of 2 files read; 2 of 4 files are visible to you" in text


def test_banner_of_a_checks_only_review_is_above_the_findings(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="succeeded", banner="Only the deterministic checks ran.")
    text = text_of(bob, job)
    assert text.index("Only the deterministic checks ran.") < text.index("findings-title")


def test_a_reader_of_some_files_gets_no_banner_that_counts_all_of_them(bob: Client) -> None:
    banner = "3 files were skipped: binary file (2), generated file."
    job = factories.ReviewJobFactory(status="succeeded", banner=banner)
    factories.CoverageRowFactory(job=job, file="//depot/main/a.py", status="reviewed")
    assert banner in text_of(bob, job)
    assert "files were skipped" not in text_of(reader_of_some_files(), job)


def test_a_banner_about_files_leads_to_the_coverage(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="succeeded", banner="1 file was skipped: binary file.")
    link = '<a href="#coverage-title">Which files, and why</a>'
    assert link not in text_of(bob, job)  # no file is listed there
    factories.CoverageRowFactory(job=job, status="skipped", reason="binary file")
    text = text_of(bob, job)
    assert link in text
    assert 'id="coverage-title"' in text


def test_the_number_of_notified_recipients_leads_to_the_deliveries(bob: Client) -> None:
    ended = {"status": "succeeded", "finished_at": timezone.now()}
    job = factories.DeliveryFactory(status="sent", job=factories.ReviewJobFactory(**ended)).job
    text = text_of(bob, job)
    assert '<a class="small" href="#deliveries-title">1 notified</a>' in text
    assert 'id="deliveries-title"' in text
    assert "notified</a>" not in text_of(bob, factories.ReviewJobFactory(**ended))


def test_a_message_in_a_folder_is_not_said_to_be_sent() -> None:
    root = factories.staff_client("root", "operator", is_superuser=True)
    delivery = factories.DeliveryFactory(status="sent", provider="maildir", recipient="mail:ann@example.com")
    page = f"/admin/notifications/delivery/{delivery.pk}/change/"
    lists = (f"/reviews/{delivery.job_id}/", "/admin/notifications/delivery/")
    for address in (page, *lists):
        text = root.get(address).content.decode()
        assert "Written to a folder of this server</span>" in text, address
        assert 'data-state="sent">Sent<' not in text, address
    assert "No mail was sent: at that time mail was only written to files." in root.get(page).content.decode()
    Delivery.objects.update(provider="smtp")
    assert "Whether it reached the mailbox is not known" in root.get(page).content.decode()
    for address in (page, *lists):
        assert 'data-state="sent">Sent<' in root.get(address).content.decode(), address
    Delivery.objects.update(delivery_state="delivered")
    assert "is not known" not in root.get(page).content.decode()


def test_a_delivery_leads_to_its_page_for_those_who_may_open_it(ann: Client) -> None:
    delivery = factories.DeliveryFactory(status="sent")
    factories.CoverageRowFactory(job=delivery.job, file="//depot/main/a.py")
    link = f'href="/admin/notifications/delivery/{delivery.pk}/change/"'
    assert link not in text_of(ann, delivery.job)
    dave = reader_of_some_files()
    for client in (ann, dave):
        user = get_user_model().objects.get(pk=client.session["_auth_user_id"])
        user.is_staff = True
        user.save()
        user.user_permissions.add(Permission.objects.get(codename="view_delivery"))
        assert link in text_of(client, delivery.job)
        assert client.get(f"/admin/notifications/delivery/{delivery.pk}/change/").status_code == 200
    other = factories.DeliveryFactory(status="sent")  # of a review that Dave may not see, in one message
    digest = Digest.objects.create(recipient=delivery.recipient, due_at=timezone.now())
    Delivery.objects.filter(pk__in=(delivery.pk, other.pk)).update(digest=digest)
    assert link in text_of(ann, delivery.job)
    assert link not in text_of(dave, delivery.job)
    assert dave.get(f"/admin/notifications/delivery/{delivery.pk}/change/").status_code != 200


def test_technical_details_say_what_each_counter_means(bob: Client) -> None:
    usage = {**{field.name: 7 for field in fields(Usage)}, "cut": 0, "asked": "some-model", "later": 3}
    text = text_of(bob, factories.ReviewJobFactory(usage=usage)).split('id="technical"')[1]
    shown = dict(re.findall(r"<dt>([^<]*)</dt><dd>([37])(?: <span|</dd>)", text))
    assert len(shown) == len(fields(Usage)) - 1 + 1
    assert text.count('<dd>7 <span class="muted">') == len(fields(Usage)) - 1
    assert "<dt>Later</dt><dd>3</dd>" in text
    assert "Requests cut" not in text
    assert "some-model" not in text


def test_superseded_version_links_to_the_newest(bob: Client) -> None:
    old = factories.ReviewJobFactory(status="superseded")
    newest = factories.ReviewJobFactory(changelist_id=old.changelist_id, review_version=3)
    text = text_of(bob, old)
    assert f'<a href="/reviews/{newest.pk}/">Open version 3</a>' in text
    assert 'aria-label="Versions of this changelist"' in text


def test_a_superseded_version_does_not_name_a_newer_one_that_the_reader_may_not_see() -> None:
    old = factories.ReviewJobFactory(status="superseded")
    factories.CoverageRowFactory(job=old, file="//depot/main/a.py")
    newest = factories.ReviewJobFactory(changelist_id=old.changelist_id, review_version=3)
    dave = reader_of_some_files()
    hidden = text_of(dave, old)
    assert "A newer version of this changelist was requested" in hidden
    assert f"/reviews/{newest.pk}/" not in hidden
    assert "version 3" not in hidden.lower()
    factories.CoverageRowFactory(job=newest, file="//depot/main/a.py")
    assert f'<a href="/reviews/{newest.pk}/">Open version 3</a>' in text_of(dave, old)


def test_dead_letter_notice_shows_hint_and_link_to_operators_only(client: Client) -> None:
    letter = factories.DeadLetterFactory(code="CRITICIZER_E101", error_class="NETWORK_TIMEOUT")
    client.force_login(factories.UserFactory())
    for_bob = text_of(client, letter.job)
    assert "The version control server did not answer in time." in for_bob
    assert "/admin/deadletters/" not in for_bob
    client.force_login(factories.UserFactory(is_staff=True))
    for_ann = text_of(client, letter.job)
    assert "Check the load of the version control server" in for_ann
    assert f"/admin/deadletters/deadletter/{letter.pk}/change/" in for_ann


def test_late_and_timed_out_reviews_have_a_notice(bob: Client) -> None:
    late = factories.ReviewJobFactory(status="succeeded", is_late=True)
    timed_out = factories.ReviewJobFactory(status="timed_out", is_late=True)
    assert "finished after its deadline" in text_of(bob, late)
    assert "missed its deadline" in text_of(bob, timed_out)


def test_recipients_are_masked_without_staff_status(bob: Client) -> None:
    job = factories.DeliveryFactory(recipient="mail:carol@example.com", status="sent").job
    text = text_of(bob, job)
    assert "carol" not in text
    assert "mail:c\u2026@example.com" in text


def test_recipients_are_shown_to_staff(ann: Client) -> None:
    job = factories.DeliveryFactory(recipient="mail:carol@example.com").job
    assert "mail:carol@example.com" in text_of(ann, job)


def test_review_page_has_a_bounded_number_of_queries(
    bob: Client, django_assert_max_num_queries: object
) -> None:
    job = factories.job_with_stages(status="succeeded")
    for _ in range(10):
        factories.FindingRowFactory(job=job)
        factories.CoverageRowFactory(job=job)
        factories.DeliveryFactory(job=job)
    with django_assert_max_num_queries(23):  # type: ignore[operator]
        text_of(bob, job)


def test_review_pages_are_read_only_and_not_cached(bob: Client) -> None:
    job = factories.ReviewJobFactory()
    assert "no-store" in bob.get(f"/reviews/{job.pk}/")["Cache-Control"]
    assert bob.post(f"/reviews/{job.pk}/").status_code == 405
    assert bob.post("/").status_code == 405


def test_the_page_says_how_each_raw_finding_ended_and_why_some_were_refuted(bob: Client) -> None:
    job = factories.ReviewJobFactory(status=JobStatus.SUCCEEDED)
    attempt = factories.AttemptFactory(stage_run__job=job, stage_run__stage="llm")
    shown = factories.FindingFateFactory(attempt=attempt, fate="shown", reason="", title="")
    factories.FindingFateFactory(attempt=attempt, fate="merged", merged_into=shown)
    factories.FindingFateFactory(attempt=attempt, fate="dropped", reason="not_near_a_change")
    factories.FindingFateFactory(attempt=attempt)
    factories.FindingRowFactory(job=job, fate=shown, verification="unverified", folded="not verified")
    page = bob.get(f"/reviews/{job.pk}/").content.decode()
    assert "4 found: 1 shown, 1 merged, 1 refuted, 1 not near a change." in page
    assert "Line 3: The list is never empty here." in page
    assert "<summary>Folded: not verified</summary>" in page
    assert "Not verified: the second pass did not confirm it." in page


@pytest.mark.parametrize(
    ("delivered", "letter", "word"),
    [
        (["sent", "failed"], "new", "Reviewed; 1 message not delivered"),
        (["failed", "failed"], "discarded", "Reviewed; 2 messages not delivered"),
        (["failed", "pending"], "new", "Stopped: needs an operator"),
        ([], "discarded", "Stopped: given up by an operator"),
        ([], "new", "Stopped: needs an operator"),
    ],
)
def test_a_review_says_what_happened_where_an_operator_is_involved(
    bob: Client, delivered: list[str], letter: str, word: str
) -> None:
    stage = "notify" if delivered else "fetch"
    job = factories.ReviewJobFactory(status=JobStatus.DEAD_LETTERED, finished_at=timezone.now())
    for name in ("fetch", "llm", "notify"):
        status = "failed" if name == stage else "succeeded" if stage == "notify" else "pending"
        factories.StageRunFactory(job=job, stage=name, status=status)
    factories.DeadLetterFactory(job=job, stage=stage, status=letter)
    for number, status in enumerate(delivered):
        factories.DeliveryFactory(job=job, status=status, recipient=f"mail:{number}@example.com")
    text = text_of(bob, job)
    assert f">{word}<" in text
    assert f"{word} after" in text
    stages = text[text.index('id="review-progress"') :].partition("</ol>")[0]
    assert ">Pending<" not in stages  # nothing of it waits for a worker
    assert (">Not run<" in text) == (not delivered)
    assert f">{word}<" in bob.get("/").content.decode()


def test_findings_that_ended_in_a_version_are_found_by_an_index() -> None:
    """Each page of a later version asks for them, and each review of one clears them."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    job = factories.ReviewJobFactory()
    for rows in (job.ended_findings.all(), FindingRow.objects.filter(ended_in=job.pk)):
        assert "findings_ended_in" in rows.order_by().explain()
