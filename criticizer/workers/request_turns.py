"""Turns of the requests that wait for a thread of the web server (guarantee G571).

Next is a request of the address with the fewest requests in work; of equal addresses, the one whose last
turn is longest ago; within an address the same by key or session. One that had no turn yet counts as if it
had its last on arrival: made-up keys and addresses get none before a request that waits. Of several threads
no address has all, and only some check passwords, which is slow on purpose: a flood from one address, or of
logins, leaves the server to others.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from waitress.task import ThreadedTaskDispatcher

from criticizer.security.client_ip import address_behind, rate_limit_subnet

PROBE = "/livez"  # comes first: a supervisor restarts a service whose liveness probe gets no answer
# Forms that check or set a password. A test compares them with the URL configuration.
PASSWORDS = (
    "/login/",
    "/admin/login/",
    "/reauth/",
    "/password/",
    "/welcome/",
    "/admin/password_change/",
    "/admin/auth/user/",
)
PASSWORD_SHARE = 4  # a quarter of the threads, one at least
_PASSWORD = "a password"  # noqa: S105  the kind of request
_MOST_REMEMBERED = 5_000


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of a request: its client and its kind.

    `client` is a digest within the address.
    """

    address: str
    client: str
    is_password: bool = False
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task in the queue; `since` is the number of turns that there had been when it came."""

    turn: Turn
    task: Any
    since: int

    def cancel(self) -> None:
        self.task.cancel()


def turn_of(remote: str, command: str, path: str, headers: Mapping[str, str]) -> Turn:
    """Return the turn of a request that came from the address `remote`."""
    address = rate_limit_subnet(address_behind(remote, headers.get("X_FORWARDED_FOR", "")))
    named = headers.get("AUTHORIZATION") or headers.get("COOKIE") or ""
    client = f"{address} {hashlib.sha256(named.encode(errors='replace')).hexdigest()[:16]}"
    is_password = command == "POST" and path.startswith(PASSWORDS)
    return Turn(address, client, is_password, path == PROBE)


class FairDispatcher(ThreadedTaskDispatcher):  # type: ignore[misc]
    """Threads that take requests in their turns. A task is a connection with `turn`."""

    queue: deque[Waiting]

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._most_of_address = max(1, threads - 1)
        self._most_passwords = max(1, threads // PASSWORD_SHARE)
        self._working: Counter[str] = Counter()  # by address and by client; _PASSWORD and PROBE by kind
        self._served: dict[str, int] = {}  # address or client -> its last turn
        self._turns = 0
        self.set_thread_count(threads)

    def add_task(self, task: Any) -> None:
        with self.lock:
            self.queue.append(Waiting(task.turn(), task, self._turns))
            self.queue_cv.notify()

    def handler_thread(self, thread_no: int) -> None:
        while True:
            with self.lock:
                while self.stop_count == 0 and (found := self._next()) is None:
                    self.active_count -= 1
                    self.queue_cv.wait()
                    self.active_count += 1
                if self.stop_count > 0:
                    self.active_count -= 1
                    self.stop_count -= 1
                    self.threads.discard(thread_no)
                    self.thread_exit_cv.notify()
                    return
                assert found is not None
                self._count(found.turn, 1)
                if self.queue:  # the end of one request may let several begin
                    self.queue_cv.notify()
            try:
                found.task.service()
            except BaseException:
                self.logger.exception("Exception when servicing %r", found.task)
            finally:
                with self.lock:
                    self._count(found.turn, -1)

    def _next(self) -> Waiting | None:
        """Take the next request out of the queue; None where none may begin."""
        place = min(
            (number for number, waiting in enumerate(self.queue) if self._may_begin(waiting.turn)),
            key=lambda number: (*self._rank(self.queue[number]), number),
            default=None,
        )
        if place is None:
            return None
        found = self.queue[place]
        del self.queue[place]
        return found

    def _may_begin(self, turn: Turn) -> bool:
        if self._comes_first(turn):
            return True
        if turn.is_password and self._working[_PASSWORD] >= self._most_passwords:
            return False
        return self._working[turn.address] < self._most_of_address

    def _comes_first(self, turn: Turn) -> bool:
        return turn.is_probe and not self._working[PROBE]  # one at a time: a flood of probes takes turns

    def _rank(self, waiting: Waiting) -> tuple[int, ...]:
        turn = waiting.turn
        return (
            not self._comes_first(turn),
            self._working[turn.address],
            self._served.get(turn.address, waiting.since),
            self._working[turn.client],
            self._served.get(turn.client, waiting.since),
        )

    def _count(self, turn: Turn, change: int) -> None:
        """Count a request that begins (1) or ends (-1)."""
        kinds = [kind for kind, is_it in ((_PASSWORD, turn.is_password), (PROBE, turn.is_probe)) if is_it]
        for name in (turn.address, turn.client, *kinds):
            self._working[name] += change
            if not self._working[name]:
                del self._working[name]
        if change > 0:
            if len(self._served) > _MOST_REMEMBERED:
                self._served.clear()
            self._turns += 1
            self._served[turn.address] = self._served[turn.client] = self._turns
