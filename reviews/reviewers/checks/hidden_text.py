"""Checks for text aimed at a reviewing model, and for invisible characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from criticizer.invisible_characters import find_misleading
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.lines import added_lines, check_finding, files_and_diffs
from reviews.sources.base import Change
from reviews.sources.diffs import FileDiff

DESCRIPTION = "(description)"  # stands for the change's description where a finding names a file

# Sentences that address a reviewing model. Each needs both an order and what only a reviewer
# has (instructions, findings, a verdict), so that ordinary prose does not match. A space stands
# for a few blanks or line ends: the text is hostile, and unbounded repeats take quadratic time.
_SENTENCES = (
    r"\b(?:ignore|disregard|forget|override) (?:all |any |the |your |of ){0,4}"
    r"(?:previous|prior|above|earlier|preceding|system) (?:instruction|prompt|rule|direction|message)",
    r"\b(?:do not|don't|never) (?:report|flag|mention|raise) (?:any|this|these|the|an?) "
    r"(?:\w{1,30} )?(?:finding|issue|problem|bug|vulnerabilit|secret)",
    r"\b(?:ai|llm|language model|assistant|bot|automated)(?: code)?"
    r"(?: reviewers?| models?| agents?| assistants?)? ?[:,] ?(?:please )?"
    r"(?:approve|ignore|skip|do not|don't|respond|answer|return|output|report)\b",
    r"\b(?:respond|answer|reply|return|output) (?:only )?(?:with )?(?:an? )?"
    r"(?:empty (?:list of )?findings|no findings|zero findings|[\"']?lgtm)",
    r"\b(?:refute|dismiss|reject|discard|confirm) (?:all|every|each|any) (?:of )?(?:the |these |its |other )?"
    r"(?:\w{1,30} )?(?:findings?|remarks?|issues?|verdicts?)\b|\brefute (?:all|everything)\b",
    r"\byou are (?:now )?(?:an? |the )?(?:helpful )?(?:ai|llm|language model|code review(?:er|ing))\b",
    r"<\|(?:im_start|im_end|system|endoftext|start_header_id)\|>|\[/?INST\]|<<SYS>>",
)
_INSTRUCTIONS = re.compile("|".join(_SENTENCES).replace(" ", r"(?:\s{1,9})"), re.IGNORECASE)


def addresses_reviewer(text: str) -> bool:
    """Return whether a text reads like an instruction to a reviewing model."""
    return _INSTRUCTIONS.search(text) is not None


def reviewer_instructions(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report text in added lines and in the description that tries to instruct a reviewer."""
    if addresses_reviewer(change.description[:100_000]):
        yield _instruction(DESCRIPTION, None)
    for file, diff in files_and_diffs(change, diffs):
        for number, text in added_lines(file, diff):
            if addresses_reviewer(text[:2000]):
                yield _instruction(file.path, number)


def invisible_characters(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report added characters that make text read differently from what it is."""
    for file, diff in files_and_diffs(change, diffs):
        for number, text in added_lines(file, diff):
            found = find_misleading(text)
            if found:
                yield check_finding(
                    file.path,
                    FindingSeverity.HIGH,
                    "Invisible character in the text",
                    f"U+{ord(found):04X} makes this line look different from what it says.",
                    "Remove the character, or write it as an escape.",
                    number,
                    category="security",
                )


def _instruction(path: str, line: int | None) -> Finding:
    return check_finding(
        path,
        FindingSeverity.MEDIUM,
        "Text addresses an automated reviewer",
        "This text reads like an instruction to a reviewing model. It was treated as data.",
        "Remove it, or reword it if it is there for another reason.",
        line,
        category="security",
    )
