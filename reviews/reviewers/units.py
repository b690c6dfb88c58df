"""Review units: pieces of changes whose answers are reused (guarantees G360 and G361).

A unit is one file of a change, or some hunks of a file too long for one request, with the context that it
would be shown alone. Its key is a digest of all that decides the answer about it, so that an equal unit of
another version, or of another change, is not sent again.

    units ─► keys ─► stored? ── yes ─► findings, put on their lines again or dropped
                        └─ no ─► packed into parts ─► model ─► findings, stored by unit

A model sees the other files of a part too. A unit with a finding that names something of them is not stored.
What a model concluded from them without naming it cannot be seen: so a submitted change is sent again, and
any change on request.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from reviews.reviewers.base import (
    Fate,
    Fated,
    Finding,
    RawId,
    Side,
    Usage,
)
from reviews.reviewers.chunks import Chunk, ContextBlock, ShownHunk, path_rank, tokens
from reviews.reviewers.definition_context import MAX_PATH_CHARS, best_of, needed_of, place_of
from reviews.reviewers.evidence import lines_of
from reviews.reviewers.instructions import FINDER_VERSION, VERIFIER_VERSION
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import file_tokens
from reviews.reviewers.rules import ShownRule, rules_of
from reviews.sources.passes import Passes

FORMAT = 4  # raise with every change of what is stored
LEAST_CONTEXT_TOKENS = 600  # of a unit that is asked about without the rest of its change
_IDS = re.compile(r"(?<!\w)(?:F\d+(?:H\d+)?|C\d+)(?!\w)")
_WORDS = re.compile(r"[\w$@./-]{3,}")
_TELLING = re.compile(r"[\d_/@$.]|[a-z][A-Z]")  # in a name, an address or a path, not in prose


@dataclass(frozen=True, slots=True)
class KnownUnit:
    """Findings of an earlier review in an equal unit; `review` tells people of that review."""

    findings: Sequence[Mapping[str, Any]]
    model: str
    input_tokens: int
    review: str


@dataclass(frozen=True, slots=True)
class AnsweredUnit:
    """Findings of a review in a unit, to be stored under its key.

    `input_tokens` is the unit's share of the cost.
    """

    key: str
    findings: Sequence[Mapping[str, Any]]
    model: str
    input_tokens: int


@dataclass(frozen=True, slots=True)
class Carried:
    """Results taken over from earlier reviews; `reviews` says, by file, which review it was."""

    chunk: Chunk = Chunk(())  # noqa: RUF009 - frozen
    findings: tuple[Finding, ...] = ()
    dropped: tuple[Fated, ...] = ()
    models: tuple[str, ...] = ()
    reviews: Mapping[int, str] = field(default_factory=dict)
    usage: Usage = Usage()  # noqa: RUF009 - frozen


def keys_of(
    prepared: Prepared,
    limits: ReviewLimits,
    model: str,
    verifier: str,
    passes: Passes = Passes(),  # noqa: B008 - does not change
    second: str = "",
) -> tuple[str, ...]:
    """Return the key of each unit of a change.

    `verifier` is the model that judges, `second` that of every other of the `passes`; "" where there is none.
    """
    deciding = [
        FORMAT,
        FINDER_VERSION,
        model,
        VERIFIER_VERSION if verifier else "",
        verifier,
        limits.max_input_tokens,
        limits.max_findings_per_chunk,
        limits.context_share,
        limits.is_compact,
        prepared.is_crowded,
    ]

    def of_passes(unit: Chunk) -> list[object]:
        count = passes.of(prepared.paths[unit.hunks[0].file])
        return [count, second] if count > 1 else []

    return tuple(_digest([*deciding, *_content(prepared, unit), *of_passes(unit)]) for unit in prepared.units)


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _content(prepared: Prepared, unit: Chunk) -> list[object]:
    """Return all that a unit shows, but of paths only name and kind: a copy has other folders."""
    entry = prepared.text.manifest[unit.hunks[0].file]
    context = [(posixpath.basename(_path_of(block)), lines_of(block)) for block in unit.context]
    path = entry.path.text
    # Of a file of rules, its text: that of a copy is in another folder.
    rules = [
        ("" if rule.path else rule.id, rule.severity, rule.text.text) for rule in _rules_of(prepared, unit)
    ]
    reported = [one.shown.text for one in prepared.reported if one.file in unit.files]
    known = [reported] if reported else []
    return [posixpath.basename(path), path_rank(path), entry.action, _texts(unit), context, rules, *known]


def _rules_of(prepared: Prepared, chunk: Chunk) -> tuple[ShownRule, ...]:
    return rules_of(prepared.text.rules, chunk.files)


def _texts(unit: Chunk) -> list[str]:
    """Return the text of the hunks without their ids, which count the files of the change."""
    return [hunk.text.text.removeprefix(f"[{hunk.name}]") for hunk in unit.hunks]


def _path_of(block: ContextBlock) -> str:
    return place_of(block).rpartition(":")[0]


def packed(prepared: Prepared, units: Sequence[int], share: float) -> tuple[Chunk, ...]:
    """Return the parts that ask about these units; for all units, those of the whole change.

    `share` is the part of a full request that is for context.
    """
    if len(units) == len(prepared.units):
        return prepared.chunks
    asked = [prepared.units[index] for index in units]
    parts = _filled(prepared, (_as_asked(prepared, unit, share) for unit in asked))
    if len(parts) > len(prepared.chunks):  # with their context they need more requests than the whole change
        parts = _filled(prepared, (Chunk(unit.hunks) for unit in asked))
    return parts


def _filled(prepared: Prepared, units: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """Return parts of units in their order, each as full as the room of a request lets it be."""
    names = [file_tokens(entry) for entry in prepared.text.manifest]
    parts: list[Chunk] = []
    blocks: dict[str, ContextBlock] = {}  # of the last part, by their text
    files: set[int] = set()
    used = 0
    for unit in units:
        if parts:
            new = {block.text.text: block for block in unit.context if block.text.text not in blocks}
            named = {
                text: replace(block, name=f"C{number}")
                for number, (text, block) in enumerate(new.items(), start=len(blocks) + 1)
            }
            more = _cost(unit.hunks, named.values()) + sum(names[file] for file in {*unit.files} - files)
            if used + more <= prepared.room:
                blocks |= named
                files.update(unit.files)
                used += more
                parts[-1] = Chunk((*parts[-1].hunks, *unit.hunks), tuple(blocks.values()))
                continue
        parts.append(unit)
        blocks = {block.text.text: block for block in unit.context}
        files = {*unit.files}
        used = _cost(unit.hunks, unit.context) + sum(names[file] for file in files)
    return tuple(parts)


def _as_asked(prepared: Prepared, unit: Chunk, share: float) -> Chunk:
    """Return a unit with the context that it needs, and with more where that is little."""
    needed = needed_of(unit, room_beside(prepared, unit), share)
    floor = best_of(unit, min(room_beside(prepared, unit), LEAST_CONTEXT_TOKENS))
    return Chunk(unit.hunks, max(needed, floor, key=len))


def room_beside(prepared: Prepared, unit: Chunk) -> int:
    """Return how many tokens the hunks of a unit or part leave in a request."""
    names = sum(file_tokens(prepared.text.manifest[file]) for file in unit.files)
    return prepared.room - _cost(unit.hunks, ()) - names


def _cost(hunks: Iterable[ShownHunk], blocks: Iterable[ContextBlock]) -> int:
    return sum(tokens(hunk.text) for hunk in hunks) + sum(tokens(block) + 1 for block in blocks)


def carried(prepared: Prepared, known: Mapping[int, KnownUnit]) -> Carried:
    """Return the results for units of a change that are known by their index.

    All raw findings are of part 0.
    """
    findings: list[Finding] = []
    dropped: list[Fated] = []
    hunks: list[ShownHunk] = []
    for index, answer in known.items():
        unit = prepared.units[index]
        hunks += unit.hunks
        for stored in answer.findings:
            raw = RawId(0, 1, len(findings) + len(dropped))
            finding = _restored(stored, prepared, unit, raw)
            if _is_on_its_line(finding, unit):
                findings.append(finding)
            else:
                dropped += finding.fates(Fate.DROPPED, "quote_gone")
    asked = {unit.hunks[0].file for index, unit in enumerate(prepared.units) if index not in known}
    reviews = {prepared.units[index].hunks[0].file: answer.review for index, answer in known.items()}
    return Carried(
        Chunk(tuple(hunks)),
        tuple(findings),
        tuple(dropped),
        tuple(dict.fromkeys(answer.model for answer in known.values())),
        {file: review for file, review in reviews.items() if file not in asked},
        Usage(carried=len(known), spared_tokens=sum(answer.input_tokens for answer in known.values())),
    )


def _restored(stored: Mapping[str, Any], prepared: Prepared, unit: Chunk, raw: RawId) -> Finding:
    """Return a stored finding with the paths that its file and its rule have in this change."""
    own = {
        "file": prepared.paths[unit.hunks[0].file],
        "rule": "",
        "evidence": [unit.context[place].path for place in stored["evidence"]],
        "raw": raw,
        "merges": (),
        "carried": True,
    }
    finding = Finding.of({**stored, **own})
    if stored["rule"] is None:
        return finding
    return finding.citing(_rules_of(prepared, unit)[stored["rule"]].name)


def _is_on_its_line(finding: Finding, unit: Chunk) -> bool:
    return finding.line is None or any(
        (line.side, line.number, line.text) == (finding.side, finding.line, finding.quote)
        for hunk in unit.hunks
        for line in hunk.lines
    )


def answered(
    prepared: Prepared,
    keys: Mapping[int, str],
    parts: Sequence[tuple[Chunk, str, int]],
    findings: Sequence[Finding],
    share: float,
) -> Iterator[AnsweredUnit]:
    """Yield the units that can be stored, of those with these keys by their index.

    `share` is the part of a full request that is for context. `parts` were answered in full: chunk, model and
    input tokens. `findings` are those of the model that remained; a unit with one that must not be kept may
    not be among the keys.
    """
    if not keys:
        return
    names = {hunk.name: place for place, (chunk, *_) in enumerate(parts) for hunk in chunk.hunks}
    own = _by_unit(prepared, findings)
    for index, key in keys.items():
        unit = prepared.units[index]
        if not all(hunk.name in names for hunk in unit.hunks):
            continue
        places = dict.fromkeys(names[hunk.name] for hunk in unit.hunks)
        around = [parts[place] for place in places]
        found = own.get(index, [])
        rules = _rules_of(prepared, unit)
        if not all(set(rules).issubset(_rules_of(prepared, chunk)) for chunk, *_ in around):
            continue  # it was asked about without some of them
        needed = () if prepared.is_crowded else needed_of(unit, room_beside(prepared, unit), share)
        if not _shows(prepared, [chunk for chunk, *_ in around], needed):
            continue
        if found and not _stands_alone(prepared, unit, [chunk for chunk, *_ in around], found):
            continue
        yield AnsweredUnit(
            key,
            [_stored(finding, unit, rules) for finding in found],
            around[0][1],
            sum(spent * _chars(chunk, unit) // _chars(chunk, chunk) for chunk, _, spent in around),
        )


def _shows(prepared: Prepared, around: Sequence[Chunk], needed: Sequence[ContextBlock]) -> bool:
    """Return whether these parts show all needed definitions, as blocks or in hunks."""
    paths = [entry.path.truncated(MAX_PATH_CHARS).text for entry in prepared.text.manifest]
    shown = {place_of(block) for chunk in around for block in chunk.context} | {
        f"{paths[hunk.file]}:{line.number}"
        for chunk in around
        for hunk in chunk.hunks
        for line in hunk.lines
        if line.side is Side.NEW
    }
    return all(place_of(block) in shown for block in needed)


def _chars(chunk: Chunk, unit: Chunk) -> int:
    names = {hunk.name for hunk in unit.hunks}
    return sum(len(hunk.text) for hunk in chunk.hunks if hunk.name in names)


def _by_unit(prepared: Prepared, findings: Sequence[Finding]) -> Mapping[int, list[Finding]]:
    """Return findings by the index of the unit that holds their line, or begins their file."""
    lines: dict[tuple[str, Side, int], int] = {}
    first: dict[str, int] = {}
    for index, unit in enumerate(prepared.units):
        path = prepared.paths[unit.hunks[0].file]
        first.setdefault(path, index)
        lines |= {(path, line.side, line.number): index for hunk in unit.hunks for line in hunk.lines}
    found: dict[int, list[Finding]] = {}
    for finding in findings:
        place = None if finding.line is None else lines.get((finding.file, finding.side, finding.line))
        found.setdefault(first[finding.file] if place is None else place, []).append(finding)
    return found


def _stands_alone(prepared: Prepared, unit: Chunk, around: Sequence[Chunk], found: Sequence[Finding]) -> bool:
    """Return whether findings of a unit name nothing that only other parts of the change show."""
    paths = {block.path for block in unit.context}
    entry = prepared.text.manifest[unit.hunks[0].file]
    own = "\n".join([entry.path.text, *_texts(unit), *(block.text.text for block in unit.context)])
    others = "\n".join(
        [
            prepared.text.description.text,
            *(other.path.text for other in prepared.text.manifest),
            *(hunk.text.text for chunk in around for hunk in chunk.hunks),
            *(block.text.text for chunk in around for block in chunk.context),
        ]
    )
    for finding in found:
        prose = f"{finding.title} {finding.message} {finding.suggestion}"
        words = [word.strip(".-/") for word in _WORDS.findall(prose)]
        foreign = any(w not in own and w in others for w in words if _TELLING.search(w))
        if (
            foreign
            or not paths.issuperset(_of_context(finding))
            or set(_IDS.findall(prose)) - set(_IDS.findall(own))
        ):
            return False
    return True


def _of_context(finding: Finding) -> list[str]:
    return [path for path in finding.evidence if path != finding.rule]


def _stored(finding: Finding, unit: Chunk, rules: Sequence[ShownRule]) -> dict[str, Any]:
    paths = [block.path for block in unit.context]
    cited = next((place for place, rule in enumerate(rules) if rule.name == finding.rule), None)
    kept = asdict(finding)
    for name in ("file", "raw", "merges", "carried"):
        del kept[name]
    evidence = [paths.index(path) for path in _of_context(finding)]
    return {**kept, "evidence": evidence, "rule": cited, "said": finding.report_count}
