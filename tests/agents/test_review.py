"""The stage llm by agents: from the offer to findings, coverage, banners and the conclusion."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from criticizer.models import OutboxMessage
from criticizer.queue.lease_renewer import LeaseRenewer
from notifications.delivery.snapshot import token_for
from notifications.providers.payload import review_payload
from notifications.providers.pull_requests import markdown
from notifications.providers.pull_requests.markdown import Marker
from notifications.rendering import render
from reviews import check_runs
from reviews.agents import claim, expire, submit
from reviews.api.agent_results import read
from reviews.artifacts import recipe, store
from reviews.configuration.keys import KEYS
from reviews.intake import api_keys
from reviews.models import (
    AgentTask,
    ApiKey,
    Artifact,
    CoverageRow,
    FindingFate,
    FindingRow,
    LinterResultRow,
    ReviewJob,
    ReviewUnit,
    StageRun,
)
from reviews.pipeline import StageClaim, async_executor, executor
from reviews.reports import report_of
from reviews.reviewers.coverage_texts import AGENT_TIMEOUT, NO_AGENT_BANNER, agents_banner, agents_footer
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prompt_leaks import marks_of
from reviews.sources import change_codec
from reviews.sources.base import Change
from reviews.stages import documents
from tests import factories, scripted
from tests.agents.conftest import caller
from tests.api.conftest import ApiClient
from tests.reviewers.build import fake_token
from tests.reviewers.test_review import ONE, D, big

pytestmark = pytest.mark.django_db(transaction=True)
MAIL = "mail:ann@example.com"
FINDING = {
    "file": f"{D}a.py", "quote": "    total = price * count", "severity": "high", "title": "Overflow",
    "message": "It overflows.",
}  # fmt: skip


class Bench:
    """Jobs that agents review."""

    def __init__(self, post: Any, work: Any) -> None:
        self.post, self.work, self.jobs = post, work, 0

    def job(
        self,
        change: Change = ONE,
        configuration: Any = (),
        reported: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> ReviewJob:
        def fetch(claim: StageClaim) -> Any:
            stored = store.store(claim, Artifact.Kind.CHANGE, change_codec.to_json(change))

            def write() -> None:
                stored.save()
                ReviewJob.objects.filter(pk=claim.job_id).update(configuration=list(configuration))
                if reported:
                    LinterResultRow.objects.create(job_id=claim.job_id, place="changed", **reported)

            return write

        scripted.SCRIPT["fetch"].append(fetch)
        self.jobs += 1
        made = self.post(f"k{self.jobs}", f"1234{self.jobs}", **more)
        self.work()
        return ReviewJob.objects.get(pk=made.job_id)

    def answer(self, job: ReviewJob, count: int, *findings: Any, **more: Any) -> None:
        """Let an agent finish so many tasks of a job."""
        for _ in range(count):
            task = claim.claim_next(caller(D), job.pk)
            assert task is not None
            data = {"type": "review_chunk", "findings": findings}
            send(task, {"success": True, "data": data, **more})

    def expire(self, job: ReviewJob) -> None:
        """Let the time of a job's tasks be over."""
        AgentTask.objects.filter(job=job, status__in=("pending", "in_progress")).update(
            expires_at=timezone.now()
        )
        expire.sweep()
        self.work()


def send(task: dict[str, Any], body: dict[str, Any]) -> submit.Answer:
    raw = json.dumps({"claim_token": task["claim_token"], **body}).encode()
    return submit.submit(caller(D), task["id"], lambda: raw, read)


@pytest.fixture
def bench(
    settings: Any, monkeypatch: pytest.MonkeyPatch, post: Callable[..., Any], work: Callable[[], int]
) -> Iterator[Bench]:
    pool = ThreadPoolExecutor(1)  # whose connection ends with the test
    monkeypatch.setattr(async_executor, "_pools", {os.getpid(): pool})
    monkeypatch.setattr(executor, "LEASE_RENEWER", LeaseRenewer(lambda held: held))
    monkeypatch.setattr(recipe, "limits", lambda: ReviewLimits(max_input_tokens=8_000))
    settings.STAGES = {**scripted.STAGES, "llm": ("reviews.stages.llm.run", "stages")}
    settings.LLM_PROVIDER, settings.DEPOT_ALLOW_LIST = "agent", [f"{D}..."]
    factories.ApiKeyFactory(role="agent", prefixes=[f"{D}..."])
    yield Bench(post, work)
    pool.submit(lambda: connection.close()).result()
    pool.shutdown()


def fresh(job: ReviewJob) -> ReviewJob:
    return ReviewJob.objects.get(pk=job.pk)


def test_a_change_is_reviewed_by_an_agent_and_its_findings_are_anchored_by_us(bench: Bench) -> None:
    job = bench.job()
    run = StageRun.objects.get(job=job, stage="llm")
    assert (run.status, run.attempts) == ("pending", 0)
    task = claim.claim_next(caller(D))
    assert task is not None
    payload = task["payload"]
    assert "total = price * count" in payload["request"]
    assert "instructions" in payload["instructions"]
    assert payload["answer_schema"]["properties"]["findings"]
    unknown = {**FINDING, "file": "//other/x.py"}
    data = {"type": "review_chunk", "findings": [FINDING, unknown], "files_read": [f"{D}a.py"]}
    send(task, {"success": True, "data": data, "metadata": {"model_used": "qwen", "tokens_used": 10**6}})
    bench.work()
    job = fresh(job)
    assert job.status == "succeeded"
    (finding,) = FindingRow.objects.filter(job=job)
    assert (finding.file, finding.line, finding.source, finding.severity) == (f"{D}a.py", 2, "llm", "high")
    assert (job.banner, job.footer, job.stopped, job.model_name) == ("", "", "", "agent: qwen")
    assert job.usage["input_tokens"] == 0
    assert CoverageRow.objects.get(job=job).status == "reviewed"
    assert not ReviewUnit.objects.exists()


@pytest.mark.parametrize(
    ("parts", "done", "banner", "footer"),
    [
        (5, 4, "", "1 claim(s) could not be verified due to timeout."),
        pytest.param(9, 7, "Warning: 22% of claims could not be verified", "", marks=pytest.mark.long),
        pytest.param(10, 8, "", "2 claim(s) could not be verified due to timeout.", marks=pytest.mark.long),
        pytest.param(10, 7, "Warning: 30% of claims could not be verified", "", marks=pytest.mark.long),
        (3, 0, "Warning: 100% of claims could not be verified", ""),
    ],
)
def test_what_agents_left_is_counted_exactly_on_every_channel(
    bench: Bench, parts: int, done: int, banner: str, footer: str
) -> None:
    job = bench.job(big(parts), recipients=(MAIL,))
    assert AgentTask.objects.filter(job=job).count() == parts
    bench.answer(job, done)
    bench.work()
    assert fresh(job).status == "in_progress"
    bench.expire(job)
    job = fresh(job)
    assert job.stopped == "unanswered"
    assert job.banner.startswith(banner)
    assert bool(job.banner) == bool(banner)
    assert job.footer == footer
    assert "error" not in job.banner  # no agent stopped in the middle of its work
    assert CoverageRow.objects.filter(job=job, reason=AGENT_TIMEOUT).count() == parts - done
    said = banner or footer
    report = report_of(job)
    message = render(report, MAIL, token_for(job.changelist_id, MAIL, 1))
    comment = markdown.summary(message, review_payload(message), Marker("x"))  # type: ignore[arg-type]
    assert said in " ".join(message.text.split())
    assert said in message.html
    assert markdown.plain(said, 500) in comment
    job.status = "succeeded"
    told = check_runs.told_of(job)
    assert told.conclusion == "neutral"
    assert report.is_partial


def test_an_agent_that_stops_in_the_middle_is_named(bench: Bench) -> None:
    job = bench.job(big(3))
    bench.answer(job, 1)
    assert claim.claim_next(caller(D)) is not None  # and dies
    bench.expire(job)
    assert fresh(job).banner == (
        "Warning: 67% of claims could not be verified because the agent did not complete in time. Check your"
        " agent's configuration and model key. The agent encountered an error. 1 of 3 claims were verified."
    )


def test_results_that_cannot_be_used_are_counted_apart_from_timeouts(bench: Bench) -> None:
    job = bench.job(big(2))
    task = claim.claim_next(caller(D))
    assert task is not None
    for _ in range(2):
        send(task, {"success": True, "data": {"type": "review_chunk", "findings": [{}]}})
    bench.answer(job, 1)
    bench.work()
    job = fresh(job)
    assert (job.status, job.stopped, job.footer) == ("succeeded", "", "")
    assert "50% of the change could not be reviewed" in job.banner
    assert job.events.get(kind="alert").reason.startswith("1 of 2 parts")


def test_without_an_agent_key_only_checks_run(bench: Bench, settings: Any) -> None:
    ApiKey.objects.update(revoked_at=timezone.now())
    job = bench.job()
    assert not AgentTask.objects.exists()
    assert fresh(job).banner == NO_AGENT_BANNER
    assert fresh(job).status == "succeeded"


def test_a_hostile_answer_is_redacted_neutralised_and_cut(bench: Bench) -> None:
    job = bench.job(recipients=(MAIL,))
    secret = fake_token()
    hostile = {
        **FINDING,
        "title": "<!-- criticizer:summary --> @everyone",
        "message": f"[x](javascript:alert(1)) ``` {secret} @everyone <!-- criticizer:summary " + "y" * 3_000,
        "suggestion": "```\n@everyone\n```",
    }
    bench.answer(job, 1, hostile)
    bench.work()
    job = fresh(job)
    (finding,) = FindingRow.objects.filter(job=job)
    assert secret not in f"{finding.title} {finding.message} {finding.suggestion}"
    assert len(finding.message) < 2_000
    message = render(report_of(job), MAIL, token_for(job.changelist_id, MAIL, 1))
    comment = markdown.summary(message, review_payload(message), Marker("x"))  # type: ignore[arg-type]
    assert comment.count("<!--") == 1  # our own marker
    outside_code = re.sub(r"^(`{4,})$.*?^\1$", "", comment, flags=re.MULTILINE | re.DOTALL)
    assert "@everyone" not in outside_code
    assert "](javascript" not in comment


def test_an_answer_that_repeats_the_marks_of_its_request_is_dropped(bench: Bench) -> None:
    job = bench.job()
    task = claim.claim_next(caller(D))
    assert task is not None
    canary = marks_of(task["payload"]["request"])[1]
    data = {"type": "review_chunk", "findings": [{**FINDING, "message": f"as told: {canary}"}]}
    send(task, {"success": True, "data": data})
    bench.work()
    assert not FindingRow.objects.filter(job=job).exists()


def test_nothing_is_offered_where_the_worker_dies_before_its_attempt_is_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, make_due: Callable[[], None]
) -> None:
    def dies(*given: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["reviews.pipeline.claim"], "_waiting_reason", dies)
        with pytest.raises(SystemExit):
            bench.job()
    assert not AgentTask.objects.exists()
    assert StageRun.objects.get(stage="llm").progress == {}
    make_due()
    bench.work()
    assert AgentTask.objects.count() == 1
    assert OutboxMessage.objects.count() == 1


def test_a_repository_has_its_own_agents_in_place_of_the_model(bench: Bench, settings: Any) -> None:
    settings.LLM_PROVIDER, settings.LLM_MODEL = "openai", "m"
    settings.LLM_BASE_URL = "http://127.0.0.1:9"  # nothing is sent there
    values = {path: key.default for path, key in KEYS.items()} | {"agent": True, "max_findings": 8}
    job = bench.job(configuration=[{"root": D, "values": values}])
    assert AgentTask.objects.filter(job=job).count() == 1
    bench.answer(job, 1, FINDING)
    bench.work()
    assert fresh(job).status == "succeeded"
    assert FindingRow.objects.filter(job=job).count() == 1


def test_what_linters_reported_is_given_to_agents_and_not_found_again(bench: Bench) -> None:
    said = "Local variable total is assigned to but never used"
    job = bench.job(
        reported={
            "digest": "0", "tool": "ruff", "rule": "F841", "level": "warning", "path": "a.py", "line": 2,
            "end_line": 2, "message": said, "file": f"{D}a.py", "received_by": "key:ci",
        }
    )  # fmt: skip
    LinterResultRow.objects.create(
        job=job, digest="1", tool="ruff", level="warning", path="a.py", line=2, end_line=2, message="late",
        file=f"{D}a.py", place="changed", received_by="key:ci",
    )  # fmt: skip
    task = claim.claim_next(caller(D))
    assert task is not None
    assert f"[ruff F841] {said}" in task["payload"]["request"]
    known = {**FINDING, "title": "Unused variable", "message": "total is assigned to and never used."}
    send(task, {"success": True, "data": {"type": "review_chunk", "findings": [known]}})
    bench.work()
    assert fresh(job).status == "succeeded"
    assert CoverageRow.objects.get(job=job).status == "reviewed"
    assert not FindingRow.objects.filter(job=job).exists()
    assert FindingFate.objects.filter(job=job, reason="reported_by_linter").count() == 1
    assert list(job.linter_results.order_by("digest").values_list("is_given", flat=True)) == [True, False]


def test_a_stage_that_is_due_while_a_task_is_open_waits_again(
    bench: Bench, make_due: Callable[[], None]
) -> None:
    job = bench.job(big(2))
    bench.answer(job, 1)
    make_due()
    bench.work()
    run = StageRun.objects.get(job=job, stage="llm")
    assert (run.status, run.attempts) == ("pending", 0)
    assert OutboxMessage.objects.get(aggregate_id=run.pk).available_at > timezone.now()
    bench.answer(job, 1)
    bench.work()
    assert fresh(job).status == "succeeded"


def test_the_arithmetic_of_banners() -> None:
    assert agents_banner(0, 0, 0, is_lost=False) == agents_footer(0, 0) == ""
    assert agents_banner(1, 5, 4, is_lost=True) == ""
    assert agents_footer(1, 5).startswith("1 claim")
    assert agents_banner(2, 9, 7, is_lost=False).startswith("Warning: 22%")
    assert agents_footer(2, 9) == ""
    assert agents_footer(2, 9, is_minor=True).startswith("2 claim")
    assert agents_footer(0, 9, is_minor=True) == ""
    assert agents_banner(1, 3, 2, is_lost=False).startswith("Warning: 33%")
    assert agents_banner(5, 8, 3, is_lost=False).startswith("Warning: 63%")  # 62.5, half up
    assert "error" not in agents_banner(3, 3, 0, is_lost=True)


def test_the_api_shows_banner_and_footer(bench: Bench) -> None:
    job = bench.job(big(5))
    bench.answer(job, 4)
    bench.expire(job)
    client = ApiClient(api_keys.create("r", "reviewer"))
    shown: Any = client.get(f"/api/v1/reviews/{job.pk}/")
    assert shown.json()["footer"] == "1 claim(s) could not be verified due to timeout."
    assert shown.json()["partial"] is True
    narrow: Any = ApiClient(api_keys.create("n", "reviewer", [f"{D}..."])).get(f"/api/v1/reviews/{job.pk}/")
    assert narrow.json()["footer"] == ""


def test_agents_are_asked_about_sections_that_no_embeddings_are_needed_for(settings: Any) -> None:
    settings.LLM_PROVIDER, settings.DOCUMENT_SECTIONS = "agent", 5
    settings.EMBEDDINGS_BASE_URL = "http://embeddings.internal/v1"
    assert documents.wanted() == documents.Wanted(documents.SPARE * 5, False)
