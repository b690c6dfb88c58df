"""`manage.py demo --keep` from start to end, as a new user runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from django.conf import settings

pytestmark = pytest.mark.cluster(seconds=50)


@pytest.mark.long
def test_demo_keep_shows_findings_and_stops_every_process(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CRITICIZER_DATA_DIR": str(tmp_path),
        # Another installation's settings: the demo must not touch what they name.
        "DATABASE_URL_FILE": "/nowhere",
        "DEPOT_ALLOW_LIST": "//depot/main/...",
        "GIT_WATCH": "app:main",
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": "9",
        "PYTHONUNBUFFERED": "1",
    }
    command = [
        sys.executable,
        "manage.py",
        "demo",
        "--keep",
        "--commits",
        "2",
        "--repo",
        str(settings.BASE_DIR),
    ]
    process = subprocess.Popen(
        command, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if line.lstrip().startswith("login "):
                break
        text = "\n".join(said)
        assert "All 3 reviews succeeded and were delivered; " in text, text
        assert re.search(r"!! critical //example/src/payments\.py:10\n +Secret added: github token", text)
        assert re.search(r"high +//example/src/payments\.py:5\n +Unresolved merge conflict", text)
        assert re.search(r"medium +//example/src/payments\.py:19\n +Debugger call left in the code", text)
        assert '> 10 + GATEWAY_TOKEN = "<REDACTED:github-token:1>"' in text
        assert "NotARealToken" not in text

        assert "Unresolved merge conflict" in _page_after_login(text)
        _refuses_a_second(command, environment, tmp_path)
        _stops_every_process(process, tmp_path)
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=90)


def test_demo_replays_recorded_answers_a_timeout_and_a_dead_letter(tmp_path: Path) -> None:
    """The story that the README promises, from rows that the real processes wrote."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "CRITICIZER_DATA_DIR": str(tmp_path),
        # A model that somebody configured is not asked.
        "LLM_PROVIDER": "openai", "LLM_BASE_URL": "http://127.0.0.1:9/v1", "LLM_MODEL": "theirs",
    }  # fmt: skip
    command = [sys.executable, "manage.py", "demo", "--keep"]
    process = subprocess.Popen(
        command, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if line.lstrip().startswith("login "):
                break
        text = "".join(said)
        assert "The language model is a recording" in text, text
        assert "Traceback" not in text
        assert "A retry charges the card a second time" in text
        assert "Its dead letter was replayed." in text
        assert "A refund may be larger than the payment" in text
        database = str(tmp_path / "demo" / "postgres")
        with psycopg.connect(host=database, user="criticizer", dbname="criticizer") as connection:

            def rows(query: str) -> list[tuple[Any, ...]]:
                return connection.execute(query.encode()).fetchall()

            statuses = rows("SELECT f.title, f.status FROM findings f JOIN jobs j ON j.id = job_id"
                            " WHERE review_version = 2 AND source = 'llm' ORDER BY f.title")  # fmt: skip
            assert statuses == [
                ("A permanent refusal is retried as well", "new"),
                ("A retry charges the card a second time", "still_there"),
                ("The gateway's reason is lost", "still_there"),
            ]
            assert rows("SELECT title FROM findings WHERE ending = 'not_reported_again'") == [
                ("All attempts follow each other at once",)
            ]
            covered = rows(
                "SELECT DISTINCT file, status FROM coverage WHERE file LIKE '//example/web/%' ORDER BY 1"
            )
            assert covered == [
                ("//example/web/package-lock.json", "checked"), ("//example/web/retries.png", "skipped"),
            ]  # fmt: skip
            assert rows("SELECT kind, actor FROM finding_events") == [("wrong", "demo")]
            assert rows("SELECT error_class FROM attempts WHERE outcome = 'failed' ORDER BY 1") == [
                ("NETWORK_TIMEOUT",), ("PERMISSION_DENIED",), ("PERMISSION_DENIED",),
            ]  # fmt: skip
            # One is left to whoever looks around, in the group of the one that was resolved.
            assert rows("SELECT status FROM dead_letters ORDER BY id") == [("resolved",), ("new",)]
            assert rows("SELECT count(DISTINCT group_id) FROM dead_letters") == [(1,)]
            models = "SELECT DISTINCT model_name FROM jobs WHERE status = 'succeeded' AND kind <> 'scan'"
            assert rows(models) == [("recorded-answers",)]
            claims = (
                "SELECT d.path, d.total, d.holds, d.refuted FROM scan_documents d"
                " JOIN scans s ON s.job_id = d.scan_id JOIN scan_targets t ON t.id = s.target_id"
            )
            assert rows(claims) == [("//example/README.md", 2, 1, 1)]
            assert "Scanned the documents of //example/...: 2 claims, 1 refuted." in text
            assert "its dead letter is left for you" in text
            assert "  - Scans: the documents of the repository" in text
            assert rows("SELECT DISTINCT status FROM deliveries") == [("sent",)]
        assert "A refund may be larger than the payment" in _page_after_login(text)
        _refuses_a_second(command, environment, tmp_path)
        _stops_every_process(process, tmp_path)
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=90)


def _page_after_login(text: str) -> str:
    """Follow the link of the last mail, log in as the demo says, return the review's page."""
    link = _review_link(text)
    login = re.search(r"login +(\S+) / (\S+)", text)
    assert login is not None
    with httpx.Client(follow_redirects=True, trust_env=False) as client:
        page = client.get(link)
        assert page.url.path == "/login/"  # the mail's link works, for who has logged in
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert token is not None
        page = client.post(
            str(page.url),
            data={"csrfmiddlewaretoken": token[1], "username": login[1], "password": login[2]},
        )
        assert (page.status_code, str(page.url)) == (200, link)
        return page.text


def _refuses_a_second(command: list[str], environment: dict[str, str], directory: Path) -> None:
    second = subprocess.run(
        command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False,
        timeout=90,
    )  # fmt: skip
    assert second.returncode == 1
    assert f"A demo already runs in {directory / 'demo'}: stop that one first." in second.stderr


def _stops_every_process(process: subprocess.Popen[str], directory: Path) -> None:
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=90)
    assert "Stopping." in rest
    assert process.returncode == 0, rest
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert not (directory / "demo" / "postgres" / "postmaster.pid").exists()


def _review_link(text: str) -> str:
    """Return the link to the review in the last mail that was named."""
    mail = message_from_bytes(Path(re.findall(r"mail: (/\S+)", text)[-1]).read_bytes(), policy=policy.default)
    body = mail.get_body(("plain",))
    assert body is not None
    link = re.search(r"^Review +(\S+)$", str(body.get_content()), re.MULTILINE)
    assert link is not None
    return link[1]
