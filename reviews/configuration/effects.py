"""Rules of a resolved configuration: files for the model, checks that run, findings shown."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reviews.configuration.globs import Globs
from reviews.configuration.keys import BEHAVIOR, rank
from reviews.configuration.kinds import compiled
from reviews.drift.claims import Kind
from reviews.reviewers.base import Finding
from reviews.reviewers.checks import GUARDS, OPTIONAL_CHECKS
from reviews.reviewers.coverage_texts import EXCLUDED, MODEL_OFF
from reviews.sources.base import FileChange
from reviews.sources.paths import decode_path

Values = Mapping[str, Any]


class FileRules:
    """Rules of a configuration for the files below its root.

    `is_llm_the_operators`: the value of `llm` is the installation's. Where that is off, the review itself
    says so, and its files need not.
    """

    def __init__(
        self, root: str, values: Values, *, case_sensitive: bool = True, is_llm_the_operators: bool = False
    ) -> None:
        self._root, self._sends = root, values["llm"] or is_llm_the_operators
        self._include = Globs(values["paths.include"], case_sensitive=case_sensitive)
        self._exclude = Globs(values["paths.exclude"], case_sensitive=case_sensitive)
        self._off = tuple(name for name in OPTIONAL_CHECKS if not values[f"checks.{name}"])

    def is_excluded(self, path: str) -> bool:
        below = relative(self._root, path)
        return self._exclude.match(below) or not self._include.match(below)

    def unsent_reason(self, path: str) -> str:
        """Return why no model may read a file, or ""."""
        if self.is_excluded(path):
            return EXCLUDED
        return "" if self._sends else MODEL_OFF

    def applied(self, file: FileChange) -> FileChange:
        """Return a file of the change as it is to be reviewed."""
        if self.is_excluded(file.path):
            return replace(file, unsent=EXCLUDED, checks_off=OPTIONAL_CHECKS)
        return replace(file, unsent=self.unsent_reason(file.path), checks_off=self._off)


class DocumentRules:
    """Rules of a configuration for the documents below its root."""

    def __init__(self, root: str, values: Values, *, case_sensitive: bool = True) -> None:
        self._root, self.is_on = root, values["docs.enabled"]
        self._include = Globs(values["docs.include"], case_sensitive=case_sensitive)
        self._exclude = Globs(values["docs.exclude"], case_sensitive=case_sensitive)
        self.kinds = tuple(kind.value for kind in Kind if values[f"docs.claim_types.{kind}"])
        # Jobs that were fetched by an older version have no such value.
        self.asks_model: bool = values.get(f"docs.claim_types.{BEHAVIOR}", True)
        self.most: int = values["docs.max_claims"]
        self.excludes_paths = values["paths.include"] != ["**"] or bool(values["paths.exclude"])

    def reads(self, path: str) -> bool:
        below = relative(self._root, path)
        return self._include.match(below) and not self._exclude.match(below)


def relative(root: str, path: str) -> str:
    """Return the raw name of a file below a root; letter case of the root is ignored."""
    return decode_path(path[len(root) :] if path[: len(root)].casefold() == root.casefold() else path)


class FindingRules:
    """Rules of a configuration for findings; those of the checks that protect are always shown."""

    def __init__(
        self, root: str, values: Values, today: datetime.date, *, case_sensitive: bool = True
    ) -> None:
        self._root = root
        self._least = rank(values["min_severity"])
        self._rules = [
            (number, _Rule(rule, case_sensitive))
            for number, rule in enumerate(values["suppress"], start=1)
            if datetime.date.fromisoformat(rule.get("until", "9999-12-31")) >= today
        ]

    def why_hidden(self, finding: Finding) -> str:
        """Return why a finding is not shown to people, or ""."""
        name = finding.source.removeprefix("check:")
        is_merged = finding.source == "llm" and finding.is_of_checks
        if name in GUARDS or is_merged:
            return ""
        if rank(finding.severity) < self._least:
            return "min_severity"
        for number, rule in self._rules:
            if rule.matches(finding, name, relative(self._root, finding.file)):
                return f"suppress #{number}"
        return ""


class _Rule:
    """One rule of `suppress`, compiled once."""

    def __init__(self, fields: Mapping[str, str], case_sensitive: bool) -> None:
        self._fields = fields
        self._files = Globs([fields.get("file", "**")], case_sensitive=case_sensitive)
        self._pattern = compiled(fields.get("pattern", ""))

    def matches(self, finding: Finding, name: str, path: str) -> bool:
        """Return whether all fields match a finding, given the name of its check and its path."""
        fields = self._fields
        return (
            fields.get("check", name) == name
            and fields.get("category", finding.category) == finding.category
            and ("file" not in fields or self._files.match(path))
            and any(self._pattern.search(text) is not None for text in (finding.title, finding.message))
        )


def strictest(several: Sequence[Values], name: str) -> str:
    """Return the strictest value of a key with severities: the lowest one set, or "none"."""
    set_ones = [values[name] for values in several if values[name] != "none"]
    return str(min(set_ones, key=rank)) if set_ones else "none"
