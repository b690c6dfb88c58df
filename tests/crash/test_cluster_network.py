"""The cluster drill's machines: slow, deaf, cut off, switched off, gone with a killed drill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from django.conf import settings

from tests.stack import eventually


@pytest.mark.long  # of the drill, which `make test-all` runs
def test_machines_fail_as_they_are_told_and_leave_nothing_behind() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.cluster_machines"],
        cwd=settings.BASE_DIR, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    assert process.stderr
    line = process.stdout.readline()
    if not line and (why := process.stderr.read()).startswith("cannot: "):
        process.communicate()
        pytest.skip(f"no machines here: {why.removeprefix('cannot: ').strip()}")
    found = json.loads(line or process.stderr.read())
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    os.kill(process.pid, signal.SIGKILL)  # the drill itself
    process.communicate()
    eventually(lambda: not any(one.is_running() and one.status() != "zombie" for one in family), 10)

    assert found["name"] == "app1"
    assert found["fast"] < 1.0
    assert found["slow"] > 0.4  # the handshake and the word, 0.2 s there and back each
    assert found["deaf"] is found["cut"] is found["off"] is None
    assert len(found["processes"]) == 1  # the program itself: what ran on the machine went with it
    before, after = found["cards"]
    assert before == after  # or others would send to the old one for half a minute
