"""What holds for all of the product's code, read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from criticizer.workers import subprocesses

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("criticizer", "reviews", "notifications", "deadletters")
FOUND = (path for room in ROOMS for path in (ROOT / room).rglob("*.py") if "migrations" not in path.parts)
PRODUCT = [*sorted(FOUND), ROOT / "manage.py"]
# Other ways to start a program, and to run text as a program.
OTHER_DOORS = {"pty", "popen2", "commands", "sh", "plumbum", "fabric", "invoke", "pexpect", "code"}
SPAWNING = re.compile(r"^(system|popen\d?|spawn\w*|posix_spawn\w*|startfile|fork|forkpty)$")


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.AST]:
    """The syntax trees: hundreds of megabytes, which no other module's tests should walk around."""
    return {path: ast.parse(path.read_text()) for path in PRODUCT}


def test_one_module_imports_subprocess(trees: dict[Path, ast.AST]) -> None:
    doors = {where(path) for path, tree in trees.items() if "subprocess" in set(imported(tree))}
    assert doors == {"criticizer/workers/subprocesses.py"}
    named = {
        where(path) for path in PRODUCT if re.search(r"\bimport_module\(|__import__\(", path.read_text())
    }
    for name in named:  # nobody fetches it by its name either
        assert "subprocess" not in (ROOT / name).read_text()


def test_no_shell_is_ever_asked_for(trees: dict[Path, ast.AST]) -> None:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                assert isinstance(node.value, ast.Constant), where(path)
                assert node.value.value is False, where(path)
            if isinstance(node, ast.Constant) and node.value in {"/bin/sh", "/bin/bash", "sh", "bash"}:
                pytest.fail(f"{where(path)}:{node.lineno} names a shell")


def test_no_other_way_to_start_a_program_is_used(trees: dict[Path, ast.AST]) -> None:
    forks = set()  # of the same program: web processes, and the process of one change
    for path, tree in trees.items():
        assert not set(imported(tree)) & OTHER_DOORS, where(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                if node.attr == "fork":
                    forks.add(where(path))
                else:
                    assert not SPAWNING.match(node.attr), f"{where(path)}:{node.lineno}"
        assert not {"os.system", "os.popen"} & set(imported(tree)), where(path)
    assert forks == {"criticizer/workers/web_server.py", "reviews/reviewers/redactor_child.py"}


def test_a_process_replaces_itself_only_with_itself(trees: dict[Path, ast.AST]) -> None:
    users = {
        where(path)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match(r"os\.exec", ast.unparse(node))
    }
    assert users <= {"criticizer/management/commands/cluster.py"}


def test_no_text_is_run_as_python_and_nothing_is_unpickled(trees: dict[Path, ast.AST]) -> None:
    for path, tree in trees.items():
        assert not {"pickle", "marshal", "shelve", "dill"} & set(imported(tree)), where(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile"}, f"{where(path)}:{node.lineno}"


def test_one_module_makes_redacted_text(trees: dict[Path, ast.AST]) -> None:
    makers = {
        where(path)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == "RedactedText")
            or (isinstance(node.func, ast.Attribute) and node.func.attr == "RedactedText")
        )
    }
    assert makers == {"criticizer/redaction/redacted_text.py"}
    keys = {where(path) for path in PRODUCT if re.search(r"\b_MAKER\b", path.read_text())}
    assert keys == {"criticizer/redaction/redacted_text.py"}


def test_nobody_marks_text_as_safe_html(trees: dict[Path, ast.AST]) -> None:
    """`format_html` escapes what it is given; these would not."""
    unsafe = {"mark_safe", "SafeText", "autoescape_off"}
    for path, tree in trees.items():
        called = {
            node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        }
        if found := called & unsafe:
            pytest.fail(f"{where(path)}: {found}")
    for template in (ROOT / "templates").rglob("*.html"):
        text = template.read_text()
        assert "|safe" not in text, template.name
        assert "autoescape off" not in text, template.name


@pytest.mark.parametrize("command", ["ls -la", b"ls", "", [], ["ls"], ["bin/ls"], ["./ls"], [b"ls"]])
def test_the_door_takes_lists_with_an_absolute_path_only(command: object) -> None:
    with pytest.raises(ValueError, match="command"):
        subprocesses.start(command, environment={})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="command"):
        subprocesses.run(command, environment={}, timeout_seconds=1)  # type: ignore[arg-type]


def test_shell_words_reach_a_program_as_plain_arguments() -> None:
    words = ["$(id)", "`id`", "; id", "| id", "&& id", "a b", "*", "\n"]
    done = subprocesses.run(["/usr/bin/printf", "%s\\0", *words], environment={}, timeout_seconds=10)
    assert (done.exit_code, done.text.split("\0")[:-1]) == (0, words)


def test_a_child_inherits_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", "fake-not-a-key")
    done = subprocesses.run(["/usr/bin/env"], environment={"A": "b"}, timeout_seconds=10)
    assert done.text == "A=b\n"
