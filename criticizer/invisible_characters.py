"""Characters that hide, reorder or split text: the sets, and what may be done about them.

Ranges are written for a character class of a regular expression, of `re` and of RE2 alike.
"""

from __future__ import annotations

import re

# Embeddings, overrides and isolates: they reorder what a reader sees.
DIRECTION_OVERRIDES = "\u202a-\u202e\u2066-\u2069"
TAGS = "\U000e0020-\U000e007e"  # an invisible copy of ASCII
# Unicode's Default_Ignorable_Code_Point, and the marks of interlinear annotations.
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Without tab and line feed; and the two beyond the surrogates that XML forbids.
CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff"
LINE_SEPARATORS = "\u2028\u2029"
SURROGATES = "\ud800-\udfff"  # no encoder accepts them
# The other characters of the category Cf, and private use: a font shows them as it likes.
_FORMAT_AND_PRIVATE = (
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\ue000-\uf8ff\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U000e1000-\U0010ffff"
)

_REMOVABLE = re.compile(f"[{INVISIBLE}{CONTROLS}{SURROGATES}]")
# A variation selector right after a symbol, or in a keycap, chooses its look; elsewhere it hides text.
_NAMED = re.compile(
    f"(?<=[^\\x00-\\x7f{INVISIBLE}])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|([{INVISIBLE}{CONTROLS}{LINE_SEPARATORS}{SURROGATES}{_FORMAT_AND_PRIVATE}])"
)
# Controls that a terminal obeys or does not show; a form feed alone begins a page.
_TERMINAL = "\x00-\x08\x0b\x0e-\x1f\x7f\x9b"
# Languages end a line, and so a comment, at these; viewers and diffs do not.
_LINE_ENDS = f"\r\x85{LINE_SEPARATORS}"
_MISLEADING = re.compile(
    f"[{DIRECTION_OVERRIDES}{_TERMINAL}]|[\U000e0001{TAGS}]{{3,}}"
    f"|(?<=[A-Za-z0-9_])[{INVISIBLE}](?=[A-Za-z0-9_])|[{_LINE_ENDS}]"
)


def remove_invisible(text: str) -> str:
    """Return the text without invisible characters, controls and surrogates."""
    return _REMOVABLE.sub("", text)


def name_invisible(text: str) -> str:
    """Return the text with each character that hides or reorders text shown as its code point.

    Tabs and line feeds stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return _NAMED.sub(_named, text)


def _named(match: re.Match[str]) -> str:
    return f"\u27e8U+{ord(match[1]):04X}\u27e9" if match[1] else match[0]


def find_misleading(text: str) -> str:
    """Return the first character that makes text read as something else, or an empty text.

    That is a direction override or a control character anywhere, three tag characters in a row, any
    invisible character inside a word of ASCII, or an end of a line that only languages see, with text
    after it. Scripts and emoji that need such characters are left alone, and so are tabs and form feeds.
    """
    if text.isascii() and text.isprintable():
        return ""
    for line in text.split("\n"):
        # Once a line: to search after each end takes the square of the length of hostile lines.
        text_end = len(line.rstrip())
        for found in _MISLEADING.finditer(line):
            if found.start() < text_end or found[0] not in _LINE_ENDS:
                return found[0][0]
    return ""
