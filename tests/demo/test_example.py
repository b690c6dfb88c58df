"""The example change of the demo, and the findings of the checks in it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from criticizer.redaction import find_secrets
from reviews import demo
from reviews.demo import example as demo_example
from reviews.reviewers.checks import run_checks
from reviews.sources.allowlist import AllowList
from reviews.sources.diffs import diff_file
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git import GitSource

GIT = str(shutil.which("git"))
SOURCE = Path(str(demo_example.__file__))


def test_example_change_has_a_secret_a_conflict_and_a_debugger_call(tmp_path: Path) -> None:
    made = tmp_path / demo_example.NAME
    commit = demo_example.make(made, GIT)
    source = GitSource(demo_example.NAME, made)
    change = ChangeFetcher(source, AllowList(["//example/..."]), pytest.fail).fetch(f"git:example@{commit}")
    assert change.description.strip() == demo_example.SUBJECT
    found = run_checks(change, [diff_file(file) for file in change.files])
    assert sorted((finding.severity, finding.title, finding.line) for finding in found) == [
        ("critical", "Secret added: github token", 10),
        ("high", "Unresolved merge conflict", 5),
        ("low", "Binary file added", None),
        ("medium", "Debugger call left in the code", 19),
    ]


def test_example_source_has_no_findings() -> None:
    text = SOURCE.read_text()
    assert find_secrets(text) == []
    assert "breakpoint(" not in text
    assert "<" * 7 not in text


def test_example_ignores_the_git_settings_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    hook = hooks / "pre-commit"
    hook.write_text(f"#!/bin/sh\ntouch {home}/ran\nexit 1\n")
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    config = home / ".gitconfig"
    config.write_text(f"[core]\n\thooksPath = {hooks}\n[commit]\n\tgpgSign = true\n")
    before = config.read_bytes()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(home / "elsewhere"))
    commits = {demo_example.make(tmp_path / name, GIT) for name in ("one", "two", "two")}
    assert len(commits) == 1  # the same each time, also in place of an older one
    assert config.read_bytes() == before
    assert sorted(entry.name for entry in home.iterdir()) == [".gitconfig", "hooks"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["home", "one", "two"]


def test_git_failure_is_quoted_and_cleaned_up(tmp_path: Path) -> None:
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\necho 'fatal: the disk is full' >&2\nexit 128\n")
    git.chmod(0o755)
    with pytest.raises(demo_example.ExampleError, match="git init: fatal: the disk is full"):
        demo_example.make(tmp_path / "example", str(git))
    assert [entry.name for entry in tmp_path.iterdir()] == ["git"]


def test_commits_have_changelist_ids_of_the_service(tmp_path: Path) -> None:
    sha = demo_example.make(tmp_path / demo_example.NAME, GIT)
    (commit,) = demo.example_commits(tmp_path, 1)
    assert (commit.changelist_id, commit.subject) == (f"git:example@{sha}", demo_example.SUBJECT)
    assert [each.subject for each in demo.example_commits(tmp_path, 9)] == [
        "Take payments",
        "Leave the receipts to the gateway",
        demo_example.UNPAID_SUBJECT,
        "Give payments back",
        demo_example.SUBJECT,
    ]


def test_demo_rejects_a_directory_without_a_repository(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "demo", "--repo", str(tmp_path)],
        cwd=settings.BASE_DIR,
        env={"PATH": os.environ["PATH"], "CRITICIZER_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.startswith(f"The demo failed: {tmp_path} cannot be reviewed (")
    assert "set REPO to a git repository with commits" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()
