"""Workers that deliver and are killed at a chosen statement of the protocol.

    python -m benchmarks.matrix_worker

For each JSON line on standard input a process is forked; its pid and then what became of it are
printed, a JSON line each. It runs the product's own `deliver` over the product's own provider
until nothing is left to do; only the kill is added. Django is set up once, and a module that a worker
had to import is imported before the next one is forked: that takes longer than all the rest.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import django

# Where a delivery stands when a worker is killed.
BEFORE = "before the attempt row"
WRITTEN = "attempt row written"
ACCEPTED = "accepted, unanswered"  # killed by the provider itself
ANSWERED = "answered, not marked"
MARKED = "marked"
DOUBT = "in reconciliation"
_MARKS = {"store.mark_sent", "store.record_failure", "store.back_fill", "check_runs._record"}
PHASES = (BEFORE, WRITTEN, ACCEPTED, ANSWERED, MARKED, DOUBT)
_PATIENCE_SECONDS = 20.0  # of one life
TIME_SCALE = 0.0005  # of every wait for an index or an archive; a network's timeouts stay as they are


class Tracer:
    """Numbers the statements of the protocol as they are run, and kills before the chosen one.

    Statements are the beginnings and ends of the watched functions, which is where something
    outside the process may have changed; with `each_line`, all lines in between as well.
    """

    def __init__(self, owners: Iterable[tuple[Any, str]], kill_at: int | None) -> None:
        self.events: list[tuple[str, str]] = []
        self._kill_at = kill_at
        self._phase = BEFORE
        self._functions = dict(_functions(owners))

    def watch(self, *, each_line: bool) -> None:
        names = {function.__code__: name for name, (_, function) in self._functions.items()}
        for name, (owner, function) in self._functions.items():
            setattr(owner, function.__name__, self._wrapped(name, function))
        if not each_line:
            return

        def lines(frame: types.FrameType, event: str, argument: object) -> Any:
            if event == "line":
                self._reach(f"{names[frame.f_code]}:{frame.f_lineno}")
            return lines

        sys.settrace(lambda frame, event, argument: lines if frame.f_code in names else None)

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            if name == "reconcile.settle_row" or name.endswith("._found"):
                self._phase = DOUBT
            self._reach(f"{name}:begins")
            result = None
            try:
                result = function(*arguments, **keywords)
            finally:
                if name in {"store.claim", "check_runs._claim"} and result:
                    self._phase = WRITTEN
                elif name.endswith((".send", ".tell")):
                    self._phase = ANSWERED
                elif name in _MARKS:
                    self._phase = MARKED
                self._reach(f"{name}:ends")
            return result

        return wrapper

    def _reach(self, statement: str) -> None:
        if len(self.events) == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.events.append((statement, self._phase))


def _watched(provider: type) -> Iterator[tuple[Any, str]]:
    """Yield what moves a delivery, each with the module whose functions count."""
    from notifications.delivery import reconcile, send, store
    from notifications.digests import lifecycle

    yield from ((module, module.__name__) for module in (send, store, lifecycle, reconcile))
    yield from ((owner, owner.__module__) for owner in provider.__mro__ if owner is not object)


def _functions(
    owners: Iterable[tuple[Any, str]],
) -> Iterator[tuple[str, tuple[Any, types.FunctionType]]]:
    """Yield name, owner and function of everything that is watched."""
    for owner, room in owners:
        for function in list(vars(owner).values()):
            # Generators are left out: they begin and end with what they serve.
            if (
                isinstance(function, types.FunctionType)
                and function.__module__ == room
                and not inspect.isgeneratorfunction(inspect.unwrap(function))
                and not function.__name__.startswith("__")
            ):
                yield f"{owner.__name__.rpartition('.')[2]}.{function.__name__}", (owner, function)


def live(job_id: int, channel: str, provider: Any) -> tuple[bool, str]:
    """Deliver a job as its stage would, again and again, until it has ended.

    Return whether time was up before that, and what the last try said, "" after one that ended well.
    """
    from criticizer.resilience.failures import (
        DependencyUnavailable,
        PermanentFailure,
        RetryableFailure,
        UncertainFailure,
    )
    from notifications.delivery import send

    end, said = time.monotonic() + _PATIENCE_SECONDS, "no try"
    while time.monotonic() < end:
        try:
            send.deliver(job_id, {channel: provider}, may_continue=lambda: True)
        except RetryableFailure as failure:
            said = f"{failure.error_class}: {failure.detail}"
            time.sleep(0.002)
        except DependencyUnavailable as waiting:
            said = f"{waiting.seconds:.3f} s: {waiting}"
            time.sleep(min(max(waiting.seconds, 0.001), 0.5))
        except (UncertainFailure, PermanentFailure) as failure:
            return False, f"{failure.error_class}: {failure.detail}"
        else:
            return False, ""
    return True, said


def work(order: dict[str, Any], events: int) -> None:
    from benchmarks import matrix_checks
    from benchmarks.matrix_rigs import CHECK_CHANNELS, provider_of
    from criticizer.resilience import gate
    from notifications.models import UnarchivedMail

    loaded = set(sys.modules)
    gate.forget()
    tells_checks = order["channel"] in CHECK_CHANNELS
    if tells_checks:
        acting = matrix_checks.host_of_spec(order["spec"])
    else:
        acting = provider_of(order["spec"], UnarchivedMail.objects)
    tracer = None
    if order.get("watch"):
        watched = matrix_checks.watched(acting) if tells_checks else _watched(type(acting))
        tracer = Tracer(watched, order.get("kill_at"))
        tracer.watch(each_line=order["watch"] == "lines")
    lives = [
        matrix_checks.live(job_id, acting) if tells_checks else live(job_id, order["channel"], acting)
        for job_id in order["jobs"]
    ]
    sys.settrace(None)
    said = {
        "ran_out": any(ran_out for ran_out, _ in lives),
        "said": "; ".join(filter(None, (last for _, last in lives))),
        "events": tracer.events if tracer is not None else [],
        "imported": sorted(set(sys.modules) - loaded),
    }
    with os.fdopen(events, "wb") as pipe:
        pipe.write(json.dumps(said).encode())


def fork(order: dict[str, Any]) -> None:
    """Run one order in a process of its own and print how it ended."""
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        status = 0
        try:
            os.close(reading)
            work(order, writing)
        except BaseException:  # noqa: BLE001  said on standard error and by the status
            traceback.print_exc()
            status = 1
        os._exit(status)
    os.close(writing)
    print(json.dumps({"pid": worker}), flush=True)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(worker, 0)
    ended: dict[str, object] = {
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "error": os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0,
    }
    if said:
        ended |= json.loads(said)
        for name in ended.pop("imported"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    print(json.dumps(ended), flush=True)


class Workers:
    """Process of this module that takes orders from another one: one worker at a time."""

    def __init__(self, errors: IO[str], environment: Mapping[str, str] = os.environ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.matrix_worker"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # a group, which `close` ends whole
        )
        self._errors = errors
        self._pid = 0
        self._known = threading.Event()

    def close(self) -> None:
        """End the process and a worker that it runs: nothing that was interrupted is waited for."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError), self._process:
            pass  # its pipes are closed, and its end is waited for

    def run(self, **order: object) -> dict[str, Any]:
        """Run one order to its end and return how it ended."""
        self.start(**order)
        return self.wait()

    def start(self, **order: object) -> None:
        assert self._process.stdin is not None
        self._known.clear()
        print(json.dumps(order), file=self._process.stdin, flush=True)
        self._pid = int(self._read()["pid"])
        self._known.set()

    def wait(self) -> dict[str, Any]:
        ended = self._read()
        self._known.clear()
        assert not ended["error"], Path(self._errors.name).read_text()[-4000:]
        return ended

    def kill(self) -> None:
        """Kill the worker of the order that runs, where there is one."""
        if self._known.wait(5):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, Path(self._errors.name).read_text()[-4000:]
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what interrupts the whole run says nothing here
    django.setup()
    from django.conf import settings
    from django.urls import reverse

    from criticizer.codehosts.registry import HOSTS

    # Below what an installation may set: what is waited for here answers within milliseconds.
    settings.RETRY_TIME_SCALE = TIME_SCALE
    settings.RATE_LIMITS = dict.fromkeys(HOSTS, 1000.0)
    # Once, not in every fork.
    import benchmarks.matrix_checks  # noqa: F401

    reverse("admin:index")

    for line in sys.stdin:
        fork(json.loads(line))


if __name__ == "__main__":
    main()
