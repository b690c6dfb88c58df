"""Readers of single fields of a webhook's content, which raise Unreadable for other forms."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from criticizer.codehosts.events import Unreadable
from criticizer.codehosts.names import Repository

MAX_NUMBER = 2**31 - 1
MAX_ID = 2**63 - 1
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# As `git check-ref-format` allows: no pattern, no option, no end of a line.
_BRANCH = re.compile(r"(?!.*(?:\.\.|@\{|//))[^\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]{1,255}")


def at(content: Mapping[str, Any], *path: str) -> Any:
    """Return the value at a path of names, or None where there is none."""
    value: Any = content
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def whole(content: Mapping[str, Any], *path: str, maximum: int = MAX_ID) -> int:
    value = at(content, *path)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= maximum:
        raise Unreadable(".".join(path), "a positive whole number")
    return value


def whole_or_none(content: Mapping[str, Any], *path: str) -> int | None:
    return None if at(content, *path) is None else whole(content, *path)


def flag(content: Mapping[str, Any], *path: str) -> bool:
    """Return a switch, False where it is absent."""
    value = at(content, *path)
    if value is not None and not isinstance(value, bool):
        raise Unreadable(".".join(path), "true or false")
    return bool(value)


def known_flag(content: Mapping[str, Any], *path: str) -> bool | None:
    """Return an optional switch; None where it is absent, or of another form."""
    value = at(content, *path)
    return value if isinstance(value, bool) else None


def known_text(content: Mapping[str, Any], *path: str) -> str:
    """Return an optional text; "" where it is absent, or of another form."""
    value = at(content, *path)
    return value if isinstance(value, str) else ""


def text(content: Mapping[str, Any], *path: str) -> str:
    value = at(content, *path)
    if not isinstance(value, str):
        raise Unreadable(".".join(path), "text")
    return value


def sha(content: Mapping[str, Any], *path: str) -> str:
    return _matching(_SHA, "the id of a commit", content, path)


def branch(content: Mapping[str, Any], *path: str) -> str:
    return _matching(_BRANCH, "the name of a branch", content, path)


def moment(content: Mapping[str, Any], *path: str) -> datetime:
    value = text(content, *path)
    written = re.sub(r" (?=UTC\Z|[+-])", "", value).replace("UTC", "+00:00")  # GitLab: "12:00:00 UTC"
    with contextlib.suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(written)
        # Only years that exist in every time zone: a row that cannot be read would stop all later events.
        if found.tzinfo is not None and 1970 <= found.astimezone(UTC).year < 2200:
            return found
    raise Unreadable(".".join(path), "a time such as 2026-01-31T12:00:00Z")


def repository(
    content: Mapping[str, Any], *path: str, name: str = "full_name", kind: type[Repository] = Repository
) -> Repository:
    """Return the repository at a path. `name` is the field of its name, `kind` the form of that."""
    found, number = text(content, *path, name), whole(content, *path, "id")
    try:
        return kind(found, number)
    except ValueError:
        raise Unreadable(".".join((*path, name)), kind.shape) from None


def objects(content: Mapping[str, Any], *path: str) -> Sequence[Mapping[str, Any]]:
    """Return a list of objects, an empty one where it is absent."""
    value = at(content, *path)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise Unreadable(".".join(path), "a list of objects")
    return value


def _matching(
    pattern: re.Pattern[str], accepts: str, content: Mapping[str, Any], path: tuple[str, ...]
) -> str:
    value = text(content, *path)
    if not pattern.fullmatch(value):
        raise Unreadable(".".join(path), accepts)
    return value
