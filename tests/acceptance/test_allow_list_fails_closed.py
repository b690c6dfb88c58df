"""One path outside the allow-list, and nothing of the change is read."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from django.utils import timezone

from criticizer.models import SecurityEvent
from criticizer.resilience import circuit_breaker, overrides
from criticizer.resilience.states import CircuitState
from deadletters import workflow
from deadletters.ports import recovery
from deadletters.states import LetterStatus
from deadletters.types import Failed
from reviews import config
from reviews.models import AllowListEntry, Artifact
from reviews.pipeline import LostLease, StageClaim
from reviews.stages import notify
from reviews.states import Stage
from tests.acceptance import stages
from tests.acceptance.world import AFTER, BEFORE, MAIL, World
from tests.fakes.llm import error
from tests.fakes.p4.server import FakeDepot, added, edited, moved

IN_SCOPE = edited("//depot/main/a.c", BEFORE, AFTER)
DENIED = "//depot/secret/b.c"


def assert_nothing_was_read(world: World) -> None:
    """Check that only the listing was asked for, never content, and that nobody was told."""
    commands = {call.command for call in world.depot.calls()}
    # filelog and fstat tell where a moved file came from.
    assert commands <= {"-V", "info", "describe", "filelog", "fstat"}, commands
    assert world.depot.calls("print") == []
    assert world.depot.calls("diff2") == []
    assert not list(world.files.rglob("*.bin"))
    assert not world.llm.requests
    assert not world.mails()


@pytest.mark.parametrize("shelved", [False, True], ids=["submitted", "shelved"])
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(added(DENIED, "int b;\n"), marks=pytest.mark.long),
        edited(DENIED, "int b;\n", "int c;\n"),
        pytest.param(moved("//depot/main/b.c", DENIED, "int b;\n"), marks=pytest.mark.long),
        pytest.param(added("//depot/main2/b.c", "int b;\n"), marks=pytest.mark.long),
        pytest.param(added("//depot/MAIN/b.c", "int b;\n"), marks=pytest.mark.long),
    ],
    ids=["added", "edited", "moved-out", "longer-name", "other-case"],
)
def test_one_denied_file_stops_the_whole_change(world: World, file: object, shelved: bool) -> None:
    make = world.depot.shelve if shelved else world.depot.submit
    changelist = make(IN_SCOPE, file)  # type: ignore[arg-type]
    job = world.job(changelist, MAIL)
    world.settle()

    assert world.status(job) == "dead_lettered"
    letter = world.letter(job)
    assert (letter.error_class, letter.stage, letter.severity, letter.attempts) == (
        "PATH_DENIED", "fetch", "high", 1,
    )  # fmt: skip
    event = SecurityEvent.objects.get()
    assert (event.kind, event.changelist_id, event.path) == ("path_denied", changelist, file.path)  # type: ignore[attr-defined]
    assert event.reason
    assert_nothing_was_read(world)


def test_every_denied_path_is_named_in_an_event_of_its_own(world: World) -> None:
    paths = [f"//depot/secret/{number}.c" for number in range(3)]
    world.job(world.depot.submit(IN_SCOPE, *(added(path, "x\n") for path in paths)), MAIL)
    world.settle()
    assert sorted(SecurityEvent.objects.values_list("path", flat=True)) == paths
    assert_nothing_was_read(world)


def test_a_change_within_the_list_leaves_no_event(world: World) -> None:
    job = world.job(world.depot.submit(IN_SCOPE), MAIL)
    world.settle()
    assert world.status(job) == "succeeded"
    assert world.depot.calls("print")
    assert not SecurityEvent.objects.exists()


def recording_git(world: World) -> Path:
    """Put a `git` in place that writes down that it ran; return its log."""
    log, program = world.files / "git.log", world.files / "git"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec /usr/bin/env git "$@"\n')
    program.chmod(0o755)
    world.settings.GIT_EXECUTABLE = str(program)
    return log


def test_a_repository_outside_the_list_is_not_touched_by_git_at_all(world: World) -> None:
    log = recording_git(world)
    world.settings.DEPOT_ALLOW_LIST = ["//depot/main/..."]
    job = world.job(world.commit, MAIL)
    world.settle()
    assert world.status(job) == "dead_lettered"
    assert world.letter(job).error_class == "PATH_DENIED"
    assert SecurityEvent.objects.get().path == "//demo/"
    assert not log.exists()

    world.settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//demo/..."]
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"
    assert log.exists()  # the program that would have told


@pytest.mark.long
def test_rows_take_effect_at_the_next_job_and_a_replay_recovers(world: World) -> None:
    before = world.job(world.depot.submit(IN_SCOPE), MAIL)
    world.settle()
    assert world.status(before) == "succeeded"

    row = AllowListEntry.objects.create(
        kind=AllowListEntry.Kind.EXCLUDE, pattern="//depot/main/vault/...", reason="OPS-2"
    )
    change = world.depot.submit(edited("//depot/main/vault/v.c", BEFORE, AFTER))
    printed = len(world.depot.calls("print"))
    denied = world.job(change, MAIL, key="k-2")
    beside = world.job(world.depot.submit(added("//depot/main/c.c", AFTER)), MAIL, key="k-3")
    world.settle()
    assert world.status(denied) == "dead_lettered"
    assert SecurityEvent.objects.get().path == "//depot/main/vault/v.c"
    assert world.status(beside) == "succeeded"
    assert not any(
        "vault" in " ".join([*call.argv, *call.stdin]) for call in world.depot.calls("print")[printed:]
    )

    row.delete()
    world.replay(denied)
    world.settle()
    assert world.status(denied) == "succeeded"
    assert world.letter(denied).status == LetterStatus.VERIFYING
    assert len(world.mails()) == 3


@pytest.mark.long
def test_include_rows_narrow_and_cannot_widen_the_configured_ceiling(world: World) -> None:
    for position, pattern in enumerate(("//depot/main/app/...", "//depot/secret/...")):
        AllowListEntry.objects.create(pattern=pattern, position=position, reason="OPS-3")
    inside = world.job(world.depot.submit(added("//depot/main/app/a.c", AFTER)), key="k-1")
    narrowed = world.job(world.depot.submit(added("//depot/main/other.c", AFTER)), key="k-2")
    beyond = world.job(world.depot.submit(added(DENIED, AFTER)), key="k-3")
    world.settle()
    assert [world.status(job) for job in (inside, narrowed, beyond)] == [
        "succeeded", "dead_lettered", "dead_lettered",
    ]  # fmt: skip


@pytest.mark.long
def test_a_row_that_is_no_valid_line_lets_nothing_through(world: World) -> None:
    row = AllowListEntry.objects.create(pattern="depot without slashes", reason="OPS-4")
    job = world.job(world.depot.submit(IN_SCOPE), MAIL)
    world.settle()
    assert world.letter(job).error_class == "CONFIG_INVALID"
    assert_nothing_was_read(world)
    row.delete()
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"


# -- an edit after the fetch --------------------------------------------------------------------


def exclude(pattern: str = "//depot/main/a.c") -> AllowListEntry:
    return AllowListEntry.objects.create(
        kind=AllowListEntry.Kind.EXCLUDE, pattern=pattern, reason="OPS-5: not for models"
    )


def assert_refused(world: World, job: int, stage: str) -> None:
    """Check that a stage ended the job as the fetch does, and that nobody saw any of it."""
    assert world.status(job) == "dead_lettered"
    letter = world.letter(job)
    assert (letter.stage, letter.error_class, letter.code, letter.severity) == (
        stage, "PATH_DENIED", "CRITICIZER_E402", "high",
    )  # fmt: skip
    event = SecurityEvent.objects.latest("id")
    assert (event.kind, event.path, event.context) == ("path_denied", "//depot/main/a.c", {"stage": stage})
    assert event.reason == "excluded by the line -//depot/main/a.c"
    assert not world.mails()


@pytest.mark.parametrize("provider", ["openai", pytest.param("none", marks=pytest.mark.long)])
def test_an_edit_between_fetch_and_llm_counts_at_once(world: World, provider: str) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = provider, provider != "none"
    stages.BEFORE["llm"] = exclude
    job = world.job(world.depot.submit(IN_SCOPE, added("//depot/main/b.c", AFTER)), MAIL)
    world.settle()
    assert_refused(world, job, "llm")
    assert not world.llm.requests

    stages.reset()
    AllowListEntry.objects.all().delete()
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"
    assert len(world.mails()) == 1


def test_an_edit_before_anybody_is_told_counts_too(world: World) -> None:
    stages.BEFORE["notify"] = exclude
    job = world.job(world.change(), MAIL)
    world.settle()
    assert_refused(world, job, "notify")
    assert world.llm.requests

    stages.reset()
    AllowListEntry.objects.all().delete()
    world.replay(job)
    world.settle()
    assert len(world.mails()) == 1


@pytest.mark.long
def test_whoever_was_told_before_the_edit_keeps_the_job_from_failing(world: World) -> None:
    job = world.job(world.change(), MAIL)
    world.settle()
    exclude()
    claim = StageClaim(1, uuid4(), 1, Stage.NOTIFY, 1, 5, 1, job, "1", 1)
    with pytest.raises(LostLease):  # past the allow-list: there is nobody to tell
        notify.run(claim)
    assert len(world.mails()) == 1


@pytest.mark.long
def test_a_replay_from_llm_is_refused_by_the_validation_and_by_the_stage(world: World) -> None:
    world.llm.script(error(401, "x"))
    job = world.job(world.change(), MAIL)
    world.settle()
    letter = world.letter(job)
    assert (letter.stage, letter.error_class) == ("llm", "AUTH_DENIED")
    asked = len(world.llm.requests)
    workflow.triage(letter.pk, actor="ann", category="transient")
    workflow.remediate(letter.pk, actor="ann", evidence_note="OPS-1: mended")

    row = exclude()
    refused = workflow.validate(letter.pk, actor="ann", override_reason="all the same")
    assert not refused.ok
    assert [(check.name, check.message, check.is_hard) for check in refused.failed] == [
        (
            "allow-list",
            "the allow-list does not allow 1 of the 1 paths of the change any more:"
            " nothing of it may be sent",
            True,
        )
    ]
    assert not SecurityEvent.objects.exists()  # nobody was to be shown it yet

    row.delete()
    assert workflow.validate(letter.pk, actor="ann").ok
    exclude()  # after the validation: the stage looks for itself
    assert workflow.replay(letter.pk, actor="ann", reason="OPS-1: mended").ok
    world.settle()
    assert_refused(world, job, "llm")
    assert len(world.llm.requests) == asked


@pytest.mark.long
def test_a_letter_of_notify_is_validated_against_the_list_as_it_is_now(world: World) -> None:
    job = world.job(world.change(), "slack:C0123ABCD")  # no worker serves it
    world.settle()
    assert world.letter(job).stage == "notify"
    (allowed,) = recovery().probe(Failed(job, "notify"), restart=None)
    assert (allowed.name, allowed.ok, allowed.message) == (
        "allow-list", True, "all 1 paths of the change are allowed",
    )  # fmt: skip
    exclude()
    (denied,) = recovery().probe(Failed(job, "notify"), restart=None)
    assert (denied.ok, denied.is_hard) == (False, True)


@pytest.mark.long
def test_where_a_moved_file_came_from_is_not_sent_any_more(world: World) -> None:
    was, now = "int answer_of_the_old_place(void) { return 1; }\n", "int here(void) { return 2; }\n"
    stages.BEFORE["llm"] = lambda: exclude("//depot/main/old/...")
    job = world.job(world.depot.submit(moved("//depot/main/old/a.c", "//depot/main/b.c", was, now)), MAIL)
    world.settle()
    assert world.status(job) == "succeeded"
    sent = "".join(str(request.body) for request in world.llm.requests)
    assert "here(void)" in sent
    assert "old_place" not in sent
    assert "main/old" not in sent
    assert not SecurityEvent.objects.exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("case_handling", "status"), [("sensitive", "succeeded"), ("insensitive", "dead_lettered")]
)
def test_the_server_says_whether_case_distinguishes_names(
    world: World, case_handling: str, status: str
) -> None:
    world.depot = FakeDepot(world.files / "other", case_handling=case_handling)
    world.settings.P4_EXECUTABLE = str(world.depot.executable)
    stages.BEFORE["llm"] = lambda: exclude("//depot/MAIN/A.c")
    job = world.job(world.change(), MAIL)
    world.settle()
    assert world.status(job) == status


def test_the_list_is_read_each_time_and_parsed_once(world: World) -> None:
    before = config.allow_list()
    assert config.allow_list() is before
    row = exclude()
    assert not config.allow_list().decide("//depot/main/a.c").allowed
    row.delete()
    assert config.allow_list() is before


# -- a restart reads the source again -------------------------------------------------------------


@pytest.mark.long
def test_a_change_that_is_gone_is_fetched_again_only_where_its_source_answers(world: World) -> None:
    world.llm.script(error(401, "x"))
    job = world.job(world.change(), MAIL)
    world.settle()
    letter = world.letter(job)
    Artifact.objects.update(deleted_at=timezone.now())
    workflow.triage(letter.pk, actor="ann", category="transient")
    workflow.remediate(letter.pk, actor="ann", evidence_note="OPS-1: mended")
    p4 = config.perforce_dependency()

    def said() -> dict[str, str]:
        return {check.name: check.message for check in workflow.validate(letter.pk, actor="ann").checks}

    circuit_breaker.create(p4)
    overrides.force(p4, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
    refused = workflow.validate(letter.pk, actor="ann")
    assert not refused.ok
    assert [check.name for check in refused.failed] == [f"circuit {p4}", "artifact"]
    assert said()["artifact"] == (
        "the change artifact has expired, and cannot be fetched again now:"
        f" the circuit of {p4} is forced open"
    )
    overrides.release(p4, actor="ann", reason="INC-7 is over")

    world.settings.P4_EXECUTABLE = str(world.files / "nowhere")
    silent = workflow.validate(letter.pk, actor="ann")
    assert {f"answers {p4}", "artifact", "artifact or source"} <= {check.name for check in silent.failed}
    world.settings.P4_EXECUTABLE = str(world.depot.executable)

    assert workflow.validate(letter.pk, actor="ann").ok
    assert said()["artifact"] == (
        "the change artifact has expired: only a restart from the first stage can work,"
        f" which fetches it again: {p4} answers and accepts the credentials"
    )
    assert said()["artifact or source"] == (
        "the change artifact has expired: restart from the first stage;"
        " the source lists the change, and all 1 of its paths are allowed"
    )
    refused_replay = workflow.replay(letter.pk, actor="ann", reason="OPS-1: mended")
    assert refused_replay.message == "the change artifact has expired; restart from the first stage instead"
    assert workflow.replay(letter.pk, actor="ann", reason="OPS-1: mended", restart=True).ok
    world.settle()
    assert world.status(job) == "succeeded"


def test_an_artifact_that_does_not_open_stops_a_replay_that_needs_it(world: World) -> None:
    world.llm.script(error(401, "x"))
    job = world.job(world.change(), MAIL)
    world.settle()
    failed = Failed(job, "llm")
    assert [check.name for check in recovery().probe(failed, restart=False)] == [
        "artifact opens",
        "allow-list",
    ]
    for file in world.files.rglob("*.bin"):
        file.unlink()
    (gone,) = recovery().probe(failed, restart=False)
    assert (gone.name, gone.ok, gone.is_hard, gone.message) == (
        "artifact opens", False, True,
        "the file of the change artifact is gone: restart from the first stage",
    )  # fmt: skip
    (listed,) = recovery().probe(failed, restart=True)
    assert (listed.name, listed.ok) == ("allow-list", True)
