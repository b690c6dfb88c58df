"""Names in code: which ones lines use, and how definitions of a name begin."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

MIN_NAME_CHARS = 3
MAX_NAME_CHARS = 80
MAX_FILES_OF_A_NAME = 60  # a name in more files than that leads nowhere

_NAME = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]*[?!]?", re.ASCII)
# Comments to the end of the line, where a line begins with one: names in prose are no use of them.
_COMMENT = re.compile(r"^\s*(?:#(?!define|include)|//|\*|/\*|--|<!--).*$", re.MULTILINE)
_LISTED = """
abstract alias and any args arguments array as assert async await base begin bool boolean break byte case
catch char class cls const constexpr constructor continue data debugger declare def default defer del
delete dict do double dynamic each elif else elsif end ensure enum err error except explicit export
extends extern extra false final finally float fmt fn for foreach format from func function get global
goto hash http https id if impl implements import in include index init inline instanceof int int32 int64
integer interface internal is isinstance item items key keys kwargs lambda len length let list log long
loop main make map match message mod module mut mutable name names namespace new next nil none nonlocal
not null number object open operator option options or out override package pass path print println
private proc property protected pub public raise range readonly ref register require rescue result return
self set short signed size sizeof sizet static std str string struct sub super switch synchronized table
template test then this throw throws time title trait transient true try tuple type typedef typename
typeof uint uint32 uint64 uint8 undef undefined union unknown unless unsafe unsigned until url use user
using val value values var vec virtual void volatile when where while with yield
"""
_KEYWORDS = frozenset(_LISTED.split())


def names_in(path: str, lines: Iterable[str]) -> set[str]:
    """Return the names that lines of code use, without keywords and words that are everywhere.

    Prose has none.
    """
    if posixpath.splitext(path)[1].casefold() in _PROSE:
        return set()
    found: set[str] = set()
    for line in lines:
        found.update(_NAME.findall(_COMMENT.sub("", line)))
    return {
        name.rstrip("?!")
        for name in found
        if MIN_NAME_CHARS <= len(name) <= MAX_NAME_CHARS and name.casefold().strip("_") not in _KEYWORDS
    }


_PROSE = frozenset((".md", ".markdown", ".rst", ".txt", ".adoc", ".html", ".htm", ".svg", ".json", ".csv"))


_DEFINING = re.compile(
    r"^\s*(?:(?:export|default|pub(?:\([a-z]+\))?|public|private|protected|internal|static|final|abstract"
    r"|async|unsafe|extern|inline|const|virtual|override|sealed|partial|open|data|declare|readonly)\s+){0,6}"
    r"(?:def|class|func(?:\s*\([^()]{0,80}\))?|function\*?|fn|struct|interface|trait|enum|union|type|module|mod"
    r"|namespace|record|impl(?:<[^<>]{0,80}>)?|const|let|var|val|static|macro_rules!|#\s*define|typedef)\s+"
    r"(?:self\.)?(\w+)"
)
# A value at the beginning of a line, a member with a type, a method of a language without a keyword.
_VALUE = re.compile(r"^(?:\s{0,4}|export\s+)([A-Za-z_]\w*)\s*(?::[^=]{1,80})?=(?!=)")
_METHOD = re.compile(r"^\s{0,12}((?:[\w<>\[\],.?*&:~@]{1,80}\s+){0,6})[*&]{0,2}(?:\w+::)?(\w+)\s*\(")
_CALLING = re.compile(
    r"^\s*(?:return|else|if|elif|while|for|switch|case|throw|raise|new|await|yield|assert|del|print|with|not|in)\b"
)


def defines(line: str) -> list[str]:
    """Return the names that a line of code looks to define. A guess: an outline decides later."""
    line = line[:400].rstrip()
    names = [found[1]] if (found := _DEFINING.match(line) or _VALUE.match(line)) else []
    found = _METHOD.match(line)
    # With a type in front, or a body behind: otherwise it is a call.
    if found and not _CALLING.match(line) and (found[1].strip() or line.endswith("{")):
        names.append(found[2])
    return names


_FAMILIES = (
    (".py", ".pyi"),
    (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte"),
    (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".m", ".mm"),
    (".java", ".kt", ".kts", ".scala", ".groovy"),
)


def same_language(path: str) -> tuple[str, ...]:
    """Return the endings of files in which the names of a file may be defined."""
    ending = posixpath.splitext(path)[1].casefold()
    if not re.fullmatch(r"\.[a-z0-9]{1,10}", ending) or ending in _PROSE:
        return ()
    return next((family for family in _FAMILIES if ending in family), (ending,))
