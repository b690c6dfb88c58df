"""Double of a model server on loopback: chat/completions, Anthropic's Messages, embeddings.

Origin of the wire forms: documented (the providers' public API references); none was
captured from a live server. It answers over a real socket, records every request body, and
misbehaves on demand.

In a test, in a thread of its own::

    with FakeLlm() as llm:
        llm.script(Reply(status=429, headers={"Retry-After": "7"}), Reply(answer={"findings": [...]}))
        ... client talks to llm.base_url ...
        assert llm.requests[0].body["model"] == "m"

For benchmarks and drills, as a process: ``python -m tests.fakes.llm --port 0 --delay 5`` prints
its port on the first line. ``GET /_stats`` answers the counters, ``POST /_script`` takes a JSON
list of replies (the fields of `Reply`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

DIMENSIONS = 64  # of embeddings that are not asked for another length
EMPTY_ANSWER: dict[str, object] = {"findings": [], "files_read": []}


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer; without `status` and `body` it is a well-formed completion.

    `answer` (a dict becomes JSON) is the assistant's text. `repeat` serves the reply that
    often. `hang` keeps the connection open and silent; `truncate` closes it in mid body;
    `reset` closes it before any answer. `delay` is in seconds.
    """

    answer: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    delay: float = 0.0
    hang: bool = False
    truncate: bool = False
    reset: bool = False
    refusal: str | None = None
    finish_reason: str = "stop"
    repeat: int = 1
    input_tokens: int | None = None
    vectors: Sequence[object] | None = None  # of embeddings, in the place of those of the texts
    usage: Mapping[str, object] = field(default_factory=dict)  # further fields of it


def error(status: int, message: str, code: str | None = None, **headers: str) -> Reply:
    """Make the documented error envelope, with headers such as ``Retry_After="7"``."""
    envelope = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    return Reply(
        status=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        body=json.dumps(envelope),
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]  # names in lower case
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


Responder = Callable[[Recorded], "Reply | None"]


@dataclass
class SmallWindow:
    """A responder that reads no more than its window and answers all the same, as Ollama does.

    The model is honest: it repeats the words it read (unless `repeats_words` is false) and gives
    `findings`; with `needs_rules`, it chats when the rules were cut off.
    `tokens`: how the server counts. `cut` counts the requests of which it read a part.
    """

    window: int | None
    at: str = "tail"
    repeats_words: bool = True
    needs_rules: bool = False
    findings: Sequence[object] = ()
    tokens: Callable[[str], int] = lambda text: len(text) // 4
    cut: int = 0

    def __call__(self, request: Recorded) -> Reply:
        text = "\n".join(message["content"] for message in request.body["messages"])
        read = self.read(text)
        self.cut += read != text
        answer: dict[str, object] = {"findings": list(self.findings), "files_read": []}
        if self.repeats_words:
            answer["seen"] = re.findall(r"^Word: (\w+)$", read, re.MULTILINE)
        if self.needs_rules and not read.startswith(text[:100]):
            return Reply(answer="That looks like a patch. How can I help?", input_tokens=self.tokens(read))
        return Reply(answer=answer, input_tokens=self.tokens(read))

    def read(self, text: str) -> str:
        if self.window is None or (tokens := self.tokens(text)) <= self.window:
            return text
        size = len(text) * self.window // tokens
        if self.at == "head":
            return text[-size:]
        return text[: size // 2] + text[-(size - size // 2) :] if self.at == "middle" else text[:size]


class LlmServer:
    """The asyncio core of the double.

    Calls in flight are counted from a request's last byte to its answer's last.
    """

    def __init__(
        self,
        *,
        delay: float = 0.0,
        refused_keys: frozenset[str] = frozenset(),
        refused_parameters: frozenset[str] = frozenset(),
        respond: Responder | None = None,
        record: bool = True,
    ) -> None:
        self.delay = delay
        self.refused_keys = refused_keys
        self.refused_parameters = refused_parameters
        self.respond = respond
        self.record = record
        self.requests: list[Recorded] = []
        self.replies: deque[Reply] = deque()
        self.calls = self.in_flight = self.peak_in_flight = 0
        self.billed: Counter[str] = Counter()  # tokens in the answers that were sent whole
        self.connections = 0
        self.port = 0
        self.embed: Callable[[str, int], Sequence[float]] = hashed
        self.pages: Mapping[str, object] | None = None  # what it says of itself, by path; None: its models
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            self._tasks.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {
            k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)
        }
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        if path.startswith("/_"):
            await _write(writer, 200, {}, json.dumps(self._control(method, path, raw)))
            return True
        if self.pages is not None and not path.endswith(("/completions", "/messages")):
            await _write(writer, 200 if path in self.pages else 404, {}, json.dumps(self.pages.get(path)))
            return True
        request = Recorded(path, headers, raw)
        if method == "GET" and path.endswith("/models"):
            return await self._list_models(request, writer)
        if method == "GET":  # a page of another kind of server: this one says nothing of itself
            await _write(writer, 404, {}, "null")
            return True
        if self.record:
            self.requests.append(request)
        self.calls += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            return await self._answer(request, writer)
        finally:
            self.in_flight -= 1

    async def _list_models(self, request: Recorded, writer: asyncio.StreamWriter) -> bool:
        """Answer what a probe asks: as healthy or as ill as the rest; uses up no scripted reply."""
        reply = self._refused_key(request) or (self.respond and self.respond(request)) or Reply()
        if reply.hang:
            await asyncio.Event().wait()
        if reply.reset:
            return False
        models = {"object": "list", "data": [{"id": "test", "object": "model", "owned_by": "test"}]}
        body = json.dumps(models) if reply.status == 200 else reply.body or "{}"
        await _write(writer, reply.status, reply.headers, body)
        return True

    async def _answer(self, request: Recorded, writer: asyncio.StreamWriter) -> bool:
        reply = (
            self._refusal_of(request)
            or self._next_reply()
            or (self.respond and self.respond(request))
            or Reply()
        )
        await asyncio.sleep(reply.delay or self.delay)
        if reply.hang:
            await asyncio.Event().wait()
        if reply.reset:
            return False
        body = reply.body
        if body is None:
            is_of_texts = request.path.endswith("/embeddings")
            completion = self._embedded(request, reply) if is_of_texts else _completion(request, reply)
            body = json.dumps(completion)
            if not reply.truncate:
                self.billed.update({k: v for k, v in completion["usage"].items() if isinstance(v, int)})
        await _write(writer, reply.status, reply.headers, body, truncate=reply.truncate)
        return not reply.truncate

    def _next_reply(self) -> Reply | None:
        if not self.replies:
            return None
        reply = self.replies.popleft()
        if reply.repeat > 1:
            fields = {name: getattr(reply, name) for name in Reply.__slots__}
            self.replies.appendleft(Reply(**{**fields, "repeat": reply.repeat - 1}))
        return reply

    def _refused_key(self, request: Recorded) -> Reply | None:
        key = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get(
            "x-api-key", ""
        )
        if key in self.refused_keys:
            return error(401, "Incorrect API key provided.", "invalid_api_key")
        return None

    def _refusal_of(self, request: Recorded) -> Reply | None:
        if refused := self._refused_key(request):
            return refused
        for parameter in sorted(self.refused_parameters):
            name, _, value = parameter.partition("=")
            sent = request.body.get(name)
            if sent is not None and (not value or (isinstance(sent, dict) and sent.get("type") == value)):
                return error(
                    400, f"Unsupported parameter: '{name}' is not supported.", "unsupported_parameter"
                )
        return None

    def _embedded(self, request: Recorded, reply: Reply) -> dict[str, Any]:
        texts, wanted = request.body["input"], request.body.get("dimensions", DIMENSIONS)
        vectors = reply.vectors if reply.vectors is not None else [self.embed(text, wanted) for text in texts]
        return {
            "object": "list",
            "model": request.body["model"],
            "data": [
                {"object": "embedding", "index": place, "embedding": vector}
                for place, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": len(request.raw) // 4, "total_tokens": len(request.raw) // 4},
        }

    def _control(self, method: str, path: str, raw: bytes) -> object:
        if method == "POST" and path == "/_script":
            self.replies.extend(Reply(**item) for item in json.loads(raw))
        return {
            "calls": self.calls,
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "connections": self.connections,
            "scripted": len(self.replies),
        }


def hashed(text: str, dimensions: int) -> list[float]:
    """Return an embedding without a model: the number of words that fall into each dimension."""
    found = [0.0] * dimensions
    for word in re.findall(r"[a-z]{3,}", text.lower()):
        found[zlib.crc32(word.encode()) % dimensions] += 1
    return found if any(found) else [1.0] * dimensions


def _completion(request: Recorded, reply: Reply) -> dict[str, Any]:
    answer = EMPTY_ANSWER if reply.answer is None else reply.answer
    text = answer if isinstance(answer, str) else json.dumps(answer)
    model = request.body.get("model", "")
    tokens_in, tokens_out = reply.input_tokens, len(text) // 4
    if tokens_in is None:
        tokens_in = len(request.raw) // 4
    if request.path.endswith("/messages"):
        return {
            "id": "msg_0",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": {"stop": "end_turn", "length": "max_tokens"}.get(
                reply.finish_reason, reply.finish_reason
            ),
            "usage": {"input_tokens": tokens_in, "output_tokens": tokens_out, **reply.usage},
        }
    message = {"role": "assistant", "content": None if reply.refusal else text, "refusal": reply.refusal}
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
            **reply.usage,
        },
    }


async def _write(
    writer: asyncio.StreamWriter,
    status: int,
    headers: Mapping[str, str],
    body: str,
    *,
    truncate: bool = False,
) -> None:
    payload = body.encode()
    lines = [
        f"HTTP/1.1 {status} Scripted",
        "Content-Type: application/json",
        f"Content-Length: {len(payload)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    writer.write(
        "\r\n".join(lines).encode() + b"\r\n\r\n" + (payload[: len(payload) // 2] if truncate else payload)
    )
    await writer.drain()


class FakeLlm:
    """The server in a thread, for tests.

    Everything public may be used from the test's thread.
    """

    def __init__(
        self,
        *,
        delay: float = 0.0,
        refused_keys: frozenset[str] = frozenset(),
        refused_parameters: frozenset[str] = frozenset(),
        respond: Responder | None = None,
    ) -> None:
        self.server = LlmServer(
            delay=delay, refused_keys=refused_keys, refused_parameters=refused_parameters, respond=respond
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-llm", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(10)
        return self

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/v1"

    @property
    def requests(self) -> list[Recorded]:
        return self.server.requests

    @property
    def peak_in_flight(self) -> int:
        return self.server.peak_in_flight

    def script(self, *replies: Reply) -> None:
        """Append replies; each serves `repeat` calls, then the default answer returns."""
        self.server.replies.extend(replies)


async def _run(arguments: argparse.Namespace) -> None:
    answer = json.loads(arguments.answer) if arguments.answer else None
    server = LlmServer(
        delay=arguments.delay,
        respond=(lambda _: Reply(answer=answer)) if answer is not None else None,
        record=False,
    )
    await server.start(arguments.port)
    print(server.port, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scriptable language model server on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds each call waits")
    parser.add_argument("--answer", default="", help="JSON text of every answer (default: no findings)")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
