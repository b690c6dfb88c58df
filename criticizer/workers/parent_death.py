"""PR_SET_PDEATHSIG: a process ends with its parent."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let Linux kill this process when its parent dies.

    Elsewhere the watchdog compares the parent's pid, which takes a little longer.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
