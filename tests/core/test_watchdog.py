"""The watchdog ends a wedged cluster, and none whose network was away or that is drained."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection

from criticizer.db import reconnect
from criticizer.models import OutboxMessage, WorkerCluster
from criticizer.queue import outbox
from criticizer.queue.broker import OutboxBroker, connect
from criticizer.workers import watchdog
from criticizer.workers.watchdog import Watchdog

QUEUE = "stages"


class Slow:
    """A connection whose next statement waits for the network."""

    def __init__(self, connection: Any, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds

    def execute(self, *arguments: Any, **options: Any) -> Any:
        time.sleep(self._seconds)
        return self._connection.execute(*arguments, **options)


@pytest.mark.parametrize(
    ("host", "scale", "seconds"),
    [
        ("/var/lib/criticizer", 1.0, outbox.STALL_SECONDS),
        ("/var/lib/criticizer", 0.1, 2.0),
        ("db.example.com", 0.1, watchdog.LOSS_SECONDS),
    ],
)
def test_the_loss_of_a_database_on_this_machine_excuses_a_cluster_for_a_shorter_time(
    monkeypatch: pytest.MonkeyPatch, settings: Any, host: str, scale: float, seconds: float
) -> None:
    settings.RETRY_TIME_SCALE = scale
    monkeypatch.setitem(connection.settings_dict, "HOST", host)
    assert watchdog.loss_seconds() == seconds


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("seconds", "is_draining", "ended"), [(0.0, False, ["wedged"]), (1.2, False, []), (0.0, True, [])]
)
def test_a_cluster_is_ended_when_it_is_wedged_and_not_when_it_was_cut_off(
    monkeypatch: pytest.MonkeyPatch, settings: Any, seconds: float, is_draining: bool, ended: list[str]
) -> None:
    """Guarantee G485: claimed work does not start for longer than a wedged cluster may take."""
    settings.RETRY_TIME_SCALE = 0.1
    found: list[str] = []
    monkeypatch.setattr(watchdog, "end_cluster", lambda reason, queue: found.append(reason))
    monkeypatch.setattr(reconnect, "_lost_at", float("-inf"))
    OutboxMessage.objects.create(aggregate_type="thing", aggregate_id=1, message_type="do_it", queue=QUEUE)
    claimed = outbox.claim(QUEUE, 1)
    with connect() as own:
        watched = Watchdog(QUEUE, connect)
        watched.watch(message.lease_token for message in claimed)
        watched._connection = Slow(own, seconds)  # type: ignore[assignment]
        monkeypatch.setattr(watched, "_due", dict.fromkeys((watched._beat, watched._sweep), float("inf")))
        watched.is_draining = is_draining
        watched._progress_at -= 2 * watchdog.stall_seconds()
        watched._tick()
    assert found == ended
    assert OutboxMessage.objects.filter(lease_token=None).exists() == bool(ended)  # given back
    assert (reconnect.seconds_since_loss() < 10) == (seconds > 0)


@pytest.mark.django_db(transaction=True)
def test_a_draining_cluster_gives_back_what_it_has_not_begun_in_the_commit_of_its_beat() -> None:
    """Guarantee G482: after that beat nothing that it claimed begins, and it claims nothing."""
    for number in (1, 2):
        OutboxMessage.objects.create(
            aggregate_type="thing", aggregate_id=number, message_type="do_it", queue=QUEUE
        )
    begun, waiting = outbox.claim(QUEUE, 2)
    assert outbox.hold(begun.id, begun.lease_token)
    broker = OutboxBroker(QUEUE)
    broker._watchdog = watched = Watchdog(QUEUE, connect)
    watched.watch([begun.lease_token, waiting.lease_token])
    with connect() as own:
        watched._beat(own)
        assert OutboxMessage.objects.filter(lease_token=None).count() == 0
        WorkerCluster.objects.update(draining=True)
        watched._beat(own)
    assert list(OutboxMessage.objects.filter(lease_token=None).values_list("pk", flat=True)) == [waiting.id]
    assert not outbox.hold(waiting.id, waiting.lease_token)  # a worker that gets it from the queue is refused
    assert broker._take() == []
