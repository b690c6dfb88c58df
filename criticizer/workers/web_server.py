"""The web server: waitress in several processes that share one listening socket.

One event loop a process receives requests and sends answers; a thread works only on requests that have
arrived whole, and hands over its answer without waiting for the client. A connection that sends or takes
little or nothing therefore costs a descriptor, no thread, and ends at its deadline (guarantee G154).
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from typing import Any

import structlog
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask
from waitress.utilities import RequestEntityTooLarge

from criticizer.workers.parent_death import die_with_parent
from criticizer.workers.parking import ENVIRON, Connect, Parked, Parking, parked
from criticizer.workers.request_turns import FairDispatcher, Turn, turn_of

log = structlog.get_logger(__name__)

REQUEST_SECONDS = 30.0  # to send a request, from its first byte or the connection's beginning
ANSWER_SECONDS = 120.0  # to take the answer
IDLE_SECONDS = 30.0  # between two requests; longer than a proxy keeps its connections
CONNECTIONS = 1000  # of a process; above it those nearest to their deadlines end
MAX_HEADER_BYTES = 32 * 1024
MAX_BODY_BYTES = 1024 * 1024 + 1  # DATA_UPLOAD_MAX_MEMORY_SIZE and less are read, the rest refused unread
# Of agents' requests: what is larger is refused as soon as that is known (`reviews.api.agents`).
AGENT_TASKS, RESULT = "/api/v1/agent-tasks/", "/result/"
MAX_AGENT_BYTES, MAX_RESULT_BYTES = 64 * 1024, 512 * 1024
STOP_SECONDS = 20.0  # for running requests and unsent answers
_MEMORY_BYTES = 64 * 1024  # of a body or an answer; the rest lies in a temporary file
_CROWD = 64  # open connections, above which many are accepted at once
_DESCRIPTORS = 3 * CONNECTIONS + 200  # each connection may have a file for its body and one for its answer


class Parser(HTTPRequestParser):  # type: ignore[misc]
    """Reads one request at a time from a connection.

    A request whose body is too large goes to the application unread. Its 413 has the right form then. Where
    more follows a request before its answer, that answer ends the connection and the rest is dropped, as HTTP
    allows: a client that takes no answers can make us keep one.
    """

    adj: Adjustments
    error: Any

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if self.path.startswith(AGENT_TASKS):
            most = MAX_RESULT_BYTES if self.path.endswith(RESULT) else MAX_AGENT_BYTES
            self.adj = _limited(self.adj, most + 1)

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        if isinstance(self.error, RequestEntityTooLarge):
            self.error = None
            self.headers.setdefault("CONTENT_LENGTH", str(MAX_BODY_BYTES))
            self.headers["CONNECTION"] = "close"
        if self.completed and not self.empty and consumed < len(data):
            self.headers["CONNECTION"] = "close"
            return len(data)
        return consumed


@cache
def _limited(adjustments: Adjustments, max_body_bytes: int) -> Adjustments:
    """Return adjustments of this server with another limit of bodies."""
    limited = copy(adjustments)
    limited.max_request_body_size = max_body_bytes
    return limited


class Task(WSGITask):  # type: ignore[misc]
    """Gives each request its place in the parking, and sends no body in answer to HEAD.

    Django makes the same answer to HEAD as to GET. A client that keeps the connection, a proxy for one,
    would read that body as the answer to its next request.
    """

    chunked_response: bool

    @property
    def has_body(self) -> bool:
        is_left_out = self.wrote_header and self.request.command == "HEAD"
        return bool(super().has_body) and not is_left_out

    def build_response_header(self) -> bytes:
        header: bytes = super().build_response_header()
        if self.request.command == "HEAD":
            self.chunked_response = False  # else the mark of the last chunk would be sent
            self.logged_write_no_body = True  # else waitress warns of each body that is left out
        return header

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        parking: Parking = self.channel.server.parking
        environ[ENVIRON] = parking.place(getattr(self.request, "parked_until", 0.0))
        return environ


class Connection(HTTPChannel):  # type: ignore[misc]
    parser_class = Parser
    task_class = Task

    def __init__(self, *given: Any, **named: Any) -> None:
        self.deadline = time.monotonic() + REQUEST_SECONDS
        super().__init__(*given, **named)

    def turn(self) -> Turn:
        """Return the turn of the request that is to be worked on."""
        request = self.requests[0]  # one that could not be read has no command
        return turn_of(
            str(self.addr[0]), getattr(request, "command", ""), getattr(request, "path", ""), request.headers
        )

    def received(self, data: bytes) -> bool:
        if self.request is None:
            self.deadline = time.monotonic() + REQUEST_SECONDS
        return bool(super().received(data))

    def service(self) -> None:
        self.deadline = float("inf")
        try:
            super().service()
        except Parked as parked:  # the request is still the connection's first
            self.requests[0].parked_until = parked.place.until
            self.server.parking.add(self, parked.place)
            return
        self.deadline = time.monotonic() + (ANSWER_SECONDS if self.total_outbufs_len else IDLE_SECONDS)


class Server(TcpWSGIServer):  # type: ignore[misc]
    """One process's event loop. `stop` may be called from a signal handler."""

    accepting: bool
    channel_class = Connection
    next_channel_cleanup = float("inf")  # `_end_overdue` instead: waitress waits for blocked clients

    def __init__(
        self, application: Callable[..., Any], listening: socket.socket, threads: int, connect: Connect
    ) -> None:
        self.parking = Parking(connect, lambda connection: self.add_task(connection))
        self._stop_at = float("inf")
        self._next_look = 0.0
        self._most = min(CONNECTIONS, max(10, (_open_files() - 200) // 3))
        adjustments = Adjustments(
            sockets=[listening],
            threads=threads,
            ident=None,
            connection_limit=2**31,  # `_end_overdue` instead: waitress stops accepting
            max_request_header_size=MAX_HEADER_BYTES,
            max_request_body_size=MAX_BODY_BYTES,
            inbuf_overflow=_MEMORY_BYTES,
            outbuf_overflow=_MEMORY_BYTES,
            outbuf_high_watermark=2**31,  # above it a thread waits for the client
            clear_untrusted_proxy_headers=False,  # `client_ip` knows which proxies to trust
        )
        name = (listening.family, listening.type, listening.proto, listening.getsockname())
        super().__init__(
            parked(application), _sock=listening, bind_socket=False, adj=adjustments, sockinfo=name,
            dispatcher=FairDispatcher(threads),
        )  # fmt: skip

    def handle_accept(self) -> None:
        """Accept one connection, so that the processes share them evenly; many while a crowd waits."""
        for _ in range(1 if len(self.active_channels) < _CROWD else _CROWD):
            known = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == known:
                return

    def stop(self) -> None:
        """End when running requests are answered, after STOP_SECONDS at the latest."""
        self._stop_at = min(self._stop_at, time.monotonic() + STOP_SECONDS)
        self.pull_trigger()

    def run(self) -> None:
        while not self._is_done():
            wasyncore.poll2(1.0, self._map)
            now = time.monotonic()
            self._end_overdue(now)
            self.parking.end_overdue(now)

    def _is_done(self) -> bool:
        if self._stop_at == float("inf"):
            return False
        if self.accepting:
            self.accepting = False
            self.del_channel(self._map)
            self.socket.close()
            self.parking.close()
        for connection in list(self.active_channels.values()):
            if not (connection.requests or connection.total_outbufs_len or connection.request):
                connection.handle_close()
        return not self.active_channels or time.monotonic() > self._stop_at

    def _end_overdue(self, now: float) -> None:
        """Close connections after their deadlines.

        When there are too many, those nearest to their deadlines are closed as well.
        """
        excess = len(self.active_channels) - self._most
        if excess <= 0 and now < self._next_look:
            return
        self._next_look = now + 1.0
        waiting = [found for found in self.active_channels.values() if not found.requests]
        waiting.sort(key=lambda connection: float(connection.deadline))
        for place, connection in enumerate(waiting):
            if place >= excess and connection.deadline > now:
                return
            connection.handle_close()


def _open_files() -> int:
    """Raise the limit of open files as far as is needed and allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _DESCRIPTORS:
        soft = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=1024, dualstack_ipv6=host == "::")


def serve(
    application: Callable[..., Any],
    listening: socket.socket,
    processes: int,
    threads: int,
    connect: Connect,
    background: Callable[[], None],
) -> None:
    """Serve in `processes` of `threads` each until SIGTERM or SIGINT.

    Processes that end are started again. `connect`: to the database, for requests that wait for a
    notification. `background` runs in a thread of each process for as long as the process does.
    """
    run = partial(_run, application, listening, threads, connect, background)
    gc.freeze()  # large pages made it look through all that is loaded: up to a third of their time
    ours = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    children: set[int] = set()
    started_at = 0.0
    while True:
        if len(children) < processes and (not started_at or time.monotonic() - started_at > 1.0):
            children |= {_fork(run) for _ in range(processes - len(children))}
            started_at = time.monotonic()
        found = signal.sigtimedwait(ours, 1.0)
        if found is not None and found.si_signo != signal.SIGCHLD:
            break
        for child in _ended(children):
            log.error("web_process_ended", pid=child)
    listening.close()
    for child in children:
        os.kill(child, signal.SIGTERM)
    stop_at = time.monotonic() + STOP_SECONDS + 2
    while children and time.monotonic() < stop_at:
        signal.sigtimedwait({signal.SIGCHLD}, 0.2)
        _ended(children)
    for child in children:
        os.kill(child, signal.SIGKILL)


def _ended(children: set[int]) -> set[int]:
    """Take the children that have ended out of the set, and return them."""
    found = {child for child in children if os.waitpid(child, os.WNOHANG)[0]}
    children -= found
    return found


def _fork(run: Callable[[], None]) -> int:
    """Run a process that ends with this one; return its id."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        die_with_parent()
        if os.getppid() == parent:
            run()
            status = 0
    except BaseException:
        log.exception("web_process_failed")
    finally:
        os._exit(status)


def _run(
    application: Callable[..., Any],
    listening: socket.socket,
    threads: int,
    connect: Connect,
    background: Callable[[], None],
) -> None:
    threading.Thread(target=background, name="background", daemon=True).start()
    server = Server(application, listening, threads, connect)
    signal.signal(signal.SIGTERM, lambda number, frame: server.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent stops us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    server.run()
