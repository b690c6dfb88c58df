"""Shared fixtures: the embedded PostgreSQL of this run, and helpers every room needs."""

from __future__ import annotations

import gc
import math
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import hypothesis
import pytest
from django.conf import settings
from django.test import TransactionTestCase
from whitenoise.middleware import WhiteNoiseMiddleware

from criticizer.db import reconnect
from criticizer.db.embedded import EmbeddedServer
from criticizer.resilience.health_checks import CHECKS
from tests import emptying, skips

# A busy machine is slow to make and to run examples: that says nothing about what they try.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    skips.register(config)


def pytest_xdist_auto_num_workers() -> int:
    """Use one process more than processors for `-n auto`: a fifth of a test's time is waiting."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the nine files in ten that have no test of a run of the clusters' tests alone."""
    only_clusters = config.option.markexpr.split(" ")[0] == "cluster"
    is_tests = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if only_clusters and is_tests and "mark.cluster" not in collection_path.read_text() else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep what collection makes, which stays, out of every collection of garbage: a quarter of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser tests last, whatever the order: one Chromium then serves them all."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedServer]:
    """The real PostgreSQL of this run."""
    server = EmbeddedServer(settings.DATA_DIR, fsync="off")  # flushing tables between tests, not power cuts
    server.start()
    yield server
    server.stop("immediate")
    shutil.rmtree(settings.DATA_DIR, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres: EmbeddedServer) -> None:
    """Start PostgreSQL before pytest-django makes the test database."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Transactional tests leave the database as its migrations made it, and quickly."""
    with django_db_blocker.unblock():
        emptying.keep_what_migrations_made()
    patch = pytest.MonkeyPatch()
    patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: emptying.empty())
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def _static_files_are_looked_for_once() -> Iterator[None]:
    """Every client of a test has middleware of its own, whose WhiteNoise would look for every file again."""
    found: dict[str, Any] = {}
    look = WhiteNoiseMiddleware.add_files_from_finders

    def remember(self: WhiteNoiseMiddleware) -> None:
        if not found:
            look(self)
            found.update(self.files)
        self.files.update(found)

    patch = pytest.MonkeyPatch()
    patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", remember)
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _never_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that one test took away must not make the next one careful."""
    monkeypatch.setattr(reconnect, "_lost_at", -math.inf)


@pytest.fixture(autouse=True)
def _ceiling_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process records its ceiling once; here it would be an event of whichever test comes first."""
    monkeypatch.setattr("reviews.config._recorded", ANY)


@pytest.fixture(autouse=True)
def _own_health_checks() -> Iterator[None]:
    """Restore the health checks that the apps registered after each test."""
    registered = dict(CHECKS)
    yield
    CHECKS.clear()
    CHECKS.update(registered)


@pytest.fixture(autouse=True)
def _private_storages(request: pytest.FixtureRequest) -> None:
    """Artifacts and mail of a test with a database lie in the test's own directory."""
    uses_database = {"db", "transactional_db", "live_server"} & set(request.fixturenames)
    if not uses_database and request.node.get_closest_marker("django_db") is None:
        return
    settings, tmp_path = request.getfixturevalue("settings"), request.getfixturevalue("tmp_path")
    storages = {name: {**value} for name, value in settings.STORAGES.items()}
    for name in ("artifacts_raw", "artifacts_redacted"):
        storages[name]["OPTIONS"] = {**storages[name]["OPTIONS"], "location": tmp_path / name}
    settings.STORAGES = storages
    settings.MAILDIR = tmp_path / "mail"
