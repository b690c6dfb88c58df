"""A model server on loopback that replays recorded answers to the demo's own changes.

It speaks chat completions. The answers in `answers.json` were written for `example`'s commits; a request
about one of them gets the next answer of its list, the last one again and again. An answer with `seconds`
is silent so long, one with `status` is that error.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = "recorded-answers"
# Of the demo's processes: a call that hangs is given up soon, and nothing is asked a second time.
ENVIRONMENT = {
    "LLM_PROVIDER": "openai",
    "LLM_MODEL": MODEL,
    "LLM_TIMEOUT_SECONDS": "1",
    "LLM_VERIFY": "off",
    "DOCUMENT_SECTIONS": "0",
    "LLM_API_KEY": "",
    "LLM_API_KEY_FILE": "",
    "LLM_FALLBACK_PROVIDER": "none",
    "LLM_EXTRA_BODY": "",
}
_WORD = re.compile(r"^Word: (\w+)$", re.MULTILINE)


class RecordedModel(ThreadingHTTPServer):
    """The server, on a free port, in a thread of its own from the start."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.recorded = json.loads(Path(__file__).with_name("answers.json").read_text())
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def answer_to(self, text: str) -> dict[str, Any]:
        """Return the next answer about the change that a request describes; no finding for others."""
        subject = next((subject for subject in self.recorded if subject in text), None)
        if subject is None:
            return {"findings": []}
        answers = self.recorded[subject]
        with self._lock:
            turn = self._asked[subject]
            self._asked[subject] += 1
        return dict(answers[min(turn, len(answers) - 1)])


class _Handler(BaseHTTPRequestHandler):
    server: RecordedModel

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": MODEL}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):  # what other servers tell of their window
            self._send(404, {"error": {"message": "unknown"}})
            return
        text = "\n".join(message["content"] for message in request["messages"])
        answer = self.server.answer_to(text)
        time.sleep(answer.get("seconds", 0))
        if status := answer.get("status"):
            self._send(status, {"error": {"message": "recorded", "code": None}})
            return
        findings = answer.get("findings", [])
        files = sorted({finding["file"] for finding in findings})
        # What an answer repeats of its request, as a model does.
        content = json.dumps({"seen": _WORD.findall(text), "files_read": files, "findings": findings})
        choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": len(content) // 4}
        self._send(200, {"model": MODEL, "choices": [choice], "usage": usage})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            pass  # it was given up meanwhile, as is meant

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: the terminal is the demo's."""
