"""`manage.py drain`: a machine ends its work, takes nothing new, and works after a restart."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.models import F

from criticizer.models import WorkerCluster
from criticizer.observability.health import not_ready_reason
from criticizer.queue import outbox
from reviews.models import Attempt, ReviewJob
from tests.crash.conftest import World
from tests.stack import eventually

pytestmark = pytest.mark.cluster
HOST = socket.gethostname()


def drain(said: StringIO, wait: float = 60) -> None:
    try:
        call_command("drain", HOST, wait=wait, stdout=said)
    finally:
        connections.close_all()


@pytest.mark.long
@pytest.mark.parametrize("world", [{"commits": 2, "delay": 4.0, "scale": 1.0}], indirect=True)
def test_a_drained_machine_finishes_its_work_and_takes_nothing_new(world: World) -> None:
    """No attempt is cut off, and no stage begins there after the command has ended (G482)."""
    eventually(lambda: not_ready_reason() is None, 60)
    assert all(WorkerCluster.objects.values_list("version", flat=True))
    first = world.post(0)
    eventually(lambda: Attempt.objects.filter(stage_run__stage="llm", finished_at=None).exists(), 60)
    said = StringIO()
    command = threading.Thread(target=drain, args=(said,))
    command.start()
    command.join(60)
    assert f"{HOST} is drained" in said.getvalue()
    assert not Attempt.objects.filter(finished_at=None).exists()
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"succeeded"}
    assert not_ready_reason() == "workers_missing"

    second = world.post(1)
    begun = Attempt.objects.count()
    time.sleep(outbox.STALL_SECONDS + 6)  # so long, and the watchdog would have ended a wedged cluster
    assert Attempt.objects.count() == begun
    assert WorkerCluster.objects.filter(draining=True).count() == len(outbox.queues())

    for queue in outbox.queues():
        world.stack.kill(world.stack.main(queue))  # restarted by the supervisor
    assert world.succeeded(first, second, seconds=60)
    assert ReviewJob.objects.filter(status="succeeded").count() == 2


@pytest.mark.django_db
def test_a_machine_without_workers_is_named_with_those_that_have_some() -> None:
    WorkerCluster.objects.create(queue="llm", host="app2", pid=1, workers=1)
    with pytest.raises(CommandError, match=r"no worker runs on app1\. Workers run on: app2\."):
        call_command("drain", "app1", stdout=StringIO())


@pytest.mark.django_db
def test_a_beat_that_came_before_the_mark_is_not_taken_for_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guarantee G482: a cluster whose last beat saw no mark may still take something."""
    WorkerCluster.objects.create(queue="llm", host="app1", pid=1, workers=1)
    seen: list[bool] = []

    def beat(*_: object) -> None:
        seen.append(WorkerCluster.objects.get().draining)
        WorkerCluster.objects.update(beat_at=F("beat_at") + timedelta(seconds=1))

    def beat_before_the_mark(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith("UPDATE") and '"draining" =' in sql:
            beat()
        return execute(sql, *rest)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=beat)
    monkeypatch.setattr("reviews.management.commands.drain.time", clock)
    with connection.execute_wrapper(beat_before_the_mark):
        call_command("drain", "app1", stdout=StringIO())
    assert seen[:2] == [False, True]
