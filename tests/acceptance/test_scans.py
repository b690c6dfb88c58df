"""Scans of documentation in whole jobs: verdicts, partial results, crashes, scopes, replays."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import connection, transaction
from django.utils import timezone

from criticizer import texts
from deadletters import batches, workflow
from deadletters.models import DeadLetter
from reviews import pipeline, scans
from reviews import verdicts as judgements
from reviews.drift.change import MAX_DOCUMENTS
from reviews.drift.extraction import MAX_CLAIMS
from reviews.drift.wording import summary
from reviews.intake import api_keys
from reviews.intake import scans as intake
from reviews.models import (
    AllowListEntry,
    CoverageRow,
    FindingRow,
    ReviewJob,
    ReviewUnit,
    ScanDocument,
    ScanTarget,
)
from reviews.search import AT_NEWEST_VERSION
from reviews.stages import scan, semantic
from reviews.states import JobStatus
from tests import factories
from tests.acceptance.world import MAIL, World
from tests.api.conftest import ApiClient
from tests.beside import Beside
from tests.letters import walk
from tests.sources.gitrepo import GitRepo
from tests.stack import eventually, process_environment

FILES: dict[str, str | bytes | None] = {
    "README.md": "See `src/core.py`.\n\nRun `make lint`.\n",
    "docs/guide.md": "# Guide\n\nThe [code](../src/core.py) is small, `src/never_was.py` never was.\n",
    "src/core.py": "x = 1\n",
    "src/other.py": "y = 1\n",
    "Makefile": "lint:\n\ttrue\n",
}
MOVED: dict[str, str | bytes | None] = {"src/core.py": None, "src/engine.py": "x = 1\n"}


@pytest.fixture
def repo(world: World, tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "documented")
    world.settings.GIT_REPOSITORIES = {"demo": made.path}
    made.commit_files(FILES)
    return made


def target(path: str = "//demo/...", **fields: Any) -> ScanTarget:
    return ScanTarget.objects.create(path=path, reason="DOC-1", **fields)


def scanned(world: World, of: ScanTarget, key: str = "s-1") -> ReviewJob:
    job = intake.request(of, key, "ann").job_id
    world.settle()
    return ReviewJob.objects.get(pk=job)


def result(job: ReviewJob) -> scans.ScanResult:
    return scans.results_of([job.pk])[job.pk]


def verdicts(job: ReviewJob) -> dict[tuple[str, str], str]:
    rows = ScanDocument.objects.filter(scan=job.pk)
    return {(row.path, each["text"]): each["verdict"] for row in rows for each in row.claims}


@pytest.mark.long
def test_what_became_untrue_is_refuted_and_what_never_was_is_not(world: World, repo: GitRepo) -> None:
    repo.commit_files(MOVED)
    job = scanned(world, target(recipients=MAIL))
    assert job.status == JobStatus.SUCCEEDED
    assert verdicts(job) == {
        ("//demo/README.md", "src/core.py"): "refuted",
        ("//demo/README.md", "make lint"): "holds",
        ("//demo/docs/guide.md", "../src/core.py"): "refuted",
        ("//demo/docs/guide.md", "src/never_was.py"): "uncheckable",
    }
    assert result(job).health == 33
    found = FindingRow.objects.filter(job=job).order_by("file")
    assert [(row.file, row.line, row.title) for row in found] == [
        ("//demo/README.md", 1, "Not so any more: `src/core.py`"),
        ("//demo/docs/guide.md", 3, "Not so any more: `../src/core.py`"),
    ]
    (mail,) = world.mails()
    body = mail.get_body(("plain",))
    assert body is not None
    text = " ".join(str(body.get_content()).split())
    assert "4 claims of documents: 1 hold, 2 refuted, 0 ambiguous, 1 not checkable." in text


def test_a_path_is_scanned_without_the_rest_of_its_repository(world: World, repo: GitRepo) -> None:
    job = scanned(world, target("//demo/docs/..."))
    assert verdicts(job) == {
        ("//demo/docs/guide.md", "../src/core.py"): "uncheckable",
        ("//demo/docs/guide.md", "src/never_was.py"): "uncheckable",
    }
    assert result(job).health is None


def test_what_the_allow_list_excludes_is_neither_read_nor_told(world: World, repo: GitRepo) -> None:
    AllowListEntry.objects.create(kind="include", pattern="//demo/...", reason="OPS-1")
    AllowListEntry.objects.create(kind="exclude", pattern="//demo/src/...", position=1, reason="OPS-1")
    job = scanned(world, target())
    assert verdicts(job) == {
        ("//demo/README.md", "src/core.py"): "uncheckable",
        ("//demo/README.md", "make lint"): "holds",
        ("//demo/docs/guide.md", "../src/core.py"): "uncheckable",
        ("//demo/docs/guide.md", "src/never_was.py"): "uncheckable",
    }


def test_the_repository_switches_scans_off(world: World, repo: GitRepo) -> None:
    repo.commit_files({".criticizer.yml": "docs: {enabled: false}\n"})
    job = scanned(world, target())
    assert (job.status, job.documents["note"]) == (JobStatus.SUCCEEDED, texts.DOCUMENTS_OFF.text)
    assert (result(job).documents, result(job).health) == (0, None)


@pytest.mark.long
def test_the_configuration_of_the_commit_chooses_documents_and_kinds(world: World, repo: GitRepo) -> None:
    repo.commit_files({".criticizer.yml": "docs: {exclude: [docs/], claim_types: {command: false}}\n"})
    assert verdicts(scanned(world, target())) == {("//demo/README.md", "src/core.py"): "holds"}


@pytest.mark.long
def test_a_scan_without_claims_has_no_health_and_warns(
    world: World, repo: GitRepo, caplog: pytest.LogCaptureFixture
) -> None:
    repo.commit_files({"README.md": "Nothing.\n", "docs/guide.md": "Nothing here either.\n"})
    job = scanned(world, target())
    assert job.status == JobStatus.SUCCEEDED
    assert (result(job).total, result(job).documents, result(job).health) == (0, 2, None)
    warned = [record for record in caplog.records if "scan_without_claims" in record.getMessage()]
    assert [record.levelname for record in warned] == ["WARNING"]
    assert summary(job.documents) == "No verifiable claims found in the documentation files."


@pytest.mark.long
def test_a_scan_that_could_read_no_document_says_only_that(world: World, repo: GitRepo) -> None:
    repo.commit_files({"README.md": b"\0\0", "docs/guide.md": None})
    assert summary(scanned(world, target()).documents) == "Not read: 1 document."


def test_a_review_says_that_it_found_no_claim_also_beside_what_it_did_not_compare() -> None:
    said = summary({"documents": 1, "note": "Left out."})
    assert said == "Left out. No verifiable claims found in the changed documentation files."


def test_scenario_20_out_of_time_what_is_verified_is_delivered(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = scan._Scan._store

    def stored_late(self: scan._Scan, *document: Any) -> None:
        stored(self, *document)
        self._until = time.monotonic()

    monkeypatch.setattr(scan._Scan, "_store", stored_late)
    job = scanned(world, target(recipients=MAIL))
    assert job.status == JobStatus.SUCCEEDED
    assert (result(job).verified, result(job).total, result(job).is_partial) == (2, 4, True)
    (mail,) = world.mails()
    body = mail.get_body(("plain",))
    assert body is not None
    text = " ".join(str(body.get_content()).split())
    assert (
        "Scan timed out after verifying 2 of 4 claims. Results shown are from the completed portion." in text
    )


@pytest.mark.parametrize("end", ["timed_out", pytest.param("cancelled", marks=pytest.mark.long)])
def test_a_job_that_ends_during_its_scan_keeps_what_is_verified(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    stored = scan._Scan._store

    def ended(self: scan._Scan, *document: Any) -> None:
        stored(self, *document)
        if end == "cancelled":
            pipeline.cancel(self._job.pk, "ann", "not now")
        else:
            ReviewJob.objects.filter(pk=self._job.pk).update(deadline_at=timezone.now())
            pipeline.expire_overdue()

    monkeypatch.setattr(scan._Scan, "_store", ended)
    job = scanned(world, target(recipients=MAIL))
    assert job.status == end
    assert (result(job).verified, result(job).total) == (2, 4)
    assert scans.conclusion_of(job, result(job)) == "neutral"
    assert world.mails() == []


@pytest.mark.long
def test_a_scan_lets_the_next_review_embed_the_repository_anew(world: World, repo: GitRepo) -> None:
    of = target()
    first = scanned(world, of, "s-1")
    world.settings.EMBEDDINGS_BASE_URL, world.settings.EMBEDDINGS_MODEL = world.llm.base_url, "embed-256"
    key = semantic._key("index", "//demo/")
    ReviewUnit.objects.create(key=key, answer=[{"model": "old"}], input_tokens=0, made_by=first)
    scanned(world, of, "s-2")
    assert not ReviewUnit.objects.filter(key=key).exists()


@pytest.mark.long
def test_a_scan_gives_way_after_its_slice_and_goes_on(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(scan, "SLICE_SECONDS", -1.0)
    job = scanned(world, target())
    assert job.status == JobStatus.SUCCEEDED
    assert (result(job).verified, result(job).documents) == (4, 2)
    attempts = world.attempts(job.pk, "fetch")
    assert [attempt.outcome for attempt in attempts] == ["given_back", "given_back", "succeeded"]
    assert attempts[0].detail == "The scan paused after a minute so that other work can run."
    told = [line for record in caplog.records if "stage_" in (line := record.getMessage())]
    assert [line for line in told if "stage_waits" in line] == []
    assert len([line for line in told if "stage_gives_way" in line]) == 2


@pytest.mark.long
def test_a_repository_that_is_gone_is_a_dead_letter_and_its_replay_scans(world: World, repo: GitRepo) -> None:
    job = intake.request(target(), "s-1", "ann").job_id
    away = repo.path.rename(repo.path.with_name("away"))
    world.settle()
    assert world.status(job) == JobStatus.DEAD_LETTERED
    letter = DeadLetter.objects.get(job=job)
    assert (letter.stage, letter.error_class) == ("fetch", "CONFIG_INVALID")
    away.rename(repo.path)
    world.replay(job)
    world.settle()
    assert world.status(job) == JobStatus.SUCCEEDED
    assert result(ReviewJob.objects.get(pk=job)).verified == 4


@pytest.mark.long
def test_a_scan_is_not_replayed_after_a_newer_one_of_its_path(world: World, repo: GitRepo) -> None:
    """The older scan is of another commit.

    It would report again what the newer one found to be mended, or run beside it.
    """
    of, other = target(), target("//demo/docs/...")
    older = [intake.request(each, "s-1", "ann").job_id for each in (of, other)]
    away = repo.path.rename(repo.path.with_name("away"))
    world.settle()
    away.rename(repo.path)
    letters = [world.letter(job) for job in older]
    walk(letters[0].pk)
    repo.commit_files({"README.md": "Mended.\n"})
    newer = intake.request(of, "s-2", "ann").job_id
    words = f"a newer scan of its path exists: {newer}; request a scan on the page of the path instead"
    for _ in ("it is active", "it succeeded"):
        refused = workflow.replay(letters[0].pk, actor="ann", reason="OPS-1")
        assert (refused.ok, refused.message) == (False, words)
        batch = batches.draft(
            filter={}, ids=[letter.pk for letter in letters], actor="ann", reason="OPS-1",
            evidence_note="OPS-1", canary_size=0, rate_per_minute=60,
        )  # fmt: skip
        batches.dry_run(batch.pk)
        assert [item.verdict for item in batch.items.order_by("letter_id")] == ["newer_version", "eligible"]
        world.settle()
    assert [world.status(job) for job in (older[0], newer)] == ["dead_lettered", "succeeded"]
    world.replay(older[1])
    world.settle()
    assert world.status(older[1]) == "succeeded", "of another path"


@pytest.mark.long
def test_a_replay_waits_for_a_request_of_a_scan_and_is_refused(world: World, repo: GitRepo) -> None:
    of = target()
    older = intake.request(of, "s-1", "ann").job_id
    away = repo.path.rename(repo.path.with_name("away"))
    world.settle()
    away.rename(repo.path)
    letter = world.letter(older)
    walk(letter.pk)
    repo.commit_files({"README.md": "Mended.\n"})
    with transaction.atomic():
        newer = intake._requested(of.pk, "s-2", "ann", intake.head_of(of)).job_id
        beside = Beside(lambda: workflow.replay(letter.pk, actor="ann", reason="OPS-1"))
        assert beside.is_blocked()
    beside.join()
    assert not beside.result.ok, beside.result
    assert [world.status(job) for job in (older, newer)] == ["dead_lettered", "queued"]


def test_a_document_that_ends_the_process_costs_itself_alone(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends the scanning process in the middle of the first document, and of no other."""
    gate = Gate(world, repo)
    job = intake.request(target(), "s-1", "ann").job_id
    worker = threading.Thread(target=lambda: (world.work(), connection.close()))
    worker.start()
    eventually(gate.is_reached, 120)
    child = next(
        one for one in psutil.Process().children(recursive=True) if "scan_child" in " ".join(one.cmdline())
    )
    child.kill()
    gate.open()
    worker.join()
    world.settle()
    rows = dict(ScanDocument.objects.filter(scan=job).values_list("path", "unread"))
    assert rows == {"//demo/README.md": scan.TOO_HARD, "//demo/docs/guide.md": ""}
    assert world.status(job) == JobStatus.SUCCEEDED


@pytest.mark.long
def test_documents_beyond_the_limit_are_counted_and_keep_their_findings(world: World, repo: GitRepo) -> None:
    repo.commit_files({**MOVED, "README.md": "Nothing.\n"})
    of = target()
    first = scanned(world, of, "s-1")
    repo.commit_files({f"n{number}.md": "Nothing.\n" for number in range(MAX_DOCUMENTS)})
    second = scanned(world, of, "s-2")
    assert ScanDocument.objects.filter(scan=second.pk).count() == MAX_DOCUMENTS
    found = result(second)
    assert (found.documents, found.unread) == (MAX_DOCUMENTS + 2, 2)
    assert summary(second.documents).endswith("Not read: 2 documents.")
    assert scans.conclusion_of(second, found) == "neutral"
    assert set(FindingRow.objects.filter(job=first).values_list("file", "ending")) == {
        ("//demo/docs/guide.md", "")
    }


def test_a_scan_is_no_success_where_something_was_not_read(world: World, repo: GitRepo) -> None:
    repo.commit_files({"docs/guide.md": "Run `make lint`.\n", "docs/binary.md": b"\0\0"})
    job = scanned(world, target())
    assert (result(job).health, result(job).is_partial) == (100, False)
    assert scans.conclusion_of(job, result(job)) == "neutral"
    assert summary(job.documents).endswith("Not read: 1 document.")
    assert list(
        CoverageRow.objects.filter(job=job).order_by("file").values_list("file", "status", "reason")
    ) == [
        ("//demo/README.md", "checked", ""),
        ("//demo/docs/binary.md", "skipped", "not read: too large, or no text"),
        ("//demo/docs/guide.md", "checked", ""),
    ]


@pytest.mark.long
def test_what_is_left_out_of_documents_is_counted(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = "".join(f"- [n](f{number}.md)\n" for number in range(MAX_CLAIMS + 3))
    repo.commit_files({
        "docs/guide.md": many, "docs/z.md": "Set `ACME_RETRIES`.\n",
        "src/broken.py": "ACME_RETRIES = os.environ['ACME_RETRIES'\n",
    })  # fmt: skip
    monkeypatch.setattr(scan, "SLICE_SECONDS", -1.0)
    job = scanned(world, target())
    assert (job.documents["left_out"], job.documents["not_indexed"]) == (3, 1)
    assert "Left out beyond the limits: 3 statements." in summary(job.documents)
    assert scans.conclusion_of(job, result(job)) == "neutral"


def test_a_sentence_that_is_read_in_part_is_said_and_leaves_the_conclusion(
    world: World, repo: GitRepo
) -> None:
    repo.commit_files({"docs/guide.md": f"Run `make lint` {'and wait ' * 300}.\n"})
    job = scanned(world, target())
    assert (result(job).counts["holds"], result(job).cut) == (3, 1)
    assert summary(job.documents).endswith("Read in part: 1 long sentence.")
    assert scans.conclusion_of(job, result(job)) == "success"


@pytest.mark.long
def test_a_list_of_files_that_is_too_long_is_no_empty_one(world: World, repo: GitRepo) -> None:
    repo.commit_files(MOVED)
    of = target()
    first = scanned(world, of, "s-1")
    executable = world.files / "git-with-a-long-list"
    executable.write_text(
        '#!/bin/sh\ncase "$*" in "ls-tree -r -l"*) exec head -c 64000001 /dev/zero;; esac\n'
        'exec /usr/bin/git "$@"\n'
    )
    executable.chmod(0o700)
    world.settings.GIT_EXECUTABLE = str(executable)
    second = scanned(world, of, "s-2")
    assert second.status == JobStatus.DEAD_LETTERED
    assert "more than 64,000,000 bytes" in world.letter(second.pk).detail
    assert set(FindingRow.objects.filter(job=first).values_list("ending", flat=True)) == {""}


# What git does at `blame` of the first document: its child sees the failure, and no other document does.
HARD = {
    "memory": ("prlimit --pid $PPID --as=1000000; head -c 9000000 /dev/zero | tr '\\0' 'x'; exit 0", None),
    "defect": (f"printf '{'1' * 40} 1 1 1\\n'; exit 0", "ValueError"),
}


@pytest.mark.parametrize("kind", ["defect", pytest.param("memory", marks=pytest.mark.long)])
def test_a_document_that_needs_too_much_memory_or_meets_a_defect_costs_itself_alone(
    world: World, repo: GitRepo, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    repo.commit_files(MOVED)
    blame, defect = HARD[kind]
    executable = world.files / "hard-git"
    executable.write_text(
        "#!/bin/sh\n"
        f'case "$*" in\nblame*README.md) {blame};;\n'
        f"ls-tree*{'1' * 40}*) printf 'no tree'; exit 0;;\nesac\n"
        'exec /usr/bin/git "$@"\n'
    )
    executable.chmod(0o700)
    world.settings.GIT_EXECUTABLE = str(executable)
    job = scanned(world, target())
    assert job.status == JobStatus.SUCCEEDED
    rows = dict(ScanDocument.objects.filter(scan=job.pk).values_list("path", "unread"))
    assert rows == {"//demo/README.md": scan.TOO_HARD, "//demo/docs/guide.md": ""}
    told = [line for line in map(logging.LogRecord.getMessage, caplog.records) if "_defect" in line]
    assert [f"'error': '{defect}'" in line for line in told] == [True] * bool(defect)


class Gate:
    """A git that waits before it reads the history of one document, until `open` is called."""

    def __init__(self, world: World, repo: GitRepo, document: str = "README.md") -> None:
        repo.commit_files(MOVED)
        self._reached, self._opened = world.files / "reached", world.files / "opened"
        self.executable = world.files / "git-with-a-gate"
        self.executable.write_text(
            "#!/bin/sh\n"
            f'case "$*" in blame*{document})\n'
            f"  touch {self._reached}; while [ ! -e {self._opened} ]; do sleep 0.05; done;;\n"
            "esac\n"
            'exec /usr/bin/git "$@"\n'
        )
        self.executable.chmod(0o700)
        world.settings.GIT_EXECUTABLE = str(self.executable)

    def is_reached(self) -> bool:
        return self._reached.exists()

    def open(self) -> None:
        self._opened.touch()


WORKER = """
import django
django.setup()
from criticizer.queue import outbox
from reviews.pipeline import executor
for message in outbox.claim("stages", 1):
    executor.run_stage(message.id, message.aggregate_id, message.lease_token)
"""


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_lost_between_two_documents_costs_none_and_repeats_none(
    world: World, repo: GitRepo, end: signal.Signals
) -> None:
    """The worker is killed in the second document, or stopped and then continued.

    The first document is stored by then.
    """
    gate = Gate(world, repo, "docs/guide.md")
    job = intake.request(target(), "s-1", "ann").job_id
    environment = process_environment(
        world.files,
        CHANGE_SOURCES="git",
        GIT_REPOSITORIES=f"demo={repo.path}",
        GIT_EXECUTABLE=str(gate.executable),
        DEPOT_ALLOW_LIST="//demo/...",
    )
    worker = subprocess.Popen([sys.executable, "-c", WORKER], env=environment, stdout=subprocess.DEVNULL)
    try:
        eventually(gate.is_reached, 120)
        # The scanning process is at the second document; its parent may be about to store the first.
        done = ScanDocument.objects.filter(scan=job, path="//demo/README.md").exclude(verified_at=None)
        eventually(done.exists, 120)
        first = done.get()
        assert first.refuted == 1
        worker.send_signal(end)
        if end is signal.SIGKILL:
            worker.wait()
        gate.open()
        world.settle()
        rows = list(ScanDocument.objects.filter(scan=job))
        assert world.status(job) == JobStatus.SUCCEEDED
        assert [(row.path, row.total, row.refuted) for row in rows] == [
            ("//demo/README.md", 2, 1), ("//demo/docs/guide.md", 2, 1),
        ]  # fmt: skip
        assert rows[0].verified_at == first.verified_at
        assert FindingRow.objects.filter(job=job).count() == 2
        worker.send_signal(signal.SIGCONT)
        worker.wait(120)
    finally:
        worker.kill()
        worker.wait()
    assert list(ScanDocument.objects.filter(scan=job).values()) == [
        {name: value for name, value in vars(row).items() if name != "_state"} for row in rows
    ]
    outcomes = [attempt.outcome for attempt in world.attempts(job, "fetch")]
    assert outcomes == ["lost", "succeeded"]


def test_a_finding_is_one_in_all_scans_and_keeps_its_verdict(world: World, repo: GitRepo) -> None:
    repo.commit_files(MOVED)
    of = target()
    first = scanned(world, of, "s-1")
    judged = FindingRow.objects.get(job=first, file="//demo/README.md")
    judgements.give(judged, "wont_fix", "ann", "It is a sample.")
    repo.commit_files({"README.md": "# Moved\n\nSee `src/core.py`.\n\nRun `make lint`.\n"})
    second = scanned(world, of, "s-2")
    again = FindingRow.objects.get(job=second, file="//demo/README.md")
    assert (again.identity, again.line, again.is_new) == (judged.identity, 3, False)
    assert judgements.verdicts_of([again.identity])[again.identity].kind == "wont_fix"
    listed = FindingRow.objects.filter(AT_NEWEST_VERSION).values_list("job", flat=True)
    assert set(listed) == {second.pk}
    repo.commit_files({"README.md": "# Moved\n"})
    third = scanned(world, of, "s-3")
    again.refresh_from_db()
    assert (again.status, again.ended_in_id) == ("not_reported_again", third.pk)
    assert FindingRow.objects.get(job=third).is_new is False


def test_what_a_scan_did_not_verify_ends_no_finding(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit_files(MOVED)
    of = target()
    first = scanned(world, of, "s-1")
    repo.commit_files({"README.md": "# Moved\n"})
    monkeypatch.setattr(scan._Scan, "_left", lambda self: 0.0)
    second = scanned(world, of, "s-2")
    assert second.documents["note"] == texts.SCAN_UNLISTED.text
    assert set(FindingRow.objects.filter(job=first).values_list("ending", flat=True)) == {""}


@pytest.mark.long
def test_the_page_of_the_job_says_what_was_verified_and_offers_no_review_of_it(
    world: World, repo: GitRepo
) -> None:
    job = scanned(world, target())
    client = factories.staff_client("ann", "operator")
    shown = " ".join(client.get(f"/reviews/{job.pk}/").content.decode().split())
    assert "4 claims of documents: 3 hold, 0 refuted, 0 ambiguous, 1 not checkable." in shown
    assert f"/reviews/{job.pk}/again/" not in shown
    assert "no line changed" not in shown
    answer = client.post(f"/reviews/{job.pk}/again/", follow=True).content.decode()
    assert "request another one on the page of its path" in answer
    assert ReviewJob.objects.count() == 1


# -- the API -------------------------------------------------------------------------------------------------


def key_of(role: str, *prefixes: str) -> ApiClient:
    return ApiClient(api_keys.create(f"{role} of {prefixes}", role, prefixes))


def test_the_api_requests_a_scan_once_and_shows_what_it_found(world: World, repo: GitRepo) -> None:
    repo.commit_files(MOVED)
    target()
    body = {"path": "//demo/...", "idempotency_key": "nightly-1"}
    first = world.api.post_json("/api/v1/scans/", body)
    again = world.api.post_json("/api/v1/scans/", {"path": "//demo/..."}, HTTP_IDEMPOTENCY_KEY="nightly-1")
    other = world.api.post_json("/api/v1/scans/", {**body, "idempotency_key": "nightly-2"})
    assert [answer.status_code for answer in (first, again, other)] == [201, 200, 200]
    assert {answer.json()["id"] for answer in (first, again, other)} == {first.json()["id"]}
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert (first.json()["conclusion"], first.json()["health"]) == (None, None)
    world.settle()
    assert world.api.post_json("/api/v1/scans/", body).json()["id"] == first.json()["id"]
    shown = world.api.get(first.headers["Location"].removeprefix(world.settings.BASE_URL)).json()
    wanted = {
        "path": "//demo/...", "status": "succeeded", "conclusion": "failure", "health": 33, "claims": 4,
        "verified": 4, "documents": 2, "unread": 0, "holds": 1, "refuted": 2, "ambiguous": 0,
        "uncheckable": 1, "requested_by": "key:ci",
    }  # fmt: skip
    assert {name: shown[name] for name in wanted} == wanted
    documents = world.api.get(f"/api/v1/scans/{shown['id']}/documents/").json()
    assert documents["next"] is None
    assert [(each["path"], each["total"]) for each in documents["results"]] == [
        ("//demo/README.md", 2), ("//demo/docs/guide.md", 2),
    ]  # fmt: skip
    claim = documents["results"][0]["claims"][0]
    assert (claim["line"], claim["text"], claim["verdict"]) == (1, "src/core.py", "refuted")
    assert [row["id"] for row in world.api.get("/api/v1/scans/?path=//demo/...").json()["results"]] == [
        shown["id"]
    ]
    assert world.api.get("/api/v1/scans/?path=//other/...").json()["count"] == 0


def test_the_api_answers_503_to_a_failure_that_passes_and_400_to_one_that_stays(
    world: World, repo: GitRepo
) -> None:
    target()
    body = {"path": "//demo/...", "idempotency_key": "nightly-1"}
    git = world.files / "git-that-is-killed"
    git.write_text("#!/bin/sh\nkill -KILL $$\n")
    git.chmod(0o700)
    working, world.settings.GIT_EXECUTABLE = world.settings.GIT_EXECUTABLE, str(git)
    answer = world.api.post_json("/api/v1/scans/", body)
    assert (answer.status_code, answer.json()["error"]) == (503, "UPSTREAM_UNAVAILABLE")
    assert int(answer.headers["Retry-After"]) > 0
    world.settings.GIT_EXECUTABLE = working
    repo.path.rename(repo.path.with_name("away"))
    answer = world.api.post_json("/api/v1/scans/", body)
    assert (answer.status_code, answer.json()["error"]) == (400, "SCHEMA_INVALID")
    assert not ReviewJob.objects.exists()


@pytest.mark.long
def test_a_further_scan_of_a_path_is_another_version(world: World, repo: GitRepo) -> None:
    of = target()
    first, second = scanned(world, of, "s-1"), scanned(world, of, "s-2")
    assert (first.review_version, second.review_version) == (1, 2)
    assert first.changelist_id == second.changelist_id
    review = world.job(first.changelist_id)
    assert ReviewJob.objects.get(pk=review).review_version == 1, "reviews have versions of their own"


def test_a_key_with_prefixes_scans_and_sees_what_lies_below_them_alone(world: World, repo: GitRepo) -> None:
    whole, docs = target(), target("//demo/docs/...")
    jobs = {of.path: scanned(world, of).pk for of in (whole, docs)}
    narrow = key_of("trigger", "//demo/docs/...")
    seen = [row["path"] for row in narrow.get("/api/v1/scans/").json()["results"]]
    assert seen == ["//demo/docs/..."]
    hidden, unknown = jobs["//demo/..."], max(jobs.values()) + 1000
    for tail in ("", "documents/"):
        assert narrow.get(f"/api/v1/scans/{jobs['//demo/docs/...']}/{tail}").status_code == 200
        answers = [narrow.get(f"/api/v1/scans/{scan_id}/{tail}") for scan_id in (hidden, unknown)]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert _without_ids(answers[0]) == _without_ids(answers[1])
    posted = [
        narrow.post_json("/api/v1/scans/", {"path": path, "idempotency_key": "n-1"})
        for path in ("//demo/docs/...", "//demo/...", "//nowhere/...")
    ]
    assert [answer.status_code for answer in posted] == [201, 404, 404]
    assert _without_ids(posted[1]) == _without_ids(posted[2])


def _without_ids(answer: Any) -> dict[str, Any]:
    return {name: value for name, value in answer.json().items() if name != "request_id"}


def test_a_path_without_a_repository_is_refused_with_what_to_do(world: World, repo: GitRepo) -> None:
    target("//gone/...")
    answer = world.api.post_json("/api/v1/scans/", {"path": "//gone/...", "idempotency_key": "s-1"})
    assert answer.status_code == 400
    assert "GIT_REPOSITORIES" in str(answer.json()["details"]["path"])
    assert not ReviewJob.objects.exists()


@pytest.mark.long
def test_claims_of_old_scans_are_dropped_and_their_counts_stay(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "KEPT_SCANS", 1)
    of = target()
    first, second = scanned(world, of, "s-1"), scanned(world, of, "s-2")
    assert verdicts(first) == {}
    assert len(verdicts(second)) == 4
    assert result(first) == result(second)


@pytest.mark.long
def test_names_that_are_no_text_are_scanned_like_others(world: World, repo: GitRepo) -> None:
    name = b"caf\xe9.md".decode("utf-8", "surrogateescape")
    repo.commit_files({name: "Run `make lint`, see `src/core.py`.\n", "a@b#c.md": "See `src/core.py`.\n"})
    job = scanned(world, target())
    assert (job.status, result(job).verified) == (JobStatus.SUCCEEDED, 7)
    paths = ScanDocument.objects.filter(scan=job.pk).values_list("path", flat=True)
    assert {r"//demo/caf\udce9.md", "//demo/a%40b%23c.md"} <= set(paths)
