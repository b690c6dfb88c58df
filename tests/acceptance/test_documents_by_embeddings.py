"""The semantic step of documentation drift in whole jobs, with a server of embeddings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from structlog.testing import capture_logs

from criticizer.models import Circuit
from reviews.models import AllowListEntry, LedgerEntry, ReviewJob, ReviewUnit
from reviews.reviewers import embeddings
from reviews.stages import semantic
from reviews.states import JobStatus
from tests.acceptance.test_documents_by_meaning import (
    DRIFTED,
    FILES,
    documents_of,
    is_about_documents,
    reviewed,
    sections,
)
from tests.acceptance.world import World
from tests.fakes.llm import Recorded, Reply, error
from tests.sources.gitrepo import GitRepo

OFF = (
    "Semantic search is disabled because the embedding model configuration changed."
    " Run a full scan to re-index."
)
AWAY = "Semantic search was left out: the server of embeddings could not be used."
PATIENCE = "The pause before another go lasts one second."  # no word of the code


def meant(text: str, dimensions: int) -> list[float]:
    """Embed by subject: pauses and repeats, or anything else."""
    is_close = "pause" in text or "retry" in text or "repeated" in text
    return [1.0 if is_close else 0.1, 0.2 if is_close else 1.0, *[0.0] * (dimensions - 2)]


@pytest.fixture
def repo(world: World, tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "documented")
    world.settings.GIT_REPOSITORIES = {"demo": made.path}
    world.settings.LLM_VERIFY, world.settings.DOCUMENT_SECTIONS = "off", 5
    world.settings.EMBEDDINGS_BASE_URL, world.settings.EMBEDDINGS_MODEL = world.llm.base_url, "embed-256"
    world.settings.EMBEDDINGS_API_KEY = ["embedding-key"]
    world.llm.server.embed = meant
    world.llm.server.respond = answered
    files = {**FILES, "docs/patience.md": f"# Patience\n\n{PATIENCE}\n"}
    files |= {f"docs/dish-{n}.md": f"# Dish {n}\n\nBeans are soaked for {n} hours.\n" for n in range(2, 8)}
    made.commit_files(files)
    return made


def answered(request: Recorded) -> Reply | None:
    """Say of the section about patience that it drifted, and of others nothing."""
    if not request.raw or not is_about(request):
        return None
    is_it = PATIENCE in request.body["messages"][1]["content"]
    return Reply(answer={**DRIFTED, "verdict": "drifted" if is_it else "holds", "quote_document": PATIENCE})


def is_about(request: Recorded) -> bool:
    return not request.path.endswith("/embeddings") and is_about_documents(request)


def questions(world: World) -> list[str]:
    chats = [one for one in world.llm.requests if not one.path.endswith("/embeddings")]
    return [one.body["messages"][1]["content"] for one in chats if is_about_documents(one)]


def embedded(world: World) -> list[Recorded]:
    return [one for one in world.llm.requests if one.path.endswith("/embeddings")]


def how(job: ReviewJob) -> dict[str, list[str]]:
    return {one["document"].rpartition("/")[2]: one["how"] for one in job.documents["meaning"]["sections"]}


@pytest.mark.long
def test_a_section_without_a_word_of_the_code_is_found_by_meaning(world: World, repo: GitRepo) -> None:
    job = reviewed(world, repo)
    assert how(job) == {"retries.md": ["symbol", "text", "meaning"], "patience.md": ["meaning"]}
    assert sorted(sections(job)) == [("drifted", ""), ("holds", "")]
    assert [row.file for row in job.findings.filter(source="llm:drift")] == ["//demo/docs/patience.md"]
    (request,) = embedded(world)
    assert request.headers["authorization"] == "Bearer embedding-key"
    assert request.body["model"] == "embed-256"
    assert any(PATIENCE in text for text in request.body["input"])
    assert any("wait(seconds=5)" in text for text in request.body["input"])
    assert Circuit.objects.filter(name__startswith="embeddings:127.0.0.1").exists()
    entry = LedgerEntry.objects.get(job=job, model="embed-256")
    assert (entry.state, entry.input_tokens) == ("settled", len(request.raw) // 4)


@pytest.mark.long
def test_vectors_are_paid_once_and_sealed(world: World, repo: GitRepo) -> None:
    first = reviewed(world, repo)
    repo.commit_files({"src/retry.py": FILES["src/retry.py"]})
    again = reviewed(world, repo, {"src/retry.py": "def call_with_retry(call):\n    call()\n"})
    assert how(again).keys() == how(first).keys()
    one, two = embedded(world)
    assert len(one.body["input"]) == 11
    assert len(two.body["input"]) == 1  # the change
    raw = list(ReviewUnit.objects.extra(select={"raw": "answer::text"}).values_list("raw", flat=True))
    assert raw
    assert all("embed-256" not in str(text) for text in raw)


def test_scenario_19_another_model_switches_off_the_semantic_step_and_nothing_else(
    world: World, repo: GitRepo
) -> None:
    reviewed(world, repo)
    world.settings.EMBEDDINGS_MODEL, world.settings.EMBEDDINGS_DIMENSIONS = "embed-64", 8
    calls = len(embedded(world))
    repo.commit_files({"src/retry.py": FILES["src/retry.py"]})
    with capture_logs() as logs:
        job = reviewed(world, repo)
    assert job.status == JobStatus.SUCCEEDED
    assert how(job) == {"retries.md": ["symbol", "text"]}
    assert OFF in documents_of(job)
    assert len(embedded(world)) == calls
    (event,) = [log for log in logs if log["event"] == "embedding_model_changed"]
    assert event["log_level"] == "error"
    assert (event["stored_dimension"], event["query_dimension"]) == (64, 8)
    assert event["configured_model"] == "embed-64"
    call_command("index_documents", "//demo", stdout=(said := StringIO()))
    assert said.getvalue() == "//demo is re-indexed with its next review.\n"
    repo.commit_files({"src/retry.py": FILES["src/retry.py"]})
    restored = reviewed(world, repo)
    assert how(restored) == {"retries.md": ["symbol", "text", "meaning"], "patience.md": ["meaning"]}
    assert OFF not in documents_of(restored)


@pytest.mark.long
def test_scenario_19_a_server_that_answers_with_another_dimension_is_told_apart_at_query_time(
    world: World, repo: GitRepo
) -> None:
    reviewed(world, repo)
    world.llm.server.embed = lambda text, dimensions: meant(text, 32)
    repo.commit_files({"src/retry.py": FILES["src/retry.py"]})
    with capture_logs() as logs:
        job = reviewed(world, repo)
    assert how(job) == {"retries.md": ["symbol", "text"]}
    assert OFF in documents_of(job)
    (event,) = [log for log in logs if log["event"] == "embedding_model_changed"]
    assert (event["stored_dimension"], event["query_dimension"]) == (64, 32)
    semantic.forget("//demo/")
    repo.commit_files({"src/retry.py": FILES["src/retry.py"]})
    assert "patience.md" in how(reviewed(world, repo))


@pytest.mark.long
def test_without_embeddings_the_other_steps_find_the_same(world: World, repo: GitRepo) -> None:
    world.settings.EMBEDDINGS_BASE_URL = ""
    job = reviewed(world, repo)
    assert how(job) == {"retries.md": ["symbol", "text"]}
    assert embedded(world) == []


ONES = [1.0] * 64
UNUSABLE: dict[str, list[object]] = {  # each for 11 texts
    "too-few": [ONES],
    "lengths": [*[ONES] * 10, [1.0]],
    "nan": [*[ONES] * 10, [float("nan")] * 64],
    "infinite": [*[ONES] * 10, [float("inf")] * 64],
    "text": [*[ONES] * 10, ["1"] * 64],
    "zero": [*[ONES] * 10, [0.0] * 64],
    "empty": [*[ONES] * 10, []],
    "overflow": [[1e308] * 64] * 11,
    "too-long": [[1.0] * 5_000] * 11,
}


def test_vectors_that_cannot_be_used_are_refused() -> None:
    def read(vectors: list[object]) -> object:
        rows = [{"index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        return embeddings._vectors(json.loads(json.dumps({"data": rows})), 11)

    assert read([ONES] * 11) is not None
    assert [name for name, vectors in UNUSABLE.items() if read(vectors) is not None] == []
    assert [
        content for content in ([], {}, {"data": None}) if embeddings._vectors(content, 0) is not None
    ] == []


MISBEHAVES: dict[str, Reply] = {
    "500": error(500, "x"),
    "503": error(503, "x"),
    "401": error(401, "x"),
    "429": error(429, "x", Retry_After="600"),
    "reset": Reply(reset=True),
    "garbage": Reply(body="{"),
    "list": Reply(body="[]"),
    "null": Reply(body='{"data": null}'),
    **{name: Reply(vectors=vectors) for name, vectors in UNUSABLE.items()},
}
QUICK = {"garbage"}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(reply, id=name, marks=() if name in QUICK else pytest.mark.long)
        for name, reply in MISBEHAVES.items()
    ],
)
def test_a_server_of_embeddings_that_misbehaves_costs_its_step_alone(
    world: World, repo: GitRepo, reply: Reply
) -> None:
    world.llm.server.respond = lambda request: (
        reply if request.path.endswith("/embeddings") else answered(request)
    )
    job = reviewed(world, repo)
    assert (job.status, job.banner) == (JobStatus.SUCCEEDED, "")
    assert how(job) == {"retries.md": ["symbol", "text"]}
    assert sections(job) == [("holds", "")]
    assert AWAY in documents_of(job)


@pytest.mark.long
def test_a_server_of_embeddings_that_hangs_is_given_up(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reviews.config.EMBEDDINGS_SECONDS", 0.5)
    world.llm.server.respond = lambda request: (
        Reply(hang=True) if request.path.endswith("/embeddings") else answered(request)
    )
    job = reviewed(world, repo)
    assert job.status == JobStatus.SUCCEEDED
    assert AWAY in documents_of(job)


def texts_sent(world: World) -> Sequence[str]:
    return [one.raw.decode() for one in world.llm.requests]


def test_neither_denied_documents_nor_secrets_are_sent_to_be_embedded(world: World, repo: GitRepo) -> None:
    token = "AKIA" + "QYLPMN5HFIQR7BBB"
    repo.commit_files({"docs/patience.md": f"# Patience\n\n{PATIENCE} Key: `{token}`.\n"})
    AllowListEntry.objects.create(kind="exclude", pattern="//demo/docs/retries.md", reason="OPS-1")
    job = reviewed(world, repo)
    assert list(how(job)) == ["patience.md"]
    assert embedded(world)
    assert all(token not in text for text in texts_sent(world))
    assert all("waits one second" not in text for text in texts_sent(world))
    assert "retries" not in json.dumps(job.documents)


def test_a_section_found_by_meaning_is_asked_about_like_others(world: World, repo: GitRepo) -> None:
    reviewed(world, repo)
    assert sum(PATIENCE in question for question in questions(world)) == 1
