"""Verification of documents from git and Perforce, inside the allow-list.

It runs in the redacting process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from reviews.drift.claims import Kind
from reviews.drift.fetching import DocumentVerifier, Root, Sight
from reviews.reviewers import redactor
from reviews.sources import change_codec
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Change, Source, VerifiedDocuments
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git import GitSource
from reviews.sources.perforce.client import PerforceConfig
from reviews.sources.perforce.source import PerforceSource
from tests.drift.corpus import MUTATIONS, PYTHON, TREES, Files
from tests.fakes.p4.server import FakeDepot, added, deleted, edited
from tests.sources.gitrepo import GitRepo

ALL = tuple(kind.value for kind in Kind)
ROOT = "//demo/"


@pytest.fixture(scope="module", autouse=True)
def _redactor() -> Iterator[None]:
    yield
    redactor.close()


def verified(
    source: Source,
    change: Change,
    lines: Sequence[str] = ("//demo/...",),
    *,
    root: str = ROOT,
    kinds: Sequence[str] = ALL,
    most: int = 50,
    reads: Callable[[str], bool] = lambda path: True,
    may_read: Callable[[str], bool] | None = None,
    compare: Callable[[bytes], bytes] = redactor.verify_documents,
) -> VerifiedDocuments:
    sight = Sight(AllowList(lines), literal_names=source.literal_names, may_read=may_read)
    done = DocumentVerifier(source, compare).added_to(change, [Root(root, sight, reads, kinds, most)])
    assert done.documents is not None
    return done.documents


class Repository:
    """A repository with a commit for each side."""

    def __init__(self, path: Path) -> None:
        self.repo = GitRepo(path / "demo")
        self.source = GitSource("demo", self.repo.path)

    def change(self, before: Files, after: Files, lines: Sequence[str] = ("//demo/...",)) -> Change:
        for files in (before, after):
            for path in self.repo.path.rglob("*"):
                if path.is_file() and ".git" not in path.relative_to(self.repo.path).parts:
                    path.unlink()
            sha = self.repo.commit_files(dict(files))
        return self.fetched(sha, lines)

    def fetched(self, sha: str, lines: Sequence[str] = ("//demo/...",)) -> Change:
        fetcher = ChangeFetcher(self.source, AllowList(lines), lambda violation: None)
        return fetcher.fetch(f"git:demo@{sha}")


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", TREES)
def test_a_commit_has_the_findings_of_its_two_trees(made: Repository, name: str, every: int) -> None:
    for mutation in [one for one in MUTATIONS if one.tree == name][::every]:
        change = made.change(TREES[name], mutation.applied())
        found = verified(made.source, change)
        assert flips(found) == mutation.flips, mutation.name
        assert found.note == ""


def flips(found: VerifiedDocuments, root: str = ROOT) -> set[tuple[str, str, str]]:
    """Return document, kind and subject of the claims, the subject as far as the text has it."""
    return {
        (claim.path.removeprefix(root), claim.kind, subject)
        for claim in found.untrue
        for subject in [_subject(claim.path.removeprefix(root), claim.kind, claim.text)]
    }


def _subject(document: str, kind: str, text: str) -> str:
    candidates = {
        flip[2]
        for mutation in MUTATIONS
        for flip in mutation.flips
        if flip[:2] == (document, kind) and flip[2] in text
    }
    return max(candidates, key=len, default=text)


def test_a_clean_tree_with_one_changed_comment_has_no_finding(made: Repository) -> None:
    after = {**PYTHON, "src/acme/core.py": f"# A comment.\n{PYTHON['src/acme/core.py']}"}
    found = verified(made.source, made.change(PYTHON, after))
    assert found.untrue == ()
    assert found.note == ""


def test_the_result_is_stored_with_the_change(made: Repository) -> None:
    mutation = MUTATIONS[0]
    change = made.change(TREES[mutation.tree], mutation.applied())
    sight = Sight(AllowList(["//demo/..."]), literal_names=True)
    root = Root(ROOT, sight, lambda path: True, ALL, 50)
    done = DocumentVerifier(made.source, redactor.verify_documents).added_to(change, [root])
    assert done.documents is not None
    assert done.documents.untrue
    assert change_codec.from_json(change_codec.to_json(done)) == done


HIDDEN = {
    "README.md": "See `src/secret/plan.py` and [it](src/secret/plan.py). Set `APP_KEY_NAME`.\n",
    "src/open.py": "x = 1\n",
}
LINES = ["//demo/...", "-//demo/src/secret/..."]


def test_a_denied_path_is_unknown_whether_it_exists_or_not(made: Repository) -> None:
    secret = {"src/secret/plan.py": "import os\nos.environ['APP_KEY_NAME']\n"}
    answers = []
    for extra in ({}, secret):
        before = {**HIDDEN, **extra, "README.md": "Nothing.\n"}
        change = made.change(before, {**HIDDEN, **extra}, LINES)
        answers.append(verified(made.source, change, LINES))
    assert answers[0] == answers[1]
    assert answers[0].untrue == ()
    assert answers[0].counts["uncheckable"] == 3


def test_what_the_requester_may_not_read_is_unknown_too(made: Repository) -> None:
    change = made.change({**HIDDEN, "README.md": "Nothing.\n"}, HIDDEN)
    found = verified(made.source, change, may_read=lambda path: not path.startswith("//demo/src/secret"))
    assert found.untrue == ()
    assert found.counts["uncheckable"] == 3


def test_no_denied_path_is_read_or_handed_over(made: Repository) -> None:
    files = {
        **HIDDEN,
        "src/secret/plan.py": "APP_KEY_NAME = 'hidden content'\n",
        "src/b.py": "APP_KEY_NAME\n",
    }
    change = made.change({**files, "README.md": "Nothing.\n"}, files, LINES)
    sent: list[bytes] = []

    def compare(recording: bytes) -> bytes:
        sent.append(recording)
        return redactor.verify_documents(recording)

    verified(made.source, change, LINES, compare=compare)
    assert len(sent) > 1
    for request in sent:
        fields = json.loads(request)
        assert "src/secret/plan.py" not in {*fields["after"], *fields["before"], *fields["documents"]}
        assert all("src/secret/plan.py" not in paths for paths in (fields["words"] or {}).values())
        assert b"hidden content" not in request


def test_the_configuration_scopes_documents_and_kinds(made: Repository) -> None:
    before = {"README.md": "See `src/a.py`. Run `make all`.\n", "docs/b.md": "See `src/a.py`.\n"}
    before |= {"src/a.py": "", "Makefile": "all:\n"}
    after = {path: text for path, text in before.items() if path != "src/a.py"} | {"Makefile": "every:\n"}
    change = made.change(before, after)
    assert len(verified(made.source, change).untrue) == 3
    kinds = verified(made.source, change, kinds=["command"])
    assert [claim.kind for claim in kinds.untrue] == ["command"]
    scoped = verified(made.source, change, reads=lambda path: path.startswith("//demo/docs/"))
    assert [claim.path for claim in scoped.untrue] == ["//demo/docs/b.md"]
    few = verified(made.source, change, most=1)
    assert (len(few.untrue), few.counts["unreported"]) == (1, 2)


def test_over_the_budget_of_bytes_claims_are_uncheckable(
    made: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {"README.md": "Set `APP_KEY_NAME`.\n", "a.py": "import os\nos.environ['APP_KEY_NAME']\n"}
    before |= {"b.py": f"import os\nos.environ['APP_KEY_NAME']\n{'x = 1' * 10}\n"}
    after = {**before, "a.py": "x = 1\n"}
    monkeypatch.setattr("reviews.drift.fetching.MAX_BYTES", 40)
    found = verified(made.source, made.change(before, after))
    assert found.untrue == ()
    assert found.counts["uncheckable"] == 1


@pytest.mark.parametrize(
    ("failure", "note"),
    [
        (
            PermanentFailure(ErrorClass.REDACTION_BLOCKED, Component.INTERNAL, "x"),
            "Documents were not verified: they take too much time or memory.",
        ),
        (
            RetryableFailure(ErrorClass.WORKER_LOST, Component.QUEUE, "x"),
            "Documents were not verified: the source could not be read.",
        ),
        (ValueError("x"), "Documents were not verified: an internal error."),
    ],
)
def test_a_failure_never_costs_the_review(made: Repository, failure: Exception, note: str) -> None:
    def compare(recording: bytes) -> bytes:
        raise failure

    change = made.change({"a.md": "x\n"}, {"a.md": "y\n"})
    found = verified(made.source, change, compare=compare)
    assert found == VerifiedDocuments(note=note)


def test_a_part_of_the_depot_that_fails_takes_nothing_from_the_others(made: Repository) -> None:
    before = {"a/README.md": "See `src/b.py`.\n", "a/src/b.py": "x = 1\n", "c/d.md": "x\n"}
    change = made.change(before, {path: text for path, text in before.items() if path != "a/src/b.py"})
    asked: list[str] = []

    def compare(recording: bytes) -> bytes:
        asked.append("c" if b"d.md" in recording else "a")
        if asked[-1] == "c":
            raise ValueError("x")
        return redactor.verify_documents(recording)

    sight = Sight(AllowList(["//demo/..."]), literal_names=True)
    roots = [Root(f"//demo/{name}/", sight, lambda path: True, ALL, 50) for name in ("c", "a")]
    found = DocumentVerifier(made.source, compare).added_to(change, roots).documents
    assert found is not None
    assert [claim.path for claim in found.untrue] == ["//demo/a/README.md"]
    assert found.note == "Documents were not verified: an internal error."

    moments = iter([0.0])  # then the time is over
    late = DocumentVerifier(made.source, compare, lambda: next(moments, 31.0)).added_to(change, roots)
    assert late.documents is not None
    assert late.documents.note == "Documents were not verified: there was no time left."


def test_a_tree_with_too_many_files_is_not_compared(
    made: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reviews.drift.fetching.MAX_ENTRIES", 1)
    found = verified(made.source, made.change({"a.md": "x\n", "b": ""}, {"a.md": "y\n", "b": ""}))
    assert found.note == "Documents were not verified: the tree has more than 1 files."


# -- Perforce ----------------------------------------------------------------------------------------


@pytest.fixture
def depot(tmp_path: Path) -> FakeDepot:
    return FakeDepot(tmp_path)


def perforce(depot: FakeDepot, tmp_path: Path) -> PerforceSource:
    return PerforceSource(
        PerforceConfig(depot.executable, "127.0.0.1:1666", "criticizer", home=tmp_path / "home")
    )


MAIN = "//depot/main/"


def test_a_perforce_change_is_verified_by_listing_documents_and_manifests(
    depot: FakeDepot, tmp_path: Path
) -> None:
    files = {
        "README.md": "See `src/a.py` and `src/b.py`. Run `make lint`. Set `APP_KEY_NAME`.\n",
        "src/a.py": "import os\nos.environ['APP_KEY_NAME']\n",
        "src/b.py": "x = 1\n",
        "Makefile": "lint:\n\ttrue\n",
    }
    depot.submit(*(added(MAIN + path, text) for path, text in files.items()))
    number = depot.submit(
        deleted(MAIN + "src/b.py", files["src/b.py"]),
        edited(MAIN + "Makefile", files["Makefile"], "check:\n\ttrue\n"),
    )
    source = perforce(depot, tmp_path)
    lines = ["//depot/main/..."]
    change = ChangeFetcher(source, AllowList(lines), lambda violation: None).fetch(number)
    found = verified(source, change, lines, root=MAIN)
    assert {(claim.path, claim.text, claim.says, claim.instead) for claim in found.untrue} == {
        (MAIN + "README.md", "src/b.py", "this change deletes src/b.py", ""),
        (MAIN + "README.md", "make lint", "Makefile has no such entry", "make check"),
    }
    printed = {argument for call in depot.calls() if call.command == "print" for argument in call.argv}
    assert not any(argument.startswith(MAIN + "src/a.py") for argument in printed)
