"""Files that only the checks read, as they are not sent to a model (guarantee G204).

Folders are named by LLM_SKIP_PATHS alone: without it, code below `vendor/` is sent.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from fnmatch import fnmatchcase

from reviews.reviewers.coverage_texts import LEFT_OUT, LOCK_FILE

_LOCK_NAMES = frozenset(
    (
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lockb",
        "bun.lock",
        "composer.lock",
        "gemfile.lock",
        "cargo.lock",
        "poetry.lock",
        "pdm.lock",
        "uv.lock",
        "pipfile.lock",
        "conda-lock.yml",
        "go.sum",
        "go.work.sum",
        "podfile.lock",
        "package.resolved",
        "pubspec.lock",
        "mix.lock",
        "flake.lock",
        "deno.lock",
        "packages.lock.json",
        "gradle.lockfile",
        "module.bazel.lock",
        ".terraform.lock.hcl",
    )
)


def unsent_reason(path: str, patterns: Sequence[str]) -> str:
    """Return why a file is not sent to the model, or ''.

    `patterns` are the owner's; their `*` spans folders.
    """
    if posixpath.basename(path).casefold() in _LOCK_NAMES:
        return LOCK_FILE
    if any(fnmatchcase(path, pattern) for pattern in patterns):
        return LEFT_OUT
    return ""
