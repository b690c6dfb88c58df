"""Rules in a model's prompt: selects the rules of each part and filters rules files.

Rules can only add to what the model looks for. Anyone who may submit can edit a rules file, so items in it
that address the reviewer, or mention findings or severities, are not sent (guarantee G421). Whatever else a
rule asks for, code enforces the limits: findings of a part, the finding budget, the fence around data.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from criticizer.invisible_characters import find_misleading
from criticizer.redaction import RedactedText
from reviews.reviewers.base import FindingSeverity
from reviews.reviewers.checks.hidden_text import addresses_reviewer
from reviews.reviewers.chunks import tokens
from reviews.sources.base import Rule

MAX_RULES = 12  # of a part
MAX_TOKENS = 4_000  # of them all
MAX_FILE_CHARS = 4_000  # of one file
_HEAD_CHARS = 30  # of a rule
_SECTION_TOKENS = 300  # what stands around the rules
_ITEM = re.compile(r"^\s{0,3}(?:[-*+]|\d{1,3}[.)]|#{1,6})\s")
# Sentences about the review, not the code. A few harmless rules that sound similar are dropped too.
_ABOUT_THE_REVIEW = (
    r"\bfindings?\b|\bseverit(?:y|ies)\b|\bnitpicks?\b|\blgtm\b|\brule_?ids?\b|\bverdicts?\b",
    r"\bsystem prompt\b|\bcanary\b|\b(?:begin|end) data-",
    r"\b(?:never|do not|don't|stop|without) (?:report|flag|comment|mention)",
    r"\breport(?:s|ed|ing)?\b[^.\n]{0,30}\b(?:nothing|none|no|only|everything|all|every|each|up to"
    r"|at (?:most|least)|\d{1,9}|bugs?|issues?|problems?|defects?)\b",
    r"\b(?:skip|ignore|approve|nothing|empty|silent|stop|suppress|hide)\w{0,3}\b[^.\n]{0,60}\breview",
    r"\breview\w{0,3}\b[^.\n]{0,60}\b(?:skip|ignore|approve|nothing|empty|silent|stop|suppress|hide)",
    r"\b(?:ignore|disregard|forget|override|overrule|skip|suppress)\b[^.\n]{0,40}"
    r"\b(?:instruction|prompt|rule|bug|problem|issue|defect|vulnerabilit|warning|everything)",
    r"\b(?:treat|rate|rank|mark|classif|consider|label|downgrade|count)\w{0,3}\b[^.\n]{0,60}"
    r"\b(?:critical|high|medium|low|minor|trivial|harmless|unimportant)\b",
    r"\b(?:answer|respond|reply) (?:only |with |in )",
)
_STEERING = re.compile("|".join(_ABOUT_THE_REVIEW), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ShownRule:
    """A rule as the model sees it, for the changed files with these indexes.

    Findings cite its `id`. `path` is the file of rules in which it stands and `place` the same path redacted;
    they are "" and None for a rule of the team.
    """

    id: str
    path: str
    place: RedactedText | None
    severity: str
    files: frozenset[int]
    text: RedactedText

    @property
    def name(self) -> str:
        """Return its name, which stays the same from one review to the next."""
        return self.path or self.id

    @property
    def shown(self) -> RedactedText:
        if self.place is None:
            return RedactedText.template(f"[{self.id}] severity {self.severity}: {{text}}", text=self.text)
        return RedactedText.template(
            f"[{self.id}] from {{place}}:\n{{text}}", place=self.place.truncated(400), text=self.text
        )

    def __len__(self) -> int:
        """Return the number of characters of `shown`, or a few more."""
        return len(self.text) + len(self.id) + len(self.place or "") + _HEAD_CHARS


def shown_rules(rules: Sequence[Rule], texts: Sequence[tuple[RedactedText, ...]]) -> Iterator[ShownRule]:
    """Yield the rules as the model sees them; `texts` has path, text and examples, redacted.

    Rules of which nothing is left are skipped.
    """
    number = 0
    for rule, (place, text, good, bad) in zip(rules, texts, strict=True):
        if not rule.path:
            layout = "{text}" + ("\nGood: {good}" if rule.good else "") + ("\nBad: {bad}" if rule.bad else "")
            parts = (
                {"text": text} | ({"good": good} if rule.good else {}) | ({"bad": bad} if rule.bad else {})
            )
            shown = RedactedText.template(layout, **parts)
            yield ShownRule(rule.name, "", None, rule.severity, frozenset(rule.files), shown)
        elif kept := _kept_lines(text.text):
            number += 1
            whole = RedactedText.joined([text.lines(line, line) for line in kept])
            yield ShownRule(f"B{number}", rule.path, place, "", frozenset(rule.files), whole)


def _kept_lines(text: str) -> list[int]:
    """Return the numbers of the lines of a file that are sent, up to MAX_FILE_CHARS of them."""
    kept: list[int] = []
    room = MAX_FILE_CHARS
    for item in _items(text.split("\n")):
        shown = "\n".join(line for _, line in item)
        if _STEERING.search(" ".join(shown.split())) or addresses_reviewer(shown) or find_misleading(shown):
            continue
        room -= len(shown) + 1
        if room < 0:
            break
        kept += [number for number, _ in item]
    return kept


def _items(lines: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Yield the paragraphs and list items of a text, as numbered lines without the blank ones."""
    item: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        if item and (not line.strip() or _ITEM.match(line)):
            yield item
            item = []
        if line.strip():
            item.append((number, line))
    if item:
        yield item


def rules_of(rules: Sequence[ShownRule], files: Collection[int]) -> tuple[ShownRule, ...]:
    """Return the rules for a part with these files, in their order, as many as fit.

    The team's come first, and more specific ones before others.
    """
    chosen: list[ShownRule] = []
    room = MAX_TOKENS
    for rule in [rule for rule in rules if not rule.files.isdisjoint(files)]:
        cost = tokens(rule) + 1
        if cost <= room:
            room -= cost
            chosen.append(rule)
            if len(chosen) == MAX_RULES:
                break
    return tuple(chosen)


def tokens_of(rules: Sequence[ShownRule]) -> int:
    """Return the most that the rules of a part may cost."""
    costs = sorted((tokens(rule) + 1 for rule in rules), reverse=True)
    return min(MAX_TOKENS, sum(costs[:MAX_RULES])) + _SECTION_TOKENS if rules else 0


def cited(raw_id: str, rules: Sequence[ShownRule], file: int) -> ShownRule | None:
    """Return the rule that a finding on a file cites, or None where this file has no such rule."""
    wanted = raw_id.strip().strip("[]").casefold()
    return next((rule for rule in rules if rule.id.casefold() == wanted and file in rule.files), None)


def at_least(severity: FindingSeverity, rule: ShownRule) -> FindingSeverity:
    """Return the higher of a finding's severity and the severity of the rule it cites."""
    own = FindingSeverity(rule.severity) if rule.severity else severity
    order = list(FindingSeverity)
    return min(severity, own, key=order.index)
