"""Values in the columns of a table whose header names a secret: CSV, Markdown, SQL, HTML (guarantee G191)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from criticizer.redaction.input.document import Document, SourceLine
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names
from criticizer.redaction.rules.literals import Span, span_kind
from criticizer.redaction.rules.value_heuristics import holds, is_template, judge

_ROWS: Final = 500  # below a header
_WINDOW: Final = 4_096  # bytes of a line
_HEADER: Final = 1_024
_CELLS: Final = 64
_GAP = compiled(rb"[ ]{2,}")
_PADDING: Final = b" \t\r\"'`*"
_CODE: Final = b"(){}=<>[]"
_MARKS: Final = (b"|", b"\t", b";", b",", b"  ")
_RULE: Final = b"|:-=+ \t\r"
# ( a, b, password ) VALUES ( … ) , ( … ): a list of names and lists of as many values.
_NAMES = compiled(rb"[\[(][ \t]*([\w \t`\"'\[\],]*[\w`\"'\]])[ \t]*[\])]")
_BETWEEN = compiled(
    rb"(?i)[ \t\r\n,]*(?:values?|select|from[ \t]+stdin;?|overriding[ \t]+\w+[ \t]+value|:)?[ \t\r\n]*[\[(]"
)
_VALUE = compiled(
    rb"[ \t\r\n]*(?:N?'((?:[^'\\\n]|''|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"|[^,()\[\]'\"\n]*)[ \t\r\n]*([,)\]])"
)
_HTML_ROW = compiled(rb"(?i)<t[hd][^<>]*>([^<>\n]*)</t[hd]>")
_MAX_TUPLES: Final = 200


def spans(document: Document, start: int, end: int, spend: Callable[[int], None]) -> Iterator[Span]:
    """Yield the values in the column whose header holds the word at `start` to `end`."""
    text = document.text
    low = text.rfind(b"\n", max(start - _WINDOW, 0), start) + 1
    high = text.find(b"\n", end, end + _WINDOW)
    if high < 0:
        high = min(len(text), end + _WINDOW)
    line = text[low:high]
    if len(line) > _HEADER:
        return
    if b"nsert" in line or b"NSERT" in line or b"[[" in line:
        yield from _tuples(text, low, start, end, spend)
    if b"|" not in line and b"<t" not in line and not _is_listed(line):
        return
    for here in document.sides(start):
        header = text[here.start : here.end]
        at = start - here.start
        if b"<th" in header or b"<td" in header:
            yield from _html(document, here, at, spend)
            continue
        is_bare = not holds(header, _CODE)
        for mark in _MARKS if is_bare else _MARKS[:1]:
            if mark in header:
                found = list(_column(document, here, mark, at, spend))
                if found:
                    yield from found
                    break


def _is_listed(line: bytes) -> bool:
    """Return whether a line without cells' borders may be the header of columns: no code, with marks."""
    return not holds(line, _CODE) and any(mark in line for mark in _MARKS)


def _cells(line: bytes, mark: bytes) -> list[tuple[int, int]]:
    """Return where the cells of a line stand; quoted ones may hold the mark."""
    cells: list[tuple[int, int]] = []
    at = 0
    size = len(line)
    if mark == b"  ":
        edges = [0, *(edge for match in _GAP.finditer(line) for edge in match.span()), size]
        return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    while at <= size and len(cells) < _CELLS:
        if line[at : at + 1] == b'"' and (close := line.find(b'"', at + 1)) > 0:
            stop = line.find(mark, close)
        else:
            stop = line.find(mark, at)
        stop = stop if stop >= 0 else size
        cells.append((at, stop))
        at = stop + 1
    return cells


def _column(
    document: Document, here: SourceLine, mark: bytes, at: int, spend: Callable[[int], None]
) -> Iterator[Span]:
    header = document.text[here.start : here.end]
    cells = _cells(header, mark)
    index = next((i for i, (a, b) in enumerate(cells) if a <= at < b), None)
    named = sum(bool(header[a:b].strip(_PADDING)) for a, b in cells)
    if index is None or named < 2 or not all(_is_title(header[a:b].strip(_PADDING)) for a, b in cells):
        return
    strength = _strength_of(header[slice(*cells[index])])
    if strength < key_names.SECRET:
        return
    for line in document.following(here, _ROWS):
        body = document.text[line.start : min(line.end, line.start + _WINDOW)]
        spend(8 + (len(body) >> 3))
        if not body.strip(_RULE):
            if not body.strip():
                return
            continue
        row = _cells(body, mark)
        if mark == b"|" and len(row) != len(cells):  # the edges of some tables are drawn, of some not
            row = [cell for cell in row if body[slice(*cell)].strip()]
            kept = [i for i, (a, b) in enumerate(cells) if header[a:b].strip()]
            place = kept.index(index)
        else:
            place = index
        if not (len(row) == len(cells) or mark == b"|") or place >= len(row):
            return
        first, last = row[place]
        value = body[first:last].strip(_PADDING)
        if _is_value(value, strength) and (mark in (b"|", b"\t") or not value.isalpha()):
            first = line.start + body.index(value, first)
            yield first, first + len(value), span_kind(strength)


def _is_title(cell: bytes) -> bool:
    """Return whether a cell may be the head of a column: a few words, no value."""
    return not cell or (
        len(cell) <= 40 and cell.count(b" ") <= 3 and not cell[:1].isdigit() and b"=" not in cell
    )


def _strength_of(title: bytes) -> int:
    """Return the strength of a column's title, which may have blanks where a name has underscores."""
    name = title.strip(_PADDING).lower().replace(b" ", b"_")
    for word, (_, own) in key_names.WORDS.items():
        at = name.find(word)
        if at >= 0 and not (own and at and name[at - 1 : at] != b"_"):
            found = key_names.strength(word, word, name[:at], name[at + len(word) :])
            if found:
                return found
    return 0


def _is_value(value: bytes, strength: int) -> bool:
    return (
        len(value) >= 4
        and not is_template(value)
        and b"\x01" not in value
        and judge(value, strength, quoted=True)
    )


def _tuples(text: bytes, low: int, start: int, end: int, spend: Callable[[int], None]) -> Iterator[Span]:
    """Yield the values of lists that follow a list of names."""
    opened = max(text.rfind(b"(", low, start), text.rfind(b"[", low, start))
    while (
        opened > low
        and text[opened - 1 : opened] in (b" ", b",", b"[")
        and text[opened : opened + 1] == b"["
        and text.find(b",", opened, start) < 0
        and text.find(b"]", opened, end + 2) >= 0
    ):
        opened = max(text.rfind(b"(", low, opened), text.rfind(b"[", low, opened))  # [name] of T-SQL
    if opened < 0:
        return
    names = _NAMES.match(text, opened, min(opened + 2_048, len(text)))
    if names is None or not names.start(1) <= start < names.end(1):
        return
    count = names.group(1).count(b",") + 1
    index = text.count(b",", names.start(1), start)
    strength = _strength_of(names.group(1).split(b",")[index].strip(b" \t[]`\"'"))
    if strength < key_names.SECRET:
        return
    at = names.end()
    if text[at : at + 20].lower().lstrip().startswith(b"from stdin"):
        return
    for _ in range(_MAX_TUPLES):
        opening = _BETWEEN.match(text, at, min(at + 200, len(text)))
        if opening is None:
            return
        at = opening.end()
        for place in range(count):
            value = _VALUE.match(text, at, min(at + 1_024, len(text)))
            spend(8)
            if value is None or (value.group(3) == b",") != (place < count - 1):
                return
            group = 1 if value.group(1) is not None else 2
            if place == index and value.group(group) is not None and _is_value(value.group(group), strength):
                yield *value.span(group), span_kind(strength)
            at = value.end()


def _html(document: Document, here: SourceLine, at: int, spend: Callable[[int], None]) -> Iterator[Span]:
    text = document.text
    cells = list(_HTML_ROW.finditer(text, here.start, min(here.end, here.start + _WINDOW)))
    index = next((i for i, cell in enumerate(cells) if cell.start() <= here.start + at < cell.end()), None)
    if index is None:
        return
    strength = _strength_of(cells[index].group(1))
    heads = sum(cell.group()[:3].lower() == b"<th" for cell in cells)
    if strength < key_names.SECRET:
        return
    if cells[index].group()[:3].lower() == b"<td":  # <td>Password</td><td>x</td>
        places = [index + 1]
    else:
        places = list(range(heads + index, len(cells), max(heads, 1)))
    spend(len(cells))
    for place in places:
        if place < len(cells) and _is_value(cells[place].group(1).strip(), strength):
            yield *cells[place].span(1), span_kind(strength)
