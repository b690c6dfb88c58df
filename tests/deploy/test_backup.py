"""deploy/backup.sh and deploy/restore.sh: a lost database and its files stand again as at the last point."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from criticizer.db.embedded import DATABASE, OWNER, EmbeddedServer
from tests.stack import eventually

DEPLOY = Path(settings.BASE_DIR) / "deploy"
Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)
    (tmp_path / "backup" / "wal").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def server(files: Path) -> Iterator[EmbeddedServer]:
    """A PostgreSQL that archives into the backup."""
    wal = files / "backup" / "wal"
    clients = files / "pg_hba.conf"
    clients.write_text("local all,replication all trust\n")
    made = EmbeddedServer(
        files / "first", archive_mode="on", archive_command=f"cp %p {wal}/%f", hba_file=str(clients)
    )
    made.start()
    shutil.chown(wal, made.cluster_dir.stat().st_uid)
    try:
        yield made
    finally:
        made.stop("immediate")


@pytest.fixture
def script(files: Path, server: EmbeddedServer) -> Script:
    def run(name: str, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{Path(EmbeddedServer._binary('psql')).parent}:{os.defpath}",
            "BACKUP_DIR": str(files / "backup"),
            "CRITICIZER_DATA_DIR": str(files / "first"),
            "PGHOST": str(server.socket_dir),
            "PGUSER": OWNER,
            "PGDATABASE": DATABASE,
            **options,
        }
        return subprocess.run(
            [str(DEPLOY / name), *arguments], env=environment, capture_output=True, text=True, timeout=120
        )

    return run


def ask(server: EmbeddedServer, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(
        host=str(server.socket_dir), user=OWNER, dbname=DATABASE, autocommit=True
    ) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def test_a_lost_database_and_its_files_stand_again_as_at_the_point(
    files: Path, server: EmbeddedServer, script: Script
) -> None:
    artifacts = files / "first" / "artifacts" / "ab"
    artifacts.mkdir(parents=True)
    ask(server, "CREATE TABLE rows (name text)")
    assert script("backup.sh", "base").returncode == 0
    for number in (1, 2):
        (artifacts / f"draft{number}").write_text("content")
        (artifacts / f"draft{number}").rename(artifacts / f"file{number}")
        ask(server, f"INSERT INTO rows VALUES ('before {number}')")
        done = script("backup.sh", "point")
        assert done.returncode == 0, done.stderr
    (artifacts / "late").write_text("content")
    ask(server, "INSERT INTO rows VALUES ('after')")
    server.stop("immediate")

    second = EmbeddedServer(files / "second")
    place = {"PGDATA": str(second.cluster_dir), "CRITICIZER_DATA_DIR": str(files / "second")}
    second.data_dir.mkdir()
    done = script("restore.sh", **place)
    assert done.returncode == 0, done.stderr
    owner = server.cluster_dir.stat()
    for path in (second.cluster_dir, *second.cluster_dir.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    try:
        second.start()
        eventually(lambda: ask(second, "SELECT pg_is_in_recovery()") == [(False,)], 60)
        assert ask(second, "SELECT name FROM rows ORDER BY 1") == [("before 1",), ("before 2",)]
        ask(second, "INSERT INTO rows VALUES ('goes on')")
    finally:
        second.stop("immediate")
    restored = files / "second" / "artifacts" / "ab"
    assert sorted(path.name for path in restored.iterdir()) == ["file1", "file2"]

    again = script("restore.sh", **place)
    assert again.returncode == 1
    assert "exists: move it away" in again.stderr


def test_a_backup_says_what_is_missing(files: Path, server: EmbeddedServer, script: Script) -> None:
    assert "there is no base" in script("backup.sh", "point").stderr
    assert "there is no base" in script("restore.sh", PGDATA=str(files / "new")).stderr
    assert "say what" in script("backup.sh").stderr
    server.stop()
    server.settings["archive_mode"] = "off"
    server.start()
    refused = script("backup.sh", "base")
    assert refused.returncode == 1
    assert "archive_mode of PostgreSQL is off" in refused.stderr
    assert not list((files / "backup").glob("base-*"))
