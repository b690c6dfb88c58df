"""Data classes of the dead letters: results of steps, checks of a replay, edits of a job's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from deadletters.states import EventSource


class Actor(str):
    """Name of whoever takes a step, with what it is; a plain name is an operator's."""

    __slots__ = ("source",)
    source: EventSource

    def __new__(cls, name: str, source: EventSource) -> Self:
        actor = super().__new__(cls, name)
        actor.source = source
        return actor


SYSTEM = Actor("criticizer", EventSource.SYSTEM)


def source_of(actor: str) -> EventSource:
    """Return what acts under a name."""
    return actor.source if isinstance(actor, Actor) else EventSource.OPERATOR


@dataclass(frozen=True, slots=True)
class Result:
    """`message` is one sentence for the operator, whatever `ok` says."""

    ok: bool
    message: str


class CheckKind(StrEnum):
    """What a check looks at: code branches on it. The value is stored, and shown with the subject."""

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
    """A step with checks: whether the step was taken, one sentence, and what was found."""

    ok: bool
    message: str
    checks: tuple[Check, ...] = ()
    is_escalated: bool = False  # what was found escalated the letter

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.ok)

    @property
    def is_waiting(self) -> bool:
        """Whether nothing is missing, and something cannot be there yet."""
        return bool(self.failed) and all(check.is_waiting for check in self.failed)


@dataclass(slots=True)
class Tally:
    """What a step did to a set of letters: how many, and why not the others."""

    verb: str
    done: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # reason -> letters
    done_ids: list[int] = field(default_factory=list)
    skipped_ids: dict[int, str] = field(default_factory=dict)
    escalated: int = 0  # neither done nor left alone: the effect of their replay is missing

    @property
    def ok(self) -> bool:
        return not self.skipped and not self.escalated

    @property
    def message(self) -> str:
        """Return one sentence such as `3 triaged, 1 skipped: it is resolved already`."""
        reasons = "; ".join(f"{count} skipped: {reason}" for reason, count in self.skipped.items())
        return f"{self.done} {self.verb}" + (f", {reasons}" if reasons else "")

    def skip(self, letter_id: int, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        self.skipped_ids[letter_id] = reason


@dataclass(frozen=True, slots=True)
class LetterDraft:
    """The 8.4 payload, already redacted, plus what replay and the fingerprint need."""

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
    """What the port asks about: the failed stage of a job."""

    job_id: int
    stage: str


class FieldKind(StrEnum):
    """Who may change a part of a job's data."""

    LOCKED = "locked"  # nobody: it names or deduplicates what was asked for
    SENSITIVE = "sensitive"  # a change decides who reads what: the password is asked for again


@dataclass(frozen=True, slots=True)
class DataField:
    """A part of a job's data. `help` says why it is locked, or what a change of it does."""

    name: str
    label: str
    value: tuple[str, ...]  # its lines
    kind: FieldKind
    help: str


class WrongData(ValueError):
    """A value that a job cannot have; the message is a sentence for the operator."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of a job's data: {field: lines}, only of fields that are not locked."""

    before: Mapping[str, Sequence[str]]
    after: Mapping[str, Sequence[str]]

    def added(self, field: str) -> list[str]:
        """Return the lines that a field gets."""
        return [line for line in self.after[field] if line not in self.before.get(field, ())]

    def removed(self, field: str) -> list[str]:
        """Return the lines that a field loses."""
        return [line for line in self.before.get(field, ()) if line not in self.after[field]]
