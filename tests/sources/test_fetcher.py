from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure, RetryableFailure
from reviews.sources.allowlist import AllowList, AllowListDecision, effective
from reviews.sources.base import (
    Action,
    Change,
    ChangeStatus,
    FileChange,
    ListedChange,
    ListedFile,
    SkipReason,
)
from reviews.sources.enforcement import MAX_REPORTED_VIOLATIONS, SecurityViolation
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git import GitSource
from reviews.sources.perforce.source import PerforceSource
from tests.fakes.p4.server import FakeDepot, added, deleted, edited, moved
from tests.sources.gitrepo import GitRepo

CONTENT_COMMANDS = {"print", "diff2", "grep"}


@pytest.fixture
def depot(tmp_path: Path) -> FakeDepot:
    return FakeDepot(tmp_path)


@dataclass
class Outcome:
    change: Change | None = None
    failure: Failure | None = None
    violations: list[SecurityViolation] = field(default_factory=list)

    def file(self, path: str) -> FileChange:
        assert self.change is not None, self.failure
        return next(file for file in self.change.files if file.path == path)


def fetch(
    source: object,
    change: str,
    lines: Sequence[str] = ("//depot/main/...",),
    *,
    rows: Sequence[str] = (),
    **limits: int,
) -> Outcome:
    outcome = Outcome()
    allow_list = effective(AllowList(lines), rows)
    fetcher = ChangeFetcher(source, allow_list, outcome.violations.append, **limits)  # type: ignore[arg-type]
    try:
        outcome.change = fetcher.fetch(change)
    except Failure as failure:
        outcome.failure = failure
    return outcome


def p4(depot: FakeDepot) -> PerforceSource:
    return PerforceSource(depot.config())


def assert_denied(outcome: Outcome, paths: list[str]) -> None:
    assert isinstance(outcome.failure, PermanentFailure)
    assert (outcome.failure.error_class, outcome.failure.component) == (
        ErrorClass.PATH_DENIED,
        Component.INTERNAL,
    )
    assert [violation.path for violation in outcome.violations] == paths
    assert outcome.change is None


def test_a_change_inside_the_list_is_fetched_whole(depot: FakeDepot) -> None:
    change = depot.submit(edited("//depot/main/a", "1\n", "2\n"), deleted("//depot/main/b", "gone\n"))
    outcome = fetch(p4(depot), change)
    assert outcome.change is not None
    assert (outcome.change.source, outcome.change.changelist_id) == ("perforce", change)
    assert outcome.file("//depot/main/a").new_text == "2\n"
    assert outcome.file("//depot/main/b").old_text == "gone\n"
    assert outcome.violations == []


@pytest.mark.parametrize("how", ["submit", "shelve"])
def test_one_denied_path_stops_the_whole_change_before_any_content(depot: FakeDepot, how: str) -> None:
    change = getattr(depot, how)(
        edited("//depot/main/a", "1\n", "2\n"), edited("//depot/secret/k", "1\n", "2\n")
    )
    assert_denied(fetch(p4(depot), change), ["//depot/secret/k"])
    assert CONTENT_COMMANDS.isdisjoint(call.command for call in depot.calls())
    # The same change is fetched once the path is in scope.
    assert fetch(p4(depot), change, ["//depot/..."]).change is not None
    assert depot.calls("print")


def test_rows_of_operators_narrow_what_is_fetched(depot: FakeDepot) -> None:
    change = depot.submit(edited("//depot/main/legal/a", "1\n", "2\n"))
    assert_denied(fetch(p4(depot), change, rows=["-//depot/main/legal/..."]), ["//depot/main/legal/a"])
    assert fetch(p4(depot), change, rows=["//depot/main/legal/..."]).change is not None


def test_a_violation_is_logged_as_a_security_event_with_path_and_reason(depot: FakeDepot) -> None:
    change = depot.submit(added("//depot/secret/k", "1\n"))
    with capture_logs() as logs:
        (violation,) = fetch(p4(depot), change).violations
    assert (violation.changelist_id, violation.stage) == (change, "query")
    assert "no line" in violation.reason
    (event,) = [log for log in logs if log["event"] == "security_event"]
    assert (event["kind"], event["changelist"], event["path"]) == ("path_denied", change, "//depot/secret/k")
    assert event["reason"] == violation.reason


def test_reported_violations_are_bounded_but_counted(depot: FakeDepot) -> None:
    change = depot.submit(*(added(f"//depot/secret/{n}", "1\n") for n in range(30)))
    outcome = fetch(p4(depot), change)
    assert len(outcome.violations) == MAX_REPORTED_VIOLATIONS
    assert outcome.failure is not None
    assert outcome.failure.context["denied_paths"] == 30


@pytest.mark.parametrize(
    "path",
    [
        "//depot/main/../secret/x",
        "//depot/main//x",
        "//depot/main/...",
        "//depot/main/*",
        "//depot/main/a@1",
        "//depot/main/a#1",
        "//depot/main/%2e%2e/x",
        "//depot/main/a\nb",
        "-//depot/main/a",
    ],
)
def test_a_hostile_listing_reads_nothing(depot: FakeDepot, path: str) -> None:
    change = depot.submit(added("//depot/main/a", "1\n"), added(path, "2\n"))
    outcome = fetch(p4(depot), change)
    assert outcome.failure is not None
    assert outcome.failure.error_class is ErrorClass.PATH_DENIED
    assert depot.calls("print") == []
    assert "\n" not in outcome.violations[0].path


def test_a_server_that_ignores_case_cannot_be_used_to_slip_past_an_exclusion(tmp_path: Path) -> None:
    depot = FakeDepot(tmp_path, case_handling="insensitive")
    change = depot.submit(added("//depot/main/KEYS/id", "1\n"))
    lines = ["//depot/main/...", "-//depot/main/keys/..."]
    assert_denied(fetch(p4(depot), change, lines), ["//depot/main/KEYS/id"])
    other = depot.submit(added("//Depot/Main/a", "1\n"))
    assert fetch(p4(depot), other, lines).change is not None


@pytest.mark.parametrize("how", ["submit", "shelve"])
def test_a_move_from_outside_is_an_add_that_names_no_source(depot: FakeDepot, how: str) -> None:
    change = getattr(depot, how)(moved("//depot/private/x", "//depot/main/x", "private\n", "public\n"))
    outcome = fetch(p4(depot), change)
    file = outcome.file("//depot/main/x")
    assert (file.action, file.old_path, file.old_text, file.new_text) == (Action.ADD, None, None, "public\n")
    assert "private" not in repr(outcome.change)
    assert all("private" not in word for call in depot.calls("print") for word in call.argv)


def test_a_move_to_outside_is_denied(depot: FakeDepot) -> None:
    change = depot.submit(moved("//depot/main/x", "//depot/private/x", "x\n"))
    assert_denied(fetch(p4(depot), change), ["//depot/private/x"])


@pytest.mark.parametrize("given", ["", "12;id", "-1", "git:../x@" + "1" * 40, "//depot/main/a"])
def test_an_id_of_no_known_form_runs_no_command(depot: FakeDepot, given: str) -> None:
    outcome = fetch(p4(depot), given)
    assert outcome.failure is not None
    assert outcome.failure.error_class is ErrorClass.NOT_FOUND
    assert depot.calls() == []


# Git through the same fetcher


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    return GitRepo(tmp_path / "repo")


def recording_git(tmp_path: Path) -> tuple[Path, Path]:
    """Return a git that notes its arguments and does its work, and the file it notes them in."""
    log, program = tmp_path / "git.log", tmp_path / "git"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec git "$@"\n')
    program.chmod(0o755)
    return program, log


def test_a_repository_outside_the_list_runs_no_command(repo: GitRepo, tmp_path: Path) -> None:
    sha = repo.commit_files({"a": "1\n"})
    program, log = recording_git(tmp_path)
    outcome = fetch(GitSource("app", repo.path, program), f"git:app@{sha}", ["//application/..."])
    assert_denied(outcome, ["//app/"])
    assert outcome.violations[0].stage == "query"
    assert not log.exists()


def test_a_commit_that_touches_a_denied_path_reads_no_content(repo: GitRepo, tmp_path: Path) -> None:
    sha = repo.commit_files({"src/a": "1\n", "keys/id": "1\n"})
    program, log = recording_git(tmp_path)
    source = GitSource("app", repo.path, program)
    assert_denied(fetch(source, f"git:app@{sha}", ["//app/src/..."]), ["//app/keys/id"])
    assert "cat-file" not in log.read_text()
    assert fetch(source, f"git:app@{sha}", ["//app/..."]).change is not None
    assert "cat-file --batch\n" in log.read_text()


def test_a_name_with_dots_is_a_name_in_git(repo: GitRepo) -> None:
    sha = repo.commit_files({"pages/[...slug].tsx": "1\n"})
    outcome = fetch(GitSource("app", repo.path), f"git:app@{sha}", ["//app/..."])
    assert outcome.file("//app/pages/[...slug].tsx").new_text == "1\n"


def test_a_name_with_control_characters_is_denied(repo: GitRepo) -> None:
    sha = repo.commit_files({"a\nb": "1\n"})
    outcome = fetch(GitSource("app", repo.path), f"git:app@{sha}", ["//app/..."])
    assert_denied(outcome, ["//app/a\\nb"])


def test_what_is_handed_on_can_be_stored(repo: GitRepo) -> None:
    (repo.path / "caf\udce9").write_text("x\n")
    outcome = fetch(GitSource("app", repo.path), f"git:app@{repo.commit()}", ["//app/..."])
    assert outcome.file("//app/café").new_text == "x\n"


# Shelves that change while they are read


@pytest.mark.parametrize("replaced", [1, 2, 3])
def test_a_shelf_replaced_while_it_is_read_is_read_again_at_most_twice(
    depot: FakeDepot, replaced: int
) -> None:
    path = "//depot/main/a"
    change = depot.shelve(edited(path, "0\n", "version 0\n"))

    class Shelver(PerforceSource):
        reads = 0

        def read(self, files: Sequence[ListedFile], *, max_bytes: int) -> list[FileChange]:
            found = super().read(files, max_bytes=max_bytes)
            self.reads += 1
            if self.reads <= replaced:
                depot.shelve(edited(path, "0\n", f"version {self.reads}\n"), change=change)
            return found

    source = Shelver(depot.config())
    outcome = fetch(source, change)
    if replaced <= 2:
        assert outcome.file(path).new_text == f"version {replaced}\n"
        assert source.reads == replaced + 1
    else:
        assert isinstance(outcome.failure, RetryableFailure)
        assert outcome.failure.error_class is ErrorClass.WRITE_CONFLICT
        assert source.reads == 3


def test_a_shelf_replaced_by_a_denied_one_is_denied(depot: FakeDepot) -> None:
    change = depot.shelve(added("//depot/main/a", "1\n"))

    class Shelver(PerforceSource):
        def read(self, files: Sequence[ListedFile], *, max_bytes: int) -> list[FileChange]:
            found = super().read(files, max_bytes=max_bytes)
            depot.shelve(added("//depot/secret/a", "1\n"), change=change)
            return found

    assert_denied(fetch(Shelver(depot.config()), change), ["//depot/secret/a"])


# Sources that misbehave, budgets


@dataclass
class ListedSource:
    """A source whose listing and answers a test writes down."""

    files: tuple[ListedFile, ...]
    answers: dict[str, FileChange] = field(default_factory=dict)
    name: str = "test"
    literal_names: bool = False
    case_sensitive: bool = True
    batches: list[list[str]] = field(default_factory=list)

    def describe(self, changelist_id: str) -> ListedChange:
        return ListedChange(changelist_id, "ann", "x" * 100_000, ChangeStatus.SUBMITTED, 0, "key", self.files)

    def read(self, files: Sequence[ListedFile], *, max_bytes: int) -> list[FileChange]:
        self.batches.append([file.path for file in files])
        plain = [FileChange(file.path, file.action, new_text="x" * (file.size_bytes or 10)) for file in files]
        return [self.answers.get(file.path, entry) for file, entry in zip(files, plain, strict=True)]

    def check_health(self) -> None:
        pass


def listing(*sizes: int) -> tuple[ListedFile, ...]:
    return tuple(
        ListedFile(f"//depot/main/{n}", Action.ADD, size_bytes=size, new_revision="#1")
        for n, size in enumerate(sizes)
    )


class ClosingList(AllowList):
    """An allow-list that denies everything once it is closed."""

    is_closed = False

    def decide(self, path: object, *, literal_names: bool = False) -> AllowListDecision:
        if self.is_closed:
            return AllowListDecision(allowed=False, reason="closed")
        return super().decide(path, literal_names=literal_names)


def test_each_file_is_checked_again_before_it_is_read() -> None:
    allow_list = ClosingList(["//depot/main/..."])
    source = ListedSource((ListedFile("//depot/main/a", Action.RENAME, old_path="//depot/main/b"),))
    violations: list[SecurityViolation] = []

    def may_read(path: str) -> bool:
        if path == "//depot/main/b":  # the listing as a whole has been checked by then
            allow_list.is_closed = True
        return True

    fetcher = ChangeFetcher(source, allow_list, violations.append, may_read=may_read)  # type: ignore[arg-type]
    with pytest.raises(PermanentFailure) as denied:
        fetcher.fetch("7")
    assert denied.value.error_class is ErrorClass.PATH_DENIED
    assert [(violation.path, violation.stage) for violation in violations] == [("//depot/main/a", "file")]
    assert source.batches == []


def test_a_source_that_reads_a_denied_path_is_stopped() -> None:
    files = listing(1)
    strange = FileChange("//depot/secret/x", Action.ADD, new_text="x")
    outcome = fetch(ListedSource(files, {files[0].path: strange}), "7")
    assert_denied(outcome, ["//depot/secret/x"])
    assert outcome.violations[0].stage == "file"


def test_a_source_that_shows_a_denied_old_path_is_stopped() -> None:
    files = listing(1)
    strange = FileChange(files[0].path, Action.RENAME, old_path="//depot/secret/x", new_text="x")
    assert_denied(fetch(ListedSource(files, {files[0].path: strange}), "7"), ["//depot/secret/x"])


def test_a_source_that_reads_another_allowed_file_is_a_defect() -> None:
    files = listing(1)
    strange = replace(FileChange(files[0].path, Action.ADD), path="//depot/main/other")
    outcome = fetch(ListedSource(files, {files[0].path: strange}), "7")
    assert outcome.failure is not None
    assert outcome.failure.error_class is ErrorClass.INTERNAL_BUG


def test_files_over_the_budget_of_the_change_are_listed_with_that_reason() -> None:
    outcome = fetch(ListedSource(listing(400, 400, 400, 10)), "7", max_change_bytes=1000)
    assert outcome.change is not None
    assert [file.skipped for file in outcome.change.files] == [
        None,
        None,
        SkipReason.BUDGET,
        SkipReason.BUDGET,
    ]
    assert outcome.change.files[2].new_text is None


def test_files_over_the_number_of_files_are_not_read() -> None:
    source = ListedSource(listing(*[1] * 10))
    outcome = fetch(source, "7", max_files=4)
    assert outcome.change is not None
    assert [file.skipped for file in outcome.change.files] == [None] * 4 + [SkipReason.BUDGET] * 6
    assert sum(map(len, source.batches)) == 4


def test_files_are_read_in_batches_of_bounded_size() -> None:
    source = ListedSource(listing(*[1_000_000] * 9, *[1] * 100))
    fetch(source, "7", max_change_bytes=10**9)
    assert [len(batch) for batch in source.batches] == [4, 4, 64, 37]


def test_a_description_without_end_is_cut() -> None:
    change = fetch(ListedSource(listing(1)), "7").change
    assert change is not None
    assert len(change.description) == 64_000
