"""Facts of one source file in the terms of claims: names, defaults, routes and symbols."""

from __future__ import annotations

import re
from typing import NamedTuple

ANY_METHOD = ""
_READ = re.compile(
    r"[\"'`]([A-Z][A-Z0-9_]+)[\"'`]|\benv\.([A-Z][A-Z0-9_]+)|\$\{?([A-Z][A-Z0-9_]+)|%([A-Z][A-Z0-9_]+)%"
    r"|^\s*(?:export\s+|ENV\s+|ARG\s+|-\s+|set\s+)?#?\s*([A-Z][A-Z0-9_]+)\s*[=:]",
    re.MULTILINE,
)


class Route(NamedTuple):
    method: str  # "" is any
    path: str


class Code(NamedTuple):
    """Facts of one file. `symbols`: None where it is no module that can be imported from.

    `is_open`: it defines more than can be read, such as by `import *`.
    """

    reads: frozenset[str] = frozenset()
    defaults: tuple[tuple[str, str | None], ...] = ()  # None: there is no literal
    routes: tuple[Route, ...] = ()
    is_dynamic: bool = False  # it registers routes that cannot be read
    symbols: frozenset[str] | None = None
    is_open: bool = False


def names_read(text: str) -> frozenset[str]:
    """Return the names in capitals that a text may read from its environment."""
    return frozenset(name for groups in _READ.findall(text) for name in groups if name)
