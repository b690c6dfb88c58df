"""Credentials that are read at each use and never printed (guarantee G106)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, overload

from criticizer.redaction import register_own_secrets

_MAX_TICKETS_BYTES = 65_536
_TICKET = re.compile(r":([0-9A-F]{16,64})\s*$", re.MULTILINE)


class Secret(Sequence[str]):
    """The values of one credential in the order in which they are tried, read at each use.

    It holds no value: its text has the name only, and it cannot be copied or pickled. The filters of logs,
    pages and texts know a value before it is returned, also one that was written to its file since the start.
    """

    __slots__ = ("_known_as", "_name", "_read")

    def __init__(
        self, name: str, read: Callable[[], Iterable[str]], known_as: Callable[[str], str] = str
    ) -> None:
        """Keep the function that returns the values, and that for the secret part of a value.

        `read` raises ImproperlyConfigured, without a value.
        """
        self._name, self._read, self._known_as = name, read, known_as

    def secret_parts(self) -> list[str]:
        """Return the texts that the filters remove."""
        return [self._known_as(value) for value in self._read() if value]

    def _values(self) -> list[str]:
        # Read once: the next time there may be others.
        values: list[str] = [_Value(value) for value in self._read() if value]
        register_own_secrets(map(self._known_as, values))
        return values

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._values()[index]

    def __len__(self) -> int:
        return len(self._values())

    def __iter__(self) -> Any:
        return iter(self._values())

    def __repr__(self) -> str:
        return f"<secret {self._name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be copied or pickled")


class _Value(str):
    """A value in use, hidden in tracebacks that show local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be copied or pickled")


def tickets_in(file: Path) -> list[str]:
    """Return the tickets in a file of `p4 login`; none if it cannot be read.

    The source reports such a file.
    """
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            return _TICKET.findall(lines.read(_MAX_TICKETS_BYTES))
    except OSError:
        return []
