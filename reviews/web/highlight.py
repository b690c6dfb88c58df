"""Code excerpts as rows of safe HTML.

Depot text is untrusted: every token is escaped, sizes are bounded, and characters that hide
or reorder text (bidirectional overrides, zero-width, control) are shown by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString
from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename
from pygments.token import STANDARD_TYPES, Token, _TokenType

from criticizer.invisible_characters import name_invisible

MAX_ROWS = 40
MAX_LINE_CHARS = 400
_KINDS = {"+": "added", "-": "removed"}
_UNSTYLED = {Token, Token.Text, Token.Text.Whitespace, Token.Error, Token.Name, Token.Punctuation}
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
    file: str, excerpt: object, is_meant: Callable[[int | None, str], bool] = lambda number, kind: False
) -> list[CodeRow]:
    """Return a finding's stored excerpt, `[[line or null, kind, text], …]`, highlighted by file name.

    `is_meant` returns whether a line of a kind belongs to the finding. Malformed rows are left out;
    at most `MAX_ROWS` rows of `MAX_LINE_CHARS` are kept.
    """
    rows = list(_well_formed(excerpt))[:MAX_ROWS]
    htmls = _highlighted([text for _, _, text in rows], _lexer_name_part(file))
    return [
        CodeRow(number, _KINDS.get(kind, "context"), _SIGNS.get(kind, " "), html, is_meant(number, kind))
        for (number, kind, _), html in zip(rows, htmls, strict=True)
    ]


def _well_formed(excerpt: object) -> Iterator[tuple[int | None, str, str]]:
    for row in excerpt if isinstance(excerpt, list) else []:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], str):
            continue
        number, kind, text = row
        text = text.replace("\r", "").replace("\n", " ")
        if len(text) > MAX_LINE_CHARS:
            text = text[:MAX_LINE_CHARS] + "\u2026"
        yield (number if isinstance(number, int) else None), str(kind)[:1], name_invisible(text)


def _lexer_name_part(file: str) -> str:
    name = PurePosixPath(file).name[-128:]
    suffix = PurePosixPath(name).suffix
    # The suffix alone makes the cache useful; Makefile and Dockerfile have none.
    return f"x{suffix}" if suffix else name


@lru_cache(maxsize=256)
def _lexer(name: str) -> Lexer | None:
    found = find_lexer_class_for_filename(name)
    return found(stripnl=False, ensurenl=False) if found else None


def _highlighted(lines: Sequence[str], name: str) -> list[SafeString]:
    lexer = _lexer(name)
    if lexer is None:
        return [escape(line) for line in lines]
    htmls: list[list[tuple[str, str]]] = [[]]
    for token, value in lexer.get_tokens("\n".join(lines)):
        for index, piece in enumerate(value.split("\n")):
            if index:
                htmls.append([])
            if piece:
                htmls[-1].append((_css_class(token), piece))
    if len(htmls) != len(lines):  # a lexer that swallows line ends must not shift the numbers
        return [escape(line) for line in lines]
    return [_joined(pieces) for pieces in htmls]


def _joined(pieces: Sequence[tuple[str, str]]) -> SafeString:
    return format_html_join(
        "",
        "{}",
        ((format_html('<span class="{}">{}</span>', css, text) if css else text,) for css, text in pieces),
    )


def _css_class(token: _TokenType) -> str:
    """Return the short class of a token's nearest standard type; pages.css styles those."""
    while token not in STANDARD_TYPES and token.parent is not None:
        token = token.parent
    return "" if token in _UNSTYLED else STANDARD_TYPES[token]
