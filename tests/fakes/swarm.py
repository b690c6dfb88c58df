"""A P4 Code Review server on loopback: comments of API v11, reviews, and the version.

Origin of the wire form: documented (Swarm's manual, "Comments" and "Reviews" of API v11);
nothing here was captured from a server. It keeps a ledger of its comments::

    with SwarmServer() as swarm:
        swarm.script(Act(keep=True, then="hang"))
        ... Swarm(SwarmConfig(swarm.url, USER, (TICKET,))).send(...)
        assert swarm.kept == {token: 1}
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tests.fakes.http import Asked, LoopbackServer, Said

USER = "criticizer"
TICKET = "0" * 4 + "FAKE" + "0" * 24
_MARKER = re.compile(r"^\[//\]: # \(criticizer ([0-9a-f-]{36})\)$", re.MULTILINE)
_LINE = re.compile(r"^\[//\]: # \(criticizer ([0-9a-f-]{36}) finding ([0-9a-f-]{36})\)$", re.MULTILINE)
_COMMENT = re.compile(r"/api/v11/comments/(\d+)/(edit|archive)")
_TOPIC = re.compile(r"/api/v11/comments/((?:reviews|changes)/\d+)")


@dataclass(frozen=True, slots=True)
class Act:
    """Behaviour of one POST.

    `keep` says whether the comment is kept before the answer. `then` is `reply`, `hang` or `reset`; a
    `status` from 300 replaces the answer.
    """

    keep: bool = True
    then: str = "reply"
    status: int = 200
    retry_after: str = ""
    body: Any = None


class SwarmServer:
    """One Swarm server.

    `lag_seconds`: lists show a comment that long after it was made. `lost`: so many reads fail.
    `pages_from_newest`: lists hold the newest comments instead of those that follow `after`.
    """

    def __init__(self, *, page: int = 100, pages_from_newest: bool = False) -> None:
        self.tickets = {TICKET}
        self.private: set[str] = set()  # topics that the user may not see
        self.lag_seconds = 0.0
        self.lost = 0
        self.page = page
        self.pages_from_newest = pages_from_newest
        self.api_versions: list[object] = [9, 10, 11]
        self.calls: list[Asked] = []
        self.comments: list[dict[str, Any]] = []
        self._kept_at: dict[int, float] = {}
        self.default = Act()
        self._scripted: deque[Act] = deque()
        self._lock = threading.Lock()
        self._server = LoopbackServer(self._answer)
        self.url = self._server.url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.__exit__(*exc)

    @property
    def kept(self) -> Counter[str]:
        """Return how often each token was commented by our user."""
        found = (_MARKER.search(c["body"]) for c in self.comments if c["user"] == USER)
        return Counter(match[1] for match in found if match)

    @property
    def lines(self) -> dict[str, Counter[str]]:
        """Return by token how often each finding was commented on by our user."""
        found: dict[str, Counter[str]] = {}
        for comment in self.comments:
            if comment["user"] == USER and (match := _LINE.search(comment["body"])):
                found.setdefault(match[1], Counter())[match[2]] += 1
        return found

    @property
    def mails(self) -> int:
        """Return how many mails our comments cause: delayed ones of a topic are rolled up into one."""
        ours = [comment for comment in self.comments if comment["user"] == USER]
        delayed = {comment["topic"] for comment in ours if comment["notify"] == "delayed"}
        return len(delayed) + sum(comment["notify"] == "immediate" for comment in ours)

    def script(self, *acts: Act) -> None:
        """Queue acts; afterwards `default` happens again."""
        self._scripted.extend(acts)

    def say(self, topic: str, body: str, user: str = "ann", at: float | None = None) -> dict[str, Any]:
        """Comment as another user."""
        comment = {
            "id": len(self.comments) + 51,
            "topic": topic,
            "context": [],
            "user": user,
            "time": int(time.time() if at is None else at),
            "body": body,
            "taskState": "comment",
            "flags": [],
            "notify": "delayed",
        }
        self.comments.append(comment)
        return comment

    def _answer(self, asked: Asked) -> Said:
        with self._lock:
            self.calls.append(asked)
            if asked.path == "/api/version":
                return Said(body={"apiVersions": self.api_versions, "year": "2024"})
            login = asked.headers.get("authorization", "").removeprefix("Basic ")
            user, _, ticket = base64.b64decode(login).decode().partition(":")
            if ticket not in self.tickets:
                return _refusal(401, "Unauthorized")
            if asked.path == "/api/v11/reviews":
                return Said(body={"error": None, "messages": [], "data": {"reviews": []}})
            if changed := _COMMENT.fullmatch(asked.path):
                return self._change(int(changed[1]), changed[2], asked.body)
            found = _TOPIC.fullmatch(asked.path)
            if found is None or found[1] in self.private:
                return _refusal(404, "Not found")
            if asked.method == "POST":
                return self._comment(found[1], user, asked.body, asked.query.get("notify", "delayed"))
            return self._list(found[1], asked.query)

    def _comment(self, topic: str, user: str, content: dict[str, Any], notify: str) -> Said:
        act = self._scripted.popleft() if self._scripted else self.default
        comment: dict[str, Any] = {}
        if act.keep:
            comment = self.say(topic, content["body"], user)
            comment |= {name: content[name] for name in ("taskState", "context") if name in content}
            comment["notify"] = notify
            self._kept_at[comment["id"]] = time.monotonic()
        if act.then != "reply":
            return Said(hang=act.then == "hang", reset=act.then == "reset")
        if act.status >= 300 or act.body is not None:
            headers = {"Retry-After": act.retry_after} if act.retry_after else {}
            body = act.body if act.body is not None else {"error": act.status, "messages": [], "data": None}
            return Said(act.status, body, headers)
        return Said(body={"error": None, "messages": [], "data": {"comments": [comment]}})

    def _change(self, number: int, how: str, content: dict[str, Any]) -> Said:
        comment = next((one for one in self.comments if one["id"] == number), None)
        if comment is None:
            return _refusal(404, "Not found")
        if how == "archive":
            comment["flags"] = ["closed"]
        else:
            comment["taskState"] = content["taskState"]
            if content.get("notify", "delayed") != "silent":
                comment["notify"] = "delayed"
        return Said(body={"error": None, "messages": [], "data": {"comments": [comment]}})

    def _list(self, topic: str, query: Mapping[str, str]) -> Said:
        if self.lost > 0:
            self.lost -= 1
            return Said(502, b"", {"Retry-After": "9"})
        after = int(query.get("after", "0"))
        comments = [c for c in self.comments if c["topic"] == topic and c["id"] > after]
        shown_before = time.monotonic() - self.lag_seconds
        comments = [c for c in comments if self._kept_at.get(c["id"], 0.0) <= shown_before]
        size = min(self.page, int(query.get("max", "100")))
        shown = comments[::-1][:size] if self.pages_from_newest else comments[:size]
        last = shown[-1]["id"] if shown else None
        return Said(body={"error": None, "messages": [], "data": {"comments": shown, "lastSeen": last}})


def _refusal(status: int, words: str) -> Said:
    return Said(status, {"error": status, "messages": [{"code": status, "text": words}], "data": None})
