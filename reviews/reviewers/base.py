"""Types of reviewers: a change in, findings and coverage out.

Adapters import no models and no settings. Reviewers that talk to a model accept only
`RedactedText` (guarantee G90).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple


class FindingSeverity(StrEnum):
    CRITICAL = "critical"  # data loss, exploitable, crash on the main path
    HIGH = "high"  # wrong result in normal use
    MEDIUM = "medium"  # wrong in a plausible edge case
    LOW = "low"  # maintenance


SEVERITY_ORDER = {severity: rank for rank, severity in enumerate(FindingSeverity)}


class Side(StrEnum):
    NEW = "new"
    OLD = "old"


class CoverageStatus(StrEnum):
    REVIEWED = "reviewed"  # checks and model read all of it
    CHECKED = "checked"  # only the deterministic checks read it
    PARTIAL = "partial"  # the model read some chunks; reason says what is missing
    SKIPPED = "skipped"  # the content was not read; reason says why


class Stopped(StrEnum):
    """Reason why a review ended before its last part (guarantee G385)."""

    ENDED = "ended"  # its job ended; the job's status says how
    TIMED_OUT = "timed_out"  # the soft deadline passed; the job continues with the reviewed parts
    OVER_LIMIT = "over_limit"  # a token limit was reached; the job continues with the reviewed parts
    UNANSWERED = "unanswered"  # agents of the customer did not answer every part in time


MAX_EXCERPT_CHARS = 400  # of a line


class Verification(StrEnum):
    NOT_ASKED = ""  # findings of checks, and reviews without a second pass
    CONFIRMED = "confirmed"
    UNVERIFIED = "unverified"  # the second pass was unsure, or did not answer


class RawId(NamedTuple):
    """Name of a raw finding: `part` counts from 1 (0: the checks), `turn` is the pass, from 1."""

    part: int
    turn: int
    place: int  # in the answer, from 0


class Fate(StrEnum):
    """End of a raw finding; each one ends in exactly one way (guarantee G155)."""

    SHOWN = "shown"
    FOLDED = "folded"  # shown behind a fold: over the budget, or neither confirmed nor severe
    DEMOTED = "demoted"  # shown without a line: its quote is not in the change
    MERGED = "merged"  # says the same as another one
    REFUTED = "refuted"  # by a line that was sent
    DROPPED = "dropped"  # could not be used; the reason is a word such as `unknown_file`
    DISMISSED = "dismissed"  # by a person, in an earlier version
    SUPPRESSED = "suppressed"  # not shown, by the repository's configuration; the reason says by which rule
    CARRIED = "carried"  # taken over from an earlier version


@dataclass(frozen=True, slots=True)
class Fated:
    """The end of one raw finding; its reason is a fixed word, or a sentence if refuted."""

    raw: RawId
    fate: Fate
    reason: str = ""
    file: str = ""
    line: int | None = None
    severity: str = ""
    title: str = ""
    into: RawId | None = None  # of a merged one: the finding into which it was merged


@dataclass(frozen=True, slots=True)
class Edit:
    """Replacement of lines on the new side of a file (guarantee G430).

    It is a candidate, or proven to fit. `lines` stand in the file from number `start` on; `new` replaces
    `lines[first:end]`.
    """

    start: int
    lines: tuple[str, ...]
    first: int
    end: int
    new: tuple[str, ...]

    @classmethod
    def of(cls, start: int, lines: Sequence[str], first: int, end: int, new: Sequence[str]) -> Edit:
        return cls(start, tuple(lines), first, end, tuple(new))


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark on a change.

    `line` and `end_line` count from 1 on `side`; None means the finding is about the file
    as a whole. `source` is `check:<name>` or `llm`. All text is plain, already redacted.
    """

    file: str
    severity: FindingSeverity
    category: str
    title: str
    message: str
    source: str = ""
    line: int | None = None
    end_line: int | None = None
    side: Side = Side.NEW
    suggestion: str = ""
    quote: str = ""
    confidence: int | None = None
    demoted: bool = False  # the quote was not found in the diff: shown without a line
    excerpt: tuple[tuple[int | None, str, str], ...] = ()  # (line, ' ' '+' or '-', redacted text)
    evidence: tuple[str, ...] = ()  # paths of other files; only readers of all of them see it
    raw: RawId | None = None
    merges: tuple[RawId, ...] = ()  # raw findings that say the same
    verification: Verification = Verification.NOT_ASKED
    folded: str = ""  # why it is behind a fold, or ""
    carried: bool = False  # taken over from an earlier review of the same content
    edit: Edit | None = None  # what its suggestion does, to be proven before it is stored
    said: int = 1  # answers of an earlier review that reported it
    rule: str = ""  # what it cites: the name of a team's rule, or the path of a file of rules

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Finding:
        """Return the finding with these fields, given as JSON has them."""
        typed = {
            "severity": FindingSeverity(fields["severity"]),
            "side": Side(fields["side"]),
            "verification": Verification(fields["verification"]),
            "excerpt": tuple(map(tuple, fields["excerpt"])),
            "evidence": tuple(fields["evidence"]),
            "raw": RawId(*fields["raw"]) if fields["raw"] else None,
            "merges": tuple(RawId(*raw) for raw in fields["merges"]),
            "edit": Edit.of(**fields["edit"]) if fields["edit"] else None,
        }
        return cls(**{**fields, **typed})

    @property
    def report_count(self) -> int:
        """Return how many answers report it; the checks count as one."""
        return max(
            self.said, len({(raw.part, raw.turn) for raw in (self.raw, *self.merges) if raw is not None})
        )

    @property
    def is_of_checks(self) -> bool:
        return self.source != "llm" or any(raw.part == 0 for raw in self.merges)

    def fates(self, fate: Fate, reason: str = "") -> tuple[Fated, ...]:
        """Return the fates of this finding and of those that were merged into it."""
        assert self.raw is not None
        where = (self.file, self.line, self.severity)
        merged = (Fated(raw, Fate.MERGED, "", *where, into=self.raw) for raw in self.merges)
        return (Fated(self.raw, fate, reason, *where, self.title), *merged)

    def citing(self, rule: str) -> Finding:
        """Return this finding with the rule it cites.

        A file of rules is evidence, as not everybody may see it.
        """
        is_other = rule.startswith("//") and rule not in (self.file, *self.evidence)
        return replace(self, rule=rule, evidence=(*self.evidence, rule) if is_other else self.evidence)

    def at(self, line: int | None, end_line: int | None = None) -> Finding:
        return replace(self, line=line, end_line=end_line if end_line is not None else line)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of one file of the change. `reason` is one short sentence or empty."""

    file: str
    status: CoverageStatus
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Cost of the model calls of one review."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    repaired: int = 0
    failed_chunks: int = 0
    coerced: int = 0  # values that were written in another form than asked for
    dropped: int = 0  # findings that could not be used
    cut: int = 0  # requests that the model server cut
    characters: int = 0  # of the requests whose tokens were reported
    verify_calls: int = 0  # of `calls`
    verify_input_tokens: int = 0  # of `input_tokens`
    carried: int = 0  # units that an earlier review answered
    spared_tokens: int = 0  # input tokens that these units cost in the earlier review
    cached_tokens: int = 0  # of `input_tokens`, from the server's cache of prefixes
    cache_write_tokens: int = 0  # of `input_tokens`, put there
    edits: int = 0  # suggestions that name the lines they replace
    edits_refused: int = 0  # of `edits`, shown as text only
    unknown_rules: int = 0  # ids that findings cited but no rule of their file has

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Review:
    """Outcome of the llm stage. `banner` says plainly what did not run, or is empty."""

    findings: tuple[Finding, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    banner: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    sole_model: str = ""  # configured name of the model that gave every answer, if one did
