"""Separates prose from code in reviewers' texts, so that code is never wrapped."""

from __future__ import annotations

import re
from dataclasses import dataclass

from criticizer.inert_links import break_addresses, break_links

_FENCE = re.compile(r"[ ]{0,3}(?:```|~~~)[\w+.#-]*\s*")
_LIST_ITEM = re.compile(r"\s*(?:[-*+\u2022]|\d{1,3}[.)])\s")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph of prose, or lines of code without their common fence."""

    text: str
    is_code: bool = False


def blocks(text: str) -> list[Block]:
    """Return the paragraphs of a text, with broken links. Fenced and indented lines are code.

    In code only what has a scheme is a link: `total/count` is not.
    """
    found: list[Block] = []
    lines: list[str] = []
    fenced = False

    def close() -> None:
        if any(line.strip() for line in lines):
            found.append(Block("\n".join(lines).strip("\n"), fenced or _looks_like_code(lines)))
        lines.clear()

    for line in text.split("\n"):
        if _FENCE.fullmatch(line):
            close()
            fenced = not fenced
        elif not line.strip() and not fenced:
            close()
        else:
            lines.append(line.rstrip())
    close()
    return [
        Block(break_addresses(block.text) if block.is_code else break_links(block.text), block.is_code)
        for block in _joined(found)
    ]


def _looks_like_code(lines: list[str]) -> bool:
    is_list = _LIST_ITEM.match(lines[0]) is not None
    return not is_list and any(line.startswith("  ") for line in lines)


def _joined(found: list[Block]) -> list[Block]:
    """Rejoin code that an empty line divided."""
    joined: list[Block] = []
    for block in found:
        if joined and block.is_code and joined[-1].is_code:
            joined[-1] = Block(f"{joined[-1].text}\n\n{block.text}", is_code=True)
        else:
            joined.append(block)
    return joined
