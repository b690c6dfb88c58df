from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from criticizer.workers.subprocesses import CommandResult, resolve_executable, run

PYTHON = Path(sys.executable)


def python(code: str, *arguments: str, **options: object) -> CommandResult:
    settings: dict[str, object] = {
        "subcommand": "test",
        "environment": {},
        "timeout_seconds": 30,
        "max_stdout_bytes": 10_000_000,
        **options,
    }
    return run([str(PYTHON), "-IS", "-c", code, *arguments], **settings)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(pid)


def test_output_exit_code_and_stdin_come_through() -> None:
    result = python(
        "import sys; sys.stdout.write(sys.stdin.read()[::-1]); sys.stderr.write('no'); sys.exit(3)",
        stdin=b"abc",
    )
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"cba", "no")
    assert not result.truncated
    assert not result.timed_out


def test_megabytes_in_both_directions_do_not_deadlock() -> None:
    data = os.urandom(3_000_000)
    result = python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", stdin=data)
    assert result.stdout == data


def test_no_environment_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "planted")
    result = python("import os; print(sorted(os.environ))", environment={"ONLY": "this"})
    names = result.stdout.decode()
    assert "ONLY" in names
    assert "PLANTED" not in names


def test_arguments_reach_the_program_as_they_are() -> None:
    hostile = ["$(touch x)", "; rm -rf /", "`id`", "a b", "caf\udce9", "é"]
    result = python(
        "import sys, os; sys.stdout.buffer.write(b'|'.join(map(os.fsencode, sys.argv[1:])))", *hostile
    )
    assert result.stdout == "|".join(hostile).encode("utf-8", "surrogateescape")


def test_a_program_past_its_time_is_killed_with_its_children() -> None:
    result = python(
        "import os, sys, time\n"
        "pid = os.fork()\n"
        "if pid == 0: time.sleep(600)\n"
        "print(pid, flush=True); time.sleep(600)",
        timeout_seconds=5,
    )
    assert result.timed_out
    assert result.exit_code == -signal.SIGKILL
    wait_for_end(int(result.stdout))


@pytest.mark.long
def test_a_program_that_closes_its_output_and_stays_is_killed_too() -> None:
    result = python("import os, time; os.close(1); os.close(2); time.sleep(600)", timeout_seconds=1)
    assert result.timed_out


def test_endless_output_is_cut_at_the_bound() -> None:
    result = python("import sys\nwhile True: sys.stdout.write('x' * 65536)", max_stdout_bytes=1_000_000)
    assert result.truncated
    assert result.stdout == b"x" * 1_000_000
    assert not result.timed_out


def test_output_of_exactly_the_bound_is_whole() -> None:
    result = python("print('x' * 99)", max_stdout_bytes=100)
    assert not result.truncated
    assert result.exit_code == 0


def test_endless_complaints_are_bounded_and_do_not_block() -> None:
    result = python("import sys\nfor _ in range(100): sys.stderr.write('e' * 65536)\nprint('done')")
    assert result.stdout == b"done\n"
    assert 0 < len(result.stderr) <= 65536


def test_a_program_that_ignores_its_input_is_no_error() -> None:
    result = python("print('ok')", stdin=b"x" * 1_000_000)
    assert (result.exit_code, result.stdout) == (0, b"ok\n")


def test_the_log_has_names_and_numbers_only() -> None:
    with capture_logs() as logs:
        python(
            "import sys; print('secret-output'); sys.stderr.write('secret-error')",
            "secret-argument",
            stdin=b"secret-input",
        )
    (line,) = [log for log in logs if log["event"] == "command_done"]
    assert line["command"] == PYTHON.name
    assert line["subcommand"] == "test"
    assert line["exit"] == 0
    assert line["stdout_bytes"] == len("secret-output\n")
    assert "secret-" not in repr(logs)


def test_the_child_has_its_own_session() -> None:
    result = python("import os; print(os.getsid(0) == os.getpid())")
    assert result.stdout == b"True\n"


def test_the_child_ends_when_the_worker_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = (
        "import sys\n"
        "from criticizer.workers.subprocesses import run\n"
        f"run([sys.executable, '-IS', '-c', {child!r}], subcommand='t', environment={{}},\n"
        "    timeout_seconds=600, max_stdout_bytes=10)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 20
    while (
        worker.poll() is None
        and not (pid_file.exists() and pid_file.read_text())
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    worker.kill()
    worker.wait()
    wait_for_end(int(pid_file.read_text()))


@pytest.mark.parametrize("name", ["no-such-program-here", "/no/such/program", "bin/ls", "/tmp"])
def test_a_program_that_cannot_be_trusted_or_found_is_a_configuration_failure(name: str) -> None:
    with pytest.raises(PermanentFailure) as caught:
        resolve_executable(name)
    assert caught.value.error_class is ErrorClass.CONFIG_INVALID


def test_a_program_that_everybody_may_replace_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "p4"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    with pytest.raises(PermanentFailure, match="everybody may write"):
        resolve_executable(program)
    program.chmod(0o755)
    assert resolve_executable(program) == program


def test_a_bare_name_is_not_looked_up_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "only-in-path"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PermanentFailure, match="is not in"):
        resolve_executable("only-in-path")
    assert resolve_executable("sh").is_absolute()


def test_a_relative_executable_is_never_started() -> None:
    with pytest.raises(ValueError, match="absolute path"):
        run(["ls"], subcommand="t", environment={}, timeout_seconds=1, max_stdout_bytes=1)


def test_a_missing_program_is_a_configuration_failure() -> None:
    with pytest.raises(PermanentFailure) as caught:
        run(["/no/such/program"], environment={}, timeout_seconds=1)
    assert caught.value.error_class is ErrorClass.CONFIG_INVALID
