"""Shared buffers of the embedded PostgreSQL: a share of the machine's memory, within bounds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

SHARE = 8  # an eighth: workers, web server and the system's own cache use the same machine
SMALLEST_MB, LARGEST_MB = 128, 4096
_MB = 1024 * 1024


def shared_buffers(memory_bytes: int) -> str:
    """Return PostgreSQL's `shared_buffers` for a machine with so much memory, such as "2048MB"."""
    return f"{min(max(memory_bytes // SHARE // _MB, SMALLEST_MB), LARGEST_MB)}MB"


def memory_bytes(system: Path = Path("/")) -> int:
    """Return the memory this process may use: the machine's or its control groups' least limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(system)])


def _limits(system: Path) -> Iterator[int]:
    """Yield the limits of this process's control groups and of their parents, in bytes."""
    root = system / "sys/fs/cgroup"
    try:
        lines = (system / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        group = base / path.lstrip("/")
        # A container sees its own group at the root, whatever its path is called outside.
        for directory in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
                yield int((directory / name).read_text())
            if directory == base:
                break
