"""Context of a part: the beginnings of definitions that its added lines use.

    added lines ─► names ─► definitions in changed files, then in files read for it (`sources.context_files`)
                ─► ranked by rarity and nearness ─► blocks of a few lines, cut from redacted text

Context is not under review: it is evidence, never the place of a finding.
"""

from __future__ import annotations

import posixpath
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from criticizer.redaction import RedactedText
from reviews.reviewers.base import Side
from reviews.reviewers.chunks import Chunk, ContextBlock, tokens
from reviews.reviewers.outline import Definition, enclosing, outline
from reviews.sources.base import Change, FileChange
from reviews.sources.content import generated_reason
from reviews.sources.diffs import FileDiff
from reviews.sources.names import MAX_FILES_OF_A_NAME, names_in

MAX_BLOCK_LINES = 12
SHORT_BLOCK_LINES = 5  # where not all definitions fit
MAX_COMMENT_LINES = 4  # of them
MAX_LINE_CHARS = 200
MAX_PATH_CHARS = 400
MAX_HEADS = 3
MAX_BLOCKS_OF_A_NAME = 2  # the further ones that the change itself holds come last
MAX_DEFINITIONS_OF_A_NAME = 8  # a name that is defined more often says nothing
MAX_BLOCKS = 120  # of a part
MAX_BLOCKS_FROM_REPOSITORY = 60  # of a part
MAX_MISSES = 60  # definitions that did not fit in a part, after which no further one is tried
MAX_TEXT_CHARS = 1_500_000  # of the files that blocks are cut from, which are redacted as a whole
NEEDED = 0.9  # of the context for a unit's hunks: ids and names differ from request to request
LEAST_NEEDED_TOKENS = 200  # a definition or two
OUTLINE_SECONDS = 3.0  # of the processor, for all files of a change


@dataclass(frozen=True, slots=True)
class Lead:
    """A definition that may be shown, and the hunks that use its name: (file, number from 1).

    `file` is its file's index in the change, None for a file that the change does not touch.
    """

    path: str
    file: int | None
    definition: Definition
    hunks: frozenset[tuple[int, int]]


Outlines = Mapping[str, Sequence[Definition]]


def outlines_of(change: Change) -> Outlines:
    """Return the definitions in the new side of each file, by path.

    Files that are not reached in OUTLINE_SECONDS have none.
    """
    until = time.thread_time() + OUTLINE_SECONDS
    texts = {file.path: file.new_text for file in change.files if file.new_text and not file.generated}
    touched = {path for file in change.files for path in (file.path, file.old_path)}
    texts |= {
        extra.path: extra.text
        for extra in change.context
        if extra.path not in touched and not generated_reason(extra.path, extra.text)
    }
    found = {}
    for path, text in texts.items():
        defined = outline(path, text) if time.thread_time() < until else None
        if defined is not None:
            found[path] = defined
    return found


def leads_of(
    change: Change, diffs: Sequence[FileDiff], outlines: Outlines, shown: Sequence[bool]
) -> list[Lead]:
    """Return the definitions that the shown hunks use, best first. `shown[i]`: file `i` is sent."""
    users: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for index, diff in enumerate(diffs):
        for number, hunk in enumerate(diff.hunks if shown[index] else (), start=1):
            for name in names_in(diff.path, (line.text for line in hunk.lines if line.kind == "+")):
                users[name].add((index, number))
    spread = Counter(
        name
        for file in change.files
        if file.new_text
        for name in names_in(file.path, file.new_text.split("\n"))
    )
    places: dict[str, list[tuple[str, int | None, Definition]]] = defaultdict(list)
    own = {file.path: index if shown[index] else -1 for index, file in enumerate(change.files)}
    wanted = {extra.path: extra.names for extra in change.context}
    for path, defined in outlines.items():
        file = own.get(path)
        for one in defined if file != -1 else ():
            if one.name in users and (file is not None or not wanted[path] or one.name in wanted[path]):
                places[one.name].append((path, file, one))
    ranked: list[tuple[tuple[int, ...], Lead]] = []
    for name, defined_at in places.items():
        if len(defined_at) > MAX_DEFINITIONS_OF_A_NAME or spread[name] > MAX_FILES_OF_A_NAME:
            continue
        # One set for all: thousands of files that define and use the same names took gigabytes.
        hunks = frozenset(users[name])
        leads = [Lead(path, file, one, hunks) for path, file, one in defined_at]
        by_nearness = sorted((_steps(lead, change.files), number) for number, lead in enumerate(leads))
        for rank, (steps, number) in enumerate(by_nearness):
            lead = leads[number]
            is_further = rank >= MAX_BLOCKS_OF_A_NAME
            # The change's own definitions all stay: a request may show any as hunks, so keys know all (G360).
            if lead.file is not None or not is_further:
                ranked.append(((is_further, *steps[:1], spread[name], *steps[1:], -len(lead.hunks)), lead))
    ranked.sort(key=lambda one: (one[0], one[1].path, one[1].definition.first))
    return [lead for _, lead in ranked]


def _steps(lead: Lead, files: Sequence[FileChange]) -> tuple[int, int]:
    """Return whether a definition is outside the change, and the folders to its nearest user."""
    own = lead.path.split("/")[:-1]
    steps = []
    for index in {index for index, _ in lead.hunks}:
        other = files[index].path.split("/")[:-1]
        steps.append(len(own) + len(other) - 2 * len(posixpath.commonprefix([own, other])))
    return int(lead.file is None), min(steps)


def texts_of(leads: Sequence[Lead], change: Change) -> dict[str, str]:
    """Return the whole texts from which the leads are cut, by path, up to MAX_TEXT_CHARS."""
    raw = {file.path: file.new_text or "" for file in change.files}
    raw |= {extra.path: extra.text for extra in change.context}
    texts: dict[str, str] = {}
    room = MAX_TEXT_CHARS
    for path in dict.fromkeys(lead.path for lead in leads):
        if len(raw[path]) <= room:
            texts[path] = raw[path]
            room -= len(raw[path])
    return texts


@dataclass(frozen=True, slots=True)
class Library:
    """Definitions that may be shown, best first, and redacted paths and texts of their files."""

    leads: Sequence[Lead]
    texts: Mapping[str, tuple[RedactedText, RedactedText]]
    outlines: Outlines

    def beside(
        self, chunk: Chunk, budget_tokens: int, needed: Mapping[str, int] = MappingProxyType({})
    ) -> Chunk:
        """Return a part with the best of its definitions that fit in the budget.

        `needed` has the rank of the places whose definitions come before all others.
        """
        own = {(hunk.file, int(hunk.name.rpartition("H")[2])) for hunk in chunk.hunks}
        visible = {
            (hunk.file, line.number) for hunk in chunk.hunks for line in hunk.lines if line.side is Side.NEW
        }
        wanted = [
            lead
            for lead in self.leads
            if lead.hunks & own
            and lead.path in self.texts
            # Otherwise its hunk is in this part.
            and (lead.file is None or (lead.file, lead.definition.head) not in visible)
        ]
        if needed:
            shown_as = {path: text.truncated(MAX_PATH_CHARS).text for path, (text, _) in self.texts.items()}
            wanted.sort(
                key=lambda lead: needed.get(f"{shown_as[lead.path]}:{lead.definition.head}", len(needed))
            )
        blocks, is_full = self._blocks(wanted, budget_tokens, MAX_BLOCK_LINES)
        if is_full:  # the beginnings of more definitions tell more
            blocks = max(blocks, self._blocks(wanted, budget_tokens, SHORT_BLOCK_LINES)[0], key=len)
        return Chunk(chunk.hunks, tuple(blocks))

    def _blocks(
        self, leads: Sequence[Lead], budget_tokens: int, max_lines: int
    ) -> tuple[list[ContextBlock], bool]:
        """Return blocks within the budget, and whether one did not fit."""
        blocks: list[ContextBlock] = []
        elsewhere = misses = 0
        for lead in leads:
            if len(blocks) == MAX_BLOCKS or misses == MAX_MISSES:
                break
            if lead.file is None and elsewhere == MAX_BLOCKS_FROM_REPOSITORY:
                continue
            block = self._block(f"C{len(blocks) + 1}", lead, max_lines)
            cost = tokens(block) + 1
            if cost <= budget_tokens:
                budget_tokens -= cost
                blocks.append(block)
                elsewhere += lead.file is None
            else:
                misses += 1
        return blocks, misses > 0

    def _block(self, name: str, lead: Lead, max_lines: int) -> ContextBlock:
        """Return the first lines of a definition and its comment, under the heads around it."""
        definition, (path, text) = lead.definition, self.texts[lead.path]
        around = enclosing(self.outlines[lead.path], definition.head)
        comment = range(definition.comment, definition.first)[: min(MAX_COMMENT_LINES, max_lines // 3)]
        last = min(definition.last, definition.first + max_lines - len(comment) - 1)
        heads = [outer.head for outer in around if outer.head < definition.first]
        numbers = sorted({*heads[-MAX_HEADS:], *comment, *range(definition.first, last + 1)})
        whole = text.lines(numbers[0], last)
        layout = [f"{{path}}:{definition.head}"]
        parts = {"path": path.truncated(MAX_PATH_CHARS)}
        for number in numbers:
            at = number - numbers[0] + 1
            parts[f"l{number}"] = whole.lines(at, at).truncated(MAX_LINE_CHARS)
            layout.append(f"{number:>5}  {{l{number}}}")
        if last < definition.last:
            layout.append(f"[... {definition.last - last} more lines]")
        shown = RedactedText.template("\n".join(layout), **parts)
        return ContextBlock(name, lead.path, definition.name if definition.name in shown.text else "", shown)


def needed_in(
    chunks: Sequence[Chunk], units: Sequence[Chunk], rooms: Sequence[int], share: float
) -> Iterator[dict[str, int]]:
    """Yield, for each chunk, the places that its units need, with the rank of each.

    Places of rank 0 fit in every request; 1 is the rest. `rooms` has the `room` of `needed_of` for each unit.
    """
    needed: dict[str, dict[str, int]] = {}
    for unit, room in zip(units, rooms, strict=True):
        entitled = len(best_of(unit, min(room, _entitled(unit, share))))
        places = {place_of(b): int(n >= entitled) for n, b in enumerate(needed_of(unit, room, share))}
        needed |= {hunk.name: places for hunk in unit.hunks}
    for chunk in chunks:
        found: dict[str, int] = {}
        for hunk in chunk.hunks:
            for place, rank in needed[hunk.name].items():
                found[place] = min(rank, found.get(place, rank))
        yield found


def needed_of(unit: Chunk, room: int, share: float) -> tuple[ContextBlock, ...]:
    """Return the best of a unit's context: an answer without it is not kept.

    `room` is the number of tokens that the unit leaves in a request, `share` the part of a full request that
    is for context.
    """
    return best_of(unit, min(room, max(_entitled(unit, share), LEAST_NEEDED_TOKENS)))


def _entitled(unit: Chunk, share: float) -> int:
    """Return how many tokens of context a full request always has for a unit of this length."""
    return int(NEEDED * share / (1 - share) * sum(tokens(hunk.text) for hunk in unit.hunks))


def best_of(unit: Chunk, room: int) -> tuple[ContextBlock, ...]:
    """Return the best of a unit's context that fits in so many tokens."""
    costs = accumulate(tokens(block) + 1 for block in unit.context)
    return tuple(block for cost, block in zip(costs, unit.context, strict=True) if cost <= room)


def place_of(block: ContextBlock) -> str:
    """Return the place of a block's definition: path, colon, line."""
    return block.text.text.partition("\n")[0]
