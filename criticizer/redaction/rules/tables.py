"""Values in columns whose header names a secret: CSV, Markdown, SQL, HTML (G191)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from criticizer.redaction.input.document import Document, SourceLine
from criticizer.redaction.patterns import compiled, remembered
from criticizer.redaction.rules import captions, groups, key_names, name_lists
from criticizer.redaction.rules.characters import holds
from criticizer.redaction.rules.name_lists import LINE, PADDING, ROWS, is_value, strength_of
from criticizer.redaction.rules.named_values import Span, span_kind

_HEADER: Final = 1_024
_CELLS: Final = 64
_GAP = compiled(rb"[ ]{2,}")
_CODE: Final = b"(){}=<>[]"
_MARKS: Final = (b"|", b"\t", b";", b",", b"  ")
_RULE: Final = b"|:-=+ \t\r"
_LIST_ITEM = compiled(rb"([ \t]*(?:\*[ \t]+)?)-[ \t]+([^\n]*?)[ \t\r]*")
_HTML_CELL = compiled(
    rb"(?i)<t[hd][^<>]*>[ \t]*(?:<(?:code|b|tt|kbd)>)?([^<>\n]*)(?:</(?:code|b|tt|kbd)>)?[ \t]*</t[hd]>"
)


def spans(
    document: Document, start: int, end: int, strength: int, spend: Callable[[int], None]
) -> Iterable[Span]:
    """Return the values in the column whose header holds the word from `start` to `end`."""
    text = document.text
    low = text.rfind(b"\n", max(start - LINE, 0), start) + 1
    high = text.find(b"\n", end, end + LINE)
    if high < 0:
        high = min(len(text), end + LINE)
    line = text[low:high]
    if len(line) > _HEADER:
        return ()
    entries = groups.spans(document, start, end, high, strength, spend) if high < len(text) else ()
    names, is_item, is_header = _header(line, start - low, end - low)
    rows = name_lists.values(document, low, names, spend) if names is not None else ()
    is_caption = line.lstrip(b" \t")[:1] in captions.MARKS and high < len(text)
    below = captions.spans(document, start, end, low, high, strength) if is_caption else ()
    cells = _columns(document, start, spend, is_item=is_item) if is_header else ()
    return chain(entries, rows, cells, below)


@remembered
def _header(line: bytes, start: int, end: int) -> tuple[name_lists.Names | None, bool, bool]:
    """Return the list of names of a line, whether it is an item, and whether it may be a header.

    The line holds the word from `start` to `end`.
    """
    is_list = b"," in line and (b"(" in line or b"[" in line or b'"' in line or b"'" in line)
    is_item = line.lstrip(b" \t*+-").rstrip() == line[start:end]
    names = name_lists.names(line, start, end) if is_list else None
    return names, is_item, is_item or b"<t" in line or _may_head(line.strip(b" "))


def _columns(
    document: Document, start: int, spend: Callable[[int], None], *, is_item: bool
) -> Iterator[Span]:
    text = document.text
    for here in document.sides(start):
        header = text[here.start : here.end]
        at = start - here.start
        if b"<th" in header or b"<td" in header:
            yield from _html(document, start, spend)
            continue
        if is_item:
            yield from _list_table(document, here)
        is_bare = not holds(header, _CODE)
        for mark in _MARKS if is_bare else _MARKS[:1]:
            if mark in header:
                found = list(_column(document, here, mark, at, spend))
                if found:
                    yield from found
                    break


def _may_head(line: bytes) -> bool:
    """Return whether a line may be the header of columns, by the text between its marks."""
    marks = [mark for mark in (_MARKS[:1] if holds(line, _CODE) else _MARKS) if mark in line]
    is_quoted = line.startswith(b'"')
    for mark in marks:
        if mark != b"  " and (is_quoted or mark + b'"' in line):  # such a title may hold the mark
            return True
        titles = [title.strip(PADDING) for title in line.split(mark)[:_CELLS]]
        if all(map(_is_title, titles)) and sum(map(bool, titles)) >= 2:
            return True
    return False


def _cells(line: bytes, mark: bytes) -> list[tuple[int, int]]:
    """Return the spans of the cells of a line; quoted cells may hold the mark."""
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
    named = sum(bool(header[a:b].strip(PADDING)) for a, b in cells)
    if index is None or named < 2 or not all(_is_title(header[a:b].strip(PADDING)) for a, b in cells):
        return
    strength = strength_of(header[slice(*cells[index])])
    if strength < key_names.SECRET:
        return
    for line in document.following(here, ROWS):
        body = document.text[line.start : min(line.end, line.start + LINE)]
        spend(8 + (len(body) >> 3))
        if not body.strip(_RULE):
            if not body.strip() and not header.lstrip().startswith(b":header"):
                return
            continue
        if mark == b"|" and mark not in body:
            return  # str | None: no table
        row = _cells(body, mark)
        if mark == b"|" and len(row) != len(cells):  # the marks at the edges are optional
            row = [cell for cell in row if body[slice(*cell)].strip()]
            kept = [i for i, (a, b) in enumerate(cells) if header[a:b].strip()]
            place = kept.index(index)
        else:
            place = index
        if not (len(row) == len(cells) or mark == b"|") or place >= len(row):
            return
        first, last = row[place]
        value = body[first:last].strip(PADDING)
        if is_value(value, strength) and (mark in (b"|", b"\t") or not value.isalpha()):
            first = line.start + body.index(value, first)
            yield first, first + len(value), span_kind(strength)


def _is_title(cell: bytes) -> bool:
    """Return whether a cell may be the title of a column: a few words, not a value."""
    return not cell or (
        len(cell) <= 40 and cell.count(b" ") <= 3 and not cell[:1].isdigit() and b"=" not in cell
    )


def _list_table(document: Document, here: SourceLine) -> Iterator[Span]:
    """Yield the values of a table written as lists in a list: `* - User`, `- Password` below."""
    text = document.text
    head = _LIST_ITEM.fullmatch(text, here.start, here.end)
    low = text.rfind(b"* -", max(here.start - _HEADER, 0), here.end)
    if head is None or low < 0 or (strength := strength_of(head.group(2))) < key_names.SECRET:
        return
    index = text.count(b"\n", low, here.start)
    place = -1
    for line in document.following(here, ROWS):
        item = _LIST_ITEM.fullmatch(text, line.start, line.end)
        if item is None:
            return
        place = 0 if b"*" in item.group(1) else place + 1 if place >= 0 else place
        if place == index and is_value(item.group(2).strip(b"`*"), strength):
            first, last = item.span(2)
            yield first, last, span_kind(strength)


def _html(document: Document, start: int, spend: Callable[[int], None]) -> Iterator[Span]:
    """Yield the cells below the title in a table of HTML, or beside it, on its line and below."""
    text = document.text
    low = text.rfind(b"<tr", max(start - _HEADER, 0), start)
    low = low if low >= 0 else text.rfind(b"\n", 0, start) + 1
    stop = text.find(b"</table", start, start + 2 * LINE)
    cells = list(_HTML_CELL.finditer(text, low, stop if stop >= 0 else min(start + 2 * LINE, len(text))))
    spend(len(cells))
    index = next((i for i, cell in enumerate(cells) if cell.start() <= start < cell.end()), None)
    if index is None or (strength := strength_of(cells[index].group(1))) < key_names.SECRET:
        return
    heads = sum(cell.group()[:3].lower() == b"<th" for cell in cells)
    if cells[index].group()[:3].lower() == b"<td" or heads == 1:  # <td>Password</td><td>x</td>
        places = [index + 1]
    else:
        places = list(range(heads + index, len(cells), max(heads, 1)))
    for place in places:
        if place < len(cells) and is_value(cells[place].group(1).strip(), strength):
            yield *cells[place].span(1), span_kind(strength)
