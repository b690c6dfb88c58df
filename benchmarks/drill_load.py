"""The load of the drill: requests, and the threads that post each until it is answered."""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import httpx

from benchmarks.drill_ledger import Posted
from benchmarks.drill_peers import Peers
from benchmarks.drill_schedule import SMTP_DOMAIN
from benchmarks.figures import say

POSTERS = 3
SMTP_SHARE = 0.1  # of the jobs: their mail goes through SMTP, which cannot be asked what it sent
AGAIN_SHARE = 0.1  # of the jobs: posted once more after the answer


@dataclass(frozen=True, slots=True)
class Request:
    key: str
    changelist_id: str
    recipients: tuple[str, ...]
    again: bool


@dataclass
class Stream:
    """Posts requests evenly over `seconds`, to `addresses` in turns, each until it is answered."""

    addresses: Sequence[str]
    key: str
    requests: Sequence[Request]
    seconds: float
    delay: float = 0.0
    posted: list[Posted] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    _due: queue.SimpleQueue[tuple[float, Request]] = field(default_factory=queue.SimpleQueue)
    _threads: list[threading.Thread] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._turns = itertools.cycle(self.addresses)

    def start(self) -> None:
        begun = time.monotonic() + self.delay
        for number, request in enumerate(self.requests):
            self._due.put((begun + self.seconds * number / len(self.requests), request))
        self._threads = [threading.Thread(target=self._post_all, daemon=True) for _ in range(POSTERS)]
        for thread in self._threads:
            thread.start()

    def is_done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Give up what was never answered."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(15)

    def post_again(self, keys: Collection[str]) -> None:
        """Post those requests once more, as a client does that cannot find its job."""
        with self._client() as client:
            for request in self.requests:
                if request.key in keys:
                    self._post(client, request)

    def _client(self) -> httpx.Client:
        return httpx.Client(headers={"Authorization": f"Bearer {self.key}"}, trust_env=False, timeout=10)

    def _post_all(self) -> None:
        with self._client() as client:
            while not self._is_over.is_set():
                try:
                    at, request = self._due.get_nowait()
                except queue.Empty:
                    return
                self._is_over.wait(max(0.0, at - time.monotonic()))
                for _ in range(2 if request.again else 1):
                    self._post(client, request)

    def _post(self, client: httpx.Client, request: Request) -> None:
        body = {
            "idempotency_key": request.key,
            "changelist_id": request.changelist_id,
            "recipients": list(request.recipients),
        }
        while not self._is_over.is_set():
            try:
                answer = client.post(f"{next(self._turns)}/api/v1/reviews/", json=body)
            except httpx.TransportError as error:
                self.refusals[type(error).__name__] += 1
            else:
                if answer.status_code in {200, 201}:
                    job = int(answer.json()["id"])
                    self.posted.append(Posted(request.key, job, request.recipients))
                    return
                self.refusals[str(answer.status_code)] += 1
                if answer.status_code not in {429, 500, 502, 503, 504}:
                    say(f"drill: {request.key} was refused: {answer.status_code} {answer.text[:200]}")
                    return
            self._is_over.wait(0.2)


def make_requests(
    commits: Sequence[str], peers: Peers, seed: int, smtp_share: float = SMTP_SHARE
) -> list[Request]:
    """Return a request a commit. Recipients are a job's own, so that a duplicate shows as one."""
    dice = random.Random(f"requests {seed}")
    made = []
    for number, commit in enumerate(commits):
        domain = SMTP_DOMAIN if dice.random() < smtp_share else "example.com"
        port = peers.receivers[number % len(peers.receivers)].port
        recipients = (f"mail:job{number}@{domain}", f"webhook:http://127.0.0.1:{port}/hook/{number}")
        made.append(
            Request(f"drill-{number}", f"git:drill@{commit}", recipients, dice.random() < AGAIN_SHARE)
        )
    return made


def make_flood(commits: Sequence[str], tarpit: int) -> list[Request]:
    """Return a request a commit, each with a receiver at port `tarpit` that hangs or drips."""
    return [
        Request(
            f"flood-{number}",
            f"git:drill@{commit}",
            (f"webhook:http://127.0.0.1:{tarpit}/{('hang', 'drip')[number % 2]}/{number}",),
            again=False,
        )
        for number, commit in enumerate(commits)
    ]
