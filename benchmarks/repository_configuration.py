"""Time to read the worst `.criticizer.yml`, of files made to take long.

Processor time, the least of some readings. `tests/configuration/test_resolving.py` bounds the calls and the
memory of the same files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

from benchmarks.figures import Figure, Must, say
from reviews.configuration.globs import Globs
from reviews.configuration.keys import Ceiling
from reviews.configuration.kinds import compiled
from reviews.configuration.resolving import resolve
from tests.configuration.bombs import BOMBS

READINGS = 5
CEILING = Ceiling(llm=True, max_findings=50)


def milliseconds(work: Callable[[], Any]) -> float:
    """Take the least processor time of some runs: other processes share the machine's caches."""
    taken = []
    for _ in range(READINGS):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken) * 1000


def hostile_patterns() -> None:
    compiled("(a+)+$").search("a" * 100_000 + "b")
    Globs(["**/a*a*a*a*a*a*a*a*b/**/x"] * 20).match("a" * 1000)


def main() -> int:
    files = {name: text.encode() for name, text in BOMBS.items()}
    taken = {name: milliseconds(partial(resolve, raw, CEILING)) for name, raw in files.items()}
    name, worst = max(taken.items(), key=itemgetter(1))
    say(f"the slowest of {len(BOMBS)} files: {name}")
    figures = [
        Figure("configuration_slowest_file", worst, "ms", must=Must("value", "<=", 100)),
        Figure(
            "configuration_patterns",
            milliseconds(hostile_patterns),
            "ms",
            must=Must("value", "<=", 50),
        ),
    ]
    for figure in figures:
        print(figure.line(), flush=True)
    return not all(figure.ok for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
