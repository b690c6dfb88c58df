"""Network access of the reviewers, read from their source."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import urllib.request
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REVIEWERS = sorted((ROOT / "reviews" / "reviewers").rglob("*.py"))
HTTP = {"httpx", "requests", "urllib", "urllib3", "http", "aiohttp", "socket", "anyio", "openai", "anthropic"}


@cache
def imported(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


# `make demo` is a client of this installation's own API; no stage imports it.
NOT_OF_A_STAGE = {"reviews/demo/__init__.py"}


# `transport` sends text; `health_checks` sends none.
SENDERS = {"reviews/reviewers/transport.py", "reviews/reviewers/health_checks.py"}
CLIENTS = HTTP - {"http", "urllib", "socket"}


def speaks_http(path: Path) -> bool:
    """Say whether a module imports a client. Only one with such a word is parsed."""
    text = path.read_text()
    return any(word in text for word in (*CLIENTS, "http_client")) and any(
        name.split(".")[0] in CLIENTS or name.startswith("criticizer.http_client") for name in imported(path)
    )


def test_one_module_of_reviews_sends_text_to_models_and_one_checks_their_health() -> None:
    names = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "reviews").rglob("*.py") if speaks_http(path)
    }
    assert names - NOT_OF_A_STAGE - READERS_OF_ANSWERS == SENDERS
    importers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "reviews").rglob("*.py")
        if "demo" in path.read_text()
        and any(name.startswith("reviews.demo") for name in imported(path))
        and not {"commands", "demo"} & set(path.parts)
    }
    assert importers == set()


# These take a type or a parser of headers from the client, and nothing that sends.
READERS_OF_ANSWERS = {f"reviews/reviewers/{name}.py" for name in ("openai", "anthropic", "provider_errors")}


def test_readers_of_answers_import_nothing_that_sends() -> None:
    for name in READERS_OF_ANSWERS:
        taken = {found for found in imported(ROOT / name) if found.startswith("criticizer.http_client.")}
        assert taken <= {"criticizer.http_client.Answer", "criticizer.http_client.retry_after"}
        assert taken


@pytest.mark.parametrize("path", REVIEWERS, ids=lambda path: path.stem)
def test_reviewers_reach_no_network_models_or_settings(path: Path) -> None:
    names = set(imported(path))
    if path.name == "sarif_import.py":  # takes the path out of an address; the rest of urllib stays forbidden
        names -= {"urllib.parse", "urllib.parse.unquote", "urllib.parse.urlsplit"}
    assert not {name.split(".")[0] for name in names} & HTTP
    assert not any(name.startswith(("django", "reviews.models", "criticizer.settings")) for name in names)


def calls_in(name: str, *functions: str) -> list[ast.Call]:
    tree = ast.parse((ROOT / "reviews/reviewers" / name).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in functions]


SENDING = ("stream", "send", "exchange", "request", "get", "post", "put", "patch")


def test_the_transport_sends_only_what_the_guard_returns() -> None:
    builders = calls_in("transport.py", "build")
    assert [ast.unparse(argument) for call in builders for argument in call.args] == ["guard(text)"]
    sends = [ast.unparse(call) for call in calls_in("transport.py", *(set(SENDING) - {"get"}))]
    assert sends == ["self._pool.send(request, self._limits)"]
    assert [ast.unparse(call.args[-1]) for call in calls_in("transport.py", "Request")] == ["content"]


def test_the_health_check_sends_no_body_and_the_window_probe_the_models_name_alone() -> None:
    sends = calls_in("health_checks.py", *(set(SENDING) - {"get"}))
    assert [ast.unparse(call.args[0]) for call in sends] == ["request", "request"]
    health, probe = calls_in("health_checks.py", "Request")
    assert ast.unparse(health.args[0]) == "'GET'"
    assert len(health.args) == 3  # method, URL and headers
    assert {keyword.arg for keyword in health.keywords} == {"reads_answer"}
    assert ast.unparse(probe.args[3]) == "body"
    bodies = [ast.unparse(body) for call in calls_in("health_checks.py", "_asked") for body in call.args[2:]]
    assert bodies == ["json.dumps({'model': config.model}).encode()"]


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
