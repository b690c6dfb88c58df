"""Reviewers get redacted text and cannot open a stored artifact (guarantee G104)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The store itself, its care, and the audited reading of the console.
INTERNAL = {"reviews/artifacts/store.py", "reviews/artifacts/integrity.py", "reviews/artifacts/reader.py"}

LOADS = {"store.load", "store.content_of", "allowlist_recheck.fetched"}


def calls_of(path: Path) -> set[str]:
    """Return the functions of a module that load or open an artifact."""
    found = set()
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and f"{node.value.id}.{node.attr}" in LOADS
                ):
                    found.add(function.name)
    return found


def test_only_the_redacting_step_loads_an_artifact() -> None:
    loading = {
        path.relative_to(ROOT).as_posix(): calls_of(path)
        for app in ("criticizer", "reviews", "notifications", "deadletters")
        for path in (ROOT / app).rglob("*.py")
    }
    assert {name: calls for name, calls in loading.items() if calls and name not in INTERNAL} == {
        "reviews/replay/allowlist_recheck.py": {"fetched"},  # for those below, and for the paths in messages
        "reviews/stages/llm.py": {"_prepare"},
        "reviews/replay/preflight.py": {"probe"},  # looks at its paths
        "reviews/replay/effects.py": {"_file_count"},  # counts the files whose coverage must be there
    }


def test_the_redacting_step_hands_on_what_was_prepared_and_nothing_raw() -> None:
    """`_prepare` returns `Prepared` only, whose texts for the model are sealed by the redactor."""
    tree = ast.parse((ROOT / "reviews/stages/llm.py").read_text())
    prepare = next(node for node in tree.body if getattr(node, "name", "") == "_prepare")
    assert isinstance(prepare, ast.FunctionDef)
    assert ast.unparse(prepare.returns or ast.Constant(None)) == "Prepared"


def test_modules_of_reviewers_and_redaction_load_no_storage_and_no_key() -> None:
    code = """
import importlib, pkgutil, sys
import reviews.reviewers, criticizer.redaction
for package in (reviews.reviewers, criticizer.redaction):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
forbidden = {"criticizer.security.encryption", "reviews.artifacts", "reviews.models", "cryptography"}
bad = forbidden & set(sys.modules)
print(",".join(bad))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
