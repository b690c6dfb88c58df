"""Cost of processes: CPU time and memory of whole trees, by pid."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

import psutil


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all below it; [] when it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _alive(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        for process in tree(pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                yield process


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return user and system time of the trees under `pids`, their ended children included."""
    total = 0.0
    for process in _alive(pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def own_mib(pids: Iterable[int]) -> float:
    """Return the memory that only the trees under `pids` hold (USS), in MiB.

    Resident size would count the pages that forked workers share once per process.
    """
    total = 0
    for process in _alive(pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().uss
    return total / 2**20


def pause(pids: Iterable[int]) -> None:
    """Stop the trees where they are, until `resume`."""
    for process in list(_alive(pids)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()


def resume(pids: Iterable[int]) -> None:
    for process in list(_alive(pids)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


class Stopwatch:
    """Wall time, and CPU time of the trees under `pids`, since it was made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = list(pids)
        self.started_at = time.time()
        self._cpu = cpu_seconds(self.pids)
        self._machine = _busy_seconds()

    def cpu(self) -> float:
        return cpu_seconds(self.pids) - self._cpu

    def noise_percent(self) -> float:
        """Return what everything else on the machine used meanwhile, in percent of one core.

        The benchmark's own producer and load generator are part of it.
        """
        wall = time.time() - self.started_at
        return 100 * max(0.0, _busy_seconds() - self._machine - self.cpu()) / wall


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
