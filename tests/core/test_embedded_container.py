"""The embedded PostgreSQL under process 1 of a container, which must reap orphans: `up`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_BASE = Path(__file__).resolve().parent.parent.parent
# PR_SET_CHILD_SUBREAPER (36) makes the process the parent of orphans, as process 1 is.
_AS_PROCESS_ONE = """
import ctypes, os, signal, sys
from pathlib import Path
from criticizer.db.embedded import EmbeddedServer
ctypes.CDLL(None).prctl(36, 1)
server = EmbeddedServer(Path(sys.argv[1]), fsync="off")
try:
    server.start()
    killed = server.postmaster_pid()
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)  # dead, and not buried
    assert server.postmaster_pid() is None, "an unburied server counts as running"
    assert server.start(), "it was not started again"
finally:
    server.stop("immediate")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="subreapers are Linux's")
def test_a_killed_server_is_started_again_by_process_one() -> None:
    files = Path(tempfile.mkdtemp(prefix="criticizer-test-"))
    files.chmod(0o755)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _AS_PROCESS_ONE, str(files)],
            cwd=_BASE,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(files, ignore_errors=True)
