"""Names of repositories, and the dependency that calls for one of them wait for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from criticizer.http_client import host_and_port

# An owner, and a repository that is neither "." nor "..": both end up in the path of a URL.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository by its name, `owner/name`. `number` is its id, which a rename keeps; 0: unknown.

    Raises ValueError for a name that cannot be one.
    """

    name: str
    number: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError("a repository is named owner/name, in letters, digits, '-', '_' and '.'")

    @property
    def owner(self) -> str:
        return self.name.partition("/")[0]


def dependency_of(api_url: str, owner: str) -> str:
    """Return the dependency of calls for one owner: an App has one installation for each.

    Its circuit and its limits are GitHub's: they are counted for an installation of an App on one host.
    """
    return f"github:{host_and_port(api_url)}:{owner.lower()}"
