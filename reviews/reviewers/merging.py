"""Merges remarks about the same defect, from several parts or from a check and the model.

Measured on recorded reviews of the same changes by different tools: the share of common words,
with identifiers taken apart, tells the same defect from another one of the same change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from reviews.reviewers.base import SEVERITY_ORDER, Finding

NEAR_LINES = 5  # two remarks on one defect point at most this far apart
MIN_SHARED = 0.30  # of the words of both texts
MIN_SHARED_WITHOUT_LINES = 0.40
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|\d+|[^\W\d_A-Za-z]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_ENDINGS = ("ations", "ation", "ingly", "ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e")
_MAX_NAMES = 400  # of one remark
_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Words of any remark, which say nothing about its defect.
_COMMON = (
    "a add all also an and any are as at be but by can code could do does for from function had has have if"
    " in instead into is it its line may method no not of on only or should so than that the then there this"
    " to use used using value was were when where which will with would"
)


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Order findings, severest first; of those about one defect keep the severest (G202).

    The one that is kept names the others in `merges`.
    """
    ordered = sorted(
        findings,
        key=lambda f: (SEVERITY_ORDER[f.severity], -(f.confidence or 0), f.file, f.line or 0, f.title),
    )
    kept: list[Finding] = []
    exact: dict[tuple[object, ...], int] = {}  # positions in `kept`
    by_model: dict[tuple[object, ...], list[tuple[int, frozenset[str]]]] = {}
    by_check: dict[tuple[object, ...], list[tuple[int, frozenset[str]]]] = {}
    for finding in ordered:
        whole = (finding.file, finding.side, finding.line, finding.end_line, finding.source, finding.title)
        where = (finding.file, finding.side, finding.line is None)
        is_models = finding.source == "llm"
        words = words_of(f"{finding.title} {finding.message}")
        # Two checks never say the same thing.
        others = by_model.get(where, []) + (by_check.get(where, []) if is_models else [])
        into = exact.get(whole)
        if into is None:
            into = next((n for n, its in others if _is_same(finding, words, kept[n], its)), None)
        if into is not None:
            merges = (*kept[into].merges, *((finding.raw,) if finding.raw else ()), *finding.merges)
            kept[into] = replace(kept[into], merges=merges)
            if finding.rule and not kept[into].rule:
                kept[into] = kept[into].citing(finding.rule)
            continue
        exact[whole] = len(kept)
        (by_model if is_models else by_check).setdefault(where, []).append((len(kept), words))
        kept.append(finding)
    return tuple(sorted(kept, key=lambda f: (SEVERITY_ORDER[f.severity], f.file, f.line or 0, f.title)))


def _is_same(one: Finding, words: frozenset[str], other: Finding, other_words: frozenset[str]) -> bool:
    if one.line is None or other.line is None:
        return shared(words, other_words) >= MIN_SHARED_WITHOUT_LINES
    one_end, other_end = one.end_line or one.line, other.end_line or other.line
    if one.line > other_end + NEAR_LINES or other.line > one_end + NEAR_LINES:
        return False
    return shared(words, other_words) >= MIN_SHARED


def shared(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of common words among all words of two texts."""
    return len(one & other) / (len(one | other) or 1)


def words_of(text: str) -> frozenset[str]:
    """Return the stems of a text's words: identifiers as a whole, and their parts."""
    words: set[str] = set()
    for name in _NAME.findall(text)[:_MAX_NAMES]:
        parts = _PART.findall(name)
        if len(parts) > 1:
            words.add(name.casefold())
        words.update(_stem(part.casefold()) for part in parts if len(part) > 1)
    return frozenset(words)


def telling_words(text: str) -> frozenset[str]:
    """Return the stems that tell a remark from others on the same lines.

    Blocks of code and common words are left out. Measured on experts' remarks of one category on the same
    lines, which differ in their defects.
    """
    return words_of(_BLOCK.sub(" ", text)) - _COMMON_STEMS


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


_COMMON_STEMS = frozenset(_COMMON.split()) | {_stem(word) for word in _COMMON.split()}
