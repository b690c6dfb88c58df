"""Packs redacted hunks into requests that fit a model's window.

All text is redacted already: cutting first could cut a secret in two and hide it from the
rules. The order is deterministic: riskier files first (code, then tests, then documentation),
files of one directory together, hunks in the order of the file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass

from criticizer.redaction import RedactedText
from reviews.reviewers.base import Side
from reviews.sources.base import Action
from reviews.sources.diffs import FileDiff, Hunk, RenderedDiff

CHARS_PER_TOKEN = 2.5  # pessimistic: code was measured at 2.0 to 3.0 characters per token
MAX_LINE_CHARS = 2_000
NEAR_LINES = 3  # a finding counts on lines that are changed or this close to a change
NEW_TITLE, OLD_TITLE = "new:", "old, removed or replaced:"
_OLD_CONTEXT = 1
_SLICE = 100
_RESERVED_CHARS = 200  # titles and marks of clipping

_TESTS = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__|testdata|fixtures)/|(?:^|/)test_|[._-](?:test|spec)s?\.",
    re.IGNORECASE,
)
_DOCUMENTS = re.compile(
    r"\.(?:md|markdown|rst|adoc|txt|html?)$|(?:^|/)(?:docs?|documentation)/", re.IGNORECASE
)


def tokens(text: Sized) -> int:
    """Estimate how many tokens a text costs, rather too many than too few."""
    return int(len(text) / CHARS_PER_TOKEN) + 1


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line as the model sees it, in which quotes are looked up.

    `number` counts on `side`, `position` in the hunk as a diff writes it, both sides together.
    """

    side: Side
    number: int
    kind: str  # ' ', '+' or '-'
    text: str
    is_near_change: bool
    position: int = 0

    def stands_in(self, row: str) -> bool:
        """Return whether a row of a hunk's text shows this line."""
        mark = f"{self.number:>5} {self.kind}" if self.side is Side.NEW else self.kind
        return row.startswith(f"{mark}{self.text}")


@dataclass(frozen=True, slots=True)
class ShownHunk:
    """One hunk ready for a request. `name` is its id, `F2H3`; `is_clipped`: lines are missing."""

    name: str
    file: int  # index in the change
    text: RedactedText
    lines: tuple[ShownLine, ...]
    is_clipped: bool = False

    def rows(self) -> Iterator[int | None]:
        """Yield, for each row of the text, the index of its line; None for a title."""
        at = 0
        for row in self.text.text.split("\n"):
            if at < len(self.lines) and self.lines[at].stands_in(row):
                yield at
                at += 1
            else:
                yield None


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """The beginning of a definition that a part's added lines use, itself not under review.

    `name` is its id in the part, `C1`; `text` has its place in the first line; `symbol` is empty where
    redaction removed it.
    """

    name: str
    path: str
    symbol: str
    text: RedactedText

    @property
    def shown(self) -> RedactedText:
        """Return the text with the block's id before it."""
        return RedactedText.template(f"[{self.name}] {{text}}", text=self.text)

    def __len__(self) -> int:
        """Return the number of characters of `shown`."""
        return len("[] ") + len(self.name) + len(self.text)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Hunks that go to the model in one request, with definitions that they use.

    `reported` has a line for each result of a linter about its files.
    """

    hunks: tuple[ShownHunk, ...]
    context: tuple[ContextBlock, ...] = ()
    reported: tuple[RedactedText, ...] = ()

    @property
    def files(self) -> tuple[int, ...]:
        """Return the indexes of its files, in the order shown."""
        return tuple(dict.fromkeys(hunk.file for hunk in self.hunks))


def review_order(paths: Sequence[str]) -> list[int]:
    """Return the indexes of the paths, largest risk first and directories together."""
    return sorted(
        range(len(paths)), key=lambda i: (path_rank(paths[i]), posixpath.dirname(paths[i]), paths[i])
    )


def path_rank(path: str) -> int:
    """Return the kind of a file by its path: 0 code, 1 test, 2 documentation."""
    if _TESTS.search(path):
        return 1
    return 2 if _DOCUMENTS.search(path) else 0


def pack(
    diffs: Sequence[FileDiff],
    rendered: Sequence[RenderedDiff | None],
    redacted: Sequence[RedactedText | None],
    file_tokens: Sequence[int],
    budget_tokens: int,
    most_tokens: int = 0,
) -> Iterator[Chunk]:
    """Yield chunks of at most `budget_tokens` each; a longer hunk has one of its own.

    Such a hunk is clipped at `most_tokens`. The sequences have one entry per file of the change:
    `redacted[i]` is `rendered[i].text` after redaction, None where there is nothing to show;
    `file_tokens[i]` is the cost of naming the file in each chunk with a part of it. Lazy: a caller that stops
    early does not pay for the rest.
    """
    most_tokens = max(most_tokens, budget_tokens)
    waiting: list[ShownHunk] = []
    used = 0
    named = -1  # the file that the waiting hunks named last
    for index in review_order([diff.path for diff in diffs]):
        text, places = redacted[index], rendered[index]
        if text is None or places is None:
            continue
        for hunk in _shown_hunks(index, diffs[index], places, text, most_tokens - file_tokens[index]):
            cost = tokens(hunk.text)
            naming = 0 if named == index else file_tokens[index]
            if waiting and used + cost + naming > budget_tokens:
                yield Chunk(tuple(waiting))
                waiting, used, naming = [], 0, file_tokens[index]
            waiting.append(hunk)
            used += cost + naming
            named = index
    if waiting:
        yield Chunk(tuple(waiting))


def units_in(chunks: Iterable[Chunk], file_tokens: Sequence[int], budget_tokens: int) -> list[Chunk]:
    """Return the hunks of packed chunks by file, in groups where a file is over the budget."""
    of_file: dict[int, list[list[ShownHunk]]] = {}
    for hunk in (hunk for chunk in chunks for hunk in chunk.hunks):
        groups = of_file.setdefault(hunk.file, [[]])
        used = file_tokens[hunk.file] + sum(tokens(other.text) for other in groups[-1])
        if groups[-1] and used + tokens(hunk.text) > budget_tokens:
            groups.append([])
        groups[-1].append(hunk)
    return [Chunk(tuple(group)) for groups in of_file.values() for group in groups]


def _shown_hunks(
    index: int, diff: FileDiff, rendered: RenderedDiff, text: RedactedText, budget_tokens: int
) -> Iterator[ShownHunk]:
    lines = _Lines(text)
    what = " new file" if diff.action is Action.ADD else ""
    places = zip(diff.hunks, rendered.headers, rendered.places, strict=True)
    for number, (hunk, header_at, lines_at) in enumerate(places, start=1):
        name, header = f"F{index + 1}H{number}", lines[header_at]
        head = f"[{name}]{what} "
        room = int((budget_tokens - 1) * CHARS_PER_TOKEN) - len(head) - len(header) - _RESERVED_CHARS
        page = _Page(room, [head + "{header}"], {"header": header})
        shown = tuple(_written(page, hunk, lines, lines_at))
        whole = RedactedText.template("\n".join(page.layout), **page.parts)
        yield ShownHunk(name, index, whole, shown, page.is_clipped)


class _Lines:
    """Lines of a redacted text, cut from slices: cutting each from the whole is quadratic."""

    def __init__(self, text: RedactedText) -> None:
        self._text = text
        self._slice_number = -1
        self._slice = text

    def __getitem__(self, index: int) -> RedactedText:
        number, within = divmod(index, _SLICE)
        if number != self._slice_number:
            first = number * _SLICE
            self._slice = self._text.lines(first + 1, first + _SLICE)
            self._slice_number = number
        return self._slice.lines(within + 1, within + 1)


@dataclass(slots=True)
class _Page:
    """A hunk's text while it is written: a format of our own literals, and its values."""

    room: int  # characters
    layout: list[str]
    parts: dict[str, RedactedText]
    is_clipped: bool = False

    def add(self, prefix: str, line: RedactedText) -> RedactedText | None:
        """Write a line after a literal of ours; return it as shown, None if it does not fit."""
        shown = line.truncated(MAX_LINE_CHARS) if len(line) > MAX_LINE_CHARS else line
        mark = " [... line clipped]" if len(line) > MAX_LINE_CHARS else ""
        cost = len(prefix) + len(shown) + len(mark) + 1
        if cost > self.room:
            self.is_clipped = True
            return None
        self.is_clipped = self.is_clipped or bool(mark)
        self.room -= cost
        name = f"l{len(self.parts)}"
        self.parts[name] = shown
        self.layout.append(f"{prefix}{{{name}}}{mark}")
        return shown


def _written(page: _Page, hunk: Hunk, lines: _Lines, places: Sequence[int]) -> Iterator[ShownLine]:
    """Write both sides of a hunk, as far as there is room; yield the lines shown."""
    near = _near_changes(hunk)
    for side, title, positions in (
        (Side.NEW, NEW_TITLE, [k for k, line in enumerate(hunk.lines) if line.kind != "-"]),
        (Side.OLD, OLD_TITLE, _old_positions(hunk)),
    ):
        if positions:
            page.layout.append(title)
        for done, k in enumerate(positions):
            line = hunk.lines[k]
            number = (line.new_no if side is Side.NEW else line.old_no) or 0
            # The cut-out line starts with the diff's own mark, so only the number is put before it.
            written = page.add(f"{number:>5} " if side is Side.NEW else "", lines[places[k]])
            if written is None:
                page.layout.append(f"[... clipped here: {len(positions) - done} more lines are not shown]")
                break
            yield ShownLine(side, number, line.kind, written.text.removeprefix(line.kind), near[k], k)


def _near_changes(hunk: Hunk) -> list[bool]:
    near = [False] * len(hunk.lines)
    for k, line in enumerate(hunk.lines):
        if line.kind != " ":
            for other in range(max(0, k - NEAR_LINES), min(len(near), k + NEAR_LINES + 1)):
                near[other] = True
    return near


def _old_positions(hunk: Hunk) -> list[int]:
    """Return the positions of removed lines, each run with a line of context."""
    old_side = [k for k, line in enumerate(hunk.lines) if line.kind != "+"]
    wanted: set[int] = set()
    for at, k in enumerate(old_side):
        if hunk.lines[k].kind == "-":
            wanted.update(old_side[max(0, at - _OLD_CONTEXT) : at + _OLD_CONTEXT + 1])
    return sorted(wanted)
