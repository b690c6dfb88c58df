"""The timeline of the database, as PostgreSQL itself tells it."""

from __future__ import annotations

import pytest
from django.db import connection

from criticizer.db import timeline


@pytest.mark.django_db
def test_the_timeline_is_that_of_the_control_file() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT timeline_id, system_identifier FROM pg_control_checkpoint(), pg_control_system()"
        )
        found = cursor.fetchone()
    assert timeline.read() == found
    assert timeline.is_first() is (found[0] == 1)


@pytest.mark.django_db(transaction=True)
def test_a_server_that_tells_no_timeline_may_have_lost_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "READ", "SELECT pg_walfile_name('nowhere')")
    assert timeline.read() is None
    assert not timeline.is_first()
