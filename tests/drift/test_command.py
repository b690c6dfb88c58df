"""`check_docs` over a real git repository."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from reviews.drift import verify
from reviews.drift.claims import Judgement, Reason, uncheckable
from tests.sources.gitrepo import GitRepo


def check(repository: GitRepo, base: str, head: str) -> str:
    out = StringIO()
    try:
        call_command("check_docs", base, head, repository=repository.path, stdout=out)
    except CommandError as error:
        return f"{out.getvalue()}{error}"
    return out.getvalue()


def test_findings_are_printed_with_their_lines_and_fail_the_command(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "r")
    files: dict[str, str | bytes | None] = {
        "README.md": "# Read\n\nRun `make lint`; see `src/core.py`.\n",
        "docs/guide.md": "Set `ACME_API_URL`.\n",
        "src/core.py": "import os\n\nURL = os.environ['ACME_API_URL']\n# one\n# two\n# three\n",
        "Makefile": "lint:\n\truff check\n",
    }
    base = repository.commit_files(files)
    repository.git("mv", "src/core.py", "src/kernel.py")
    repository.write("Makefile", "check:\n\truff check\n")
    head = repository.commit()
    said = check(repository, base, head)
    assert "README.md:3: `src/core.py` is not so" in said
    assert "this change renames src/core.py to src/kernel.py; write `src/kernel.py`" in said
    assert "README.md:3: `make lint` is not so" in said
    assert "1 holds, 2 refuted, 0 ambiguous, 0 uncheckable; 2 documents read, 0 not read" in said
    assert said.endswith("2 claims are untrue after this change")
    with pytest.raises(CommandError):
        call_command("check_docs", base, head, repository=repository.path, stdout=StringIO())


def test_a_change_that_breaks_nothing_succeeds_and_a_wrong_name_is_told(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "r")
    base = repository.commit_files({"README.md": "See `src/a.py`.\n", "src/a.py": "x = 1\n"})
    head = repository.commit_files({"src/a.py": "x = 2\n"})
    assert "0 refuted" in check(repository, base, head)
    assert "untrue" not in check(repository, base, head)
    assert "has no commit 'nowhere'" in check(repository, "nowhere", head)
    assert "has no commit 'HEAD:README.md'" in check(repository, base, "HEAD:README.md")
    assert "no git repository" in check(GitRepoAt(tmp_path), base, head)


class GitRepoAt(GitRepo):
    """A folder that is no repository."""

    def __init__(self, path: Path) -> None:
        self.path = path


def scanned(repository: GitRepo) -> str:
    out = StringIO()
    try:
        call_command("check_docs", "main", all=True, repository=repository.path, stdout=out)
    except CommandError as error:
        return f"{out.getvalue()}{error}"
    return out.getvalue()


def test_a_scan_says_what_has_become_untrue_since_it_was_written(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "r")
    text = "See `src/a.py` and `src/b.py`.\n\nSee `src/never.py`.\n"
    repository.commit_files({"README.md": text, "src/a.py": "", "src/b.py": ""})
    assert "health: 100 %" in scanned(repository)
    repository.commit_files({"src/a.py": None})
    repository.commit_files({"other.txt": "x\n"})
    said = scanned(repository)
    assert "README.md:1: `src/a.py` is not so" in said
    assert "never" not in said
    assert "1 holds, 1 refuted, 0 ambiguous, 1 uncheckable; 1 documents read, 0 not read" in said
    assert "health: 50 %" in said
    assert said.endswith("1 claim is untrue")


def test_a_scan_without_claims_has_no_health(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "r")
    repository.commit_files({"README.md": "Nothing to verify.\n"})
    assert "health: unknown, no claim could be decided" in scanned(repository)


def test_a_scan_that_is_out_of_time_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = GitRepo(tmp_path / "r")
    repository.commit_files({"README.md": "See `src/a.py` and `src/b.py`.\n", "src/a.py": "", "src/b.py": ""})
    taken = iter([False, True])
    monkeypatch.setattr("reviews.drift.walk.judged", lambda *asked: _late(next(taken), judge(*asked)))
    judge = verify.judge
    said = scanned(repository)
    assert "Scan timed out after verifying 1 of 2 claims." in said
    assert "health: 100 %" in said


def _late(is_late: bool, judged: Judgement) -> Judgement:
    return uncheckable(Reason.NO_TIME) if is_late else judged


def test_a_scan_runs_no_program_that_a_repository_names(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "r")
    repository.commit_files({"README.md": "See `src/a.py` and `src/b.py`.\n", "src/a.py": "", "src/b.py": ""})
    repository.write(".git/info/attributes", "*.md diff=evil\n")
    repository.git("config", "diff.evil.textconv", f"sh -c 'touch {tmp_path}/ran; cat $1' x")
    repository.commit_files({"src/a.py": None})
    assert "1 refuted" in scanned(repository)
    assert not (tmp_path / "ran").exists()
