"""Scans of depot paths in whole jobs, with a stand-in p4 as a process and a real git."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings as product
from django.utils import timezone

from criticizer.models import SecurityEvent
from criticizer.resilience import overrides
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from criticizer.resilience.states import CircuitState
from reviews import config, scans
from reviews.intake import scan_schedule
from reviews.intake import scans as intake
from reviews.models import AllowListEntry, FindingRow, ReviewJob
from reviews.sources.perforce import depot_copy
from reviews.stages import depot_scan, scan
from reviews.states import JobStatus
from tests import factories
from tests.acceptance.test_scans import result, scanned, target, verdicts
from tests.acceptance.world import MAIL, World
from tests.fakes.p4.server import added, deleted, edited
from tests.stack import process_environment

ROOT = "//depot/main/"
README = "See `src/core.py` and [the logo](logo.png).\n\nRun `make lint`.\n"
GUIDE = "# Guide\n\nThe [code](../src/core.py) is small, `src/never_was.py` never was.\n"
CORE = "x = 1\n"


@pytest.fixture
def first(world: World) -> str:
    return world.depot.submit(
        added(f"{ROOT}README.md", README),
        added(f"{ROOT}docs/guide.md", GUIDE),
        added(f"{ROOT}src/core.py", CORE),
        added(f"{ROOT}Makefile", "lint:\n\ttrue\n"),
        added(f"{ROOT}logo.png", b"\x89PNG\0", "binary"),
    )


def path(name: str = "", **fields: Any) -> Any:
    return target(f"{ROOT}{name}...", **fields)


def left() -> list[str]:
    """Return the names of the copies of depot paths in the data directory."""
    return [each.name for each in (product.DATA_DIR / depot_scan.COPIES).glob("*")]


def move_core(world: World) -> str:
    return world.depot.submit(deleted(f"{ROOT}src/core.py", CORE), added(f"{ROOT}src/engine.py", CORE))


def test_a_stale_claim_of_a_depot_path_is_found_and_what_never_held_is_not(
    world: World, first: str, client: Any
) -> None:
    number = move_core(world)
    of = path(recipients=MAIL)
    job = scanned(world, of)
    assert job.status == JobStatus.SUCCEEDED, world.attempts(job.pk, "fetch")
    assert job.changelist_id == number
    assert verdicts(job) == {
        (f"{ROOT}README.md", "src/core.py"): "refuted",
        (f"{ROOT}README.md", "logo.png"): "holds",
        (f"{ROOT}README.md", "make lint"): "holds",
        (f"{ROOT}docs/guide.md", "../src/core.py"): "refuted",
        (f"{ROOT}docs/guide.md", "src/never_was.py"): "uncheckable",
    }
    assert scans.conclusion_of(job, result(job)) == "failure"
    found = FindingRow.objects.filter(job=job).order_by("file")
    assert [(row.file, row.line) for row in found] == [(f"{ROOT}README.md", 1), (f"{ROOT}docs/guide.md", 3)]
    printed = [call.argv[-1] for call in world.depot.calls("print")]
    assert not [each for each in printed if "logo.png" in each]  # it is there, and not read
    assert left() == []
    (mail,) = world.mails()
    body = mail.get_body(("plain",))
    assert body is not None
    assert "5 claims of documents: 2 hold, 2 refuted," in " ".join(str(body.get_content()).split())
    client.force_login(factories.UserFactory(is_superuser=True))
    assert client.get(f"/reviews/{job.pk}/").status_code == 200
    assert f"{ROOT}README.md" in client.get(f"/scans/{of.pk}/").content.decode()
    assert world.api.get(f"/api/v1/scans/{job.pk}/").json()["health"] == 50


@pytest.mark.long
def test_a_line_that_was_written_after_its_file_had_gone_never_held(world: World, first: str) -> None:
    move_core(world)
    world.depot.submit(
        edited(f"{ROOT}README.md", README, README + "\nMore.\n"),
        added(f"{ROOT}late.md", "See `src/core.py`.\n"),
    )
    found = verdicts(scanned(world, path()))
    assert found[f"{ROOT}README.md", "src/core.py"] == "refuted"
    assert found[f"{ROOT}late.md", "src/core.py"] == "uncheckable"


def test_a_denied_path_is_neither_printed_nor_missing(world: World, first: str) -> None:
    AllowListEntry.objects.create(kind="include", pattern=f"{ROOT}...", reason="OPS-1")
    AllowListEntry.objects.create(kind="exclude", pattern=f"{ROOT}src/...", position=1, reason="OPS-1")
    move_core(world)
    job = scanned(world, path())
    found = verdicts(job)
    assert found[f"{ROOT}README.md", "src/core.py"] == "uncheckable"
    assert found[f"{ROOT}README.md", "make lint"] == "holds"
    assert not [call.argv for call in world.depot.calls("print") if "/src/" in call.argv[-1]]


def test_a_path_that_the_allow_list_excludes_since_the_request_is_recorded_and_not_read(
    world: World, first: str
) -> None:
    job_id = intake.request(path(), "k-1", "ann").job_id
    AllowListEntry.objects.create(kind="exclude", pattern=f"{ROOT}...", reason="OPS-1")
    before = len(world.depot.calls())
    world.settle()
    assert (world.status(job_id), world.letter(job_id).error_class) == ("dead_lettered", "CONFIG_INVALID")
    event = SecurityEvent.objects.get(kind="path_denied")
    assert (event.path, event.changelist_id) == (ROOT, first)
    assert not [call.argv for call in world.depot.calls()[before:] if ROOT in " ".join(call.argv)]


@pytest.mark.long
def test_what_was_denied_when_the_copy_was_made_is_not_missing_once_it_is_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = "import os\nRETRIES = os.environ['ACME_RETRIES']\n"
    world.depot.submit(
        added(f"{ROOT}README.md", "The environment variable `ACME_RETRIES` sets the retries.\n"),
        added(f"{ROOT}app.py", reads),
    )
    world.depot.submit(deleted(f"{ROOT}app.py", reads), added(f"{ROOT}src/app.py", reads))
    AllowListEntry.objects.create(kind="include", pattern=f"{ROOT}...", reason="OPS-1")
    AllowListEntry.objects.create(kind="exclude", pattern=f"{ROOT}src/...", position=1, reason="OPS-1")
    made = depot_scan.copy_of

    def allowed_meanwhile(job: ReviewJob, *rest: Any) -> Any:
        if len(world.attempts(job.pk, "fetch")) > 1:
            return made(job, *rest)
        made(job, *rest)
        AllowListEntry.objects.filter(kind="exclude").delete()
        raise RetryableFailure(ErrorClass.WORKER_LOST, Component.QUEUE, "lost")

    monkeypatch.setattr(depot_scan, "copy_of", allowed_meanwhile)
    found = verdicts(scanned(world, path()))
    assert set(found.values()) == {"uncheckable"}, found


@pytest.mark.long
def test_a_file_that_is_deleted_takes_no_folder_of_its_name_with_it(world: World, first: str) -> None:
    world.depot.submit(added(f"{ROOT}docs/part", "x\n"))
    world.depot.submit(added(f"{ROOT}docs/part/guide.md", "See `../../src/core.py`.\n"))
    world.depot.submit(deleted(f"{ROOT}docs/part", "x\n"))
    assert verdicts(scanned(world, path()))[f"{ROOT}docs/part/guide.md", "../../src/core.py"] == "holds"


@pytest.mark.long
def test_a_folder_of_a_depot_is_scanned_by_itself(world: World, first: str) -> None:
    job = scanned(world, path("docs/"))
    assert {name for name, _ in verdicts(job)} == {f"{ROOT}docs/guide.md"}
    assert not [call.argv for call in world.depot.calls("print") if "README" in call.argv[-1]]


@pytest.mark.long
def test_the_configuration_of_the_depot_path_chooses_documents(world: World, first: str) -> None:
    world.depot.submit(added(f"{ROOT}.criticizer.yml", "docs: {exclude: [docs/]}\n"))
    assert {name for name, _ in verdicts(scanned(world, path()))} == {f"{ROOT}README.md"}


@pytest.mark.long
def test_names_that_git_or_perforce_quote_are_themselves(world: World, first: str) -> None:
    world.depot.submit(
        added(f'{ROOT}docs/a%40b "é".md', "See `../src/core.py` and `../src/a%40b.py`.\n"),
        added(f"{ROOT}src/a%40b.py", CORE),
    )
    job = scanned(world, path())
    assert verdicts(job)[f'{ROOT}docs/a%40b "é".md', "../src/core.py"] == "holds"


def test_files_that_cannot_be_read_are_there_and_keep_the_scan_neutral(world: World, first: str) -> None:
    world.depot.submit(
        added(f"{ROOT}notes.md", "See `src/large.py`, `src/denied.py` and `src/core.py`.\n"),
        added(f"{ROOT}src/large.py", "y = 1\n" * 200_000),
        added(f"{ROOT}src/denied.py", CORE),
    )
    world.depot.deny(f"{ROOT}src/denied.py")
    job = scanned(world, path())
    found = verdicts(job)
    for name in ("src/large.py", "src/denied.py", "src/core.py"):
        assert found[f"{ROOT}notes.md", name] == "holds"
    assert job.documents["unfetched"] == 2
    assert scans.conclusion_of(job, result(job)) == "neutral"
    said = world.api.get(f"/api/v1/reviews/{job.pk}/").json()
    assert "Not read from the depot: 2 file revisions." in str(said)


@pytest.mark.long
def test_revisions_beyond_the_limits_are_counted_and_documents_come_first(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depot_copy, "MAX_REVISIONS", 3)
    job = scanned(world, path())
    assert {name for name, _ in verdicts(job)} == {f"{ROOT}README.md", f"{ROOT}docs/guide.md"}
    assert job.documents["unfetched"] == 1
    assert scans.conclusion_of(job, result(job)) == "neutral"


@pytest.mark.long
def test_a_finding_that_cannot_be_told_any_more_stays_open(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_core(world)
    of = path()
    scanned(world, of)
    world.depot.submit(edited(f"{ROOT}README.md", README, README + "\nMore.\n"))
    monkeypatch.setattr(
        depot_copy, "MAX_REVISIONS", 4
    )  # as many as there are files: none of the earlier ones
    second = scanned(world, of, "s-2")
    assert second.documents["unfetched"] == 2
    assert verdicts(second)[f"{ROOT}README.md", "src/core.py"] == "uncheckable"
    assert FindingRow.objects.filter(ended_in=None).values("file").distinct().count() == 2


@pytest.mark.long
def test_a_print_that_hangs_costs_its_file_alone(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = depot_copy.Copier._printed
    monkeypatch.setattr(
        depot_copy.Copier, "_printed", lambda self, one, room, seconds: printed(self, one, room, 1.0)
    )
    world.depot.misbehave("print", contains="guide.md", hang=True)
    job = scanned(world, path())
    assert job.status == JobStatus.SUCCEEDED
    assert {name for name, _ in verdicts(job)} == {f"{ROOT}README.md"}
    assert job.documents["unfetched"] == 1
    assert scans.conclusion_of(job, result(job)) == "neutral"
    assert left() == []


@pytest.mark.long
def test_a_server_that_ends_in_the_middle_is_asked_again(world: World, first: str) -> None:
    job = intake.request(path(), "s-1", "ann").job_id
    world.depot.misbehave("print", contains="core.py", kill_after=2)
    world.settle()
    assert world.status(job) == "succeeded"
    assert [one.outcome for one in world.attempts(job, "fetch")] == ["failed", "succeeded"]
    assert left() == []


@pytest.mark.long
def test_what_another_scan_may_read_of_an_earlier_revision_is_counted(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = README + "More.\n" * 200
    world.depot.submit(edited(f"{ROOT}README.md", README, longer))
    world.depot.submit(edited(f"{ROOT}README.md", longer, README))
    printed = depot_copy.Copier._printed
    monkeypatch.setattr(
        depot_copy.Copier, "_printed", lambda self, one, room, seconds: printed(self, one, room, 1.0)
    )
    heads = sum(map(len, (README, GUIDE, CORE, "lint:\n\ttrue\n")))
    monkeypatch.setattr(depot_copy, "MAX_BYTES", heads + len(README))
    world.depot.misbehave("print", contains="README.md#1", hang=True)
    job = scanned(world, path())
    assert job.documents["unfetched"] == 2  # one hung, for the other there was no room
    assert scans.conclusion_of(job, result(job)) == "neutral"


@pytest.mark.long
def test_a_path_that_is_no_path_of_a_file_is_not_printed(world: World, first: str) -> None:
    of_all = {"rev": "1", "change": "101", "action": "add", "type": "text"}
    names = ("*", "a@1", "a#1", "a%41")
    records = "".join(json.dumps({"depotFile": ROOT + name, **of_all}) + "\n" for name in names)
    world.depot.misbehave("files", contains="files -a", stdout=records)
    job = scanned(world, path())
    assert job.status == JobStatus.SUCCEEDED
    assert world.depot.calls("print") == []


_KILLED = """
import os, signal, django
django.setup()
from criticizer.queue import outbox
from reviews.pipeline import executor
from reviews.sources.perforce import depot_copy
from reviews.stages import scan

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

{patch}
for queue in outbox.queues():
    for message in outbox.claim(queue, 10):
        executor.run_stage(message.id, message.aggregate_id, message.lease_token)
"""


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ("depot_copy.Copier.existing = killed", 0),
        ("depot_copy.GitCommand.run = killed", 1),
        ("scan._Scan._store = killed", 1),
    ],
)
def test_a_worker_killed_in_between_is_followed_by_one_that_ends_the_scan(
    world: World, first: str, patch: str, expected: int
) -> None:
    job = intake.request(path(), "s-1", "ann").job_id
    environment = process_environment(
        world.files,
        CHANGE_SOURCES="perforce",
        P4_EXECUTABLE=str(world.depot.executable),
        P4PORT=product.P4PORT,
        P4USER=product.P4USER,
        DEPOT_ALLOW_LIST=f"{ROOT}...",
    )
    ended = subprocess.run(
        [sys.executable, "-c", _KILLED.format(patch=patch)],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert len(left()) == expected
    world.make_due()
    world.settle()
    found = ReviewJob.objects.get(pk=job)
    assert found.status == JobStatus.SUCCEEDED
    assert result(found).is_whole
    depot_scan.delete_left()
    assert left() == []


def test_a_scan_that_gave_way_goes_on_with_the_copy_it_has(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SLICE_SECONDS", 0.0)
    job = scanned(world, path())
    assert job.status == JobStatus.SUCCEEDED
    assert len(verdicts(job)) == 5
    printed = [call.argv[-1] for call in world.depot.calls("print")]
    assert len(printed) == len(set(printed)) == 4
    assert left() == []


@pytest.mark.parametrize("is_objects", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_copy_that_is_damaged_is_made_anew(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch, is_objects: bool
) -> None:
    made = depot_scan.copy_of

    def damaged(job: ReviewJob, *rest: Any) -> Any:
        if len(world.attempts(job.pk, "fetch")) > 1:
            return made(job, *rest)
        found = made(job, *rest)
        place = product.DATA_DIR / depot_scan.COPIES / f"{job.pk}.git"
        for each in place.glob("objects/??/*" if is_objects else "refs/heads/scan"):
            each.chmod(0o600)
            each.write_bytes(b"")
        return found if is_objects else made(job, *rest)

    monkeypatch.setattr(depot_scan, "copy_of", damaged)
    job = scanned(world, path())
    assert job.status == JobStatus.SUCCEEDED
    assert len(verdicts(job)) == 5
    assert len(world.depot.calls("print")) == 8  # each file twice
    assert left() == []


@pytest.mark.long
def test_what_a_worker_left_that_died_deleting_a_copy_is_no_copy(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = depot_scan.copy_of

    def died_deleting(job: ReviewJob, *rest: Any) -> Any:
        if len(world.attempts(job.pk, "fetch")) > 1:
            return made(job, *rest)
        made(job, *rest)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            depot_scan.delete(job.pk)
        return made(job, *rest)

    monkeypatch.setattr(depot_scan, "copy_of", died_deleting)
    job = scanned(world, path())
    assert job.status == JobStatus.SUCCEEDED
    assert len(world.depot.calls("print")) == 8  # each file twice
    assert [one.outcome for one in world.attempts(job.pk, "fetch")] == ["succeeded"]
    assert left() == []


@pytest.mark.long
def test_a_dead_letter_is_replayed_whatever_else_its_changelist_touches(world: World, first: str) -> None:
    world.depot.submit(added(f"{ROOT}more.md", "More.\n"), added("//depot/secret/x.py", CORE))
    job = intake.request(path(), "s-1", "ann").job_id
    world.depot.misbehave("files", contains="files -a", messages=["unknown_command"])
    world.settle()
    assert world.status(job) == "dead_lettered"
    world.replay(job, restart=True)
    world.settle()
    assert world.status(job) == "succeeded"


def test_the_copy_of_a_job_that_ended_otherwise_is_deleted(world: World, first: str) -> None:
    jobs = [intake.request(path(), "s-1", "ann").job_id, intake.request(path("docs/"), "s-2", "ann").job_id]
    for job in jobs:
        (product.DATA_DIR / depot_scan.COPIES / f"{job}.git.draft").mkdir(parents=True)
    ReviewJob.objects.filter(pk=jobs[0]).update(status=JobStatus.CANCELLED, finished_at=timezone.now())
    assert depot_scan.delete_left() == 1
    assert left() == [f"{jobs[1]}.git.draft"]


def test_a_depot_path_whose_head_has_not_changed_is_not_scanned_again(world: World, first: str) -> None:
    of = path()
    of.every_hours = 1
    of.save()
    (job,) = scan_schedule.run()
    world.settle()
    assert world.status(job) == "succeeded"

    def due() -> list[int]:
        type(of).objects.update(next_at=timezone.now())
        return scan_schedule.run()

    world.depot.submit(added("//depot/main2/elsewhere.md", "x\n"))
    assert due() == []
    world.depot.submit(edited(f"{ROOT}README.md", README, "See `src/core.py`.\n"))
    assert len(due()) == 1


def test_what_cannot_be_scanned_says_what_to_do(world: World, first: str) -> None:
    with pytest.raises(PermanentFailure, match="or the path to the allow-list"):
        intake.head_of(target("//depot/secret/..."))
    assert [event.path for event in SecurityEvent.objects.filter(kind="path_denied")] == ["//depot/secret/"]
    assert world.depot.calls() == []
    with pytest.raises(PermanentFailure, match="no submitted changelist touches") as raised:
        intake.head_of(path("nothing/"))
    assert raised.value.error_class is ErrorClass.NOT_FOUND
    world.settings.P4PORT = ""
    with pytest.raises(PermanentFailure, match="set P4PORT, P4USER and perforce in CHANGE_SOURCES"):
        intake.head_of(path("docs/"))


@pytest.mark.long
def test_a_server_that_hangs_is_asked_once_in_a_run(
    world: World, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "HEAD_SECONDS", 0.5)
    for of in (path(), path("docs/")):
        of.every_hours = 1
        of.save()
    world.depot.misbehave("changes", times=9, hang=True)
    assert scan_schedule.run() == []
    assert len(world.depot.calls("changes")) == 1


@pytest.mark.long
def test_an_open_circuit_asks_the_server_nothing(world: World, first: str) -> None:
    job = intake.request(path(), "s-1", "ann").job_id
    overrides.force(
        config.perforce_dependency(),
        CircuitState.FORCED_OPEN,
        actor="ann",
        reason="OPS-1: maintenance",
        seconds=60,
    )
    called = len(world.depot.calls())
    with pytest.raises(RetryableFailure, match="not called at the moment"):
        intake.head_of(path("docs/"))
    world.work()
    assert len(world.depot.calls()) == called
    overrides.release(config.perforce_dependency(), actor="ann", reason="OPS-1: done")
    world.settle()
    assert world.status(job) == "succeeded"
