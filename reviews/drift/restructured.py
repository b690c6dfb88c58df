"""Reading of reStructuredText by its lines.

docutils would read it whole, but gives inline text no line, drops what Sphinx adds, and opens files that a
document includes. What is not one of the forms below is prose, which claims nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from reviews.drift.page import MAX_MARKS, MAX_SENTENCE, Block, Mark, Page, Sentence, sentences_of, slugs

_ADORNMENT = re.compile(r"([=\-~^\"'`#*+.:_<>])\1{2,}\s*$")
_TARGET = re.compile(r"\.\. _`?([^:`]+)`?:\s*(\S*)")
_DIRECTIVE = re.compile(r"\s*\.\. ([\w:-]+)::\s*(.*)$")
_OPTION = re.compile(r"\s+:[\w-]+:")
_CODE_DIRECTIVES = frozenset(("code", "code-block", "sourcecode", "prompt", "console"))
_FILE_DIRECTIVES = frozenset(("image", "figure", "include", "literalinclude"))
_SKIPPED_DIRECTIVES = frozenset(("raw", "deprecated", "versionchanged", "versionadded", "versionremoved"))
_COMMENT = re.compile(r"<!--[^<>]*-->")  # of HTML: nothing that it names is said to a reader
_MARKS = re.compile(
    r"``(?P<code>[^`\n]+)``"
    r"|:(?P<role>[\w:+-]{1,40}):`(?:[^`<]*<(?P<inner>[^`>]+)>|(?P<plain>[^`<]+))`"
    r"|`[^`<]*<(?P<link>[^`>]+)>`__?"
)

_MAX_PARAGRAPH = 20_000  # characters whose sentences are read


def read(text: str) -> Page:
    """Return what a reStructuredText document holds."""
    plain = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    return _Reader(plain.split("\n")).page


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._section, self._lead = "", ""
        self._headings: list[str] = []
        self.page = Page()
        at = 0
        while at < len(lines):
            at = self._step(at)
        self.page.anchors |= slugs(self._headings)

    def _step(self, at: int) -> int:
        line = self._lines[at]
        below = self._lines[at + 1] if at + 1 < len(self._lines) else ""
        if not line.strip():
            return at + 1
        if target := _TARGET.match(line):
            self.page.anchors |= slugs([target[1]]) | {target[1]}
            if target[2]:
                self._mark("link", target[2], at + 1, line)
            return at + 1
        if found := _DIRECTIVE.match(line):
            return self._directive(at, found[1], found[2].strip())
        if line.lstrip().startswith(".. "):  # a comment
            return self._indented(at)[1]
        if _ADORNMENT.match(line):
            return at + 1
        if _ADORNMENT.match(below) and len(below.rstrip()) >= len(line.strip()) and not line.startswith(" "):
            self._section = line.strip().replace("`", "")
            self._headings.append(self._section)
            return at + 2
        return self._paragraph(at)

    def _indented(self, at: int) -> tuple[list[tuple[int, str]], int]:
        """Return the lines below that are indented more, with their numbers, and where they end."""
        own = len(self._lines[at]) - len(self._lines[at].lstrip())
        end, found = at + 1, []
        while end < len(self._lines):
            line = self._lines[end]
            if line.strip() and len(line) - len(line.lstrip()) <= own:
                break
            found.append((end + 1, line))
            end += 1
        return found, end

    def _directive(self, at: int, name: str, argument: str) -> int:
        body, end = self._indented(at)
        if name in _CODE_DIRECTIVES:
            code = [(number, line) for number, line in body if not _OPTION.match(line)]
            while code and not code[0][1].strip():
                code.pop(0)
            self._block(argument or ("console" if name == "prompt" else ""), code)
            return end
        if name in _FILE_DIRECTIVES and argument:
            self._mark("link", argument, at + 1, self._lines[at])
            return at + 1 if name == "figure" else end
        if name == "toctree":
            for number, line in body:
                entry = line.strip()
                inner = re.search(r"<([^>]+)>$", entry)
                target = inner[1] if inner else entry
                if entry and not entry.startswith(":") and target != "self":
                    self._mark("page", target, number, "")
            return end
        return end if name in _SKIPPED_DIRECTIVES else at + 1

    def _block(self, language: str, code: list[tuple[int, str]]) -> None:
        if not code:
            return
        margin = min((len(line) - len(line.lstrip()) for _, line in code if line.strip()), default=0)
        lines = tuple(line[margin:] for _, line in code)
        self.page.blocks.append(Block(language.lower(), lines, code[0][0], self._section, self._lead))

    def _paragraph(self, at: int) -> int:
        end = at
        while (
            end < len(self._lines)
            and self._lines[end].strip()
            and (end == at or not _DIRECTIVE.match(self._lines[end]))
        ):
            end += 1
        lines = self._lines[at:end]
        if lines[0].lstrip().startswith(">>>"):
            self._block("pycon", [(at + 1 + number, line) for number, line in enumerate(lines)])
            return end
        text = "\n".join(lines)
        self._lead = text
        pieces = sentences_of(_MARKS.sub(_as_code, text)) if len(text) < _MAX_PARAGRAPH else []
        self.page.left_out += max(0, len(self.page.sentences) + len(pieces) - MAX_MARKS)
        self.page.left_out += not pieces
        self.page.cut += sum(len(sentence) > MAX_SENTENCE for _, sentence in pieces)
        breaks = [found.start() for found in re.finditer("\n", text)]
        for start, sentence in pieces[: MAX_MARKS - len(self.page.sentences)]:
            line = at + 1 + bisect_left(breaks, start + 1)
            self.page.sentences.append(Sentence(sentence, line, self._section))
        raw = sentences_of(text)
        place = 0
        for found in _MARKS.finditer(text):
            while place + 1 < len(raw) and raw[place + 1][0] <= found.start():
                place += 1
            line = at + 1 + bisect_left(breaks, found.start())
            self._found(found, line, raw[place][1])
        if text.rstrip().endswith("::") and end < len(self._lines):
            body, stop = self._indented(end - 1)
            code = [(number, line) for number, line in body if line.strip()]
            self._block("", code)
            return stop
        return end

    def _found(self, found: re.Match[str], line: int, sentence: str) -> None:
        if found["code"]:
            self._mark("code", found["code"], line, sentence)
        elif found["link"]:
            self._mark("link", found["link"], line, sentence)
        else:
            target = found["inner"] or found["plain"]
            kind = {"doc": "page", "download": "link", "file": "code", "envvar": "code"}.get(found["role"])
            if kind and "{" not in target:
                self._mark(kind, target, line, sentence)

    def _mark(self, kind: str, text: str, line: int, sentence: str) -> None:
        if len(self.page.marks) < MAX_MARKS:
            self.page.marks.append(Mark(kind, text.strip(), line, sentence, self._section))
        else:
            self.page.left_out += 1


def _as_code(found: re.Match[str]) -> str:
    """Write a literal as Markdown does, at the same length but for its second backticks."""
    return f"`{found['code']}`" if found["code"] else found[0].replace("`", "'")
