"""Work of a function, in a unit that a busy machine does not change."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any


def calls_of(work: Callable[[], Any]) -> int:
    """Count the calls of functions and built-ins, and the resumed generators, of `work`.

    Garbage is not collected meanwhile: what others left behind would be counted too.
    """
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before, collected = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collected:
            gc.enable()
    return calls
