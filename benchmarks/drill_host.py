"""The drill's code hosts: GitHub, Gitea and GitLab with a repository each, which misbehave.

Their pull requests open and move meanwhile. API and git server are those of `tests.fakes` under one address.
Each webhook is sent once, as GitHub does: one that meets a web server that is down is lost, and only the
product's poll finds what it was about. Each host keeps its own ledger: heads in the order they were pushed,
and which of them the product took in.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx

from benchmarks.drill_host_ledger import HostBooks
from benchmarks.drill_ledger import Effect, Row
from benchmarks.drill_schedule import WEIGHTS, Fault
from benchmarks.figures import say
from notifications.providers.pull_requests.markdown import marker_of
from tests.fakes.accounts import TOKEN, AccountServer
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import APP_ID, SLUG, GitHubServer, Pull, private_key, reviewed_tokens_of
from tests.fakes.http import Asked, Said
from tests.hosts.kinds import KINDS, Kind, as_bytes

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
_ACCOUNT_STORM = tuple(Said(429, said.body, said.headers) for said in _STORM)  # 403 is no limit there
_NEXT_TOKEN = "the-next-token-of-the-account"
_CONCLUSIONS = {  # of a commit's status, as a check run says it
    "success": "success", "warning": "cancelled", "canceled": "cancelled", "error": "failure",
    "failed": "failure",
}  # fmt: skip


class CodeHost:
    """A running host. Made by `running`."""

    def __init__(self, kind: Kind, git: GitHost, api: GitHubServer, directory: Path) -> None:
        self.kind, self.api = kind, api
        git.accepts = api.accepts
        self.api.url, git.api = git.url, self._answer  # one address for both
        self._repo = self.api.add(NAME)
        self._repo.pulls.clear()
        self._work = PullRequests(git, directory, NAME)
        self._limits: deque[Said] = deque()  # the next answers
        self._has_answered = threading.Event()  # since the last limit
        self._has_answered.set()
        self._rotating = threading.Lock()
        self._is_limited: Callable[[str], bool] = lambda name: False
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
        name = self.kind.name.upper()
        connection = {
            "GITHUB_API_URL": self.url,
            "GITHUB_APP_ID": str(APP_ID),
            "GITHUB_APP_SLUG": SLUG,
            "GITHUB_PRIVATE_KEY": private_key().replace("\n", "\\n"),
        }
        if isinstance(self.api, AccountServer):
            connection = {
                f"{name}_URL": self.url,
                f"{name}_TOKEN": TOKEN,
                f"{name}_TOKEN_NEXT": _NEXT_TOKEN,
            }
        return {**connection, f"{name}_WEBHOOK_SECRETS": self.kind.secret, f"{name}_REPOSITORIES": NAME}

    # -- pull requests ------------------------------------------------------------------------

    def start(
        self, addresses: Sequence[str], count: int, seconds: float, is_limited: Callable[[str], bool]
    ) -> None:
        """Open `count` pull requests evenly over `seconds`, with webhooks to the addresses in turns.

        `is_limited` says of a host whether the product still counts its refusals in a row.
        """
        self._hooks = itertools.cycle([address + self.kind.path for address in addresses])
        self._is_limited = is_limited

        def open_all() -> None:
            for _ in range(count):
                self._send(self._push())
                if self._stopping.wait(seconds / count):
                    return

        threading.Thread(target=open_all, daemon=True).start()

    def begin(self, fault: Fault) -> None:
        """Misbehave, until the product has met it.

        The product calls a host too seldom for a fault of some seconds, or of a share of the calls.
        """
        if fault.kind == "host_limit":
            self._limit()
        elif fault.kind == "host_drop":
            self._drops += DROPPED
        elif fault.kind == "host_revoke":
            self._revoke(fault.seconds)
        elif fault.kind == "host_lose":
            self._push()
        elif fault.kind == "host_redeliver":
            self._send_at_once(self._push())
        elif fault.kind == "host_push":
            self._push_during_review(self._push())

    def _limit(self) -> None:
        """Refuse some calls, once the product has got over the refusals before.

        Refusals in a row double the product's wait.
        """
        while not self._has_answered.is_set() or self._is_limited(self.kind.name):
            if self._stopping.wait(0.5):
                return
        self._has_answered.clear()
        self._limits.extend(_ACCOUNT_STORM if isinstance(self.api, AccountServer) else _STORM)

    def _revoke(self, overlap: float) -> None:
        """Revoke the tokens.

        Of an account the old one, `overlap` seconds after the next one is accepted.
        """
        if not isinstance(self.api, AccountServer):
            self.api.tokens.clear()
            return
        with self._rotating:  # one after another
            revoked = self.api.accepted
            self.api.accepted = {TOKEN, _NEXT_TOKEN}
            self._stopping.wait(overlap)
            self.api.accepted = {TOKEN, _NEXT_TOKEN} - revoked

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
        """Push a head; return the number of its pull request.

        The head is of a new pull request, or replaces the one before.
        """
        with self._lock:
            number = number or len(self._repo.pulls) + 1
            known = self._repo.pulls.get(number)
            name = f"src/p{number}.py"
            self._work.branch(f"p{number}")
            head = self._work.work.commit_files({name: _TEXT.format(len(self._heads))}, "A change.")
            self._work.push(self.kind.head.replace("/7/", f"/{number}/"))
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
        return any(check["head_sha"] == head for check in self._checks())

    # -- webhooks -----------------------------------------------------------------------------

    def _send(self, number: int, action: str = "opened", delivery: str = "") -> None:
        """Send the webhook of a pull request, once."""
        pull = self._repo.pulls[number]
        repository = {"id": self._repo.number, "full_name": NAME}
        event = self.kind.event(
            action, head=pull.head, number=number, repository=repository, updated_at=pull.updated_at
        )
        body = as_bytes(event)
        headers = self.kind.headers(body, delivery=delivery)
        try:
            answer = httpx.post(next(self._hooks), content=body, headers=headers, timeout=10, trust_env=False)
        except httpx.TransportError:
            return
        if answer.status_code in {200, 202} and answer.json().get("job"):
            self._taken_in.add(pull.head)
        elif answer.status_code < 500:
            which, said = f"{self.kind.name}'s webhook of {number}", answer.text[:200]
            say(f"drill: {which} was answered {answer.status_code} {said}")

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
        if said.status < 300 and asked.method != "GET":
            if self._drops:
                self._drops -= 1
                return Said(502, {"message": "Server Error"})
            # Only writes are all of one dependency: the App's calls, and those for git, wait for others.
            if not asked.path.startswith("/app"):
                self._has_answered.set()
        return said

    # -- the ledger ---------------------------------------------------------------------------

    def books(self) -> HostBooks:
        """Return what the host has, as it counts it itself."""
        return HostBooks(
            tuple(self._heads),
            frozenset(self._taken_in),
            tuple((comment["number"], comment["body"]) for comment in self._comments()),
            tuple(self._checks()),
            tuple(self._reviews()),
            tuple(self.api.faults),
            self.kind.name,
        )

    def effects(self) -> Iterator[Effect]:
        """Yield each message that a comment or a review holds."""
        name = self.kind.name
        for kind, texts in ((name, self._comments()), (f"{name}-review", self._reviews())):
            for text in texts:
                marker = marker_of(text["body"])
                for token in marker.tokens if marker else ():
                    yield Effect(token, f"{kind}:{NAME}{self.kind.sign}{text['number']}")

    def _comments(self) -> list[Row]:
        """Return the comments, without the threads that GitLab has instead of a review."""
        return [one for one in list(self._repo.comments.values()) if "position" not in one]

    def _reviews(self) -> Iterator[Row]:
        """Yield the reviews as GitHub shows them; of GitLab, the threads of a message as one."""
        for review in list(self._repo.reviews):
            is_posted = review["state"] in {"COMMENT", "COMMENTED"}
            yield {**review, "state": "COMMENTED" if is_posted else review["state"]}
        threads = [one for one in list(self._repo.comments.values()) if "position" in one]
        firsts = {marker.token: one for one in reversed(threads) if (marker := marker_of(one["body"]))}
        if threads:
            yield from ({**firsts[token], "state": "COMMENTED"} for token in reviewed_tokens_of(self._repo))

    def _checks(self) -> list[Row]:
        """Return the check runs; the newest status of each commit as one where there are none."""
        if not isinstance(self.api, AccountServer):
            return [dict(check) for check in list(self._repo.checks.values())]
        newest = {status["sha"]: status["state"] for status in list(self.api.statuses)}
        return [
            {
                "head_sha": sha,
                "status": "completed" if state in _CONCLUSIONS else state,
                "conclusion": _CONCLUSIONS.get(state),
            }
            for sha, state in newest.items()
        ]


class CodeHosts:
    """All of them. Each fault of a kind meets the next one; pull requests open on each alike."""

    def __init__(self, hosts: Sequence[CodeHost]) -> None:
        self.hosts = tuple(hosts)
        count = len(self.hosts)
        self._turns = {
            kind: itertools.cycle(self.hosts[number % count :] + self.hosts[: number % count])
            for number, kind in enumerate(WEIGHTS)
            if kind.startswith("host_")
        }

    @property
    def options(self) -> dict[str, str]:
        """Return the variables of an installation that reviews the pull requests of each."""
        found = {name: value for host in self.hosts for name, value in host.options.items()}
        return {**found, "SOURCE_POLL_SECONDS": "5"}

    @property
    def limited(self) -> int:
        return sum(host.limited for host in self.hosts)

    def start(
        self, addresses: Sequence[str], count: int, seconds: float, is_limited: Callable[[str], bool]
    ) -> None:
        """Open about `count` pull requests, at least one on each; `is_limited` as `CodeHost.start`."""
        for host in self.hosts:
            host.start(addresses, -(-count // len(self.hosts)), seconds, is_limited)

    def begin(self, fault: Fault) -> None:
        next(self._turns[fault.kind]).begin(fault)

    def cease(self) -> None:
        for host in self.hosts:
            host.cease()

    def push_to_all(self) -> None:
        for host in self.hosts:
            host.push_to_all()

    def books(self) -> tuple[HostBooks, ...]:
        return tuple(host.books() for host in self.hosts)

    def effects(self) -> Iterator[Effect]:
        for host in self.hosts:
            yield from host.effects()


@contextlib.contextmanager
def running(directory: Path, names: Sequence[str] = tuple(KINDS)) -> Iterator[CodeHosts]:
    """Start these hosts with their repositories below `directory`; stop them afterwards."""
    with contextlib.ExitStack() as stack:
        hosts = []
        for name, kind in ((name, KINDS[name]) for name in names):
            git = stack.enter_context(GitHost(directory / name / "repositories"))
            hosts.append(CodeHost(kind, git, stack.enter_context(kind.server()), directory / name))
        yield CodeHosts(hosts)
