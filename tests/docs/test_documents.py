"""README, docs/ and docstrings: names, links and sizes of what they refer to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from django.conf import settings
from django.core.management import get_commands

ROOT = Path(settings.BASE_DIR)
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
CODE = ("criticizer", "reviews", "notifications", "deadletters", "benchmarks", "templates")
MAX_LINES = 150
PYTHON_FOLDERS = ("criticizer", "reviews", "notifications", "deadletters", "deploy", "benchmarks", "tests")
MAX_SUMMARY = 90
_QUESTION_WORD = re.compile(r"(?:What|Who|Whose|How|Which|Where|When|Why|Whether)\b")
_CODE = re.compile(r"`[^`\n]+`|^[#$] .+$", re.MULTILINE)
_COMMAND = re.compile(r"\bmanage(?:\.py)? ([a-z][a-z_]+)\b")
_LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)|(?:src|srcset)=\"([^\"]+)\"")
_PATH = re.compile(r"`((?:criticizer|reviews|notifications|deadletters|tests|docs|\.ci)/[\w./-]*)[`:]")
_DOCUMENT = re.compile(r"(?<![\w/])docs/[\w/-]+\.md\b")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def test_documents_name_management_commands_that_exist() -> None:
    known = set(get_commands())
    unknown = {
        page.name: names - known
        for page in PAGES
        if (names := set(_COMMAND.findall("\n".join(_CODE.findall(page.read_text()))))) - known
    }
    assert unknown == {}


def test_documents_link_to_files_and_headings_that_exist() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {name}#{anchor}"
        for page in PAGES
        for name, anchor, image in _LINK.findall(_FENCED.sub("", page.read_text()))
        if not _exists(page, name or image, anchor)
    ]
    assert broken == []


def test_documents_name_source_files_that_exist() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for path in _PATH.findall(page.read_text())
        if not (ROOT / path).exists()
    ]
    assert missing == []


def test_code_and_templates_name_documents_that_exist() -> None:
    files = [
        file for folder in CODE for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".html")
    ]
    missing = [
        f"{file.relative_to(ROOT)}: {path}"
        for file in [*files, ROOT / ".env.example", ROOT / "Makefile"]
        for path in _DOCUMENT.findall(file.read_text())
        if not (ROOT / path).exists()
    ]
    assert missing == []


def test_every_page_is_reached_from_the_index() -> None:
    start = ROOT / "docs" / "index.md"
    reached = {start}
    queue = [start]
    while queue:
        page = queue.pop()
        for name, _, _ in _LINK.findall(page.read_text()):
            target = (page.parent / name).resolve()
            if target.suffix == ".md" and target not in reached and target.exists():
                reached.add(target)
                queue.append(target)
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


def test_no_page_holds_the_marks_of_a_conflict() -> None:
    marked = [page for page in PAGES if re.search(r"^(?:<<<<<<<|>>>>>>>) ", page.read_text(), re.MULTILINE)]
    assert [str(page.relative_to(ROOT)) for page in marked] == []


def test_pages_have_at_most_150_lines() -> None:
    lengths = {str(page.relative_to(ROOT)): len(page.read_text().splitlines()) for page in PAGES}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_docstrings_say_in_a_short_first_line_what_a_thing_is_or_does() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {summary}"
        for folder in PYTHON_FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        if "migrations" not in file.parts
        for summary in _summaries(file)
        if len(summary) > MAX_SUMMARY or _QUESTION_WORD.match(summary)
    ]
    assert wrong == []


def _summaries(file: Path) -> list[str]:
    """Return the first lines of the docstrings of a module, its classes and functions."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        docstring.splitlines()[0]
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, documented) and (docstring := ast.get_docstring(node))
    ]


def _exists(page: Path, name: str, anchor: str) -> bool:
    target = page.parent / name if name else page
    if not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
