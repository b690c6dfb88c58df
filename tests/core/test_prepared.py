"""Prepared statements appear in Django's query log while it is enabled."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import ProgrammingError, connection, transaction
from django.test.utils import CaptureQueriesContext

from criticizer.db import prepared
from reviews.states import OPEN_TASK
from tests import emptying

pytestmark = pytest.mark.django_db

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 7 AS number, $1::int'"


def seven() -> Any:
    return prepared.row("SELECT 7 AS number, %(other)s::int", {"other": 8})


def test_a_statement_is_counted_and_answers_as_ever(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(3) as queries:
        assert prepared.rows("SELECT 7 AS number") == [{"number": 7}]
        assert seven() == {"number": 7, "int4": 8}
        assert prepared.value("SELECT %s::text", ["x"]) == "x"
    assert [query["sql"][:8] for query in queries.captured_queries] == ["SELECT 7", "SELECT 7", "SELECT %"]


def test_a_statement_that_fails_is_counted_and_raises_what_django_raises() -> None:
    with (
        CaptureQueriesContext(connection) as seen,
        pytest.raises(ProgrammingError, match="no_such_table"),
        transaction.atomic(),
    ):
        prepared.rows("SELECT * FROM no_such_table")
    assert any("no_such_table" in query["sql"] for query in seen.captured_queries)


def test_a_statement_is_prepared_whether_queries_are_logged_or_not() -> None:
    seven()
    assert prepared.value(PREPARED) == 1
    prepared.value("DEALLOCATE ALL")
    connection.connection._prepared.clear()
    with CaptureQueriesContext(connection):
        seven()
    assert prepared.value(PREPARED) == 1


def test_no_query_log_is_kept_unless_it_is_enabled() -> None:
    connection.queries_log.clear()
    seven()
    assert list(connection.queries_log) == []


def test_a_list_of_states_becomes_text_so_that_a_partial_index_serves_it() -> None:
    assert prepared.sql_list(OPEN_TASK) == "('pending', 'in_progress')"
    emptying.make_as_new("agent_tasks")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        cursor.execute(
            f"EXPLAIN SELECT id FROM agent_tasks WHERE status IN {prepared.sql_list(OPEN_TASK)}"
            " ORDER BY created_at, ordinal, id LIMIT 1"
        )
        assert "agent_tasks_open" in str(cursor.fetchall())


@pytest.mark.parametrize("words", [[], [""], ["queued'"], ["two words"], ["queued", "a;b"]])
def test_only_plain_words_become_text(words: list[str]) -> None:
    with pytest.raises(ValueError, match="plain words"):
        prepared.sql_list(words)
