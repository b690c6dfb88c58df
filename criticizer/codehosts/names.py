"""Names of repositories."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

# Neither "." nor "..": it ends up in the path of a URL.
_PART = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]{1,100}"
_NAME = re.compile(rf"{_PART}/{_PART}")  # an owner on Gitea may have dots as well
# Of any length: an event of a project whose name is too long for a review is accepted all the same, because
# GitLab switches a webhook off after refusals.
_GROUP = _PART.replace("{1,100}", "+")
_PATH = re.compile(rf"{_GROUP}(?:/{_GROUP})+")
# Ids of an earlier version have "#" also where the host writes "!".
_PULL_REQUEST = re.compile(r"([^#!@]+)[#!]([1-9][0-9]{0,9})")
_ID_PART = r"(?!\.{1,2}[/#!@])[a-z0-9._-]{1,100}"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository, by its name. Raises ValueError for a name that cannot be one."""

    form: ClassVar = _NAME
    shape: ClassVar = "<owner>/<name>"
    is_nested: ClassVar = False  # whether its owner may have several parts
    in_ids: ClassVar = rf"{_ID_PART}/{_ID_PART}"  # its pattern in ids of changes, and in recipients
    sign: ClassVar = "#"  # between its name and the number of a pull request, as the host writes it

    name: str  # owner/name
    number: int = 0  # its id, which a rename keeps; 0: unknown

    def __post_init__(self) -> None:
        if not self.form.fullmatch(self.name):
            raise ValueError("a repository is named owner/name, in letters, digits, '-', '_' and '.'")


class Project(Repository):
    """A repository of GitLab, in a group or nested groups: `group/subgroup/name`."""

    form = _PATH
    shape = "<group>/<name>"
    is_nested = True
    in_ids = rf"{_ID_PART}(?:/{_ID_PART})+"
    sign = "!"


def pull_request_place(text: str) -> tuple[str, int]:
    """Return the repository and the number of `owner/name#7` or `group/name!7`.

    Of any other text: no name and the number 0.
    """
    found = _PULL_REQUEST.fullmatch(text)
    return (found[1], int(found[2])) if found else ("", 0)


def has_no_wildcard(pattern: str) -> bool:
    """Return whether a pattern of repositories, or a part of it, matches only one name."""
    return not any(sign in pattern for sign in "*?[")
