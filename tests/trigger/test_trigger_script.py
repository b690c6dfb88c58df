"""The script as p4d runs it: another process, a pipe read to its end, its own environment."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import skips
from tests.trigger.service import Service

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "criticizer-trigger.py"
KEY = "crz_" + "plainly-fake" * 3


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    made.start()
    yield made
    made.close()


class Installation:
    """The script's configuration in a directory of its own."""

    def __init__(self, directory: Path, url: str) -> None:
        self.config = directory / "trigger.conf"
        self.key = directory / "key"
        self.spool = directory / "spool"
        self.sending = directory / "spool.sending"
        self.config.write_text(f"# test\nurl = {url}\nkey_file = {self.key}\nspool = {self.spool}\n")
        self.key.write_text(KEY + "\n")
        self.key.chmod(0o600)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-IS", str(SCRIPT), "--config", str(self.config), *arguments]

    def run(self, *arguments: str) -> None:
        """Run as p4d does: wait for the process and for the end of its pipe. It must be silent."""
        done = subprocess.run(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, b"")

    def waiting(self) -> list[str]:
        """Return the lines that are not done."""
        lines: list[str] = []
        for path in (self.sending, self.spool):
            with contextlib.suppress(FileNotFoundError):  # a run may be taking it away
                lines += [line.strip() for line in path.read_text().splitlines() if line.strip()]
        return [line for line in lines if not line.startswith("#")]


@pytest.fixture
def site(tmp_path: Path, service: Service) -> Installation:
    return Installation(tmp_path, service.url)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what a detached process does."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within 30 s")


def test_p4d_is_released_before_the_service_answers(site: Installation, service: Service) -> None:
    service.may_answer.clear()
    site.run("change-commit", "12345", "edge-1")  # returns although the service has not answered
    event = service.events.get(timeout=30)
    assert event == {
        "path": "/api/v1/triggers/perforce/", "event": "change-commit", "change": 12345, "server": "edge-1"
    }  # fmt: skip
    assert service.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert site.waiting()  # not done before the service said so
    service.may_answer.set()
    until(lambda: not site.waiting())


def test_no_descriptor_of_the_caller_stays_open(site: Installation, service: Service) -> None:
    service.may_answer.clear()
    reading, writing = os.pipe()
    high = 300
    os.dup2(writing, high)
    process = subprocess.Popen(
        site.command("shelve-commit", "7"), stdin=subprocess.PIPE, stdout=writing, stderr=writing,
        pass_fds=[writing, high], env={},
    )  # fmt: skip
    os.close(writing)
    os.close(high)
    assert os.read(reading, 1) == b""  # the end of the pipe, while the detached half still posts
    assert process.wait(timeout=30) == 0
    assert process.stdin is not None
    process.stdin.close()
    os.close(reading)
    assert service.next_change() == 7


def test_event_waits_during_an_outage_and_is_posted_with_the_next_one(
    site: Installation, service: Service
) -> None:
    service.stop()
    site.run("change-commit", "1")
    until(lambda: len(site.waiting()) == 1)
    service.start()
    site.run("change-commit", "2")
    assert sorted([service.next_change(), service.next_change()]) == [1, 2]
    until(lambda: not site.waiting())


def test_flush_posts_waiting_events(site: Installation, service: Service) -> None:
    service.stop()
    for number in ("1", "2", "2"):
        site.run("--flush", "shelve-commit", number)
    assert len(site.waiting()) == 3
    service.start()
    site.run("--flush")  # in the foreground: done when it returns
    assert [service.next_change(), service.next_change()] == [1, 2]  # what waited twice goes once
    assert service.events.empty()
    assert site.waiting() == []


def test_event_that_the_service_did_not_accept_waits(site: Installation, service: Service) -> None:
    wrong = []
    for status in (301, 400, 401, 403, 404, 429, 500, 503)[:: 1 if skips.is_all() else 2]:
        service.status = status
        site.run("change-commit", "5")
        first = service.next_change()
        service.status = 202
        until(lambda: not lock_is_held(site))
        site.run("--flush")
        found = (first, service.next_change(), site.waiting())
        if found != (5, 5, []):
            wrong.append((status, found))
    assert wrong == []


def test_invalid_event_is_dropped(site: Installation, service: Service) -> None:
    service.status, service.body = 400, b'{"error": "SCHEMA_INVALID"}'
    site.run("change-commit", "5")
    assert service.next_change() == 5
    until(lambda: not site.waiting())


def lock_is_held(site: Installation) -> bool:
    import fcntl

    with (site.spool.parent / "spool.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


MALFORMED = (
    [],
    ["change-commit"],
    ["change-commit", ""],
    ["change-commit", "default"],
    ["change-commit", "0"],
    ["change-commit", "-5"],
    ["change-commit", "12;reboot"],
    ["change-commit", "١٢"],
    ["change-commit", "99999999999"],
    ["change-commit", "%changelist%"],
    ["shelve-delete", "5"],
    ["change-commit", "5", "$(id)"],
    ["change-commit", "5", "../x"],
    ["change-commit", "5", "main", "more"],
    ["--flush", "change-commit", "x" * 5000],
)


def test_malformed_arguments_are_neither_posted_nor_spooled(site: Installation, service: Service) -> None:
    wrong = []
    for arguments in MALFORMED[:: 1 if skips.is_all() else 3]:
        site.run(*arguments)
        site.run("--flush", "change-commit", "77")  # a good one after it: the only one to arrive
        found = (service.next_change(), service.events.empty(), site.waiting())
        if found != (77, True, []):
            wrong.append((arguments, found))
    assert wrong == []


@pytest.mark.parametrize("server", ["", "%serverid%"])
def test_unset_server_id_becomes_the_configured_one(
    site: Installation, service: Service, server: str
) -> None:
    site.run("--flush", "change-commit", "5", server)
    assert service.events.get(timeout=30)["server"] == "main"


def test_key_that_others_can_read_is_not_used(site: Installation, service: Service) -> None:
    site.key.chmod(0o640)
    site.run("--flush", "change-commit", "5")
    assert len(site.waiting()) == 1
    assert service.events.empty()
    site.key.chmod(0o600)
    site.run("--flush")
    assert service.next_change() == 5
    assert site.waiting() == []


@pytest.mark.parametrize("text", ["", "two words\n", "line\nHeader: x\n", "\x00\x01"])
def test_key_file_without_a_key_keeps_the_event(site: Installation, service: Service, text: str) -> None:
    site.key.write_text(text)
    site.run("--flush", "change-commit", "5")
    assert len(site.waiting()) == 1
    assert service.events.empty()


@pytest.mark.parametrize("text", [None, "", "url = ftp://x\nkey_file = y\n", "colour = blue\n", "\xff" * 9])
def test_bad_configuration_is_silent_for_p4d(site: Installation, text: str | None) -> None:
    if text is None:
        site.config.unlink()
    else:
        site.config.write_text(text, encoding="latin-1")
    site.run("change-commit", "5")
    site.run("--flush")
    assert site.waiting() == []


def test_full_spool_does_not_grow_and_the_event_is_posted_directly(
    site: Installation, service: Service
) -> None:
    service.stop()
    site.spool.write_text("x" * (1024 * 1024 + 1) + "\n")
    size = site.spool.stat().st_size
    site.run("--flush", "change-commit", "5")
    assert site.spool.stat().st_size == size
    service.start()
    site.run("--flush", "change-commit", "6")
    assert service.next_change() == 6
    assert site.waiting() == []  # the damaged line is gone, too


def test_interrupted_run_continues_where_it_stopped(site: Installation, service: Service) -> None:
    line = '{"change": %d, "event": "change-commit", "server": "main"}\n'
    site.sending.write_text("#" + line % 1 + " " + line % 2)
    site.spool.write_text("\n " + line % 3)
    site.run("--flush")
    assert [service.next_change(), service.next_change()] == [2, 3]
    assert service.events.empty()


def test_line_cut_off_by_a_full_disk_does_not_stop_the_others(site: Installation, service: Service) -> None:
    site.spool.write_text('\n {"change": 1, "eve')
    site.run("--flush", "change-commit", "2")
    assert service.next_change() == 2
    assert site.waiting() == []


def test_two_runs_do_not_post_an_event_twice(site: Installation, service: Service) -> None:
    service.may_answer.clear()
    site.run("change-commit", "1")
    assert service.next_change() == 1  # its run holds the lock until the service answers
    site.run("--flush", "change-commit", "2")  # returns: the other run is told by the spool
    assert service.events.empty()
    service.may_answer.set()
    assert service.next_change() == 2
    until(lambda: not site.waiting())
    assert service.events.empty()


@pytest.mark.long
def test_run_ends_and_keeps_the_event_when_the_service_never_answers(
    site: Installation, service: Service
) -> None:
    service.may_answer.clear()
    site.run("--flush", "change-commit", "1")  # ends by itself: its limit is 5 s
    assert service.next_change() == 1
    assert len(site.waiting()) == 1


def test_the_spool_is_private(site: Installation, service: Service) -> None:
    service.stop()
    site.run("--flush", "change-commit", "1")
    for path in (site.sending, site.spool.parent / "spool.lock"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_spool_that_is_a_symlink_is_not_followed(
    site: Installation, service: Service, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep\n")
    site.spool.symlink_to(victim)
    site.run("--flush", "change-commit", "1")
    assert victim.read_text() == "keep\n"
    assert service.next_change() == 1  # posted without the spool


def test_script_parses_as_python_3_6() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


def test_script_imports_the_standard_library_only() -> None:
    tree = ast.parse(SCRIPT.read_text())
    names = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import)
             for alias in node.names}  # fmt: skip
    names |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


def test_documented_lines_of_the_triggers_table_work(site: Installation, service: Service) -> None:
    page = (SCRIPT.parents[1] / "docs" / "perforce-trigger.md").read_text()
    lines = re.findall(r'criticizer\.\w+ ([\w-]+) //\S+ "(.+)"', page)
    assert [kind for kind, _ in lines] == ["change-commit", "shelve-commit"]
    for kind, command in lines:
        interpreter, options, _, *arguments = shlex.split(command.replace("%changelist%", "42"))
        assert (interpreter, options) == ("/usr/bin/python3", "-IS")
        site.run(*(argument.replace("%serverid%", "edge-1") for argument in arguments))
        event = service.events.get(timeout=30)
        assert (event["event"], event["change"], event["server"]) == (kind, 42, "edge-1")


def test_every_setting_is_documented(site: Installation, service: Service) -> None:
    page = (SCRIPT.parents[1] / "docs" / "perforce-trigger.md").read_text()
    documented = set(re.findall(r"^ *\| `(\w+)` \|", page, flags=re.MULTILINE))
    known = re.search(r"name not in \((.*?)\)", SCRIPT.read_text())
    assert known is not None
    assert documented == set(re.findall(r'"(\w+)"', known[1]))
