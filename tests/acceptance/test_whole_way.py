"""The whole way on real processes: HTTP in, web and worker clusters, mail and webhooks out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from reviews.models import ReviewJob
from tests import emptying
from tests.acceptance.world import AFTER, BEFORE, MAIL
from tests.fakes.llm import FakeLlm, Recorded, Reply
from tests.fakes.p4.server import FakeDepot, added, edited
from tests.fakes.webhook import WebhookReceiver
from tests.sources.gitrepo import GitRepo
from tests.stack import Stack, eventually, running

# One process runs them all: they share an installation.
pytestmark = [
    pytest.mark.cluster(seconds=60),
    pytest.mark.django_db(transaction=True),
]

Json = dict[str, Any]
CONFLICT = "<<<<<<< ours\nint a;\n=======\nint b;\n>>>>>>> theirs\n"


@dataclass
class Installation:
    """Web and workers of one installation. Each test has changes of its own."""

    web: Stack
    files: Path
    environment: dict[str, str]
    depot: FakeDepot
    repository: GitRepo
    receiver: WebhookReceiver
    llm: FakeLlm
    ready_without_workers: httpx.Response
    api: httpx.Client = field(default_factory=httpx.Client)
    _workers: ExitStack = field(default_factory=ExitStack)

    @property
    def hook(self) -> str:
        return f"webhook:{self.receiver.url}"

    def start_workers(self, **changes: str) -> None:
        """Run the clusters, with another environment if need be, instead of those before."""
        self.stop_workers()
        self._workers.enter_context(running(self.files, environment={**self.environment, **changes}))

    def stop_workers(self) -> None:
        self._workers.close()

    def commit(self, name: str, content: str = AFTER) -> str:
        """Commit one file and return the changelist's id."""
        return f"git:demo@{self.repository.commit_files({name: content})}"

    def post(self, changelist: str, key: str, **fields: object) -> httpx.Response:
        body = {
            "idempotency_key": key,
            "changelist_id": changelist,
            "recipients": [MAIL, self.hook],
            **fields,
        }
        return self.api.post("/api/v1/reviews/", json=body)

    def get(self, job: int) -> Json:
        answer = self.api.get(f"/api/v1/reviews/{job}/")
        assert answer.status_code == 200
        read: Json = answer.json()
        return read

    def ended(self, job: int) -> Json:
        """Poll a job, as a client would, until it has ended."""
        eventually(lambda: self.get(job)["finished_at"] is not None)
        return self.get(job)

    def arrived(self, job: Json) -> tuple[int, int]:
        """Return how often the mail and the webhook of a job arrived."""
        told = {delivery["recipient"]: delivery["notification_id"] for delivery in job["deliveries"]}
        mails = list((self.files / "mail").rglob(f"new/{told[MAIL]}"))
        return len(mails), self.receiver.processed[told[self.hook]]


@pytest.fixture(scope="module")
def installation(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[Installation]:
    files = tmp_path_factory.mktemp("whole-way")
    depot = FakeDepot(files)
    repository = GitRepo(files / "repository")
    with ExitStack() as everything:
        everything.enter_context(django_db_blocker.unblock())
        everything.callback(emptying.empty)  # of what the workers wrote after the last test
        receiver = everything.enter_context(WebhookReceiver())
        llm = everything.enter_context(FakeLlm())
        environment = {
            "RETRY_TIME_SCALE": "0.1",
            "CHANGE_SOURCES": "perforce,git",
            "GIT_REPOSITORIES": f"demo={repository.path}",
            "DEPOT_ALLOW_LIST": "//demo/...,//depot/main/...",
            "P4_EXECUTABLE": str(depot.executable),
            "P4PORT": "127.0.0.1:1666",
            "P4USER": "criticizer",
            "OUTBOUND_ALLOW": "127.0.0.0/8",
            "DEFAULT_RECIPIENTS": f"{MAIL},webhook:{receiver.url}",
            "LLM_PROVIDER": "openai",
            "LLM_MODEL": "test-model",
            "LLM_BASE_URL": llm.base_url,
        }
        web = everything.enter_context(running(files, environment=environment, queues=(), with_web=True))
        ready = httpx.get(f"{web.base_url}/readyz", trust_env=False)
        environment["BASE_URL"] = web.base_url
        made = Installation(web, files, environment, depot, repository, receiver, llm, ready)
        everything.callback(made.stop_workers)
        made.start_workers()
        yield made


@pytest.fixture(autouse=True)
def _key(installation: Installation, transactional_db: None) -> Iterator[None]:
    """Each test finds the tables empty and has a key of its own."""
    with contextlib.closing(installation.web.api()) as installation.api:
        yield


def test_readiness_follows_the_workers(installation: Installation) -> None:
    before = installation.ready_without_workers
    assert before.status_code == 503
    assert before.json() == {"status": "degraded", "reason": "workers_missing"}
    url = f"{installation.web.base_url}/readyz"
    assert eventually(lambda: httpx.get(url, trust_env=False).status_code == 200)


def test_a_posted_commit_is_reviewed_and_told(installation: Installation) -> None:
    def answer(request: Recorded) -> Reply:
        finding = {
            "file": "//demo/posted.c", "hunk": None, "quote": "int b;", "quote_end": None, "side": "new",
            "category": "bug", "rule_id": None, "severity": "high", "confidence": 90,
            "title": "The wrong int", "problem": "It is not a.", "trigger": "Always.", "suggestion": None,
        }  # fmt: skip
        return Reply(answer={"findings": [finding], "files_read": ["//demo/posted.c"]})

    installation.llm.server.respond = answer
    try:
        posted = installation.post(installation.commit("posted.c", CONFLICT), "posted")
        assert posted.status_code == 201
        job = installation.ended(posted.json()["id"])
    finally:
        installation.llm.server.respond = None
    assert job["status"] == "succeeded"
    assert [(stage["stage"], stage["status"], stage["attempts"]) for stage in job["stages"]] == [
        ("fetch", "succeeded", 1), ("llm", "succeeded", 1), ("notify", "succeeded", 1),
    ]  # fmt: skip
    found = {finding["source"].partition(":")[0]: finding for finding in job["findings"]}
    assert found["check"]["file"] == "//demo/posted.c"
    (model,) = [finding for finding in job["findings"] if finding["title"] == "The wrong int"]
    assert (model["file"], model["line"]) == ("//demo/posted.c", 4)
    assert job["coverage"] == [{"file": "//demo/posted.c", "status": "reviewed", "reason": ""}]
    for delivery in job["deliveries"]:
        assert delivery["status"] == "sent"
        assert delivery["notification_id"]
        assert delivery["notified_at"]
    assert installation.arrived(job) == (1, 1)
    assert job["dead_letter"] is None


@pytest.mark.long
def test_fifty_identical_posts_at_once_make_one_job(installation: Installation) -> None:
    changelist = installation.commit("fifty.c")
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: installation.post(changelist, "fifty"), range(50)))
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    job = installation.ended(answers[0].json()["id"])
    assert job["status"] == "succeeded"
    assert len(job["deliveries"]) == 2
    assert ReviewJob.objects.filter(changelist_id=changelist).count() == 1
    assert installation.arrived(job) == (1, 1)


@pytest.mark.long
def test_a_rerun_supersedes_the_version_still_at_work(installation: Installation) -> None:
    changelist = installation.commit("rerun.c")
    asked = len(installation.llm.requests)
    installation.llm.server.respond = lambda _: Reply(delay=2.0)
    first = installation.post(changelist, "rerun-1").json()["id"]
    eventually(lambda: len(installation.llm.requests) > asked)
    installation.llm.server.respond = None
    refused = installation.post(changelist, "rerun-2", review_version=2)
    assert (refused.status_code, refused.json()["error"]) == (409, "VERSION_CONFLICT")
    second = installation.post(changelist, "rerun-2", review_version=2, rerun=True)
    assert second.status_code == 201
    assert installation.ended(first)["status"] == "superseded"
    job = installation.ended(second.json()["id"])
    assert job["status"] == "succeeded"
    assert installation.arrived(job) == (1, 1)
    # The answer to the old version's question comes too late for anything.
    eventually(lambda: not installation.llm.server.in_flight)
    assert installation.get(first)["deliveries"] == []


@pytest.mark.parametrize(
    ("event", "shelved"),
    [
        pytest.param("change-commit", False, id="submitted"),
        pytest.param("shelve-commit", True, id="shelved", marks=pytest.mark.long),
    ],
)
def test_a_perforce_trigger_has_its_change_reviewed(
    installation: Installation, event: str, shelved: bool
) -> None:
    make = installation.depot.shelve if shelved else installation.depot.submit
    path = f"//depot/main/{event}.c"
    change = make(edited(path, BEFORE, AFTER), added(f"{path}.orig.c", CONFLICT))
    told = {"event": event, "change": int(change), "server": "main"}
    answers = [installation.api.post("/api/v1/triggers/perforce/", json=told) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert [answer.json()["duplicate"] for answer in answers] == [False, True]
    job = installation.ended(answers[0].json()["job"])
    assert (job["status"], job["changelist_id"]) == ("succeeded", change)
    assert {row["file"] for row in job["coverage"]} == {path, f"{path}.orig.c"}
    assert any(finding["file"] == f"{path}.orig.c" for finding in job["findings"])
    assert installation.arrived(job) == (1, 1)


@pytest.mark.long
def test_without_a_model_the_review_says_that_only_checks_ran(installation: Installation) -> None:
    asked = len(installation.llm.requests)
    installation.start_workers(LLM_PROVIDER="none")
    try:
        posted = installation.post(installation.commit("checks.c", CONFLICT), "checks")
        job = installation.ended(posted.json()["id"])
    finally:
        installation.start_workers()
    assert job["status"] == "succeeded"
    assert job["findings"]
    assert {finding["source"].partition(":")[0] for finding in job["findings"]} == {"check"}
    assert job["coverage"] == [{"file": "//demo/checks.c", "status": "checked", "reason": ""}]
    assert len(installation.llm.requests) == asked
    says = "Only deterministic checks ran"
    assert says in ReviewJob.objects.get(pk=job["id"]).banner
    webhook = next(r for r in reversed(installation.receiver.requests) if "checks.c" in r.raw.decode())
    assert says in webhook.raw.decode()
    (mail,) = (installation.files / "mail" / "new").glob(
        next(d["notification_id"] for d in job["deliveries"] if d["recipient"] == MAIL)
    )
    assert "Only deterministic" in mail.read_text()
