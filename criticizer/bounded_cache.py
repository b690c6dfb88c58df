"""A cache of one process, bounded by the size of what it holds, for threads of a web server."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by a key that stands for all they were made of; the longest unused ones go first.

    `room` is counted in what the callers count, such as characters.
    """

    def __init__(self, room: int) -> None:
        self._room, self._used = room, 0
        self._held: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value, unless it would take more than a quarter of the room."""
        with self._lock:
            if key in self._held or size > self._room // 4:
                return
            self._held[key] = value, size
            self._used += size
            while self._used > self._room:
                _, (_, freed) = self._held.popitem(last=False)
                self._used -= freed

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._used = 0
