"""Globs of paths: `*` within a folder, `**` over folders; matched in linear time.

A glob is matched against the path below the root; letter case counts where the source knows cases. `*` is any
run without `/`, `**` as a whole segment any number of segments, `?` one character but `/`. `[a-z]` and `[!a]`
are classes. A trailing `/` means all below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import re2

MAX_CHARS = 200


def fault_of(glob: str) -> str:
    """Return why a glob cannot be used, or ""."""
    if not glob or len(glob) > MAX_CHARS:
        return f"expected 1 to {MAX_CHARS} characters"
    if glob.startswith("/"):
        return "a path begins without /"
    if "{" in glob or "}" in glob:
        return "{a,b} is not supported: write one entry for each"
    if "\\" in glob or any(ord(character) < 32 for character in glob):
        return "backslashes and control characters are not supported"
    segments = glob.removesuffix("/").split("/")
    if any(segment in {"", ".", ".."} for segment in segments):
        return "a path has no empty segment, no . and no .."
    if any("**" in segment and segment != "**" for segment in segments):
        return "** stands for whole folders: write it between slashes"
    try:
        _compiled(glob, True)
    except (re2.error, ValueError):
        return "a range in [ ] is not closed or runs backwards"
    return ""


class Globs:
    """Some globs, each without a fault."""

    def __init__(self, globs: Iterable[str], *, case_sensitive: bool = True) -> None:
        self._patterns = [_compiled(glob, case_sensitive) for glob in globs]

    def match(self, path: str) -> bool:
        """Return whether one of them matches a path below the root, given as its raw name."""
        text = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return any(pattern.fullmatch(text) is not None for pattern in self._patterns)


@lru_cache(maxsize=2048)
def _compiled(glob: str, case_sensitive: bool) -> re2._Regexp:
    segments = (glob + "**" if glob.endswith("/") else glob).split("/")
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    options.case_sensitive = case_sensitive
    return re2.compile(_expression(segments), options)


def _expression(segments: Sequence[str]) -> str:
    """Return the expression of all segments.

    A `**` takes the slash after it. A `**` at the end matches one name or more.
    """
    parts = []
    last = len(segments) - 1
    for place, segment in enumerate(segments):
        if segment == "**":
            parts.append(".+" if place == last else "(?:[^/]+/)*")
        else:
            parts.append(_segment(segment) + ("" if place == last else "/"))
    return "".join(parts)


def _segment(segment: str) -> str:
    out, at = "", 0
    while at < len(segment):
        character = segment[at]
        at += 1
        if character == "[":
            end = segment.find("]", at + 1)
            if end < 0:
                raise ValueError("not closed")
            out += _class(segment[at:end])
            at = end + 1
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(character) or re2.escape(character)
    return out


def _class(inside: str) -> str:
    """Return a character class that never matches a slash."""
    is_negated = inside.startswith("!")
    members = inside[is_negated:]
    if not members:
        raise ValueError("an empty range")
    escaped = "".join(f"\\{one}" if one in "\\[]^&~" else one for one in members)
    if is_negated:
        return f"[^/{escaped}]"
    if any(low <= "/" <= high for low, high in re.findall(r"(.)-(.)", members)):
        raise ValueError("a range over the slash")
    return f"[{escaped}]"
