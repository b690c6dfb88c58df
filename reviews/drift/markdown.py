"""Reading of Markdown: CommonMark with tables, by markdown-it-py."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from reviews.drift.page import MAX_MARKS, MAX_SENTENCE, Block, Mark, Page, Row, Sentence, sentences_of, slugs

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_HTML_ANCHOR = re.compile(r"<[^<>]*?\b(?:id|name)\s*=\s*[\"']?([\w.:-]+)")
_HEADING_ID = re.compile(r"\s*\{[:\s]*#([\w.:-]+)[^}]*\}\s*$")
_OFF, _ON = re.compile(r"<!--\s*drift:\s*off\s*-->"), re.compile(r"<!--\s*drift:\s*on\s*-->")


@cache
def _parser() -> MarkdownIt:
    # Typographic extensions would change the text; a reference of a link is resolved by the parser.
    return MarkdownIt("commonmark", {"maxNesting": 30}).enable("table")


def read(text: str) -> Page:
    """Return what a Markdown document holds."""
    text = _FRONT_MATTER.sub(lambda found: "\n" * found[0].count("\n"), text)
    return _Reader(_parser().parse(text)).page


class _Reader:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._headings: list[str] = []
        self._section, self._lead, self._line = "", "", 1
        self._is_off = self._is_heading = self._is_title = False
        self._header: tuple[str, ...] = ()
        self._cells: list[str] | None = None
        self._is_head = False
        self.page = Page()
        for token in tokens:
            self._read(token)
        self.page.anchors |= slugs(self._headings)

    def _read(self, token: Token) -> None:
        if token.map:
            self._line = token.map[0] + 1
        match token.type:
            case "heading_open":
                self._is_heading, self._is_title = True, token.tag == "h1" and not self._headings
            case "inline":
                self._inline(token)
            case "fence" | "code_block":
                self._block(token)
            case "html_block":
                self._html(token.content)
            case "thead_open" | "thead_close":
                self._is_head = token.type == "thead_open"
            case "tr_open":
                self._cells = []
            case "tr_close":
                self._row()

    def _row(self) -> None:
        cells, self._cells = tuple(self._cells or ()), None
        if self._is_head:
            self._header = cells
        elif not self._is_off:
            self.page.rows.append(Row(self._header, cells, self._line, self._section))

    def _html(self, content: str) -> None:
        self.page.anchors.update(_HTML_ANCHOR.findall(content))
        off, on = _OFF.search(content), _ON.search(content)
        if off or on:
            self._is_off = bool(off) and not (on and off and on.start() > off.start())

    def _block(self, token: Token) -> None:
        if self._is_off:
            return
        words = re.split(r"[\s,{]", token.info.strip(), maxsplit=1)
        first = self._line + (token.type == "fence")
        lines = tuple(token.content.rstrip("\n").split("\n"))
        self.page.blocks.append(Block(words[0].lower(), lines, first, self._section, self._lead))

    def _inline(self, token: Token) -> None:
        text, marks, breaks = self._flat(token)
        if self._is_heading:
            self._is_heading = False
            if own := _HEADING_ID.search(text):
                self.page.anchors.add(own[1])
                text = text[: own.start()]
            heading = text.replace("`", "")
            # The title "Example shop" makes no example of what stands below it; "Examples" does.
            is_about_all = self._is_title and heading.strip().lower() not in {"example", "examples"}
            self._section = "" if is_about_all else heading
            self._headings.append(heading)
            return
        self._lead = text
        if self._cells is not None:
            self._cells.append(text)
        if self._is_off:
            return
        first = self._line

        def line_at(offset: int) -> int:
            return first + bisect_left(breaks, offset)

        pieces = sentences_of(text)
        self.page.left_out += max(0, len(self.page.sentences) + len(pieces) - MAX_MARKS)
        self.page.left_out += max(0, len(self.page.marks) + len(marks) - MAX_MARKS)
        self.page.cut += sum(len(sentence) > MAX_SENTENCE for _, sentence in pieces)
        for start, sentence in pieces[: MAX_MARKS - len(self.page.sentences)]:
            self.page.sentences.append(Sentence(sentence, line_at(start + 1), self._section))
        at = 0
        for kind, offset, mark in marks[: MAX_MARKS - len(self.page.marks)]:
            while at + 1 < len(pieces) and pieces[at + 1][0] <= offset:
                at += 1
            self.page.marks.append(Mark(kind, mark, line_at(offset), pieces[at][1], self._section))

    def _flat(self, token: Token) -> tuple[str, list[tuple[str, int, str]], list[int]]:
        """Return the plain text of inline content, its marks with offsets, and where its lines end."""
        pieces: list[str] = []
        marks: list[tuple[str, int, str]] = []
        breaks: list[int] = []
        size = 0
        for child in token.children or ():
            piece = ""
            match child.type:
                case "text":
                    piece = child.content
                case "code_inline":
                    piece = f"`{child.content}`"
                    marks.append(("code", size, child.content))
                case "link_open":
                    # `<https://…>` and the like name an address, not a file.
                    if child.markup != "autolink":
                        marks.append(("link", size, str(child.attrGet("href") or "")))
                case "image":
                    marks.append(("link", size, str(child.attrGet("src") or "")))
                    piece = child.content
                case "softbreak" | "hardbreak":
                    breaks.append(size)
                    piece = "\n"
                case "html_inline":
                    self._html(child.content)
            pieces.append(piece)
            size += len(piece)
        return "".join(pieces), marks, breaks
