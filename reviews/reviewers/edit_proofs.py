"""Proves an edit by applying it in memory to the new side of its file (guarantee G430).

Runs in the redacting process, which has the file and the kernel's limits on time and memory.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from tree_sitter import Language, Node, Parser

from criticizer.redaction import clean
from reviews.reviewers.base import Edit
from reviews.reviewers.grammars import GRAMMARS, language_of
from reviews.reviewers.suggestions import indent
from reviews.sources.base import FileChange

MAX_BYTES = 1_000_000
_AROUND = 30  # lines on either side that the new text is compared with
_TELLING_CHARS = 10  # of a line that is not `return 0` or `break`
_MAX_NODES = 200_000
_BRACKETS = ("()", "[]", "{}")
# A keyword of Perforce, which stands expanded in the file.
_KEYWORD = re.compile(r"\$(?:Id|Header|Date(?:Time(?:UTC|TZ)?)?|Change|File|Revision|Author)\$")
_PLACEHOLDER = re.compile(
    r"^\s*(?:#|//|/\*|--|<!--|;|%|\*)?\s*[\[(<{]?\s*(?:\.{3}|\u2026)"
    r"|<REDACTED|\u2026|\.{3}\s*(?:existing|rest|remaining|other|same|your|unchanged|more)"
    r"|\b(?:existing|remaining|rest of(?: the)?|previous|original|other|same|unchanged)"
    r" (?:code|function|method|implementation|logic|lines|body)\b"
    r"|\b(?:as before|unchanged|placeholder)\b|\b(?:TODO|FIXME|XXX)\b"
    r"|\byour[_-]?\w*(?:key|token|here|value|code)"
    r"|\binsert\b.{0,40}\bhere\b|<(?:your|insert)\b",
    re.IGNORECASE | re.MULTILINE,
)
_MARKED = re.compile(r"\s*(?:\d{1,7}(?: ?[+|:]|\s+\S)|[+-](?=[\s\w]))")
_WORD = re.compile(r"\w")


def why_refused(file: FileChange | None, edit: Edit) -> str:
    """Return why an edit must not be offered, as a word for the count, or "".

    An edit may be offered if its lines stand in the file as they were shown, and if its new text is another
    one, holds nothing left open and no secret, keeps the indentation, repeats no line around it, and parses
    wherever the file does.
    """
    text = file.new_text if file is not None else None
    if file is None or text is None or len(text) > MAX_BYTES:
        return "unread"
    if not file.is_verbatim:
        return "not_plain_utf8"
    lines = text.split("\n")
    first, end = edit.start - 1 + edit.first, edit.start - 1 + edit.end
    if tuple(lines[edit.start - 1 : edit.start - 1 + len(edit.lines)]) != edit.lines:
        return "other_lines"
    is_last = edit.end == len(edit.lines)
    if (is_last and end != len(lines) - 1) or edit.start - 1 + len(edit.lines) > len(lines) - 1:
        return "end_of_file"  # programs look there for a patch without a line after it
    if any(_KEYWORD.search(line) for line in edit.lines):
        return "keyword"
    old, new = lines[first:end], list(edit.new)
    return (
        _why_not_written(old, new)
        or _why_not_indented(old, new, lines)
        or _why_not_fitting(old, new, lines[max(0, first - _AROUND) : first], lines[end : end + _AROUND])
        or ("" if _parses(file.path, text, "\n".join([*lines[:first], *new, *lines[end:]])) else "syntax")
    )


def _why_not_written(old: Sequence[str], new: Sequence[str]) -> str:
    if [line.rstrip() for line in old] == [line.rstrip() for line in new]:
        return "no_change"
    added = "\n".join(line for line in new if line not in old)
    if _PLACEHOLDER.search(added):
        return "placeholder"
    if clean(added) != added:
        return "secret"
    written = [line for line in new if line.strip()]
    if written and all(map(_MARKED.match, written)) and not all(map(_MARKED.match, filter(str.strip, old))):
        return "marked"
    # An answer that was cut may end in blanks without a line end.
    return "cut" if new and new[-1].isspace() else ""


def _why_not_indented(old: Sequence[str], new: Sequence[str], lines: Sequence[str]) -> str:
    written = [line for line in new if line.strip()]
    if not written:
        return ""
    shallowest = min(len(indent(line)) for line in old if line.strip()) if any(map(str.strip, old)) else 0
    if indent(written[0]) != indent(next(filter(str.strip, old), "")):
        return "indentation"
    if any(len(indent(line)) < shallowest for line in written):
        return "indentation"
    used = {char for line in old for char in indent(line)} or {
        char for line in lines if line.strip() for char in indent(line)
    }
    added = {char for line in written for char in indent(line)}
    return "indentation" if used and not added <= used else ""


def _why_not_fitting(
    old: Sequence[str], new: Sequence[str], before: Sequence[str], after: Sequence[str]
) -> str:
    """Return "repeats" if new lines are around the edit already and would stand there twice."""
    kept = {line.strip() for line in old}
    added = [line for line in new if _WORD.search(line) and line.strip() not in kept]
    around = {line.strip() for line in (*before, *after)}
    repeated = [line for line in added if line.strip() in around]
    beside = {*before[-1:], *after[:1]}
    several = [line for line in repeated if len(line.strip()) >= _TELLING_CHARS]
    if beside.intersection(repeated) or len(several) > 1:
        return "repeats"
    following = next(filter(str.strip, after), "")
    opens = bool(old) and len(indent(following)) > len(indent(old[-1]))
    if opens and (not new or indent(new[-1]) != indent(old[-1])):
        return "repeats"  # the last of the old lines begins a block, and the new text brings its own
    return ""


def _parses(path: str, old: str, new: str) -> bool:
    language = language_of(path, f"{old}\n{new}")
    if language == "python" and _is_python(old):
        return _is_python(new)
    errors = _errors(language, old) if language else 1
    if language and _errors(language, new) > errors:
        return False
    # Where the file is not read as a whole, the rest of it waits for the same brackets as before.
    return not errors or all(_balance(old, pair) == _balance(new, pair) for pair in _BRACKETS)


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _errors(language: str, text: str) -> int:
    """Return how many places a grammar cannot read, among the first _MAX_NODES nodes visited."""
    found, waiting = 0, [_parser(language).parse(text.encode(errors="replace")).root_node]
    for _ in range(_MAX_NODES):
        if not waiting:
            break
        node: Node = waiting.pop()
        found += node.is_error or node.is_missing
        if node.has_error:
            waiting += node.children
    return found


@cache
def _parser(language: str) -> Parser:
    grammar = GRAMMARS[language]
    return Parser(Language(getattr(import_module(grammar.module), grammar.entry)()))


def _balance(text: str, pair: str) -> int:
    return text.count(pair[0]) - text.count(pair[1])
