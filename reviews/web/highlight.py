"""Code excerpts as rows of safe HTML.

Depot text is untrusted: every token is escaped, sizes are bounded, and characters that hide
or reorder text (bidirectional overrides, zero-width, control) are shown by name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import pairwise
from pathlib import PurePosixPath

from django.utils.safestring import SafeString
from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename
from pygments.token import STANDARD_TYPES, Token, _TokenType

from criticizer.bounded_cache import BoundedCache
from criticizer.invisible_characters import name_invisible
from reviews.web.budget import Budget
from reviews.web.changed_words import MAX_COMPARED, changed_words

MAX_ROWS = 40
MAX_LINE_CHARS = 400
_KINDS = {"+": "added", "-": "removed"}
_UNSTYLED = {Token, Token.Text, Token.Text.Whitespace, Token.Error, Token.Name, Token.Punctuation}
_MADE = BoundedCache[Hashable, Sequence[SafeString]](8_000_000)  # characters
_SIGNS = {"+": "+", "-": "\N{MINUS SIGN}"}


@dataclass(frozen=True, slots=True)
class CodeRow:
    """One line of an excerpt. `kind` is added, removed or context; `html` is safe.

    `is_meant` is true for lines of the finding, false for the context around it.
    """

    number: int | None
    kind: str
    sign: str
    html: SafeString
    is_meant: bool = False


def excerpt_rows(
    file: str,
    excerpt: object,
    is_meant: Callable[[int | None, str], bool] = lambda number, kind: False,
    budget: Budget | None = None,
) -> list[CodeRow]:
    """Return a finding's stored excerpt, highlighted by file name.

    `excerpt` is `[[line or null, kind, text], …]`. `is_meant` returns whether a line of a kind belongs to the
    finding. Malformed rows are left out; at most `MAX_ROWS` rows of `MAX_LINE_CHARS` are kept.
    """
    return code_rows(file, list(_well_formed(excerpt))[:MAX_ROWS], is_meant, budget)


def code_rows(
    file: str,
    lines: Iterable[tuple[int | None, str, str]],
    is_meant: Callable[[int | None, str], bool] = lambda number, kind: False,
    budget: Budget | None = None,
) -> list[CodeRow]:
    """Return lines `(number, kind, text)` highlighted by file name.

    Replaced words of a line are marked. `budget`: what the page may spend on comparing words; by default
    these lines have one of their own.
    """
    rows = tuple((number, kind, text) for number, kind, text in lines)
    htmls = _htmls(_lexer_name_part(file), rows, budget or Budget(MAX_COMPARED))
    return [
        CodeRow(number, _KINDS.get(kind, "context"), _SIGNS.get(kind, " "), html, is_meant(number, kind))
        for (number, kind, _), html in zip(rows, htmls, strict=True)
    ]


def _htmls(name: str, rows: Sequence[tuple[int | None, str, str]], budget: Budget) -> Sequence[SafeString]:
    """Return the lines as HTML.

    Those of the last pages are kept, because a reader comes back to them.
    """
    key = name, tuple((kind, text) for _, kind, text in rows)
    if (known := _MADE.get(key)) is not None:
        return known
    bounded = [(number, kind, _bounded(text)) for number, kind, text in rows]
    refused = budget.refused
    marks = changed_words(bounded, budget)
    htmls = _highlighted([text for _, _, text in bounded], name, marks)
    if budget.refused == refused:  # otherwise another page may have room to mark more
        _MADE.put(key, htmls, sum(map(len, htmls)) + sum(len(text) for _, _, text in rows))
    return htmls


def rows_html(rows: Iterable[CodeRow], file_number: int | None = None) -> SafeString:
    """Return rows as HTML.

    Rows of a file of the tab Files have links: `#file-3-L12`, `#file-3-R12`.
    """
    return SafeString("".join(_row_html(row, file_number) for row in rows))


def _row_html(row: CodeRow, file_number: int | None) -> str:
    # Not a template: a page has thousands of rows. Only `html` is of the depot, and is safe.
    number = "" if row.number is None else row.number
    side = "R" if row.kind == "removed" else "L"
    css = f"row {row.kind}{' meant' if row.is_meant else ''}"
    if not file_number or not row.number:
        return f'<span class="{css}" data-line="{number}" data-sign="{row.sign}">{row.html}\n</span>'
    name = f"file-{file_number}-{side}{number}"
    # Not in the order of tabs: a page has thousands of lines.
    link = f'<a href="#{name}" tabindex="-1">{number} {row.sign}</a>'
    return f'<span class="{css}" id="{name}">{link}{row.html}\n</span>'


def _bounded(text: str) -> str:
    text = text.replace("\r", "").replace("\n", " ")
    return name_invisible(text[:MAX_LINE_CHARS] + "\u2026" if len(text) > MAX_LINE_CHARS else text)


def _well_formed(excerpt: object) -> Iterator[tuple[int | None, str, str]]:
    for row in excerpt if isinstance(excerpt, list) else []:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], str):
            continue
        number, kind, text = row
        yield (number if isinstance(number, int) else None), str(kind)[:1], text


def _lexer_name_part(file: str) -> str:
    name = PurePosixPath(file).name[-128:]
    suffix = PurePosixPath(name).suffix
    # The suffix alone makes the cache useful; Makefile and Dockerfile have none.
    return f"x{suffix}" if suffix else name


@lru_cache(maxsize=256)
def _lexer(name: str) -> Lexer | None:
    found = find_lexer_class_for_filename(name)
    return found(stripnl=False, ensurenl=False) if found else None


def _highlighted(
    lines: Sequence[str], name: str, marks: Mapping[int, Sequence[tuple[int, int]]]
) -> list[SafeString]:
    """Return each line as safe HTML; `marks` are the ranges of its characters to stand out."""
    pieces = _pieces(lines, _lexer(name))
    return [_joined(line, marks.get(number, ())) for number, line in enumerate(pieces)]


def _pieces(lines: Sequence[str], lexer: Lexer | None) -> list[list[tuple[str, str]]]:
    """Return the parts of each line with their CSS classes."""
    plain = [[("", line)] for line in lines]
    if lexer is None:
        return plain
    found: list[list[tuple[str, str]]] = [[]]
    for token, value in lexer.get_tokens("\n".join(lines)):
        for index, piece in enumerate(value.split("\n")):
            if index:
                found.append([])
            if piece:
                found[-1].append((_css_class(token), piece))
    # A lexer that swallows line ends must not shift the numbers.
    return found if len(found) == len(lines) else plain


def _joined(pieces: Sequence[tuple[str, str]], marks: Sequence[tuple[int, int]]) -> SafeString:
    # Not format_html: a page has 20,000 pieces. The classes are ours.
    return SafeString(
        "".join(
            f'<span class="{css}">{escape(text)}</span>' if css else escape(text)
            for css, text in (_marked(pieces, marks) if marks else pieces)
        )
    )


def _marked(pieces: Sequence[tuple[str, str]], marks: Sequence[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """Cut the pieces of a line at the marks, and give what is marked the class `changed`."""
    edges = sorted({edge for mark in marks for edge in mark})
    at = 0
    for css, text in pieces:
        cuts = [at, *(edge for edge in edges if at < edge < at + len(text)), at + len(text)]
        for start, end in pairwise(cuts):
            is_marked = any(first <= start < last for first, last in marks)
            yield f"{css} changed".strip() if is_marked else css, text[start - at : end - at]
        at += len(text)


def _css_class(token: _TokenType) -> str:
    """Return the short class of a token's nearest standard type; pages.css styles those."""
    while token not in STANDARD_TYPES and token.parent is not None:
        token = token.parent
    return "" if token in _UNSTYLED else STANDARD_TYPES[token]
