"""Parts of a review, and halves of those that a model server cut (guarantee G184)."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from criticizer.redaction import RedactedText
from reviews.reviewers.base import Side
from reviews.reviewers.chunks import NEW_TITLE, OLD_TITLE, Chunk, ShownHunk, ShownLine

# Below this, a request is mostly instructions: half of it is hardly shorter.
MIN_CHARS = 3_000


@dataclass(frozen=True, slots=True)
class Part:
    """Subject of one request: the chunk at `index` of all `chunks` of a review, in pass `turn`."""

    chunks: tuple[Chunk, ...]
    index: int
    turn: int = 1

    @property
    def chunk(self) -> Chunk:
        return self.chunks[self.index]

    @property
    def characters(self) -> int:
        return sum(len(hunk.text) for hunk in self.chunk.hunks) + sum(map(len, self.chunk.context))

    def halves(self) -> tuple[Part, ...]:
        """Return two parts without context in place of this one; none when it cannot be shorter.

        A part that is too short for that only loses its context. Halves depend on the part alone, so that
        another attempt asks the same.
        """
        pieces = _halves(self.chunk)
        chunks = (*self.chunks[: self.index], *pieces, *self.chunks[self.index + 1 :])
        return tuple(Part(chunks, self.index + n, self.turn) for n in range(len(pieces)))


def turned(parts: Sequence[Part], turn: int, wanted: Collection[int]) -> Iterator[Part]:
    """Yield the parts of a further pass, each with its wanted files in another order.

    The order is the same in every attempt.
    """
    for part in parts:
        files = [file for file in part.chunk.files if file in wanted]
        if files:
            random.Random(turn).shuffle(files)  # noqa: S311 - no secret
            hunks = tuple(hunk for file in files for hunk in part.chunk.hunks if hunk.file == file)
            chunk = replace(part.chunk, hunks=hunks)
            yield Part((*part.chunks[: part.index], chunk, *part.chunks[part.index + 1 :]), part.index, turn)


def _halves(chunk: Chunk) -> tuple[Chunk, ...]:
    bare = (Chunk(chunk.hunks),) if chunk.context else ()
    if sum(len(hunk.text) for hunk in chunk.hunks) < MIN_CHARS:
        return bare
    if len(chunk.hunks) == 1:
        return tuple(Chunk((half,)) for half in _halves_of_hunk(chunk.hunks[0])) or bare
    sums = list(accumulate(len(hunk.text) for hunk in chunk.hunks))
    at = min(range(1, len(sums)), key=lambda count: abs(sums[-1] - 2 * sums[count - 1]))
    return Chunk(chunk.hunks[:at]), Chunk(chunk.hunks[at:])


def _halves_of_hunk(hunk: ShownHunk) -> tuple[ShownHunk, ...]:
    """Cut a hunk between two lines of its diff, so that a line stays with its replacement."""
    positions = sorted(line.position for line in hunk.lines)
    middle = positions[len(positions) // 2] if positions else 0
    early = [line for line in hunk.lines if line.position < middle]
    late = [line for line in hunk.lines if line.position >= middle]
    return (_piece(hunk, early), _piece(hunk, late)) if early and late else ()


def _piece(hunk: ShownHunk, lines: Sequence[ShownLine]) -> ShownHunk:
    """Return the hunk with some of its lines, which follow one another on each side."""
    layout, parts = ["{header}"], {"header": hunk.text.lines(1, 1)}
    chosen, rows = set(lines), list(enumerate(hunk.rows(), start=1))
    for side, title in ((Side.NEW, NEW_TITLE), (Side.OLD, OLD_TITLE)):
        own = {n for n, line in enumerate(hunk.lines) if line.side is side and line in chosen}
        if places := [place for place, n in rows if n in own]:
            parts[side.value] = hunk.text.lines(places[0], places[-1])
            layout += [title, f"{{{side.value}}}"]
    return replace(hunk, text=RedactedText.template("\n".join(layout), **parts), lines=tuple(lines))
