"""Recognition of code that runs, which is kept whatever name is beside it (guarantee G190).

A value in a literal may hold code (`f"{run(cmd)}"`, `$(cmd)`), and a value that was found in one
place may be code in another. Both stay visible: a reviewer has to see them.
"""

from __future__ import annotations

from typing import Final

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import (
    DIGITS,
    UNSPEAKABLE,
    digit_groups,
    has_special,
    holds,
    kinds,
    transitions,
)
from criticizer.redaction.rules.value_heuristics import is_code, is_reference, is_slug

# Parts of a literal or a line that are run: interpolations, substitutions, text after a closed quote.
_RUN = compiled(
    rb"\$\([^\n]*\)|`[^`\n]*`|<[%?][^\n]*[%?]>|\\\([^\n]*\)|[#$@%]\{[^\n]*\}|&&[ \t]*[A-Za-z./][^\n]*"
    rb"|\{[^\n]*[\w\])]\([^\n]*\}|\{\{?[ \t]*[$@]?[A-Za-z_][\w.$]*(?:\[[^\n]*\]|->[^\n]*|::[^\n]*)?[ \t]*\}"
    rb"|!!(?:python|ruby|perl|java|php)[^\n]*"
    rb"|\\?[\"'`][ \t)\]]*(?:\+|&|\.|\|\||,|;|%|<<)[^\n]*[A-Za-z_]\w*[!?]?\([^\n]*"
)
_RUN_MARKS: Final = b"$`%?\\{&!\"'"
_EXPRESSION = compiled(rb"[A-Za-z_]\w*(?:[*+/%&|^=?:.]+[A-Za-z_]\w*)+")
_CAMEL_WORD = compiled(rb"[A-Z]?[a-z]+|[A-Z]+")
_VOWEL = compiled(rb"(?i)[aeiouy]")
_LEAST_DRAWN: Final = 12
_SUFFIX = compiled(rb"\.[A-Za-z][A-Za-z0-9]{0,7}(?:[\s\"']|$)")
_OPERATORS: Final = b"()[]{};,<>|\"'`\\"
_SIGNS: Final = frozenset(b"!@#$")  # no expression holds them
_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_QUOTES: Final = (b'"', b"'", b"`")
_ANYWHERE: Final = 20  # bytes; a random value of this length is found in longer words too


def pieces(data: bytes, start: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of a span that are not interpolated code."""
    value = data[start:end]
    if not holds(value, _RUN_MARKS):
        return [(start, end)]
    edges = [start]
    for match in _RUN.finditer(value):
        edges += (start + match.start(), start + match.end())
    edges.append(end)
    if len(edges) == 2:
        return [(start, end)]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= 3]


def is_propagated(value: bytes) -> bool:
    """Return whether a found value is searched for elsewhere.

    Versions, paths, package names, words and expressions are not, whatever name was beside them.
    """
    if len(value) < 8 or holds(value, _OPERATORS) or b" " in value:
        return False
    if value.isalnum():
        return holds(value, DIGITS)  # no reference of letters and digits only has a digit
    if is_reference(value) or is_code(value):
        return False
    return kinds(value)[2] or has_special(value[1:])


def is_random(value: bytes) -> bool:
    """Return whether a propagated value cannot be anything else, wherever it occurs."""
    lower, upper, digit = kinds(value)
    if not digit or not (lower or upper) or _EXPRESSION.fullmatch(value):
        return False
    if lower and upper and len(value) >= _LEAST_DRAWN and _is_unreadable(value):
        return True  # its capitals and numbers are only by chance those of a name
    return not is_slug(value) and (
        has_special(value) or transitions(value) >= 0.25 or digit_groups(value) >= 2
    )


def _is_unreadable(value: bytes) -> bool:
    """Return whether the parts of a name in camel case are not words: jXXxuEgkkdndqP22."""
    odd = 0
    for start, end in _CAMEL_WORD.places(value):
        word = value[start:end]
        if word.isupper():
            odd += len(word) <= 2 or len(word) > 6
        elif UNSPEAKABLE.search(word) is not None:
            return True
        else:
            odd += len(word) <= 2 or (len(word) >= 4 and _VOWEL.search(word) is None)
    return odd >= 2


def may_stand(data: bytes, start: int, end: int, *, random: bool) -> bool:
    """Return whether an occurrence of a known value is this value, not code with the same text."""
    after = data[end : end + 1]
    if random and (end - start >= _ANYWHERE or not _SIGNS.isdisjoint(data[start:end])):
        return after != b"("
    before = data[start - 1 : start]
    lead = data[max(start - 4, 0) : start].rstrip(b" \t")
    if lead.endswith((b"&&", b"$(")) or (lead.endswith(b";") and after in (b"", b"\n")):
        return False  # a command of a shell
    if (before and before[0] in _WORD) or (after and after[0] in _WORD) or after == b"(":
        return False
    if not random:
        return before in _QUOTES and after in _QUOTES
    # x.Value, x->value, value[0], value.run: parts of an expression, unless they are quoted or name a file.
    return (
        before in _QUOTES
        or bool(before == b"/" and _SUFFIX.match(data, end))
        or not (
            before in (b".", b">") or after == b"[" or (after == b"." and data[end + 1 : end + 2].isalpha())
        )
    )
