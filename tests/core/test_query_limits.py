"""Statement timeouts: what they cancel, and what holds behind an inner one."""

from __future__ import annotations

import pytest
from django.db import connection

from criticizer.db.query_limits import NO_PARALLEL_WORKERS, StatementTimeout, statement_timeout

pytestmark = pytest.mark.django_db


def setting(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", [name])
        return str(cursor.fetchone()[0])


def sleep(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])


def test_behind_an_inner_limit_the_outer_one_holds_again() -> None:
    before = setting("statement_timeout")
    with statement_timeout(300, NO_PARALLEL_WORKERS):
        with statement_timeout(20_000, {"work_mem": "65536", **NO_PARALLEL_WORKERS}):
            assert setting("work_mem") == "64MB"
        assert setting("statement_timeout") == "300ms"
        assert setting("max_parallel_workers_per_gather") == "0"
        assert setting("work_mem") != "64MB"
    assert setting("statement_timeout") == before


def test_an_inner_limit_that_was_reached_leaves_the_outer_one() -> None:
    with statement_timeout(20_000):
        with pytest.raises(StatementTimeout), statement_timeout(20):
            sleep(10)
        assert setting("statement_timeout") == "20s"
