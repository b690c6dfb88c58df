"""Number of passes over the files of some paths: a second opinion, or more."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.sources.allowlist import parse_line

MAX_PASSES = 8


class Passes:
    """Lines such as `//depot/pay/...=3` in the language of the allow-list.

    The first that matches decides. Raises ValueError, saying what to write instead.
    """

    def __init__(self, lines: Sequence[str] = ()) -> None:
        self._lines = []
        for line in lines:
            pattern, _, count = line.strip().rpartition("=")
            if pattern.startswith("-"):
                raise ValueError(f"{line!r} excludes: write the path and =1 instead")
            if not count.isdecimal() or not 1 <= int(count) <= MAX_PASSES:
                raise ValueError(f"{line!r} does not end in a number of passes, = and 1 to {MAX_PASSES}")
            self._lines.append((parse_line(pattern, case_sensitive=True), int(count)))

    def of(self, path: str) -> int:
        """Return the number of passes for a file."""
        levels = path[2:].split("/")
        return next((count for line, count in self._lines if line.matches(levels)), 1)
