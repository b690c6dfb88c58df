"""A sweep that takes for ever hides no cluster and delays no stop."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from structlog.testing import capture_logs

from criticizer.db import prepared
from criticizer.models import WorkerCluster
from criticizer.observability.health import workers_alive
from tests.stack import eventually, running

pytestmark = [pytest.mark.cluster, pytest.mark.long]

HOURS = 3600.0


def hangs() -> None:
    """Run in the clusters, as the sweep: hold the lock and a connection, and never end."""
    prepared.value("SELECT 1")
    Path(os.environ["CRASH_POINTS"], str(os.getpid())).touch()
    time.sleep(HOURS)


def test_a_cluster_whose_sweep_hangs_beats_and_stops(tmp_path: Path, transactional_db: Any) -> None:
    points = tmp_path / "points"
    points.mkdir()
    environment = {"CRASH_POINTS": str(points), "TEST_MAINTENANCE": f"{__name__}.hangs"}
    with running(tmp_path, environment=environment) as stack:
        eventually(lambda: list(points.iterdir()), 60)
        began = timezone.now()
        # Both clusters had their sweep due, one of them has it, and both beat on.
        later = began + timedelta(seconds=20)
        eventually(lambda: WorkerCluster.objects.filter(beat_at__gt=later).count() == 2, 60)
        assert len(list(points.iterdir())) == 1
        assert all(workers_alive().values())
        family = [process for queue in stack.queues for process in stack.main(queue).children(recursive=True)]
        with capture_logs() as said:
            stack.stop()
        assert "process_killed" not in {entry["event"] for entry in said}
        assert not any(process.is_running() and process.status() != "zombie" for process in family)
    eventually(lambda: prepared.value("SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'"))
