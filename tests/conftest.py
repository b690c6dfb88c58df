"""Shared fixtures: the embedded PostgreSQL of this run, and helpers that all tests need."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.db import transaction
from django.test import TransactionTestCase
from whitenoise.middleware import WhiteNoiseMiddleware

from criticizer.db.embedded import EmbeddedServer
from criticizer.resilience import retry
from criticizer.resilience.health_checks import CHECKS
from tests import emptying, migrated, process_memory, skips

# A busy machine is slow to make and to run examples: that says nothing about what they try.
# `make test` tries the same examples each time: it fails for a change, not by chance.
hypothesis.settings.register_profile(
    "patient",
    deadline=None,
    derandomize=not skips.is_all(),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    skips.register(config)
    # One drawn near zero is over before a test has looked at what waits: every hundredth time.
    retry.draw = lambda _, longest: longest


def pytest_xdist_auto_num_workers() -> int:
    """Return three processes more than processors for `-n auto`.

    With these, two processors are idle for 2 % of a run.
    """
    return len(os.sched_getaffinity(0)) + 3


def _has_only_clusters(config: pytest.Config) -> bool:
    return str(config.option.markexpr).split(" ")[0] == "cluster"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files without a cluster test when only cluster tests are run.

    They are nine files in ten, and are then not even imported.
    """
    is_tests = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if is_tests and _has_only_clusters(config) and "mark.cluster" not in collection_path.read_text():
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Keep the objects that collection makes out of every garbage collection.

    They stay until the end of the run. This saves a quarter of the time of collection.
    """
    gc.disable()
    try:
        _import_a_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_a_share(config: pytest.Config) -> None:
    """Let each process of a whole run import other tests first.

    In a new checkout pytest rewrites their assertions, 9 s of a processor, and keeps them compiled: so
    each process rewrites a part, and finds the others' parts done.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or config.args_source is not config.ArgsSource.TESTPATHS or _has_only_clusters(config):
        return
    files = sorted((config.rootpath / "tests").rglob("test_*.py"))
    for path in files[int(worker.removeprefix("gw")) :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]:
        module = ".".join(path.relative_to(config.rootpath).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection says what is wrong
            importlib.import_module(module)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser tests last, whatever the order: one Chromium then serves them all.

    Of the tests that start clusters the longest come first: no process is left with one at the end.
    """
    items.sort(key=lambda item: _seconds(item, "cluster"), reverse=True)
    browser = [item for item in items if item.get_closest_marker("browser")]
    items[:] = [item for item in items if not item.get_closest_marker("browser")] + _ends_evenly(browser)


def _ends_evenly(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spread the long items over the first half of all.

    A process that has nothing left is given an eighth of what is left, at last two tests: so none gets all
    the long ones, and the last are short.
    """
    long = [item for item in items if _seconds(item, "browser")]
    short = [item for item in items if not _seconds(item, "browser")]
    step = len(short) // 2 // max(1, len(long))
    found = []
    for number, item in enumerate(long):
        found += [item, *short[number * step : (number + 1) * step]]
    return found + short[len(long) * step :]


def _seconds(item: pytest.Item, name: str) -> int:
    """Return the approximate seconds of a test with clusters or a browser, if its mark has them."""
    mark = item.get_closest_marker(name)
    return int(mark.kwargs.get("seconds", 0)) if mark else 0


@pytest.fixture(scope="session")
def postgres(django_db_blocker: Any) -> Iterator[EmbeddedServer]:
    """Start the real PostgreSQL of this run."""
    # Processes are killed here, machines are not: what a server wrote is there, flushed or not.
    # Small: emptying tables looks through all buffers, and several runs share a machine.
    fast = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "shared_buffers": "128MB"}
    server = EmbeddedServer(settings.DATA_DIR, **fast)
    with django_db_blocker.unblock():
        migrated.copy_to(server)
    server.start()
    yield server
    server.stop("immediate")
    shutil.rmtree(settings.DATA_DIR, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres: EmbeddedServer) -> None:
    """Start PostgreSQL before pytest-django makes the test database."""


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Return True: the data directory came with the database of the tests."""
    return True


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Transactional tests leave the database as its migrations made it, and quickly."""
    patch = pytest.MonkeyPatch()
    patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: emptying.empty())
    yield
    patch.undo()


@pytest.fixture(scope="module")
def module_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Give the tests of a module common rows; each test has a savepoint of its own."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="session", autouse=True)
def _static_files_are_looked_for_once() -> Iterator[None]:
    """Find the static files once.

    Every client of a test has middleware of its own, whose WhiteNoise would search for every file again.
    """
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
def _as_if_the_process_were_new() -> None:
    """Make the process forget what an earlier test left in its memory."""
    process_memory.forget()


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
