"""Listing of new changes: numbers, keys of shelves, commits of a branch."""

from __future__ import annotations

from pathlib import Path

import pytest

from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure
from reviews.sources.git import GitSource
from reviews.sources.perforce.listing import P4Listing
from reviews.sources.perforce.source import PerforceSource
from tests.fakes.p4.server import CONNECTION_REFUSED, FakeDepot, added, edited
from tests.sources.gitrepo import GitRepo

MAIN = ["//depot/main/..."]


@pytest.fixture
def depot(tmp_path: Path) -> FakeDepot:
    return FakeDepot(tmp_path)


def listing(depot: FakeDepot) -> P4Listing:
    return PerforceSource(depot.config()).listing


def submit(depot: FakeDepot, name: str, directory: str = "main") -> int:
    return int(depot.submit(added(f"//depot/{directory}/{name}", f"{name}\n")))


def test_submits_are_listed_from_a_number_upward(depot: FakeDepot) -> None:
    numbers = [submit(depot, name) for name in "abcd"]
    submit(depot, "elsewhere", "other")
    depot.shelve(added("//depot/main/s", "s\n"))
    assert listing(depot).submitted_from(numbers[1], MAIN, 10) == numbers[1:]
    (call,) = depot.calls("changes")
    assert call.argv == [
        "-zprog=criticizer", "-ztag", "-Mj",
        "changes", "-s", "submitted", "-e", str(numbers[1]), "-r", "-m", "10", "//depot/main/...",
    ]  # fmt: skip


def test_the_newest_submit_of_all_paths(depot: FakeDepot) -> None:
    numbers = [submit(depot, "a"), submit(depot, "b", "libs"), submit(depot, "c")]
    both = [*MAIN, "//depot/libs/..."]
    assert listing(depot).newest_submitted(both, 1) == [numbers[2]]
    assert listing(depot).newest_submitted(both, 2) == [numbers[2], numbers[1]]
    assert listing(depot).newest_submitted(["//depot/none/..."], 1) == []


def test_no_change_is_jumped_over_when_one_path_has_more_than_may_be_listed(depot: FakeDepot) -> None:
    """The server's limit counts per path; the next question lists the rest of another path."""
    main = [submit(depot, f"m{n}") for n in range(4)]
    libs = submit(depot, "l", "libs")
    both = [*MAIN, "//depot/libs/..."]
    assert listing(depot).submitted_from(1, both, 3) == main[:3]
    assert listing(depot).submitted_from(main[2] + 1, both, 3) == [main[3], libs]


def test_a_path_the_server_refuses_does_not_hide_the_others(depot: FakeDepot) -> None:
    number = submit(depot, "a")
    depot.misbehave("changes", contains="//nodepot/", times=9, replace=True, messages=["foreign_usage"])
    assert listing(depot).submitted_from(1, ["//nodepot/...", *MAIN], 10) == [number]
    with pytest.raises(PermanentFailure):
        listing(depot).submitted_from(1, ["//nodepot/..."], 10)


def test_unreachable_server_raises_instead_of_an_empty_list(depot: FakeDepot) -> None:
    number = submit(depot, "a")
    asked = listing(depot)
    assert asked.server_id == "fake"
    depot.misbehave("changes", replace=True, stderr=CONNECTION_REFUSED, exit=1)
    with pytest.raises(Failure) as caught:
        asked.submitted_from(1, MAIN, 10)
    assert caught.value.error_class is ErrorClass.NETWORK_UNREACHABLE
    assert asked.submitted_from(1, MAIN, 10) == [number]


def test_a_shelf_has_the_key_that_its_fetch_will_have(depot: FakeDepot) -> None:
    source = PerforceSource(depot.config())
    shelf = depot.shelve(edited("//depot/main/a.c", "1\n", "2\n"), added("//depot/main/b.c", "b\n"))
    number = int(shelf)
    assert source.listing.shelved(10) == [number]
    content = source.listing.contents([number], shelved=True)[number]
    assert content.version_key == source.describe(shelf).version_key
    assert content.paths == ("//depot/main/a.c", "//depot/main/b.c")
    depot.shelve(edited("//depot/main/a.c", "1\n", "3\n"), change=shelf)
    assert source.listing.contents([number], shelved=True)[number].version_key != content.version_key


def test_one_command_describes_many(depot: FakeDepot) -> None:
    numbers = [submit(depot, name) for name in "abc"]
    found = listing(depot).contents([*numbers, 99999], shelved=False)
    assert {number: content.paths for number, content in found.items()} == {
        number: (f"//depot/main/{name}",) for number, name in zip(numbers, "abc", strict=True)
    }
    assert len(depot.calls("describe")) == 1
    assert listing(depot).contents([], shelved=False) == {}


def test_submitted_change_is_not_listed_as_a_shelf(depot: FakeDepot) -> None:
    shelf = depot.shelve(added("//depot/main/a", "a\n"))
    depot.submit_shelf(shelf)
    asked = listing(depot)
    assert asked.shelved(10) == []
    assert asked.contents([int(shelf)], shelved=True) == {}
    assert int(shelf) in asked.contents([int(shelf)], shelved=False)


# git


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    return GitRepo(tmp_path / "repo")


def test_commits_are_listed_oldest_first_after_the_one_that_is_known(repo: GitRepo) -> None:
    shas = [repo.commit_files({"a": f"{n}\n"}) for n in range(4)]
    source = GitSource("app", repo.path)
    head = source.head("main")
    assert head == shas[-1]
    assert source.commits(head, after=shas[0]) == shas[1:]
    assert source.commits(head, after=head) == []
    assert source.commits(head, after=None, count=2) == shas[2:]


def test_a_merge_counts_as_one(repo: GitRepo) -> None:
    start = repo.commit_files({"a": "1\n"})
    repo.git("checkout", "-q", "-b", "side")
    repo.commit_files({"b": "1\n"})
    repo.commit_files({"b": "2\n"})
    repo.git("checkout", "-q", "main")
    main = repo.commit_files({"a": "2\n"})
    repo.git("merge", "-q", "--no-ff", "-m", "Merge.", "side")
    source = GitSource("app", repo.path)
    assert source.commits(source.head("main"), after=start) == [main, repo.git("rev-parse", "HEAD")]


def test_a_branch_that_is_not_there_says_what_to_correct(repo: GitRepo) -> None:
    repo.commit_files({"a": "1\n"})
    with pytest.raises(PermanentFailure) as caught:
        GitSource("app", repo.path).head("none")
    assert caught.value.error_class is ErrorClass.CONFIG_INVALID
    assert "GIT_WATCH" in caught.value.detail


def test_a_commit_with_a_longer_id_is_none_that_can_be_reviewed(tmp_path: Path) -> None:
    repo = GitRepo(tmp_path / "repo", "--object-format=sha256")
    repo.commit_files({"a": "1\n"})
    source = GitSource("app", repo.path)
    with pytest.raises(PermanentFailure, match="no such branch"):
        source.head("main")
    with pytest.raises(PermanentFailure, match="leads to no commit"):
        source.default_head()


def test_history_that_is_gone_says_so(repo: GitRepo) -> None:
    head = repo.commit_files({"a": "1\n"})
    assert GitSource("app", repo.path).commits(head, after="1" * 40) is None


@pytest.mark.parametrize("bad", ["--output=/tmp/x", "HEAD", "main", ""])
def test_only_ids_reach_the_command(repo: GitRepo, bad: str) -> None:
    head = repo.commit_files({"a": "1\n"})
    source = GitSource("app", repo.path)
    with pytest.raises(ValueError, match="40 hexadecimal"):
        source.commits(head, after=bad or "x")
