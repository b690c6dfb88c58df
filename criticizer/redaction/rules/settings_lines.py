"""Recognition of lines where a bare word after a name is a literal (G191).

These are settings, arguments and connection strings. In code such a word is an expression, and is judged as
one; here it is the value itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from criticizer.redaction.patterns import compiled

_LINE: Final = 240  # bytes of a line that are read before a name
_LINES_ABOVE: Final = 8  # in which the head of a section is
_BLANKS: Final = b" \t\r"
# Text before a variable in capitals, and text before any: - DB_PASSWORD=x, export, docker run -e
_SETTER: Final = rb"(?i:export|env|arg|set|setx|declare[ \t]+-x)[ \t]+"
_OPTION: Final = rb"[^\n\"'=;(){}]*[ \t](?:-e|--env|--build-arg|-D)[ \t=]?"
_SETS = compiled(rb"[ \t]*(?:-[ \t]+)?(?:" + _SETTER + rb")?|" + _OPTION)
_EXPORTS = compiled(rb"[ \t]*" + _SETTER + rb"|" + _OPTION)
_ARGUMENT = compiled(rb"(?:^|[ \t])(?:--[a-z][\w-]*[ \t=]|-[eDP][ \t]?)[\"']?[\w.\[\]/-]*$")
_CONNECTION = compiled(
    rb"(?i)(?:^|[;\"'`=? \t])(?:server|data source|host|user ?id|uid|user|username|database|driver|dsn"
    rb"|initial catalog|endpoint|address|tcp:[^;=\n]*)[ \t]?=[^;\n]*;[^\"'`\n]*$"
)
_SECTION = compiled(rb"[ \t]*\[[\w .:/\"-]{1,60}\][ \t\r]*")
_ENTRY = compiled(rb"[ \t]*(?:[#;][^\n]*|[\w.-]{1,40}[ \t]*=[^\n]*)?[ \t\r]*")
_SIBLING = compiled(
    rb"(?i)([ \t]*)(?:user|username|user_name|login|host|hostname|server|database|dbname|port)"
    rb"[ \t]*:[ \t]+[\w.@-]+[ \t\r]*"
)


def is_literal(text: bytes, begin: int, at: int, end: int, spend: Callable[[int], None]) -> bool:
    """Return whether the word from `at` to `end`, after a name from `begin` on, is a literal.

    `spend` gets the bytes read, divided by 8, and may stop the work.
    """
    spend(_LINE >> 3)
    low = text.rfind(b"\n", max(begin - _LINE, 0), begin) + 1
    if not low and begin > _LINE:
        return False
    before, name = text[low:begin], text[begin:at].rstrip(b" \t")
    stop = text.find(b"\n", end, end + _LINE)
    rest = text[end : stop if stop >= 0 else end + _LINE]
    ends_line = not rest.strip(_BLANKS)
    sign = name[-1:]
    if sign == b"=" and at - begin == len(name):
        return (
            _is_variable(before, name[:-1], ends_line=ends_line, rest=rest)
            or (before.rstrip(b" ")[-1:] == b";" and _CONNECTION.search(before) is not None)
            or (rest[:1] in (b"", b" ", b"\t", b"\r", b'"', b"'") and _ARGUMENT.search(before) is not None)
            or (ends_line and not before.strip() and _is_in_section(text, low))
        )
    if not ends_line or before.strip(b" \t-"):
        return False
    return _is_in_section(text, low) if sign == b"=" else sign == b":" and _has_sibling(text, low, before)


def _is_variable(before: bytes, name: bytes, *, ends_line: bool, rest: bytes) -> bool:
    """Return whether a name is a variable of a shell, or a property with at least two dots."""
    is_whole = ends_line or rest[:1] in (b" ", b"\t")
    if is_whole and (_SETS if name.isupper() else _EXPORTS).fullmatch(before) is not None:
        return True
    return ends_line and not before.strip() and name.count(b".") >= 2 and name.islower()


def _is_in_section(text: bytes, low: int) -> bool:
    """Return whether the lines above are settings, below the head of a section: [db]."""
    for _ in range(_LINES_ABOVE):
        if not low:
            return False
        above = text.rfind(b"\n", max(low - _LINE, 0), low - 1) + 1
        if _SECTION.fullmatch(text, above, low - 1) is not None:
            return True
        if _ENTRY.fullmatch(text, above, low - 1) is None:
            return False
        low = above
    return False


def _has_sibling(text: bytes, low: int, indentation: bytes) -> bool:
    """Return whether the line above or below names a user, a host or a database in YAML."""
    above = text.rfind(b"\n", max(low - _LINE, 0), max(low - 1, 0)) + 1
    below = text.find(b"\n", low, low + _LINE) + 1
    after = text.find(b"\n", below, below + _LINE) if below else -1
    lines = [(above, low - 1)] if low else []
    if below:
        lines.append((below, after if after >= 0 else min(below + _LINE, len(text))))
    found = (_SIBLING.fullmatch(text, *line) for line in lines)
    return any(one is not None and len(one.group(1)) == len(indentation) for one in found)
