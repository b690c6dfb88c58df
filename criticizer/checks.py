"""System checks: what is wrong is said at start, with the remedy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string

TAG = "criticizer"


@register(TAG)
def dotted_paths(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Import every stage and port named in settings (criticizer.E002)."""
    named = {
        **{f"STAGES[{stage!r}]": path for stage, (path, _) in settings.STAGES.items()},
        "DEADLETTER_RECOVERY": settings.DEADLETTER_RECOVERY,
        **{f"MAINTENANCE[{path!r}]": path for path in settings.MAINTENANCE},
        **{f"CIRCUIT_PROBES[{name!r}]": path for name, path in settings.CIRCUIT_PROBES.items()},
    }
    found: list[CheckMessage] = []
    for name, path in named.items():
        try:
            import_string(path)
        except ImportError as error:
            found.append(
                Error(f"{name}: {error}", hint=f"Set {name} to an importable path.", id="criticizer.E002")
            )
    return found


@register(TAG)
def storages(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Import the storages of artifacts, one of which needs an extra (criticizer.E004)."""
    for name, storage in settings.STORAGES.items():
        try:
            import_string(storage["BACKEND"])
        except ImportError:
            return [
                Error(
                    f"STORAGES[{name!r}] needs a package that is not installed.",
                    hint="Install requirements/s3.txt, or set ARTIFACT_STORAGE=file.",
                    id="criticizer.E004",
                )
            ]
    return []


@register(TAG)
def executables(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look for the command of each configured source (criticizer.W003)."""
    configured = {"perforce": ("p4", "P4_EXECUTABLE"), "git": ("git", "GIT_EXECUTABLE")}
    found: list[CheckMessage] = []
    for source in settings.CHANGE_SOURCES:
        command, variable = configured[source]
        if shutil.which(getattr(settings, variable) or command) is None:
            found.append(
                checks.Warning(
                    f"{source} is a configured source, but its command {command} is not there.",
                    hint=f"Install {command}, set {variable}, or take {source} out of CHANGE_SOURCES.",
                    id="criticizer.W003",
                )
            )
    return found


@register(TAG)
def time_scale(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn about shortened waits (criticizer.W001)."""
    if settings.RETRY_TIME_SCALE == 1:
        return []
    return [
        checks.Warning(
            f"RETRY_TIME_SCALE is {settings.RETRY_TIME_SCALE}: waits are not the documented ones.",
            hint="Leave it unset outside drills and tests.",
            id="criticizer.W001",
        )
    ]
