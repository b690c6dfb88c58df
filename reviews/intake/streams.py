"""Streams of changes for the poll: submits and shelves of Perforce, commits of a branch.

A stream reads; `polling` writes. Each step has events and the position after them, so that both are recorded
in one commit and a run that ends anywhere continues from there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import structlog
from django.conf import settings

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from reviews import config
from reviews.intake import source_events
from reviews.intake.source_events import Event, Kind
from reviews.models import SourceEvent
from reviews.sources.allowlist import AllowList
from reviews.sources.git import GitSource
from reviews.sources.perforce.errors import Outcome
from reviews.sources.perforce.listing import P4Listing
from reviews.sources.registry import git_source, listing_of, validate_changelist_id

log = structlog.get_logger(__name__)
T = TypeVar("T")

PER_RUN = 500  # changes of one stream in one run
PER_STEP = 50  # changes in one commit, and numbers in one describe
# A submit that began earlier may end later, so this many numbers below the newest are read again.
LOOK_BACK = 100
SHELVES = 200  # the newest ones
TRIGGERED_SHELVES = 200  # and those with a recent trigger, whose number may be old
SHELF_DAYS = 7
_SERVER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as the API takes it from a trigger
_NO_SERVER_ID = "main"  # the trigger script's name for it


@dataclass(frozen=True, slots=True)
class Position:
    """Place up to which a stream was read. `state` is JSON."""

    place: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamStep:
    """Some events, oldest first, and the position after them.

    `after` takes the events that were recorded. `looked_at` counts changes.
    """

    events: tuple[Event, ...]
    after: Callable[[Sequence[Event]], Position]
    looked_at: int = 0


class Stream(Protocol):
    """One sequence of changes: submits, shelves, or the commits of a branch."""

    @property
    def name(self) -> str: ...

    @property
    def dependency(self) -> str | None:
        """Return the dependency whose circuit guards each step."""
        ...

    def steps(self, before: Position | None) -> Iterator[StreamStep]:
        """Yield the changes since `before`; None on the first look.

        Raises the failures of `Source.describe`.
        """
        ...


def streams() -> list[Stream]:
    """Return the configured streams. Runs no command."""
    found: list[Stream] = []
    configured = config.sources()
    if configured.perforce is not None:
        found += [SubmittedChanges(), ShelvedChanges()]
    found += [Commits(name, branch) for name, branch in settings.GIT_WATCH if name in configured.git]
    return found


# -- Perforce ----------------------------------------------------------------------------------


class _Server:
    """The Perforce server of both its streams, queried when a step needs it."""

    @property
    def dependency(self) -> str | None:
        return config.perforce_dependency()

    @functools.cached_property
    def listing(self) -> P4Listing:
        configured = config.sources().perforce
        assert configured is not None
        return listing_of(configured)

    @functools.cached_property
    def allow_list(self) -> AllowList:
        return config.allow_list().with_case(self.listing.case_sensitive)

    def event(self, kind: SourceEvent.Kind, number: int, version_key: str) -> Event:
        """Return the event that a trigger would have posted."""
        return Event(
            kind,
            validate_changelist_id(str(number)),
            self._name(),
            recipients=config.default_recipients(),
            requested_by="poll",
            version_key=version_key,
        )

    def _name(self) -> str:
        server_id = self.listing.server_id
        return server_id if _SERVER_ID.fullmatch(server_id) else _NO_SERVER_ID

    def events(self, kind: SourceEvent.Kind, numbers: Sequence[int]) -> list[Event]:
        """Return the events of the changes that have a file inside the allow-list, by number."""
        try:
            contents = self.listing.contents(numbers, shelved=kind is Kind.SHELVE)
        except PermanentFailure as failure:
            if not _is_too_large(failure):
                raise
            if len(numbers) > 1:
                half = len(numbers) // 2
                return self.events(kind, numbers[:half]) + self.events(kind, numbers[half:])
            log.warning("poll_change_too_large", changelist=numbers[0], kind=kind.value)
            # Its job ends with this failure, where operators see it. A shelf without a key has no event.
            return [] if kind is Kind.SHELVE else [self.event(kind, numbers[0], "")]
        return [
            self.event(kind, number, content.version_key)
            for number, content in sorted(contents.items())
            if _is_inside(content.paths, self.allow_list, literal_names=self.listing.literal_names)
        ]


class SubmittedChanges(_Server):
    """Submitted changes below the paths of the configured ceiling.

    They are listed by `changes -s submitted -e N -r`.
    """

    name = "perforce submitted"

    def steps(self, before: Position | None) -> Iterator[StreamStep]:
        """Yield the submits above the position, and again those just below it.

        A new installation begins at the newest submit, or at the newest one with a trigger.
        """
        paths = _depot_lines()
        if not paths:
            return
        if before is None:
            start = self._begin(paths)
            before = Position(str(start), {"floor": start})
            yield StreamStep((), _at(before))
        place, floor = int(before.place), int(before.state["floor"])
        first = max(floor, place - LOOK_BACK) + 1
        numbers = self.listing.submitted_from(first, paths, PER_RUN)
        for chunk in _chunks(numbers):
            unknown = source_events.unannounced(Kind.CHANGE, map(str, chunk))
            events = self.events(Kind.CHANGE, [number for number in chunk if str(number) in unknown])
            place = max(place, chunk[-1])
            yield StreamStep(tuple(events), _at(Position(str(place), before.state)), len(chunk))

    def _begin(self, paths: Sequence[str]) -> int:
        backfill = settings.SOURCE_POLL_BACKFILL
        newest = self.listing.newest_submitted(paths, max(1, backfill))
        if backfill:
            return newest[-1] - 1 if newest else 0
        reported = source_events.newest_submit()
        at_most = newest[0] if newest else 0
        return at_most if reported is None else min(reported, at_most)


class ShelvedChanges(_Server):
    """The newest shelves and those with a recent trigger, compared by the keys of their content."""

    name = "perforce shelved"

    def steps(self, before: Position | None) -> Iterator[StreamStep]:
        """Yield the shelves whose content has changed."""
        newest = self.listing.shelved(SHELVES)
        lowest = newest[-1] if len(newest) == SHELVES else 0
        triggered = set(source_events.recent_shelves(SHELF_DAYS, TRIGGERED_SHELVES))
        listed = sorted({*newest, *triggered})
        if before is None:
            # Shelves older than the poll are saved, not reviewed: all of them, before any is news.
            yield self._begin(listed, {*triggered, *newest[: settings.SOURCE_POLL_BACKFILL]}, lowest)
            return
        known: Mapping[str, str] = before.state["keys"]
        kept = {number: key for number, key in known.items() if int(number) in {*listed}}
        for chunk in _chunks(listed):
            changed = [
                event
                for event in self.events(Kind.SHELVE, chunk)
                if known.get(event.changelist_id) != event.version_key
            ]
            # Not an old one that is listed because newer ones were deleted.
            news = [
                event
                for event in changed
                if int(event.changelist_id) in triggered
                or event.changelist_id in known
                or int(event.changelist_id) >= int(before.state["lowest"])
            ]
            kept |= {event.changelist_id: event.version_key for event in changed if event not in news}
            yield StreamStep(tuple(news), functools.partial(_with_keys, kept, lowest), len(chunk))
        if not listed:
            yield StreamStep((), functools.partial(_with_keys, kept, lowest))

    def _begin(self, listed: Sequence[int], news: set[int], lowest: int) -> StreamStep:
        events = [event for chunk in _chunks(listed) for event in self.events(Kind.SHELVE, chunk)]
        old = [event for event in events if int(event.changelist_id) not in news]
        kept = {event.changelist_id: event.version_key for event in old}
        new = tuple(event for event in events if event not in old)
        return StreamStep(new, functools.partial(_with_keys, kept, lowest), len(listed))


def _with_keys(kept: dict[str, str], lowest: int, events: Sequence[Event]) -> Position:
    """Save the content keys of shelves; later steps of the run continue with them."""
    kept |= {event.changelist_id: event.version_key for event in events}
    return Position("", {"keys": dict(kept), "lowest": lowest})


def _depot_lines() -> list[str]:
    """Return the ceiling's including lines as arguments for `changes`.

    Lines of repositories are left out.
    """
    lines = (line.strip() for line in settings.DEPOT_ALLOW_LIST)
    repositories = set(settings.GIT_REPOSITORIES)
    return [line for line in lines if not line.startswith("-") and line[2:].split("/")[0] not in repositories]


# -- git ---------------------------------------------------------------------------------------


class Commits:
    """The commits of one branch of a local repository, along first parents."""

    dependency = None

    def __init__(self, repository: str, branch: str) -> None:
        self.repository = repository
        self.branch = branch
        self.name = f"git {repository} {branch}"

    def steps(self, before: Position | None) -> Iterator[StreamStep]:
        """Yield the commits after the one at the position, oldest first."""
        source = git_source(self.repository, config.sources())
        head = source.head(self.branch)
        if before is None:
            shas = self._begin(source, head)
        else:
            commits = source.commits(head, after=before.place)
            if commits is None:
                # History was rewritten and the old commit is gone: what is new is unknown.
                log.warning("poll_position_lost", stream=self.name)
                yield StreamStep((), _at(Position(head)))
                return
            shas = commits
        if not shas and (before is None or before.place != head):
            yield StreamStep((), _at(Position(head)))
        allow_list = config.allow_list()
        for chunk in _chunks(shas[:PER_RUN]):
            unknown = source_events.unannounced(Kind.COMMIT, map(self._id, chunk))
            events = [self._event(source, sha, allow_list) for sha in chunk if self._id(sha) in unknown]
            found = tuple(event for event in events if event is not None)
            yield StreamStep(found, _at(Position(chunk[-1])), len(chunk))

    def _begin(self, source: GitSource, head: str) -> list[str]:
        if not settings.SOURCE_POLL_BACKFILL:
            return []
        return source.commits(head, after=None, count=settings.SOURCE_POLL_BACKFILL) or []

    def _event(self, source: GitSource, sha: str, allow_list: AllowList) -> Event | None:
        event = Event(
            Kind.COMMIT,
            self._id(sha),
            self.repository,
            recipients=config.default_recipients(),
            requested_by=f"poll:{self.repository}",
        )
        try:
            listed = source.describe(event.changelist_id)
        except PermanentFailure as failure:
            if _is_too_large(failure):
                return event  # its job ends with this failure, where operators see it
            raise
        paths = [file.path for file in listed.files]
        is_inside = _is_inside(paths, allow_list, literal_names=source.literal_names)
        return replace(event, version_key=listed.version_key) if is_inside else None

    def _id(self, sha: str) -> str:
        return f"git:{self.repository}@{sha}"


def _is_inside(paths: Iterable[str], allow_list: AllowList, *, literal_names: bool) -> bool:
    """Return whether a trigger for the allow-list's paths would have posted the change.

    A change with files outside as well becomes a job, which the fetch then denies.
    """
    return any(allow_list.decide(path, literal_names=literal_names).allowed for path in paths)


def _is_too_large(failure: PermanentFailure) -> bool:
    """Return whether the listing was over our limit or the account's.

    A smaller one may work then.
    """
    return (
        failure.error_class is ErrorClass.POLICY_REJECTED or failure.context.get("outcome") == Outcome.SPLIT
    )


def _at(position: Position) -> Callable[[Sequence[Event]], Position]:
    return lambda events: position


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), PER_STEP):
        yield items[start : start + PER_STEP]
