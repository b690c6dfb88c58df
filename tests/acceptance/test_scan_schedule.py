"""The schedule of scans: each due path once, however many workers run it."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings as product
from django.db import OperationalError, transaction
from django.utils import timezone

from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from notifications.rendering import Ending
from reviews import pipeline, scans, tasks
from reviews.intake import scan_schedule
from reviews.intake import scans as intake
from reviews.models import FindingRow, ReviewJob, Scan, ScanDocument, ScanTarget, StageRun
from reviews.stages import versions
from tests import factories
from tests.acceptance.test_scans import FILES, MOVED, target
from tests.acceptance.world import World
from tests.beside import Beside
from tests.sources.gitrepo import GitRepo
from tests.stack import process_environment


@pytest.fixture
def repo(world: World, tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "documented")
    world.settings.GIT_REPOSITORIES = {"demo": made.path}
    made.commit_files(FILES)
    return made


def due(of: ScanTarget) -> None:
    ScanTarget.objects.filter(pk=of.pk).update(next_at=timezone.now() - timedelta(seconds=1))


def scanned(of: ScanTarget) -> list[int]:
    return list(Scan.objects.filter(target=of).order_by("pk").values_list("pk", flat=True))


def test_a_path_is_scanned_at_once_and_then_after_its_interval(world: World, repo: GitRepo) -> None:
    of, never = target(every_hours=24), target("//demo/docs/...")
    (job,) = scan_schedule.run()
    assert (scanned(of), scanned(never)) == ([job], [])
    assert ReviewJob.objects.get(pk=job).requested_by == "schedule"
    of.refresh_from_db()
    assert timedelta(hours=23) < of.next_at - timezone.now() <= timedelta(hours=24)
    assert scan_schedule.run() == []
    due(of)
    assert scan_schedule.run() == [], "its scan is active"
    world.settle()
    due(of)
    assert scan_schedule.run() == [], "the newest commit is verified"
    repo.commit_files({"README.md": "Run `make lint`.\n"})
    due(of)
    assert len(scan_schedule.run()) == 1
    assert len(scanned(of)) == 2


@pytest.mark.long
def test_a_partial_scan_is_repeated_for_the_same_commit(world: World, repo: GitRepo) -> None:
    of = target(every_hours=1)
    scan_schedule.run()
    world.settle()
    Scan.objects.get(target=of).documents.filter(path="//demo/README.md").update(verified_at=None)
    due(of)
    assert len(scan_schedule.run()) == 1


def test_a_repository_that_cannot_be_read_says_why_and_costs_no_other(world: World, repo: GitRepo) -> None:
    gone, of = target("//app/...", every_hours=24), target(every_hours=24)
    assert len(scan_schedule.run()) == 1
    gone.refresh_from_db()
    assert "GIT_REPOSITORIES" in gone.problem
    assert gone.next_at - timezone.now() <= timedelta(hours=1), "it is tried again soon"
    assert len(scanned(of)) == 1
    world.settings.GIT_REPOSITORIES = {"demo": repo.path, "app": repo.path}
    due(gone)
    assert len(scan_schedule.run()) == 1
    gone.refresh_from_db()
    assert gone.problem == ""


def test_a_defect_that_one_path_meets_stops_no_path_behind_it(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, of = target("//a/...", every_hours=24), target(every_hours=24)
    assert broken.path < of.path
    head_of = intake.head_of

    def found(path: ScanTarget) -> str:
        if path == broken:
            raise UnicodeDecodeError("ascii", b"\xff", 0, 1, "no text")
        return head_of(path)

    monkeypatch.setattr(intake, "head_of", found)
    assert len(scan_schedule.run()) == 1
    assert len(scanned(of)) == 1
    broken.refresh_from_db()
    assert broken.problem == "Criticizer failed on it (UnicodeDecodeError): see the log"
    assert broken.next_at - timezone.now() <= timedelta(hours=1), "it is tried again soon"
    assert [record.levelname for record in caplog.records if "scan_not_requested" in record.getMessage()] == [
        "ERROR"
    ]
    assert scan_schedule.run() == []


RUN = """
import sys
import django
django.setup()
from reviews.intake import scan_schedule, scans
head_of = scans.head_of
def awaited(target):
    found = head_of(target)
    print("read", flush=True)
    sys.stdin.readline()
    return found
scans.head_of = awaited
print(len(scan_schedule.run()), flush=True)
"""


@pytest.mark.long
def test_two_processes_at_once_request_one_scan(world: World, repo: GitRepo) -> None:
    """Both have read that the path is due before either requests the scan."""
    of = target(every_hours=24)
    environment = process_environment(
        world.files, CHANGE_SOURCES="git", GIT_REPOSITORIES=f"demo={repo.path}", DEPOT_ALLOW_LIST="//demo/..."
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", RUN],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        for run in runs:
            assert run.stdout is not None
            while run.stdout.readline() != "read\n":
                assert run.poll() is None
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("go\n")
            run.stdin.flush()
        said = [run.communicate(timeout=60)[0].split() for run in runs]
        assert sorted(lines[-1] for lines in said) == ["0", "1"]
    finally:
        for run in runs:
            run.kill()
            run.wait()
    assert len(scanned(of)) == 1


def test_one_message_is_the_clock_while_a_path_is_scheduled(world: World, repo: GitRepo) -> None:
    scan_schedule.ensure()
    clock = OutboxMessage.objects.filter(message_type="start_scans")
    assert not clock.exists()
    of = target(every_hours=24)
    scan_schedule.ensure()
    scan_schedule.ensure()
    assert clock.count() == 1
    (message,) = outbox.claim("stages", 10)
    assert message.message_type in product.TASKS
    tasks.start_scans(message.id, 0, str(message.lease_token))
    tasks.start_scans(message.id, 0, str(message.lease_token))  # a duplicate is refused
    assert len(scanned(of)) == 1
    assert clock.get().lease_token is None
    of.delete()
    scan_schedule.ensure()
    assert not clock.exists()
    assert "reviews.intake.scan_schedule.ensure" in product.MAINTENANCE


def test_a_deleted_path_ends_its_active_scan(world: World, repo: GitRepo) -> None:
    of, other = target(), target("//demo/docs/...")
    jobs = [intake.request(each, "s-1", "ann").job_id for each in (of, other)]
    intake.delete(of, "ann")
    other.delete()  # by a program: its job cannot go on, and says why
    world.settle()
    assert [world.status(job) for job in jobs] == ["cancelled", "dead_lettered"]
    assert "no longer scanned" in world.attempts(jobs[1], "fetch")[0].detail
    assert not Scan.objects.exists()


def test_a_path_is_deleted_beside_a_worker_that_stores_a_document(world: World, repo: GitRepo) -> None:
    """The path is deleted in one transaction, while the worker holds the lease and then writes."""
    of = target()
    job = intake.request(of, "s-1", "ann").job_id
    ScanDocument.objects.create(scan_id=job, digest="d", path="//demo/README.md")

    def delete() -> None:
        with transaction.atomic():
            intake.delete(of, "ann")

    with transaction.atomic():
        assert list(StageRun.objects.select_for_update(no_key=True).filter(job=job))
        beside = Beside(delete)
        assert beside.is_blocked()
        ScanDocument.objects.filter(scan=job).update(verified_at=timezone.now())
    beside.join()
    assert beside.result is None
    assert (world.status(job), ScanTarget.objects.exists()) == ("cancelled", False)


def test_a_deletion_that_fails_changes_nothing(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = target()
    job = intake.request(of, "s-1", "ann").job_id
    broken = Mock(side_effect=OperationalError("lost"))
    for at in ("reviews.pipeline.cancel", "reviews.models.ScanTarget.delete"):
        with monkeypatch.context() as patch:
            patch.setattr(at, broken)
            with pytest.raises(OperationalError):
                intake.delete(of, "ann")
        assert (world.status(job), Scan.objects.filter(target=of).exists()) == ("queued", True)


@pytest.mark.long
def test_a_deleted_path_leaves_no_finding_open(world: World, repo: GitRepo) -> None:
    of, other = target(), target("//demo/docs/...")
    repo.commit_files(MOVED)
    jobs = [intake.request(each, "s-1", "ann").job_id for each in (of, other)]
    world.settle()
    kept = factories.FindingRowFactory(job_id=jobs[1])
    intake.delete(of, "ann")
    ended = FindingRow.objects.filter(job=jobs[0])
    assert [row.status for row in ended] == ["not_reported_again"] * 2
    kept.refresh_from_db()
    assert kept.ending == ""


def test_findings_that_are_stored_after_their_path_was_deleted_are_not_open(
    world: World, repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, compare = target(), versions.compare
    repo.commit_files(MOVED)
    job = intake.request(of, "s-1", "ann").job_id

    def too_late(*result: Any) -> Any:
        write = compare(*result)
        ReviewJob.objects.filter(pk=job).update(deadline_at=timezone.now() - timedelta(seconds=1))
        assert pipeline.expire_overdue() == 1
        intake.delete(of, "ann")
        return write

    monkeypatch.setattr(versions, "compare", too_late)
    world.settle()
    assert ReviewJob.objects.get(pk=job).is_late
    assert [row.status for row in FindingRow.objects.filter(job=job)] == ["not_reported_again"] * 2


def test_a_path_is_deleted_beside_a_worker_that_stores_a_late_result(world: World, repo: GitRepo) -> None:
    of = target()
    job = factories.ReviewJobFactory(status="timed_out", kind="scan")
    Scan.objects.create(job=job, target=of)

    def delete() -> None:
        intake.delete(of, "ann")

    with transaction.atomic():
        stored = factories.FindingRowFactory(job=job)
        scans.relate(job.pk, [stored])()
        beside = Beside(delete)
        assert beside.is_blocked()
    beside.join()
    assert beside.result is None
    stored.refresh_from_db()
    assert stored.ending == Ending.GONE
