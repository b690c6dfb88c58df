"""A rig of the matrix: the server behind a provider, how it misbehaves, and its ledger.

A behaviour is set for the next message alone, except a permanent refusal; `calm` ends them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from criticizer.http_client import Limits

SENDER = "Criticizer <criticizer@reviews.test>"
ARCHIVE = "archive@reviews.test"
TIMEOUT_SECONDS = 0.5  # until a provider that is silent counts as silent
DIGEST = ", digest"  # in a rig's name
REVIEWS_TOGETHER = 3
LINE_COMMENTS = 2  # of a review, where its provider makes them before its own comment
NORMAL = "normal"
SILENT = "accepts, then silence"
RESET = "accepts, then resets"
BROKEN = "5xx after accepting"
NOT_TAKEN = "5xx, not accepted"
REFUSES = "refuses"
SLOWER = "429 or 4yz"
LAGS = "silence, index lags"
LOST = "silence, look-up lost"
KEY = "silence, answers the key again"

LIMITS = Limits(2.0, TIMEOUT_SECONDS, 5.0)


class Hook:
    """Function that is called with every message that a server takes over, before its answer."""

    def __init__(self) -> None:
        self.then: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self.then is not None:
            self.then()


class Ledger(list[Any]):
    """A server's list of what it took over."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook = hook

    def append(self, entry: Any) -> None:
        super().append(entry)
        self._hook()


@dataclass
class Rig:
    """A server behind a provider, with its behaviours and its ledger.

    `behave` has what the server can do; `lag_seconds` is kept by those whose index lags. `together`: how many
    reviews, each of its own job, one message reports.
    """

    name: str
    spec: tuple[str, ...]  # what `provider_of` makes the provider of
    recipient: Callable[[int], str]
    tokens: Callable[[], Iterable[str]]  # one for each time that a recipient sees a message
    behave: Mapping[str, Callable[[], object]]
    calm: Callable[[], None]
    hook: Hook = field(default_factory=Hook)
    together: int = 1

    def arrived(self) -> Counter[str]:
        return Counter(self.tokens())


MakeRig = Callable[[ExitStack, Path, float], Rig]


def nothing() -> None:
    """Behave."""
