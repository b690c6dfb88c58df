"""`check_docs` over a real git repository."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

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
