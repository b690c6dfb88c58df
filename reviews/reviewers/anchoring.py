"""Anchoring of findings to lines by the text they quote, and merging of duplicates.

A finding is shown only on a file that was sent, at a line whose text it quoted, and as plain
text. A finding that cannot be anchored is shown without a line, never at a guessed one.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from reviews.reviewers.base import SEVERITY_ORDER, Finding, FindingSeverity, Side
from reviews.reviewers.chunks import Chunk, ShownLine
from reviews.reviewers.plaintext import plain

MIN_SUBSTRING_CHARS = 12
MAX_RANGE_LINES = 60
EXCERPT_LINES = 3  # on either side
PLACEHOLDER = "<REDACTED"


@dataclass(frozen=True, slots=True)
class Anchored:
    """Findings of one answer, and how many were dropped for which reason."""

    findings: tuple[Finding, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


def anchor(
    answer: Mapping[str, Any], chunk: Chunk, shown_paths: Mapping[int, str], paths: Sequence[str]
) -> Anchored:
    """Turn a validated answer into findings on the chunk's lines (reject or demote, in order).

    `shown_paths` maps the chunk's file indexes to the paths the model saw; `paths` are the real
    ones. A quote is looked up on its side of its file: exactly, then ignoring white space, then as
    a unique part of at least 12 characters. Among several places the stated hunk decides. Without
    a place the finding keeps its file, loses its line, and counts at most medium.
    """
    dropped: Counter[str] = Counter()
    kept: list[Finding] = []
    for raw in answer["findings"]:
        index = _file_of(str(raw["file"]), shown_paths)
        if index is None:
            dropped["unknown_file"] += 1
            continue
        if PLACEHOLDER in raw["quote"]:
            dropped["redaction_placeholder"] += 1
            continue
        finding = _finding(raw, paths[index])
        place = _place(raw, chunk, index)
        if place is None:
            kept.append(_demoted(finding))
        elif not place[0].is_near_change:
            dropped["not_near_a_change"] += 1
        else:
            first, last, hunk_lines = place
            kept.append(
                replace(
                    finding,
                    line=first.number,
                    end_line=last.number,
                    side=first.side,
                    quote=first.text,
                    excerpt=excerpt(hunk_lines, first.number, last.number),
                )
            )
    return Anchored(tuple(kept), dict(dropped))


def _finding(raw: Mapping[str, Any], path: str) -> Finding:
    message = " ".join(filter(None, [plain(raw["problem"]), _trigger(plain(raw["trigger"]))]))
    return Finding(
        file=path,
        severity=FindingSeverity(raw["severity"]),
        category=raw["category"],
        title=plain(raw["title"]).replace("\n", " ") or raw["category"],
        message=message,
        source="llm",
        suggestion=plain(raw.get("suggestion") or ""),
        quote=plain(raw["quote"]),
        confidence=raw["confidence"],
    )


def _trigger(text: str) -> str:
    return f"Trigger: {text}" if text else ""


def _demoted(finding: Finding) -> Finding:
    severity = max(finding.severity, FindingSeverity.MEDIUM, key=SEVERITY_ORDER.__getitem__)
    return replace(finding, severity=severity, demoted=True)


def _file_of(named: str, shown_paths: Mapping[int, str]) -> int | None:
    exact = [index for index, path in shown_paths.items() if path == named]
    if exact:
        return exact[0]
    by_name = [i for i, path in shown_paths.items() if posixpath.basename(path) == posixpath.basename(named)]
    return by_name[0] if len(by_name) == 1 and posixpath.basename(named) else None


def _place(
    raw: Mapping[str, Any], chunk: Chunk, index: int
) -> tuple[ShownLine, ShownLine, list[ShownLine]] | None:
    sides = [Side(raw["side"])] if raw.get("side") else [Side.NEW, Side.OLD]
    quote = raw["quote"].strip("\r\n")
    for side in sides:
        lines = [
            (hunk.name, line)
            for hunk in chunk.hunks
            if hunk.file == index
            for line in hunk.lines
            if line.side is side
        ]
        for spelling in dict.fromkeys([quote, _without_prefix(quote, side)]):
            matches = _matches(spelling, lines)
            if len(matches) > 1:
                matches = [match for match in matches if match[0] == raw.get("hunk")]
            if len(matches) == 1:
                name, first = matches[0]
                same_hunk = [line for hunk, line in lines if hunk == name]
                return first, _last(raw.get("quote_end"), first, same_hunk), same_hunk
    return None


def excerpt(lines: Iterable[ShownLine], first: int, last: int) -> tuple[tuple[int | None, str, str], ...]:
    """Return the lines of one side around a finding, as pages and mails show them."""
    wanted = range(first - EXCERPT_LINES, min(last, first + 10) + EXCERPT_LINES + 1)
    return tuple((line.number, line.kind, line.text[:400]) for line in lines if line.number in wanted)


def _without_prefix(quote: str, side: Side) -> str:
    """Remove the number and mark that models copy against their instructions."""
    return re.sub(r"^\s*\d{1,7} [ +]" if side is Side.NEW else r"^-", "", quote)


def _matches(quote: str, lines: Sequence[tuple[str, ShownLine]]) -> list[tuple[str, ShownLine]]:
    if not quote.strip():
        return []
    exact = [entry for entry in lines if entry[1].text == quote]
    if exact:
        return exact
    normal = " ".join(quote.split())
    same = [entry for entry in lines if " ".join(entry[1].text.split()) == normal]
    if same or len(normal) < MIN_SUBSTRING_CHARS:
        return same
    return [entry for entry in lines if normal in " ".join(entry[1].text.split())]


def _last(quote_end: object, first: ShownLine, lines: Iterable[ShownLine]) -> ShownLine:
    if not isinstance(quote_end, str):
        return first
    following = [("", ln) for ln in lines if first.number <= ln.number < first.number + MAX_RANGE_LINES]
    matches = _matches(quote_end.strip("\r\n"), following)
    return matches[0][1] if matches else first


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Order findings, severest first, and drop duplicates about the same place."""
    ordered = sorted(
        findings,
        key=lambda f: (SEVERITY_ORDER[f.severity], -(f.confidence or 0), f.file, f.line or 0, f.title),
    )
    kept: list[Finding] = []
    for finding in ordered:
        if not any(_is_same(finding, other) for other in kept):
            kept.append(finding)
    return tuple(sorted(kept, key=lambda f: (SEVERITY_ORDER[f.severity], f.file, f.line or 0, f.title)))


def _is_same(one: Finding, other: Finding) -> bool:
    if one.file != other.file or one.side is not other.side or (one.line is None) != (other.line is None):
        return False
    if one.line is not None and other.line is not None:
        one_end, other_end = one.end_line or one.line, other.end_line or other.line
        if one.line > other_end or other.line > one_end:
            return False
    if one.source != other.source and "llm" not in (one.source, other.source):
        return False  # two checks never say the same thing
    a, b = one.title.casefold(), other.title.casefold()
    return a == b or SequenceMatcher(None, a, b).ratio() >= 0.75
