"""Looks up the line that refutes a finding in the change and the context that were sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reviews.reviewers.checks.hidden_text import addresses_reviewer
from reviews.reviewers.chunks import Chunk, ContextBlock
from reviews.reviewers.evidence import lines_of, without_numbers
from reviews.reviewers.quote_readings import normal
from reviews.reviewers.quotes import ShownText

MIN_QUOTE_CHARS = 6  # in its normal form

_COMMENT = re.compile(
    r"\s*(?://|/\*|\*(?:[\s/]|$)|#(?!\[|!|(?:include|define|undef|if|el|endif|pragma|error)\b)|--\s|<!--|;|%\s|"
    r"\"{3}|'{3})"
)


@dataclass(frozen=True, slots=True)
class Proof:
    """A line of code that was sent. `where` is for people, such as `Line 12` or `//depot/a.py`."""

    source: str  # of the line: the file's index and side, or the block's name
    number: int  # of the line in its file, or in its block
    where: str


def proof_of(quote: str, chunk: Chunk, text: ShownText) -> Proof | None:
    """Return the line in which a quote stands as code, or None.

    Comments and text for reviewers prove nothing.
    """
    bare = normal(quote)
    if len(bare) < MIN_QUOTE_CHARS or not any(map(str.isalpha, bare)):
        return None
    return next(_in_change(quote, chunk.files, text), None) or next(_in_context(quote, chunk.context), None)


def _in_change(quote: str, files: Sequence[int], text: ShownText) -> Iterator[Proof]:
    for file in files:
        for place in text.find({"quote": quote}, file):
            if _is_code([line.text for line in place.text.lines[place.first : place.last + 1]]):
                yield Proof(f"{file} {place.text.side}", place.line.number, f"Line {place.line.number}")


def _in_context(quote: str, context: Sequence[ContextBlock]) -> Iterator[Proof]:
    """Yield the blocks in which the lines of a quote stand whole and one after the other."""
    wanted = [bare for line in without_numbers(quote.splitlines()) if (bare := normal(line))]
    for block in context:
        lines = lines_of(block)
        bares = [normal(line) for line in lines]
        for first in range(len(lines) - len(wanted) + 1):
            last = first + len(wanted)
            if bares[first:last] == wanted and _is_code(lines[first:last]):
                yield Proof(block.name, first, f"A line of {block.path}")


def _is_code(lines: Sequence[str]) -> bool:
    return not any(_COMMENT.match(line) or addresses_reviewer(line) for line in lines)
