"""What holds for the whole room, read from its source."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REVIEWERS = sorted((ROOT / "reviews" / "reviewers").rglob("*.py"))
HTTP = {"httpx", "requests", "urllib", "urllib3", "http", "aiohttp", "socket", "anyio", "openai", "anthropic"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


# `make demo` is a client of this installation's own API; no stage imports it.
NOT_OF_A_STAGE = {"reviews/demo/__init__.py"}


# `transport` is the door for text; `probe` sends none.
DOORS = {"reviews/reviewers/transport.py", "reviews/reviewers/health_checks.py"}


def test_one_module_of_reviews_speaks_http_to_models_and_one_probes_them() -> None:
    doors = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "reviews").rglob("*.py")
        if any(name.split(".")[0] in HTTP - {"http", "urllib", "socket"} for name in imported(path))
    }
    assert doors - NOT_OF_A_STAGE == DOORS
    importers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "reviews").rglob("*.py")
        if any(name.startswith("reviews.demo") for name in imported(path))
        and not {"commands", "demo"} & set(path.parts)
    }
    assert importers == set()


@pytest.mark.parametrize("path", REVIEWERS, ids=lambda path: path.stem)
def test_reviewers_reach_no_network_models_or_settings(path: Path) -> None:
    names = set(imported(path))
    assert (
        path.name in {"transport.py", "health_checks.py"} or not {name.split(".")[0] for name in names} & HTTP
    )
    assert not any(name.startswith(("django", "reviews.models", "criticizer.settings")) for name in names)


def test_the_door_sends_only_what_the_guard_returns() -> None:
    tree = ast.parse((ROOT / "reviews/reviewers/transport.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    builders = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "build"]
    methods = [c.func.attr for c in calls if isinstance(c.func, ast.Attribute)]
    sends = [name for name in methods if name in {"stream", "send", "request", "put", "patch"}]
    assert [ast.unparse(argument) for call in builders for argument in call.args] == ["guard(text)"]
    assert sends == ["stream"]


def test_the_probe_sends_no_body() -> None:
    tree = ast.parse((ROOT / "reviews/reviewers/health_checks.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    sends = [
        (ast.unparse(call.args[0]), {keyword.arg for keyword in call.keywords})
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in {"stream", "send", "request", "get", "post", "put", "patch"}
    ]
    assert sends == [("'GET'", {"headers"})]


def test_the_fake_server_runs_as_a_process_and_takes_a_script() -> None:
    command = [sys.executable, "-m", "tests.fakes.llm", "--port", "0", "--delay", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base = f"http://127.0.0.1:{int(process.stdout.readline())}"
            script = json.dumps([{"status": 200, "body": '{"scripted": true}', "repeat": 2}]).encode()
            answers = [
                json.load(urllib.request.urlopen(urllib.request.Request(base + path, data=data)))
                for path, data in [
                    ("/_script", script),
                    *[("/v1/chat/completions", b'{"model": "m"}')] * 3,
                    ("/_stats", None),
                ]
            ]
        finally:
            process.kill()
    assert answers[1] == answers[2] == {"scripted": True}
    assert answers[3]["choices"][0]["finish_reason"] == "stop"
    assert (answers[4]["calls"], answers[4]["in_flight"], answers[4]["scripted"]) == (3, 0, 0)
