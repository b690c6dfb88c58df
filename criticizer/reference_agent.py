"""The reference agent, `criticizer agent --url --key`: takes tasks and submits answers.

    claim ─► heartbeats at a third of the lease ─► command or model ─► submit, until it is answered

It needs neither settings nor a database, and runs where the customer's model is. Errors of the network, 429
and 5xx are tried again with the same body; 401 and 403 end the agent, 404, 409 and 410 its work on a task.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from criticizer.http_client import Answer, ExchangeFailed, Limits, Request, exchange, retry_after
from criticizer.workers import subprocesses

TASKS = "/api/v1/agent-tasks/"
POLL_SECONDS = 5.0
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
MAX_ANSWER_BYTES = 1_000_000
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")  # by the command, and what --pass-env names


class Refused(Exception):
    """The key is not accepted: the agent ends."""


class Gone(Exception):
    """The task is no longer ours: the work on it ends."""


class Failed(Exception):
    """The work failed; the text is the `error` of the result."""


Worker = Callable[[Mapping[str, Any], str, threading.Event], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Server:
    """The installation, and the key for it."""

    url: str
    key: str
    scale: float = 1.0  # of waits, in tests

    def call(self, method: str, path: str, body: Any = None, patience: float = float("inf")) -> Answer:
        """Make a call until it is answered, for `patience` seconds. Raises Refused, Gone and Failed."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = Request(method, f"{self.url}{path}", headers, content)
        until, wait = time.monotonic() + patience, FIRST_WAIT
        while True:
            asked, why = None, ""
            try:
                answer = exchange(request, Limits())
            except ExchangeFailed as error:
                why = str(error)
            else:
                if answer.status in (401, 403):
                    raise Refused(_message(answer))
                if answer.status in (404, 409, 410):
                    raise Gone(_message(answer))
                if answer.status != 429 and answer.status < 500:
                    return answer
                why, asked = f"HTTP {answer.status}", retry_after(answer.headers)
            seconds = (asked or wait) * random.uniform(0.8, 1.2) * self.scale  # noqa: S311 - no secret
            if time.monotonic() + seconds > until:
                raise Failed(f"the server does not answer: {why}")
            say(f"{method} {path}: {why}; again in {seconds:.1f} s")
            time.sleep(seconds)
            wait = min(2 * wait, LONGEST_WAIT)


def say(text: str) -> None:
    print(f"agent: {text}", file=sys.stderr, flush=True)  # noqa: T201 - its log


def _message(answer: Answer) -> str:
    content = answer.json() or {}
    return f"HTTP {answer.status} {content.get('error', '')}: {content.get('message', '')}"


@contextlib.contextmanager
def renewing(server: Server, task: Mapping[str, Any], lease: float) -> Iterator[threading.Event]:
    """Renew the lease of a claim during the block.

    Yields the event that is set when the task is gone.
    """
    gone, done = threading.Event(), threading.Event()

    def renew() -> None:
        while not done.wait(lease / 3 * random.uniform(0.8, 1.0)):  # noqa: S311 - no secret
            try:
                body = {"claim_token": task["claim_token"]}
                answer = server.call("POST", f"{TASKS}{task['id']}/heartbeat/", body, patience=lease / 2)
                if (answer.json() or {}).get("cancelled"):
                    gone.set()
            except (Refused, Gone):
                gone.set()
            except Failed as error:
                say(str(error))
            if gone.is_set():
                return

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield gone
    finally:
        done.set()
        thread.join(timeout=5)


def command_worker(command: str, seconds: float, passed: list[str]) -> Worker:
    """Return a worker that runs a command with the payload on its standard input.

    Raises ValueError when no program of that name is on PATH.
    """
    name, *arguments = shlex.split(command) or [""]
    path = shutil.which(name)
    if path is None:
        raise ValueError(f"--command: {name!r} is not on PATH. Give the path of a program that exists.")
    program = [str(Path(path).absolute()), *arguments]
    environment = {name: os.environ[name] for name in (*_INHERITED, *passed) if name in os.environ}

    def work(payload: Mapping[str, Any], problem: str, gone: threading.Event) -> Mapping[str, Any]:
        given: bytes | None = json.dumps({**payload, "problem": problem} if problem else payload).encode()
        process = subprocesses.start(
            program, environment=environment, stdin=subprocesses.PIPE, stdout=subprocesses.PIPE
        )
        until = time.monotonic() + seconds
        try:
            while True:
                try:
                    output, _ = process.communicate(given, timeout=0.5)
                    break
                except subprocesses.TimeoutExpired:
                    given = None  # it is on its way
                    if gone.is_set():
                        raise Gone("the task is gone") from None
                    if time.monotonic() > until:
                        raise Failed(f"the command took longer than {seconds:g} seconds") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode:
            raise Failed(f"the command ended with status {process.returncode}")
        return {"data": answer_in(output.decode(errors="replace")), "metadata": {}}

    return work


def model_worker(base_url: str, model: str, key: str, seconds: float) -> Worker:
    """Return a worker that asks any server with OpenAI's chat/completions."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

    def work(payload: Mapping[str, Any], problem: str, gone: threading.Event) -> Mapping[str, Any]:
        asked = payload["request"]
        if problem:
            asked += f"\nYour previous answer could not be used: {problem}. Answer again by the schema."
        messages = [
            {"role": "system", "content": payload["instructions"]},
            {"role": "user", "content": asked},
        ]
        body = json.dumps({"model": model, "messages": messages, "temperature": 0}).encode()
        limits = Limits(
            read_timeout_seconds=seconds, total_timeout_seconds=seconds, max_answer_bytes=MAX_ANSWER_BYTES
        )
        try:
            answer = exchange(
                Request("POST", f"{base_url.rstrip('/')}/chat/completions", headers, body), limits
            )
        except ExchangeFailed as error:
            raise Failed(f"the model: {error}") from None
        content: Any = answer.json() or {}
        if answer.status >= 400:
            is_long = b"context_length" in answer.body or answer.status == 413
            raise Failed("token_limit_exceeded" if is_long else f"the model: HTTP {answer.status}")
        try:
            choice = content["choices"][0]
            text, reason = choice["message"].get("content") or "", choice.get("finish_reason")
            is_refused = bool(choice["message"].get("refusal")) or reason == "content_filter"
        except (TypeError, KeyError, IndexError, AttributeError):
            raise Failed("the model's answer is no chat completion") from None
        if is_refused:
            raise Failed("refused")
        if reason == "length":
            raise Failed("token_limit_exceeded")
        usage = content.get("usage") or {}
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
        reported = {"model_used": str(content.get("model") or model)[:200]}
        return {
            "data": answer_in(text),
            "metadata": {**reported, **({"tokens_used": tokens} if isinstance(tokens, int) else {})},
        }

    return work


def answer_in(text: str) -> Any:
    """Return the first JSON object of a text, or the text if it has none.

    The server then says what is wrong with it.
    """
    start = text.find("{")
    try:
        return json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else text
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True, slots=True)
class Agent:
    """Works on one task after another."""

    server: Server
    worker: Worker
    name: str

    def run(self, idle_seconds: float) -> int:
        """Work until no task came for `idle_seconds`; return how many results were accepted.

        Raises Refused.
        """
        count, idle_since = 0, time.monotonic()
        while time.monotonic() - idle_since <= idle_seconds:
            try:
                answer = self.server.call("POST", f"{TASKS}claim/", {"agent": self.name})
            except (Gone, Failed) as error:
                say(str(error))
                time.sleep(POLL_SECONDS * self.server.scale)
                continue
            if answer.status == 204:
                time.sleep(POLL_SECONDS * random.uniform(0.8, 1.2) * self.server.scale)  # noqa: S311
                continue
            if answer.status != 200:
                raise Refused(_message(answer))
            count += self._one(answer)
            idle_since = time.monotonic()
        return count

    def _one(self, claimed: Answer) -> bool:
        """Work on a claimed task; return whether a result was accepted."""
        task: Any = claimed.json()
        lease, began = _seconds_until(claimed, task["lease_expires_at"]), time.monotonic()
        ends = began + _seconds_until(claimed, task["expires_at"])
        problem = ""
        try:
            with renewing(self.server, task, lease) as gone:
                for _ in range(2):  # the second time with what was wrong
                    body = self._result(task, problem, gone, began)
                    if gone.is_set():
                        raise Gone("the task is gone")
                    path, left = f"{TASKS}{task['id']}/result/", ends - time.monotonic()
                    answer = self.server.call("POST", path, body, patience=max(left, 0))
                    if answer.status == 200:
                        say(f"task {task['id']}: {(answer.json() or {}).get('status')}")
                        return True
                    problem = json.dumps((answer.json() or {}).get("details") or _message(answer))[:2000]
                    say(f"task {task['id']}: {_message(answer)} {problem}")
        except (Gone, Failed) as error:
            say(f"task {task['id']}: {error}")
        return False

    def _result(self, task: Mapping[str, Any], problem: str, gone: threading.Event, began: float) -> Any:
        answer: dict[str, Any] = {"claim_token": task["claim_token"]}
        try:
            found = self.worker(task["payload"], problem, gone)
        except Failed as failure:
            return {**answer, "success": False, "error": str(failure)[:5000]}
        data = found["data"]
        data = {"type": task["type"], **data} if isinstance(data, dict) else data
        took = round((time.monotonic() - began) * 1000)
        return {
            **answer,
            "success": True,
            "data": data,
            "metadata": {**found["metadata"], "duration_ms": took},
        }


def _seconds_until(answer: Answer, moment: str) -> float:
    """Return the seconds from an answer to a moment that it names, by the server's clock alone."""
    now = parsedate_to_datetime(answer.headers["date"])
    return max((datetime.fromisoformat(moment) - now).total_seconds(), 1.0)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the agent."""
    env = os.environ.get
    parser.add_argument("--url", required=True, help="address of Criticizer")
    parser.add_argument("--key", default=env("CRITICIZER_AGENT_KEY", ""), help="or CRITICIZER_AGENT_KEY")
    parser.add_argument("--command", default="", dest="program", help="gets the payload on standard input")
    parser.add_argument("--llm-base-url", default=env("LLM_BASE_URL", ""), help="or LLM_BASE_URL; up to /v1")
    parser.add_argument("--llm-model", default=env("LLM_MODEL", ""), help="or LLM_MODEL")
    parser.add_argument("--llm-api-key", default=env("LLM_API_KEY", ""), help="or LLM_API_KEY")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of one answer")
    parser.add_argument("--exit-when-idle", type=float, default=float("inf"), help="seconds without a task")
    parser.add_argument("--name", default=f"{socket.gethostname()}:{os.getpid()}", help="shown to operators")
    parser.add_argument("--pass-env", action="append", default=[], help="a variable for the command")


def run(options: argparse.Namespace) -> int:
    """Run the agent until it is idle; return its exit status."""
    if not options.key:
        say("--key: is not set. Set a key of the role agent, or CRITICIZER_AGENT_KEY.")
        return 2
    if bool(options.program) == bool(options.llm_base_url and options.llm_model):
        say("set either --command, or --llm-base-url and --llm-model.")
        return 2
    if options.program:
        try:
            worker = command_worker(options.program, options.timeout, options.pass_env)
        except ValueError as problem:
            say(str(problem))
            return 2
    else:
        worker = model_worker(options.llm_base_url, options.llm_model, options.llm_api_key, options.timeout)
    scale = float(os.environ.get("RETRY_TIME_SCALE", "1"))
    server = Server(options.url.rstrip("/"), options.key, scale)
    try:
        count = Agent(server, worker, options.name).run(options.exit_when_idle)
    except Refused as refused:
        say(str(refused))
        return 1
    say(f"no further task; {count} submitted")
    return 0


def main(given: list[str]) -> int:
    """Run `criticizer agent` with these options."""
    parser = argparse.ArgumentParser("criticizer agent", description=__doc__)
    arguments(parser)
    return run(parser.parse_args(given))
