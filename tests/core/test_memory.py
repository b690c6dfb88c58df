"""Share of the machine's memory that the embedded PostgreSQL takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from criticizer.db.embedded import EmbeddedServer
from criticizer.db.memory import memory_bytes, shared_buffers

GB = 1024**3


@pytest.mark.parametrize(
    ("memory", "buffers"),
    [(GB // 2, "128MB"), (GB, "128MB"), (4 * GB, "512MB"), (24 * GB, "3072MB"), (512 * GB, "4096MB")],
)
def test_it_takes_an_eighth_within_bounds(memory: int, buffers: str) -> None:
    assert shared_buffers(memory) == buffers


def test_what_is_asked_for_holds(tmp_path: Path) -> None:
    assert EmbeddedServer(tmp_path).settings["shared_buffers"] == shared_buffers(memory_bytes())
    assert EmbeddedServer(tmp_path, shared_buffers="64MB").settings["shared_buffers"] == "64MB"


def group(system: Path, lines: str, limits: dict[str, str]) -> Path:
    """Return a machine whose process is in the control groups of `lines`.

    `limits` maps files of these groups to the limits in them.
    """
    (system / "proc/self").mkdir(parents=True)
    (system / "proc/self/cgroup").write_text(lines)
    for name, limit in limits.items():
        file = system / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    return system


def test_the_least_limit_around_a_process_counts(tmp_path: Path) -> None:
    limits = {"a/b/memory.max": "max", "a/memory.max": str(2**28), "memory.max": str(2**29)}
    assert memory_bytes(group(tmp_path, "0::/a/b\n", limits)) == 2**28


def test_a_container_sees_its_own_group_at_the_root(tmp_path: Path) -> None:
    lines = "5:cpu:/docker/1\n4:memory:/docker/1\n0::/\n"
    assert memory_bytes(group(tmp_path, lines, {"memory/memory.limit_in_bytes": str(2**28)})) == 2**28


def test_without_limits_it_is_the_machine(tmp_path: Path) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_bytes(tmp_path) == machine
    assert memory_bytes(group(tmp_path / "b", "0::/\n", {"memory.max": "max"})) == machine
