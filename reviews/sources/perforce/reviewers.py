"""Perforce users who subscribed to changes by the `Reviews:` field of their user.

`p4 reviews` names the people, `p4 user -o` gives their address. Both work with ordinary rights and change
nothing. Names are checked first, so that none can become an option.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from criticizer.resilience.failures import PermanentFailure
from reviews.sources.base import Change, ChangeStatus
from reviews.sources.perforce.client import P4Client

log = structlog.get_logger()

MAX_PEOPLE = 200  # one command each
_NAME = re.compile(r"[^\s@#*%/\"'-][^\s@#*%/\"']{0,99}")


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A Perforce user whose `Reviews:` match the change. `address` is as stored, or empty."""

    user: str
    address: str


@dataclass(frozen=True, slots=True)
class Subscribers:
    """Subscribers of a change. `left_out` counts people beyond MAX_PEOPLE and invalid names."""

    people: tuple[Subscriber, ...] = ()
    left_out: int = 0


class P4Reviewers:
    """Looks up the subscribers of a change on one server."""

    def __init__(self, client: P4Client) -> None:
        self._client = client

    def of(self, change: Change) -> Subscribers:
        """Return the people whose `Reviews:` match a file of the change, each once, by name.

        Raises as `Source.describe` does. An address that cannot be looked up is that of `p4 reviews`,
        which is a copy of it.
        """
        found = {row["user"]: row.get("email", "") for row in self._rows(change) if row.get("user")}
        names = sorted(name for name in found if _NAME.fullmatch(name))
        asked = names[:MAX_PEOPLE]
        people = tuple(Subscriber(name, self._address(name, found[name])) for name in asked)
        return Subscribers(people, len(found) - len(asked))

    def _rows(self, change: Change) -> Sequence[dict[str, str]]:
        if change.status is ChangeStatus.SUBMITTED:
            return self._client.tagged("reviews", "-c", change.changelist_id).results
        # -c is about the files that were submitted; a shelf's are named. They passed the allow-list.
        paths = [file.path for file in change.files]
        return self._client.tagged("reviews", batch=paths).results if paths else []

    def _address(self, name: str, known: str) -> str:
        try:
            answer = self._client.tagged("user", "-o", name)
        except PermanentFailure as failure:
            if failure.context.get("pause"):
                raise
            log.warning("perforce_user_unknown", **failure.facts)
            return known
        record = next((row for row in answer.results if row.get("User") == name), {})
        # A user that does not exist is answered with the form for a new one, which was never saved.
        return record.get("Email", "") if "Update" in record or "Access" in record else known
