"""The script as a person runs it: `--check`, `--help`, wrong arguments on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.intake import api_keys
from reviews.models import ReviewJob, SourceEvent
from tests.trigger.service import Service
from tests.trigger.test_trigger_script import KEY, SCRIPT, Installation, until

GOOD = b'{"error": "SCHEMA_INVALID", "code": "CRITICIZER_E401"}'


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    made.status, made.body = 400, GOOD
    made.start()
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path, service: Service) -> Installation:
    return Installation(tmp_path, service.url)


def check(site: Installation) -> tuple[int, str]:
    done = subprocess.run(
        site.command("--check"), capture_output=True, text=True, env={}, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def failed(lines: str) -> list[str]:
    return re.findall(r"^FAIL +(\w+)", lines, re.MULTILINE)


def on_terminal(*arguments: str, cwd: Path | None = None) -> tuple[int, str]:
    """Run the script with a terminal as its output, as no server does."""
    reading, writing = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-IS", str(SCRIPT), *arguments],
        stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, env={}, cwd=cwd,
    )  # fmt: skip
    os.close(writing)
    said = b""
    while True:
        try:
            said += os.read(reading, 4096)
        except OSError:  # the other side is closed: Linux says EIO
            break
    os.close(reading)
    return process.wait(timeout=30), said.decode().replace("\r\n", "\n")


def test_check_passes_for_a_good_installation_and_posts_no_event(
    site: Installation, service: Service
) -> None:
    status, lines = check(site)
    assert status == 0, lines
    assert re.findall(r"^(\S+) +(\w+)", lines, re.MULTILINE) == [
        ("ok", "configuration"), ("ok", "key"), ("ok", "spool"), ("ok", "service"), ("ok", "access"),
    ]  # fmt: skip
    assert f"{site.key}, mode 0600" in lines
    assert KEY not in lines
    assert service.events.get(timeout=30) == {"path": "/api/v1/triggers/perforce/"}  # an event of nothing
    assert service.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert sorted(path.name for path in site.config.parent.iterdir()) == ["key", "trigger.conf"]


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"{}", "revoked or mistyped"),
        (403, b"{}", "another role than trigger"),
        (404, b"{}", "correct url"),
        (400, b"<h1>Bad Request</h1>", "ALLOWED_HOSTS"),
        (301, b"", "the address it redirects to"),
        (503, b"{}", "/readyz"),
        (202, b"{}", "the service's log"),
    ],
)
def test_check_explains_each_status_of_the_service(
    site: Installation, service: Service, status: int, body: bytes, words: str
) -> None:
    service.status, service.body = status, body
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["access"])
    assert f"answered {status}: " in lines
    assert words in lines


def test_check_says_that_no_perforce_server_is_configured(site: Installation, service: Service) -> None:
    service.status = 400
    service.body = (
        b'{"code": "SCHEMA_INVALID", "details": {"request": ["no Perforce server is configured."]}}'
    )
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["access"])
    assert "CHANGE_SOURCES" in lines


def test_check_tells_an_unreachable_or_foreign_service_from_a_refusal(
    site: Installation, service: Service
) -> None:
    service.lives = 404
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["service"])
    assert "/livez answered 404" in lines
    service.stop()
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["service"])
    assert "Connection refused" in lines


@pytest.mark.long
def test_check_ends_when_the_service_never_answers(site: Installation, service: Service) -> None:
    service.may_answer.clear()
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["service"])


def test_check_reports_every_fault_at_once(site: Installation, service: Service) -> None:
    site.key.chmod(0o644)
    site.spool.symlink_to(site.config)
    service.lives = 500
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["key", "spool", "service"])
    assert "chmod 600 it" in lines


def test_check_names_a_missing_key_or_spool_directory(site: Installation, tmp_path: Path) -> None:
    site.key.unlink()
    site.config.write_text(site.config.read_text().replace(str(site.spool), str(tmp_path / "no" / "spool")))
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["key", "spool"])
    assert f"{tmp_path / 'no'} is not a directory" in lines


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can open another account's key")
def test_check_as_root_asks_to_run_as_the_account_of_p4d(site: Installation) -> None:
    os.chown(site.key, 12345, 12345)
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["key"])
    assert "belongs to account 12345" in lines


@pytest.mark.parametrize("text", [None, "url = ftp://x\nkey_file = y\n", "colour = blue\n"])
def test_check_names_a_bad_configuration(site: Installation, text: str | None) -> None:
    if text is None:
        site.config.unlink()
    else:
        site.config.write_text(text)
    code, lines = check(site)
    assert (code, failed(lines)) == (1, ["configuration"])
    assert str(site.config) in lines


def test_check_counts_waiting_events_and_leaves_them(site: Installation, service: Service) -> None:
    service.stop()
    site.run("--flush", "change-commit", "1")
    site.run("--flush", "change-commit", "2")
    waiting = site.waiting()
    service.start()
    code, lines = check(site)
    assert code == 0, lines
    assert f"{site.spool}, 2 waiting" in lines
    assert site.waiting() == waiting


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_check_against_the_real_service(live_server: Any, settings: Any, tmp_path: Path) -> None:
    site = Installation(tmp_path, live_server.url)
    assert "answered 401" in check(site)[1]  # this key does not exist
    site.key.write_text(api_keys.create("bob", "reviewer"))
    assert "answered 403" in check(site)[1]
    site.key.write_text(api_keys.create("p4d", "trigger"))
    assert check(site)[0] == 0
    settings.ALLOWED_HOSTS = ["review.example.com"]
    assert "ALLOWED_HOSTS" in check(site)[1]
    assert not ReviewJob.objects.exists()
    assert not SourceEvent.objects.exists()


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_printed(site: Installation, option: str) -> None:
    done = subprocess.run(site.command(option), capture_output=True, text=True, env={}, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("EVENT CHANGE", "--config FILE", "--flush", "--check"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected EVENT CHANGE"),
        (["--chek"], "expected EVENT CHANGE"),
        (["change-comit", "5"], "unknown event 'change-comit'"),
        (["change-commit", "default"], "not a changelist number"),
    ],
)
def test_wrong_arguments_are_reported_on_a_terminal(
    site: Installation, service: Service, arguments: list[str], words: str
) -> None:
    status, said = on_terminal("--config", str(site.config), *arguments)
    assert status == 2
    assert words in said
    assert "Try --help, or --check." in said
    assert service.events.empty()


def test_missing_configuration_is_reported_on_a_terminal(tmp_path: Path) -> None:
    status, said = on_terminal("--config", "no.conf", "change-commit", "5", cwd=tmp_path)
    assert status == 2
    assert str(tmp_path / "no.conf") in said


def test_failure_of_flush_is_reported_on_a_terminal(site: Installation, service: Service) -> None:
    service.stop()
    status, said = on_terminal("--config", str(site.config), "--flush", "change-commit", "5")
    assert status == 0
    assert "the service cannot be reached, events wait" in said


def test_relative_paths_work_after_the_script_changed_its_directory(
    site: Installation, service: Service
) -> None:
    service.status = 202
    directory = site.config.parent
    site.config.write_text(f"url = {service.url}\nkey_file = key\nspool = spool\n")
    done = subprocess.run(
        [sys.executable, "-IS", str(SCRIPT), "--config", "trigger.conf", "change-commit", "31"],
        cwd=directory, capture_output=True, env={}, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert service.next_change() == 31
    until(lambda: not site.waiting())
    assert (directory / "spool.lock").exists()
