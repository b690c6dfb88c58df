"""Perforce file types: a base, modifiers after `+`, and the old one-word names."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OLD_NAMES = {
    "ctempobj": "binary+Sw",
    "ctext": "text+C",
    "cxtext": "text+Cx",
    "ktext": "text+k",
    "kxtext": "text+kx",
    "ltext": "text+F",
    "tempobj": "binary+FSw",
    "ubinary": "binary+F",
    "uresource": "resource+F",
    "uxbinary": "binary+Fx",
    "xbinary": "binary+x",
    "xltext": "text+Fx",
    "xtempobj": "binary+Swx",
    "xtext": "text+x",
    "xunicode": "unicode+x",
    "xutf16": "utf16+x",
}
_NO_TEXT = frozenset({"binary", "apple", "resource"})
_ALL_KEYWORDS = re.compile(r"\$(Id|Header|Author|Date|DateTime|Change|File|Revision)(?::[^$\n]+)?\$")
_OLD_KEYWORDS = re.compile(r"\$(Id|Header)(?::[^$\n]+)?\$")


@dataclass(frozen=True, slots=True)
class FileType:
    """A parsed type: `text+kx` is base `text` with modifiers `kx`."""

    base: str
    modifiers: str

    @classmethod
    def parse(cls, text: str) -> FileType:
        base, _, modifiers = _OLD_NAMES.get(text, text).partition("+")
        return cls(base, modifiers)

    def __str__(self) -> str:
        return f"{self.base}+{self.modifiers}" if self.modifiers else self.base

    @property
    def is_binary(self) -> bool:
        return self.base in _NO_TEXT

    @property
    def is_symlink(self) -> bool:
        return self.base == "symlink"

    @property
    def runs_archive_trigger(self) -> bool:
        return "X" in self.modifiers

    def collapse_keywords(self, text: str) -> str:
        """Return text with expanded RCS keywords collapsed to `$Name$`, for types that expand them.

        Done here because the flag of `p4 print` for it differs between servers.
        """
        if "ko" in self.modifiers:
            return _OLD_KEYWORDS.sub(r"$\1$", text)
        return _ALL_KEYWORDS.sub(r"$\1$", text) if "k" in self.modifiers else text
