"""A worker in the test's own process: claims from the outbox and runs what is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from criticizer.db import prepared
from criticizer.queue import outbox
from reviews.intake import review_requests
from reviews.pipeline import executor
from tests import scripted


@pytest.fixture(autouse=True)
def _scripted(settings: Any) -> Iterator[None]:
    settings.STAGES = scripted.STAGES
    scripted.reset()
    yield
    scripted.reset()


@pytest.fixture(scope="session", autouse=True)
def _no_session_left(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """End the connection of the heartbeat's thread, which lives as long as the process."""
    yield
    with django_db_blocker.unblock():
        prepared.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.close()


@pytest.fixture
def work() -> Callable[[], int]:
    """Run everything that is due now; return how many messages were claimed."""

    def run() -> int:
        claimed = 0
        while messages := outbox.claim("stages", 10):
            for message in messages:
                claimed += 1
                executor.run_stage(message.id, message.aggregate_id, message.lease_token)
        return claimed

    return run


@pytest.fixture
def make_due() -> Callable[[], None]:
    """Let every wait be over: backoffs and leases."""

    def run() -> None:
        prepared.rows("UPDATE outbox_messages SET available_at = now()")
        prepared.rows("UPDATE stage_runs SET lease_expires_at = now() WHERE lease_token IS NOT NULL")

    return run


@pytest.fixture
def post() -> Callable[..., review_requests.IntakeResult]:
    """Request a review; every argument has a default."""

    def run(
        key: str = "k1", changelist: str = "12345", version: int = 1, **more: Any
    ) -> review_requests.IntakeResult:
        return review_requests.request_review(review_requests.ReviewRequest(key, changelist, version, **more))

    return run
