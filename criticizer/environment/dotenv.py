r"""The `.env` file beside `manage.py`, read as Docker Compose reads its own.

    NAME=value            # a comment begins at a blank and a hash
    NAME=pa#ss            a hash inside a word belongs to it
    NAME='a # b $c'       as it stands
    NAME="a # \"b\""      with escapes: \\ \" \n \t
    export NAME=value     `export` is skipped, so that a shell may read the file as well

python-dotenv takes `NAME=  # note` for a value and skips lines that it cannot read; a service should
not start with either. A variable that is already set keeps its value. A value of several lines belongs
in a file of its own (`NAME_FILE`). A process with IGNORED in its environment, such as a test or a
benchmark, reads no file, and neither do those that it starts.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

IGNORED = "CRITICIZER_IGNORE_ENV_FILE"
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_COMMENT = re.compile(r"\s#.*")
_QUOTED = {
    "'": re.compile(r"'((?:\\.|[^'\\])*)'\s*(?:\s#.*)?"),
    '"': re.compile(r'"((?:\\.|[^"\\])*)"\s*(?:\s#.*)?'),
}
_ESCAPES = {
    "'": {"\\": "\\", "'": "'"},
    '"': {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"},
}


def load(path: Path, environment: MutableMapping[str, str]) -> None:
    """Add the variables of the file at `path` to `environment`, where they are not set.

    Does nothing when there is no such file, or when the environment has IGNORED.
    Raises ImproperlyConfigured for a file that cannot be read or a line that is no assignment.
    """
    if environment.get(IGNORED):
        return
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(
            f"{path.name}: the file cannot be read ({type(error).__name__}). "
            "Make it UTF-8 text that this user may read."
        ) from None
    for name, value in parse(text, path.name).items():
        environment.setdefault(name, value)


def parse(text: str, file_name: str = ".env") -> dict[str, str]:
    """Return the variables of a file's text; of two lines with one name, the later one counts.

    Raises ImproperlyConfigured, which gives the number of the line and repeats nothing of it.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        assignment = _LINE.fullmatch(stripped)
        value = _value(assignment[2]) if assignment else None
        if assignment is None or value is None:
            problem = "has a quote without its end" if assignment else "is not NAME=value"
            raise ImproperlyConfigured(
                f"{file_name}: line {number} {problem}. "
                "Write NAME=value, or NAME='value' for one with blanks, quotes or hashes."
            )
        found[assignment[1]] = value
    return found


def _value(text: str) -> str | None:
    """Return the value after the equals sign without its comment; None if a quote has no end."""
    quote = text.lstrip()[:1]
    if quote not in _QUOTED:
        return _COMMENT.sub("", text).strip()
    quoted = _QUOTED[quote].fullmatch(text.strip())
    if quoted is None:
        return None
    escapes = _ESCAPES[quote]
    return re.sub(r"\\(.)", lambda escape: escapes.get(escape[1], escape[0]), quoted[1])
