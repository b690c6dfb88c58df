"""Searching a commit for more words than an argument holds, and with answers too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.sources import git_search
from reviews.sources.git_command import GitCommand
from tests.sources.gitrepo import GitRepo

SECONDS = 60.0


@pytest.fixture
def repository(tmp_path: Path) -> GitRepo:
    return GitRepo(tmp_path / "r")


def git_of(repository: GitRepo) -> GitCommand:
    return GitCommand("r", repository.path, "git", SECONDS)


def test_more_words_than_fit_into_one_argument_are_all_searched(repository: GitRepo) -> None:
    words = [f"ACME_{'X' * 60}_{number}" for number in range(4_000)]
    sha = repository.commit_files({"first.py": words[0], "last.py": f"{words[-1]} {words[0]}"})
    found = git_search.holding(git_of(repository), sha, words, SECONDS)
    assert {word for word, names in found.items() if names} == {words[0], words[-1]}
    assert (found[words[0]], found[words[-1]]) == ({"first.py", "last.py"}, {"last.py"})
    assert len(found) == len(words)


def test_an_answer_that_is_too_long_costs_the_words_of_its_batch_alone(
    repository: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_search, "MAX_OUTPUT_BYTES", 4_000)
    monkeypatch.setattr(git_search, "MAX_PATTERN_BYTES", 20)
    sha = repository.commit_files({"many.txt": "common\n" * 1_000, "one.txt": "rare_word_of_one\n"})
    found = git_search.holding(git_of(repository), sha, ["common", "rare_word_of_one"], SECONDS)
    assert found == {"rare_word_of_one": {"one.txt"}}


def test_a_word_that_is_longer_than_an_argument_is_not_searched(repository: GitRepo) -> None:
    sha = repository.commit_files({"one.txt": "here\n"})
    assert git_search.holding(git_of(repository), sha, ["x" * 200_000, "here"], SECONDS) == {
        "here": {"one.txt"}
    }
