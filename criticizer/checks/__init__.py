"""System checks of settings and of the environment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage

TAG = "criticizer"
_LEVELS = {"E": checks.Error, "W": checks.Warning, "I": checks.Info}
Messages = Iterator[CheckMessage]
OUTSIDE: list[Callable[[], Messages]] = []  # of other apps, run with those of `checks.environment`


def check(*, deploy: bool = False) -> Callable[[Callable[[], Messages]], Callable[..., list[CheckMessage]]]:
    """Register a function without arguments that yields messages as a system check."""

    def register(function: Callable[[], Messages]) -> Callable[..., list[CheckMessage]]:
        @functools.wraps(function)
        def run(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
            return list(function())

        del run.__dict__["__wrapped__"]  # Django looks for **kwargs in the signature
        checks.register(run, TAG, deploy=deploy)
        return run

    return register


def message(code: str, problem: str, hint: str) -> CheckMessage:
    """Return the message `criticizer.<code>`; the code's first letter is its level."""
    return _LEVELS[code[0]](problem, hint=hint, id=f"criticizer.{code}")
