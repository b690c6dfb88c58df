"""The embedded PostgreSQL under process 1 of a container, and without its system account."""

from __future__ import annotations

import os
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


@pytest.mark.long
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


# An /etc of the test's own, in a mount namespace: the machine's accounts stay as they are.
_FIRST_START = """
set -e
mount --make-rprivate /
cp -a /etc "$FILES/etc"
mount --bind "$FILES/etc" /etc
userdel pgserver 2>/dev/null || true
for process in 1 2 3 4; do "$PYTHON" -c "$START" & done
wait
"""
_START = """
import os, pwd, time
from pathlib import Path
from criticizer.db.embedded import EmbeddedServer
files = Path(os.environ["FILES"])
server = EmbeddedServer(Path(os.environ["FILES"]) / str(os.getpid()))
(files / f"ready-{os.getpid()}").touch()
while len(list(files.glob("ready-*"))) < 4:
    time.sleep(0.001)
server._drop_root()
(files / f"done-{os.getpid()}").touch()
while len(list(files.glob("done-*"))) < 4:
    time.sleep(0.01)
assert server._as_account["user"] == pwd.getpwnam("pgserver").pw_uid
print("one account")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts PostgreSQL as another account")
def test_processes_that_start_first_at_once_agree_on_the_account() -> None:
    files = Path(tempfile.mkdtemp(prefix="criticizer-test-"))
    environment = {"FILES": str(files), "PYTHON": sys.executable, "START": _START, "PYTHONPATH": str(_BASE)}
    try:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", _FIRST_START],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if "unshare failed" in done.stderr:
            pytest.skip("no mount namespaces here")
        assert done.stdout.count("one account") == 4, done.stderr
    finally:
        shutil.rmtree(files, ignore_errors=True)
