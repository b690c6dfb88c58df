"""The end of a drill: what is left counts as stuck only if it was waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import drill_course
from benchmarks.drill_course import Course
from benchmarks.drill_ledger import Verdict

ENDED, ACTIVE = (0, 0, 0), (0, 0, 1)
CONCLUDED, OPEN = Verdict(), Verdict(stuck=["a check run is in_progress"])


class Hosts:
    def __init__(self) -> None:
        self.is_pushed = False

    def push_to_all(self) -> None:
        self.is_pushed = True


def settled(monkeypatch: pytest.MonkeyPatch, states: dict[bool, tuple[Any, Any]]) -> tuple[str, list[bool]]:
    """Settle a course whose state is that of `states` by whether the last heads were pushed."""
    hosts, asked = Hosts(), []
    installation: Any = SimpleNamespace(missing=list)
    peers: Any = SimpleNamespace(hosts=hosts, cease=lambda: None)

    def state(course: Course) -> tuple[Any, Any]:
        asked.append(hosts.is_pushed)
        return states[hosts.is_pushed]

    monkeypatch.setattr(Course, "_state", state)
    monkeypatch.setattr(drill_course, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(drill_course.time, "sleep", lambda seconds: None)
    return Course(installation, peers, [], [], ("a", "b"), 1.0).settle(), asked


def test_both_waits_end_when_all_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = (ENDED, CONCLUDED)
    assert settled(monkeypatch, {False: quiet, True: quiet}) == ("", [False, True])


@pytest.mark.parametrize("left", [(ACTIVE, CONCLUDED), (ENDED, OPEN), (None, None)])
def test_the_last_heads_are_waited_for_after_the_first_wait_timed_out(
    monkeypatch: pytest.MonkeyPatch, left: tuple[Any, Any]
) -> None:
    said, asked = settled(monkeypatch, {False: left, True: (ENDED, CONCLUDED)})
    assert said.startswith("time is up after the faults: ")
    assert "pushed" not in said
    assert True in asked


def test_what_is_left_of_the_last_heads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said, _ = settled(monkeypatch, {False: (ENDED, CONCLUDED), True: (ENDED, OPEN)})
    assert said == (
        "time is up after the last heads were pushed: jobs, ended, queued: (0, 0, 0); missing: [];"
        " left of pull requests: 1: a check run is in_progress"
    )


def test_each_wait_that_timed_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said, _ = settled(monkeypatch, {False: (ACTIVE, OPEN), True: (ACTIVE, OPEN)})
    assert "after the faults" in said
    assert "after the last heads were pushed" in said
