"""Crash matrix: provider by behaviour by the statement at which a worker dies.

    make matrix [DELIVERIES=10000] [SEED=1]

Every cell is a delivery whose worker is killed by SIGKILL at one statement of the protocol, while the
provider behaves as the row says; another worker comes after it. A cell is truthful when the recipient has
the message exactly once and the row says so, when it was refused and the row says that, or when the row
waits for an operator because the provider leaves no proof; of a digest, when that holds for the row of each
of its reviews. Then DELIVERIES are made under random misbehaviour and random kills, and the ledgers of both
sides compared.

A large number of POINTS takes every statement; `--part 2/6` the second of six parts of them, so that they
can be gone through in runs that are short. The last line is JSON: cells, truthful, duplicates, losses, and
at how many of the statements workers were killed. The status is 1 unless all are truthful.

A run that is interrupted (Ctrl-C, SIGTERM, `timeout`) prints the cells it has, names the providers it did
not finish in `unfinished`, and its status is 1.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.figures import say
from benchmarks.ground import Ground, prepared

_AT_ONCE = 4  # providers; most of the time is waiting
_DUPLICATES = {"duplicate"}
_LOSSES = {"loss", "false failed"}


@dataclass
class Found:
    """Answers of the providers' processes.

    `counted`: the statements of whole behaviours, and at how many of them workers were killed.
    """

    cells: list[dict[str, Any]] = field(default_factory=list)
    storms: list[dict[str, Any]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)  # ended with an error
    unfinished: list[str] = field(default_factory=list)  # interrupted, or not begun


def run(ground: Ground, providers: Sequence[str], options: Sequence[str]) -> Found:
    """Run the providers, several at once, each with a database of its own, until an interrupt."""
    found = Found()
    waiting: queue.SimpleQueue[tuple[str, dict[str, str]]] = queue.SimpleQueue()
    running: list[subprocess.Popen[str]] = []
    is_interrupted = threading.Event()
    with ExitStack() as stack:
        for provider in providers:
            waiting.put((provider, stack.enter_context(ground.database())))

        def take() -> None:
            while True:
                try:
                    provider, environment = waiting.get_nowait()
                except queue.Empty:
                    return
                if is_interrupted.is_set():
                    found.unfinished.append(provider)
                    continue
                began = time.monotonic()
                command = [sys.executable, "-m", "benchmarks.matrix_run", provider, *options]
                # A session of its own: what interrupts this process reaches it once, through this one.
                process = subprocess.Popen(
                    command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
                )
                running.append(process)
                if is_interrupted.is_set():  # since it was looked at
                    process.terminate()
                if not _read(process, found):
                    (found.unfinished if is_interrupted.is_set() else found.failed).append(provider)
                say(f"{provider}: {time.monotonic() - began:.0f} s")

        stack.callback(_end, running)
        threads = [threading.Thread(target=take, daemon=True) for _ in range(_AT_ONCE)]

        def interrupt(*_: object) -> None:
            is_interrupted.set()
            for process in running:
                process.terminate()

        stack.enter_context(_interrupted_by(interrupt))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


@contextmanager
def _interrupted_by(interrupt: Callable[..., object]) -> Iterator[None]:
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _read(process: subprocess.Popen[str], found: Found) -> bool:
    """Collect what a provider's process says; return whether it ended well."""
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # it was interrupted in the middle of it
            said = json.loads(line)
            if "cell" in said:
                cell = said["cell"]
                found.cells.append(cell)
                if cell["phase"] == "no kill":
                    say(f"{cell['provider']}: {cell['behaviour']}")
            elif "storm" in said:
                found.storms.append(said["storm"])
            else:
                found.counted.update(said)
    return process.returncode == 0


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.terminate()  # does nothing where it has ended
    for process in processes:
        process.wait(30)


def table(cells: Sequence[Mapping[str, Any]], phases: Sequence[str]) -> list[str]:
    """Return the matrix as lines: in each field how many points were truthful, of how many."""
    columns = ("no kill", *phases)
    fields: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    ends: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for cell in cells:
        row = (cell["provider"], cell["behaviour"])
        fields[row][cell["phase"]][0] += cell["verdict"] == "truthful"
        fields[row][cell["phase"]][1] += 1
        ends[row][f"{cell['status']}, {cell['arrived']} arrived"] += 1
    head = ["provider", "behaviour", *columns, "ended as"]
    rows = [
        [
            *row,
            *(f"{good}/{of}" if of else "-" for good, of in (found[phase] for phase in columns)),
            "; ".join(f"{count} {end}" for end, count in ends[row].most_common()),
        ]
        for row, found in fields.items()
    ]
    widths = [max(len(line[column]) for line in [head, *rows]) for column in range(len(head))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
             for line in [head, ["-" * width for width in widths], *rows]]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix", description=__doc__)
    parser.add_argument("--providers", nargs="*", default=None)
    parser.add_argument("--points", type=int, default=16, help="at most so many a misbehaviour")
    parser.add_argument("--part", default="1/1", help="one of several parts of the points, such as 2/6")
    parser.add_argument("--deliveries", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    began = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):  # before a cell is begun
        signal.signal(number, lambda *_: sys.exit(1))
    with prepared({"LOG_LEVEL": "ERROR"}) as ground:
        from benchmarks.matrix_rigs import DIGEST_RIGS, RIGS, why_missing
        from benchmarks.matrix_worker import PHASES

        providers = []
        for provider in chosen.providers or [*RIGS, *DIGEST_RIGS]:
            if reason := why_missing(provider):
                say(f"{provider} is left out: {reason}")
            else:
                providers.append(provider)
        each = -(-chosen.deliveries // len(providers))
        options = [
            "--points",
            str(chosen.points),
            "--part",
            chosen.part,
            "--deliveries",
            str(each),
            "--seed",
            str(chosen.seed),
        ]
        found = run(ground, providers, options)
    storms = found.storms
    cells = [cell for cell in found.cells if cell["verdict"] != "not reached"]
    print("\n".join(table(cells, PHASES)))
    for storm in storms:
        print(
            f"{storm['provider']}: {storm['deliveries']} deliveries, {storm['kills']} kills,"
            f" {storm['seconds']} s: {storm['statuses']}, {storm['verdicts']}"
        )
    wrong = [cell for cell in cells if cell["verdict"] != "truthful"]
    for cell in wrong:
        print(f"WRONG {cell}")
    for cell in cells:
        if cell["lives"] > 1:  # a slow machine: its first worker had too little time
            print(f"told late: {cell}")
    verdicts: Counter[str] = Counter(cell["verdict"] for cell in cells)
    for storm in storms:
        verdicts.update(storm["verdicts"])
    total, truthful = sum(verdicts.values()), verdicts["truthful"]
    strangers = sum(storm["strangers"] for storm in storms)
    summary = {
        "cells": len(cells),
        "truthful": len(cells) - len(wrong),
        "duplicates": sum(verdicts[name] for name in _DUPLICATES) + strangers,
        "losses": sum(verdicts[name] for name in _LOSSES),
        **found.counted,
        "deliveries": sum(storm["deliveries"] for storm in storms),
        "kills": sum(storm["kills"] for storm in storms),
        "seconds": round(time.monotonic() - began),
    }
    if late := sum(cell["lives"] > 1 for cell in cells):
        summary["told_late"] = late
    if found.unfinished:
        summary["unfinished"] = sorted(found.unfinished)
    if found.failed:
        say(f"Ended with an error: {', '.join(found.failed)}")
    print(json.dumps(summary))
    is_whole = not found.failed and not found.unfinished
    return 0 if cells and truthful == total and not strangers and is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
