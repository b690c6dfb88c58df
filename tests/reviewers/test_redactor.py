"""The redacting process: bounded, replaceable, with the result of this process (G161)."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from criticizer.redaction import Redactor, guard, known_secrets
from criticizer.resilience.failures import ErrorClass, PermanentFailure, RetryableFailure
from criticizer.workers import subprocesses
from reviews.reviewers import prepared_change_codec, redactor
from reviews.reviewers import redactor_child as child
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import request_text
from reviews.sources import change_codec
from reviews.sources.base import Change
from tests.reviewers.build import added, change, edited, fake_token

D = "//depot/p/"
ONE = change(
    edited(D + "a.py", "x = 1\n", f"x = 2\nkey = '{fake_token()}'\n"),
    added(D + "b.py", "breakpoint()\n"),
    description="Round down.\n\nMore.",
)
SLOW = change(*(added(D + f"{n}.py", f"value_{n} = compute({n})\n" * 20_000) for n in range(6)))
HOSTILE = "curl -u a: " * 90_000  # 1 MB of what the rules must look at again and again


@pytest.fixture(autouse=True)
def end_of_process() -> Iterator[None]:
    yield
    redactor.close()


def redacted(of: Change) -> bytes:
    return redactor.redact_change(change_codec.to_json(of), {}, ReviewLimits(), "recipe")


def opened(data: bytes) -> Prepared:
    prepared = prepared_change_codec.from_json(data, "recipe", {})
    assert prepared is not None
    return prepared


def memory(pid: int) -> int:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def pid() -> int:
    assert redactor._current is not None
    return redactor._current._process.pid


def test_a_change_comes_back_as_it_would_be_prepared_here() -> None:
    there, here = opened(redacted(ONE)), prepare(ONE, Redactor())
    assert there == here
    assert fake_token() not in redacted(ONE).decode()
    request = request_text(there.text, there.chunks, 0, "fence")
    assert guard(request) == guard(request_text(here.text, here.chunks, 0, "fence"))


def test_another_recipe_is_not_opened() -> None:
    assert prepared_change_codec.from_json(redacted(ONE), "newer", {}) is None


@pytest.mark.long
def test_one_process_serves_many_changes_and_its_memory_comes_back() -> None:
    redacted(ONE)
    first, before = pid(), memory(pid())
    big = change(*(added(D + f"{n}.py", f"value_{n} = compute({n})\n" * 20_000) for n in range(3)))
    for _ in range(2):
        redacted(big)
    assert pid() == first
    assert memory(first) < before + 20


@pytest.mark.parametrize(
    "end", ["\r", *(pytest.param(end, marks=pytest.mark.long) for end in ("\x85", "\u2028"))]
)
def test_a_line_of_nothing_but_its_ends_is_redacted(end: str) -> None:
    """Looked over again from each of them, it took more processor time than a change may."""
    assert opened(redacted(change(added(D + "ends.txt", f"a = 1{end * 60_000}\n"))))


@pytest.mark.long
@pytest.mark.parametrize("share", [1, 5])
def test_a_change_of_hostile_lines_is_blocked_within_its_budget(
    share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel enforces the budget: all of it for the largest change, a fifth for a fifth."""
    hostile = change(*(added(D + f"{n}.sh", HOSTILE) for n in range(19 // share + 1)))
    with monkeypatch.context() as patched:
        patched.setattr(child, "CPU_SECONDS", child.CPU_SECONDS // share)
        with pytest.raises(PermanentFailure) as blocked:
            redacted(hostile)
    assert blocked.value.error_class is ErrorClass.REDACTION_BLOCKED
    assert blocked.value.context["reason_code"] == "too_slow"
    assert opened(redacted(ONE)).paths == (D + "a.py", D + "b.py")


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [("CPU_SECONDS", 1, "too_slow"), ("MEMORY_BYTES", 60_000_000, "too_much_memory")],
)
def test_the_kernel_ends_a_change_that_takes_too_much(
    limit: str, value: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(child, limit, value)
        with pytest.raises(PermanentFailure) as blocked:
            redacted(SLOW)
    assert blocked.value.error_class is ErrorClass.REDACTION_BLOCKED
    assert blocked.value.context["reason_code"] == reason
    assert opened(redacted(ONE)).title == "Round down."


@pytest.mark.long
def test_a_killed_process_is_retried_and_started_again() -> None:
    redacted(ONE)
    victim = pid()
    killer = threading.Timer(0.5, lambda: os.kill(victim, signal.SIGKILL))
    killer.start()
    with pytest.raises(RetryableFailure) as lost:
        redacted(SLOW)
    assert lost.value.error_class is ErrorClass.WORKER_LOST
    assert opened(redacted(ONE)).author == "ann"
    assert pid() != victim


def test_an_exchange_that_breaks_off_gives_no_other_change_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(*_: object) -> bytes:
        raise MemoryError

    redacted(ONE)
    victim = pid()
    with monkeypatch.context() as patched:
        patched.setattr(redactor.RedactorProcess, "receive", breaks)
        with pytest.raises(MemoryError):
            redacted(ONE)
    other = change(added(D + "other.py", "x = 1\n"))
    assert opened(redacted(other)).paths == (D + "other.py",)
    assert pid() != victim


def test_a_worker_without_a_free_descriptor_redacts_with_the_process_that_runs() -> None:
    redacted(ONE)
    running = pid()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, limits[1]))
    try:
        with suppress(OSError):  # until none is left
            while True:
                taken.append(os.dup(0))
        again = redacted(ONE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
    assert opened(again).author == "ann"
    assert pid() == running


@pytest.mark.long
def test_a_process_that_takes_long_to_end_still_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly = f"import os, time; os.close(1); time.sleep(2); os._exit({child.SIGNALED + signal.SIGXCPU})"
    start = subprocesses.start
    monkeypatch.setattr(
        subprocesses, "start", lambda _, **options: start([sys.executable, "-c", slowly], **options)
    )
    with pytest.raises(PermanentFailure) as blocked:
        redacted(ONE)
    assert blocked.value.context["reason_code"] == "too_slow"


@pytest.mark.long
def test_an_idle_process_that_was_killed_is_replaced_unnoticed() -> None:
    redacted(ONE)
    os.kill(pid(), signal.SIGKILL)
    redactor._current._process.wait()  # type: ignore[union-attr]
    assert opened(redacted(ONE)).author == "ann"


@pytest.mark.long
def test_a_token_that_a_host_lends_leaves_the_process_and_a_changed_setting_replaces_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = ["the-first-key-of-the-settings"]
    monkeypatch.setattr(known_secrets, "current", [lambda: values])
    known_secrets.register_own_secrets(values)
    redacted(ONE)
    first = pid()
    known_secrets.register_own_secrets(["ghs-a-token-lent-for-an-hour"])
    redacted(ONE)
    assert pid() == first
    values.append("the-second-key-of-the-settings")
    known_secrets.register_own_secrets(values)
    quoting = change(added(D + "c.py", f"note = '{values[1]}'\n"))
    assert values[1] not in redacted(quoting).decode()
    assert pid() != first


def test_the_process_has_no_environment_and_no_open_connection() -> None:
    redacted(ONE)
    environment = Path(f"/proc/{pid()}/environ").read_bytes().split(b"\0")
    assert [entry.partition(b"=")[0] for entry in environment if entry] == [b"LC_ALL"]
    opened_files = [str(entry.readlink()) for entry in Path(f"/proc/{pid()}/fd").iterdir()]
    assert not [name for name in opened_files if name.startswith("socket:")]


def test_a_defect_is_reported_without_the_text_of_the_change() -> None:
    with pytest.raises(PermanentFailure) as bug:
        redactor.redact_change(b'{"format": 1, "secret": "x"}', {}, ReviewLimits(), "recipe")
    assert bug.value.error_class is ErrorClass.SCHEMA_INVALID
