"""Checks of what lies outside the settings: the places of sources and the programs that are named.

Only `check` and `up` import this module, and by that register it: a repository that is away for a
moment must stop neither `migrate` nor a worker that starts again (its stage retries or fails, as
for every source).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register

from criticizer.checks.settings import TAG


@register(TAG)
def git_repositories(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look for the repositories of the source git (criticizer.E005, E006)."""
    if "git" not in settings.CHANGE_SOURCES:
        return []
    if not settings.GIT_REPOSITORIES:
        return [
            Error(
                "GIT_REPOSITORIES: is not set while git is in CHANGE_SOURCES.",
                hint="Set GIT_REPOSITORIES to name=/absolute/path,name2=/path2.",
                id="criticizer.E005",
            )
        ]
    return [
        Error(
            f"GIT_REPOSITORIES: {str(path)!r}, named {name!r}, {problem}.",
            hint="Set the absolute path of a repository that Criticizer may read, bare or not.",
            id="criticizer.E006",
        )
        for name, path in settings.GIT_REPOSITORIES.items()
        if (problem := _fault(path))
    ]


def _fault(path: Path) -> str:
    """Return what is wrong with the path of a repository, or the empty text."""
    try:
        if not path.is_dir():
            return "is not a directory" if path.exists() else "does not exist"
        if not (path / ".git").exists() and not (path / "HEAD").is_file():
            return "is not a git repository"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


@register(TAG)
def named_programs(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look for a source's program where its variable says that it is (criticizer.E007)."""
    named = {"perforce": "P4_EXECUTABLE", "git": "GIT_EXECUTABLE"}
    return [
        Error(
            f"{variable}: {value!r} is not a program that may be run.",
            hint=f"Set {variable} to the program's path, or leave it unset to search along PATH.",
            id="criticizer.E007",
        )
        for source, variable in named.items()
        if source in settings.CHANGE_SOURCES
        and (value := getattr(settings, variable))
        and shutil.which(value) is None
    ]


@register(TAG)
def perforce_files(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look for the ticket and trust files of Perforce, which its commands write (criticizer.W007)."""
    made_by = {"P4TICKETS": "p4 login", "P4TRUST": "p4 trust"}
    if "perforce" not in settings.CHANGE_SOURCES:
        return []
    return [
        checks.Warning(
            f"{name}: the file {getattr(settings, name)!r} is not there or may not be read.",
            hint=f"Make it with {made_by[name]} as the user that runs Criticizer, or correct {name}.",
            id="criticizer.W007",
        )
        for name in made_by
        if getattr(settings, name) and not _is_readable(Path(getattr(settings, name)))
    ]


def _is_readable(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False
