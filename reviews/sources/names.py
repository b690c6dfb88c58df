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
