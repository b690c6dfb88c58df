"""docs/guarantees.md and its pages: the modules, tests and numbers that they name exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)
PAGES = [ROOT / "docs" / "guarantees.md", *sorted((ROOT / "docs" / "guarantees").glob("*.md"))]
APPS = ("criticizer", "reviews", "notifications", "deadletters")
_ITEM = re.compile(r"^- \*\*(G\d+)\*\* (.+)$", re.MULTILINE)
_MODULE = re.compile(r"`([\w/]+\.(?:py|sh))`")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_FUNCTION = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
_CITATION = re.compile(r"\(guarantees? ([^)]*)\)")


def guarantees() -> dict[str, str]:
    found = _ITEM.findall("\n".join(page.read_text() for page in PAGES))
    assert len(found) == len({number for number, _ in found}), "a number is given twice"
    return dict(found)


@cache
def names_of_tests(path: str) -> set[str]:
    file = ROOT / path
    return set(_FUNCTION.findall(file.read_text())) if file.exists() else set()


@cache
def names_left_out(path: str) -> set[str]:
    """Return the tests of a file that `make test` leaves out: marked `long`, or all of its file."""
    text = (ROOT / path).read_text()
    if "mark.long" not in text:
        return set()
    tree = ast.parse(text)
    is_whole = any(
        ast.unparse(node.targets[0]) == "pytestmark" and _is_long(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
    )
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (is_whole or any(map(_is_long, node.decorator_list)))
    }


def _is_long(marks: ast.expr) -> bool:
    """Say whether marks have `long` for all cases of a test, not for one of its parameters."""
    found = marks.elts if isinstance(marks, ast.List | ast.Tuple) else [marks]
    return any(_is_name_of_long(mark) or _has_only_long_cases(mark) for mark in found)


def _is_name_of_long(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Attribute) and ast.unparse(mark) == "pytest.mark.long"


def _has_only_long_cases(mark: ast.expr) -> bool:
    if not (isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.parametrize"):
        return False
    cases = mark.args[1]
    made = [cases.elt] if isinstance(cases, ast.ListComp) else getattr(cases, "elts", [])
    return bool(made) and all(
        isinstance(case, ast.Call) and any(_is_name_of_long(word.value) for word in case.keywords)
        for case in made
    )


def test_every_guarantee_names_a_module_and_a_test_that_exist() -> None:
    wrong = []
    for number, text in guarantees().items():
        modules, tests = _MODULE.findall(text), _TEST.findall(text)
        if not modules or not tests:
            wrong.append(f"{number} names no module or no test")
        wrong += [f"{number}: {module}" for module in modules if not (ROOT / module).exists()]
        wrong += [f"{number}: {path}::{name}" for path, name in tests if name not in names_of_tests(path)]
    assert wrong == []


def test_every_guarantee_names_a_test_that_make_test_runs() -> None:
    """The others run nightly at most: what breaks one is known when it has landed."""
    named = {number: _TEST.findall(text) for number, text in guarantees().items()}
    left_out = [
        number for number, tests in named.items() if all(name in names_left_out(path) for path, name in tests)
    ]
    assert left_out == []
    assert "test_nothing_is_lost_with_a_machine_or_the_primary" in names_left_out(
        "tests/crash/test_cluster_drill.py"
    )
    assert "test_two_agents_that_die_and_one_that_lies_leave_every_task_final_once" in names_left_out(
        "tests/agents/test_reference_agent.py"
    )


def test_every_test_that_a_page_names_exists() -> None:
    named = [one for page in PAGES for one in _TEST.findall(page.read_text())]
    assert [f"{path}::{name}" for path, name in named if name not in names_of_tests(path)] == []


def test_code_cites_guarantees_that_exist() -> None:
    known = set(guarantees())
    sources = [file for app in APPS for file in (ROOT / app).rglob("*.py")]
    citations = [text for file in sources for text in _CITATION.findall(file.read_text())]
    cited = {number for text in citations for number in re.findall(r"G\d+", text)}
    assert cited - known == set()
