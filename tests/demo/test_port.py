"""The port of the demo: given to make, checked before anything starts."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command


@pytest.mark.parametrize(("arguments", "expected"), [(["PORT=8767"], '--port "8767"'), ([], "")])
def test_make_hands_the_port_to_the_demo(arguments: list[str], expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PORT", "MAKEFLAGS")}
    asked = subprocess.run(
        ["make", "--dry-run", "demo", *arguments],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in asked.stdout.splitlines() if "manage.py demo" in line]
    assert expected in line
    assert ("--port" in line) == bool(expected)


def test_a_port_in_use_is_said_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"port {port} of 127.0.0.1 is taken by another program"):
            call_command("demo", port=port)
    with pytest.raises(CommandError, match="70000 is not a port"):
        call_command("demo", port=70_000)
