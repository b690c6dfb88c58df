"""Emptying the tables beside a cluster that is at work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from criticizer.queue.broker import connect
from reviews.models import ApiKey, ReviewJob
from tests import emptying, factories
from tests.stack import eventually

pytestmark = pytest.mark.django_db(transaction=True)

_WAITS = """
SELECT EXISTS (SELECT FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted
                  AND waitstart <= clock_timestamp() - make_interval(secs => %s)) AS waits"""


@pytest.mark.parametrize("seconds", [0, 0.1], ids=["at_once", "after_it_looked_for_deadlocks"])
def test_tables_are_emptied_after_a_deadlock_with_a_worker_that_goes_on(seconds: float) -> None:
    factories.ReviewJobFactory()
    factories.ApiKeyFactory()
    first, second = sorted([ReviewJob._meta.db_table, ApiKey._meta.db_table])
    with ThreadPoolExecutor(1) as other, connect() as worker:
        with worker.transaction():
            worker.execute(f"SELECT FROM {second}".encode())
            emptied = other.submit(_empty)  # locks the first table, and waits for the second
            eventually(lambda: worker.execute(_WAITS, [seconds]).fetchone() == {"waits": True})
            found = worker.execute(f"SELECT count(*) FROM {first}".encode()).fetchone()
        emptied.result(30)
    assert found == {"count": 1}
    assert not ReviewJob.objects.exists()
    assert not ApiKey.objects.exists()


def _empty() -> None:
    try:
        emptying.empty()
    finally:
        connections.close_all()
