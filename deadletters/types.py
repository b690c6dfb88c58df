"""Data classes of the dead letters: results of steps, checks of a replay, edits of data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from criticizer.inert_links import web_link
from deadletters.states import EventSource

if TYPE_CHECKING:
    from deadletters.models import DeadLetter


class Actor(str):
    """Name of the actor of a step, with its source; a plain string is an operator's name."""

    __slots__ = ("source",)
    source: EventSource

    def __new__(cls, name: str, source: EventSource) -> Self:
        actor = super().__new__(cls, name)
        actor.source = source
        return actor


SYSTEM = Actor("criticizer", EventSource.SYSTEM)
GONE = "it no longer exists"


def source_of(actor: str) -> EventSource:
    """Return the source of an actor."""
    return actor.source if isinstance(actor, Actor) else EventSource.OPERATOR


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a step; `message` is one sentence for the operator."""

    ok: bool
    message: str


NO_REASON = Result(False, "a reason is required: a ticket or a sentence")


class CheckKind(StrEnum):
    """Kind of a check, by what it looks at; code branches on it.

    The value is stored, and shown with the subject.
    """

    JOB = "job"
    VERSION = "version"
    ARTIFACT = "artifact"
    ARTIFACT_OPENS = "artifact opens"
    ARTIFACT_OR_SOURCE = "artifact or source"
    SOURCE = "source"
    ALLOW_LIST = "allow-list"
    DELIVERIES = "deliveries"
    CIRCUIT = "circuit"
    ANSWER = "answers"
    STAGE = "stage"
    CHANGE = "change"
    FINDINGS = "findings"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check. `message` is one redacted sentence for people; no code reads it.

    `subject` is the dependency it is about, if any. `is_hard`: no reason overrules it, the replay could
    not work. `is_waiting`: there is no answer yet. `is_waited_for`: it ends by itself, and a replay waits
    for that without using an attempt. `is_left`: the replay checks it; `ok` then says nothing.
    """

    kind: CheckKind
    ok: bool
    message: str
    subject: str = ""
    is_hard: bool = False
    is_waiting: bool = False
    is_waited_for: bool = False
    is_left: bool = False

    @property
    def name(self) -> str:
        """Return what people call it: "circuit llm:openai"."""
        return f"{self.kind} {self.subject}".rstrip()

    def stored(self) -> dict[str, Any]:
        """Return its JSON; checks stored before there were kinds have the name without a kind."""
        return {**asdict(self), "name": self.name}


@dataclass(frozen=True, slots=True)
class Validation:
    """Outcome of a step that runs checks, with the checks."""

    ok: bool
    message: str
    checks: tuple[Check, ...] = ()
    is_escalated: bool = False  # the step escalated the letter

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.ok)

    @property
    def is_waiting(self) -> bool:
        """Return whether every failed check may still pass by itself."""
        return bool(self.failed) and all(check.is_waiting for check in self.failed)


@dataclass(slots=True)
class Tally:
    """Outcome of a step on a set of letters: which it moved, and why not the others."""

    done_ids: list[int] = field(default_factory=list)
    skipped_ids: dict[int, str] = field(default_factory=dict)  # letter -> reason
    escalated: int = 0  # letters whose replay has no effect: neither done nor skipped

    @property
    def done(self) -> int:
        return len(self.done_ids)

    @property
    def skipped(self) -> dict[str, int]:
        """Return how many letters were skipped for each reason."""
        return dict(Counter(self.skipped_ids.values()))

    def skip_missing(self, wanted: Iterable[int], found: Iterable[DeadLetter]) -> None:
        """Skip the letters that do not exist."""
        self.skipped_ids |= dict.fromkeys(set(wanted) - {letter.pk for letter in found}, GONE)

    def add(self, part: Tally) -> None:
        """Count a part of the set into this tally."""
        self.done_ids += part.done_ids
        self.skipped_ids |= part.skipped_ids


@dataclass(frozen=True, slots=True)
class LetterDraft:
    """Facts about a failed stage, already redacted: the letter, its payload and its fingerprint."""

    job_id: int
    stage: str
    error_class: str
    code: str
    severity: str
    retryable: bool
    detail: str
    last_stack: str
    sanitized_context: Mapping[str, Any]
    payload_reference: str
    attempts: int
    first_failure_at: datetime
    last_failure_at: datetime
    source: str = ""  # the dependency, as circuits name it


@dataclass(frozen=True, slots=True)
class Failed:
    """The failed stage of a job, as the port takes it."""

    job_id: int
    stage: str


class FieldKind(StrEnum):
    """Kind of a part of a job's data: it cannot be edited, or only with the password."""

    LOCKED = "locked"  # never: it identifies or deduplicates the request
    SENSITIVE = "sensitive"  # it decides who reads what: editing asks for the password again


@dataclass(frozen=True, slots=True)
class DataField:
    """A part of a job's data. `help` says why it is locked, or what editing it does."""

    name: str
    label: str
    value: tuple[str, ...]  # its lines
    kind: FieldKind
    help: str


class WrongData(ValueError):
    """An invalid value for a job's data; the message is a sentence for the operator."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Change:
    """An edit of a job's data: {field: lines} of the fields that are not locked."""

    before: Mapping[str, Sequence[str]]
    after: Mapping[str, Sequence[str]]

    def added(self, field: str) -> list[str]:
        """Return the lines that a field gains."""
        return [line for line in self.after[field] if line not in self.before.get(field, ())]

    def removed(self, field: str) -> list[str]:
        """Return the lines that a field loses."""
        return [line for line in self.before.get(field, ()) if line not in self.after[field]]


def link_problem(link: str, name: str) -> str:
    """Return why a stripped link cannot be kept, or an empty string."""
    if not link or web_link(link):
        return ""
    return f"{name} must begin with https:// or http://"
