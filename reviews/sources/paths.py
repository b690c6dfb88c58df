"""Depot paths as Perforce stores them: four characters are encoded, the rest is literal.

`p4` prints encoded paths and accepts them unchanged: encoding one again, or decoding it before use, makes
it another path. Git and other tools know files by their raw names.
"""

from __future__ import annotations

import re
import string
import unicodedata

from criticizer.invisible_characters import DIRECTION_OVERRIDES

MAX_PATH_CHARACTERS = 1024

# `%` first: it is what the others become.
_ENCODED = {"%": "%25", "*": "%2A", "#": "%23", "@": "%40"}
_ENCODE = re.compile(r"[%*#@]")
_ESCAPE = re.compile(r"%(?:40|23|2[Aa]|25)")
_BAD_PERCENT = re.compile(r"%(?!40|23|2[Aa]|25)")
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_DEPOT = re.compile(r"[A-Za-z0-9._-]+")
# Overrides make a path read as another one on a page.
_DIRECTION_OVERRIDE = re.compile(f"[{DIRECTION_OVERRIDES}]")


def encode_path(raw: str) -> str:
    """Return a raw name as a depot path: `a@b` becomes `a%40b`."""
    return _ENCODE.sub(lambda found: _ENCODED[found[0]], raw)


def decode_path(encoded: str) -> str:
    """Return the raw name of a depot path, or of a part of one: `a%40b` is `a@b`."""
    return _ESCAPE.sub(lambda found: chr(int(found[0][1:], 16)), encoded)


def path_fault(path: object, *, literal_names: bool = False) -> str | None:
    """Return why something is not one canonical depot file path, or None when it is.

    A path with a fault must not be matched, printed or passed to a command. `literal_names`
    allows `...` inside a name, for sources that never hand paths to a wildcard reader.
    """
    if not isinstance(path, str):
        return "the path is not text"
    if not path.startswith("//"):
        return "the path does not start with //"
    if len(path) > MAX_PATH_CHARACTERS:
        return f"the path is longer than {MAX_PATH_CHARACTERS} characters"
    if any(map(_is_control, path)):
        return "the path holds a control character"
    segments = path[2:].split("/")
    return (
        _segments_fault(segments)
        or _wildcard_fault(path, segments, literal_names=literal_names)
        or ("the path names no file" if len(segments) < 2 else None)
    )


def _segments_fault(segments: list[str]) -> str | None:
    if "" in segments:
        return "the path has an empty segment"
    if "." in segments or ".." in segments:
        return "the path has a relative segment"
    if not _DEPOT.fullmatch(segments[0]):
        return "the depot name has characters outside A-Z a-z 0-9 . _ -"
    return None


def _wildcard_fault(path: str, segments: list[str], *, literal_names: bool) -> str | None:
    if any(character in path for character in "@#*"):
        return "the path holds a raw @, # or *"
    if "..." in path and not (literal_names and all(segment.strip(".") for segment in segments)):
        return "the path holds a wildcard"
    if _BAD_PERCENT.search(path):
        return "the path holds a % that encodes nothing"
    return None


def _is_control(character: str) -> bool:
    if character < "\x7f":
        return character < " "
    if "\ud800" <= character <= "\udfff":
        # DC80-DCFF stand for the raw bytes of a name that is not UTF-8; the rest encode nothing.
        return not "\udc80" <= character <= "\udcff"
    return bool(_DIRECTION_OVERRIDE.match(character)) or unicodedata.category(character) in {"Cc", "Zl", "Zp"}


def canonical_case(path: str, *, case_sensitive: bool) -> str:
    """Return the form in which paths are compared: `%2a` is `%2A`.

    A to Z fold if case means nothing. No other letter folds, as on a Perforce server: `ß` and `ss` are
    different names.
    """
    upper = _ESCAPE.sub(lambda found: found[0].upper(), path)
    return upper if case_sensitive else upper.translate(_ASCII_LOWER)


def widest_case(path: str, *, case_sensitive: bool) -> str:
    """Return the form in which paths are compared to be excluded.

    Names that some server may take for equal are equal in it. All of Unicode folds: a server's own rules for
    letters beyond A to Z are not known.
    """
    narrow = canonical_case(path, case_sensitive=case_sensitive)
    # U+0307: the dot that a capital dotted I leaves behind.
    return narrow if case_sensitive else narrow.upper().casefold().replace("\u0307", "")


def storable(text: str) -> str:
    """Return text without NUL and lone surrogates, which PostgreSQL cannot hold.

    The raw bytes of a name that is not UTF-8 are read as cp1252, everything else becomes U+FFFD.
    """
    if text.isascii() and "\0" not in text:
        return text
    return "".join(map(_storable_character, text))


def _storable_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]).decode("cp1252", "replace")
    return "\ufffd" if character == "\0" or "\ud800" <= character <= "\udfff" else character


def printable(text: object, limit: int = MAX_PATH_CHARACTERS) -> str:
    """Return untrusted text on one bounded line: controls and line ends are shown escaped."""
    shown = text if isinstance(text, str) else repr(text)
    shown = shown[: limit + 1]
    escaped = "".join(
        c.encode("unicode_escape").decode("ascii") if _is_control(c) or "\ud800" <= c <= "\udfff" else c
        for c in shown
    )
    return escaped if len(escaped) <= limit else escaped[: limit - 1] + "…"
