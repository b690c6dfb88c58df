"""Paths that operators keep from the model; only the checks read their files (G560)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reviews.reviewers.coverage_texts import SKIPPED_PATH
from reviews.sources.allowlist import parse_line
from reviews.sources.base import Change, FileChange
from reviews.sources.paths import canonical_case


class SkippedPaths:
    """Patterns in the language of the allow-list; the first that matches a path is its reason."""

    def __init__(self, patterns: Sequence[str], *, case_sensitive: bool = True) -> None:
        self._case_sensitive = case_sensitive
        self._lines = [parse_line(pattern, case_sensitive) for pattern in patterns]

    def reason(self, path: str | None) -> str:
        """Return why no model reads a path, or ""."""
        if path is None or not self._lines:
            return ""
        segments = canonical_case(path, case_sensitive=self._case_sensitive)[2:].split("/")
        found = next((line.text for line in self._lines if line.matches(segments)), "")
        return f"{SKIPPED_PATH}: {found}" if found else ""

    def applied(self, change: Change) -> Change:
        """Return a change with marks on the files that are skipped, also by the path they came from."""
        return replace(change, files=tuple(map(self._marked, change.files)))

    def _marked(self, file: FileChange) -> FileChange:
        why = file.unsent or self.reason(file.path) or self.reason(file.old_path)
        return replace(file, unsent=why) if why else file
