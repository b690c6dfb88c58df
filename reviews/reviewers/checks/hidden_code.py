"""Check for code that the redactor takes out: what the model does not see, a person must (G190)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from criticizer.redaction import RedactedText
from criticizer.redaction.policy import POLICY_KINDS
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.lines import Check, check_finding, extension, files_and_diffs
from reviews.sources.base import Change, FileChange
from reviews.sources.diffs import FileDiff, RenderedDiff, split_lines

_PLACEHOLDER = re.compile(r"<REDACTED:([a-z][a-z0-9-]{0,30}):[0-9]{1,6}>")
# Here something outside of a literal is run; in configuration and prose it is a value.
_EXTENSIONS = (
    "py pyi js mjs cjs jsx ts tsx c h cc cpp hpp cs java kt go rb php rs swift scala pl pm lua vb groovy dart"
    " ex exs erl hs ml clj r jl m mm sql sh bash zsh ps1"
)
_PROGRAMS = frozenset(f".{name}" for name in _EXTENSIONS.split())
_EXPRESSION = re.compile(r"[()\[\]{};]|\s|\.[A-Za-z_]|->|::")
_CONTINUES = re.compile(r"\s*(?:\(|\[|\.[A-Za-z_]|->|::|\?\.)")
_CALLED = re.compile(r"\s*\(")
_MEMBER = re.compile(r"(?:\.|->|::|\b(?:def|fn|func|function|class|new|return|await|import|from))\s*$")
_SUBSTITUTED = re.compile(r"\$\(|`|[$#]\{[^}]*\(|\{[^}]*\w\(|<%|!!\w")
# What is handed to these is run, be it a literal.
_RUNS = re.compile(
    r"\b(?:eval|exec|execfile|compile|system|popen|spawn|passthru|shell_exec|unserialize|Function|iex"
    r"|Invoke-Expression|loads|instance_eval|class_eval|load_string|fromstring|getattr|__import__|import_module"
    r"|forName|call_user_func|call_user_func_array|create_function|constantize|public_send|__send__)\s*[( ]"
    r"|\s-e(?:nc|ncodedcommand)?\s+<REDACTED:",
    re.IGNORECASE,
)
_LONG_QUOTES = re.compile("\"\"\"|'''|`")
_KEY_MATERIAL = re.compile(r"(?=[^0-9]*[0-9])[A-Za-z0-9+/=]{40,}")
_COMMENT = re.compile(r"(?:^|\s)(?:#|//|--|/?\*|;)\s")


def hidden_code_in(rendered: Sequence[RenderedDiff | None], shown: Sequence[RedactedText | None]) -> Check:
    """Return the check of what the model is shown: the diff of each file, and that text redacted (G194)."""

    def hidden_code(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
        for (file, diff), raw, text in zip(files_and_diffs(change, diffs), rendered, shown, strict=True):
            if raw is not None and text is not None and "<REDACTED:" in text.text:
                lines = _changed_lines(diff, raw, text.text.split("\n"))
                for number in _hiding(file, lines):
                    yield _finding(file.path, number)

    return hidden_code


def _changed_lines(diff: FileDiff, raw: RenderedDiff, shown: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return the number of each added line that shows a placeholder, its text, and what is shown of it."""
    return [
        (line.new_no, line.text, shown[at][1:].rstrip("\r"))
        for hunk, where in zip(diff.hunks, raw.places, strict=True)
        for line, at in zip(hunk.lines, where, strict=True)
        if line.kind == "+" and line.new_no is not None and "<REDACTED:" in shown[at]
    ]


def _hiding(file: FileChange, lines: Sequence[tuple[int, str, str]]) -> Iterator[int]:
    """Yield the numbers of the lines of which something is taken out that is run."""
    is_program = bool(lines) and extension(file.path) in _PROGRAMS
    quoted = _lines_in_literals(split_lines(file.new_text or "")) if is_program else frozenset()
    for number, line, shown in lines:
        if _hides(line, shown, is_program=is_program and number not in quoted):
            yield number


def _lines_in_literals(lines: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the lines that begin inside a literal of several lines."""
    inside, found = "", set()
    for number, line in enumerate(lines, start=1):
        if inside:
            found.add(number)
        for mark in _LONG_QUOTES.findall(line):
            inside = mark if not inside else "" if mark == inside else inside
    return frozenset(found)


def _hides(line: str, shown: str, *, is_program: bool) -> bool:
    """Return whether a placeholder of the shown line stands for something that is run."""
    line = line.rstrip("\r\n")[:4_000]
    if _RUNS.search(shown):
        return True
    pieces = _PLACEHOLDER.split(shown[:8_000])
    removed = _removed(line, pieces[::2])
    if removed is None:
        return bool(_SUBSTITUTED.search(line))
    return any(
        # A host or an address is an expression by its form: only one that is called is code.
        _CALLED.match(line[end:]) is not None
        if kind in POLICY_KINDS and is_program and not _is_quoted(line[:start])
        else kind not in POLICY_KINDS and _is_run(line, start, end, is_program=is_program)
        for kind, (start, end) in zip(pieces[1::2], removed, strict=True)
    )


def _removed(line: str, kept: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the spans of a line between the pieces that were kept of it, None when they are not in it."""
    at, spans = 0, []
    for place, piece in enumerate(kept):
        is_last = place == len(kept) - 1
        # Each piece at its first place: where any placing fits, this one does, in linear time.
        found = len(line) - len(piece) if is_last and place else line.find(piece, at)
        if found < at or not line.startswith(piece, found) or (place == 0 and found):
            return None
        if place:
            spans.append((at, found))
        at = found + len(piece)
    return spans


def _is_run(line: str, start: int, end: int, *, is_program: bool) -> bool:
    value = line[start:end]
    if _SUBSTITUTED.search(value):
        return True
    if not is_program or _is_quoted(line[:start]) or _COMMENT.search(line[:start]):
        return False
    if _KEY_MATERIAL.fullmatch(value):
        return False
    is_statement = not line[:start].strip() and not line[end:].strip(" \t;")
    return is_statement or bool(
        _EXPRESSION.search(value) or _CONTINUES.match(line[end:]) or _MEMBER.search(line[:start])
    )


def _is_quoted(before: str) -> bool:
    """Return whether a literal is open at the end of a line's beginning."""
    quote = ""
    at = 0
    while at < len(before):
        char = before[at]
        if char == "\\":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'`":
            quote = char
        at += 1
    return bool(quote)


def _finding(path: str, line: int) -> Finding:
    return check_finding(
        path,
        FindingSeverity.HIGH,
        "Code that reads like a secret is not shown to the model",
        "A part of this line was taken out as a secret and stands where a program runs it, so no model has "
        "reviewed it.",
        "Read this line yourself. If it is honest, rename what reads like a secret.",
        line,
        category="security",
    )
