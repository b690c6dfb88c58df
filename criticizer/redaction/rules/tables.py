"""Values in the columns of a table whose header names a secret: CSV, Markdown, SQL, HTML (guarantee G191)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import ahocorasick_rs

from criticizer.redaction.input.document import Document, SourceLine
from criticizer.redaction.patterns import compiled, remembered
from criticizer.redaction.rules import groups, key_names
from criticizer.redaction.rules.characters import holds
from criticizer.redaction.rules.literals import Span, span_kind
from criticizer.redaction.rules.value_heuristics import is_template, judge

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
_QUOTED_NAMES = compiled(rb"[\"'][ \t]*([\w \t,]+)[\"']")
_NAMES: Final = {
    b"(": compiled(rb"\([ \t]*([\w \t`\"'\[\],]*[\w`\"'\]])[ \t]*\)"),
    b"[": compiled(rb"\[[ \t]*([\w \t`\"',]*[\w`\"'])[ \t]*\]"),
    b'"': _QUOTED_NAMES,
    b"'": _QUOTED_NAMES,
}
_BETWEEN = compiled(rb"(?i)[ \t\r\n,]*(?:values?|select|overriding[ \t]+\w+[ \t]+value|:)?[ \t\r\n]*[\[(]")
# names = ["a", "b"], then rows = [("x", "y")], or "data": [["x", "y"]], or a parameter of a test.
_TO_ROWS = compiled(
    rb"[ \t\r\n,;})\]]*(?:[\"']?[\w. ]{1,30}[\"']?[ \t]*[:=][ \t]*)?[ \t\r\n]*[\[({]{1,2}[ \t\r\n]*[\[({]"
)
_COPY = compiled(rb"(?i)[ \t]*from[ \t]+stdin[^\n]*")
_LIST_ITEM = compiled(rb"([ \t]*(?:\*[ \t]+)?)-[ \t]+([^\n]*?)[ \t\r]*")
_VALUE = compiled(
    rb"[ \t\r\n]*(?:N?'((?:[^'\\\n]|''|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"|[^,()\[\]'\"\n]*)[ \t\r\n]*([,)\]])"
)
_HTML_CELL = compiled(
    rb"(?i)<t[hd][^<>]*>[ \t]*(?:<(?:code|b|tt|kbd)>)?([^<>\n]*)(?:</(?:code|b|tt|kbd)>)?[ \t]*</t[hd]>"
)
_MAX_TUPLES: Final = 200
_LISTED: Final = tuple(key_names.WORDS)
_WORDS: Final = ahocorasick_rs.BytesAhoCorasick(_LISTED)


def spans(
    document: Document, start: int, end: int, strength: int, spend: Callable[[int], None]
) -> Iterator[Span]:
    """Yield the values in the column whose header holds the word at `start` to `end`."""
    text = document.text
    low = text.rfind(b"\n", max(start - _WINDOW, 0), start) + 1
    high = text.find(b"\n", end, end + _WINDOW)
    if high < 0:
        high = min(len(text), end + _WINDOW)
    line = text[low:high]
    if len(line) > _HEADER:
        return
    if high < len(text):
        yield from groups.spans(document, start, end, high, strength, spend)
    if b"," in line and (b"(" in line or b"[" in line or b'"' in line or b"'" in line):
        yield from _tuples(document, low, start, end, spend)
    is_item = line.lstrip(b" \t*+-").rstrip() == text[start:end]
    if not is_item and b"<t" not in line and not _may_head(line.strip(b" ")):
        return
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


@remembered
def _may_head(line: bytes) -> bool:
    """Return whether a line may be the header of columns, by a quick look at what is between its marks."""
    marks = [mark for mark in (_MARKS[:1] if holds(line, _CODE) else _MARKS) if mark in line]
    is_quoted = line.startswith(b'"')
    for mark in marks:
        if mark != b"  " and (is_quoted or mark + b'"' in line):  # such a title may hold the mark
            return True
        titles = [title.strip(_PADDING) for title in line.split(mark)[:_CELLS]]
        if all(map(_is_title, titles)) and sum(map(bool, titles)) >= 2:
            return True
    return False


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
            if not body.strip() and not header.lstrip().startswith(b":header"):
                return
            continue
        if mark == b"|" and mark not in body:
            return  # str | None: no table
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
    # Of each word, in the order of the list, the first place.
    for index in sorted({index for index, _, _ in _WORDS.find_matches_as_indexes(name, overlapping=True)}):
        word = _LISTED[index]
        at, own = name.find(word), key_names.WORDS[word][1]
        if not (own and at and name[at - 1 : at] != b"_"):
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


def _tuples(
    document: Document, low: int, start: int, end: int, spend: Callable[[int], None]
) -> Iterator[Span]:
    """Yield the values of lists that follow a list of names."""
    text = document.text
    opened = max(text.rfind(b"(", low, start), text.rfind(b"[", low, start))
    while (
        opened > low
        and text[opened - 1 : opened] in (b" ", b",", b"[")
        and text[opened : opened + 1] == b"["
        and text.find(b",", opened, start) < 0
        and text.find(b"]", opened, end + 2) >= 0
    ):
        opened = max(text.rfind(b"(", low, opened), text.rfind(b"[", low, opened))  # [name] of T-SQL
    quote = max(text.rfind(b'"', low, start), text.rfind(b"'", low, start))
    if (
        quote >= 0
        and b"," in text[quote:start]
        and b"," in text[quote : text.find(text[quote : quote + 1], end)]
    ):
        opened = quote  # "user,password"
    if opened < 0:
        return
    names = _NAMES[text[opened : opened + 1]].match(text, opened, min(opened + 2_048, len(text)))
    if names is None or not names.start(1) <= start < names.end(1) or b"," not in names.group(1):
        return
    index = text.count(b",", names.start(1), start)
    titles = names.group(1).split(b",")
    strength = _strength_of(titles[index].strip(b" \t[]`\"'"))
    if strength < key_names.SECRET:
        return
    copy = _COPY.match(text, names.end(), min(names.end() + 200, len(text)))
    if copy is not None:
        yield from _copied(document, copy.end(), index, strength, spend)
    else:
        yield from _lists(text, names.end(), index, len(titles), strength, spend)


def _lists(
    text: bytes, at: int, index: int, count: int, strength: int, spend: Callable[[int], None]
) -> Iterator[Span]:
    first = _TO_ROWS.match(text, at, min(at + 200, len(text)))
    for number in range(_MAX_TUPLES):
        opening = first if first and not number else _BETWEEN.match(text, at, min(at + 200, len(text)))
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


def _copied(
    document: Document, at: int, index: int, strength: int, spend: Callable[[int], None]
) -> Iterator[Span]:
    """Yield the values of COPY table (names) FROM stdin, parted by tabs."""
    for here in document.sides(at - 1):
        for line in document.following(here, _ROWS):
            body = document.text[line.start : min(line.end, line.start + _WINDOW)]
            spend(8 + (len(body) >> 3))
            cells = body.split(b"\t")
            if body.startswith(b"\\.") or len(cells) <= index:
                break
            if _is_value(cells[index].strip(), strength):
                first = line.start + sum(len(cell) + 1 for cell in cells[:index])
                yield first, first + len(cells[index].rstrip()), span_kind(strength)


def _list_table(document: Document, here: SourceLine) -> Iterator[Span]:
    """Yield the values of a table written as lists in lists: `* - User`, and `- Password` below."""
    text = document.text
    head = _LIST_ITEM.fullmatch(text, here.start, here.end)
    low = text.rfind(b"* -", max(here.start - _HEADER, 0), here.end)
    if head is None or low < 0 or (strength := _strength_of(head.group(2))) < key_names.SECRET:
        return
    index = text.count(b"\n", low, here.start)
    place = -1
    for line in document.following(here, _ROWS):
        item = _LIST_ITEM.fullmatch(text, line.start, line.end)
        if item is None:
            return
        place = 0 if b"*" in item.group(1) else place + 1 if place >= 0 else place
        if place == index and _is_value(item.group(2).strip(b"`*"), strength):
            first, last = item.span(2)
            yield first, last, span_kind(strength)


def _html(document: Document, start: int, spend: Callable[[int], None]) -> Iterator[Span]:
    """Yield the cells below a table's head, on its line or on those that follow, or beside its key."""
    text = document.text
    low = text.rfind(b"<tr", max(start - _HEADER, 0), start)
    low = low if low >= 0 else text.rfind(b"\n", 0, start) + 1
    stop = text.find(b"</table", start, start + 2 * _WINDOW)
    cells = list(_HTML_CELL.finditer(text, low, stop if stop >= 0 else min(start + 2 * _WINDOW, len(text))))
    spend(len(cells))
    index = next((i for i, cell in enumerate(cells) if cell.start() <= start < cell.end()), None)
    if index is None or (strength := _strength_of(cells[index].group(1))) < key_names.SECRET:
        return
    heads = sum(cell.group()[:3].lower() == b"<th" for cell in cells)
    if cells[index].group()[:3].lower() == b"<td" or heads == 1:  # <td>Password</td><td>x</td>
        places = [index + 1]
    else:
        places = list(range(heads + index, len(cells), max(heads, 1)))
    for place in places:
        if place < len(cells) and _is_value(cells[place].group(1).strip(), strength):
            yield *cells[place].span(1), span_kind(strength)
