"""Preparation of a review, the work for the processor: diff, check, redact, pack.

Redaction sees the whole change in one call, so that a value found in one file is removed from
all, and it comes before any cutting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from criticizer.redaction import RedactedText, RedactionBlocked, Redactor, clean
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from reviews.reviewers.anchoring import excerpt
from reviews.reviewers.base import Coverage, CoverageStatus, Finding, Side
from reviews.reviewers.checks import run_checks
from reviews.reviewers.chunks import Chunk, ShownLine, pack
from reviews.reviewers.prompt import ChangeText, ManifestEntry, file_tokens, overhead_tokens
from reviews.sources.base import Action, Change, FileChange, SkipReason
from reviews.sources.diffs import FileDiff, RenderedDiff, diff_file, render

MIN_CHUNK_TOKENS = 500

_SKIPPED: Mapping[SkipReason, str] = {
    SkipReason.BINARY: "binary file",
    SkipReason.SYMLINK: "symbolic link",
    SkipReason.SUBMODULE: "submodule",
    SkipReason.TOO_LARGE: "file too large",
    SkipReason.GENERATED: "generated file",
    SkipReason.DENIED: "the server does not let our account read it",
    SkipReason.UNREADABLE: "content could not be read",
    SkipReason.IDENTICAL: "renamed or integrated without a change of content",
    SkipReason.BUDGET: "the change as a whole is over its size budget",
}
_MAX_REASON_CHARS = 255


@dataclass(frozen=True, slots=True)
class ReviewLimits:
    """Bounds of one review. `max_input_tokens` is per request, instructions included."""

    max_input_tokens: int = 24_000
    max_calls: int = 20
    max_parallel_calls: int = 8
    max_findings_per_chunk: int = 10


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change ready for the model. Holds redacted text only, apart from `paths`.

    `notes[i]` is why file `i` has nothing to show to the model, or empty; `hunks[i]` counts its
    hunks. `redactions` counts what was removed, by kind.
    """

    paths: tuple[str, ...]
    findings: tuple[Finding, ...]
    text: ChangeText
    chunks: tuple[Chunk, ...]
    notes: tuple[str, ...]
    skipped: tuple[bool, ...]
    hunks: tuple[int, ...]
    redactions: Mapping[str, int] = field(default_factory=dict)

    def coverage_by_checks(self) -> tuple[Coverage, ...]:
        """Return what the checks alone have read."""
        return tuple(
            Coverage(path, CoverageStatus.SKIPPED if is_skipped else CoverageStatus.CHECKED, note)
            for path, note, is_skipped in zip(self.paths, self.notes, self.skipped, strict=True)
        )

    def coverage(self, reasons: Sequence[str]) -> tuple[Coverage, ...]:
        """Return what the model has read; `reasons` say why a chunk was not reviewed ('' if it was)."""
        read: Counter[int] = Counter()
        clipped: set[int] = set()
        missing: dict[int, str] = {}
        for chunk, reason in zip(self.chunks, reasons, strict=True):
            for hunk in chunk.hunks:
                if reason:
                    missing.setdefault(hunk.file, reason)
                else:
                    read[hunk.file] += 1
                    if hunk.is_clipped:
                        clipped.add(hunk.file)
        return tuple(
            self._covered(index, base, read[index], index in clipped, missing.get(index, ""))
            for index, base in enumerate(self.coverage_by_checks())
        )

    def _covered(self, index: int, base: Coverage, read: int, is_clipped: bool, missing: str) -> Coverage:
        if base.status is CoverageStatus.SKIPPED or base.reason:
            return base
        total = self.hunks[index]
        if read == total and not is_clipped:
            return replace(base, status=CoverageStatus.REVIEWED)
        if read == total:
            return replace(base, status=CoverageStatus.PARTIAL, reason="long passages were shortened")
        why = missing or "the limit of model calls per review was reached"
        if read == 0:
            return replace(base, reason=why[:_MAX_REASON_CHARS])
        reason = f"{read} of {total} passages read; {why}"
        return replace(base, status=CoverageStatus.PARTIAL, reason=reason[:_MAX_REASON_CHARS])


def prepare(change: Change, redactor: Redactor, limits: ReviewLimits = ReviewLimits()) -> Prepared:
    """Diff, check, redact and pack a change. Processor work only, fit for a thread.

    Raises PermanentFailure REDACTION_BLOCKED when redaction is in doubt, CONFIG_INVALID when
    `max_input_tokens` does not leave space for a hunk.
    """
    diffs = [diff_file(file) for file in change.files]
    rendered = [render(diff) if _has_hunks_to_show(diff) else None for diff in diffs]
    description, paths, old_paths, texts, counts = _redacted(change, rendered, redactor)
    notes = [_note(file, diff) for file, diff in zip(change.files, diffs, strict=True)]
    manifest = tuple(
        ManifestEntry(paths[i], file.action, notes[i][0], old_paths[i]) for i, file in enumerate(change.files)
    )
    text = ChangeText(description, manifest)
    budget = limits.max_input_tokens - overhead_tokens(text, limits.max_findings_per_chunk)
    costs = [file_tokens(entry) for entry in manifest]
    if budget < MIN_CHUNK_TOKENS + max(costs, default=0):
        raise PermanentFailure(
            ErrorClass.CONFIG_INVALID,
            Component.CONFIGURATION,
            f"LLM_MAX_INPUT_TOKENS={limits.max_input_tokens} leaves no space for a hunk: raise it",
        )
    chunks = tuple(islice(pack(diffs, rendered, texts, costs, budget), limits.max_calls))
    findings = tuple(
        _with_excerpt(finding, change, diffs, rendered, texts) for finding in run_checks(change, diffs)
    )
    return Prepared(
        paths=tuple(file.path for file in change.files),
        findings=findings,
        text=text,
        chunks=chunks,
        notes=tuple(_with_detail(note, file) for (note, _), file in zip(notes, change.files, strict=True)),
        skipped=tuple(is_skipped for _, is_skipped in notes),
        hunks=tuple(len(diff.hunks) for diff in diffs),
        redactions=counts,
    )


def _has_hunks_to_show(diff: FileDiff) -> bool:
    # Of a deleted file the name is enough.
    return bool(diff.hunks) and diff.action is not Action.DELETE


def _redacted(
    change: Change, rendered: Sequence[RenderedDiff | None], redactor: Redactor
) -> tuple[
    RedactedText,
    list[RedactedText],
    list[RedactedText | None],
    list[RedactedText | None],
    Mapping[str, int],
]:
    """Redact description, paths and diffs in one call and return them by kind."""
    with_old = [i for i, file in enumerate(change.files) if file.old_path is not None]
    with_diff = [i for i, diff in enumerate(rendered) if diff is not None]
    raw = [
        change.description,
        # A name with a line feed in it (git allows that) must not make a second entry.
        *(file.path.replace("\n", " ") for file in change.files),
        *((change.files[i].old_path or "").replace("\n", " ") for i in with_old),
        *(diff.text for diff in rendered if diff is not None),
    ]
    try:
        done = redactor.redact_all(raw)
        if [t.text.count("\n") for t in done] != [t.count("\n") for t in raw]:
            raise RedactionBlocked("line_count")
    except RedactionBlocked as blocked:
        raise PermanentFailure(
            ErrorClass.REDACTION_BLOCKED,
            Component.INTERNAL,
            "the change could not be cleaned of secrets with certainty",
            context={"reason_code": blocked.reason_code},
        ) from None
    rest = iter(done)
    description = next(rest)
    paths = [next(rest) for _ in change.files]
    old_paths: list[RedactedText | None] = [None] * len(change.files)
    for i in with_old:
        old_paths[i] = next(rest)
    texts: list[RedactedText | None] = [None] * len(change.files)
    for i in with_diff:
        texts[i] = next(rest)
    counts: Counter[str] = Counter()
    for part in done:
        counts.update(part.counts)
    return description, paths, old_paths, texts, dict(counts)


def _with_detail(note: str, file: FileChange) -> str:
    """Add the source's detail about a skipped file. Not for the manifest, which is our text only."""
    if file.skipped is None or not file.skip_detail:
        return note
    return f"{note}: {clean(file.skip_detail)}"[:_MAX_REASON_CHARS]


def _note(file: FileChange, diff: FileDiff) -> tuple[str, bool]:
    """Return why a file has nothing for the model, and whether its content was not read at all."""
    if file.skipped is not None:
        return _SKIPPED[file.skipped], True
    if diff.too_large:
        return "too large to compare: only the checks read it", False
    if file.action is Action.DELETE:
        return "deleted: only its name was read", False
    return ("" if diff.hunks else "no line changed"), False


def _with_excerpt(
    finding: Finding,
    change: Change,
    diffs: Sequence[FileDiff],
    rendered: Sequence[RenderedDiff | None],
    texts: Sequence[RedactedText | None],
) -> Finding:
    """Return a check's finding with the redacted lines around it, where the diff shows them."""
    index = next((i for i, file in enumerate(change.files) if file.path == finding.file), None)
    if index is None or finding.line is None:
        return finding
    text, places = texts[index], rendered[index]
    if text is None or places is None:
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
