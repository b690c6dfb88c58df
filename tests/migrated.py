"""A data directory of PostgreSQL in which the migrations ran once, copied for each process.

Migrations take six seconds of a processor. A run has five processes twice, and whoever works on a
test starts one a minute. The directory is named after all that decides its content: the product's
modules, the locked packages, this module and the one that keeps the migrated rows.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection

from criticizer.db.embedded import EmbeddedServer
from tests import emptying

_APPS = ("criticizer", "reviews", "notifications", "deadletters")
_KEPT = Path(settings.BASE_DIR, ".pytest_cache", "migrated")


def copy_to(server: EmbeddedServer) -> None:
    """Give a stopped server, which has no data directory, the migrated one."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first process makes it, others wait: they need it as well
        kept = _KEPT / _digest()
        if kept.exists():
            server.data_dir.mkdir(parents=True, exist_ok=True)
            _copy(kept, server.cluster_dir)
        else:
            _migrate(server)
            for old in _KEPT.glob("[0-9a-f]*"):
                shutil.rmtree(old)
            unfinished = _KEPT / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            _copy(server.cluster_dir, unfinished)
            unfinished.rename(kept)


def _digest() -> str:
    base = Path(settings.BASE_DIR)
    files = [path for app in _APPS for path in (base / app).rglob("*.py")]
    files += [base / "requirements" / "dev.txt", Path(__file__), Path(emptying.__file__)]
    files.append(Path(__file__).with_name("settings.py"))  # names the role that owns the tables
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(f"{path.relative_to(base)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def _migrate(server: EmbeddedServer) -> None:
    server.start()
    try:
        with _name_restored():
            connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
            emptying.keep_what_migrations_made()
    finally:  # a migration that fails leaves no server behind
        connection.close()
        server.stop("fast")


@contextmanager
def _name_restored() -> Iterator[None]:
    """Let Django's creation of the test database change no setting for good: it comes again."""
    name = connection.settings_dict["NAME"]
    try:
        yield
    finally:
        connection.settings_dict["NAME"] = settings.DATABASES["default"]["NAME"] = name


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # with its owner, unlike shutil
