"""A change prepared for the model, with redacted text alone, and how a review covers it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reviews.reviewers.base import Coverage, CoverageStatus, Finding
from reviews.reviewers.chunks import Chunk
from reviews.reviewers.coverage_texts import LIMIT, SHORTENED, context_shown
from reviews.reviewers.document_sections import ShownSection
from reviews.reviewers.people_diff import PeopleFile
from reviews.reviewers.prompt import ChangeText
from reviews.reviewers.reported import Reported

MAX_REASON_CHARS = 255


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change ready for the model. Holds redacted text only (guarantee G160).

    `title`, `author`, `paths` and `old_paths` are for people: without secrets, but with the hosts and
    addresses that only a model must not see. `hides_names`: one of the paths lost a part. `notes[i]` is
    why file `i` has nothing to show to the model, or empty; `hunks[i]` counts its hunks. `redactions`
    counts what was removed from the change, by kind. The context of a part is in its chunk. `units` hold
    the same hunks by file, each with the context that it would have alone; `room` is how many tokens of
    hunks, names and context a request holds. `is_crowded`: its hunks took the room of their context.
    `sections` of documents may describe what the change does; a small window has no room for any.
    """

    title: str
    author: str
    paths: tuple[str, ...]
    old_paths: tuple[str | None, ...]
    hides_names: bool
    findings: tuple[Finding, ...]
    text: ChangeText
    chunks: tuple[Chunk, ...]
    notes: tuple[str, ...]
    skipped: tuple[bool, ...]
    hunks: tuple[int, ...]
    redactions: Mapping[str, int] = field(default_factory=dict)
    context_paths: tuple[str, ...] = ()  # files outside the change that context, rules and findings show
    units: tuple[Chunk, ...] = ()
    room: int = 0
    is_crowded: bool = False
    is_submitted: bool = False
    sections: tuple[ShownSection, ...] = ()
    reported: tuple[Reported, ...] = field(default=(), compare=False)  # added where it is read, not stored
    people: tuple[PeopleFile, ...] = field(default=(), compare=False)  # stored, and not opened with the rest

    def without_context(self, paths: Collection[str]) -> Prepared:
        """Return the change without context, rules and findings of these files outside it."""
        if not any(path in paths for path in self.context_paths):
            return self
        chunks, units = (
            tuple(
                replace(chunk, context=tuple(block for block in chunk.context if block.path not in paths))
                for chunk in several
            )
            for several in (self.chunks, self.units)
        )
        kept = tuple(path for path in self.context_paths if path not in paths)
        rules = tuple(rule for rule in self.text.rules if rule.path not in paths)
        text = replace(self.text, rules=rules)
        findings = tuple(
            one for one in self.findings if not any(path in paths for path in (one.file, *one.evidence))
        )
        sections = tuple(one for one in self.sections if one.path not in paths)
        return replace(
            self,
            text=text,
            chunks=chunks,
            units=units,
            context_paths=kept,
            findings=findings,
            sections=sections,
        )

    def coverage_by_checks(self) -> tuple[Coverage, ...]:
        """Return the coverage of the checks alone."""
        return tuple(
            Coverage(path, CoverageStatus.SKIPPED if is_skipped else CoverageStatus.CHECKED, note)
            for path, note, is_skipped in zip(self.paths, self.notes, self.skipped, strict=True)
        )

    def coverage(
        self, asked: Sequence[tuple[Chunk, str]], earlier: Mapping[int, str] | None = None
    ) -> tuple[Coverage, ...]:
        """Return the coverage of the model.

        `asked` has the chunks and why each was not reviewed ('' if it was). A hunk whose lines stand in
        several chunks is read when all of them are. `earlier` names the review that read a file which was
        not asked about.
        """
        clipped = {hunk.file for chunk, why in asked for hunk in chunk.hunks if hunk.is_clipped and not why}
        unread = {hunk.name for chunk, why in asked for hunk in chunk.hunks if why}
        missing = {hunk.file: why for chunk, why in reversed(asked) for hunk in chunk.hunks if why}
        hunks = {hunk.name: hunk.file for chunk, _ in asked for hunk in chunk.hunks}
        read = Counter(file for name, file in hunks.items() if name not in unread)
        rows = [
            self._covered(index, base, read[index], index in clipped, missing.get(index, ""))
            for index, base in enumerate(self.coverage_by_checks())
        ]
        return tuple(
            replace(row, reason=(earlier or {}).get(index) or _context_of(index, asked))
            if row.status is CoverageStatus.REVIEWED
            else row
            for index, row in enumerate(rows)
        )

    def _covered(self, index: int, base: Coverage, read: int, is_clipped: bool, missing: str) -> Coverage:
        if base.status is CoverageStatus.SKIPPED or base.reason:
            return base
        total = self.hunks[index]
        if read == total and not is_clipped:
            return replace(base, status=CoverageStatus.REVIEWED)
        if read == total:
            return replace(base, status=CoverageStatus.PARTIAL, reason=SHORTENED)
        why = missing or LIMIT
        if read == 0:
            return replace(base, reason=why[:MAX_REASON_CHARS])
        reason = f"{read} of {total} passages read; {why}"
        return replace(base, status=CoverageStatus.PARTIAL, reason=reason[:MAX_REASON_CHARS])


def _context_of(index: int, asked: Sequence[tuple[Chunk, str]]) -> str:
    """Return how much context the requests with hunks of a file showed."""
    blocks = {
        (block.path, block.text.text) for chunk, _ in asked if index in chunk.files for block in chunk.context
    }
    return context_shown(len(blocks), len({path for path, _ in blocks}))
