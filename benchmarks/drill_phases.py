"""Phases of a drill, the processor time they took, and the order to end early."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

import psutil

from benchmarks.figures import say

SAMPLE_SECONDS = 5.0


class Cut(BaseException):
    """Order to end the drill. The text says by which signal."""


def _busy_seconds() -> float:
    """Return the processor time that everything on the machine has used since it was started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


@dataclass
class Phases:
    """The parts of a run, one after another, and who had the processors. Begins with "start".

    Processes that are visible are the drill's own: it has a process namespace.
    """

    now: str = "start"
    seconds: dict[str, float] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)
    _since: float = field(default_factory=time.monotonic)
    _busy: float = field(default_factory=_busy_seconds)
    _used: dict[tuple[int, float], float] = field(default_factory=dict)  # (pid, start) -> processor seconds

    def watch(self) -> None:
        """Add up from now on what the drill's processes use, of each until its last sample."""
        threading.Thread(target=self._sample, name="processor time", daemon=True).start()

    def _sample(self) -> None:
        while True:
            for process in psutil.process_iter(["pid", "create_time", "cpu_times"]):
                times = process.info["cpu_times"]
                if times is not None:
                    key = (process.info["pid"], process.info["create_time"])
                    self._used[key] = times.user + times.system
            time.sleep(SAMPLE_SECONDS)

    def begin(self, name: str) -> None:
        """End the phase of now and begin the next one."""
        now = time.monotonic()
        self.seconds[self.now] = round(now - self._since, 1)
        say(f"drill: {self.now}: {self.seconds[self.now]:.0f} s; load {os.getloadavg()[0]:.1f}; now: {name}")
        self.now, self._since = name, now

    def summary(self) -> dict[str, object]:
        """Return the seconds of each phase and of all, and the shares of the processors."""
        self.seconds[self.now] = round(time.monotonic() - self._since, 1)
        wall = time.monotonic() - self._begun
        ours = sum(dict(self._used).values())
        others = max(0.0, _busy_seconds() - self._busy - ours)
        return {
            "phases": self.seconds,
            "seconds": round(wall, 1),
            "processor_seconds": round(ours),
            "others_share_of_processors": round(others / wall / (os.cpu_count() or 1), 2),
        }
