"""Check for code that the redactor takes out: no model reads it, so a person must (G190)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from criticizer.redaction import RedactedText
from criticizer.redaction.policy import POLICY_KINDS
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.lexing import open_at_end, open_lines
from reviews.reviewers.checks.lines import Check, check_finding, extension, files_and_diffs
from reviews.sources.base import Change, FileChange
from reviews.sources.diffs import FileDiff, RenderedDiff, split_lines

_PLACEHOLDER = re.compile(r"<REDACTED:([a-z][a-z0-9-]{0,30}):[0-9]{1,6}>")
# In these files text outside of a literal is run; in configuration and prose it is a value.
_EXTENSIONS = (
    "py pyi js mjs cjs jsx ts tsx c h cc cpp hpp cs java kt go rb php rs swift scala pl pm lua vb groovy dart"
    " ex exs erl hs ml clj r jl m mm sql sh bash zsh ps1"
)
_PROGRAMS = frozenset(f".{name}" for name in _EXTENSIONS.split())
# In these files a bare word is a literal, and a sign separates commands; elsewhere a word names a value.
_SHELLS = frozenset((".sh", ".bash", ".zsh", ".ps1", ".bat", ".cmd"))
_BARE_LITERALS = _SHELLS | {".sql"}
_BACKQUOTES_RUN = frozenset((".sh", ".bash", ".zsh", ".rb", ".pl", ".pm", ".php", ".jl"))
_NAME = re.compile(r"[A-Za-z_]\w*[!?]?")
_NEXT_COMMAND = re.compile(r"[&|;]\s*[\w./\\]")
_EXPRESSION = re.compile(r"[()\[\]{};]|\s|\.[A-Za-z_]|->|::")
_CONTINUES = re.compile(r"\s*(?:\(|\[|\.[A-Za-z_]|->|::|\?\.)")
_CALLED = re.compile(r"\s*\(")
_MEMBER = re.compile(r"(?:\.|->|::|\b(?:def|fn|func|function|class|new|return|await|import|from))\s*$")
_SUBSTITUTED = re.compile(r"\$\(|`|[$#]\{[^}]*\(|\{[^}]*\w\(|<%|!!\w")
# An argument of these is run, even if it is a literal.
_RUNS = re.compile(
    r"\b(?:eval|exec|execfile|compile|system|popen|spawn|passthru|shell_exec|unserialize|Function|iex"
    r"|Invoke-Expression|loads|instance_eval|class_eval|load_string|fromstring|getattr|__import__|import_module"
    r"|forName|call_user_func|call_user_func_array|create_function|constantize|public_send|__send__)\s*[( ]"
    r"|\s-e(?:nc|ncodedcommand)?\s+<REDACTED:",
    re.IGNORECASE,
)
_KEY_MATERIAL = re.compile(r"(?=[^0-9]*[0-9])[A-Za-z0-9+/=]{40,}")


def hidden_code_in(rendered: Sequence[RenderedDiff | None], shown: Sequence[RedactedText | None]) -> Check:
    """Return the check of the diffs that a model is shown, before and after redaction (G194)."""

    def hidden_code(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
        for (file, diff), raw, text in zip(files_and_diffs(change, diffs), rendered, shown, strict=True):
            if raw is not None and text is not None and "<REDACTED:" in text.text:
                lines = _changed_lines(diff, raw, text.text.split("\n"))
                for number in _hiding(file, lines):
                    yield _finding(file.path, number)

    return hidden_code


def _changed_lines(diff: FileDiff, raw: RenderedDiff, shown: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return number, text and shown text of each added line that shows a placeholder."""
    return [
        (line.new_no, line.text, shown[at][1:].rstrip("\r"))
        for hunk, where in zip(diff.hunks, raw.places, strict=True)
        for line, at in zip(hunk.lines, where, strict=True)
        if line.kind == "+" and line.new_no is not None and "<REDACTED:" in shown[at]
    ]


def _hiding(file: FileChange, lines: Sequence[tuple[int, str, str]]) -> Iterator[int]:
    """Yield the numbers of the lines from which something that is run was taken out."""
    suffix = extension(file.path)
    is_program = bool(lines) and suffix in _PROGRAMS | _SHELLS
    inside = open_lines(split_lines(file.new_text or ""), suffix) if is_program else ()
    for number, line, shown in lines:
        opened = inside[number - 1] if 0 < number <= len(inside) else ""
        if _hides(line, shown, suffix if is_program else "", opened):
            yield number


def _hides(line: str, shown: str, suffix: str, opened: str) -> bool:
    """Return whether a placeholder of the shown line stands for something that is run.

    `suffix` is that of a program's file, else empty; `opened` is what is open where the line begins.
    """
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
        if kind in POLICY_KINDS and suffix in _PROGRAMS and not open_at_end(line[:start], suffix, opened)
        else kind not in POLICY_KINDS and _is_run(line, start, end, suffix, opened)
        for kind, (start, end) in zip(pieces[1::2], removed, strict=True)
    )


def _removed(line: str, kept: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the spans of a line between its kept pieces, or None if it lacks one of these."""
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


def _is_run(line: str, start: int, end: int, suffix: str, opened: str) -> bool:
    value = line[start:end]
    if _SUBSTITUTED.search(value):
        return True
    inside = open_at_end(line[:start], suffix, opened) if suffix else ""
    if inside == "`" and suffix in _BACKQUOTES_RUN:
        return True
    if not suffix or inside:
        return False
    if suffix in _SHELLS and _NEXT_COMMAND.search(value):
        return True
    if suffix not in _PROGRAMS or _KEY_MATERIAL.fullmatch(value):
        return False
    if suffix not in _BARE_LITERALS and _NAME.fullmatch(value):
        return True
    is_statement = not line[:start].strip() and not line[end:].strip(" \t;")
    return is_statement or bool(
        _EXPRESSION.search(value) or _CONTINUES.match(line[end:]) or _MEMBER.search(line[:start])
    )


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
