"""Extraction of claims from a document: Markdown and reStructuredText."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from functools import cache
from urllib.parse import unquote

from reviews.drift import markdown, noise, restructured, shell_commands
from reviews.drift.claims import Claim, Form, Kind
from reviews.drift.page import MAX_BYTES, MAX_SENTENCE, Block, Mark, Page, Row, Sentence

MAX_CLAIMS = 200  # of a document
_READERS = {
    ".md": markdown.read,
    ".markdown": markdown.read,
    ".mdown": markdown.read,
    ".rst": restructured.read,
}
_ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_KEY = re.compile(r"(?:--)?[A-Za-z_][A-Za-z0-9_-]{2,60}")
_WHOLE_NUMBERED = frozenset(("python", "node", "node.js", "go", "rust", "postgresql", "django", "react"))
_METHOD = r"(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS)"
_ROUTE = re.compile(rf"{_METHOD}\s+(/[\w{{}}:<>\[\]/.*-]*)(?:\?\S*)?")
_NUMBER = r"\d+(?:\.\d+){0,3}"
_VERSION = re.compile(
    r"(?<![\w`/.-])`?(?P<name>[A-Za-z][\w.@/-]{0,60}?)`?\s{1,4}`?"
    r"(?P<op>>=|==|~=|\^|v(?=\d)|version\s{1,4}|)\s{0,4}"
    rf"(?P<number>{_NUMBER})`?"
    r"(?P<more>\+|\s{1,4}(?:or|and)\s{1,4}(?:newer|later|above|higher|up))?"
    r"(?![\w.%]*\w)(?!\s{0,4}(?:%|x\b))"
)
_REQUIREMENT = re.compile(
    r"\b(?:requir\w+|need(?:s|ed)?|support(?:s|ed)|at least|minimum|prerequisite|tested (?:on|with)"
    r"|works with|runs on)\b",
    re.IGNORECASE,
)
_DEFAULT = re.compile(
    r"`(?P<key>[^`\s]+)`[^`.;]{0,60}?(?:\bdefaults? to|\bby default(?: is)?"
    r"|\bdefault(?: value)?(?: is|:|=)?|\(default(?: is|:)?)\s*`(?P<value>[^`]+)`",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"[\"']?[\w.+:/ -]*[\"']?")
_NO_DEFAULT = re.compile(r"[-\u2013\u2014]*|none|empty|unset|required", re.IGNORECASE)
_PYTHON = frozenset(("python", "py", "python3", "pycon", "python-console"))
_IMPORTS = (
    (frozenset(("js", "javascript", "jsx", "ts", "typescript", "tsx", "mjs")),
     re.compile(r"import\s+(?:type\s+)?\{([^}]{1,300})\}\s*from\s*['\"]([@\w/.-]+)['\"]"), "js"),
    (frozenset(("go", "golang")), re.compile(r"(?:^|\s)\"([\w.-]+\.\w+/[\w./-]+)\""), "go"),
    (frozenset(("java", "kotlin")),
     re.compile(r"import\s+(?:static\s+)?([a-z][\w]*(?:\.\w+)+)\s*;?"), "java"),
    (frozenset(("c", "cpp", "c++", "cc")), re.compile(r"#\s*include\s*[<\"]([\w./+-]+/[\w.+-]+)[>\"]"), "c"),
    (frozenset(("rust", "rs")), re.compile(r"use\s+(\w+(?:::\w+)+)\s*;"), "rust"),
)  # fmt: skip


def is_document(path: str) -> bool:
    """Return whether claims are read from a file.

    Its form is known, and it is not about the past.
    """
    return posixpath.splitext(path)[1].lower() in _READERS and not noise.is_history(path)


def page_of(path: str, data: bytes) -> Page | None:
    """Return a document as it is read, or None where it is too large or no text."""
    if len(data) > MAX_BYTES or b"\0" in data:
        return None
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    reader = _READERS.get(posixpath.splitext(path)[1].lower())
    return reader(text) if reader else None


def claims_of(path: str, page: Page) -> list[Claim]:
    """Return all claims of a document in the order of their lines, each once."""
    found: dict[tuple[str, ...], Claim] = {}
    for claim in sorted(_claims(path, page), key=lambda one: one.line):
        found.setdefault(claim.key, claim)
    return list(found.values())


def _claims(path: str, page: Page) -> Iterator[Claim]:
    is_unasserted, is_firm = cache(noise.is_unasserted), cache(noise.is_firm)  # one sentence has many marks
    for mark in page.marks:
        if not is_unasserted(mark.sentence, mark.section):
            yield from _of_mark(path, mark, is_firm)
    for sentence in page.sentences:
        if not is_unasserted(sentence.text, sentence.section):
            yield from _of_sentence(path, sentence)
    for row in page.rows:
        yield from _of_row(path, row)
    for block in page.blocks:
        if not noise.is_unasserted(block.lead[-300:], block.section):
            yield from _of_block(path, block)


def _of_mark(document: str, mark: Mark, is_firm: Callable[[str], bool]) -> Iterator[Claim]:
    if mark.kind == "link":
        yield from _link(document, mark)
    elif mark.kind == "page":
        is_page = not noise.is_url(mark.text) and not noise.is_placeholder(mark.text)
        if is_page and not re.search(r"[*{}<>]", mark.text):
            yield Claim(document, mark.line, Kind.PATH, mark.text, "", Form.PAGE, text=mark.text)
    else:
        yield from _code(document, mark, is_firm(mark.sentence))


def _link(document: str, mark: Mark) -> Iterator[Claim]:
    target, _, anchor = mark.text.partition("#")
    target = unquote(target.split("?")[0])
    if noise.is_url(mark.text) or re.search(r"[{}<>$*|]|\s", target + anchor):
        return
    if noise.is_placeholder(target) or len(target) > 300 or target.startswith("~"):
        return
    if target and noise.is_reference(target):
        return
    if target or anchor:
        yield Claim(document, mark.line, Kind.PATH, target, unquote(anchor), Form.LINK, text=mark.text)


def _code(document: str, mark: Mark, firm: bool) -> Iterator[Claim]:
    text = mark.text.strip()
    is_variable = _ENVIRONMENT.fullmatch(text) and len(text) <= 80
    if is_variable and not noise.is_placeholder(text.lower().replace("_", "-")):
        yield Claim(document, mark.line, Kind.ENVIRONMENT, text, text=text, is_firm=firm)
        return
    if route := _ROUTE.fullmatch(text):
        yield Claim(document, mark.line, Kind.ROUTE, route[1], route[2], text=text, is_firm=firm)
        return
    if " " in text:
        for mention in shell_commands.in_line(text):
            if claim := _said(document, mark.line, mention, text, firm):
                yield claim
        return
    path = noise.path_in(text)
    if path and noise.names_a_file(path):
        firm = firm and not noise.is_choice(path)
        yield Claim(document, mark.line, Kind.PATH, path, "", Form.MENTION, text=text, is_firm=firm)


def _said(document: str, line: int, mention: shell_commands.Said, text: str, firm: bool) -> Claim | None:
    subject = mention.subject
    if mention.kind is Kind.PATH:
        subject = noise.path_in(subject)
        if not subject or (mention.form is Form.ARGUMENT and noise.is_choice(subject)):
            return None
    if mention.kind is Kind.COMMAND and noise.is_placeholder(mention.value):
        return None
    return Claim(
        document, line, mention.kind, subject, mention.value, mention.form, mention.folder, text[:2000], firm
    )


def _of_sentence(document: str, sentence: Sentence) -> Iterator[Claim]:
    def line(at: int) -> int:
        return sentence.line + sentence.text.count("\n", 1, at + 1)

    text = sentence.text
    for found in _DEFAULT.finditer(text[:MAX_SENTENCE]):
        if _KEY.fullmatch(found["key"]) and _LITERAL.fullmatch(found["value"]):
            at = line(found.start())
            yield Claim(document, at, Kind.CONFIG, found["key"], found["value"], text=found[0])
    firm = bool(_REQUIREMENT.search(text))
    for found in _VERSION.finditer(text[:MAX_SENTENCE]):
        is_exact = found["more"] or found["op"].strip() in (">=", "^", "==", "~=")
        if "." not in found["number"] and not is_exact and found["name"].lower() not in _WHOLE_NUMBERED:
            continue
        at, value, form = line(found.start()), found["number"], Form.PLAIN
        if found["more"] or found["op"].strip() == ">=":
            value, form = f">={value}", Form.REQUIRED
        yield Claim(document, at, Kind.VERSION, found["name"], value, form, text=found[0], is_firm=firm)
    for found in _ROUTE.finditer(text[:MAX_SENTENCE]):
        if found[2] != "/":
            at = line(found.start())
            yield Claim(document, at, Kind.ROUTE, found[1], found[2].rstrip("."), text=found[0])


def _of_row(document: str, row: Row) -> Iterator[Claim]:
    """Yield the defaults of a table that has a column for them."""
    at = next(
        (n for n, cell in enumerate(row.header) if re.match(r"`?default", cell.strip(), re.IGNORECASE)), None
    )
    if at is None or at == 0 or at >= len(row.cells) or noise.is_unasserted(" ".join(row.cells), row.section):
        return
    key = re.fullmatch(r"\s*`([^`]+)`.*", row.cells[0], re.DOTALL)
    value = row.cells[at].strip()
    value = value[1:-1] if re.fullmatch(r"`[^`]+`", value) else value
    if key and _KEY.fullmatch(key[1]) and _LITERAL.fullmatch(value) and not _NO_DEFAULT.fullmatch(value):
        yield Claim(document, row.line, Kind.CONFIG, key[1], value, text=f"{key[1]} {value}")


def _of_block(document: str, block: Block) -> Iterator[Claim]:
    if block.language in shell_commands.LANGUAGES:
        for offset, mention in shell_commands.in_block(block.lines):
            if claim := _said(document, block.line + offset, mention, block.lines[offset].strip(), True):
                yield claim
        return
    for offset, line in enumerate(block.lines):
        at, text = block.line + offset, line.strip()
        if block.language in ("http", "rest") and (route := _ROUTE.match(line)):
            yield Claim(document, at, Kind.ROUTE, route[1], route[2], text=text)
        for module, name, language in _imports(line, block.language):
            yield Claim(document, at, Kind.EXAMPLE, module, name, folder=language, text=text)


def _imports(line: str, language: str) -> Iterator[tuple[str, str, str]]:
    """Yield module, name and language ("" is Python) of what a line of an example imports."""
    if language in _PYTHON:
        line = re.sub(r"^(?:>>>|\.\.\.)\s?", "", line)
        if found := re.match(r"\s*from\s+([A-Za-z_][\w.]*)\s+import\s+\(?([\w ,*]+)", line):
            yield from ((found[1], name, "") for name in _names(found[2], r"[A-Za-z_]\w*"))
        elif found := re.match(r"\s*import\s+([\w., ]+)", line):
            yield from ((module, "", "") for module in _names(found[1], r"[A-Za-z_][\w.]*"))
    for languages, pattern, known in _IMPORTS:
        for found in pattern.finditer(line[:500]) if language in languages else ():
            if known == "js":
                listed = found[1].replace("type ", "")
                yield from ((found[2], name, known) for name in _names(listed, r"[\w$]+"))
            else:
                yield found[1], "", known


def _names(listed: str, form: str) -> Iterator[str]:
    """Yield the names of a list as they are exported: `a as b, c` are a and c."""
    for name in listed.split(","):
        word = name.split(" as ")[0].strip()
        if re.fullmatch(form, word):
            yield word
