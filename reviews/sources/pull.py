"""Pull requests of code hosts: their ids, and their content from a mirror of the repository."""

from __future__ import annotations

import re

_NAME = r"(?!\.{1,2}[/#])[a-z0-9._-]{1,100}"
_PULL_ID = re.compile(rf"(?P<host>github):(?P<repository>{_NAME}/{_NAME})#(?P<number>[1-9][0-9]{{0,9}})")


def pull_request_id(host: str, full_name: str, number: int) -> str:
    """Return the changelist's id of a pull request: `github:<owner>/<repository>#<number>`, lower case."""
    return f"{host}:{full_name.lower()}#{number}"


def canonical_id(value: str) -> str | None:
    """Return the canonical form of a pull request's id, or None for other text."""
    return value.lower() if value.isascii() and _PULL_ID.fullmatch(value.lower()) else None


def depot_prefix(changelist_id: str) -> str | None:
    """Return the depot directory of a pull request's repository, or None for other changes."""
    found = _PULL_ID.fullmatch(changelist_id)
    return f"//{found['host']}/{found['repository']}/" if found else None
