"""deploy/backup.sh and deploy/restore.sh: a lost installation is as at its last point again."""

from __future__ import annotations

import fcntl
import gzip
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
SEGMENT = "000000010000000000000001"
Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "backup" / "wal").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def server(files: Path) -> Iterator[EmbeddedServer]:
    """A PostgreSQL that archives into the backup."""
    clients = files / "pg_hba.conf"
    clients.write_text("local all,replication all trust\n")
    archive = shutil.copy(DEPLOY / "backup.sh", files)  # where the server's account may read
    made = EmbeddedServer(
        files / "first",
        archive_mode="on",
        archive_command=f"BACKUP_DIR={files}/backup {archive} archive %p %f",
        hba_file=str(clients),
    )
    made.start()
    shutil.chown(files / "backup" / "wal", made.cluster_dir.stat().st_uid)
    try:
        yield made
    finally:
        made.stop("immediate")


@pytest.fixture
def script(files: Path) -> Script:
    """Run a script for the database of `server`, or with the `tools` that stand for one."""
    first = EmbeddedServer(files / "first")

    def run(name: str, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        tools = files / "tools"
        environment = {
            "PATH": f"{tools if tools.exists() else Path(first._binary('psql')).parent}:{os.defpath}",
            "BACKUP_DIR": str(files / "backup"),
            "CRITICIZER_DATA_DIR": str(files / "first"),
            "PGHOST": str(first.socket_dir),
            "PGUSER": OWNER,
            "PGDATABASE": DATABASE,
            **options,
        }
        return subprocess.run(
            [str(DEPLOY / name), *arguments], env=environment, capture_output=True, text=True, timeout=120
        )

    return run


@pytest.fixture
def tools(files: Path) -> Path:
    """Programs that answer as PostgreSQL does that has archived everything."""
    for name, lines in {
        "psql": f"case $2 in SHOW*) echo on ;; *name*) echo {SEGMENT} ;; esac",
        "pg_basebackup": 'mkdir "$2" && touch "$2/PG_VERSION" "$2/.s.PGSQL.5432.lock"',
    }.items():
        (files / "tools").mkdir(exist_ok=True)
        (files / "tools" / name).write_text(f"#!/bin/sh\n{lines}\n")
        (files / "tools" / name).chmod(0o755)
    (files / "backup" / "wal" / f"{SEGMENT}.gz").touch()
    (files / "first" / "artifacts").mkdir(parents=True)
    return files / "tools"


def good(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


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
    good(script("backup.sh", "base"))
    for number in (1, 2):
        (artifacts / f"draft{number}").write_text("content")
        (artifacts / f"draft{number}").rename(artifacts / f"file{number}")
        ask(server, f"INSERT INTO rows VALUES ('before {number}')")
        good(script("backup.sh", "point"))
    (artifacts / "late").write_text("content")
    ask(server, "INSERT INTO rows VALUES ('after')")
    server.stop("immediate")

    second = EmbeddedServer(files / "second")
    place = {"PGDATA": str(second.cluster_dir), "CRITICIZER_DATA_DIR": str(files / "second")}
    second.data_dir.mkdir()
    good(script("restore.sh", **place))
    owner = server.cluster_dir.stat()
    for path in (second.cluster_dir, *second.cluster_dir.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    try:
        second.start()
        eventually(lambda: ask(second, "SELECT pg_is_in_recovery()") == [(False,)], 60)
        assert ask(second, "SELECT name FROM rows ORDER BY 1") == [("before 1",), ("before 2",)]
        ask(second, "INSERT INTO rows VALUES ('goes on')")
        assert ask(second, "SHOW archive_mode") == [("off",)]  # else it archives among the lost one's log
        bases = list((files / "backup").glob("base-*"))
        refused = script("backup.sh", "base", PGHOST=str(second.socket_dir))
        assert refused.returncode == 1
        assert "archive_mode of PostgreSQL is off" in refused.stderr
        assert list((files / "backup").glob("base-*")) == bases
    finally:
        second.stop("immediate")
    restored = files / "second" / "artifacts" / "ab"
    assert sorted(path.name for path in restored.iterdir()) == ["file1", "file2"]

    again = script("restore.sh", **place)
    assert again.returncode == 1
    assert "exists: move it away" in again.stderr


def test_a_backup_says_what_is_missing(files: Path, script: Script) -> None:
    assert "there is no base" in script("backup.sh", "point").stderr
    assert "there is no point" in script("restore.sh", PGDATA=str(files / "new")).stderr
    assert "say what" in script("backup.sh").stderr
    assert not list((files / "backup").glob("base-*"))


def restored(files: Path, script: Script, *arguments: str) -> set[str]:
    """Restore to a new place, without the lost server's locks; return the artifacts' names."""
    place = files / f"restored {len(list(files.glob('restored *')))}"
    place.mkdir()
    good(script("restore.sh", *arguments, PGDATA=f"{place}/database", CRITICIZER_DATA_DIR=f"{place}/data"))
    assert [path.name for path in (place / "database").glob("*PG*")] == ["PG_VERSION"]
    found = (place / "data" / "artifacts").rglob("*")
    return {path.name for path in found if path.is_file()}


def test_files_that_cannot_be_copied_make_no_point(files: Path, tools: Path, script: Script) -> None:
    good(script("backup.sh", "base"))
    good(script("backup.sh", "point"))
    last = next((files / "backup").glob("base-*/last-point"))
    point = last.read_text()

    (files / "empty").mkdir()
    for place in ("empty", "missing"):
        done = script("backup.sh", "point", CRITICIZER_DATA_DIR=str(files / place))
        assert done.returncode == 1
        assert "is it mounted?" in done.stderr

    (files / "first" / "artifacts" / "file").write_text("content")
    (tools / "tar").write_text(
        "#!/bin/sh\necho 'tar: artifacts/file: Cannot open: Permission denied'\nexit 2\n"
    )
    (tools / "tar").chmod(0o755)
    done = script("backup.sh", "point")
    assert done.returncode == 1
    assert "artifacts/file: Cannot open: Permission denied" in done.stderr
    (tools / "find").write_text("#!/bin/sh\nexit 1\n")
    (tools / "find").chmod(0o755)
    (tools / "tar").unlink()
    assert script("backup.sh", "point").returncode == 1
    assert last.read_text() == point

    (tools / "find").unlink()
    good(script("backup.sh", "point"))  # the file is tried again
    assert restored(files, script) == {"file"}


def test_a_file_that_is_deleted_meanwhile_stops_no_point(files: Path, tools: Path, script: Script) -> None:
    (files / "first" / "artifacts" / "stays").touch()
    find = shutil.which("find")
    (tools / "find").write_text(f'#!/bin/sh\n{find} "$@" && printf "artifacts/deleted\\0"\n')
    (tools / "find").chmod(0o755)
    good(script("backup.sh", "base"))
    good(script("backup.sh", "point"))
    assert restored(files, script) == {"stays"}


def test_every_point_has_the_files_of_its_time(files: Path, tools: Path, script: Script) -> None:
    """A space in the folder's name and a backup disk whose clock is ahead change nothing."""
    (files / "backup").rename(files / "the backup")
    place = {"BACKUP_DIR": f"{files}/the backup"}
    good(script("backup.sh", "base", **place))
    for name in ("first", "second", "third"):
        (files / "first" / "artifacts" / name).touch()
        good(script("backup.sh", "point", **place))
        for path in (files / "the backup").glob("base-*/*"):
            os.utime(path, (2**32, 2**32))
    (files / "the backup").rename(files / "backup")
    assert restored(files, script) == {"first", "second", "third"}


def test_folders_come_back_with_owner_and_mode(files: Path, tools: Path, script: Script) -> None:
    folder = files / "first" / "artifacts" / "ab"
    folder.mkdir()
    (folder / "file").touch()
    owner = 4711 if os.geteuid() == 0 else os.geteuid()
    for path, mode in (
        (folder / "file", 0o640),
        (folder, 0o2750),
        (folder.parent, 0o711),
        (files / "first", 0o755),
    ):
        os.chown(path, owner, -1)
        path.chmod(mode)
    good(script("backup.sh", "base"))
    good(script("backup.sh", "point"))
    restored(files, script)
    data = files / "restored 0" / "data"
    found = [(path.stat().st_uid, oct(path.stat().st_mode & 0o7777)) for path in
             (data, data / "artifacts", data / "artifacts/ab", data / "artifacts/ab/file")]  # fmt: skip
    assert found == [(owner, "0o755"), (owner, "0o711"), (owner, "0o2750"), (owner, "0o640")]


def test_a_point_is_restored_from_the_base_it_was_made_in(files: Path, tools: Path, script: Script) -> None:
    good(script("backup.sh", "base"))
    (files / "first" / "artifacts" / "early").touch()
    good(script("backup.sh", "point"))
    base = next((files / "backup").glob("base-*"))
    early = (base / "last-point").read_text().strip()
    base.rename(base.with_name("base-20260101T000000Z"))
    (files / "first" / "artifacts" / "late").touch()
    good(script("backup.sh", "base"))
    assert restored(files, script) == {"early"}  # the new base has no point yet
    good(script("backup.sh", "point"))
    assert restored(files, script) == {"early", "late"}
    assert restored(files, script, early) == {"early"}
    refused = script("restore.sh", "point-of-another", PGDATA=str(files / "new"))
    assert "there is no point point-of-another in" in refused.stderr


def test_a_segment_is_archived_again_where_it_is_the_same(files: Path, script: Script) -> None:
    segment = files / "segment"
    segment.write_text("content")
    for _ in range(2):
        good(script("backup.sh", "archive", str(segment), SEGMENT))
    kept = files / "backup" / "wal" / f"{SEGMENT}.gz"
    assert gzip.decompress(kept.read_bytes()) == b"content"
    segment.write_text("other")
    refused = script("backup.sh", "archive", str(segment), SEGMENT)
    assert refused.returncode == 1
    assert "is there with other content" in refused.stderr
    assert gzip.decompress(kept.read_bytes()) == b"content"
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


@pytest.mark.parametrize("what", ["base", "point"])
def test_two_at_once_are_refused(files: Path, tools: Path, script: Script, what: str) -> None:
    good(script("backup.sh", "base"))
    with (files / "backup" / f".{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = script("backup.sh", what)
    assert refused.returncode == 1
    assert f"another backup.sh {what} is at work" in refused.stderr
    assert not list((files / "backup").glob("base-*/points/*"))


def test_a_base_that_fails_leaves_nothing(files: Path, tools: Path, script: Script) -> None:
    (tools / "pg_basebackup").write_text('#!/bin/sh\nmkdir "$2"\nexit 1\n')
    (files / "backup" / ".draft" / "database").mkdir(parents=True)  # of one that was killed
    assert script("backup.sh", "base").returncode == 1
    assert sorted(path.name for path in (files / "backup").iterdir()) == [".base.lock", "wal"]


def test_a_folder_that_depends_on_where_one_stands_is_refused(
    files: Path, tools: Path, script: Script
) -> None:
    for name in ("backup.sh", "restore.sh"):
        refused = script(name, BACKUP_DIR="backup", PGDATA=str(files / "new"))
        assert refused.returncode == 1
        assert "BACKUP_DIR is backup: it must begin with /" in refused.stderr


def test_files_of_a_backup_are_not_left_out_unasked(files: Path, tools: Path, script: Script) -> None:
    good(script("backup.sh", "base"))
    good(script("backup.sh", "point"))
    refused = script("restore.sh", PGDATA=str(files / "new"), CRITICIZER_DATA_DIR="")
    assert refused.returncode != 0
    assert "set CRITICIZER_DATA_DIR: the backup has files" in refused.stderr
    assert not (files / "new").exists()
