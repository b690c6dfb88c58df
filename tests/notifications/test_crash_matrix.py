"""A slice of the crash matrix (`make matrix`): some points of some providers, and its judge.

Real processes, killed by SIGKILL; real sockets; the product's own providers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from benchmarks import matrix, matrix_run, matrix_worker
from benchmarks.matrix_rig import BROKEN, KEY, LAGS, NORMAL, NOT_TAKEN, REFUSES, RESET, SILENT
from benchmarks.matrix_rigs import why_missing
from benchmarks.matrix_worker import ACCEPTED, ANSWERED, BEFORE, WRITTEN
from tests.stack import eventually, process_environment

on_disk = pytest.mark.django_db(transaction=True)  # the workers are other processes


Start = Callable[[str], AbstractContextManager[matrix_run.Bench]]


@pytest.fixture(scope="module")
def start(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Return what starts a provider's server for the workers of this module."""
    folder = tmp_path_factory.mktemp("workers")
    environment = process_environment(folder, CRITICIZER_DATA_DIR=str(settings.DATA_DIR))
    with (folder / "errors").open("w+") as errors:
        workers = matrix_worker.Workers(errors, environment)
        try:
            yield lambda name: matrix_run.bench(name, workers)
        finally:
            workers.close()


@pytest.mark.long
@on_disk
@pytest.mark.parametrize(
    ("provider", "behaviour"),
    [
        ("webhook", KEY),
        ("slack", SILENT),
        ("swarm", NOT_TAKEN),
        ("github", SILENT),
        ("github", BROKEN),
        ("gitea", RESET),
        ("gitlab", BROKEN),
        ("github-review", SILENT),
        ("github-review", BROKEN),
        ("gitea-review", RESET),
        ("gitlab-review", SILENT),
        ("github-check", SILENT),
        ("github-check", NORMAL),
        ("gitea-check", RESET),
        ("gitlab-check", NORMAL),
        ("smtp", SILENT),
        ("postmark", REFUSES),
    ],
)
def test_every_cell_of_a_slice_is_truthful(start: Start, provider: str, behaviour: str) -> None:
    with start(provider) as running:
        cells = list(running.cells(behaviour, 3))
    assert [cell for cell in cells if cell.verdict != "truthful"] == []
    assert {cell.phase for cell in cells} > {"no kill"}
    if behaviour != REFUSES:
        assert max(cell.arrived for cell in cells) == 1


@pytest.mark.long
@on_disk
def test_workers_die_before_and_after_the_attempt_row_and_the_mark(start: Start) -> None:
    with start("webhook") as running:
        cells = list(running.cells(BROKEN, 12))
    died = [cell for cell in cells if cell.verdict == "truthful" and cell.point]
    assert {cell.phase for cell in died} >= {BEFORE, WRITTEN, ACCEPTED, ANSWERED}
    assert {(cell.status, cell.arrived) for cell in died} == {("sent", 1)}


@on_disk
@pytest.mark.long
@pytest.mark.parametrize(
    ("provider", "behaviour"),
    [
        ("smtp+archive, digest", LAGS),
        ("resend, digest", KEY),
        ("postmark, digest", REFUSES),
        ("smtp, digest", SILENT),
    ],
)
def test_every_row_of_a_digest_is_truthful_in_a_slice(start: Start, provider: str, behaviour: str) -> None:
    if reason := why_missing(provider):
        pytest.skip(reason)
    with start(provider) as running:
        cells = list(running.cells(behaviour, 4))
    assert [cell for cell in cells if cell.verdict != "truthful"] == []
    if behaviour != REFUSES:
        assert max(cell.arrived for cell in cells) == 1


@on_disk
@pytest.mark.long
def test_a_storm_of_kills_leaves_digests_that_agree(start: Start) -> None:
    with start("postmark, digest") as running:
        found = running.storm(15, seed=1)
    assert found["verdicts"] == {"truthful": 15}
    assert found["strangers"] == 0


@on_disk
@pytest.mark.long
def test_a_storm_of_kills_leaves_books_that_agree(start: Start) -> None:
    with start("swarm") as running:
        found = running.storm(40, seed=1)
    assert found["verdicts"] == {"truthful": 40}
    assert found["strangers"] == 0


@pytest.mark.parametrize(
    ("status", "arrived", "facts", "verdict"),
    [
        ("sent", 1, {}, "truthful"),
        ("sent", 2, {}, "duplicate"),
        ("sent", 0, {}, "loss"),
        ("sent", 1, {"is_marked": False}, "loss"),
        ("failed", 0, {"refuses": True}, "truthful"),
        ("failed", 1, {"refuses": True}, "false failed"),
        ("failed", 0, {}, "false failed"),
        ("uncertain", 1, {"may_hold": True}, "truthful"),
        ("uncertain", 2, {"may_hold": True}, "duplicate"),
        ("uncertain", 1, {}, "needless hold"),
        ("reconciling", 1, {"may_hold": True}, "loss"),
        ("pending", 0, {}, "loss"),
    ],
)
def test_the_judge_sees_every_lie(status: str, arrived: int, facts: dict[str, bool], verdict: str) -> None:
    known = {"is_marked": True, "refuses": False, "may_hold": False, **facts}
    assert matrix_run.verdict_of(status, arrived, **known) == verdict


def test_the_table_counts_what_was_truthful() -> None:
    cell = {"provider": "slack", "behaviour": NORMAL, "status": "sent", "arrived": 1}
    cells = [
        {**cell, "phase": "no kill", "verdict": "truthful"},
        {**cell, "phase": WRITTEN, "verdict": "truthful"},
        {**cell, "phase": WRITTEN, "verdict": "loss", "status": "reconciling", "arrived": 0},
    ]
    *_, row = matrix.table(cells, [WRITTEN, ANSWERED])
    assert "1/1" in row
    assert "1/2" in row
    assert "2 sent, 1 arrived; 1 reconciling, 0 arrived" in row


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("others", [[], [f"later {number}" for number in range(4)]])
def test_an_interrupted_run_keeps_its_cells_and_names_what_is_unfinished(
    others: list[str], number: signal.Signals, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Providers that wait for their turn are not begun."""
    program, begun = tmp_path / "provider", tmp_path / "begun"
    program.write_text(
        "#!/bin/sh\n"
        """echo '{"cell": {"provider": "'"$3"'", "phase": "marked"}}'\n"""
        """echo '{"statements": 3, "killed_at": 2}'\n"""
        f"echo $3 >> {begun}\n"
        "[ $3 = quick ] && exit 0\n"
        'printf \'{"cell": {"prov\'\n'  # interrupted in the middle of a line
        "exec sleep 600\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    slow = [f"slow-{number}" for number in range(4)]

    def interrupt() -> None:
        eventually(lambda: begun.exists() and len(begun.read_text().split()) == 5)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # `timeout` signals the process, and then its group

    class Ground:
        def database(self) -> Any:
            return nullcontext(dict(os.environ))

    def harmless(*_: object) -> None:
        """The second signal may arrive when the run has ended."""

    at_first = signal.signal(number, harmless)
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        found = matrix.run(Ground(), ["quick", *slow, *others], [])  # type: ignore[arg-type]
        thread.join()
        after = signal.getsignal(number)
    finally:
        signal.signal(number, at_first)
    assert sorted(cell["provider"] for cell in found.cells) == ["quick", *slow]
    assert (found.failed, sorted(found.unfinished)) == ([], sorted([*slow, *others]))
    assert found.counted == {"statements": 15, "killed_at": 10}
    assert after == harmless


def test_workers_that_are_interrupted_are_ended_with_what_they_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also before a worker has said its pid."""
    program, begun = tmp_path / "workers", tmp_path / "begun"
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {begun}.new\nmv {begun}.new {begun}\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with (tmp_path / "errors").open("w+") as errors:
        workers = matrix_worker.Workers(errors)
        eventually(begun.exists)
        workers.close()
    worker = int(begun.read_text())
    assert workers._process.returncode == -signal.SIGKILL
    eventually(lambda: not _is_running(worker))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
