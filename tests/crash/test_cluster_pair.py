"""The cluster drill's database pair: a primary dies only when a standby streams from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from benchmarks import cluster_database
from benchmarks.cluster_database import Pair, Server
from benchmarks.ground import CannotRun


@dataclass
class Machine:
    """A machine that notes what becomes of it."""

    name: str
    number: int
    switched: list[str] = field(default_factory=list)

    def switch_on(self) -> None:
        self.switched.append("on")

    def switch_off(self) -> None:
        self.switched.append("off")

    def heal(self) -> None:
        self.switched.append("healed")


class Fake(Server):
    """A server whose copy fails `failures` times before it streams."""

    def __init__(self, machine: Machine, directory: Any, failures: int = 0) -> None:
        self.machine = cast("Any", machine)
        self.directory, self.failures = directory, failures
        self.streams = self.is_standby = False
        self.follower: Fake | None = None

    def ask(self, query: str) -> list[Any]:
        if "pg_stat_replication" in query:
            return [(1,)] if self.follower and self.follower.streams else []
        if "pg_promote" in query:
            self.is_standby = False
        return [(self.is_standby,)] if "pg_is_in_recovery" in query else []

    def copy_from(self, primary: Server) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise CannotRun("pg_basebackup ended with 1")

    def start(self, *, alone: bool = False) -> None:
        self.streams = self.is_standby = True


@pytest.fixture
def pair(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(cluster_database, "RECONNECT_SECONDS", 0.0)
    primary, standby = Fake(Machine("db1", 2), tmp_path / "db1"), Fake(Machine("db2", 3), tmp_path / "db2")
    primary.follower = standby
    return Pair(primary, standby, is_synchronous=True)


def test_a_standby_whose_copy_fails_is_made_again(pair: Pair) -> None:
    cast("Fake", pair.standby).failures = 2
    pair.mend()
    assert pair.is_whole()
    assert cast("Any", pair.standby.machine).switched == ["off", "on"] * 3


def test_a_primary_without_a_standby_is_not_lost(pair: Pair) -> None:
    cast("Fake", pair.standby).failures = 1000
    with pytest.raises(CannotRun, match="db2 could not be made a standby"):
        pair.fail_over(0.0)
    assert cast("Any", pair.primary.machine).switched == []
    assert not pair.promotions


def test_a_standby_that_streams_takes_over(pair: Pair) -> None:
    pair.mend()
    pair.fail_over(0.0)
    assert pair.primary.machine.name == "db2"
    assert cast("Any", pair.standby.machine).switched == ["off"]
