"""Names in code: those that lines use, and the forms in which definitions of a name begin."""

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


_WORD = (
    r"(?:export|default|pub(?:\([a-z]+\))?|public|private|protected|internal|static|final|abstract|async"
    r"|unsafe|extern|inline|const|virtual|override|sealed|partial|open|data|declare|readonly|required|volatile)"
)
_DEFINING = re.compile(
    rf"^\s*(?:{_WORD}\s+){{0,6}}"
    r"(?:def|class|func(?:\s*\([^()]{0,80}\))?|function\*?|fn|struct|interface|trait|enum|union|type|module|mod"
    r"|namespace|record|impl(?:<[^<>]{0,80}>)?|const|let|var|val|static|macro_rules!|#\s*define|typedef)\s+"
    r"(?:self\.)?(\w+)"
)
_DEFINING_TYPE = re.compile(  # where a word such as `static` begins a type
    rf"^\s*(?:{_WORD}\s+){{0,6}}(?:typedef\s+)?(?:enum\s+)?"
    r"(?:class|struct|interface|enum|union|namespace|record|object|trait|fun|val|var|concept|#\s*define)\s+(\w+)"
)
_VALUE = re.compile(r"^(?:\s{0,4}|export\s+)([A-Za-z_]\w*)\s*(?::[^=]{1,80})?=(?!=)")
_METHOD = re.compile(r"^\s{0,12}((?:[\w<>\[\],.?*&:~@]{1,80}\s+){0,6})[*&]{0,2}(?:\w+::)?(\w+)\s*\(")
_CALLING = re.compile(
    r"^\s*(?:return|else|if|elif|while|for|switch|case|throw|raise|new|await|yield|assert|del|print|with|not|in"
    r"|and|or|echo|go|defer|delete)\b"
)
_TYPE = r"[\w<>\[\],.?*&:|\\]{1,80}"
_MEMBERS = {  # fields and the like, one level in, where no keyword says so
    ".py": r"^\s{0,4}(\w+)\s*:\s*[\w\[\], |.\"']{1,80}(?<!,)(?:\s=.*)?$",
    ".go": rf"^\t([A-Za-z]\w*)\s+(?:(?:struct|interface)\s*\{{|func\b.*|{_TYPE}(?:\s+`.*`|\s*=.*)?)$"
    r"|^\t([A-Z]\w*)\([^{}]*\)\s+[^{};]{1,80}$",
    ".ts": rf"^\s{{1,4}}(?:{_WORD}\s+){{0,4}}#?(\w+)[?!]?\s*"
    r"(?::[^;,]{1,80};|=|:\s*(?:async\s*)?(?:\(|function\b))"
    r"|^\s{1,4}([A-Z]\w*),?$",
    ".java": rf"^\s{{1,8}}(?:{_WORD}\s+){{1,5}}(?:{_TYPE}\s+){{1,3}}(\w+)\s*(?:=|;|\{{)"
    r"|^\s{1,8}([A-Z]\w*)\s*(?:\(.*\)|=[^;]*)?\s*[,;]?$",
    ".c": rf"^\s{{0,4}}(?:{_WORD}\s+){{0,4}}(?:struct\s+|enum\s+|unsigned\s+)?{_TYPE}\s+[*&]{{0,2}}(\w+)\s*"
    r"(?:\[.*\])?\s*(?:=.*)?[;{]"
    r"|^\s{1,4}([A-Z]\w*)\s*(?:=[^;]*)?,?$|^\}\s*(\w+)\s*;",
    ".rs": r"^\s{4}(?:pub(?:\([a-z]+\))?\s+(\w+)\s*:.*,|([A-Z]\w*)\s*(?:[({].*|,))$",
    ".php": r"^\s{1,4}(?:(?:public|private|protected|static|readonly|var)\s+){1,4}(?:[?\w\\|]{1,80}\s+)?"
    r"\$(\w+)|^\s{1,4}case\s+(\w+)",
    ".rb": r"^\s{2,4}(?:attr_\w+\s+:(\w+)|([A-Z]\w*)\s*=)",
}
_MEMBER = {ending: re.compile(pattern) for ending, pattern in _MEMBERS.items()}
_LIKE = {
    **dict.fromkeys((".pyi",), ".py"),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs", ".tsx", ".mts", ".cts", ".vue", ".svelte"), ".ts"),
    **dict.fromkeys((".cs", ".kt", ".kts", ".scala", ".groovy"), ".java"),
    **dict.fromkeys((".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".m", ".mm"), ".c"),
}
_WITHOUT_METHODS = frozenset((".py", ".go", ".rs", ".php", ".rb"))  # a keyword begins each of theirs


def defines(path: str, line: str) -> list[str]:
    """Return the names that a line of a file looks to define. A guess: an outline decides later."""
    ending = posixpath.splitext(path)[1].casefold()
    ending = _LIKE.get(ending, ending)
    line = line[:400].rstrip()
    if _CALLING.match(line):
        return []
    found = (_DEFINING_TYPE if ending in (".c", ".java") else _DEFINING).match(line) or _VALUE.match(line)
    names = [found[1]] if found else []
    if ending not in _WITHOUT_METHODS and (found := _METHOD.match(line)):
        # With a type in front, or a body behind, or at the margin: otherwise it is a call.
        is_at_margin = ending == ".c" and line[0].isalpha() and not line.endswith(";")
        names += [found[2]] if found[1].strip() or line.endswith("{") or is_at_margin else []
    if ending in _MEMBER and (found := _MEMBER[ending].match(line)):
        names += [name for name in found.groups() if name]
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
