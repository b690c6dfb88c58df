"""Workers that tell check runs and are killed before a chosen statement.

    python -m tests.hosts.check_run_child

For each line `URL KILL-AT` on standard input a worker is forked, which runs the product's own
`check_runs.run` against the double at URL; the signal that ended it (0: none) and the number of statements
that it reached are printed. Django is set up once: that takes longer than all the rest.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import types
from typing import Any

import django

from tests.fakes.github import APP_ID, SLUG


class Killer:
    """Counts the statements of the watched functions, and kills this process before one of them."""

    def __init__(self, kill_at: int) -> None:
        self.reached = 0
        self._kill_at = kill_at

    def watch(self, *owners: object) -> None:
        watched = {f.__code__ for o in owners for f in vars(o).values() if isinstance(f, types.FunctionType)}

        def lines(frame: types.FrameType, event: str, argument: object) -> Any:
            if event == "line":
                if self.reached == self._kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.reached += 1
            return lines

        sys.settrace(lambda frame, event, argument: lines if frame.f_code in watched else None)


def work(url: str, kill_at: int) -> int:
    from django.conf import settings

    from criticizer.codehosts.github.client import GitHub
    from criticizer.resilience import gate
    from reviews import check_runs

    settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = url, SLUG
    settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (os.environ["TEST_APP_KEY"],)
    settings.RATE_LIMITS = {"github": 1000.0}
    settings.RETRY_TIME_SCALE = 0.001
    gate.forget()
    killer = Killer(kill_at)
    killer.watch(check_runs, GitHub)
    try:
        check_runs.run()
    finally:
        sys.settrace(None)
    return killer.reached


def main() -> None:
    django.setup()
    for line in sys.stdin:
        url, kill_at = line.split()
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            status = 0
            try:
                os.write(writer, str(work(url, int(kill_at))).encode())
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                status = 1
            os._exit(status)
        os.close(writer)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), os.read(reader, 20).decode() or "0", flush=True)
        os.close(reader)


if __name__ == "__main__":
    main()
