"""`python -m benchmarks [names]`: run the benchmarks, one JSON line a figure on stdout."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.figures import say

NAMES = (
    "admin_scale",
    "chain",
    "intake",
    "deliveries",
    "llm_inflight",
    "scale",
    "growth",
    "redaction",
    "pages_scale",
    "review_quality",
    "drift",
    "repository_configuration",
    "agent_tasks",
)


def _run(name: str) -> bool:
    """Run one benchmark and pass its figures on; return whether every `must` holds.

    A process each: every benchmark prepares its own environment before Django reads it.
    """
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    is_good = True
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            is_good = is_good and bool(json.loads(line)["ok"])
    return is_good and process.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}; default: all")
    chosen = parser.parse_args().names or NAMES
    if unknown := set(chosen) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    failed = []
    for name in chosen:
        say(f"== {name}")
        if not _run(name):
            failed.append(name)
    if failed:
        say(f"Not as it must be: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
