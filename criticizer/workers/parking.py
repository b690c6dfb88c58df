"""Requests that wait without a thread and without a connection of their own to the database.

    view ─► nothing yet: parked ─► notification, or its time ─► the view again, on any thread ─► answer

A view parks its request by `Place.park` and returns any response, which is dropped. One thread of a process
listens for all of them, while there are any. A view that is called again must look again, because a
notification says only that something may have changed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
import structlog

log = structlog.get_logger(__name__)

CHANNEL = "criticizer_parked"
ENVIRON = "criticizer.parking"
MOST = 200  # of a process
MOST_OF_KEY = 2
_LINGER_SECONDS = 10.0  # of the listener, once nothing is parked
_AGAIN_SECONDS = 1.0
_LOOK_SECONDS = 10.0  # without a notification, which a pooler may keep to itself

Connect = Callable[[], psycopg.Connection[Any]]


class Parked(BaseException):
    """The request is answered later. It passes everything that handles errors."""

    def __init__(self, place: Place) -> None:
        super().__init__("parked")
        self.place = place


@dataclass(slots=True, eq=False)
class Place:
    """One request's place. `until` is its end by the monotonic clock, 0.0 before it was parked."""

    parking: Parking
    seen: int  # notifications before the view was called
    until: float = 0.0
    key: str = ""
    is_wanted: bool = False
    since: float = 0.0  # when it was parked last

    def park(self, key: str, seconds: float) -> bool:
        """Park the request when its view has returned; return False if it cannot be parked.

        It cannot be once its time is over, or when too many wait.
        """
        now = time.monotonic()
        is_first = self.until == 0.0
        if is_first and self.parking.is_full(key):
            return False
        self.until, self.key = self.until or now + seconds, key
        self.is_wanted = self.until > now and not self.parking.is_closed
        return self.is_wanted

    @property
    def was_parked(self) -> bool:
        return self.until != 0.0


@dataclass(slots=True)
class Parking:
    """The parked requests of one process.

    `resume` hands one back to a thread; any thread may call it.
    """

    connect: Connect
    resume: Callable[[Any], None]
    is_closed: bool = False
    _waiting: dict[Any, Place] = field(default_factory=dict)
    _keys: Counter[str] = field(default_factory=Counter)
    _heard: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listener: threading.Thread | None = None

    def place(self, until: float = 0.0) -> Place:
        """Return the place of a request whose view is about to be called."""
        return Place(self, self._heard, until)

    def is_full(self, key: str) -> bool:
        return len(self._waiting) >= MOST or self._keys[key] >= MOST_OF_KEY

    def add(self, request: Any, place: Place) -> None:
        """Keep a request until a notification or its time.

        A request is handed back at once where a notification came since its view looked.
        """
        with self._lock:
            is_late = place.seen != self._heard or self.is_closed
            if not is_late:
                self._waiting[request], place.since = place, time.monotonic()
                self._keys[place.key] += 1
                if self._listener is None:
                    self._listener = threading.Thread(target=self._listen, name="parking", daemon=True)
                    self._listener.start()
        if is_late:
            self.resume(request)

    def end_overdue(self, now: float) -> None:
        """Hand back the requests whose time is over, or that are to look again. By the event loop."""
        self._hand_back(lambda place: min(place.until, place.since + _LOOK_SECONDS) <= now)

    def close(self) -> None:
        """Hand all requests back, and park no more."""
        self.is_closed = True
        self._hand_back(lambda place: True)

    def heard(self) -> None:
        """Hand all requests back: something may have changed."""
        with self._lock:
            self._heard += 1
        self._hand_back(lambda place: True)

    def _hand_back(self, is_due: Callable[[Place], bool]) -> None:
        with self._lock:
            due = [request for request, place in self._waiting.items() if is_due(place)]
            for request in due:
                self._keys[self._waiting.pop(request).key] -= 1
        for request in due:
            self.resume(request)

    def _listen(self) -> None:
        last = time.monotonic()
        while True:
            try:
                with self.connect() as connection:
                    connection.execute(f'LISTEN "{CHANNEL}"')
                    self.heard()  # what changed before it was listened to
                    while self._goes_on(last):
                        if self._waiting:
                            last = time.monotonic()
                        for _ in connection.notifies(timeout=_AGAIN_SECONDS, stop_after=1):
                            self.heard()
                    return
            except psycopg.Error as error:
                log.warning("parking_not_listening", error=type(error).__name__)
                time.sleep(_AGAIN_SECONDS)
                if not self._goes_on(last):
                    return

    def _goes_on(self, last: float) -> bool:
        """Return whether the listener is still needed.

        If not, it is forgotten: the next request starts one.
        """
        with self._lock:
            if self._waiting or (time.monotonic() - last < _LINGER_SECONDS and not self.is_closed):
                return True
            self._listener = None
            return False


def place_of(environ: Mapping[str, Any]) -> Place | None:
    """Return the place of a request, None on a server that cannot park it."""
    found = environ.get(ENVIRON)
    return found if isinstance(found, Place) else None


def parked(application: Callable[..., Any]) -> Callable[..., Any]:
    """Return a WSGI application that raises Parked where a view has parked its request."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        found = application(environ, start_response)
        place = place_of(environ)
        if place is not None and place.is_wanted:
            if hasattr(found, "close"):
                found.close()
            raise Parked(place)
        return found

    return answer
