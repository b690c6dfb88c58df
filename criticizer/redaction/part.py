"""One text during redaction: its current bytes and the ranges to scan again."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from criticizer.redaction.known_secrets import OwnSecrets

_LINES_AROUND: Final = 6  # of a change, that are read again with it
_BYTES_AROUND: Final = 4_096  # at most, on either side


@dataclass(slots=True)
class Part:
    """One text in progress, with the number of removals of each kind.

    After a removal only the lines around it are read again: the rest did not change, and holds nothing new
    (guarantee G193).
    """

    data: bytes
    lines: int
    counts: Counter[str] = field(default_factory=Counter)
    changed: list[tuple[int, int]] | None = None  # places that changed since the last scan; None: all is new
    own: OwnSecrets | None = None  # those of the last scan
    searched: object = None  # the values for which the present data was searched

    def take_unread(self) -> list[tuple[int, int]]:
        """Return the spans of lines to scan, ordered and not adjacent, and mark them as scanned."""
        if self.changed is None:
            spans = [(0, len(self.data))]
        else:
            spans = []
            for start, end in self.changed:
                begin, stop = self._around(start, end, spans[-1][1] if spans else 0)
                if spans and begin <= spans[-1][1]:
                    begin = spans.pop()[0]
                spans.append((begin, stop))
        self.changed = []
        return spans

    def _around(self, start: int, end: int, done: int) -> tuple[int, int]:
        data, low, high = self.data, max(start - _BYTES_AROUND, 0), min(end + _BYTES_AROUND, len(self.data))
        begin, stop = start, max(end - 1, done - 1)
        for _ in range(_LINES_AROUND + 1):
            if begin <= done or begin < low:
                break
            begin = data.rfind(b"\n", low, begin)
        for _ in range(_LINES_AROUND + 1):
            if not 0 <= stop < high:
                break
            stop = data.find(b"\n", stop + 1, high)
        return max(begin + 1, low), stop + 1 if stop >= 0 else high

    def rewrite(self, edits: Sequence[tuple[int, int, bytes]]) -> None:
        """Apply edits (start, end, new), in order, none of which crosses a line."""
        out: list[bytes] = []
        at = 0
        for start, end, new in edits:
            out += (self.data[at:start], new)
            at = end
        self.data = b"".join((*out, self.data[at:]))
        self.searched = None
        grown = list(accumulate((len(new) - (end - start) for start, end, new in edits), initial=0))
        ends = [end for _, end, _ in edits]
        before = [
            (start + grown[bisect.bisect_right(ends, start)], end + grown[bisect.bisect_right(ends, end)])
            for start, end in self.changed or ()
        ]
        new_spans = [
            (start + shift, start + shift + len(new))
            for (start, _, new), shift in zip(edits, grown, strict=False)
        ]
        self.changed = sorted([*before, *new_spans])
