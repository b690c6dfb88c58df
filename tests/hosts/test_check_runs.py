"""Check runs: one for each review, opened once, and closed at every end of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.test import Client
from django.utils import timezone

from criticizer.codehosts.client import Reply
from criticizer.codehosts.github.client import GitHub
from criticizer.db import prepared, timeline
from criticizer.queue import outbox
from criticizer.queue.lease_renewer import LeaseRenewer
from criticizer.resilience import gate
from reviews import check_runs, tasks
from reviews.models import HostChange, HostCheck, HostVersion, ReviewJob
from reviews.reviewers.coverage_texts import stopped_banner
from reviews.states import JobStatus, Stage
from tests import factories
from tests.fakes.github import APP_ID, HEAD, SLUG, Act, GitHubServer, private_key
from tests.hosts import deliveries

pytestmark = pytest.mark.django_db

POST = "POST /repos/Acme/web/check-runs"  # its name as GitHub writes it
PATCH = "PATCH /repos/Acme/web/check-runs"


@pytest.fixture
def github(settings: Any) -> Iterator[GitHubServer]:
    with GitHubServer() as server:
        server.add("acme/web")
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        settings.RATE_LIMITS = {"github": 1000.0}
        settings.RETRY_TIME_SCALE = 0.001
        gate.forget()
        yield server
        assert server.faults == []
    gate.forget()


def pull_request(
    github: GitHubServer, status: JobStatus = JobStatus.IN_PROGRESS, version: int = 1, **fields: Any
) -> ReviewJob:
    job = factories.job_with_stages(
        changelist_id="github:acme/web#7", review_version=version, status=status, **fields
    )
    at = timezone.now()
    seen = {"head_sha": HEAD, "base_sha": "b" * 40, "base_ref": "main"}
    change, _ = HostChange.objects.get_or_create(
        host="github", repository_id=github.repos["acme/web"].number, number=7,
        defaults={
            "full_name": "Acme/web", "changelist_id": job.changelist_id, "reported_at": at, **seen,
        },
    )  # fmt: skip
    HostVersion.objects.create(change=change, job=job, is_automatic=False, **seen)
    return job


def to(job: ReviewJob, *statuses: JobStatus) -> None:
    for status in statuses:
        ended = None if status in {JobStatus.QUEUED, JobStatus.IN_PROGRESS} else timezone.now()
        ReviewJob.objects.filter(pk=job.pk).update(status=status, finished_at=ended)


def checks(github: GitHubServer) -> list[dict[str, Any]]:
    return list(github.repos["acme/web"].checks.values())


def states(github: GitHubServer) -> list[tuple[str, str | None]]:
    return [(check["status"], check["conclusion"]) for check in checks(github)]


def make_due() -> None:
    HostCheck.objects.exclude(due_at=None).update(due_at=timezone.now())
    prepared.rows("DELETE FROM paces")
    gate.forget()


def settle() -> None:
    for _ in range(9):
        check_runs.run()
        make_due()


def test_the_button_of_an_ended_check_run_asks_for_another_review(
    github: GitHubServer, settings: Any
) -> None:
    settings.GITHUB_WEBHOOK_SECRETS = [deliveries.SECRET]
    settings.GITHUB_REPOSITORIES = ["acme/*"]
    job = pull_request(github)
    settle()
    (check,) = checks(github)
    assert "actions" not in check
    to(job, JobStatus.SUCCEEDED)
    settle()
    (check,) = checks(github)
    (button,) = check["actions"]
    assert button["label"] == "Review again"
    pressed = {
        "action": "requested_action",
        "requested_action": {"identifier": button["identifier"]},
        "check_run": {"head_sha": check["head_sha"], "app": check["app"], "pull_requests": []},
        "repository": {"id": github.repos["acme/web"].number, "full_name": "Acme/web"},
        "installation": {"id": 3},
    }
    body = json.dumps(pressed).encode()
    sent = deliveries.headers(body, "check_run", delivery="guid-1")
    content_type = sent.pop("Content-Type")
    said = [Client().post(deliveries.PATH, body, content_type=content_type, headers=sent) for _ in range(2)]
    again = ReviewJob.objects.latest("pk")
    assert (again.changelist_id, again.review_version) == (job.changelist_id, 2)
    assert [answer.status_code for answer in said] == [202, 200]
    assert said[1].json() == {"job": again.pk, "duplicate": True}


def test_a_check_run_is_open_while_the_review_runs(github: GitHubServer) -> None:
    job = pull_request(github)
    assert check_runs.run() == 1
    (check,) = checks(github)
    assert (check["status"], check["conclusion"], check["head_sha"]) == ("in_progress", None, HEAD)
    assert check["details_url"].endswith(f"/{job.pk}/")
    row = HostCheck.objects.get()
    assert (row.check_id, row.told, str(row.token)) == (check["id"], "active", check["external_id"])
    called = len(github.calls)
    assert check_runs.run() == 0
    assert len(github.calls) == called  # nothing is said twice


@pytest.mark.parametrize(
    ("status", "conclusion", "title"),
    [
        (JobStatus.SUCCEEDED, "success", "no findings, "),
        (JobStatus.CANCELLED, "cancelled", "The review was cancelled"),
        (JobStatus.SUPERSEDED, "cancelled", "A newer version is reviewed"),
        (JobStatus.TIMED_OUT, "timed_out", "The review took too long"),
        (JobStatus.DEAD_LETTERED, "failure", "The review failed"),
    ],
)
def test_a_check_run_is_closed_whatever_becomes_of_the_review(
    github: GitHubServer, status: JobStatus, conclusion: str, title: str
) -> None:
    job = pull_request(github)
    settle()
    to(job, status)
    settle()
    assert states(github) == [("completed", conclusion)]
    (check,) = github.repos["acme/web"].checks.values()
    assert check["output"]["title"].startswith(title)
    assert not HostCheck.objects.exclude(told=status).exists()


def test_every_state_that_a_review_can_end_in_has_a_conclusion() -> None:
    for status in JobStatus:
        job = ReviewJob(status=status)
        if status != JobStatus.SUCCEEDED:
            told = check_runs.told_of(job)
            assert bool(told.conclusion) == (told.state != HostCheck.ACTIVE)


def test_a_review_that_ended_before_its_check_run_was_opened(github: GitHubServer) -> None:
    for version, status in enumerate((JobStatus.CANCELLED, JobStatus.SUPERSEDED, JobStatus.DEAD_LETTERED), 1):
        pull_request(github, status, version)
    settle()
    assert states(github) == [("completed", "failure")]


def test_findings_are_neutral_and_a_partial_review_says_so(github: GitHubServer) -> None:
    job = pull_request(github)
    job.stages.filter(stage=Stage.LLM).update(finished_at=timezone.now())
    factories.FindingRowFactory(job=job)
    to(job, JobStatus.SUCCEEDED)
    settle()
    partial = pull_request(github, version=2)
    ReviewJob.objects.filter(pk=partial.pk).update(banner="The model did not run.")
    to(partial, JobStatus.SUCCEEDED)
    settle()
    late = pull_request(github, version=3)
    banner = stopped_banner("timed_out", 3, 10)
    ReviewJob.objects.filter(pk=late.pk).update(banner=banner, stopped="timed_out")
    to(late, JobStatus.SUCCEEDED)
    settle()
    first, second, third = checks(github)
    assert (third["conclusion"], third["output"]["title"]) == ("neutral", "Partial scan")
    assert third["output"]["summary"].endswith(banner)
    assert (first["conclusion"], first["output"]["title"][:9]) == ("neutral", "1 finding")
    assert (second["conclusion"], second["output"]["title"]) == ("neutral", "Partial scan")
    assert second["output"]["summary"].endswith("The model did not run.")


def test_a_review_that_goes_on_opens_the_same_check_run_again(github: GitHubServer) -> None:
    job = pull_request(github)
    settle()
    to(job, JobStatus.TIMED_OUT)
    settle()
    to(job, JobStatus.QUEUED)
    settle()
    assert [status for status, _ in states(github)] == ["in_progress"]
    to(job, JobStatus.IN_PROGRESS, JobStatus.SUCCEEDED)
    settle()
    assert states(github) == [("completed", "success")]


LOST = {
    "lost answer": Act(then="reset"),
    "a page of a proxy": Act(then="page"),
    "made, then 502": Act(status=502),
    "not made": Act(keep=False, status=502),
    "conflict": Act(keep=False, status=409),
}
LATER = {  # `make test` tries each once
    (PATCH, "lost answer"), (POST, "a page of a proxy"), (PATCH, "made, then 502"), (POST, "not made"),
    (PATCH, "conflict"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("on", "act"),
    [
        pytest.param(on, act, id=f"{on}-{name}", marks=pytest.mark.long if (on, name) in LATER else ())
        for on in (POST, PATCH)
        for name, act in LOST.items()
    ],
)
def test_a_lost_answer_makes_no_second_check_run(github: GitHubServer, act: Act, on: str) -> None:
    github.script(act, on=on)
    job = pull_request(github)
    settle()
    to(job, JobStatus.SUCCEEDED)
    settle()
    assert states(github) == [("completed", "success")]


def test_a_crash_between_the_call_and_its_record_makes_no_second_check_run(
    github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*args: object, **changes: object) -> bool:
        raise OperationalError("the worker died here")

    job = pull_request(github)
    for status in (None, JobStatus.SUCCEEDED):
        if status:
            to(job, status)
        with monkeypatch.context() as dying:
            dying.setattr(check_runs, "_record", die)
            with pytest.raises(OperationalError):
                check_runs.run()
        assert check_runs.run() == 0  # the claim of the dead worker holds
        make_due()
        assert check_runs.run() == 1
    assert states(github) == [("completed", "success")]
    assert github.count("POST", "/repos/Acme/web/check-runs") == 1


def test_a_crash_before_the_call_is_made_good(github: GitHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*args: object) -> None:
        raise SystemExit

    pull_request(github)
    with monkeypatch.context() as dying:
        dying.setattr(check_runs, "_call", die)
        with pytest.raises(SystemExit):
            check_runs.run()
    make_due()
    check_runs.run()
    assert states(github) == [("in_progress", None)]


@pytest.mark.long
def test_a_look_up_among_pages_without_end_is_given_up(
    github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    github.script(Act(keep=False, status=502), on=POST)
    pull_request(github)
    check_runs.run()
    make_due()
    monkeypatch.setattr(GitHub, "pages", lambda *_, **__: itertools.repeat(()))
    monkeypatch.setattr(check_runs, "_LATEST_SECONDS", 0.05)
    assert check_runs.run() == 0
    assert HostCheck.objects.get().error_class == "NETWORK_TIMEOUT"
    assert checks(github) == []


def test_a_number_that_no_column_holds_does_not_stop_the_others(
    github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull_request(github)
    monkeypatch.setattr(GitHub, "call", lambda *_, **__: Reply(201, {"id": 2**63}))
    assert check_runs.run() == 0
    assert HostCheck.objects.get().error_class == "UPSTREAM_INTERNAL"


def test_a_review_of_a_part_of_the_files_has_no_check_run(github: GitHubServer) -> None:
    pull_request(github, series="key-7", scope_prefixes=["//github/acme/web/docs/"])
    settle()
    assert checks(github) == []


def test_a_late_worker_records_nothing(github: GitHubServer) -> None:
    pull_request(github)
    late, other = (HostCheck.objects.create(version=HostVersion.objects.get()), HostCheck.objects.get())
    assert check_runs._claim(late)
    assert not check_runs._claim(other)
    HostCheck.objects.update(attempts=F("attempts") + 1, due_at=None)  # another has counted since
    assert not check_runs._record(late, told="succeeded")
    assert HostCheck.objects.get().told == ""


def test_check_runs_of_one_owner_keep_its_pace_in_one_run(github: GitHubServer, settings: Any) -> None:
    settings.RATE_LIMITS = {"github": 20.0}
    for version in range(1, 4):
        pull_request(github, JobStatus.DEAD_LETTERED, version)
    assert check_runs.run() == 3
    assert github.count("GET", "/repos/Acme/web/commits/.*") == 0  # waiting for the pace is no attempt


def test_a_used_up_quota_is_waited_for(github: GitHubServer, settings: Any) -> None:
    settings.RETRY_TIME_SCALE = 1
    github.script(Act(keep=False, status=403, headers={"retry-after": "900"}), on=POST)
    pull_request(github)
    assert check_runs.run() == 0
    called = len(github.calls)
    row = HostCheck.objects.get()
    assert row.due_at is not None
    assert (row.due_at - timezone.now()).total_seconds() > 800
    HostCheck.objects.update(due_at=None)
    assert check_runs.run() == 0  # the pause is of the dependency
    assert len(github.calls) == called
    settle()
    assert states(github) == [("in_progress", None)]


def test_a_refusal_is_recorded_and_tried_again_an_hour_later(github: GitHubServer, settings: Any) -> None:
    settings.RETRY_TIME_SCALE = 1
    github.script(Act(keep=False, status=422), on=POST)
    pull_request(github)
    check_runs.run()
    row = HostCheck.objects.get()
    assert row.due_at is not None
    assert 3500 < (row.due_at - timezone.now()).total_seconds() <= 3600
    assert (row.error_class, row.failures) == ("SCHEMA_INVALID", 1)
    settle()
    assert HostCheck.objects.get().error_class == ""


def test_a_check_run_of_an_uninstalled_app_is_concluded_when_it_is_installed_again(
    github: GitHubServer,
) -> None:
    """No event told it: the webhook of the uninstallation was lost."""
    job = pull_request(github)
    settle()
    github.is_installed = False
    to(job, JobStatus.SUCCEEDED)
    settle()
    row = HostCheck.objects.get()
    assert (row.error_class, row.told) == ("NOT_FOUND", "active")
    assert "not installed" in row.detail
    github.is_installed = True
    settle()
    assert states(github) == [("completed", "success")]
    assert HostCheck.objects.get().error_class == ""


def test_a_defect_about_one_does_not_stop_the_others(
    github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = pull_request(github, JobStatus.DEAD_LETTERED)
    pull_request(github, version=2)
    real = check_runs.told_of

    def told_of(job: ReviewJob) -> check_runs.Told:
        return real(job) if job.pk != broken.pk else real(job.missing)  # type: ignore[attr-defined]

    monkeypatch.setattr(check_runs, "told_of", told_of)
    assert check_runs.run() == 1
    assert HostCheck.objects.get(version__job=broken).error_class == "INTERNAL_BUG"


def test_nothing_is_called_for_a_repository_that_is_no_longer_ours(github: GitHubServer) -> None:
    pull_request(github)
    HostChange.objects.update(state=HostChange.State.REMOVED)
    assert check_runs.run() == 0
    assert not github.calls


def lose(github: GitHubServer, rows: str) -> None:
    """Take away what a promoted standby may lack; the host poll finds the pull request again."""
    HostCheck.objects.all().delete()
    if rows == "version":
        ReviewJob.objects.all().delete()
        pull_request(github)


@pytest.mark.parametrize("rows", ["check run", "version"])
def test_a_check_run_whose_rows_a_database_lost_is_found_and_concluded(
    github: GitHubServer, monkeypatch: pytest.MonkeyPatch, rows: str
) -> None:
    pull_request(github)
    check_runs.run()
    lose(github, rows)
    monkeypatch.setattr(timeline, "read", lambda: (2, 1))
    settle()
    assert states(github) == [("in_progress", None)]
    to(ReviewJob.objects.get(), JobStatus.SUCCEEDED)
    settle()
    assert states(github) == [("completed", "success")]
    assert github.count("POST", "/repos/Acme/web/check-runs") == 1


def test_each_review_of_a_head_has_a_check_run_of_its_own_after_a_promotion(
    github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "read", lambda: (2, 1))
    for version in (1, 2):
        pull_request(github, JobStatus.DEAD_LETTERED, version)
    settle()
    assert states(github) == [("completed", "failure")] * 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("when", ["before it is read", "before its check run is inserted"])
def test_a_version_that_a_database_lost_does_not_stop_the_others(
    github: GitHubServer, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    lost = HostVersion.objects.get(job=pull_request(github))
    kept = pull_request(github, JobStatus.DEAD_LETTERED, version=2)

    def lose_version() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger: nobody deleted it
            cursor.execute("DELETE FROM host_versions WHERE id = %s", [lost.pk])

    real_rows, real_token = prepared.rows, check_runs.token_of

    def rows(*given: Any) -> list[dict[str, Any]]:
        found = real_rows(*given)
        if given[0] == check_runs._DUE:
            assert len(found) == 2
            lose_version()
        return found

    def token_of(version: HostVersion) -> Any:
        if version.pk == lost.pk:
            lose_version()
        return real_token(version)

    if when == "before it is read":
        monkeypatch.setattr(prepared, "rows", rows)
    else:
        monkeypatch.setattr(check_runs, "token_of", token_of)
    assert check_runs.run() == 1
    assert HostCheck.objects.get().version.job == kept
    assert states(github) == [("completed", "failure")]


def test_the_clock_runs_where_an_app_is_configured(
    github: GitHubServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A heartbeat's own connection would outlive the database.
    monkeypatch.setattr(tasks, "LEASE_RENEWER", LeaseRenewer(lambda held: held))
    pull_request(github)
    check_runs.ensure()
    check_runs.ensure()
    (message,) = outbox.claim("notify", 10)
    assert message.message_type == "tell_check_runs"
    assert message.message_type in settings.TASKS
    tasks.tell_check_runs(message.id, 0, str(message.lease_token))
    assert states(github) == [("in_progress", None)]
    tasks.tell_check_runs(message.id, 0, str(message.lease_token))  # a duplicate is refused
    settings.GITHUB_APP_ID = ""
    check_runs.ensure()
    assert check_runs.run() == 0
