"""Statuses of commits in place of check runs: set when a review begins, closed at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from criticizer.db import prepared
from criticizer.resilience import gate
from reviews import check_runs
from reviews.models import HostChange, HostCheck, HostVersion, ReviewJob
from reviews.states import JobStatus
from tests import factories
from tests.fakes.accounts import TOKEN, AccountServer, GiteaServer, GitLabServer
from tests.fakes.github import HEAD, Act

pytestmark = pytest.mark.django_db
SERVERS = {"gitea": GiteaServer, "gitlab": GitLabServer}
OPEN = {"gitea": "pending", "gitlab": "running"}
ENDS = {
    JobStatus.SUCCEEDED: {"gitea": "success", "gitlab": "success"},
    JobStatus.CANCELLED: {"gitea": "warning", "gitlab": "canceled"},
    JobStatus.SUPERSEDED: {"gitea": "warning", "gitlab": "canceled"},
    JobStatus.TIMED_OUT: {"gitea": "error", "gitlab": "failed"},
    JobStatus.DEAD_LETTERED: {"gitea": "error", "gitlab": "failed"},
}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, settings: Any) -> Iterator[AccountServer]:
    with SERVERS[request.param]() as running:
        running.add("acme/web")
        name = request.param.upper()
        setattr(settings, f"{name}_URL", running.url)
        setattr(settings, f"{name}_TOKEN", (TOKEN,))
        settings.RETRY_TIME_SCALE = 0.001
        gate.forget()
        yield running
        assert running.faults == []
    gate.forget()


def name_of(server: AccountServer) -> str:
    return "gitea" if isinstance(server, GiteaServer) else "gitlab"


def review(
    server: AccountServer, version: int = 1, head: str = HEAD, status: JobStatus = JobStatus.IN_PROGRESS,
    number: int = 7, **fields: Any,
) -> ReviewJob:  # fmt: skip
    changelist = f"{name_of(server)}:acme/web#{number}"
    job = factories.job_with_stages(changelist_id=changelist, review_version=version, status=status, **fields)
    seen = {"head_sha": head, "base_sha": "", "base_ref": "main"}
    change, _ = HostChange.objects.get_or_create(
        host=name_of(server), repository_id=server.repos["acme/web"].number, number=number,
        defaults={
            "full_name": "acme/web", "changelist_id": changelist, "reported_at": timezone.now(), **seen,
        },
    )  # fmt: skip
    HostVersion.objects.create(change=change, job=job, is_automatic=False, **seen)
    return job


def to(job: ReviewJob, status: JobStatus) -> None:
    ReviewJob.objects.filter(pk=job.pk).update(status=status, finished_at=timezone.now())


def settle() -> None:
    for _ in range(5):
        check_runs.run()
        HostCheck.objects.exclude(due_at=None).update(due_at=timezone.now())
        prepared.rows("DELETE FROM paces")
        gate.forget()


def states(server: AccountServer) -> list[str]:
    return [status["state"] for status in server.statuses]


@pytest.mark.parametrize("end", ENDS)
def test_a_status_is_open_while_the_review_runs_and_closed_whatever_becomes_of_it(
    server: AccountServer, end: JobStatus
) -> None:
    job = review(server)
    settle()
    (status,) = server.statuses
    assert (status["sha"], status["target_url"].endswith(f"/{job.pk}/")) == (HEAD, True)
    to(job, end)
    settle()
    assert states(server) == [OPEN[name_of(server)], ENDS[end][name_of(server)]]
    assert HostCheck.objects.get().told == end


def test_a_review_that_was_cancelled_before_its_status_was_set_has_none(server: AccountServer) -> None:
    review(server, status=JobStatus.CANCELLED)
    settle()
    assert server.statuses == []


@pytest.mark.parametrize(
    "act",
    [
        Act(then="reset"),
        pytest.param(Act(status=502), marks=pytest.mark.long),
        Act(keep=False, status=502),
    ],
)
def test_a_lost_answer_or_a_crash_before_the_record_leaves_the_right_status(
    server: AccountServer, act: Act
) -> None:
    job = review(server)
    for end in (None, JobStatus.SUCCEEDED):
        if end:
            to(job, end)
        server.script(act, on="POST ")
        settle()
        # As if a worker had died between the call and its record.
        HostCheck.objects.update(told="", attempts=F("attempts") + 1, due_at=None)
        settle()
    assert HostCheck.objects.get().told == "succeeded"
    assert states(server)[-1] == "success"
    assert OPEN[name_of(server)] in states(server)


def test_the_newest_review_of_a_commit_tells_its_status(server: AccountServer) -> None:
    first = review(server)
    settle()
    to(first, JobStatus.SUPERSEDED)
    second = review(server, version=2)
    to(second, JobStatus.SUCCEEDED)
    settle()
    assert states(server)[-1] == "success"
    assert "warning" not in states(server)
    assert "canceled" not in states(server)
    review(server, version=3, head="2" * 40)  # another commit has a status of its own
    settle()
    assert {status["sha"] for status in server.statuses} == {HEAD, "2" * 40}


def test_with_one_head_in_two_pull_requests_the_newer_review_tells_the_status(server: AccountServer) -> None:
    older, newer = review(server), review(server, number=8)
    to(newer, JobStatus.DEAD_LETTERED)
    settle()
    to(older, JobStatus.SUCCEEDED)
    settle()
    assert states(server) == [ENDS[JobStatus.DEAD_LETTERED][name_of(server)]]


def test_a_review_that_ended_before_it_was_told_leaves_the_status_to_the_one_before(
    server: AccountServer,
) -> None:
    first = review(server)
    settle()
    to(first, JobStatus.SUPERSEDED)
    second = review(server, version=2, status=JobStatus.CANCELLED)
    settle()
    assert states(server) == [OPEN[name_of(server)], ENDS[JobStatus.SUPERSEDED][name_of(server)]]
    assert not HostCheck.objects.filter(version__job=second).exists()


def test_a_review_that_is_cancelled_while_it_is_told_closes_the_status(
    server: AccountServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    to(review(server), JobStatus.SUPERSEDED)  # in another run, it was told
    HostCheck.objects.create(version=HostVersion.objects.get(), told=HostCheck.ACTIVE, check_id=1, attempts=1)
    second = review(server, version=2)
    real = check_runs._claim

    def claim(check: HostCheck) -> bool:
        ReviewJob.objects.filter(pk=check.version.job_id).update(
            status=JobStatus.CANCELLED, finished_at=timezone.now()
        )
        check.version.job.refresh_from_db()
        return real(check)

    monkeypatch.setattr(check_runs, "_claim", claim)
    settle()
    assert second.pk == HostCheck.objects.latest("pk").version.job_id
    assert states(server) == [ENDS[JobStatus.CANCELLED][name_of(server)]]


def test_a_review_of_a_part_of_the_files_has_no_status_and_hides_none(server: AccountServer) -> None:
    whole = review(server)
    to(review(server, series="key-7", scope_prefixes=["//x/"]), JobStatus.SUCCEEDED)
    settle()
    to(whole, JobStatus.DEAD_LETTERED)
    settle()
    assert states(server) == [OPEN[name_of(server)], ENDS[JobStatus.DEAD_LETTERED][name_of(server)]]


def test_gitlab_takes_no_status_of_a_fork_and_is_not_asked_again(
    server: AccountServer, caplog: pytest.LogCaptureFixture
) -> None:
    words = {"message": "404 References for commit Not Found"}
    server.script(*[Act(keep=False, status=404, body=words) for _ in range(9)], on="POST ")
    review(server)
    settle()
    asked = [call.method for call in server.calls].count("POST")
    if isinstance(server, GitLabServer):
        assert (asked, HostCheck.objects.get().told) == (1, "active")
        assert "commit_without_branch_has_no_status" in caplog.text
    else:
        assert (asked, HostCheck.objects.get().error_class) == (5, "NOT_FOUND")  # says that of nothing


def test_a_limit_is_waited_for(server: AccountServer, settings: Any) -> None:
    settings.RETRY_TIME_SCALE = 1
    server.script(Act(keep=False, status=429, headers={"Retry-After": "900"}), on="POST ")
    review(server)
    assert check_runs.run() == 0
    called = len(server.calls)
    HostCheck.objects.update(due_at=None)
    assert check_runs.run() == 0
    assert len(server.calls) == called
    settle()
    assert states(server) == [OPEN[name_of(server)]]
