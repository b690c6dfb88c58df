"""Chooses the lines around findings, of their part's own hunks, that a verifier is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from criticizer.redaction import RedactedText
from reviews.reviewers.base import Finding
from reviews.reviewers.chunks import Chunk, ShownHunk

LINES_BEFORE = 8
LINES_AFTER = 4
LINES_OF_A_FILE = 30  # of each hunk, for a finding without a line
LEAST_CONTEXT_CHARS = 1_500
_WORDS = re.compile(r"[\w$]+")


def shown_again(chunk: Chunk, findings: Sequence[Finding], paths: Sequence[str], max_chars: int) -> Chunk:
    """Return the chunk cut down to the lines around the findings, each hunk as the model saw it.

    Its context has the blocks that the findings rest on or name, and then the first blocks, up to `max_chars`
    together with the hunks: a server that keeps prefixes has read the first ones.
    """
    cut = [_cut(h, _wanted(h, [f for f in findings if f.file == paths[h.file]])) for h in chunk.hunks]
    hunks = tuple(hunk for hunk in cut if hunk is not None)
    left = max_chars - sum(len(hunk.text) for hunk in hunks)
    told = [f"{finding.title} {finding.message} {finding.quote}" for finding in findings]
    words = set(_WORDS.findall("\n".join(told)))
    evidence = {path for finding in findings for path in finding.evidence}
    named = [
        *(block for block in chunk.context if block.path in evidence),
        *(block for block in chunk.context if block.symbol in words),
    ]
    kept: set[str] = set()
    # Blocks that findings rest on or name have some room in a small window too; others have what is left.
    for blocks, least in ((named, LEAST_CONTEXT_CHARS), (chunk.context, 0)):
        room = max(left, least)
        for block in blocks:
            if block.name not in kept and len(block) < room:
                room -= len(block) + 1
                left -= len(block) + 1
                kept.add(block.name)
    return Chunk(hunks, tuple(block for block in chunk.context if block.name in kept))


def _wanted(hunk: ShownHunk, findings: Iterable[Finding]) -> set[int]:
    """Return the indexes of the hunk's lines to show."""
    wanted: set[int] = set()
    for finding in findings:
        if finding.line is None:
            wanted.update(range(min(LINES_OF_A_FILE, len(hunk.lines))))
            continue
        last = finding.end_line or finding.line
        own = [
            line.position
            for line in hunk.lines
            if line.side is finding.side and finding.line <= line.number <= last
        ]
        if own:
            around = range(min(own) - LINES_BEFORE, max(own) + LINES_AFTER + 1)
            wanted.update(k for k, line in enumerate(hunk.lines) if line.position in around)
    return wanted


def _cut(hunk: ShownHunk, wanted: set[int]) -> ShownHunk | None:
    if not wanted:
        return None
    if len(wanted) == len(hunk.lines):
        return hunk
    rows = [number is None or number in wanted for number in hunk.rows()]
    pieces: list[str] = []
    parts: dict[str, RedactedText] = {}
    for row, is_shown in enumerate(rows):
        if is_shown and (row == 0 or not rows[row - 1]):
            end = next((n for n in range(row, len(rows)) if not rows[n]), len(rows))
            parts[f"p{row}"] = hunk.text.lines(row + 1, end)
            pieces.append(f"{{p{row}}}")
    text = RedactedText.template("\n[...]\n".join(pieces), **parts)
    lines = tuple(line for k, line in enumerate(hunk.lines) if k in wanted)
    return replace(hunk, text=text, lines=lines)
