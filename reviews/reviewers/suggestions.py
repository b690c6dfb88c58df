"""Lines that a suggestion replaces: those the model names, or those of its finding.

    replace + with ─┐
    a block of code ─┴─► lines shown to the model, found once ─► Edit ─► `edit_proofs`, on the whole file

An edit found here is a candidate: nobody is offered it before it is proven (guarantee G430).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from criticizer.invisible_characters import name_invisible
from reviews.reviewers.base import Edit, Finding, Side
from reviews.reviewers.chunks import MAX_LINE_CHARS, ShownHunk
from reviews.reviewers.plaintext import plain
from reviews.reviewers.quote_readings import normal, readings_of

CONTEXT_LINES = 3  # of a patch, on either side
MAX_RANGE_LINES = 60
MAX_SHOWN_CHARS = 1_900  # of a suggestion with its code: no channel cuts into its fence
MAX_LEFT_CHARS = 600  # of its code beside the longest prose
MAX_REPEATED_LINES = 2  # around the quoted ones, that the new text may repeat
MIN_ALIKE = 0.5  # share of words that a finding's lines and a block of code have in common

_FENCED = re.compile(
    r"^ {0,3}(?P<mark>`{3,}|~{3,})(?P<language>[\w+.#-]*)[^`\n]*\n(?P<code>.*?)^ {0,3}(?P=mark)[^\S\n]*$",
    re.MULTILINE | re.DOTALL,
)
_DIFFS = {"diff", "patch"}
# Without a hunk's line, what begins with --- or +++ is a line of the file.
_HEADER = re.compile(r"(?:(?:diff|index) .*\n)*(?:--- .*\n\+\+\+ .*\n)?@@.*\n")
# Marks that redaction and decoding leave in a line in place of something else.
_REPLACED = re.compile(r"<REDACTED|\ufffd|\u2400|\r")
# Marks that `plain` leaves in a model's text.
_ESCAPED = re.compile(r"\[[:.]\]|\] [(:]")
_WORD = re.compile(r"\w")
_Place = tuple[int, int, int]  # which side of a hunk, first line, the line after the last
Range = tuple[int, int, Sequence[str]]  # first line, the line after the last, the new lines


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a suggestion: prose, or lines of a fenced block with the language it names."""

    text: str
    is_code: bool = False
    language: str = ""

    @property
    def is_diff(self) -> bool:
        return self.language in _DIFFS


def parts(suggestion: str) -> list[Part]:
    """Return a suggestion as prose and code, without the fences."""
    found, done = [], 0
    for fenced in _FENCED.finditer(suggestion):
        found += [
            Part(suggestion[done : fenced.start()].strip("\n")),
            Part(fenced["code"].rstrip("\n"), True, fenced["language"]),
        ]
        done = fenced.end()
    found.append(Part(suggestion[done:].strip("\n")))
    return [part for part in found if part.text.strip()]


def has_changed(text: str) -> bool:
    """Return whether redaction or decoding changed a text, or pages would show it changed."""
    return bool(_REPLACED.search(text)) or name_invisible(text) != text


def suggestion_of(raw: Mapping[str, Any]) -> str:
    """Return the suggestion of a raw finding as plain text, with its code in its own block."""
    text, code = plain(raw.get("suggestion") or ""), plain_code(raw)
    if not code or code in text:
        return text
    fence = "~~~" if "```" in code else "```"
    if len(text) + len(code) > MAX_SHOWN_CHARS:
        room = max(MAX_SHOWN_CHARS - len(text), MAX_LEFT_CHARS)
        code = f"{code[:room].rpartition(chr(10))[0]}\n[... more lines]"
    return "\n\n".join(filter(None, [text, f"{fence}\n{code}\n{fence}"]))


def plain_code(raw: Mapping[str, Any]) -> str:
    """Return the new lines that a raw finding names, as pages show them."""
    text = _unfenced(raw.get("with") or "").strip("\n")
    margin = text[: len(text) - len(text.lstrip())]
    return margin + plain(text)


def edit_of(raw: Mapping[str, Any], finding: Finding, hunks: Iterable[ShownHunk]) -> Edit | None:
    """Return the edit that a placed finding suggests, or None where its place is not certain.

    `hunks` are those of its file that the model saw.
    """
    sides = [[line for line in hunk.lines if line.side is Side.NEW] for hunk in hunks]
    if raw.get("replace") and raw.get("with") is not None:
        found = _named(raw, [[line.text for line in side] for side in sides])
    else:
        found = _guessed(finding, [[(line.number, line.text) for line in side] for side in sides])
    if found is None:
        return None
    at, (first, end, new) = found
    lines, low = sides[at], max(0, first - CONTEXT_LINES)
    window = lines[low : end + CONTEXT_LINES]
    numbers = [line.number for line in window]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    if any(len(line.text) >= MAX_LINE_CHARS for line in window):
        return None  # it may have lost its end
    if not any(line.is_near_change for line in lines[first:end]):
        return None
    return Edit(numbers[0], tuple(line.text for line in window), first - low, end - low, tuple(new))


def _named(raw: Mapping[str, Any], sides: Sequence[Sequence[str]]) -> tuple[int, Range] | None:
    """Return the side that holds the lines which `replace` quotes, and their new text, `with`."""
    quote, quote_end = raw["replace"]
    code = _unfenced(raw["with"]).strip("\n")
    if has_changed(code) or plain_code(raw).strip() != code.strip():
        return None
    places: list[_Place] = []
    for reading in readings_of(quote):
        wanted = [normal(line) for line in reading.lines]
        places = [(at, first, end) for at, side in enumerate(sides) for first, end in _matching(side, wanted)]
        if places:
            break
    if quote_end:
        places = _ending(places, sides, quote_end)
    if len(places) != 1:
        return None
    at, first, end = places[0]
    new = _indented(code.split("\n") if code.strip() else [], sides[at][first:end])
    return (at, _widened(sides[at], first, end, new)) if new is not None else None


def _matching(side: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, int]]:
    normals = [normal(line) for line in side]
    size = len(wanted)
    return [(at, at + size) for at in range(len(side) - size + 1) if normals[at : at + size] == list(wanted)]


def _ending(places: Sequence[_Place], sides: Sequence[Sequence[str]], quote: str) -> list[_Place]:
    """Return the ranges from places to lines that have the quote, the shortest to each line."""
    for reading in readings_of(quote):
        wanted = normal(reading.lines[0])
        shortest: dict[tuple[int, int], _Place] = {}
        for at, first, end in places:
            following = range(end - 1, min(first + MAX_RANGE_LINES, len(sides[at])))
            same = [last for last in following if normal(sides[at][last]) == wanted]
            exact = [last for last in same if sides[at][last].rstrip() == quote.strip("\n").rstrip()]
            shortest |= {(at, last): (at, first, last + 1) for last in (exact if len(same) > 1 else same)}
        if shortest and len(reading.lines) == 1:
            return list(shortest.values())
    return []


def _indented(new: list[str], old: Sequence[str]) -> list[str] | None:
    """Return new lines with the indentation of the old ones, where the model left off all of it."""
    if not new:
        return new
    wanted, given = indent(next(filter(str.strip, old), "")), indent(new[0])
    if given == wanted:
        return new
    rest = [len(indent(line)) for line in new[1:] if line.strip()]
    if given or (rest and min(rest) >= len(wanted)):
        return None
    return [wanted + line if line.strip() else line for line in new]


def _widened(side: Sequence[str], first: int, end: int, new: Sequence[str]) -> Range:
    """Widen a range by the lines around it that its new text repeats.

    Otherwise these would stand there twice.
    """
    for size in range(MAX_REPEATED_LINES, 0, -1):
        before, after = list(side[max(0, first - size) : first]), list(side[end : end + size])
        if len(before) == size < len(new) and list(new[:size]) == before and _says(before):
            first -= size
        if len(after) == size < len(new) and list(new[-size:]) == after and _says(after):
            end += size
    return first, end, new


def _says(lines: Sequence[str]) -> bool:
    return any(line.strip() for line in lines)


def _unfenced(text: str) -> str:
    fenced = _FENCED.fullmatch(text.strip("\n"))
    return fenced["code"] if fenced else text


def _guessed(finding: Finding, sides: Sequence[Sequence[tuple[int, str]]]) -> tuple[int, Range] | None:
    """Return the edit by a finding's only block of code, and the side of its lines.

    The block is a diff, or a new text of exactly the finding's lines.
    """
    code = _code_of(parts(finding.suggestion))
    if code is None or finding.side != Side.NEW or finding.line is None or finding.demoted:
        return None
    wanted = range(finding.line, (finding.end_line or finding.line) + 1)
    for at, side in enumerate(sides):
        numbers, texts = [number for number, _ in side], [text for _, text in side]
        if finding.line not in numbers:
            continue
        first = numbers.index(finding.line)
        if code.is_diff:
            found = _of_diff(code.text, texts)
        elif numbers[first : first + len(wanted)] == list(wanted):
            found = _of_lines(code.text, texts, first, first + len(wanted))
        else:
            found = None
        return (at, found) if found is not None else None
    return None


def _code_of(found: Sequence[Part]) -> Part | None:
    """Return the only block of code, or None where there is another or it was changed."""
    code = [part for part in found if part.is_code]
    if len(code) != 1 or has_changed(code[0].text) or _ESCAPED.search(code[0].text):
        return None
    return code[0]


def _of_diff(code: str, texts: Sequence[str]) -> Range | None:
    header = _HEADER.match(code)
    lines = code[header.end() if header else 0 :].split("\n")
    if any(line[:1] not in ("", " ", "+", "-") for line in lines):
        return None
    old = [line[1:] for line in lines if line[:1] != "+"]
    places = [at for at in range(len(texts) - len(old) + 1) if list(texts[at : at + len(old)]) == old]
    if not any(old) or len(places) != 1:
        return None
    return places[0], places[0] + len(old), [line[1:] for line in lines if line[:1] != "-"]


def _of_lines(code: str, texts: Sequence[str], first: int, end: int) -> Range | None:
    """Return the edit if the code is a new text of exactly the lines `texts[first:end]`."""
    old, new = list(texts[first:end]), code.split("\n")
    if not new[0].strip() or indent(old[0]) != indent(new[0]):
        return None
    added = {line.strip() for line in new if _WORD.search(line)} - {line.strip() for line in old}
    around = (*texts[max(0, first - CONTEXT_LINES) : first], *texts[end : end + CONTEXT_LINES])
    if added & {text.strip() for text in around}:
        return None
    words, others = _words("\n".join(old)), _words(code)
    alike = 2 * (words & others).total() / ((words + others).total() or 1)
    return (first, end, new) if alike >= MIN_ALIKE else None


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+|[^\w\s]", text))


def indent(line: str) -> str:
    """Return the blanks that a line begins with."""
    return line[: len(line) - len(line.lstrip())]
