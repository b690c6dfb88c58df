"""Anchors findings to lines by the text they quote.

A finding is shown only on a file that was sent, at a line whose text it quoted, and as plain
text. A finding that cannot be anchored is shown without a line, never at a guessed one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reviews.reviewers.base import (
    MAX_EXCERPT_CHARS,
    SEVERITY_ORDER,
    Fate,
    Fated,
    Finding,
    FindingSeverity,
    RawId,
    Side,
)
from reviews.reviewers.chunks import Chunk, ShownLine
from reviews.reviewers.evidence import evidence_of
from reviews.reviewers.plaintext import plain
from reviews.reviewers.quotes import Place, ShownText
from reviews.reviewers.rules import ShownRule, at_least, cited
from reviews.reviewers.suggestions import edit_of, suggestion_of

MAX_CANDIDATES = 5  # of an ambiguous quote, shown
EXCERPT_LINES = 3  # on either side
EXCERPT_OTHER_LINES = 10  # of what was replaced
LESS_CONFIDENCE, LEAST_CONFIDENCE = 30, 20  # of a finding without evidence
PLACEHOLDER = "<REDACTED"


@dataclass(frozen=True, slots=True)
class Anchored:
    """Findings of one answer, and the fates of those that were dropped."""

    findings: tuple[Finding, ...] = ()
    dropped: tuple[Fated, ...] = ()
    unplaced_edits: int = 0  # of findings that are kept: their lines are not found, or not once
    unknown_rules: int = 0


def anchor(
    answer: Mapping[str, Any],
    chunk: Chunk,
    shown_paths: Mapping[int, str],
    paths: Sequence[str],
    rules: Sequence[ShownRule] = (),
) -> Anchored:
    """Turn a parsed answer into findings of part 1 on the lines of a chunk.

    `shown_paths` maps the chunk's file indexes to the paths the model saw; `paths` are the real ones. The
    module `quotes` decides which text is the same. A quote with several places that nothing tells apart gives
    a finding without a line, which names the places. A finding whose quote has no place keeps its file, loses
    its line and some confidence, and is at most of medium severity (guarantee G201). Context is never a
    place: what a finding takes from it is its evidence (G177). A finding may cite one of `rules` that is for
    its file; its severity is then at least the rule's. Other citations are dropped (G422).
    """
    dropped = [Fated(RawId(1, 1, n), Fate.DROPPED, reason) for n, reason in answer.get("dropped", ())]
    kept: list[Finding] = []
    unplaced = 0
    unknown_rules = 0
    text = ShownText(chunk)
    findings = answer["findings"]
    for number, raw in zip(answer.get("places", range(len(findings))), findings, strict=True):
        name = RawId(1, 1, number)
        index = _file_of(str(raw["file"]), shown_paths)
        if index is None:
            dropped.append(Fated(name, Fate.DROPPED, "unknown_file"))
            continue
        if PLACEHOLDER in raw["quote"]:
            dropped.append(Fated(name, Fate.DROPPED, "redaction_placeholder", paths[index]))
            continue
        evidence = evidence_of(raw, chunk.context, paths[index])
        finding = replace(_finding(raw, paths[index]), evidence=evidence, raw=name)
        if rule_id := raw.get("rule_id"):
            rule = cited(rule_id, rules, index)
            unknown_rules += rule is None
            if rule is not None:
                finding = replace(finding.citing(rule.name), severity=at_least(finding.severity, rule))
        places = text.find(raw, index)
        if not places:
            kept.append(_demoted(finding))
        elif not any(place.line.is_near_change for place in places):
            dropped += finding.fates(Fate.DROPPED, "not_near_a_change")
        else:
            kept.append(_placed(finding, places[0]) if len(places) == 1 else _ambiguous(finding, places))
            hunks = [hunk for hunk in chunk.hunks if hunk.file == index]
            kept[-1] = replace(kept[-1], edit=edit_of(raw, kept[-1], hunks))
            unplaced += kept[-1].edit is None and bool(raw.get("replace") and raw.get("with") is not None)
    return Anchored(tuple(kept), tuple(dropped), unplaced, unknown_rules)


def _placed(finding: Finding, place: Place) -> Finding:
    return replace(
        finding,
        line=place.line.number,
        end_line=place.end.number,
        side=place.text.side,
        quote=place.line.text,
        excerpt=excerpt(place.text.hunk.lines, place.line.number, place.end.number, place.text.side),
    )


def _ambiguous(finding: Finding, places: Sequence[Place]) -> Finding:
    """Return the finding without a line; its message names the lines it may mean."""
    shown = sorted(places, key=lambda place: place.line.number)[:MAX_CANDIDATES]
    *others, last = [str(place.line.number) for place in shown]
    more = f" and {len(places) - len(shown)} more" if len(places) > len(shown) else ""
    named = f"{', '.join([*others, last])}{more}" if more else f"{', '.join(others)} and {last}"
    return replace(
        finding,
        side=shown[0].text.side,
        quote=shown[0].line.text,
        message=f"{finding.message} The quoted text is on lines {named}.",
        excerpt=tuple(
            (place.line.number, place.line.kind, place.line.text[:MAX_EXCERPT_CHARS]) for place in shown
        ),
    )


def _finding(raw: Mapping[str, Any], path: str) -> Finding:
    message = " ".join(filter(None, [plain(raw["problem"]), _trigger(plain(raw.get("trigger") or ""))]))
    return Finding(
        file=path,
        severity=FindingSeverity(raw["severity"]),
        category=raw["category"],
        title=plain(raw["title"]).replace("\n", " ") or raw["category"],
        message=message,
        source="llm",
        suggestion=suggestion_of(raw),
        quote=plain(raw["quote"]),
        confidence=raw["confidence"],
    )


def _trigger(text: str) -> str:
    return f"Trigger: {text}" if text else ""


def _demoted(finding: Finding) -> Finding:
    severity = max(finding.severity, FindingSeverity.MEDIUM, key=SEVERITY_ORDER.__getitem__)
    sure = finding.confidence
    if sure is not None:
        sure = min(sure, max(sure - LESS_CONFIDENCE, LEAST_CONFIDENCE))
    return replace(finding, severity=severity, confidence=sure, demoted=True)


def _file_of(named: str, shown_paths: Mapping[int, str]) -> int | None:
    """Return the index of the file that is meant: by path, id, or the end of its path if unique."""
    if known := re.fullmatch(r"(?:===\s*)?\[?F(\d{1,6})(?:H\d{1,6})?\]?(?:[\s:]+(\S.*))?", named.strip()):
        index = int(known[1]) - 1
        if index in shown_paths and known[2] in (None, shown_paths[index]):
            return index
    names = dict.fromkeys([named, re.sub(r"\s+\|.*|[#@]\d+$", "", named.strip().strip("`\"'"))])
    for name in names:
        for index, path in shown_paths.items():
            if path == name:
                return index
    tail = list(names)[-1].replace("\\", "/")
    tail = re.sub(r"^(?:[ab]|\.{1,2})?/+", "", tail)
    if not tail:
        return None
    by_tail = [i for i, path in shown_paths.items() if f"/{path}".endswith(f"/{tail}")]
    by_name = [i for i, path in shown_paths.items() if posixpath.basename(path) == posixpath.basename(tail)]
    for found in (by_tail, by_name):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def excerpt(
    lines: Iterable[ShownLine], first: int, last: int, side: Side = Side.NEW
) -> tuple[tuple[int | None, str, str], ...]:
    """Return the lines around a finding on `side`, as pages and mails show them.

    Changed lines of the other side between them are shown too, without a number.
    """
    wanted = range(first - EXCERPT_LINES, min(last, first + 10) + EXCERPT_LINES + 1)
    shown = list(lines)
    own = [line for line in shown if line.side is side and line.number in wanted]
    if not own:
        return ()
    low, high = own[0].position, own[-1].position
    other = [
        line for line in shown if line.side is not side and line.kind != " " and low <= line.position <= high
    ]
    rows = sorted([*own, *other[:EXCERPT_OTHER_LINES]], key=lambda line: line.position)
    return tuple(
        (line.number if line.side is side else None, line.kind, line.text[:MAX_EXCERPT_CHARS])
        for line in rows
    )
