"""Reviewers get redacted text and cannot open a stored artifact (guarantees G104, G160)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The store itself, its care, and the audited reading in the admin.
INTERNAL = {"reviews/artifacts/store.py", "reviews/artifacts/integrity.py", "reviews/artifacts/reader.py"}

# The opening of an artifact, and of what a raw one holds.
LOADS = {"store.load", "store.opened", "store.content_of", "change_codec.from_json"}
NAMES = {name.rpartition(".")[2] for name in LOADS}


def calls_of(path: Path) -> set[str]:
    """Return the functions of a module that open an artifact.

    Only a module with these words is parsed.
    """
    found, text = set(), path.read_text()
    may_open = any(all(word in text for word in name.split(".")) for name in LOADS)
    for function in ast.walk(ast.parse(text)) if may_open else ():
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = {
                ast.unparse(node)
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute) and node.attr in NAMES
            }
            found |= {function.name} if calls & LOADS else set()
    return found


def test_only_the_redactor_opens_an_artifact() -> None:
    loading = {
        path.relative_to(ROOT).as_posix(): calls_of(path)
        for app in ("criticizer", "reviews", "notifications", "deadletters")
        for path in (ROOT / app).rglob("*.py")
    }
    assert {name: calls for name, calls in loading.items() if calls and name not in INTERNAL} == {
        "reviews/artifacts/redactor.py": {"_stored", "_raw", "diffs", "refused_edits"},
        "reviews/reviewers/redactor_child.py": {"_answer"},  # what it was sent, in its own process
    }


def test_the_redactor_hands_on_what_was_prepared_and_nothing_raw() -> None:
    """Other modules get `Prepared`, whose texts are sealed, and the paths, which they check."""
    tree = ast.parse((ROOT / "reviews/artifacts/redactor.py").read_text())
    public = {
        node.name: ast.unparse(node.returns or ast.Constant(None))
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    assert public == {
        "make": "tuple[Prepared, list[store.Stored]]",
        "load": "RedactedChange",
        "redact_again": "RedactedChange",
        "paths": "tuple[str, ...]",
        "diffs": "tuple[FileDiffText, ...]",
        "record_blocked": "None",
        "refused_edits": "list[str]",  # a word for each
    }


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
