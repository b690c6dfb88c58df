"""The code that a finding suggests, and a patch where it is certain that this code replaces its lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from criticizer.invisible_characters import name_invisible
from reviews.exports import path_in_repository
from reviews.models import FindingRow
from reviews.reviewers.base import MAX_EXCERPT_CHARS, Side

CONTEXT_LINES = 3
MIN_ALIKE = 0.5  # share of words that the lines and the code that replaces them have in common

_FENCED = re.compile(
    r"^ {0,3}(?P<mark>`{3,}|~{3,})(?P<language>[\w+.#-]*)[^`\n]*\n(?P<code>.*?)^ {0,3}(?P=mark)[^\S\n]*$",
    re.MULTILINE | re.DOTALL,
)
_DIFFS = {"diff", "patch"}
# Without a hunk's line, what begins with --- or +++ is a line of the file.
_HEADER = re.compile(r"(?:(?:diff|index) .*\n)*(?:--- .*\n\+\+\+ .*\n)?@@.*\n")
_BRACKETS = ("()", "[]", "{}")
# What redaction and decoding put into a line in the place of what was there.
_REPLACED = re.compile(r"<REDACTED|\ufffd|\u2400|\r")
# What `plain` puts into a model's text.
_ESCAPED = re.compile(r"\[[:.]\]|\] [(:]")
# A keyword of Perforce, which stands expanded in the file.
_KEYWORD = re.compile(r"\$(?:Id|Header|Date(?:Time(?:UTC|TZ)?)?|Change|File|Revision|Author)\$")
_WORD = re.compile(r"\w")
_UNSAFE_NAME = re.compile(r'["\\\x00-\x1f\x7f]')


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a suggestion: prose, or the lines of a fenced block with the language that it names."""

    text: str
    is_code: bool = False
    language: str = ""

    @property
    def is_diff(self) -> bool:
        return self.language in _DIFFS


def parts(suggestion: str) -> list[Part]:
    """Return a suggestion as prose and code, without the fences."""
    found, done = [], 0
    for fenced in _FENCED.finditer(suggestion):
        found += [
            Part(suggestion[done : fenced.start()].strip("\n")),
            Part(fenced["code"].rstrip("\n"), True, fenced["language"]),
        ]
        done = fenced.end()
    found.append(Part(suggestion[done:].strip("\n")))
    return [part for part in found if part.text.strip()]


def code_of(found: Sequence[Part]) -> Part | None:
    """Return the code of a suggestion that has one block of it, as its author wrote it; else None."""
    code = [part for part in found if part.is_code]
    if len(code) != 1 or has_changed(code[0].text) or _ESCAPED.search(code[0].text):
        return None
    return code[0]


def has_changed(text: str) -> bool:
    """Return whether redaction or decoding changed a text, or pages would show it otherwise than it is."""
    return bool(_REPLACED.search(text)) or name_invisible(text) != text


def to_paste(found: Sequence[Part]) -> str:
    """Return the code of a suggestion, "" where there is none that may be pasted into the file as it is."""
    code = code_of(found)
    return code.text if code and not code.is_diff else ""


def patch_of(row: FindingRow, found: Sequence[Part] | None = None) -> str:
    """Return a unified diff that applies the suggestion to the reviewed file; "" where that is not certain.

    `found`: the parts of the suggestion, where the caller has them.

    Certain: one block of code, either a diff whose old lines stand once in the excerpt, or the new text of
    exactly the finding's lines. Nothing in it was redacted or clipped, and the file is stored as UTF-8 with
    the line ends of Unix.
    """
    code = code_of(parts(row.suggestion) if found is None else found)
    if code is None or row.side != Side.NEW or row.line is None or row.demoted or not row.is_verbatim:
        return ""
    shown = [(number, text) for number, kind, text in row.excerpt if number is not None and kind != "-"]
    # The last line may be the file's last, without an end of line; every other line has one.
    shown = shown[:-1]
    numbers = [number for number, _ in shown]
    if not shown or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return ""
    texts = [text for _, text in shown]
    if code.is_diff:
        edit = _of_diff(code.text, texts)
    else:
        first = row.line - numbers[0]
        edit = of_lines(code.text, texts, first, first + (row.end_line or row.line) - row.line + 1)
    return (
        _written(
            path_in_repository(row.file, row.job.changelist_id if row.job_id else ""), numbers[0], texts, edit
        )
        if edit is not None
        else ""
    )


Edit = tuple[int, int, list[str]]  # first line, the line after the last, the new lines


def _of_diff(code: str, texts: Sequence[str]) -> Edit | None:
    header = _HEADER.match(code)
    lines = code[header.end() if header else 0 :].split("\n")
    if any(line[:1] not in ("", " ", "+", "-") for line in lines):
        return None
    old = [line[1:] for line in lines if line[:1] != "+"]
    places = [at for at in range(len(texts) - len(old) + 1) if list(texts[at : at + len(old)]) == old]
    if not any(old) or len(places) != 1:
        return None
    return places[0], places[0] + len(old), [line[1:] for line in lines if line[:1] != "-"]


def of_lines(code: str, texts: Sequence[str], first: int, end: int) -> Edit | None:
    """Return the edit if the code is a new text of the lines `first:end` of `texts`, not of more or fewer."""
    old, new = list(texts[first:end]), code.split("\n")
    if not 0 <= first < end <= len(texts) or not new[0].strip() or _indent(old[0]) != _indent(new[0]):
        return None
    added = {line.strip() for line in new if _WORD.search(line)} - {line.strip() for line in old}
    if added & {text.strip() for text in (*texts[:first], *texts[end:])}:
        return None  # it repeats a line around them
    following = next((text for text in texts[end:] if text.strip()), "")
    if _indent(new[-1]) != _indent(old[-1]) and len(_indent(following)) > len(_indent(old[-1])):
        return None  # the last of them begins a block, and the code does not end where it begins
    if any(_balance("\n".join(old), pair) != _balance(code, pair) for pair in _BRACKETS):
        return None
    words, others = _words("\n".join(old)), _words(code)
    alike = 2 * (words & others).total() / ((words + others).total() or 1)
    return (first, end, new) if alike >= MIN_ALIKE else None


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+|[^\w\s]", text))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _balance(text: str, pair: str) -> int:
    return text.count(pair[0]) - text.count(pair[1])


def _written(name: str, start: int, texts: Sequence[str], edit: Edit) -> str:
    first, end, new = edit
    low, high = max(0, first - CONTEXT_LINES), min(len(texts), end + CONTEXT_LINES)
    before, old, after = texts[low:first], texts[first:end], texts[end:high]
    used = (*before, *old, *after)
    # Without a line after them, programs look for the place at the end of the file.
    if list(old) == new or not after or _UNSAFE_NAME.search(name) or name_invisible(name) != name:
        return ""
    if any(
        _REPLACED.search(text) or _KEYWORD.search(text) or len(text) >= MAX_EXCERPT_CHARS for text in used
    ):
        return ""
    end_of_name = "\t" if " " in name else ""
    return "\n".join(
        (
            f"--- a/{name}{end_of_name}",
            f"+++ b/{name}{end_of_name}",
            f"@@ -{start + low},{len(used)} +{start + low},{len(used) - len(old) + len(new)} @@",
            *(f" {text}" for text in before),
            *(f"-{text}" for text in old),
            *(f"+{text}" for text in new),
            *(f" {text}" for text in after),
            "",
        )
    )
