"""A change of DEPOT_ALLOW_LIST between two starts is a sealed security event, written once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from criticizer.models import SecurityEvent
from reviews import config
from reviews.audit import hash_chain
from tests.stack import process_environment

KIND = SecurityEvent.Kind.CEILING_CHANGED


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_recorded", None)


def start(settings: Any, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Start a process with these lines."""
    settings.DEPOT_ALLOW_LIST = list(lines)
    monkeypatch.setattr(config, "_recorded", None)
    config.record_ceiling()


def test_a_change_is_an_event_with_old_new_host_and_time(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch, admin_client: Any
) -> None:
    start(settings, monkeypatch, "//depot/a/...")
    start(settings, monkeypatch, "//depot/a/...")
    assert SecurityEvent.objects.get(kind=KIND).context["old"] is None  # the first start
    start(settings, monkeypatch, "//depot/a/...", "//depot/b/...")
    event = SecurityEvent.objects.filter(kind=KIND).latest("pk")
    assert event.context == {
        "old": ["//depot/a/..."],
        "new": ["//depot/a/...", "//depot/b/..."],
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    assert event.reason == "added //depot/b/..."
    assert event.actor.endswith(f"@{socket.gethostname()}")
    assert event.created_at is not None
    page = admin_client.get(reverse("admin:criticizer_securityevent_changelist")).content.decode()
    assert "DEPOT_ALLOW_LIST changed" in page
    assert "added //depot/b/..." in page
    assert hash_chain.seal("security_events", settle_seconds=-1) >= 2
    # Back again is a change, too.
    start(settings, monkeypatch, "//depot/a/...")
    assert SecurityEvent.objects.filter(kind=KIND).latest("pk").reason == "removed //depot/b/..."


def test_whatever_uses_the_ceiling_records_it_first(db: None) -> None:
    config.allow_list()
    assert SecurityEvent.objects.filter(kind=KIND).count() == 1


def test_a_rolled_back_transaction_does_not_lose_the_event(transactional_db: None) -> None:
    with transaction.atomic():
        config.allow_list()
        transaction.set_rollback(True)
    assert not SecurityEvent.objects.filter(kind=KIND).exists()
    config.allow_list()
    assert SecurityEvent.objects.filter(kind=KIND).count() == 1


_PROCESSES = """
import django, os, sys
django.setup()
from reviews import config
from django.db import connection
reading, writing = os.pipe()
pids = []
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        os.close(writing)
        connection.ensure_connection()
        os.read(reading, 1)  # until nobody can write any more
        config.record_ceiling()
        os._exit(0)
    pids.append(pid)
os.close(writing)
print(*[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
"""


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.long)])
def test_processes_that_start_together_write_one_event(
    processes: int, transactional_db: None, tmp_path: Any
) -> None:
    environment = process_environment(tmp_path, DEPOT_ALLOW_LIST="//depot/new/...")
    ended = subprocess.run(
        [sys.executable, "-c", _PROCESSES, str(processes)],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert ended.stdout.split() == ["0"] * processes, ended.stderr
    event = SecurityEvent.objects.get(kind=KIND)
    assert json.dumps(event.context["new"]) == '["//depot/new/..."]'
