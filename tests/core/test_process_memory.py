"""The suite's own: no test depends on what another made the process remember."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from reviews.intake import unknown_changes
from tests import process_memory

ROOT = Path(__file__).parents[2]
_EMPTY = {"dict", "list", "set", "deque", "defaultdict", "OrderedDict", "Counter"}


def _is_empty(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _EMPTY and not value.args
    return (isinstance(value, ast.Dict) and not value.keys) or (
        isinstance(value, ast.List) and not value.elts
    )


def _remembering(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module's functions assign, and its lower-case empty containers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if targets and _is_empty(getattr(node, "value", None)):
            yield from (name.id for name in targets if isinstance(name, ast.Name) and name.id.islower())


def test_each_name_that_a_process_remembers_is_forgotten_or_kept_for_a_reason() -> None:
    found = {
        (".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), name)
        for app in ("criticizer", "reviews", "notifications", "deadletters")
        for path in (ROOT / app).rglob("*.py")
        for name in _remembering(ast.parse(path.read_text()))
    }
    known = [(module, name) for module, names in process_memory.FORGOTTEN.items() for name in names]
    known += [(module, name) for module, names in process_memory.KEPT.items() for name in names]
    assert found == set(known), "say in tests/process_memory.py what becomes of each between two tests"
    assert len(known) == len(set(known))


def test_what_a_test_left_is_gone() -> None:
    unknown_changes._requests["key:the trigger"] = unknown_changes.LOOK_EVERY - 1
    process_memory.forget()
    assert unknown_changes._requests == {}
