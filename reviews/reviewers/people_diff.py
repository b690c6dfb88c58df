"""The diff of a change for people: also lines around the hunks, and what no model is sent.

The model's window clips hunks, and some files are not sent at all; people read the whole change. It is
redacted by the redactor of the change, after all that the model sees, and bounded by itself (G451).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from criticizer.redaction import RedactionBlocked, Redactor
from reviews.reviewers.chunks import MAX_LINE_CHARS, Chunk
from reviews.sources.base import FileChange
from reviews.sources.diffs import DiffLine, FileDiff, Hunk, render, split_lines

CONTEXT_LINES = 20  # on each side of a hunk
MAX_CHARS = 2_000_000  # of all files
MAX_UNSENT_CHARS = 300_000  # of files that are not sent: lock files hold thousands of hashes


@dataclass(frozen=True, slots=True)
class PeopleHunk:
    """A redacted hunk; `texts` is None where the model is sent the same lines, all of them.

    `old_no` and `new_no` count its first line on each side, `kinds` has one sign a line.
    """

    old_no: int
    new_no: int
    before: tuple[str, ...]
    kinds: str
    texts: tuple[str, ...] | None
    after: tuple[str, ...]


PeopleFile = tuple[PeopleHunk, ...] | None  # None: people see what the model is sent


def for_people_to_read(
    files: Sequence[FileChange], diffs: Sequence[FileDiff], chunks: Iterable[Chunk], redactor: Redactor
) -> tuple[PeopleFile, ...]:
    """Return the hunks of each file for people.

    Files about which redaction is in doubt have none, and neither have files above the bounds.
    """
    hunks = [hunk for chunk in chunks for hunk in chunk.hunks]
    whole, sent = {hunk.name for hunk in hunks if not hunk.is_clipped}, {hunk.file for hunk in hunks}
    found: list[PeopleFile] = [None] * len(files)
    for indexes, room in (
        ([i for i in range(len(files)) if i in sent], MAX_CHARS),
        ([i for i in range(len(files)) if i not in sent], MAX_UNSENT_CHARS),
    ):
        wide: dict[int, tuple[FileDiff, list[tuple[int, int]]]] = {}
        for i in indexes:
            size = sum(len(line.text) for hunk in diffs[i].hunks for line in hunk.lines)
            if diffs[i].hunks and size <= room:
                wide[i] = _widened(diffs[i], split_lines(files[i].new_text or ""))
                room -= sum(len(line.text) for hunk in wide[i][0].hunks for line in hunk.lines)
        for i, redacted in _redacted({i: diff for i, (diff, _) in wide.items()}, redactor):
            found[i] = _hunks(i, diffs[i], redacted, wide[i][1], whole)
    return tuple(found)


def _widened(diff: FileDiff, new: Sequence[str]) -> tuple[FileDiff, list[tuple[int, int]]]:
    """Return a diff with more context, and how many lines each hunk got before and after it."""
    ends = [0, *(_first_line(hunk) - 1 + hunk.new_count for hunk in diff.hunks)]
    starts = [*(_first_line(hunk) - 1 for hunk in diff.hunks), len(new)]
    gaps = [max(0, start - end) for end, start in zip(ends, starts, strict=True)]
    after = [min(CONTEXT_LINES, gap) for gap in gaps]
    after[0] = 0  # no hunk is above the first gap
    before = [min(CONTEXT_LINES, gap - taken) for gap, taken in zip(gaps, after, strict=True)]
    hunks = [
        replace(
            hunk,
            lines=(
                *_context(new, starts[n] - before[n], starts[n]),
                *hunk.lines,
                *_context(new, ends[n + 1], ends[n + 1] + after[n + 1]),
            ),
        )
        for n, hunk in enumerate(diff.hunks)
    ]
    return replace(diff, hunks=tuple(hunks)), [(before[n], after[n + 1]) for n in range(len(hunks))]


def _first_line(hunk: Hunk) -> int:
    """Return the number of the hunk's first line on the new side.

    A hunk whose new side is empty states the number of the line before.
    """
    return hunk.new_start if hunk.new_count else hunk.new_start + 1


def _context(new: Sequence[str], start: int, end: int) -> Iterator[DiffLine]:
    return (DiffLine(" ", new[at].removesuffix("\n"), None, at + 1) for at in range(start, end))


def _redacted(diffs: dict[int, FileDiff], redactor: Redactor) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield the redacted lines of each hunk by file; nothing when redaction is in doubt."""
    rendered = {i: render(diff) for i, diff in diffs.items()}
    try:
        done = redactor.redact_all([one.text for one in rendered.values()])
    except RedactionBlocked:
        return
    for (i, one), clean in zip(rendered.items(), done, strict=True):
        lines = clean.text.split("\n")
        if len(lines) == one.text.count("\n") + 1:
            yield i, [[lines[at][1:] for at in places] for places in one.places]


def _hunks(
    index: int,
    diff: FileDiff,
    redacted: Sequence[Sequence[str]],
    context: Sequence[tuple[int, int]],
    whole: Collection[str],
) -> tuple[PeopleHunk, ...]:
    made = []
    for n, (hunk, lines, (before, after)) in enumerate(zip(diff.hunks, redacted, context, strict=True)):
        shown = tuple(line[:MAX_LINE_CHARS] for line in lines)
        end = len(shown) - after
        made.append(
            PeopleHunk(
                hunk.old_start if hunk.old_count else hunk.old_start + 1,
                _first_line(hunk),
                shown[:before],
                "".join(line.kind for line in hunk.lines),
                None if f"F{index + 1}H{n + 1}" in whole else shown[before:end],
                shown[end:],
            )
        )
    return tuple(made)
