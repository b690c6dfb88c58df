"""The embedded PostgreSQL: created once, and started whenever it is not running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from criticizer.db.embedded import EmbeddedError, EmbeddedServer


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(tmp_path_factory.mktemp("data"), fsync="off")
    yield server
    server.stop("immediate")


def _answer(server: EmbeddedServer) -> object:
    with psycopg.connect(host=str(server.socket_dir), user="postgres", dbname="criticizer") as connection:
        row = connection.execute("SELECT 42").fetchone()
        assert row is not None
        return row[0]


def test_start_makes_it_once_and_takes_no_client_from_a_network_address(server: EmbeddedServer) -> None:
    assert server.start()
    assert not server.start()
    assert _answer(server) == 42
    server.stop()
    assert not server.is_running()
    server.stop()
    # Of an earlier version:
    (server.cluster_dir / "pg_hba.conf").write_text("host all all 127.0.0.1/32 trust\nlocal all all trust\n")
    assert server.start()
    with psycopg.connect(host=str(server.socket_dir), user="postgres", dbname="template1") as connection:
        rules = connection.execute("SELECT type, address FROM pg_hba_file_rules").fetchall()
    assert rules == [("local", None)]


@pytest.mark.long
def test_it_comes_back_after_a_power_cut(server: EmbeddedServer) -> None:
    server.start()
    server.kill()
    assert server.postmaster_pid() is None
    assert server.start()
    assert _answer(server) == 42


@pytest.mark.long
def test_an_interrupted_first_start_is_no_obstacle(server: EmbeddedServer) -> None:
    half = server.data_dir / "postgres.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    assert server.start()
    assert _answer(server) == 42


def test_a_directory_with_other_content_is_left_alone(server: EmbeddedServer) -> None:
    server.cluster_dir.mkdir(parents=True)
    (server.cluster_dir / "thesis.txt").write_text("years of work")
    with pytest.raises(EmbeddedError, match="move it away"):
        server.start()
    assert (server.cluster_dir / "thesis.txt").exists()


@pytest.mark.long
def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / ("deep" * 30), fsync="off")
    try:
        server.start()
        assert _answer(server) == 42
    finally:
        server.stop("immediate")


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = EmbeddedServer(tmp_path), EmbeddedServer(tmp_path)
    with first.held() as mine, second.held() as theirs:
        assert (mine, theirs) == (True, False)
    with second.held() as theirs:
        assert theirs
