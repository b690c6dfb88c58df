"""Sections of documents that a change makes untrue, verified by agents over the API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from criticizer.redaction import RedactedText, RedactionBlocked
from reviews import check_runs
from reviews.agents import expire, offer
from reviews.intake import api_keys
from reviews.models import AgentTask, ApiKey, ReviewJob
from reviews.reports import report_of
from reviews.reviewers import document_review
from reviews.stages import agent_review
from reviews.states import JobStatus
from tests.acceptance.test_documents_by_meaning import (
    AFTER,
    FILES,
    ONE_DRIFTED,
    ONE_UNCERTAIN,
    PLACE,
    SENTENCE,
    documents_of,
    found,
    sections,
)
from tests.acceptance.world import World
from tests.agents.conftest import CHUNK
from tests.api.conftest import ApiClient
from tests.sources.gitrepo import GitRepo

TASKS = "/api/v1/agent-tasks/"
CODE = "//demo/src/retry.py"
DRIFTED: dict[str, Any] = {
    "type": "verification",
    "verdict": "drifted",
    "confidence": 0.9,
    "reasoning": "The change waits five seconds.",
    "evidence_files": [CODE],
    "specific_mismatch": "call_with_retry waits one second",
    "suggested_fix": "Between two tries, `call_with_retry` waits five seconds.",
    "quote_document": SENTENCE,
    "quote_code": "wait(seconds=5)",
}


@pytest.fixture
def repo(world: World, tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "documented")
    world.settings.GIT_REPOSITORIES = {"demo": made.path}
    world.settings.LLM_PROVIDER, world.settings.DOCUMENT_SECTIONS = "agent", 5
    made.commit_files(FILES)
    return made


def agent(*prefixes: str) -> ApiClient:
    ApiKey.objects.filter(role="agent").delete()
    return ApiClient(api_keys.create("of-sections", "agent", list(prefixes or ["//demo/..."])))


def offered(world: World, repo: GitRepo) -> ReviewJob:
    """Return the job of a change whose tasks wait for agents."""
    job = world.job(f"git:demo@{repo.commit_files({'src/retry.py': AFTER})}", key="k-1")
    world.work()
    return ReviewJob.objects.get(pk=job)


def worked(
    world: World, client: ApiClient, job: ReviewJob, *answers: Mapping[str, Any], **more: Any
) -> list[dict[str, Any]]:
    """Let an agent do all tasks of a job, and return the payloads of the tasks.

    `answers` are its answers about sections.
    """
    payloads, left = [], list(answers)
    while (taken := client.post_json(f"{TASKS}claim/", {"agent": "ci-1"})).status_code == 200:
        task: Any = taken.json()
        payloads.append(task["payload"])
        tries = left if task["type"] == "verification" else [CHUNK]
        for data in list(tries)[:2]:
            body = {"claim_token": task["claim_token"], "success": True, "data": data, **more}
            if task["type"] == "review_chunk":
                body |= {"success": True, "data": CHUNK}
            client.post_json(f"{TASKS}{task['id']}/result/", body)
    assert taken.status_code == 204
    world.settle()
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCEEDED
    return payloads


def test_a_section_that_an_agent_calls_untrue_is_a_finding(world: World, repo: GitRepo) -> None:
    client = agent()
    job = offered(world, repo)
    assert job.status == JobStatus.IN_PROGRESS
    payloads = worked(world, client, job, DRIFTED)
    (asked,) = [one for one in payloads if one["type"] == "verification"]
    assert SENTENCE in asked["request"]
    assert CODE in asked["request"]
    assert "specific_mismatch" in asked["instructions"]
    assert set(DRIFTED) - {"type"} == set(asked["answer_schema"]["required"])
    (finding,) = found(job)
    assert (finding.file, finding.line, finding.end_line) == ("//demo/docs/retries.md", 5, 5)
    assert finding.title == "May be out of date: call_with_retry waits one second"
    assert finding.suggestion.startswith("Write: Between two tries")
    assert (finding.severity, finding.confidence, finding.evidence) == ("medium", 60, [CODE])
    assert documents_of(job) == ONE_DRIFTED
    assert world.llm.requests == []


@pytest.mark.parametrize(
    "fields",
    [
        {"evidence_files": []},
        pytest.param({"evidence_files": ["../../etc/passwd"]}, marks=pytest.mark.long),
        pytest.param(
            {"evidence_files": ["//demo/src/absent.py", "//demo/docs/potatoes.md"]}, marks=pytest.mark.long
        ),
        pytest.param({"quote_code": None}, marks=pytest.mark.long),
        pytest.param({"quote_document": "It waits two seconds between two tries."}, marks=pytest.mark.long),
    ],
    ids=["none", "outside", "absent", "no-code", "invented"],
)
def test_scenario_05_what_an_agent_calls_untrue_without_evidence_is_uncertain(
    world: World, repo: GitRepo, fields: dict[str, Any]
) -> None:
    client = agent()
    job = offered(world, repo)
    worked(world, client, job, {**DRIFTED, **fields})
    assert found(job) == []
    assert documents_of(job) == f"{ONE_UNCERTAIN} Insufficient evidence to verify this section: {PLACE}."


@pytest.mark.long
@pytest.mark.parametrize(
    ("evidence", "confidence"),
    [([CODE], 90), pytest.param([], 60, marks=pytest.mark.long), (["//demo/src/absent.py"], 60)],
)
def test_scenario_05_what_holds_without_evidence_has_less_confidence(
    world: World, repo: GitRepo, evidence: list[str], confidence: int
) -> None:
    client = agent()
    job = offered(world, repo)
    worked(world, client, job, {**DRIFTED, "verdict": "verified", "evidence_files": evidence})
    (one,) = job.documents["meaning"]["sections"]
    assert (one["verdict"], one["confidence"]) == ("holds", confidence)


@pytest.mark.parametrize(
    ("answers", "more", "reason", "text"),
    [
        ([{"type": "verification"}] * 2, {}, "llm_parse_error", "(analysis returned invalid output)"),
        pytest.param(
            [DRIFTED],
            {"success": False, "error": "token_limit_exceeded", "data": None},
            "token_limit_exceeded",
            "Analysis of this section exceeded model context limits.",
            marks=pytest.mark.long,
        ),
        pytest.param(
            [DRIFTED],
            {"success": False, "error": "refused", "data": None},
            "model_unavailable",
            "the language model could not be used",
            marks=pytest.mark.long,
        ),
    ],
    ids=["garbage", "too-long", "refused"],
)
def test_scenarios_01_02_06_a_failed_verification_is_uncertain_with_its_reason(
    world: World, repo: GitRepo, answers: list[Any], more: dict[str, Any], reason: str, text: str
) -> None:
    client = agent()
    job = offered(world, repo)
    worked(world, client, job, *answers, **more)
    assert sections(job) == [("uncertain", reason)]
    assert text in documents_of(job)


@pytest.mark.long
def test_scenario_11_a_verification_that_nobody_does_is_uncertain_and_counted(
    world: World, repo: GitRepo
) -> None:
    agent()
    job = offered(world, repo)
    assert sorted(AgentTask.objects.values_list("type", flat=True)) == ["review_chunk", "verification"]
    AgentTask.objects.update(expires_at=timezone.now())
    expire.sweep()
    world.settle()
    job.refresh_from_db()
    assert sections(job) == [("uncertain", "agent_timeout")]
    assert "Warning: 100% of claims could not be verified" in report_of(job).banner
    assert f"The agent did not respond within the time limit: {PLACE}." in documents_of(job)


def test_sections_alone_that_nobody_does_leave_the_review_whole(world: World, repo: GitRepo) -> None:
    client = agent()
    job = offered(world, repo)
    task: Any = client.get(f"{TASKS}?type=review_chunk").json()["tasks"][0]
    taken: Any = client.post_json(f"{TASKS}{task['id']}/claim/", {"agent": "ci-1"}).json()
    body = {"claim_token": taken["claim_token"], "success": True, "data": CHUNK}
    assert client.post_json(f"{TASKS}{task['id']}/result/", body).status_code == 200
    AgentTask.objects.filter(type="verification").update(expires_at=timezone.now())
    expire.sweep()
    world.settle()
    job.refresh_from_db()
    assert sections(job) == [("uncertain", "agent_timeout")]
    assert (job.status, job.stopped, job.banner) == (JobStatus.SUCCEEDED, "", "")
    assert job.footer == "1 claim(s) could not be verified due to timeout."
    assert report_of(job).is_partial is False
    assert check_runs.told_of(job).conclusion == "success"


def test_a_key_that_may_not_see_the_document_is_not_asked_about_it(world: World, repo: GitRepo) -> None:
    client = agent("//demo/src/...")
    job = offered(world, repo)
    payloads = worked(world, client, job)
    assert [one["type"] for one in payloads] == ["review_chunk"]
    assert not any(SENTENCE in one["request"] for one in payloads)
    assert sections(job) == [("uncertain", "model_unavailable")]


@pytest.mark.long
def test_a_section_that_the_guard_refuses_is_uncertain_and_the_change_is_reviewed(
    world: World, repo: GitRepo
) -> None:
    guard = offer.guard

    def doubting(text: RedactedText) -> str:
        if "section of the document" in guard(text):
            raise RedactionBlocked("guard_found")
        return guard(text)

    world.monkeypatch.setattr(offer, "guard", doubting)
    world.monkeypatch.setattr(agent_review, "guard", doubting, raising=False)
    client = agent()
    job = offered(world, repo)
    assert [one["type"] for one in worked(world, client, job)] == ["review_chunk"]
    assert sections(job) == [("uncertain", "not_clean")]
    assert job.stopped == ""


@pytest.mark.long
def test_a_section_whose_question_cannot_be_written_is_uncertain_and_the_change_is_reviewed(
    world: World, repo: GitRepo
) -> None:
    def doubting(*given: Any) -> RedactedText:
        raise RedactionBlocked("mixed_policy")

    world.monkeypatch.setattr(document_review, "question_text", doubting)
    client = agent()
    job = offered(world, repo)
    assert [one["type"] for one in worked(world, client, job)] == ["review_chunk"]
    assert sections(job) == [("uncertain", "not_clean")]


@pytest.mark.long
def test_documents_switched_off_by_meaning_make_no_task(world: World, repo: GitRepo) -> None:
    repo.commit_files({".criticizer.yml": "docs: {claim_types: {behavior: false}}\n"})
    client = agent()
    payloads = worked(world, client, offered(world, repo))
    assert [one["type"] for one in payloads] == ["review_chunk"]
