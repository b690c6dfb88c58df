"""No process outlives the one that looks after it."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent dies, so that nothing is left unguarded.

    Elsewhere the caretaker's look at the parent's pid, and gunicorn's own, do the same later.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
