"""A text while it is redacted: its bytes now, and which of them a scan has to read again."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from criticizer.redaction.input.document import MASK
from criticizer.redaction.known_secrets import OwnSecrets
from criticizer.redaction.scan import Find

SEPARATOR: Final = bytes((MASK, 10))  # between sections: a line of no hunk and no key


@dataclass(slots=True)
class Part:
    """One text in work, in sections, with how often each kind was removed from it.

    A diff in which something was found is cut into its hunks: only those that changed are read
    again, for where nothing changed nothing new is found (guarantee G193).
    """

    sections: list[bytes]
    lines: int
    counts: Counter[str] = field(default_factory=Counter)
    unread: Sequence[int] = (0,)  # sections that no scan has read since they changed
    own: OwnSecrets | None = None  # what the last scan knew

    @property
    def data(self) -> bytes:
        return b"".join(self.sections)

    def placed(self, finds: list[Find]) -> list[Find]:
        """Return finds of the unread sections, put together, at their places in all of the text."""
        begins = list(accumulate(map(len, self.sections), initial=0))
        sizes = (len(self.sections[number]) + len(SEPARATOR) for number in self.unread)
        read = list(accumulate(sizes, initial=0))
        shifts = [begins[number] - at for number, at in zip(self.unread, read, strict=False)]
        moved: list[Find] = []
        for find in finds:
            shift = shifts[bisect.bisect_right(read, find.start) - 1]
            moved.append(find._replace(start=find.start + shift, end=find.end + shift))
        return moved

    def rewrite(self, edits: Sequence[tuple[int, int, bytes]]) -> None:
        """Replace bytes by (start, end, new), in order, none across a line."""
        begin = index = 0
        unread = set(self.unread)
        for number, section in enumerate(self.sections):
            out: list[bytes] = []
            at, end = begin, begin + len(section)
            while index < len(edits) and edits[index][0] < end:
                start, stop, new = edits[index]
                out += (section[at - begin : start - begin], new)
                at, index = stop, index + 1
            if out:
                self.sections[number] = b"".join((*out, section[at - begin :]))
                unread.add(number)
            begin = end
        self.unread = sorted(unread)
