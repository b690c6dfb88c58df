"""Slices of a scan's work, and the moment when it gives way, by a scripted clock."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from criticizer.resilience.failures import DependencyUnavailable
from criticizer.workers.child_process import ProcessLost
from reviews.configuration.effects import DocumentRules
from reviews.drift.scan_process import ScanProcess
from reviews.stages import scan

pytestmark = pytest.mark.django_db


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Scripted(ScanProcess):
    """A scanning process whose messages come at times of a script: (seconds, message)."""

    def __init__(self, clock: Clock, script: list[tuple[float, dict[str, Any]]]) -> None:
        self._clock, self._script = clock, script

    def send(self, message: Any) -> None:
        pass

    def receive(self, seconds: float) -> dict[str, Any]:
        if not self._script or self._script[0][0] > seconds:
            self._clock.now += seconds
            raise ProcessLost
        passed, message = self._script.pop(0)
        self._clock.now += passed
        return message


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(scan, "time", made)
    return made


def scan_at(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> scan._Scan:
    claim: Any = SimpleNamespace(soft_deadline_in=3_000.0, has_progress=False, stage_run_id=0, token=uuid4())
    monkeypatch.setattr(scan._Scan, "_store", lambda *document: None)
    monkeypatch.setattr(scan.pipeline, "keep_progress", lambda claim, progress: None)
    sight: Any = SimpleNamespace(is_whole=lambda root: False, sees=lambda path: True)
    job: Any = SimpleNamespace(pk=1, changelist_id="git:demo@1", scope_prefixes=["//demo/"])
    rules = cast("DocumentRules", SimpleNamespace(kinds=()))
    source: Any = SimpleNamespace(location=("demo", "x", "g"))
    work = scan._Scan(claim, job, "//demo/", sight, rules, source)
    work._where = work._commit()
    return work


def test_a_document_has_one_minute_however_many_messages_it_sends(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [(25.0, {"ask": ["a.py"]})] * 10
    process = Scripted(clock, [(0.0, {"begin": "README.md"}), *asked])
    assert scan_at(clock, monkeypatch)._verified(process) == "README.md"
    assert clock.now == 1_060.0


def test_a_slow_listing_takes_nothing_from_the_slice_of_the_documents(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verified(name: str) -> list[tuple[float, dict[str, Any]]]:
        document: dict[str, Any] = {"document": name, "claims": [], "not_indexed": 0}
        return [(0.0, {"begin": name}), (25.0, document)]

    work = scan_at(clock, monkeypatch)
    process = Scripted(clock, [(65.0, {"ask": ["a.py"]}), *verified("a"), *verified("b"), *verified("c")])
    with pytest.raises(DependencyUnavailable):
        work._verified(process)
    assert clock.now == 1_000.0 + 65.0 + 3 * 25.0


def test_a_lost_document_that_took_its_minute_gives_way(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        scan, "ScanProcess", lambda: nullcontext(Scripted(clock, [(1.0, {"begin": "README.md"})]))
    )
    with pytest.raises(DependencyUnavailable):
        scan_at(clock, monkeypatch).verify()
