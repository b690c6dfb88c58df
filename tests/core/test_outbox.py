"""A leased message: only the worker with the lease holds it, puts it back and deletes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from criticizer.queue.outbox import Claimed

pytestmark = pytest.mark.django_db

QUEUE = "stages"


def leased() -> Claimed:
    """Publish a message and claim it, as a cluster does."""
    outbox.publish("thing", 7, "do_it", QUEUE)
    (message,) = outbox.claim(QUEUE, 10)
    return message


def row() -> dict[str, Any]:
    return OutboxMessage.objects.values().get()


def seconds_until_due() -> float:
    found: float = prepared.value(
        "SELECT extract(epoch FROM available_at - now())::float8 FROM outbox_messages"
    )
    return found


def test_a_held_message_is_claimed_by_no_other_worker_and_has_its_start_time() -> None:
    message = leased()
    assert outbox.hold(message.id, message.lease_token, seconds=180)
    began = row()["started_at"]
    assert seconds_until_due() == 180
    assert outbox.claim(QUEUE, 10) == []
    OutboxMessage.objects.update(started_at=F("started_at") - timedelta(minutes=1))
    assert outbox.hold(message.id, message.lease_token)  # renewed: it began when it began
    assert row()["started_at"] == began - timedelta(minutes=1)
    assert seconds_until_due() == outbox.LEASE_SECONDS


def test_leases_are_as_short_as_the_drills_time(settings: Any) -> None:
    settings.RETRY_TIME_SCALE = 0.1
    message = leased()
    assert outbox.hold(message.id, message.lease_token, seconds=180)
    assert seconds_until_due() == 18


def test_a_message_that_is_put_back_is_due_later_and_unleased() -> None:
    message = leased()
    assert outbox.hold(message.id, message.lease_token)
    assert outbox.put_back(message.id, message.lease_token, seconds=20, waiting_for="p4:main")
    found = row()
    assert (found["lease_token"], found["started_at"], found["waiting_for"]) == (None, None, "p4:main")
    assert (seconds_until_due(), found["retry_count"]) == (20, 0)
    assert outbox.wake("p4:main") == 1
    (again,) = outbox.claim(QUEUE, 10)
    assert again.lease_token != message.lease_token
    assert outbox.put_back(again.id, again.lease_token, seconds=0, has_failed=True)
    assert row()["retry_count"] == 1


def test_holding_a_waiting_message_clears_its_dependency() -> None:
    message = leased()
    OutboxMessage.objects.update(waiting_for="p4:main")
    assert outbox.hold(message.id, message.lease_token)
    assert row()["waiting_for"] == ""


def test_publishing_again_moves_a_message_to_the_queue_of_its_work_and_keeps_its_time() -> None:
    outbox.publish("thing", 7, "do_it", QUEUE)
    prepared.rows("UPDATE outbox_messages SET available_at = now() + interval '1 minute'")
    before = row()
    outbox.publish("thing", 7, "do_it", "notify")
    assert row() == {**before, "queue": "notify"}
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    assert outbox.claim("notify", 1)
    outbox.publish("thing", 7, "do_it", QUEUE)
    assert row()["queue"] == "notify"  # a worker has it


def test_what_is_done_is_gone() -> None:
    message = leased()
    assert outbox.done(message.id, message.lease_token)
    assert not OutboxMessage.objects.exists()
    assert not outbox.done(message.id, message.lease_token)


@pytest.mark.parametrize(
    "change",
    [
        outbox.hold,
        outbox.done,
        lambda message, token: outbox.put_back(message, token, seconds=5, has_failed=True),
    ],
    ids=["hold", "done", "put_back"],
)
def test_without_the_lease_nothing_changes(change: Callable[..., bool]) -> None:
    message = leased()
    before = row()
    assert not change(message.id, uuid4())
    assert not change(message.id + 1, message.lease_token)
    assert row() == before
