"""A worker dies while some parts of a review are finished."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import Attempt, CoverageRow, FindingRow, ReviewJob, StageRun
from reviews.reviewers.coverage_texts import stopped_banner
from tests.crash.conftest import LEASE, SCALE
from tests.fakes.llm import FakeLlm, Recorded, Reply
from tests.fakes.webhook import WebhookReceiver
from tests.pipeline.test_partial_reviews import let_soft_deadline_come_in
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import holds
from tests.reviewers.test_verifying import is_verify
from tests.sources.gitrepo import GitRepo
from tests.stack import Stack, eventually, running

pytestmark = [pytest.mark.cluster, pytest.mark.long]
PARTS = 3


def environment_of(repository: GitRepo, llm: FakeLlm) -> dict[str, str]:
    return {
        "RETRY_TIME_SCALE": str(SCALE),
        "CHANGE_SOURCES": "git",
        "GIT_REPOSITORIES": f"demo={repository.path}",
        "DEPOT_ALLOW_LIST": "//demo/...",
        "OUTBOUND_ALLOW": "127.0.0.0/8",
        "LLM_PROVIDER": "openai",
        "LLM_MODEL": "test",
        "LLM_BASE_URL": llm.base_url,
        "LLM_MAX_INPUT_TOKENS": "8000",
    }


def part_of(request: Recorded) -> int:
    text = request.body["messages"][1]["content"]
    return next(number for number in range(1, PARTS + 1) if holds(number) in text)


def finish_after_a_kill(stack: Stack, job: int | None) -> None:
    """Kill the worker that reviews; another one finishes the review."""
    (worker,) = stack.named("llm", "processing") or stack.named("llm", "idle")
    stack.kill(worker)
    eventually(lambda: ReviewJob.objects.get(pk=job).status == "succeeded", LEASE + 30)
    attempts = Attempt.objects.filter(stage_run__job_id=job, stage_run__stage="llm").order_by("id")
    # The first losses of a shared worker are given back.
    assert [attempt.outcome for attempt in attempts] == ["given_back", "succeeded"]


def test_scenario_13_recovery_a_killed_worker_loses_no_finished_part(
    tmp_path: Path, transactional_db: Any
) -> None:
    review_with_a_killed_worker(tmp_path, last_part_answers=True)


def test_scenario_13_finished_parts_are_shown_when_the_rest_cannot_be_had(
    tmp_path: Path, transactional_db: Any
) -> None:
    review_with_a_killed_worker(tmp_path, last_part_answers=False)


def test_scenario_20_a_worker_killed_at_the_soft_deadline_leaves_a_partial_review(
    tmp_path: Path, transactional_db: Any
) -> None:
    review_with_a_killed_worker(tmp_path, last_part_answers=True, at_soft_deadline=True)


def review_with_a_killed_worker(
    tmp_path: Path, *, last_part_answers: bool, at_soft_deadline: bool = False
) -> None:
    repository = GitRepo(tmp_path / "repository")
    repository.commit_files({"README": "x\n"})
    commit = repository.commit_files(
        {
            f"f{number}.py": "".join(f"v{number}_{line}\n" for line in range(600))
            for number in range(1, PARTS + 1)
        }
    )
    killed = threading.Event()
    unusable = Reply(answer="no JSON {")

    def respond(request: Recorded) -> Reply | None:
        if part_of(request) != PARTS:
            return None
        if not killed.is_set():
            return Reply(hang=True)
        return None if last_part_answers else unusable

    (files := tmp_path / "files").mkdir()
    with WebhookReceiver() as receiver, FakeLlm(respond=respond) as llm:
        with running(files, environment=environment_of(repository, llm)) as stack:
            job = request_review(
                ReviewRequest("k", f"git:demo@{commit}", recipients=(f"webhook:{receiver.url}",))
            ).job_id
            eventually(lambda: sorted(map(part_of, llm.requests)) == [1, 2, 3])
            # The finished parts are on disk before the rest is.
            run = StageRun.objects.filter(job_id=job, stage="llm")
            eventually(lambda: len(run.get().progress.keys() - {StageRun.PARTS}) == 2)
            killed.set()
            if at_soft_deadline:
                let_soft_deadline_come_in(-1.0, job)
            finish_after_a_kill(stack, job)
        again = [part_of(request) for request in llm.requests][PARTS:]
        if at_soft_deadline:
            assert (again, ReviewJob.objects.get(pk=job).stopped) == ([], "timed_out")
            assert CoverageRow.objects.filter(job_id=job, status="reviewed").count() == 2
            (told,) = [request.body["data"] for request in receiver.requests]
            assert (told["partial"], told["banner"]) == (True, stopped_banner("timed_out", 2, 3))
            return
        assert again == ([3] if last_part_answers else [3, 3])  # only the rest, and its repair turn
        reasons = dict(
            CoverageRow.objects.filter(job_id=job).exclude(reason="").values_list("file", "reason")
        )
        assert list(reasons) == ([] if last_part_answers else ["//demo/f3.py"])
        assert list(receiver.processed.values()) == [1]


def test_a_worker_killed_between_finding_and_verifying_pays_for_no_answer_twice(
    tmp_path: Path, transactional_db: Any
) -> None:
    repository = GitRepo(tmp_path / "repository")
    repository.commit_files({"README": "x\n"})
    commit = repository.commit_files({"p/a.py": "a\n    total = price * count\n"})
    killed = threading.Event()
    found = answer_of(raw_finding(severity="high", file="//demo/p/a.py"), files_read=["//demo/p/a.py"])

    def respond(request: Recorded) -> Reply | None:
        if not is_verify(request):
            return Reply(answer=found)
        return None if killed.is_set() else Reply(hang=True)

    (files := tmp_path / "files").mkdir()
    with FakeLlm(respond=respond) as llm:
        # Small windows are not verified.
        environment = {**environment_of(repository, llm), "LLM_MAX_INPUT_TOKENS": "24000"}
        with running(files, environment=environment) as stack:
            job = request_review(ReviewRequest("k", f"git:demo@{commit}")).job_id
            eventually(lambda: [is_verify(request) for request in llm.requests] == [False, True])
            killed.set()
            finish_after_a_kill(stack, job)
        assert [is_verify(request) for request in llm.requests] == [False, True, True]
        assert FindingRow.objects.filter(job_id=job).count() == 1
