"""Comparison of a run's skipped tests with the committed list.

A test that nobody runs proves nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).with_name("expected_skips.txt")
RUN = "CRITICIZER_TEST_RUN"  # `make test-all` sets it to "all"


def is_all() -> bool:
    """Return whether this is a run of `make test-all`."""
    return os.environ.get(RUN) == "all"


def examples(number: int) -> int:
    """Return the number of examples of a property: a quarter in `make test`, else all.

    So it is with the size of a text that takes long to read, where no bound is asserted.
    """
    return number if is_all() else number // 4


def expected_skips(of_all: bool) -> list[tuple[str, str]]:
    """Return (beginning of the path, beginning of the reason) of what may be skipped."""
    lines = [line for line in LIST.read_text().splitlines() if line.strip() and not line.startswith("#")]
    rows = [tuple(part.strip() for part in line.split("|", 2)) for line in lines]
    return [(path, reason) for run, path, reason in rows if run == "both" or not of_all]


@dataclass(eq=False)
class SkippedTests:
    """A pytest plugin. With xdist it works in the controller, which gets the workers' reports."""

    expected: list[tuple[str, str]]
    found: Counter[tuple[str, str]] = field(default_factory=Counter)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._note(report)

    def pytest_collectreport(self, report: Any) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.found[report.nodeid.partition("::")[0], reason.removeprefix("Skipped: ")] += 1

    def unexpected(self) -> list[tuple[str, str]]:
        return sorted(
            (path, reason)
            for path, reason in self.found
            if not any(path.startswith(known) and reason.startswith(why) for known, why in self.expected)
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        unexpected = self.unexpected()
        for (path, reason), count in sorted(self.found.items()):
            mark = "NOT EXPECTED" if (path, reason) in unexpected else "expected"
            terminalreporter.write_line(f"skipped, {mark}: {path} ({count}): {reason}")
        if unexpected:
            terminalreporter.write_line(f"Let these tests run, or add them to {LIST.name} with the reason.")


def register(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkippedTests(expected_skips(is_all())))
