"""Redacts all texts of a change in one call, its author, names and context included.

A value that is found in one place is removed from all. Nothing is cut before it is redacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import overload

from criticizer.redaction import RedactedText, RedactionBlocked, Redactor
from criticizer.redaction.policy import POLICY_KINDS
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from reviews.reviewers.base import Finding
from reviews.sources.base import Change
from reviews.sources.diffs import RenderedDiff


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Every text of a change after redaction; the sequences have one entry per file."""

    description: RedactedText
    author: RedactedText
    paths: list[RedactedText]
    old_paths: list[RedactedText | None]
    details: list[RedactedText]
    diffs: list[RedactedText | None]
    counts: Mapping[str, int]
    context: Mapping[str, tuple[RedactedText, RedactedText]]  # path and text by the real path
    rules: Sequence[tuple[RedactedText, ...]] = ()  # path, text, good and bad example of each
    sections: Sequence[tuple[RedactedText, RedactedText]] = ()  # path and text of each of a document


def cleaned(
    change: Change,
    rendered: Sequence[RenderedDiff | None],
    context: Mapping[str, str],
    redactor: Redactor,
) -> Cleaned:
    """Redact all texts of a change, with its context, rules and document sections, in one call.

    Where redaction is in doubt, first the sections are left out, then the context (G178), then the rules.
    Raises PermanentFailure REDACTION_BLOCKED where the rest is in doubt too.
    """
    files = change.files
    # A name with a line feed in it (git allows that) must not make a second entry.
    names = [file.path.replace("\n", " ") for file in files]
    old_names = [file.old_path and file.old_path.replace("\n", " ") for file in files]
    texts = [diff and diff.text for diff in rendered]
    raw = [change.description, change.author, *names, *old_names, *(f.skip_detail for f in files), *texts]
    extra = [part.replace("\n", " ") for part in context] + list(context.values())
    ruling = [
        text
        for rule in change.rules
        for text in (rule.path.replace("\n", " "), rule.text, rule.good, rule.bad)
    ]
    sections = change.documents.sections if change.documents else ()
    described = [text for one in sections for text in (one.path.replace("\n", " "), one.text)]
    try:
        done = _redact_all(redactor, [*(text or "" for text in raw), *extra, *ruling, *described])
    except PermanentFailure:
        if change.documents and sections:
            documents = replace(change.documents, sections=())
            return cleaned(replace(change, documents=documents), rendered, context, redactor)
        if context:
            return cleaned(change, rendered, {}, redactor)
        if change.rules:
            return cleaned(replace(change, rules=()), rendered, {}, redactor)
        raise
    pieces = iter(done)
    done, around, ruling_done, described_done = (
        list(islice(pieces, len(part))) for part in (raw, extra, ruling, described)
    )
    counts: Counter[str] = Counter()
    for part in done:
        counts.update(part.counts)
    rest = iter(done[2:])
    count = len(files)
    paths, old_paths, details, diffs = (list(islice(rest, count)) for _ in range(4))
    return Cleaned(
        done[0],
        done[1],
        paths,
        [text if name is not None else None for name, text in zip(old_names, old_paths, strict=True)],
        details,
        [text if raw_text is not None else None for raw_text, text in zip(texts, diffs, strict=True)],
        dict(counts),
        {
            path: (name, text)
            for path, name, text in zip(context, around, around[len(context) :], strict=False)
            if for_people(path, name) == path  # its name is checked again before it is sent
        },
        [tuple(ruling_done[at : at + 4]) for at in range(0, len(ruling_done), 4)],
        list(zip(described_done[::2], described_done[1::2], strict=True)),
    )


def _redact_all(redactor: Redactor, texts: Sequence[str]) -> list[RedactedText]:
    try:
        done = redactor.redact_all(texts)
        if [t.text.count("\n") for t in done] != [t.count("\n") for t in texts]:
            raise RedactionBlocked("line_count")
    except RedactionBlocked as blocked:
        raise PermanentFailure(
            ErrorClass.REDACTION_BLOCKED,
            Component.INTERNAL,
            "the change could not be cleaned of secrets with certainty",
            context={"reason_code": blocked.reason_code},
        ) from None
    return done


def without_secrets(findings: Sequence[Finding], redactor: Redactor) -> Iterator[Finding]:
    """Yield the findings of checks without the change's secrets, which quoted names may hold."""
    texts = [text for one in findings for text in (one.title, one.message, one.suggestion)]
    done = iter(_redact_all(redactor, texts))
    for one in findings:
        title, message, suggestion = (text.text for text in islice(done, 3))
        yield replace(one, title=title, message=message, suggestion=suggestion)


@overload
def for_people(raw: str, redacted: RedactedText) -> str: ...
@overload
def for_people(raw: str | None, redacted: RedactedText | None) -> str | None: ...
def for_people(raw: str | None, redacted: RedactedText | None) -> str | None:
    """Return a text without secrets; people may see what only the policy removes."""
    return raw if redacted is None or POLICY_KINDS.issuperset(redacted.counts) else redacted.text


def title_of(description: str, redacted: RedactedText) -> str:
    """Return the first line of a description that is not blank."""
    lines = description.split("\n")
    number = next((number for number, line in enumerate(lines, start=1) if line.strip()), 1)
    return for_people(lines[number - 1], redacted.lines(number, number)).strip()
