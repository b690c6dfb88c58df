"""Rules for all of the product's code, read from its source."""

from __future__ import annotations

import ast
import gc
import re
from dataclasses import dataclass, field
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


@dataclass
class Source:
    """The parts of a module that these proofs need, gathered in one walk through its tree."""

    text: str
    imported: set[str] = field(default_factory=set)
    attributes: list[ast.Attribute] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    keywords: list[ast.keyword] = field(default_factory=list)
    constants: dict[object, int] = field(default_factory=dict)  # a text -> a line where it stands

    def __post_init__(self) -> None:
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.Import):
                self.imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self.imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Attribute):
                self.attributes.append(node)
            elif isinstance(node, ast.Call):
                self.calls.append(node)
            elif isinstance(node, ast.keyword):
                self.keywords.append(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.constants[node.value] = node.lineno

    def called(self) -> set[str]:
        """Return the names that are called, without those of what they belong to."""
        return {
            call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            for call in self.calls
        }

    def of_os(self) -> list[ast.Attribute]:
        return [
            node for node in self.attributes if isinstance(node.value, ast.Name) and node.value.id == "os"
        ]


@pytest.fixture(scope="module")
def sources() -> dict[str, Source]:
    """Return the product's modules, parsed.

    They are large: no other module's tests should walk around them.
    """
    gc.disable()  # else it walks, again and again, around all that is kept: two thirds of the time
    try:
        return {where(path): Source(path.read_text()) for path in PRODUCT}
    finally:
        gc.enable()


def test_one_module_imports_subprocess(sources: dict[str, Source]) -> None:
    doors = {name for name, source in sources.items() if "subprocess" in source.imported}
    assert doors == {"criticizer/workers/subprocesses.py"}
    by_name = re.compile(r"\bimport_module\(|__import__\(")
    for source in sources.values():  # nobody fetches it by its name either
        assert not by_name.search(source.text) or "subprocess" not in source.text


def test_no_shell_is_ever_asked_for(sources: dict[str, Source]) -> None:
    for name, source in sources.items():
        for keyword in source.keywords:
            if keyword.arg == "shell":
                assert isinstance(keyword.value, ast.Constant), name
                assert keyword.value.value is False, name
        for shell in ("/bin/sh", "/bin/bash", "sh", "bash"):
            if shell in source.constants:
                pytest.fail(f"{name}:{source.constants[shell]} names a shell")


def test_no_other_way_to_start_a_program_is_used(sources: dict[str, Source]) -> None:
    forks = set()  # of the same program: web processes, and the process of one change
    for name, source in sources.items():
        assert not source.imported & OTHER_DOORS, name
        for node in source.of_os():
            if node.attr == "fork":
                forks.add(name)
            else:
                assert not SPAWNING.match(node.attr), f"{name}:{node.lineno}"
        assert not {"os.system", "os.popen"} & source.imported, name
    assert forks == {"criticizer/workers/web_server.py", "reviews/reviewers/redactor_child.py"}


def test_a_process_replaces_itself_only_with_itself(sources: dict[str, Source]) -> None:
    users = {
        name
        for name, source in sources.items()
        if any(node.attr.startswith("exec") for node in source.of_os())
    }
    assert users <= {"criticizer/management/commands/cluster.py"}


def test_no_text_is_run_as_python_and_nothing_is_unpickled(sources: dict[str, Source]) -> None:
    for name, source in sources.items():
        assert not {"pickle", "marshal", "shelve", "dill"} & source.imported, name
        for call in source.calls:
            if isinstance(call.func, ast.Name):
                assert call.func.id not in {"eval", "exec", "compile"}, f"{name}:{call.lineno}"


def test_one_module_makes_redacted_text(sources: dict[str, Source]) -> None:
    makers = {name for name, source in sources.items() if "RedactedText" in source.called()}
    assert makers == {"criticizer/redaction/redacted_text.py"}
    keys = {name for name, source in sources.items() if re.search(r"\b_MAKER\b", source.text)}
    assert keys == {"criticizer/redaction/redacted_text.py"}


def test_nobody_marks_text_as_safe_html(sources: dict[str, Source]) -> None:
    """`format_html` escapes what it is given; these would not."""
    unsafe = {"mark_safe", "SafeText", "autoescape_off"}
    for name, source in sources.items():
        if found := source.called() & unsafe:
            pytest.fail(f"{name}: {found}")
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
