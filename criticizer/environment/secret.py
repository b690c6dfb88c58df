"""Credentials that are read when they are used, and shown by nothing that prints them (guarantee G106)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, overload

from criticizer.redaction import register_own_secrets

_MAX_TICKETS_BYTES = 65_536
_TICKET = re.compile(r":([0-9A-F]{16,64})\s*$", re.MULTILINE)


class Secret(Sequence[str]):
    """The values of one credential, the first tried first, read from their source at each use.

    Holds none of them: text, copies and pickles of it have its name only. The filters of logs, pages and
    texts know a value before it is handed out, also one that came into its file since the start.
    """

    __slots__ = ("_known_as", "_name", "_read")

    def __init__(
        self, name: str, read: Callable[[], Iterable[str]], known_as: Callable[[str], str] = str
    ) -> None:
        """`read` raises ImproperlyConfigured, without a value; `known_as`: the secret part of a value."""
        self._name, self._read, self._known_as = name, read, known_as

    def secret_parts(self) -> list[str]:
        """Return what the filters have to know."""
        return [self._known_as(value) for value in self._read() if value]

    def _values(self) -> list[str]:
        # Once: the next may be another one.
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
    """A value in use, which a list of local variables does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be copied or pickled")


def tickets_in(file: Path) -> list[str]:
    """Return the tickets in a file of `p4 login`; none if it cannot be read, which the source reports."""
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            return _TICKET.findall(lines.read(_MAX_TICKETS_BYTES))
    except OSError:
        return []
