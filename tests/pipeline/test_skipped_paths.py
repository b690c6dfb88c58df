"""Skipped paths: the change is reviewed, but such files are not sent; the coverage says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from criticizer.redaction import Redactor
from reviews.models import CoverageRow, SkippedPath
from reviews.reviewers.coverage_texts import EXCLUDED, unread_banner
from reviews.reviewers.prepare import prepare
from reviews.reviewers.review import checks_only
from reviews.sources.skipped_paths import SkippedPaths
from reviews.states import JobStatus
from tests import changes
from tests.pipeline.test_stage_fetch import depot  # noqa: F401 - a fixture
from tests.pipeline.test_stage_llm import Bench, bench, job_of  # noqa: F401 - a fixture
from tests.reviewers.build import change, edited, fake_token
from tests.reviewers.test_review import D
from tests.sources.gitrepo import GitRepo

pytestmark = pytest.mark.django_db(transaction=True)
DOCS = "//demo/docs/..."
WHY = f"on a skipped path, only the checks read it: {DOCS}"


@pytest.fixture
def fetched(depot: Any, settings: Any, tmp_path: Path) -> Callable[[], dict[str, str]]:  # noqa: F811
    """Return a function that fetches a change of docs and code.

    It returns the reason why each file is not sent.
    """
    repository = GitRepo(tmp_path / "demo")
    settings.GIT_REPOSITORIES = {"demo": repository.path}
    settings.LLM_PROVIDER = "openai"
    repository.commit_files(
        {"src/a.py": "x\n", "docs/lib.py": "def helper(x):\n    pass\n", "docs/b.md": "1"}
    )
    sha = repository.commit_files({"src/a.py": "helper(1)\n", "docs/b.md": "2"})

    def fetch_it() -> dict[str, str]:
        found = changes.fetched(f"git:demo@{sha}")
        return {**{file.path: file.unsent for file in found.files}, "context": str(len(found.context))}

    return fetch_it


def test_a_skipped_path_stops_no_change_and_is_no_context(
    fetched: Callable[[], dict[str, str]],
) -> None:
    assert fetched() == {"//demo/src/a.py": "", "//demo/docs/b.md": "", "context": "1"}
    SkippedPath.objects.create(pattern=DOCS, reason="TICKET-1")
    assert fetched() == {"//demo/src/a.py": "", "//demo/docs/b.md": WHY, "context": "0"}


def test_a_skipped_file_is_not_sent_and_its_coverage_says_why(bench: Bench) -> None:  # noqa: F811
    files = edited(f"{D}a.py", "old\n", "x = 1\n"), edited(f"{D}docs/b.md", "old\n", "line of docs\n")
    skipped = SkippedPaths([f"{D}docs/..."]).applied(change(*files))
    job = bench.job(skipped)
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    assert "line of docs" not in json.dumps([request.body for request in bench.llm.requests])
    rows = {row.file: (row.status, row.reason) for row in CoverageRow.objects.filter(job=job)}
    assert rows[f"{D}a.py"][0] == "reviewed"
    assert rows[f"{D}docs/b.md"] == (
        "checked",
        f"on a skipped path, only the checks read it: {D}docs/...",
    )
    covered = CoverageRow.objects.filter(job=job)
    assert unread_banner(covered) == "1 file was read by the checks only: on a skipped path (1)."  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "path", "is_skipped"),
    [
        ("//a/docs/...", "//a/docs/deep/x.md", True),
        ("//a/docs/...", "//a/docs", False),
        ("//a/docs/...", "//a/docs2/x", False),
        ("//a/*/x.svg", "//a/b/x.svg", True),
        ("//a/*/x.svg", "//a/b/c/x.svg", False),
        ("//a/x.c", "//a/x.c", True),
        ("//A/Docs/...", "//a/docs/x", False),
    ],
)
def test_patterns_match_as_those_of_the_allow_list(pattern: str, path: str, is_skipped: bool) -> None:
    assert bool(SkippedPaths([pattern]).reason(path)) is is_skipped


def test_the_case_of_names_counts_where_the_server_says_so() -> None:
    assert SkippedPaths(["//A/Docs/..."], case_sensitive=False).reason("//a/docs/x")


def test_a_file_that_came_from_a_skipped_path_is_skipped_and_a_stronger_reason_stays() -> None:
    skipped = SkippedPaths([f"{D}docs/..."])
    moved = edited(f"{D}a.py", "1\n", "2\n", old_path=f"{D}docs/a.py")
    excluded = edited(f"{D}docs/b.py", "1\n", "2\n", unsent=EXCLUDED)
    found = skipped.applied(change(moved, excluded)).files
    assert [file.unsent for file in found] == [
        f"on a skipped path, only the checks read it: {D}docs/...",
        EXCLUDED,
    ]


BAD = f"import pickle\n\nKEY = '{fake_token()}'\n\n\ndef load(x):\n    return pickle.loads(x)\n"


@pytest.mark.parametrize("by", ["operator", "repository", "a lock file's name"])
@pytest.mark.parametrize("edit", ["", "# moved\n"])
def test_code_moved_out_of_an_unread_path_is_read_as_new_and_reported(
    depot: Any,  # noqa: F811
    settings: Any,
    tmp_path: Path,
    by: str,
    edit: str,
) -> None:
    """Code that was never reviewed at its old path is read as new at the other one.

    Moved unchanged, it had no finding, and no line said so above the report.
    """
    repository = GitRepo(tmp_path / "demo")
    settings.GIT_REPOSITORIES = {"demo": repository.path}
    was = "docs/poetry.lock" if by == "a lock file's name" else "docs/deep/a.py"
    before = {was: BAD, "docs/deep/b.py": BAD + "1\n", "src/c.py": BAD + "2\n"}
    if by == "repository":
        before[".criticizer.yml"] = 'paths:\n  exclude: ["docs/**"]\n'
    if by == "operator":
        SkippedPath.objects.create(pattern=DOCS, reason="TICKET-1")
    repository.commit_files(before)
    gone = {was: None, "docs/deep/b.py": None, "src/c.py": None}
    moved = {"src/a.py": BAD + edit, "docs/other/b.py": BAD + "1\n", "src/d.py": BAD + "2\n"}
    sha = repository.commit_files({**gone, **moved})
    found = changes.fetched(f"git:demo@{sha}")
    files = {file.path: file for file in found.files}
    assert (files["//demo/src/a.py"].old_text, files["//demo/src/a.py"].new_text) == (None, BAD + edit)
    assert files["//demo/src/a.py"].old_path == f"//demo/{was}"
    assert bool(files["//demo/src/a.py"].unsent) == (by != "a lock file's name")
    # What moves inside either kind of folder is as before.
    assert {str(files[f"//demo/{path}"].skipped) for path in ("docs/other/b.py", "src/d.py")} == {"identical"}

    outcome = checks_only(prepare(found, Redactor()))
    of_it = [one for one in outcome.review.findings if one.file == "//demo/src/a.py"]
    assert "Code moved here from an unread path" in {one.title for one in of_it}
    assert "check:added_secrets" in {one.source for one in of_it}
    assert {one.file for one in outcome.review.findings} == {"//demo/src/a.py"}
    banner = unread_banner(outcome.review.coverage)  # nothing else stands where people look first
    assert ("1 file was read by the checks only" in banner) == (by != "a lock file's name")
