"""Slack's Web API on loopback: chat.postMessage, conversations.history and auth.test.

Origin of the wire form: documented (the methods' reference, Block Kit's limits, the page on rate
limits); nothing here was captured from Slack. It keeps a ledger of what it posted::

    with SlackServer() as slack:
        slack.script(Act(post=True, then="hang"))
        ... Slack(SlackConfig((TOKEN,), api_url=slack.url)).send(...)
        assert slack.posted == {token: 1}
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Self

from tests.fakes.http import Asked, LoopbackServer, Said

TOKEN = "xoxb-" + "plainly-fake-000"
NEXT_TOKEN = "xoxb-" + "plainly-fake-001"
CHANNEL = "C0123ABCD"
_MAX_BLOCKS, _MAX_SECTION, _MAX_HEADER, _MAX_TEXT, _MAX_ALL = 50, 3000, 150, 4000, 12_000


@dataclass(frozen=True, slots=True)
class Act:
    """Behaviour of one call of chat.postMessage.

    `post` says whether the message is posted before the answer. `then` is `reply`, `hang` or `reset`; `error`
    is Slack's code in an answer with `ok: false`.
    """

    post: bool = True
    then: str = "reply"
    error: str = ""
    status: int = 200
    retry_after: str = ""
    body: bytes | None = None


class SlackServer:
    """One workspace. `lag_seconds`: histories show a message that long after it was posted.

    `lost`: so many reads are answered by a server error. `members`: the channels the bot is in.
    """

    def __init__(self, *, page: int = 100) -> None:
        self.tokens = {TOKEN}
        self.members = {CHANNEL}
        self.channels = {CHANNEL}
        self.scopes = "chat:write,channels:history"
        self.shows_metadata = True
        self.lag_seconds = 0.0
        self.lost = 0
        self.page = page
        self.calls: list[Asked] = []
        self.messages: list[dict[str, Any]] = []
        self._posted_at: dict[str, float] = {}
        self.default = Act()
        self._scripted: deque[Act] = deque()
        self._lock = threading.Lock()
        self._count = itertools.count(1)
        self._server = LoopbackServer(self._answer)
        self.url = f"{self._server.url}/api"

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.__exit__(*exc)

    @property
    def posted(self) -> Counter[str]:
        """Return how often each token was posted."""
        return Counter(m["metadata"]["event_payload"]["token"] for m in self.messages if "metadata" in m)

    def script(self, *acts: Act) -> None:
        """Queue acts; afterwards `default` happens again."""
        self._scripted.extend(acts)

    def say(self, channel: str = CHANNEL, text: str = "chatter", **changes: Any) -> None:
        """Write into a channel as another user."""
        self.messages.append({"channel": channel, "ts": self._timestamp(), "text": text, **changes})

    def _timestamp(self) -> str:
        return f"{int(time.time())}.{next(self._count):06d}"

    def _answer(self, asked: Asked) -> Said:
        with self._lock:
            self.calls.append(asked)
            if asked.headers.get("authorization", "") not in {f"Bearer {token}" for token in self.tokens}:
                return Said(body={"ok": False, "error": "invalid_auth"})
            method = asked.path.removeprefix("/api/")
            if method == "chat.postMessage":
                return self._post(asked.body)
            if method == "conversations.history":
                return self._history(asked.query)
            if method == "auth.test":
                body = {"ok": True, "user": "criticizer", "team": "Example", "bot_id": "B0000001"}
                return Said(body=body, headers={"x-oauth-scopes": self.scopes})
            return Said(body={"ok": False, "error": "unknown_method"})

    def _post(self, content: dict[str, Any]) -> Said:
        act = self._scripted.popleft() if self._scripted else self.default
        refusal = act.error or self._refusal(content)
        entry: dict[str, Any] = {**content, "ts": self._timestamp(), "bot_id": "B0000001"}
        if act.post and not (refusal and not act.error):
            self.messages.append(entry)
            self._posted_at[entry["ts"]] = time.monotonic()
        if act.then != "reply":
            return Said(hang=act.then == "hang", reset=act.then == "reset")
        headers = {"Retry-After": act.retry_after} if act.retry_after else {}
        if act.body is not None or act.status != 200:
            return Said(act.status, act.body if act.body is not None else b"upstream error", headers)
        if refusal:
            return Said(body={"ok": False, "error": refusal}, headers=headers)
        return Said(body={"ok": True, "channel": content["channel"], "ts": entry["ts"], "message": content})

    def _refusal(self, content: dict[str, Any]) -> str:
        """Return the error of a message that breaks the documented limits, or nothing."""
        if content["channel"] not in self.channels:
            return "channel_not_found"
        blocks = content.get("blocks", [])
        texts = [
            block["elements"][0]["text"] if block["type"] == "context" else block["text"]["text"]
            for block in blocks
        ]
        if len(content["text"].encode()) > _MAX_TEXT:
            return "msg_too_long"
        if len(blocks) > _MAX_BLOCKS or any(not 0 < len(text) <= _MAX_SECTION for text in texts):
            return "invalid_blocks"
        if any(block["type"] == "header" and len(block["text"]["text"]) > _MAX_HEADER for block in blocks):
            return "invalid_blocks"
        return "msg_blocks_too_long" if sum(map(len, texts)) > _MAX_ALL else ""

    def _history(self, query: Any) -> Said:
        if self.lost > 0:
            self.lost -= 1
            return Said(503, b"")
        if query["channel"] not in self.channels:
            return Said(body={"ok": False, "error": "channel_not_found"})
        if query["channel"] not in self.members:
            return Said(body={"ok": False, "error": "not_in_channel"})
        newest_first = [m for m in reversed(self.messages) if m["channel"] == query["channel"]]
        seen = [m for m in newest_first if self._in_window(m["ts"], query)]
        shown_before = time.monotonic() - self.lag_seconds
        seen = [m for m in seen if self._posted_at.get(m["ts"], 0.0) <= shown_before]
        start = int(query.get("cursor", "0"))
        limit = min(self.page, int(query.get("limit", "100")))
        rest = len(seen) > start + limit
        shows = self.shows_metadata and query.get("include_all_metadata") == "true"
        return Said(
            body={
                "ok": True,
                "messages": [
                    {name: value for name, value in m.items() if shows or name != "metadata"}
                    for m in seen[start : start + limit]
                ],
                "has_more": rest,
                "response_metadata": {"next_cursor": str(start + limit) if rest else ""},
            }
        )

    @staticmethod
    def _in_window(timestamp: str, query: Any) -> bool:
        moment, oldest = float(timestamp), float(query.get("oldest", "0"))
        latest = float(query.get("latest", "inf"))
        if query.get("inclusive") == "true":
            return oldest <= moment <= latest
        return oldest < moment < latest
