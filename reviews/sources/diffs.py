r"""Line diffs of fetched files, computed here and nowhere else.

Pure functions over `FileChange`. Line numbers are exact on both sides, because findings are
anchored to them. Lines end at `\n` only: a form feed or a Unicode line separator inside a line
must not shift the numbers.

The matcher is difflib behind two guards. Common head and tail are trimmed, and large regions
are first split at lines that occur once on both sides: difflib alone is quadratic on a file
where every other line changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from reviews.sources.base import Action, FileChange, SkipReason

MAX_LINES_PER_SIDE = 20_000
MAX_BYTES_PER_SIDE = 1_000_000
CONTEXT_LINES = 3
ENCLOSING_LINES = 10
NO_NEWLINE = "\\ No newline at end of file"

# Upper bound of difflib's inner steps for one region (about a second on a slow core).
_MAX_MATCHER_STEPS = 10_000_000
_MAX_SECTION_CHARS = 200

Block = tuple[int, int, int]  # old index, new index, length: this run of lines is equal


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a hunk.

    `kind` is ' ', '+' or '-'; numbers count from 1, None on the absent side.
    """

    kind: str
    text: str
    old_no: int | None
    new_no: int | None
    ends: bool = True  # False: the file stops here without a newline


@dataclass(frozen=True, slots=True)
class Hunk:
    """Neighbouring changed lines with their context.

    `section` names the definitions they are in.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[DiffLine, ...]
    section: str = ""

    @property
    def header(self) -> str:
        tail = f" {self.section}" if self.section else ""
        return f"@@ -{self.old_start},{self.old_count} +{self.new_start},{self.new_count} @@{tail}"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """Changes of one file. No hunks when `skipped`, `too_large`, or the content is equal."""

    path: str
    action: Action
    old_path: str | None = None
    hunks: tuple[Hunk, ...] = ()
    skipped: SkipReason | None = None
    too_large: bool = False

    def added(self) -> Iterator[DiffLine]:
        """Yield the added lines in order."""
        return (line for hunk in self.hunks for line in hunk.lines if line.kind == "+")


@dataclass(frozen=True, slots=True)
class RenderedDiff:
    r"""Unified diff text of one file, and the place of each hunk's lines in it.

    `places[i][k]` is the zero-based index, among the text's `\n`-separated lines, of line `k`
    of hunk `i`; `headers[i]` that of its `@@` line. Redaction keeps the line count, so the
    same indexes hold for the redacted text.
    """

    text: str
    headers: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]


def diff_file(file: FileChange, section_at: Callable[[int], str] | None = None) -> FileDiff:
    """Return the hunks between both sides of a file.

    `CONTEXT_LINES` lines surround each change; a hunk is extended upward by at most `ENCLOSING_LINES`
    lines when that reaches the definition it lies in. `section_at` returns the section of a hunk that
    starts at a line of the new side; without it, lines that start in the first column decide. A side
    above `MAX_LINES_PER_SIDE` or `MAX_BYTES_PER_SIDE` gives a `too_large` result without hunks.
    """
    base = FileDiff(path=file.path, action=file.action, old_path=file.old_path, skipped=file.skipped)
    if file.skipped is not None:
        return base
    old_text, new_text = file.old_text or "", file.new_text or ""
    if _is_too_large(old_text) or _is_too_large(new_text):
        return not_compared(file)
    old, new = split_lines(old_text), split_lines(new_text)
    hunks = _hunks(old, new, _equal_blocks(old, new))
    if section_at is not None:
        hunks = (replace(hunk, section=_one_line(section_at(hunk.new_start))) for hunk in hunks)
    return replace(base, hunks=tuple(hunks))


def not_compared(file: FileChange) -> FileDiff:
    """Return the result of a file that is too large to compare."""
    return FileDiff(
        path=file.path,
        action=file.action,
        old_path=file.old_path,
        skipped=file.skipped,
        too_large=file.skipped is None,
    )


def split_lines(text: str) -> list[str]:
    """Split at `\\n` only and keep the line ends, so that a missing last one is visible."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    if not lines[-1]:
        lines.pop()
    return lines


def render(diff: FileDiff) -> RenderedDiff:
    """Write a file's hunks as unified diff text, one output line per diff line."""
    old_name = diff.old_path or diff.path
    out = [
        "--- " + ("/dev/null" if diff.action is Action.ADD else _one_line(old_name)),
        "+++ " + ("/dev/null" if diff.action is Action.DELETE else _one_line(diff.path)),
    ]
    headers: list[int] = []
    places: list[tuple[int, ...]] = []
    for hunk in diff.hunks:
        headers.append(len(out))
        out.append(hunk.header)
        indexes = []
        for line in hunk.lines:
            indexes.append(len(out))
            out.append(line.kind + line.text)
            if not line.ends:
                out.append(NO_NEWLINE)
        places.append(tuple(indexes))
    return RenderedDiff("\n".join(out) + "\n", tuple(headers), tuple(places))


def _one_line(name: str) -> str:
    return name.replace("\n", " ").replace("\r", " ")


def _is_too_large(text: str) -> bool:
    # The character count bounds the byte count from below, so the encoding is rarely made.
    if len(text) > MAX_BYTES_PER_SIDE or text.count("\n") > MAX_LINES_PER_SIDE:
        return True
    return len(text) * 4 > MAX_BYTES_PER_SIDE and len(text.encode(errors="replace")) > MAX_BYTES_PER_SIDE


def _equal_blocks(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    """Return the equal runs of two line lists in ascending order, adjacent runs joined."""
    head, tail = 0, 0
    shortest = min(len(old), len(new))
    while head < shortest and old[head] == new[head]:
        head += 1
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    blocks: list[Block] = [(0, 0, head)]
    blocks += _match(old, new, head, len(old) - tail, head, len(new) - tail)
    blocks.append((len(old) - tail, len(new) - tail, tail))
    return _joined(blocks)


def _match(old: Sequence[str], new: Sequence[str], i1: int, i2: int, j1: int, j2: int) -> list[Block]:
    if i1 >= i2 or j1 >= j2:
        return []
    if _matcher_steps(old[i1:i2], new[j1:j2]) <= _MAX_MATCHER_STEPS:
        return _match_directly(old, new, i1, i2, j1, j2)
    blocks: list[Block] = []
    at_old, at_new = i1, j1
    anchors = [(i1 + i, j1 + j) for i, j in unique_anchors(old[i1:i2], new[j1:j2])]
    for i, j in [*anchors, (i2, j2)]:
        # A region that is still too expensive after the split is shown as replaced.
        if _matcher_steps(old[at_old:i], new[at_new:j]) <= _MAX_MATCHER_STEPS:
            blocks += _match_directly(old, new, at_old, i, at_new, j)
        if i < i2:
            blocks.append((i, j, 1))
        at_old, at_new = i + 1, j + 1
    return blocks


def _match_directly(
    old: Sequence[str], new: Sequence[str], i1: int, i2: int, j1: int, j2: int
) -> list[Block]:
    if i1 >= i2 or j1 >= j2:
        return []
    matcher = SequenceMatcher(None, old[i1:i2], new[j1:j2], autojunk=False)
    return [(i1 + m.a, j1 + m.b, m.size) for m in matcher.get_matching_blocks() if m.size]


def _matcher_steps(old: Sequence[str], new: Sequence[str]) -> int:
    """Bound difflib's work: pairs of equal lines, times the number of blocks it may find."""
    if not old or not new:
        return 0
    in_new = Counter(new)
    pairs = sum(count * in_new[line] for line, count in Counter(old).items() if line in in_new)
    return (pairs + len(old)) * min(len(old), len(new), pairs + 1)


def unique_anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the longest ascending chain of lines that occur exactly once on both sides.

    As pairs of indexes.
    """
    old_counts, new_counts = Counter(old), Counter(new)
    where = {line: j for j, line in enumerate(new) if new_counts[line] == 1}
    pairs = [(i, where[line]) for i, line in enumerate(old) if old_counts[line] == 1 and line in where]
    tails: list[int] = []  # smallest last new index of a chain of each length
    tail_pairs: list[int] = []
    previous: list[int] = [-1] * len(pairs)
    for index, (_, j) in enumerate(pairs):
        at = bisect_left(tails, j)
        previous[index] = tail_pairs[at - 1] if at else -1
        tails[at : at + 1] = [j]
        tail_pairs[at : at + 1] = [index]
    chain: list[tuple[int, int]] = []
    index = tail_pairs[-1] if tail_pairs else -1
    while index >= 0:
        chain.append(pairs[index])
        index = previous[index]
    return chain[::-1]


def _joined(blocks: Sequence[Block]) -> list[Block]:
    joined: list[Block] = []
    for i, j, size in blocks:
        if not size:
            continue
        if joined and joined[-1][0] + joined[-1][2] == i and joined[-1][1] + joined[-1][2] == j:
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + size)
        else:
            joined.append((i, j, size))
    return joined


def _rows(old: Sequence[str], new: Sequence[str], blocks: Sequence[Block]) -> list[DiffLine]:
    """Write the whole file as diff lines: removed before added, as readers expect."""
    rows: list[DiffLine] = []
    at_old = at_new = 0
    for i, j, size in [*blocks, (len(old), len(new), 0)]:
        rows += [_line("-", old[k], k + 1, None) for k in range(at_old, i)]
        rows += [_line("+", new[k], None, k + 1) for k in range(at_new, j)]
        rows += [_line(" ", new[j + k], i + k + 1, j + k + 1) for k in range(size)]
        at_old, at_new = i + size, j + size
    return rows


def _line(kind: str, raw: str, old_no: int | None, new_no: int | None) -> DiffLine:
    ends = raw.endswith("\n")
    return DiffLine(kind, raw[:-1] if ends else raw, old_no, new_no, ends)


def _hunks(old: Sequence[str], new: Sequence[str], blocks: Sequence[Block]) -> Iterator[Hunk]:
    rows = _rows(old, new, blocks)
    ranges: list[tuple[int, int]] = []
    for index, row in enumerate(rows):
        if row.kind == " ":
            continue
        start, end = max(0, index - CONTEXT_LINES), min(len(rows), index + CONTEXT_LINES + 1)
        if not ranges or start > ranges[-1][1]:
            start = _start_of_definition(rows, start)
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
    old_seen = new_seen = done = 0
    section = ""
    for start, end in ranges:
        for row in rows[done:start]:
            old_seen += row.kind != "+"
            new_seen += row.kind != "-"
            section = row.text if _opens_section(row) else section
        lines = tuple(rows[start:end])
        old_count = sum(row.kind != "+" for row in lines)
        new_count = sum(row.kind != "-" for row in lines)
        yield Hunk(
            # As diff does: an empty side names the line before it.
            old_start=old_seen + (1 if old_count else 0),
            old_count=old_count,
            new_start=new_seen + (1 if new_count else 0),
            new_count=new_count,
            lines=lines,
            section=_one_line(section).rstrip(),
        )
        old_seen, new_seen = old_seen + old_count, new_seen + new_count
        section = next((row.text for row in reversed(lines) if _opens_section(row)), section)
        done = end


def _opens_section(row: DiffLine) -> bool:
    """Return whether a line looks like the head of a definition: it starts in the first column."""
    # Do not truncate: the redaction rules would not recognise half a secret.
    is_head = bool(row.text) and (row.text[0].isalpha() or row.text[0] in "_$")
    return is_head and row.kind != "-" and len(row.text) <= _MAX_SECTION_CHARS


def _start_of_definition(rows: Sequence[DiffLine], start: int) -> int:
    for index in range(start, max(-1, start - ENCLOSING_LINES - 1), -1):
        if index < len(rows) and rows[index].kind != " ":
            break
        if index < len(rows) and _opens_section(rows[index]):
            return index
    return start
