"""The drill's code host: a GitHub with one repository, whose pull requests open and move while it misbehaves.

API and git server are those of `tests.fakes` under one address. It sends each webhook once, as GitHub does:
one that meets a web server that is down is lost, and only the product's poll finds what it was about. The
host keeps its own ledger: heads in the order they were pushed, and which of them the product took in.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx

from benchmarks.drill_host_ledger import HostBooks
from benchmarks.drill_ledger import Effect
from benchmarks.drill_schedule import Fault
from benchmarks.figures import say
from notifications.providers.pull_requests.markdown import marker_of
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import APP_ID, SLUG, GitHubServer, Pull, private_key
from tests.fakes.http import Asked, Said
from tests.hosts import deliveries

NAME = "acme/website"
SENT_AT_ONCE = 20  # of one webhook, under two ids
REVIEW_SECONDS = 4.0  # so long the start of a review is waited for, to push during it
DROPPED = 3  # writes that are done, and whose answers are lost
_LINES = 5
_TEXT = "<<<<<<< ours\none = {0}\n=======\none = 2\n>>>>>>> theirs\n"  # a check finds it on each line
_SECONDARY = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}
_STORM = (  # refuses so many calls
    Said(429, {"message": "API rate limit exceeded"}, {"Retry-After": "3"}),
    Said(403, _SECONDARY, {"Retry-After": "3"}),
    Said(429, {"message": "API rate limit exceeded"}),
    Said(403, _SECONDARY),
)


class CodeHost:
    """A running host. Made by `running`."""

    def __init__(self, git: GitHost, api: GitHubServer, directory: Path) -> None:
        self.api = api
        self.api.url, git.api = git.url, self._answer  # one address for both
        self._repo = self.api.add(NAME)
        self._repo.pulls.clear()
        self._work = PullRequests(git, directory, NAME)
        self._limits: deque[Said] = deque()  # the next answers
        self._drops = 0
        self._heads: list[tuple[int, str]] = []
        self._taken_in: set[str] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._hooks: Iterator[str] = itertools.repeat("")
        self.limited = 0  # calls
        self.url = git.url

    @property
    def options(self) -> dict[str, str]:
        """Return the variables of an installation that reviews this host's pull requests."""
        return {
            "GITHUB_API_URL": self.url,
            "GITHUB_APP_ID": str(APP_ID),
            "GITHUB_APP_SLUG": SLUG,
            "GITHUB_PRIVATE_KEY": private_key().replace("\n", "\\n"),
            "GITHUB_WEBHOOK_SECRETS": deliveries.SECRET,
            "GITHUB_REPOSITORIES": NAME,
            "SOURCE_POLL_SECONDS": "5",
        }

    # -- pull requests ------------------------------------------------------------------------

    def start(self, addresses: Sequence[str], count: int, seconds: float) -> None:
        """Open `count` pull requests evenly over `seconds`, with webhooks to the addresses in turns."""
        self._hooks = itertools.cycle([address + deliveries.PATH for address in addresses])

        def open_all() -> None:
            for _ in range(count):
                self._send(self._push())
                if self._stopping.wait(seconds / count):
                    return

        threading.Thread(target=open_all, daemon=True).start()

    def begin(self, fault: Fault) -> None:
        """Misbehave, until the product has met it: a host has too few calls for a share of some seconds."""
        if fault.kind == "host_limit":
            self._limits.extend(_STORM)
        elif fault.kind == "host_drop":
            self._drops += DROPPED
        elif fault.kind == "host_revoke":
            self.api.tokens.clear()
        elif fault.kind == "host_lose":
            self._push()
        elif fault.kind == "host_redeliver":
            self._send_at_once(self._push())
        elif fault.kind == "host_push":
            self._push_during_review(self._push())

    def cease(self) -> None:
        """Open no further pull request, and behave from now on."""
        self._stopping.set()
        self._limits.clear()
        self._drops = 0

    def push_to_all(self) -> None:
        """Push to every pull request: the summaries that stand there are to be edited in place."""
        for number in list(self._repo.pulls):
            self._push(number)
            self._send(number, "synchronize")

    def _push(self, number: int | None = None) -> int:
        """Push a head: of a new pull request, or one that replaces the one before. Return the number."""
        with self._lock:
            number = number or len(self._repo.pulls) + 1
            known = self._repo.pulls.get(number)
            name = f"src/p{number}.py"
            self._work.branch(f"p{number}")
            head = self._work.pull(number, {name: _TEXT.format(len(self._heads))})
            # A host's times have whole seconds; one that is not later would leave the order open.
            before = datetime.fromisoformat(known.updated_at).timestamp() if known else 0
            at = datetime.fromtimestamp(max(int(time.time()), before + 1), UTC)
            hunks = {name: ((0, 0, 1, _LINES),)}
            self._repo.pulls[number] = Pull(head, hunks=hunks, updated_at=f"{at:%Y-%m-%dT%H:%M:%SZ}")
            self._heads.append((number, head))
        return number

    def _push_during_review(self, number: int) -> None:
        self._send(number)
        until = time.monotonic() + REVIEW_SECONDS
        while time.monotonic() < until and not self._is_told(self._repo.pulls[number].head):
            time.sleep(0.05)
        self._push(number)
        self._send(number, "synchronize")

    def _is_told(self, head: str) -> bool:
        return any(check["head_sha"] == head for check in list(self._repo.checks.values()))

    # -- webhooks -----------------------------------------------------------------------------

    def _send(self, number: int, action: str = "opened", delivery: str = "") -> None:
        """Send the webhook of a pull request, once."""
        pull = self._repo.pulls[number]
        repository = {"id": self._repo.number, "full_name": NAME}
        content = deliveries.pull_request(action, head=pull.head, number=number, repository=repository)
        content["pull_request"]["updated_at"] = pull.updated_at
        body = json.dumps(content).encode()
        headers = deliveries.headers(body, "pull_request", delivery=delivery)
        try:
            answer = httpx.post(next(self._hooks), content=body, headers=headers, timeout=10, trust_env=False)
        except httpx.TransportError:
            return
        if answer.status_code in {200, 202} and answer.json().get("job"):
            self._taken_in.add(pull.head)
        elif answer.status_code < 500:
            say(f"drill: the webhook of {number} was answered {answer.status_code} {answer.text[:200]}")

    def _send_at_once(self, number: int) -> None:
        ids = [str(uuid.uuid4()), str(uuid.uuid4())]
        with ThreadPoolExecutor(SENT_AT_ONCE) as senders:
            for turn in range(SENT_AT_ONCE):
                senders.submit(self._send, number, "opened", ids[turn % 2])

    # -- its API ------------------------------------------------------------------------------

    def _answer(self, asked: Asked) -> Said:
        with contextlib.suppress(IndexError):
            limit = self._limits.popleft()
            self.limited += 1
            return limit
        said = self.api.answer(asked)
        if self._drops and asked.method != "GET" and said.status < 300:
            self._drops -= 1
            return Said(502, {"message": "Server Error"})
        return said

    # -- the ledger ---------------------------------------------------------------------------

    def books(self) -> HostBooks:
        """Return what the host has, as it counts it itself."""
        return HostBooks(
            tuple(self._heads),
            frozenset(self._taken_in),
            tuple((comment["number"], comment["body"]) for comment in list(self._repo.comments.values())),
            tuple(dict(check) for check in list(self._repo.checks.values())),
            tuple(dict(review) for review in self._repo.reviews),
            tuple(self.api.faults),
        )

    def effects(self) -> Iterator[Effect]:
        """Yield each message that a comment or a review holds."""
        for kind, texts in (
            ("github", list(self._repo.comments.values())),
            ("github-review", self._repo.reviews),
        ):
            for text in texts:
                marker = marker_of(text["body"])
                for token in marker.tokens if marker else ():
                    yield Effect(token, f"{kind}:{NAME}#{text['number']}")


@contextlib.contextmanager
def running(directory: Path) -> Iterator[CodeHost]:
    """Start the host with its repositories below `directory`; stop it afterwards."""
    with GitHost(directory / "repositories") as git, GitHubServer() as api:
        yield CodeHost(git, api, directory)
