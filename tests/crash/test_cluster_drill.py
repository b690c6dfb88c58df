"""A slice of `make cluster-drill`: two machines, a replicated database, three faults.

Each fault is of another kind of machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from benchmarks.cluster_drill import CANNOT
from benchmarks.cluster_faults import WEIGHTS
from benchmarks.drill_schedule import schedule

FAULTS = "machine_vanishes,machine_partitioned,primary_dies"


def test_the_schedule_is_the_seeds() -> None:
    def kinds(seed: int) -> list[str]:
        return [fault.kind for fault in schedule(30, seed, weights=WEIGHTS, length=120.0)]

    assert kinds(1) == kinds(1)
    assert kinds(1) != kinds(2)
    assert set(kinds(1)) == set(WEIGHTS)


@pytest.mark.cluster
@pytest.mark.long
def test_a_drill_that_is_told_to_end_prints_its_summary(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cluster_drill", "--jobs", "2", "--faults", "1"],
        cwd=settings.BASE_DIR, env={**os.environ, "TMPDIR": str(tmp_path)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr
    first = process.stderr.readline()
    if first.startswith("cluster drill: "):
        process.communicate()
        pytest.skip(f"no machines here: {first.strip()}")
    process.terminate()
    printed, said = process.communicate(timeout=900)
    summary = json.loads(printed.splitlines()[-1])
    assert process.returncode == 1, said
    assert summary["cut"] == "start: SIGTERM"
    assert summary["jobs"] == 2


@pytest.mark.cluster
@pytest.mark.long
def test_nothing_is_lost_with_a_machine_or_the_primary() -> None:
    """Nothing is lost, duplicated, stuck or in a wrong state, without a restart (G487)."""
    pytest.importorskip("moto.server", reason="needs moto[server]")
    command = ["--hosts", "2", "--jobs", "12", "--faults", "3", "--only", FAULTS]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cluster_drill", *command],
        cwd=settings.BASE_DIR, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    if done.returncode == CANNOT:
        pytest.skip(f"no machines here: {done.stderr.strip()}")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr[-3000:]
    assert summary["failovers"] == 1
    assert summary["failover_restarts"] == 0
