"""Scans of repositories on code hosts: the newest commit, read by real git from our mirror."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as product
from django.utils import timezone

from criticizer.models import Circuit
from criticizer.resilience.failures import ErrorClass, PermanentFailure, RetryableFailure
from reviews import config
from reviews.config import MIRRORS
from reviews.intake import scan_schedule
from reviews.intake import scans as intake
from reviews.models import FindingRow, HostChange, ReviewJob, StageRun
from reviews.states import JobStatus
from tests import factories
from tests.acceptance.test_scans import FILES, MOVED, result, scanned, target, verdicts
from tests.acceptance.world import World
from tests.fakes.git_http import GitHost
from tests.sources.gitrepo import GitRepo

ROOT = "//github/acme/web/"


class Hosted:
    """A repository of a host, where one pull request was reported once."""

    def __init__(self, host: GitHost, folder: Path) -> None:
        self.host, self._bare, self._work = host, host.repository("acme/web"), GitRepo(folder / "work")

    def push(self, files: dict[str, Any]) -> str:
        sha = self._work.commit_files(files)
        self._work.git("push", "-q", str(self._bare.path), "HEAD:refs/heads/main")
        self._bare.git("symbolic-ref", "HEAD", "refs/heads/main")
        return sha


@pytest.fixture
def hosted(world: World, tmp_path: Path) -> Iterator[Hosted]:
    with GitHost(tmp_path / "host") as host:
        made = Hosted(host, tmp_path)
        world.settings.GITHUB_API_URL = f"{host.url}/api/v3"
        world.settings.GITHUB_REPOSITORIES = ["acme/*"]
        world.settings.DEPOT_ALLOW_LIST = ["//github/acme/..."]
        HostChange.objects.create(
            host="github", repository_id=500, number=7, full_name="acme/web", reported_at=timezone.now(),
            changelist_id="github:acme/web#7", head_sha="a" * 40, base_sha="b" * 40, base_ref="main",
        )  # fmt: skip
        yield made


def test_the_newest_commit_of_a_hosted_repository_is_scanned(
    world: World, hosted: Hosted, client: Any
) -> None:
    hosted.push(FILES)
    of = target(f"{ROOT}...")
    first = scanned(world, of)
    assert first.status == JobStatus.SUCCEEDED, world.attempts(first.pk, "fetch")
    assert result(first).health == 100
    sha = hosted.push(MOVED)
    second = scanned(world, of, "s-2")
    assert second.changelist_id == f"github:acme/web@{sha}"
    assert verdicts(second)[f"{ROOT}README.md", "src/core.py"] == "refuted"
    found = FindingRow.objects.filter(job=second).order_by("file")
    assert [row.file for row in found] == [f"{ROOT}README.md", f"{ROOT}docs/guide.md"]
    client.force_login(factories.UserFactory(is_superuser=True))
    assert client.get(f"/reviews/{second.pk}/").status_code == 200
    shown = client.get(f"/scans/{of.pk}/")
    assert "//github/acme/web/..." in shown.content.decode()
    assert world.api.get(f"/api/v1/scans/{second.pk}/").json()["health"] == 33


@pytest.mark.long
def test_a_folder_of_a_hosted_repository_is_scanned_by_itself(world: World, hosted: Hosted) -> None:
    hosted.push(FILES)
    job = scanned(world, target(f"{ROOT}docs/..."))
    assert {path for path, _ in verdicts(job)} == {f"{ROOT}docs/guide.md"}
    assert result(job).counts["uncheckable"] == result(job).total


@pytest.mark.long
def test_a_mirror_that_is_gone_is_made_anew(world: World, hosted: Hosted) -> None:
    hosted.push(FILES)
    of = target(f"{ROOT}...")
    job = intake.request(of, "s-1", "ann").job_id
    shutil.rmtree(product.DATA_DIR / MIRRORS / "github" / "500.git")
    world.settle()
    assert world.status(job) == "succeeded"


def test_a_repository_that_no_webhook_reported_is_refused_with_what_to_do(
    world: World, hosted: Hosted
) -> None:
    hosted.push(FILES)
    for path in ("//github/acme/other/...", "//github/acme/...", "//gitea/acme/web/..."):
        with pytest.raises(PermanentFailure, match="wait for the first pull request of it") as raised:
            intake.head_of(target(path))
        assert raised.value.error_class is ErrorClass.CONFIG_INVALID
    world.settings.GITHUB_REPOSITORIES = ["others/*"]
    with pytest.raises(PermanentFailure, match="wait for the first pull request of it"):
        intake.head_of(target(f"{ROOT}..."))


@pytest.mark.long
def test_a_host_that_fails_in_passing_is_asked_again(world: World, hosted: Hosted) -> None:
    hosted.push(FILES)
    of = target(f"{ROOT}...")
    hosted.host.answers = ["503 Service Unavailable"] * 2
    with pytest.raises(RetryableFailure):
        intake.head_of(of)
    hosted.host.answers.clear()
    job = intake.request(of, "s-1", "ann").job_id
    hosted.host.answers = ["503 Service Unavailable"]
    world.settle()
    assert world.status(job) == "succeeded"
    assert [one.outcome for one in world.attempts(job, "fetch")] == ["failed", "succeeded"]


def test_a_host_that_is_away_opens_its_circuit_and_costs_a_scan_no_attempt(
    world: World, hosted: Hosted
) -> None:
    hosted.push(FILES)
    of = target(f"{ROOT}...")
    job = intake.request(of, "s-1", "ann").job_id
    hosted.host.asked.clear()
    hosted.host.answers = ["503 Service Unavailable"] * 50
    for _ in range(25):
        with pytest.raises(RetryableFailure):
            intake.head_of(of)
    circuit = Circuit.objects.get(name__startswith="github-git:")
    assert circuit.state == "open"
    assert 0 < len(hosted.host.asked) < 25
    with pytest.raises(RetryableFailure, match="not called at the moment"):
        intake.head_of(of)
    hosted.host.asked.clear()
    world.work()
    assert hosted.host.asked == []
    run = StageRun.objects.get(job=job, stage="fetch")
    assert (run.status, run.attempts) == ("pending", 0)


@pytest.mark.long
def test_the_newest_commit_waits_for_the_lock_no_longer_than_for_the_host(
    world: World, hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.push(FILES)
    of = target(f"{ROOT}...")
    monkeypatch.setattr(intake, "HEAD_SECONDS", 0.1)
    mirrors = product.DATA_DIR / MIRRORS / "github"
    mirrors.mkdir(parents=True, exist_ok=True)
    with (mirrors / "500.git.flock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(25):  # another fetch says nothing of the host
            with pytest.raises(RetryableFailure, match="another fetch of the repository"):
                intake.head_of(of)
    assert not Circuit.objects.exclude(state="closed").exists()


@pytest.mark.long
def test_a_repository_that_is_removed_in_between_fails_as_it_says(
    world: World, hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha, found = hosted.push(FILES), config.hosted_at

    def removed_after(folder: str) -> HostChange | None:
        change = found(folder)
        HostChange.objects.update(state=HostChange.State.REMOVED)
        return change

    monkeypatch.setattr(config, "hosted_at", removed_after)
    of = target(f"{ROOT}...")
    assert intake.head_of(of) == f"github:acme/web@{sha}"
    with pytest.raises(PermanentFailure, match="wait for the first pull request of it"):
        intake.head_of(of)


@pytest.mark.long
def test_a_repository_that_left_the_host_is_a_dead_letter(world: World, hosted: Hosted) -> None:
    hosted.push(FILES)
    job = intake.request(target(f"{ROOT}..."), "s-1", "ann").job_id
    HostChange.objects.update(state=HostChange.State.REMOVED)
    world.settle()
    assert world.status(job) == "dead_lettered"
    assert config.hosted_at(ROOT) is None


def test_a_host_that_does_not_answer_is_asked_once_in_a_run_and_delays_no_other_path(
    world: World, hosted: Hosted, tmp_path: Path
) -> None:
    hosted.push(FILES)
    local = GitRepo(tmp_path / "documented")
    local.commit_files(FILES)
    world.settings.GIT_REPOSITORIES = {"zebra": local.path}
    world.settings.DEPOT_ALLOW_LIST = ["//github/acme/...", "//zebra/..."]
    asked = [target(path, every_hours=24) for path in (f"{ROOT}...", f"{ROOT}docs/...", "//zebra/...")]
    hosted.host.asked.clear()
    hosted.host.answers = ["503 Service Unavailable"] * 9
    (job,) = scan_schedule.run()
    assert ReviewJob.objects.get(pk=job).changelist_id.startswith("git:zebra@")
    assert len(hosted.host.asked) == 1
    for of in asked:
        of.refresh_from_db()
    assert [of.problem for of in asked] == ["the host failed", "the host failed", ""]
    hosted.host.answers.clear()
    for of in asked[:2]:
        type(of).objects.filter(pk=of.pk).update(next_at=None)
    assert len(scan_schedule.run()) == 2
