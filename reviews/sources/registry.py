"""Choice of the source that knows a changelist, by its id."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from criticizer.codehosts.registry import in_words
from reviews.sources import pull
from reviews.sources.base import Source
from reviews.sources.failures import misconfigured, not_found
from reviews.sources.git import BRANCHES, REPOSITORY_NAME, GitSource
from reviews.sources.perforce.client import PerforceConfig
from reviews.sources.perforce.listing import P4Listing
from reviews.sources.perforce.source import CHANGE_NUMBER, PerforceSource

_GIT_ID = re.compile(r"git:([^@]*)@([0-9A-Fa-f]{40})")


@dataclass(frozen=True, slots=True)
class SourcesConfig:
    """Configured sources of changes. `git` maps a repository's name to its absolute path."""

    perforce: PerforceConfig | None = None
    git: Mapping[str, Path] = field(default_factory=dict)
    git_executable: str | Path = "git"
    git_references: Sequence[str] = BRANCHES


def validate_changelist_id(value: object) -> str:
    """Return the canonical form of a changelist's id.

    `12345`, `git:<name>@<40 hex>`, or a pull request's such as `github:<owner>/<repository>#<number>`.

    Raises ValueError with a message for the caller of the API.
    """
    if isinstance(value, str):
        if CHANGE_NUMBER.fullmatch(value):
            return value
        found = _GIT_ID.fullmatch(value)
        if found is not None and REPOSITORY_NAME.fullmatch(found[1]):
            return f"git:{found[1]}@{found[2].lower()}"
        if (canonical := pull.canonical_id(value)) is not None:
            return canonical
    raise ValueError(
        "a changelist is a number such as 12345, or git:<repository>@<40 hexadecimal digits of the commit>,"
        f" or a pull request such as {in_words('{name}:{pull}')}"
    )


def checked_id(changelist_id: str) -> str:
    """Return the canonical form as `validate_changelist_id`. Raises PermanentFailure NOT_FOUND."""
    try:
        return validate_changelist_id(changelist_id)
    except ValueError as error:
        raise not_found(str(error)) from error


def depot_prefix(changelist_id: str) -> str | None:
    """Return the depot directory that holds all of a change, known from its id alone, or None."""
    found = _GIT_ID.fullmatch(changelist_id)
    if found:
        return f"//{found[1]}/"
    return pull.depot_prefix(changelist_id) or pull.commit_prefix(changelist_id)


def repository_prefix(repository: str) -> str | None:
    """Return the depot directory of a repository, or None.

    It is named as in the ids of its changelists, such as git:app.
    """
    for change in (f"@{'0' * 40}", "#1"):
        try:
            return depot_prefix(validate_changelist_id(repository + change))
        except ValueError:
            continue
    return None


def source_for(changelist_id: str, config: SourcesConfig) -> Source:
    """Return the source of a changelist. No command runs yet.

    Raises PermanentFailure NOT_FOUND for an id of neither form or of an unknown repository,
    and CONFIG_INVALID for a source that is not configured or cannot work.
    """
    found = _GIT_ID.fullmatch(checked_id(changelist_id))
    if found is None:
        if config.perforce is None:
            raise misconfigured(
                "no Perforce server is configured: set P4PORT, P4USER and perforce in CHANGE_SOURCES"
            )
        return _perforce(config.perforce)
    return git_source(found[1], config)


def git_source(name: str, config: SourcesConfig, *, timeout_seconds: float = 60) -> GitSource:
    """Return the source of a repository of this machine. No command runs yet.

    Raises as `source_for`.
    """
    if (repository := config.git.get(name)) is None:
        raise not_found(f"no git repository is named {name}: add {name}=/path to GIT_REPOSITORIES")
    references = config.git_references
    return GitSource(
        name, repository, config.git_executable, references=references, timeout_seconds=timeout_seconds
    )


def listing_of(config: PerforceConfig) -> P4Listing:
    """Return the listing of a Perforce server's changes, for the poll.

    Raises as `source_for` does.
    """
    return _perforce(config).listing


@functools.lru_cache(maxsize=8)
def _perforce(config: PerforceConfig) -> PerforceSource:
    """Return the same object for the same server, so that `info` is asked once per process."""
    return PerforceSource(config)
