"""Claims of a change that are reported: true before and untrue after, or new and untrue."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.drift import grammar_code, verify
from reviews.drift.change import MAX_CLAIMS, Drifted, Report, compare
from reviews.drift.claims import Claim, Judgement, Reason, Verdict
from reviews.drift.extraction import page_of
from reviews.drift.index import Index
from reviews.drift.walk import scan
from reviews.drift.wording import summary
from tests import skips
from tests.drift.corpus import MUTATIONS, PYTHON, TREES, Files
from tests.drift.memory_tree import MemoryTree
from tests.drift.test_mutations import tree

ROOT = Path(__file__).parents[2]


def drift(before: Files, after: Files, moves: dict[str, str] | None = None) -> list[Drifted]:
    return compare(tree(before), tree(after), moves).drifted


def test_a_rename_that_mends_all_documents_is_silent() -> None:
    before = {f"docs/{n}.md": "See `src/old.py`.\n" for n in "abc"} | {"src/old.py": "x = 1\n"}
    after = {f"docs/{n}.md": "See `src/new.py`.\n" for n in "abc"} | {"src/new.py": "x = 1\n"}
    assert drift(before, after, {"src/old.py": "src/new.py"}) == []


def test_a_rename_that_mends_one_of_three_documents_has_two_findings_with_the_replacement() -> None:
    before = {f"docs/{n}.md": f"See [it](../src/old.py), or `src/old.py` ({n}).\n" for n in "a"}
    before = {
        "docs/a.md": "See `src/old.py`.\n",
        "docs/b.md": "See [it](../src/old.py).\n",
        "docs/c.md": "`src/old.py` is it.\n",
    }
    files = {**before, "src/old.py": "x = 1\n"}
    after = {**before, "docs/a.md": "See `src/new.py`.\n", "src/new.py": "x = 1\n"}
    found = drift(files, after, {"src/old.py": "src/new.py"})
    assert [(one.claim.document, one.instead) for one in found] == [
        ("docs/b.md", "../src/new.py"),
        ("docs/c.md", "src/new.py"),
    ]
    assert {one.says for one in found} == {"this change renames src/old.py to src/new.py"}


def test_what_never_held_is_not_reported() -> None:
    text = "See `src/none.py`, run `make nothing`, set `NO_SUCH_NAME` and read [that](nowhere.md).\n"
    files = {"docs/a.md": text, "src/a.py": "x = 1\n", "Makefile": "all:\n\ttrue\n"}
    report = compare(tree(files), tree({**files, "src/a.py": "x = 2\n", "Makefile": "every:\n\ttrue\n"}))
    assert report.drifted == []
    edited = compare(tree(files), tree({**files, "docs/a.md": text + "\nMore.\n"}))
    assert edited.drifted == []
    assert edited.reasons[Reason.NEVER_HELD] >= 3


def test_a_new_claim_about_this_repository_is_reported_and_one_about_others_is_not() -> None:
    files = {"docs/a.md": "Text.\n", "src/a.py": "x = 1\n", "Makefile": "all:\n\ttrue\n"}
    text = "See `src/b.py`, `lib/b.py` and [c](c.md). Run `make check`. Create `src/made.py`.\n"
    found = drift(files, {**files, "docs/a.md": text})
    assert [(one.claim.subject, one.claim.value, one.is_new) for one in found] == [
        ("c.md", "", True),
        ("make", "check", True),
        ("src/b.py", "", True),
    ] or {(one.claim.subject, one.is_new) for one in found} == {
        ("c.md", True),
        ("make", True),
        ("src/b.py", True),
    }


def test_renamed_names_have_their_replacement() -> None:
    text = "Run `make lint`. Set `APP_OLD_NAME`. See [x](b.md#first-part).\n"
    before = {
        "docs/a.md": text,
        "docs/b.md": "# B\n\n## First part\n",
        "Makefile": "lint:\n\ttrue\n",
        "a.py": "import os\nos.environ['APP_OLD_NAME']\n",
    }
    after = {
        **before,
        "docs/b.md": "# B\n\n## Other part\n",
        "Makefile": "check:\n\ttrue\n",
        "a.py": "import os\nos.environ['APP_NEW_NAME']\n",
    }
    assert {one.instead for one in drift(before, after)} == {"make check", "APP_NEW_NAME", "b.md#other-part"}


def test_a_file_that_does_not_parse_confirms_and_refutes_nothing() -> None:
    files = {
        "docs/a.md": "Set `APP_KEY_NAME`. See `src/b.py`.\n\n```python\nfrom app.core import run\n```\n",
        "app/core.py": "import os\nos.environ['APP_KEY_NAME']\n\n\ndef run():\n    pass\n",
        "src/b.py": "",
    }
    broken = {**files, "app/core.py": "def run(:\n  APP_KEY_NAME\n"}
    del broken["src/b.py"]
    report = compare(tree(files), tree(broken))
    assert [one.claim.subject for one in report.drifted] == ["src/b.py"]
    assert report.reasons[Reason.NOT_INDEXED] == 2
    assert report.not_indexed == ("app/core.py",)
    assert "against the code of 1 file because of a syntax error." in summary(report.figures)


def test_without_grammars_python_and_paths_are_verified_and_the_rest_refutes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(grammar_code, "import_module", missing)
    monkeypatch.setattr(grammar_code, "_parsers", {})
    before = {
        "a.md": "Set `APP_KEY_NAME` and `APP_TS_NAME`. See `src/b.py`.\n",
        "a.py": "import os\nos.environ['APP_KEY_NAME']\n",
        "a.ts": "const a = process.env.APP_TS_NAME;\n",
        "src/b.py": "",
    }
    after = {**before, "a.py": "x = 1\n", "a.ts": "const a = 1; // APP_TS_NAME\n"}
    del after["src/b.py"]
    report = compare(tree(before), tree(after))
    assert {one.claim.subject for one in report.drifted} == {"APP_KEY_NAME", "src/b.py"}
    assert report.reasons[Reason.NOT_INDEXED] == 1


def test_a_damaged_file_of_another_language_confirms_and_refutes_nothing() -> None:
    files = {"a.md": "Set `APP_KEY_NAME`.\n", "a.ts": "const a = process.env.APP_KEY_NAME;\n"}
    report = compare(
        tree(files), tree({**files, "a.md": "Set `APP_KEY_NAME`!\n", "a.ts": "const a = = APP_KEY_NAME;\n"})
    )
    assert report.drifted == []
    assert report.reasons[Reason.NOT_INDEXED] == 1


def _visible(path: str) -> bool:
    return not path.startswith("secret/") and path != "secret"


def _under_a_list(files: Files) -> MemoryTree:
    return MemoryTree({path: text.encode() for path, text in files.items()}, sees=_visible)


def test_what_may_not_be_seen_is_unknown_whether_it_exists_or_not() -> None:
    text = "See `secret/plan.py` and [it](secret/plan.py). Set `APP_KEY_NAME`.\n"
    with_it = {"a.md": text, "src/a.py": "", "secret/plan.py": "APP_KEY_NAME = 1\n"}
    without = {"a.md": text, "src/a.py": ""}
    reports: list[Report] = [
        compare(_under_a_list({**before, "a.md": ""}), _under_a_list(after))
        for before, after in ((with_it, with_it), (with_it, without), (without, without), (without, with_it))
    ]
    assert all(report == reports[0] for report in reports)
    assert reports[0].drifted == []
    assert reports[0].reasons[Reason.OUT_OF_SIGHT] == 3
    assert "missing" not in Reason.OUT_OF_SIGHT


def test_a_folder_that_could_hold_something_hidden_is_unknown() -> None:
    files = {"a.md": "See `docs/`.\n", "docs/x.txt": ""}

    def sees(path: str) -> bool:
        return not path.startswith("docs/_")

    before = MemoryTree({path: text.encode() for path, text in files.items()}, sees=sees)
    report = compare(before, MemoryTree({"a.md": files["a.md"].encode()}, sees=sees))
    assert report.drifted == []


def test_links_hold_and_submodules_are_not_checkable() -> None:
    text = b"See `data/x.txt`, `vendored/lib/y.c` and `current/z.txt`.\n"
    before = MemoryTree({"a.md": text, "data/x.txt": b"", "vendored/lib/y.c": b"", "current/z.txt": b""})
    after = MemoryTree({"a.md": text, "data/x.txt": b""}, links=["current"], submodules=["vendored/lib"])
    report = compare(before, after)
    assert report.drifted == []
    assert report.reasons[Reason.SUBMODULE] == 1


def test_two_runs_and_another_order_of_files_are_equal() -> None:
    program = (
        "from tests.drift.corpus import MUTATIONS, TREES\nfrom tests.drift.test_mutations import tree\n"
        "from reviews.drift.change import compare\n"
        "for m in MUTATIONS:\n"
        "    a, b = (dict(sorted(f.items(), reverse=REVERSE)) for f in (TREES[m.tree], m.applied()))\n"
        "    r = compare(tree(a), tree(b), m.moves)\n"
        "    print(m.name, r.drifted, sorted(r.counts.items()), r.not_indexed)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program.replace("REVERSE", reverse)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed, reverse in (("1", "False"), ("2", "True"))
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000


def test_one_changed_comment_in_our_own_tree_changes_nothing() -> None:
    names = (
        subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        .stdout.decode()
        .split("\0")
    )
    files = {name: (ROOT / name).read_bytes() for name in names if name and (ROOT / name).is_file()}
    path = "reviews/sources/git.py"
    after = {**files, path: files[path].replace(b'"""The git source', b'"""The source of git', 1)}
    assert after[path] != files[path]
    assert compare(MemoryTree(files), MemoryTree(after)).drifted == []


def test_a_symbol_that_goes_has_only_documents_read_that_name_it() -> None:
    documents = {f"d{n}.md": f"Set `APP_KEY_{n}` for the key.\n" for n in range(5)}
    code = "import os\n\nKEY = os.environ['APP_KEY_1']\nMORE = os.environ['APP_KEY_1']\n"
    files = {**documents, "example.md": "```python\nfrom app.keys import KEY\n```\n", "app/keys.py": code}
    report = compare(tree(files), tree({**files, "app/keys.py": code.replace("KEY = os", "OTHER = os")}))
    assert [one.claim.document for one in report.drifted] == ["example.md"]
    assert report.documents == 1


def test_no_claims_is_said_in_words() -> None:
    report = compare(tree({}), tree({"a.md": "Nothing here.\n"}))
    assert summary(report.figures) == "No verifiable claims found in the changed documentation files."
    assert report.counts[Verdict.HOLDS] == 0


def test_what_is_beyond_the_bounds_is_counted() -> None:
    links = "".join(f"- [n](f{n}.md)\n" for n in range(250))
    files = {"README.md": links, "b.md": f"{'word ' * 500}.\n", "x.py": ""}
    report, found = scan(tree(files))
    assert len(found) == 200
    assert (report.left_out, report.cut) == (50, 1)
    assert "Left out beyond the limits: 50 statements. Read in part: 1 long sentence." in summary(
        report.figures
    )
    late, none = scan(tree({**PYTHON}), seconds=0)
    assert (late.documents, none) == (0, {})
    assert late.unread >= 5
    assert f"Not read: {late.unread} documents." in summary(late.figures)


def test_a_document_whose_claims_do_not_all_fit_is_not_read() -> None:
    """A part of its claims would say that the others were verified too."""
    links = "".join(f"- [n](f{n}.md)\n" for n in range(200))
    files = {f"d{n:03}.md": links for n in range(MAX_CLAIMS // 200 - 1)}
    report, found = scan(tree({**files, "x.md": links[:-400], "y.md": links, "z.md": "[one](d000.md)\n"}))
    assert (report.unread, "y.md" in {claim.document for claim in found}) == (1, False)
    assert {"x.md", "z.md"} <= {claim.document for claim in found}
    assert report.left_out == 0


def test_code_that_is_not_parsed_in_time_refutes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.md": "Set `APP_KEY_NAME`.\n", "a.py": "import os\nos.environ['APP_KEY_NAME']\n"}
    monkeypatch.setattr("reviews.drift.change.verify.judge", partial(_late_judge, verify.judge))
    report, found = scan(tree(files))
    assert {judged.reason for judged in found.values()} == {Reason.NO_TIME}
    assert report.counts[Verdict.UNCHECKABLE] == 1


def _late_judge(judge: Callable[[Claim, Index], Judgement], claim: Claim, index: Index) -> Judgement:
    index._until = 0
    return judge(claim, index)


def test_hostile_documents_are_read_without_an_exception() -> None:
    for text in (
        "[a](b.md) " * 10_000,
        "- " * 200 + "x",
        "|a|b|\n|-|-|\n" + "|x|y|\n" * 12_000,
        "```sh\nmake x\n",
        "`" * 50_000,
        "[" * 50_000,
        "(" * 90_000,
        "**" * 40_000,
        "<!--" * 20_000,
        "=" * 90_000,
        ".. code-block:: sh\n\n" * 3_000,
        "``a`` " * 15_000,
        "```sh\n" + "cd a && " * 10_000,
        "`a` defaults to " * 5_000,
        "A 1.1." * 15_000,
    ):
        for path in ("a.md", "a.rst"):
            page = page_of(path, text[: 100_000 if skips.is_all() else 8_000].encode())
            assert page is not None
            assert len(Report().read(path, page)) <= 200


@settings(max_examples=skips.examples(150), deadline=None)
@given(
    st.text(alphabet="`[]()#*_-|=<>!.: \n\tab/$\"'{}\\0A", max_size=400), st.sampled_from(["a.md", "a.rst"])
)
def test_any_text_is_read(text: str, path: str) -> None:
    page = page_of(path, text.encode())
    assert page is None or len(Report().read(path, page)) <= 200


@settings(max_examples=skips.examples(100), deadline=None)
@given(st.sampled_from(sorted(PYTHON)), st.binary(max_size=200))
def test_any_bytes_in_any_file_are_read(path: str, data: bytes) -> None:
    files = {name: text.encode() for name, text in PYTHON.items()}
    compare(MemoryTree(files), MemoryTree({**files, path: data}))


def test_the_corpus_covers_every_kind() -> None:
    assert {kind for mutation in MUTATIONS for _, kind, _ in mutation.flips} >= {
        "path_reference",
        "command",
        "dependency_version",
        "api_route",
        "environment",
        "config",
        "code_example",
    }
    assert {mutation.tree for mutation in MUTATIONS} == set(TREES)
