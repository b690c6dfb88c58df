"""Results of the team's linters: shown to the model as known, and not found again (G433).

results on changed lines ─► lines of their part's request, "already reported"
                        └─► a finding that says the same near the same line is dropped
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from criticizer.redaction import RedactedText
from reviews.reviewers.base import Fate, Fated, Finding, FindingSeverity, Side
from reviews.reviewers.chunks import Chunk, tokens
from reviews.reviewers.merging import telling_words

MAX_SHOWN, MAX_SHOWN_CHARS = 30, 1_500  # of one part
NEAR_LINES = 3
# Share of a result's telling words in a finding that says the same: on its very lines, and near them. Of
# recorded remarks on different defects of a change, 4 % and 1 % share so much with each other.
MIN_SAID, MIN_SAID_NEAR = 0.6, 0.75
MIN_COMMON = 2
SAID_BY_LINTER = "reported_by_linter"


@dataclass(frozen=True, slots=True)
class Reported:
    """A linter's result on changed lines of the file with this index.

    `shown` has all of it but the path.
    """

    file: int
    line: int
    end_line: int
    rule: str
    message: str
    shown: RedactedText


def with_reported(
    chunk: Chunk, reported: Sequence[Reported], room: int, paths: Sequence[RedactedText]
) -> Chunk:
    """Return a part with the results of linters about its files.

    The last blocks of its context make room for them. `room` is how many tokens of a request its hunks leave.
    """
    lines: list[RedactedText] = []
    characters = min(MAX_SHOWN_CHARS, int(2 * room))
    for one in [one for one in reported if one.file in chunk.files][:MAX_SHOWN]:
        line = RedactedText.template(
            f"F{one.file + 1} {{path}} {{shown}}", path=paths[one.file], shown=one.shown
        )
        characters -= len(line) + 1
        if characters < 0:
            break
        lines.append(line)
    if not lines:
        return chunk
    left = room - sum(tokens(line) for line in lines)
    context = list(chunk.context)
    while context and sum(tokens(block) + 1 for block in context) > left:
        context.pop()
    return replace(chunk, context=tuple(context), reported=tuple(lines))


def without_reported(
    findings: Sequence[Finding], reported: Sequence[Reported], paths: Sequence[str]
) -> tuple[tuple[Finding, ...], tuple[Fated, ...]]:
    """Return the findings that no linter reported, and the fates of the others.

    Critical findings stay.
    """
    of_file: dict[str, list[Reported]] = {}
    for one in reported:
        of_file.setdefault(paths[one.file], []).append(one)
    kept: list[Finding] = []
    dropped: list[Fated] = []
    for finding in findings:
        if _is_known(finding, of_file):
            dropped += finding.fates(Fate.DROPPED, SAID_BY_LINTER)
        else:
            kept.append(finding)
    return tuple(kept), tuple(dropped)


def _is_known(finding: Finding, of_file: Mapping[str, Sequence[Reported]]) -> bool:
    is_models = finding.source == "llm" and finding.side is Side.NEW and finding.line is not None
    if not is_models or finding.severity is FindingSeverity.CRITICAL or finding.file not in of_file:
        return False
    text = f"{finding.title} {finding.message}"
    return any(_says(text, one, least) for one in of_file[finding.file] if (least := _least(finding, one)))


def _least(finding: Finding, one: Reported) -> float:
    """Return the share of a result that a finding must say at its distance; 0 if too far."""
    assert finding.line is not None
    last = max(finding.line, finding.end_line or 0)
    distance = max(0, finding.line - one.end_line, one.line - last)
    if distance > NEAR_LINES:
        return 0
    return MIN_SAID_NEAR if distance else MIN_SAID


def _says(text: str, one: Reported, least: float) -> bool:
    """Return whether a text names the rule of a linter's result, or says most of its words."""
    is_telling = any(char.isdigit() for char in one.rule) or "-" in one.rule
    if is_telling and len(one.rule) > 3 and one.rule.casefold() in text.casefold().split():
        return True
    own = telling_words(one.message)
    common = own & telling_words(text)
    return len(common) >= MIN_COMMON and len(common) >= least * len(own)
