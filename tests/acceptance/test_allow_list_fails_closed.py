"""Specification 001, 9.1: one path outside the allow-list, and nothing of the change is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from criticizer.models import SecurityEvent
from deadletters.states import LetterStatus
from reviews.models import AllowListEntry
from tests.acceptance.world import AFTER, BEFORE, MAIL, World
from tests.fakes.p4.server import added, edited, moved

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
        added(DENIED, "int b;\n"),
        edited(DENIED, "int b;\n", "int c;\n"),
        moved("//depot/main/b.c", DENIED, "int b;\n"),
        added("//depot/main2/b.c", "int b;\n"),
        added("//depot/MAIN/b.c", "int b;\n"),
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
