"""SIGKILL of the web server's master: its workers go with it, and the next one has the port."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx
import psutil
import pytest

from tests.stack import eventually, running

pytestmark = pytest.mark.cluster


@pytest.mark.django_db(transaction=True)
def test_the_master_killed_under_an_open_connection(tmp_path: Path) -> None:
    with running(tmp_path, queues=(), with_web=True) as stack:
        with httpx.Client(base_url=stack.base_url, trust_env=False) as client:
            assert client.get("/livez").status_code == 200  # and stays connected
            master = psutil.Process(stack.child("web").process.pid)  # type: ignore[union-attr]
            workers = eventually(master.children)
            stack.kill(master)
            eventually(lambda: not any(map(_is_alive, workers)), 5)

        def serves_anew() -> bool:
            process = stack.child("web").process
            if process is None or process.pid == master.pid:
                return False
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{stack.base_url}/livez", trust_env=False).status_code == 200
            return False

        eventually(serves_anew)
    assert "Connection in use" not in stack.logs()


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
