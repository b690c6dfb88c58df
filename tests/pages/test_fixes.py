"""Copying of a finding's link, code and patch; a patch is offered only if it applies."""

from __future__ import annotations

import re
import subprocess
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from criticizer.redaction import Redactor
from reviews import fixes
from reviews.models import FindingRow, ViewerScope
from reviews.reviewers.anchoring import excerpt
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.edit_proofs import why_refused
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.suggestions import Part, edit_of, parts
from reviews.sources.base import Action, ListedFile
from reviews.sources.content import file_change
from tests import factories
from tests.pages.test_verdicts import client_of, reviewer
from tests.reviewers import build

FILE = "//depot/main/app.py"
OLD = "".join(f"line {number}\n" for number in range(1, 31))
NEW = OLD.replace(
    "line 10\nline 11\n",
    "def mean(rows):\n    total = sum(rows)\n    return total / len(rows)  # quoted\n",
)


def found(
    suggestion: str,
    *,
    new: str = NEW,
    file: str = FILE,
    quoted: str = "# quoted",
    lines: int = 1,
    stored_as: str = "utf-8",
    named: dict[str, Any] | None = None,
) -> Any:
    """Return an unsaved finding from the line `quoted` on, with the excerpt of a review.

    `stored_as`: the encoding of the file; `named`: the lines to replace, by the answer.
    """
    listed = ListedFile(file, Action.EDIT, "text")
    change = build.change(file_change(listed, OLD.encode(stored_as), new.encode(stored_as)))
    prepared = prepare(change, Redactor(), ReviewLimits())
    hunks = [hunk for chunk in prepared.chunks for hunk in chunk.hunks]
    first = 1 + next(at for at, text in enumerate(new.split("\n")) if quoted in text)
    shown = [line for hunk in hunks for line in hunk.lines]
    finding = Finding(
        file=file,
        line=first,
        end_line=first + lines - 1,
        severity=FindingSeverity.HIGH,
        category="bug",
        title="Division by zero",
        message="An empty list.",
        suggestion=suggestion,
        source="llm",
        excerpt=excerpt(shown, first, first + lines - 1),
    )
    edit = edit_of(named or {}, finding, hunks)
    is_proven = edit is not None and not (why_refused(change.files[0], edit) or fixes.why_not_named(file))
    return FindingRow(
        **{name: getattr(finding, name) for name in FindingRow.PUBLISHED if name != "evidence"},
        excerpt=[list(row) for row in finding.excerpt],
        edit=list(astuple(edit)) if edit is not None and is_proven else [],
    )


def fenced(code: str, language: str = "python") -> str:
    return f"Guard it:\n\n```{language}\n{code}\n```\nas elsewhere."


def applied(tmp_path: Path, patch: str, text: str = NEW, name: str = "main/app.py") -> str:
    """Return a file after git applied the patch to it."""
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch.encode(), check=True)
    return file.read_bytes().decode()


GUARDED = "    return total / len(rows) if rows else 0"


@pytest.mark.parametrize("language", ["python", "", "suggestion"])
def test_code_that_replaces_the_quoted_line_applies(tmp_path: Path, language: str) -> None:
    patch = fixes.patch_of(found(fenced(GUARDED, language)))
    quoted = "    return total / len(rows)  # quoted"
    assert applied(tmp_path, patch) == NEW.replace(quoted, GUARDED)


def test_several_lines_are_replaced_by_more(tmp_path: Path) -> None:
    code = "    total = sum(rows)\n    if not rows:\n        return 0\n    return total / len(rows)"
    patch = fixes.patch_of(found(fenced(code), quoted="total = sum", lines=2))
    assert applied(tmp_path, patch).count("if not rows:") == 1
    assert "# quoted" not in applied(tmp_path, patch)


def test_a_diff_applies_where_its_old_lines_stand(tmp_path: Path) -> None:
    quoted, better = "    return total / len(rows)  # quoted", "    return total / max(1, len(rows))"
    patch = fixes.patch_of(
        found(fenced(f"@@ -1 +1 @@\n     total = sum(rows)\n-{quoted}\n+{better}", "diff"))
    )
    assert "max(1, len(rows))" in applied(tmp_path, patch)


@pytest.mark.parametrize("mark", ["--", "++"])
def test_lines_of_a_diff_that_look_like_a_header_are_replaced(tmp_path: Path, mark: str) -> None:
    new = NEW.replace("    return total / len(rows)  # quoted", f"{mark} quoted")
    row = found(fenced(f"-{mark} quoted\n+{mark} better", "diff"), new=new, quoted="quoted")
    assert applied(tmp_path, fixes.patch_of(row), new) == new.replace("quoted", "better")


def test_the_header_of_a_diff_is_no_line_of_it(tmp_path: Path) -> None:
    quoted = "    return total / len(rows)  # quoted"
    code = f"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-{quoted}\n+    return 0"
    assert "    return 0\n" in applied(tmp_path, fixes.patch_of(found(fenced(code, "diff"))))


def test_code_that_adds_a_block_may_end_as_the_block_around_it(tmp_path: Path) -> None:
    new = NEW.replace("    total = sum(rows)\n", "    if rows:\n        total = sum(rows)\n    }\n")
    code = "        for row in rows: {\n            total = sum(rows)\n        }"
    row = found(fenced(code), new=new, quoted="total = sum", file="//depot/main/app.kt")
    assert applied(tmp_path, fixes.patch_of(row), new, "main/app.kt").count("}") == 2


def test_a_name_with_a_space_and_a_file_at_its_first_lines(tmp_path: Path) -> None:
    new = "value = compute(rows)  # quoted\n" + OLD
    patch = fixes.patch_of(found(fenced("value = compute(rows or [])"), new=new, file="//depot/my app/ä.py"))
    assert applied(tmp_path, patch, new, "my app/ä.py").startswith("value = compute(rows or [])\nline 1\n")


@pytest.mark.parametrize(
    ("why", "fields"),
    [
        ("no code", {"suggestion": "Guard against an empty list."}),
        ("two blocks", {"suggestion": fenced(GUARDED) + "\n" + fenced(GUARDED)}),
        ("an open fence", {"suggestion": f"```\n{GUARDED}"}),
        ("another indentation", {"suggestion": fenced(GUARDED.strip())}),
        ("the line above is repeated", {"suggestion": fenced(f"    total = sum(rows)\n{GUARDED}")}),
        ("something else", {"suggestion": fenced("    raise ValueError('no rows')")}),
        ("open brackets", {"suggestion": fenced("    return (total / len(rows)")}),
        ("nothing changes", {"suggestion": fenced("    return total / len(rows)  # quoted")}),
        ("a broken address", {"suggestion": fenced("    return total / len(rows)  # https[:]//x")}),
        ("a broken link", {"suggestion": fenced("    return total / len(rows)  # '[a-z] (x)'")}),
        ("a broken definition", {"suggestion": fenced("    return total / len(rows)  # [rows] : x")}),
        ("a glyph of private use", {"suggestion": fenced("    return total / len(rows)  # \ue900")}),
        ("a diff of other lines", {"suggestion": fenced("-    return 7\n+    return 8", "diff")}),
        ("a diff that is none", {"suggestion": fenced("return 7", "diff")}),
        ("more lines than are stored", {"suggestion": fenced(GUARDED), "lines": 14}),
        ("the file's last lines", {"suggestion": fenced(GUARDED), "new": NEW[: NEW.index("# quoted") + 8]}),
        ("a redacted line", {
            "suggestion": fenced(GUARDED), "new": NEW.replace("sum", f"'{build.fake_token()}' + sum"),
        }),
        ("a clipped line", {"suggestion": fenced(GUARDED), "new": NEW.replace("line 12", "x" * 5000)}),
        ("other line ends", {"suggestion": fenced(GUARDED), "new": NEW.replace("\n", "\r\n")}),
        ("UTF-16", {"suggestion": fenced(GUARDED), "stored_as": "utf-16"}),
        ("a byte order mark", {"suggestion": fenced(GUARDED), "stored_as": "utf-8-sig"}),
        ("cp1252", {
            "suggestion": fenced(GUARDED), "new": NEW.replace("line 12", "h\u00e4"), "stored_as": "cp1252",
        }),
        ("a keyword", {"suggestion": fenced(GUARDED), "new": NEW.replace("line 12", "# $Id$")}),
        ("what looks redacted", {
            "suggestion": fenced(GUARDED), "new": NEW.replace("line 12", "<REDACTED:token:1>"),
        }),
        ("a whole function for its first line", {
            "suggestion": fenced("def mean(rows, start):\n    total = sum(rows)\n    return total"),
            "quoted": "def mean",
        }),
        ("another whole function for its first line", {
            "suggestion": fenced("def mean(rows, start):\n    return fmean(rows)"), "quoted": "def mean",
        }),
        ("an odd name", {"suggestion": fenced(GUARDED), "file": '//depot/a"b.py'}),
        ("a name that hides", {"suggestion": fenced(GUARDED), "file": "//depot/a\u202eb.py"}),
    ],
)  # fmt: skip
def test_no_patch_where_it_is_not_certain_to_apply(why: str, fields: dict[str, Any]) -> None:
    assert fixes.patch_of(found(**fields)) == ""


def stored(suggestion: str) -> FindingRow:
    row: FindingRow = found(suggestion)
    row.job = factories.job_with_stages(status="succeeded")
    factories.CoverageRowFactory(job=row.job, file=row.file)
    row.save()
    return row


@pytest.mark.django_db
def test_the_page_shows_code_as_code_and_offers_the_patch_as_a_file() -> None:
    bob = client_of(reviewer("bob"))
    row = stored(fenced(GUARDED + "  # <b>"))
    text = bob.get(f"/reviews/{row.job_id}/").content.decode()
    assert "```" not in text
    assert '# &lt;b&gt;"' in text, "to copy"
    assert 'aria-label="Suggested change' in text
    address = re.findall(rf'href="(/reviews/{row.job_id}/findings/{row.pk}/patch/)" download', text)
    assert len(address) == 1
    answer = bob.get(address[0])
    assert answer.content.decode() == fixes.patch_of(row)
    assert answer["Content-Type"].startswith("text/x-diff")
    assert "attachment" in answer["Content-Disposition"]


def test_a_line_around_the_code_may_look_like_an_escape_of_ours(tmp_path: Path) -> None:
    new = NEW.replace("line 12", "rows[:]; flag[0] ? a[1] : b[2] (c)")
    assert applied(tmp_path, fixes.patch_of(found(fenced(GUARDED), new=new)), new).count(GUARDED) == 1


def test_a_fence_may_be_longer_and_say_more_than_the_language() -> None:
    text = f"````python title=x\n```\n{GUARDED}\n````"
    assert parts(text) == [Part(f"```\n{GUARDED}", True, "python")]


@pytest.mark.django_db
def test_a_diff_is_offered_as_a_patch_and_its_new_lines_to_paste() -> None:
    bob = client_of(reviewer("bob"))
    quoted = "    return total / len(rows)  # quoted"
    row = stored(fenced(f"-{quoted}\n+{GUARDED}", "diff"))
    text = bob.get(f"/reviews/{row.job_id}/").content.decode()
    assert "data-copy-patch" in text
    assert f'data-copy-fix="{GUARDED}"' in text


@pytest.mark.django_db
def test_without_certainty_there_is_no_patch_to_find() -> None:
    bob = client_of(reviewer("bob"))
    row = stored("Guard against an empty list.")
    text = bob.get(f"/reviews/{row.job_id}/").content.decode()
    assert "/patch/" not in text
    assert "data-copy-fix" not in text
    assert "data-copy-link" in text
    assert bob.get(f"/reviews/{row.job_id}/findings/{row.pk}/patch/").status_code == 404


@pytest.mark.django_db
def test_a_patch_ends_with_the_right_to_see_the_finding() -> None:
    row = stored(fenced(GUARDED))
    dora: Client = client_of(reviewer("dora", "//depot/main/..."))
    address = f"/reviews/{row.job_id}/findings/{row.pk}/patch/"
    assert dora.get(address).status_code == 200
    ViewerScope.objects.update(prefix="//depot/other/...")
    assert dora.get(address).status_code == 404
