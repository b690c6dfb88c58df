"""New changes on a Perforce server for the poll: numbers, then files and content keys.

Metadata only, without a client workspace; `PerforceSource` reads the content later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from criticizer.resilience.failures import PermanentFailure
from reviews.sources.base import version_key_of
from reviews.sources.perforce.client import P4Client
from reviews.sources.perforce.errors import Outcome
from reviews.sources.perforce.records import indexed, number_in

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Content:
    """The files of a change, as depot paths, and the key of their content."""

    paths: tuple[str, ...]
    version_key: str


def content_key(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the version key of the files of one `describe` record."""
    return version_key_of(
        (row["depotFile"], row.get("action", ""), row.get("type", ""), row.get("digest", "")) for row in rows
    )


class P4Listing:
    """Lists the changes of one server. Every method raises as `Source.describe` does."""

    literal_names = False

    def __init__(self, client: P4Client) -> None:
        self._client = client

    @property
    def server_id(self) -> str:
        """Return the name the server gives to its triggers, or "" when it has none."""
        return self._client.facts().server_id

    @property
    def case_sensitive(self) -> bool:
        return self._client.facts().case_sensitive

    def newest_submitted(self, paths: Sequence[str], count: int) -> list[int]:
        """Return the numbers of the newest submitted changes below `paths`, newest first."""
        found = {
            number
            for listed in self._per_path(paths, "-s", "submitted", "-m", str(count))
            for number in listed
        }
        return sorted(found, reverse=True)[:count]

    def submitted_from(self, first: int, paths: Sequence[str], limit: int) -> list[int]:
        """Return the submitted changes from number `first` upward, ascending.

        At most `limit`. Changes that are left out have higher numbers.
        """
        found: set[int] = set()
        last: int | None = None  # up to it every path's list is complete; None: no list hit its limit
        for listed in self._per_path(
            paths, "-s", "submitted", "-e", str(max(1, first)), "-r", "-m", str(limit)
        ):
            found.update(listed)
            if len(listed) >= limit:  # the server counts its limit per path
                last = listed[-1] if last is None else min(last, listed[-1])
        # A server that does not know -e answers from the beginning.
        numbers = sorted(number for number in found if number >= first and (last is None or number <= last))
        return numbers[:limit]

    def shelved(self, limit: int) -> list[int]:
        """Return the numbers of the newest changes that have a shelf, newest first."""
        return sorted(set(self._numbers("-s", "shelved", "-m", str(limit))), reverse=True)[:limit]

    def contents(self, numbers: Sequence[int], *, shelved: bool) -> dict[int, Content]:
        """Return the files of several changes by one command, or those of their shelves.

        A change the server does not know or hides, and one without files, is left out.
        """
        if not numbers:
            return {}
        flags = ("-S", "-s") if shelved else ("-s",)
        answer = self._client.tagged("describe", *flags, *map(str, numbers))
        found: dict[int, Content] = {}
        for record in answer.results:
            number = number_in(record, "change")
            rows = [row for row in indexed(record) if "depotFile" in row]
            # A change that has been submitted since lists its files as such, not as a shelf.
            if number is None or not rows or (record.get("status") == "submitted") == shelved:
                continue
            found[number] = Content(tuple(row["depotFile"] for row in rows), content_key(rows))
        return found

    def _per_path(self, paths: Sequence[str], *arguments: str) -> list[list[int]]:
        """Return one ascending list per path. A path the server refuses is skipped, unless all are."""
        answers: list[list[int]] = []
        refusal: PermanentFailure | None = None
        for path in paths:
            try:
                answers.append(sorted(set(self._numbers(*arguments, path))))
            except PermanentFailure as failure:
                if failure.context.get("outcome") != Outcome.PERMANENT:
                    raise
                # Such as a line for a depot that this server does not have.
                log.warning("poll_path_refused", path=path, **failure.facts)
                refusal = failure
        if refusal is not None and not answers:
            raise refusal
        return answers

    def _numbers(self, *arguments: str) -> list[int]:
        answer = self._client.tagged("changes", *arguments)
        numbers = [number_in(record, "change") for record in answer.results]
        return [number for number in numbers if number is not None]
