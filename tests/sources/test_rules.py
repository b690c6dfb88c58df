"""Rules of a change: which of the team's match, and files of rules as they were before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from reviews.sources import change_codec
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Change
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git import GitSource
from reviews.sources.perforce.source import PerforceSource
from reviews.sources.rules import MAX_FILE_BYTES, MAX_FILES, RuleReader, TeamRule, matching
from tests.fakes.p4.server import FakeDepot, added, deleted, edited
from tests.reviewers.build import added as new_file
from tests.reviewers.build import change as change_of
from tests.reviewers.build import renamed
from tests.sources.gitrepo import GitRepo

OLD, NEW = "- Prices are integers of cents.\n", "- Prices may be floats.\n"


def rule(name: str, pattern: str) -> TeamRule:
    return TeamRule(name, pattern, "high", f"Keep {name}.")


def test_rules_of_the_team_match_by_path_and_the_most_specific_comes_first() -> None:
    rules = [
        rule("all", "//depot/..."),
        rule("one-file", "//depot/p/pay/card.py"),
        rule("sql", "//depot/p/*.sql"),
        rule("pay", "//depot/p/pay/..."),
        rule("other", "//depot/q/..."),
    ]
    files = [new_file(f"//depot/p/{name}") for name in ("pay/card.py", "a.sql", "readme")]
    found = list(matching(rules, change_of(*files)))
    assert [(one.name, one.files) for one in found] == [
        ("one-file", (0,)), ("sql", (1,)), ("pay", (0,)), ("all", (0, 1, 2))
    ]  # fmt: skip


def test_a_file_moved_out_of_a_rules_path_is_still_reviewed_by_it() -> None:
    moved = renamed("//depot/pay/a.py", "//depot/free/a.py")
    assert [one.name for one in matching([rule("pay", "//depot/pay/...")], change_of(moved))] == ["pay"]


def test_names_match_without_cases_where_the_server_has_none() -> None:
    rules, reviewed = [rule("pay", "//depot/Pay/...")], change_of(new_file("//Depot/pay/a.py"))
    assert not list(matching(rules, reviewed))
    assert [one.name for one in matching(rules, reviewed, case_sensitive=False)] == ["pay"]


# --- git -----------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> GitRepo:
    repository = GitRepo(tmp_path / "demo")
    repository.commit_files({"AGENTS.md": OLD, "pay/REVIEW.md": "- Use the ledger.\n", "pay/a.py": "1\n"})
    return repository


def of_git(repository: GitRepo, sha: str, *lines: str, may_read: str = "//demo/") -> Change:
    source, allow_list = GitSource("demo", repository.path), AllowList(lines or ["//demo/..."])
    change = ChangeFetcher(source, allow_list, lambda _: None).fetch(f"git:demo@{sha}")
    return RuleReader(source, allow_list, lambda path: path.startswith(may_read)).added_to(change, [])


def told(change: Change) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(rule.path, rule.text, rule.files) for rule in change.rules]


def test_files_of_rules_come_from_the_folders_above_the_nearest_first(repository: GitRepo) -> None:
    change = of_git(repository, repository.commit_files({"pay/a.py": "2\n", "z.py": "1\n"}))
    assert told(change) == [
        ("//demo/pay/REVIEW.md", "- Use the ledger.\n", (0,)),
        ("//demo/AGENTS.md", OLD, (0, 1)),
    ]
    assert change_codec.from_json(change_codec.to_json(change)) == change


@pytest.mark.parametrize(
    "after",
    [
        NEW,
        None,
        "x" * 1_200_000,  # too large to be read
        b"\0\1\2" * 99,
        "",
    ],
)
def test_a_change_of_its_own_rules_is_judged_by_the_old_ones(
    repository: GitRepo, after: str | bytes | None
) -> None:
    sha = repository.commit_files({"AGENTS.md": after, "pay/a.py": "2\n"})
    repository.commit_files({"AGENTS.md": "Later.\n"})
    assert ("//demo/AGENTS.md", OLD) in [(path, text) for path, text, _ in told(of_git(repository, sha))]


def test_moved_away_or_made_a_link_the_old_rules_hold(repository: GitRepo) -> None:
    repository.git("mv", "AGENTS.md", "old.md")
    moved = repository.commit_files({"pay/a.py": "2\n"})
    assert ("//demo/AGENTS.md", OLD) in [(path, text) for path, text, _ in told(of_git(repository, moved))]
    repository.git("reset", "-q", "--hard", "HEAD~1")
    (repository.path / "AGENTS.md").unlink()
    (repository.path / "AGENTS.md").symlink_to("pay/a.py")
    linked = repository.commit_files({"pay/a.py": NEW})
    assert ("//demo/AGENTS.md", OLD) in [(path, text) for path, text, _ in told(of_git(repository, linked))]


def test_a_new_file_of_rules_does_not_hold_for_the_change_that_adds_it(repository: GitRepo) -> None:
    sha = repository.commit_files({"CLAUDE.md": NEW, "pay/a.py": "2\n"})
    assert "//demo/CLAUDE.md" not in [path for path, *_ in told(of_git(repository, sha))]
    root = GitRepo(repository.path.parent / "root")
    first = GitSource("demo", root.path)
    sha = root.commit_files({"AGENTS.md": NEW, "a.py": "1\n"})
    change = ChangeFetcher(first, AllowList(["//demo/..."]), lambda _: None).fetch(f"git:demo@{sha}")
    reader = RuleReader(first, AllowList(["//demo/..."]), lambda _: True)
    assert reader.added_to(change, []).rules == ()


def test_no_rule_is_read_outside_the_allow_list_or_the_requesters_scope(repository: GitRepo) -> None:
    sha = repository.commit_files({"pay/a.py": "2\n"})
    assert told(of_git(repository, sha, "//demo/...", "-//demo/AGENTS.md"))[0][0] == "//demo/pay/REVIEW.md"
    assert len(of_git(repository, sha, "//demo/...", "-//demo/AGENTS.md").rules) == 1
    assert [path for path, *_ in told(of_git(repository, sha, may_read="//demo/pay/"))] == [
        "//demo/pay/REVIEW.md"
    ]


def test_links_long_files_and_too_many_of_them_are_left_out(repository: GitRepo) -> None:
    (repository.path / "CLAUDE.md").symlink_to("AGENTS.md")
    folders = {f"d{n}/AGENTS.md": f"- Rule {n}.\n" for n in range(MAX_FILES + 5)}
    repository.commit_files({"REVIEW.md": "y" * (MAX_FILE_BYTES + 1), **folders})
    sha = repository.commit_files({f"d{n}/a.py": "1\n" for n in range(MAX_FILES + 5)})
    paths = [path for path, *_ in told(of_git(repository, sha))]
    assert len(paths) == MAX_FILES
    assert not {"//demo/CLAUDE.md", "//demo/REVIEW.md"}.intersection(paths)


@pytest.mark.parametrize("is_for_good", [True, False])
def test_a_failing_source_costs_rules_only_where_no_attempt_could_read_them(
    repository: GitRepo, is_for_good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = PermanentFailure if is_for_good else RetryableFailure
    failure = kind(ErrorClass.NETWORK_TIMEOUT, Component.SOURCE, "away")

    def fail(*_: object, **__: object) -> None:
        raise failure

    sha = repository.commit_files({"pay/a.py": "2\n"})
    monkeypatch.setattr(GitSource, "read_at", fail)
    if is_for_good:
        assert of_git(repository, sha).rules == ()
    else:
        with pytest.raises(RetryableFailure):
            of_git(repository, sha)


# --- Perforce ------------------------------------------------------------------------------------

RULES, CODE = "//depot/main/AGENTS.md", "//depot/main/pay/a.c"


@pytest.fixture
def depot(tmp_path: Path) -> FakeDepot:
    depot = FakeDepot(tmp_path)
    depot.submit(added(RULES, OLD), added("//depot/main/pay/.cursorrules", "- Use the ledger.\n"))
    return depot


def of_perforce(depot: FakeDepot, number: str) -> Change:
    source, allow_list = PerforceSource(depot.config()), AllowList(["//depot/..."])
    change = ChangeFetcher(source, allow_list, lambda _: None).fetch(number)
    return RuleReader(source, allow_list, lambda _: True).added_to(change, [])


@pytest.mark.parametrize("is_shelved", [True, False])
@pytest.mark.parametrize("file", [edited(RULES, OLD, NEW), deleted(RULES, OLD), None])
def test_on_perforce_too_the_old_rules_judge(depot: FakeDepot, is_shelved: bool, file: object) -> None:
    files = [edited(CODE, "1\n", "2\n"), *([file] if file else [])]
    number = (depot.shelve if is_shelved else depot.submit)(*files)  # type: ignore[arg-type]
    rules = {path: text for path, text, _ in told(of_perforce(depot, number))}
    assert rules == {RULES: OLD, "//depot/main/pay/.cursorrules": "- Use the ledger.\n"}


def test_a_shelf_submitted_while_it_is_read_is_judged_by_the_rules_before_it(depot: FakeDepot) -> None:
    number = depot.shelve(edited(CODE, "1\n", "2\n"), edited(RULES, OLD, "x" * 1_200_000))
    source, allow_list = PerforceSource(depot.config()), AllowList(["//depot/..."])
    change = ChangeFetcher(source, allow_list, lambda _: None).fetch(number)
    depot.submit_shelf(number)
    found = RuleReader(source, allow_list, lambda _: True).added_to(change, [])
    assert (RULES, OLD) in [(path, text) for path, text, _ in told(found)]
