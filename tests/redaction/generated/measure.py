"""Surviving generated rows by class, and the smallest text that still shows a failure."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.redaction.generated.rows import Row, drawn

Redact = Callable[[str], str]


@dataclass(slots=True)
class Report:
    """Counts by class; `failures` are the rows themselves."""

    total: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    failures: list[Row] = field(default_factory=list)
    secret_groups: set[str] = field(default_factory=set)

    def share(self, *, secret: bool) -> float:
        """Return the share of rows that failed, of those with secrets or of the innocent ones."""
        groups = [group for group in self.total if (group in self.secret_groups) == secret]
        return sum(self.failed[g] for g in groups) / max(sum(self.total[g] for g in groups), 1)

    def lower_bound(self, group: str, z: float = 1.64) -> float:
        """Return the lower confidence bound (Wilson) of the share of a class that is right."""
        n, right = self.total[group], self.total[group] - self.failed[group]
        p = right / n
        return (p + z * z / (2 * n) - z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)

    def lines(self) -> list[str]:
        return [
            f"{group:30} {self.total[group]:5} {1 - self.failed[group] / self.total[group]:.3f}"
            for group in sorted(self.total, key=lambda g: (g not in self.secret_groups, g))
        ]


def failed(row: Row, redact: Redact) -> bool:
    """Return whether a secret survives, or ordinary text changes."""
    result = redact(row.text)
    return any(secret in result for secret in row.secrets) if row.secrets else result != row.text


def measure(rows: Iterable[Row], redact: Redact) -> Report:
    report = Report()
    for row in rows:
        report.total[row.group] += 1
        if row.secrets:
            report.secret_groups.add(row.group)
        if failed(row, redact):
            report.failed[row.group] += 1
            report.failures.append(row)
    return report


def shrunk(row: Row, redact: Redact) -> Row:
    """Return a smaller row that fails as well: without its mutation and unneeded lines."""
    for seed in range(20):
        plain = drawn(row.group, row.template, random.Random(seed), mutation="")
        if failed(plain, redact):
            row = plain
            break
    lines = row.text.split("\n")
    at = 0
    while at < len(lines) > 1:
        fewer = lines[:at] + lines[at + 1 :]
        smaller = row._replace(text="\n".join(fewer))
        whole = all(secret in smaller.text for secret in row.secrets)
        if whole and failed(smaller, redact):
            row, lines = smaller, fewer
        else:
            at += 1
    return row
