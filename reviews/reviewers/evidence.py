"""Evidence of a finding: the files of the context that it rests on (guarantee G177).

A model names them by id. A finding that quotes a block, names its file or the symbol that it defines rests on
it as well, even where the model does not say so.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from reviews.reviewers.chunks import ContextBlock
from reviews.reviewers.quote_readings import normal

MIN_QUOTED_CHARS = 16  # of a line, in its normal form
_IDS = re.compile(r"(?<![A-Za-z0-9_])[Cc](\d{1,3})(?![A-Za-z0-9_])")
_WORDS = re.compile(r"[\w$]+")
_PROSE = ("title", "problem", "trigger", "suggestion")
_OTHERS = ("quote", "quote_end", "context")
_NUMBERED = re.compile(r"^ *\d+  ")


def evidence_of(raw: Mapping[str, Any], context: Sequence[ContextBlock], place: str) -> tuple[str, ...]:
    """Return the paths of the blocks on which a finding rests, without the finding's own file."""
    if not context:
        return ()
    prose = "\n".join(str(raw.get(field) or "") for field in _PROSE)
    joined = "\n".join([prose, *(str(raw.get(field) or "") for field in _OTHERS)])
    ids = {f"C{int(number)}" for number in _IDS.findall(joined)}
    words = set(_WORDS.findall(prose))  # a quoted call is text of the change
    plain = normal(joined)
    found = [
        block.path
        for block in context
        if block.name in ids
        or (block.symbol and block.symbol in words)
        or posixpath.basename(block.path) in joined
        or _is_quoted(block, plain)
    ]
    return tuple(path for path in dict.fromkeys(found) if path != place)


def without_numbers(lines: Sequence[str]) -> list[str]:
    """Return lines without the number that is printed before each line of a block."""
    return [_NUMBERED.sub("", line) for line in lines]


def lines_of(block: ContextBlock) -> list[str]:
    """Return the lines of code of a block, without its head and the numbers before them."""
    return without_numbers(block.text.text.split("\n")[1:])


def _is_quoted(block: ContextBlock, plain: str) -> bool:
    lines = map(normal, lines_of(block))
    return any(len(line) >= MIN_QUOTED_CHARS and line in plain for line in lines)
