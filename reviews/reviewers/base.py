"""Types of reviewers: a change in, findings and coverage out.

Adapters import no models and no settings. Reviewers that talk to a model accept only
`RedactedText` (guarantee G90).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


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


MAX_EXCERPT_CHARS = 400  # of a line


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
    evidence: tuple[str, ...] = ()  # paths of other files it rests on: who may not read them does not see it

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

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.repaired + other.repaired,
            self.failed_chunks + other.failed_chunks,
            self.coerced + other.coerced,
            self.dropped + other.dropped,
            self.cut + other.cut,
            self.characters + other.characters,
        )


@dataclass(frozen=True, slots=True)
class Review:
    """Outcome of the llm stage. `banner` says plainly what did not run, or is empty."""

    findings: tuple[Finding, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    banner: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    asked: str = ""  # the configured name of the model that gave every answer, if one did
