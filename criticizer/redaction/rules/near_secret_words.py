"""Values anywhere on a line that names a secret, in any language (guarantee G191).

`changed the password to x`, `'x' === password`, `cy.get('#password').type('x')`, `密码是x`: no operator
joins name and value, so the value itself has to look chosen or generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from criticizer.redaction.patterns import compiled, remembered
from criticizer.redaction.rules import bare_words, declarations, key_names
from criticizer.redaction.rules.bare_words import LEAST, has_digit
from criticizer.redaction.rules.characters import DIGITS, digit_groups, has_special, holds, kinds, transitions
from criticizer.redaction.rules.named_values import Span, group_span, span_kind
from criticizer.redaction.rules.value_heuristics import (
    is_chosen,
    is_code,
    is_dummy,
    is_generated,
    is_reference,
    is_run,
    is_slug,
    is_template,
    judge,
)

_BEFORE: Final = 160  # bytes of a line that are read on either side of the word
_AFTER: Final = 240
# A literal in the quotes of any language.
_FORMS: Final = (
    rb"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`\n]*)`|\[\[([^\[\]\n\"']+)\]\]"
    rb"|\bq[qw]?[{(\[/|]([^\s{}()\[\]/|]+)[})\]/|]|%[qQ]?[({\[]([^\s{}()\[\]]+)[)}\]]"
    rb"|(?:\xc2\xab|\xe2\x80\x9c|\xe2\x80\x9e|\xe3\x80\x8c)\s?([^\s\x80-\xff]+)\s?(?:\xc2\xbb|\xe2\x80\x9d|\xe2\x80\x9c|\xe3\x80\x8d)"
)
_LITERAL = compiled(_FORMS)
# Most lines have literals of these two forms only, which are found faster without groups.
_IN_QUOTES = compiled(rb"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_OTHER_FORM = compiled(rb"`|\[\[|q[qw]?[{(\[/|]|%[qQ]?[({\[]")
_EDGE = compiled(rb"[\s\"'`,;(){}\[\]]")
_TRIMMED: Final = b".,;:?)('\"`"
_NOT_VALUE = compiled(
    rb"(?i)(?:[a-z]+[-_./]|scram)*(?:(?:utf|sha|md|pkcs|base|aes|rsa|hs|rs|es|ps|oauth|ipv|argon|http|tls|ssl|win|python|java|iso|rfc|cve|pbkdf|kdf)[-_]?[0-9]+(?-i:[a-z0-9_.-]*)|h[23]|x86\w*|x64|i[3-6]86|v[0-9]+(?:\.[0-9]+)*(?:-?[a-z]+[0-9]*)?|log4j\w*|k8s|i18n|l10n|s3|ec2)"
    rb"|#[0-9a-f]{3,8}|[0-9]+(?:px|em|rem|ms|mb|kb|gb|pt|vh|vw|deg|th|st|nd|rd|x)%?|(?:[0-9]+(?:ms|us|ns|[smhdwy]))+|[0-9.,:/-]+|[-0-9.]+[a-z][-0-9.]+|[a-z]+[0-9]?\(.*|\$[0-9].*|0x[0-9a-f]+|[+-]?[0-9.]+e[+-]?[0-9]+|&#?\w+;.*|return![0-9]|ghsa(?:-[a-z0-9]{4}){3}.*|pbewith[a-z0-9]+"
)
# Minified code: this.atStart=!0, n.position+1, 0&&this.left--
_MINIFIED = compiled(
    rb"(?:[A-Za-z]+:)?[!&|0-9]*[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*(?:[-+*/|&]?=!?[0-9.]+|[-+]{1,2}[0-9]*)"
)
_UUID_OR_HASH = compiled(
    rb"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:[0-9a-f]{7,12}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})"
)
_IDENTIFIES = compiled(rb"(?i)id[\"']?[ \t]*[:=(][ \t]*[\"'`]?$")
_NUMBERS = compiled(
    rb"[(\[{,][ \t]*((?:0x[0-9a-fA-F]{1,2}|[0-9]{2,3})(?:[ \t]*,[ \t]*(?:0x[0-9a-fA-F]{1,2}|[0-9]{1,3})){7,}"
    rb"|(?:'[^'\\\n]'|\"[^\"\\\n]\")(?:[ \t]*,[ \t]*(?:'[^'\\\n]'|\"[^\"\\\n]\")){7,})"
)
# chr(75)+chr(101)+…: a value written character by character
_CODES = compiled(
    rb"(?:(?i:chr|char|fromcharcode)\((?:0x[0-9a-fA-F]{2}|[0-9]{2,3})\)[ \t]*[+.&|,]{0,2}[ \t]*){6,}"
)
_PIECES = compiled(rb"(?i)join\(|\]\.join|sprint|paste|concat|format\(|append\(|<<|strcat|%s%s|&")
_CALLS = compiled(rb"(?i)join\(|\]\.join|concat|append\(|sprint|paste0?\(|strcat")
_PIECE = compiled(rb"\"([^\"\n]*)\"|'([^'\n]*)'")
_NAMED = compiled(rb"(?i)pass|pwd|secret|token|key|auth|login|user|field|input|test|example")
# The longest value, and the shortest beside the name of a secret other than a password (else LEAST).
_MOST: Final = 128
_LEAST_DRAWN: Final = 16
_GROUPS: Final = (b"secrets", b"credentials")
_MAY_OPEN: Final = b"\"'`[%q"  # one of these opens a literal of ASCII
_QUOTES_OF_TWO: Final = 4
_COMMAS: Final = 7
_NO_LITERAL: Final = bytes(32 if c in b" \x01<\n" else c for c in range(256))  # blanks bytes no value has
_JOINED = compiled(rb"[=:&?/\\]|@[\w-]+\.[A-Za-z]")


def spans(text: bytes, start: int, end: int, strength: int, *, found: bool) -> list[Span]:
    """Return the values near the word from `start` to `end`, on its line.

    Where its value was `found`, other text beside it is not taken, except further pieces of the value.
    """
    low = _beginning(text, start)
    stop = text.find(b"\n", end, end + _AFTER)
    line = text[low : stop if stop >= 0 else min(end + _AFTER, len(text))]
    spans = declarations.spans(text, end, line[end - low :], strength)
    for first, last, kind in _in_line(line, start - low, end - low, strength, found=found):
        spans.append((low + first, low + last, kind))
    return spans


@remembered
def _in_line(line: bytes, start: int, end: int, strength: int, *, found: bool) -> list[Span]:
    """Return the values on a line beside the word from `start` to `end`; cached for equal lines."""
    spans: list[Span] = []
    rest = line[end:]
    kind = span_kind(strength)
    if line.count(b'"') + line.count(b"'") >= _QUOTES_OF_TWO:
        spans += ((first, last, kind) for first, last in _split(line, end, strength))
    spans += ((first, last, "key-bytes") for first, last in _coded(line))
    if not holds(line, DIGITS):
        return spans
    is_group = (b"{" in rest or b"[" in rest) and line[start : start + 11].lower().startswith(_GROUPS)
    is_one = not is_group and rest[:1] not in (b"s", b"S") and b" now " not in line
    if is_one and (found or b"\x01" in rest):
        return spans
    if not _may_hold(line, key_names.PASSWORD if is_group else strength):
        return spans
    literals = _literals(line)
    for first, last in _quoted(line, literals, strength, is_group=is_group):
        if not start < last <= end:
            spans.append((first, last, kind))
    taken = [(start, end), *(span for span, _ in literals)]
    spans += ((first, last, kind) for first, last in _bare(line, taken, strength))
    return spans


def _coded(line: bytes) -> list[tuple[int, int]]:
    """Return the values written as numbers or characters, one by one."""
    found = []
    if line.count(b",") >= _COMMAS:
        found += [match.span(1) for match in _NUMBERS.finditer(line)]
    if line.count(b"(") >= LEAST:
        found += [match.span() for match in _CODES.finditer(line)]
    return found


def _beginning(text: bytes, start: int) -> int:
    """Return where a line is read from: its start, or that of a whole word far before `start`."""
    low = max(start - _BEFORE, 0)
    begin = text.rfind(b"\n", low, start) + 1
    if begin or not low:
        return begin
    edge = _EDGE.search(text, low, start)
    return edge.end() if edge is not None else start


def _may_hold(line: bytes, strength: int) -> bool:
    """Return whether a piece has the length of a value, and a digit or the dashes of a UUID."""
    least = LEAST if strength >= key_names.PASSWORD else _LEAST_DRAWN
    for piece in line.translate(_NO_LITERAL).split():
        if len(piece) >= least and not piece.isalpha() and has_digit(piece):
            return True
    return False


def _split(line: bytes, at: int, strength: int) -> list[tuple[int, int]]:
    """Return the literals that a call or an operator joins to one password."""
    if _PIECES.search(line) is None:
        return []
    is_called = _CALLS.search(line) is not None
    if strength < key_names.PASSWORD and not is_called:
        return []
    found = _pieces(line, at)
    if len(found) < 2 and is_called:
        found = _pieces(line, 0)  # the name comes after the literals
    value = b"".join(line[a:b] for a, b in found)
    if len(found) < 2 or len(value) < 8 or not judge(value, strength, quoted=True):
        return []
    if strength >= key_names.PASSWORD:
        return found if kinds(value)[2] or value.isalpha() else []
    return found if len(value) >= _LEAST_DRAWN and is_generated(value) else []


def _pieces(line: bytes, at: int) -> list[tuple[int, int]]:
    return [
        span
        for match in _PIECE.finditer(line, at)
        if (span := group_span(match)) is not None and span[1] - span[0] >= 2 and line[span[0]] not in b"%{ "
    ]


@remembered
def _literals(line: bytes) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the spans of the literals, each with that of its text."""
    if line.isascii() and not holds(line, _MAY_OPEN):
        return []
    if line.isascii() and _OTHER_FORM.search(line) is None:
        spans = (((start, end), (start + 1, end - 1)) for start, end in _IN_QUOTES.places(line))
    else:
        matches = _LITERAL.finditer(line)
        spans = ((match.span(), match.span(match.lastindex or 0)) for match in matches)
    return [(span, (start, end)) for span, (start, end) in spans if LEAST <= end - start <= _MOST]


def _quoted(
    line: bytes, literals: list[tuple[tuple[int, int], tuple[int, int]]], strength: int, *, is_group: bool
) -> Iterator[tuple[int, int]]:
    for _, span in literals:
        value = line[slice(*span)]
        chosen = is_group and is_value(value, key_names.PASSWORD, quoted=True)  # secrets = { db: 'x' }
        if not chosen and not is_value(value, strength, quoted=True):
            continue
        if strength >= key_names.PASSWORD or _IDENTIFIES.search(line[: span[0]]) is None:
            yield span


def _bare(line: bytes, taken: list[tuple[int, int]], strength: int) -> list[tuple[int, int]]:
    """Return the spans of bare words that are values, without those in `taken`."""
    found = []
    for begin, end in bare_words.words(line, taken):
        if not LEAST <= end - begin <= _MOST:
            continue
        value = line[begin:end].rstrip(_TRIMMED)
        followed = begin + len(value)
        value = value.lstrip(b"*_")
        first = followed - len(value)
        value = value.rstrip(b"*_") if line[first - 1 : first] in (b"*", b"_") else value
        last = first + len(value)
        if any(a < last and first < b for a, b in taken):
            continue
        if line[followed : followed + 1] != b"(" and is_value(value, strength, quoted=False):
            found.append((first, last))
    return found


@remembered
def is_value(value: bytes, strength: int, *, quoted: bool) -> bool:
    """Return whether a value near a name of this strength looks chosen or generated."""
    if value[:1] in b"#.,&/" or value.count(b".") > 3 or len(value) < 6:
        return False
    if holds(value, b" \x01<(|"):
        return False
    if not holds(value, DIGITS) and value.count(b"-") < 4:
        return False  # of generated values only a UUID has no digit, and of chosen passwords few
    # Cheap checks that refuse most come first.
    is_password = strength >= key_names.PASSWORD
    chosen = is_password and is_chosen(value) and _NOT_VALUE.fullmatch(value) is None
    if not chosen and not (_is_password(value, quoted=quoted) if is_password else _looks_generated(value)):
        return False
    if not (quoted or is_password) and _MINIFIED.fullmatch(value) is not None:
        return False
    if is_dummy(value) or is_template(value) or is_run(value):
        return False
    if chosen:
        return True
    if is_reference(value) or is_code(value):
        return False
    return _UUID_OR_HASH.fullmatch(value) is None if is_password else not is_slug(value)


def _looks_generated(value: bytes) -> bool:
    if len(value) < 16:
        return False
    looks_generated = is_generated(value) or (
        len(value) >= 20 and value.isalnum() and digit_groups(value) >= 3
    )
    return looks_generated and _NOT_VALUE.fullmatch(value.strip(b"'")) is None


def _is_password(value: bytes, *, quoted: bool) -> bool:
    lower, upper, digit = kinds(value)
    if not digit or not (lower or upper):
        return False
    special = has_special(value[1:])
    if not special and (transitions(value) < (0.16 if quoted else 0.25) or is_slug(value)):
        return False
    if not quoted:
        mixed = special or (lower and upper) or digit_groups(value) >= 2
        if len(value) < 7 or not mixed or _JOINED.search(value) is not None:
            return False
    return _NAMED.search(value) is None and _NOT_VALUE.fullmatch(value.strip(b"'")) is None
