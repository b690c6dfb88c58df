"""Prepares a review, as work of the processor alone: diff, check, redact, pack.

Redaction sees the whole change in one call, its author and file names included, so that a value
found in one place is removed from all, and it comes before any cutting.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from criticizer.redaction import RedactedText, Redactor
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from reviews.reviewers.anchoring import excerpt
from reviews.reviewers.base import Finding, Side
from reviews.reviewers.checks import CHECKS, run_checks
from reviews.reviewers.checks.hidden_code import hidden_code_in
from reviews.reviewers.chunks import CHARS_PER_TOKEN, Chunk, ShownLine, pack, tokens, units_in
from reviews.reviewers.cleaning import Cleaned, cleaned, for_people, title_of, without_secrets
from reviews.reviewers.coverage_texts import GENERATED, SKIPPED, TOO_LARGE
from reviews.reviewers.definition_context import Library, Outlines, leads_of, needed_in, outlines_of, texts_of
from reviews.reviewers.document_sections import shown_sections
from reviews.reviewers.outline import Definition, section_of
from reviews.reviewers.people_diff import for_people_to_read
from reviews.reviewers.prepared_change import MAX_REASON_CHARS, Prepared
from reviews.reviewers.prompt import ChangeText, ManifestEntry, file_tokens, overhead_tokens
from reviews.reviewers.rules import ShownRule, shown_rules, tokens_of
from reviews.reviewers.unsent import unsent_reason
from reviews.sources.base import Action, Change, ChangeStatus, FileChange
from reviews.sources.diffs import FileDiff, RenderedDiff, diff_file, not_compared, render

MIN_CHUNK_TOKENS = 500
# Processor time after which the files that are left count as too large to compare.
DIFF_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class ReviewLimits:
    """Bounds of one review. `max_input_tokens` is per request, instructions included.

    `chars_per_token` is what the model's server counted lately. `is_compact` is for small windows:
    short rules and one finding a part, which is not verified. `finding_budget` findings are shown in a
    message before the fold, half as many again on the page.
    """

    max_input_tokens: int = 24_000
    chars_per_token: float = CHARS_PER_TOKEN
    max_calls: int = 20
    max_parallel_calls: int = 8
    max_findings_per_chunk: int = 10
    context_share: float = 0.35  # of what a part's hunks may take; 0 shows no context
    skip_paths: Sequence[str] = ()
    is_compact: bool = False
    finding_budget: int = 8

    @property
    def page_budget(self) -> int:
        return self.finding_budget + self.finding_budget // 2


def prepare(change: Change, redactor: Redactor, limits: ReviewLimits = ReviewLimits()) -> Prepared:
    """Diff, check, redact and pack a change. Processor work only, fit for a thread.

    Raises PermanentFailure REDACTION_BLOCKED when redaction is in doubt, CONFIG_INVALID when
    `max_input_tokens` does not leave space for a hunk.
    """
    outlines = outlines_of(change)
    diffs = _diffs(change.files, outlines)
    unsent = [file.unsent or unsent_reason(file.path, limits.skip_paths) for file in change.files]
    rendered = [
        render(diff) if _is_shown(file, diff) and not why else None
        for file, diff, why in zip(change.files, diffs, unsent, strict=True)
    ]
    shown = [diff is not None for diff in rendered]
    leads = leads_of(change, diffs, outlines, shown) if limits.context_share > 0 else []
    withheld = {file.path for file in change.files if file.unsent}
    leads = [
        lead
        for lead in leads
        if lead.path not in withheld and not unsent_reason(lead.path, limits.skip_paths)
    ]
    clean = cleaned(change, rendered, texts_of(leads, change), redactor)
    notes = [_note(*each) for each in zip(change.files, diffs, unsent, strict=True)]
    if change.documents is not None and change.documents.is_scan:  # nothing was changed
        notes = [(file.unsent, bool(file.unsent)) for file in change.files]
    manifest = tuple(
        ManifestEntry(clean.paths[i], file.action, notes[i][0], clean.old_paths[i])
        for i, file in enumerate(change.files)
    )
    rules = _rules(change, clean, limits)
    text = ChangeText(clean.description, manifest, rules)
    # All else counts by CHARS_PER_TOKEN.
    room = int(limits.max_input_tokens * limits.chars_per_token / CHARS_PER_TOKEN)
    budget = room - overhead_tokens(text, limits.max_findings_per_chunk, limits.is_compact) - tokens_of(rules)
    costs = [file_tokens(entry) for entry in manifest]
    if budget < MIN_CHUNK_TOKENS + max(costs, default=0):
        raise PermanentFailure(
            ErrorClass.CONFIG_INVALID,
            Component.CONFIGURATION,
            f"LLM_MAX_INPUT_TOKENS={limits.max_input_tokens} leaves no space for a hunk: raise it",
        )
    share = int(budget * limits.context_share) if clean.context else 0
    for_hunks = budget - share

    def packed(for_hunks: int) -> list[Chunk]:
        """Return at most `max_calls + 1` parts of so many tokens, or of one longer hunk each."""
        least = max(for_hunks, MIN_CHUNK_TOKENS + max(costs, default=0))
        return list(islice(pack(diffs, rendered, clean.diffs, costs, least, budget), limits.max_calls + 1))

    chunks = packed(for_hunks)
    is_crowded = bool(share) and len(chunks) > limits.max_calls
    if is_crowded:  # hunks first; context gets the remaining space
        for_hunks = budget
        chunks = packed(for_hunks)
    del chunks[limits.max_calls :]
    library = Library(leads, clean.context, outlines)
    units = [
        # The context budget does not depend on the measured token rate, so equal units always get equal
        # context.
        library.beside(unit, int(limits.max_input_tokens * limits.context_share))
        for unit in units_in(chunks, costs, for_hunks)
    ]
    rooms = [budget - _cost(unit, costs) for unit in units]
    needed = needed_in(chunks, units, rooms, limits.context_share)
    chunks = [
        library.beside(chunk, min(share, budget - _cost(chunk, costs)), places)
        for chunk, places in zip(chunks, needed, strict=True)
    ]
    paths = tuple(map(for_people, (file.path for file in change.files), clean.paths))
    old_paths = tuple(map(for_people, (file.old_path for file in change.files), clean.old_paths))
    index_of = {file.path: i for i, file in enumerate(change.files)}
    findings = [
        _with_excerpt(finding, index_of.get(finding.file), diffs, rendered, clean.diffs, paths)
        for finding in run_checks(change, diffs, (*CHECKS, hidden_code_in(rendered, clean.diffs)))
    ]
    shown_index = {path: i for path, i in index_of.items() if shown[i]}
    sections = () if limits.is_compact else shown_sections(change, clean, shown_index, limits.skip_paths)
    beside = (
        *(block.path for chunk in (*chunks, *units) for block in chunk.context),
        *(rule.path for rule in rules),
        *(path for finding in findings for path in (finding.file, *finding.evidence)),
        *(one.path for one in sections),
    )
    return Prepared(
        title=title_of(change.description, clean.description),
        author=for_people(change.author, clean.author) or "",
        paths=paths,
        old_paths=old_paths,
        hides_names=[*zip(paths, old_paths, strict=True)]
        != [(file.path, file.old_path) for file in change.files],
        findings=tuple(without_secrets(findings, redactor)),
        text=text,
        chunks=tuple(chunks),
        notes=tuple(
            f"{note}: {detail.text}"[:MAX_REASON_CHARS] if file.skipped and detail.text else note
            for (note, _), file, detail in zip(notes, change.files, clean.details, strict=True)
        ),
        skipped=tuple(is_skipped for _, is_skipped in notes),
        hunks=tuple(len(diff.hunks) for diff in diffs),
        redactions=clean.counts,
        context_paths=tuple(
            dict.fromkeys(path for path in beside if path.startswith("//") and path not in index_of)
        ),
        sections=sections,
        units=tuple(units),
        room=budget,
        is_crowded=is_crowded,
        is_submitted=change.status is ChangeStatus.SUBMITTED,
        people=for_people_to_read(change.files, diffs, chunks, redactor),
    )


def _rules(change: Change, clean: Cleaned, limits: ReviewLimits) -> tuple[ShownRule, ...]:
    """Return the rules that a model may see; a small window has no room for any."""
    if limits.is_compact or not clean.rules:
        return ()
    kept = [
        (rule, texts)
        for rule, texts in zip(change.rules, clean.rules, strict=True)
        if not rule.path
        or (for_people(rule.path, texts[0]) == rule.path and not unsent_reason(rule.path, limits.skip_paths))
    ]
    return tuple(shown_rules([rule for rule, _ in kept], [texts for _, texts in kept]))


def _diffs(files: Sequence[FileChange], outlines: Outlines) -> list[FileDiff]:
    until = time.thread_time() + DIFF_SECONDS
    return [
        _diff(file, outlines.get(file.path)) if time.thread_time() < until else not_compared(file)
        for file in files
    ]


def _diff(file: FileChange, defined: Sequence[Definition] | None) -> FileDiff:
    if defined is None:
        return diff_file(file)
    lines = (file.new_text or "").split("\n")
    return diff_file(file, section_at=lambda line: section_of(defined, lines, line))


def _cost(chunk: Chunk, costs: Sequence[int]) -> int:
    return sum(tokens(hunk.text) for hunk in chunk.hunks) + sum(costs[index] for index in chunk.files)


def _is_shown(file: FileChange, diff: FileDiff) -> bool:
    # Of a deleted file the name is enough.
    return bool(diff.hunks) and diff.action is not Action.DELETE and not file.generated


def _note(file: FileChange, diff: FileDiff, unsent: str) -> tuple[str, bool]:
    """Return why a file has nothing for the model, and whether its content was not read at all."""
    if file.skipped is not None:
        return SKIPPED[file.skipped], True
    if diff.too_large:
        return TOO_LARGE, False
    if file.unsent:
        return file.unsent, False
    if file.generated:
        return f"{GENERATED}: {file.generated}", False
    if file.action is Action.DELETE:
        return "deleted: only its name was read", False
    return (unsent if diff.hunks else "no line changed"), False


def _with_excerpt(
    finding: Finding,
    index: int | None,
    diffs: Sequence[FileDiff],
    rendered: Sequence[RenderedDiff | None],
    texts: Sequence[RedactedText | None],
    paths: Sequence[str],
) -> Finding:
    """Return a check's finding about file `index`, with the redacted lines around it if shown."""
    if index is None:
        return finding
    finding = replace(finding, file=paths[index])
    text, places = texts[index], rendered[index]
    if finding.line is None or text is None or places is None:
        return finding
    lines = text.text.split("\n")
    for hunk, where in zip(diffs[index].hunks, places.places, strict=True):
        if not hunk.new_start <= finding.line < hunk.new_start + hunk.new_count:
            continue
        shown = [
            ShownLine(
                Side.NEW, line.new_no, line.kind, lines[at].removeprefix(line.kind), is_near_change=True
            )
            for line, at in zip(hunk.lines, where, strict=True)
            if line.new_no is not None
        ]
        quote = next((line.text for line in shown if line.number == finding.line), "")
        around = excerpt(shown, finding.line, finding.end_line or finding.line)
        return replace(finding, quote=quote, excerpt=around)
    return finding
