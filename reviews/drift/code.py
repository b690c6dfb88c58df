"""Facts of a source file by its language; one that does not parse settles nothing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from reviews.drift import grammar_code, python_code
from reviews.drift.code_facts import Code, names_read
from reviews.reviewers.grammars import language_of

MAX_BYTES = 1_000_000
MAX_FILES = 2_000  # looked into for one claim
_LINES = frozenset(
    (".env", ".ini", ".cfg", ".conf", ".toml", ".yaml", ".yml", ".properties", ".sh", ".bash", ".json", "")
)


def code_of(path: str, text: str) -> Code | None:
    """Return what a file says, or None where it does not parse, takes too long or is too large."""
    if len(text) > MAX_BYTES:
        return None
    if path.endswith((".py", ".pyi")):
        return python_code.read(text)
    language = language_of(path, text)
    if language is not None:
        return grammar_code.read(language, text)
    extension = posixpath.splitext(path)[1].lower()
    if extension in _LINES or posixpath.basename(path).startswith((".env", "Dockerfile", "Makefile")):
        return Code(reads=names_read(text), defaults=tuple(_line_defaults(text)))
    return Code(reads=names_read(text))


def _line_defaults(text: str) -> Iterator[tuple[str, str | None]]:
    for found in re.finditer(
        r"^[ \t]*\"?([A-Za-z_][\w-]*)\"?[ \t]*[=:][ \t]*([^#\n]*?)[ \t]*,?(?:[ \t]#.*)?$", text, re.MULTILINE
    ):
        value = found[2]
        yield found[1], value if value and not re.search(r"[\[{$(&*|>]", value) else None
