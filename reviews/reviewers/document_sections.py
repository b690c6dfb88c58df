"""Sections of documents that a model may see, redacted with the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from criticizer.redaction import RedactedText
from reviews.reviewers.cleaning import Cleaned, for_people
from reviews.reviewers.unsent import unsent_reason
from reviews.sources.base import Change


@dataclass(frozen=True, slots=True)
class ShownSection:
    """A section of a document as a model may see it.

    `path` is never sent; `place` is the path redacted. `line` is the number of its first line. `files` are
    indexes of changed files, the best first; `score` ranks the section and `how` names the steps that found
    it. A section without files is there to be compared by meaning.
    """

    path: str
    line: int
    place: RedactedText
    text: RedactedText
    files: tuple[int, ...]
    score: float
    how: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        return self.text.text.split("\n")


def shown_sections(
    change: Change, clean: Cleaned, shown: Mapping[str, int], skip_paths: Sequence[str]
) -> tuple[ShownSection, ...]:
    """Return the sections that a model may see, with those changed files that it sees.

    `shown` maps the paths of these files to their indexes. A section whose path holds a secret is left out.
    """
    found = []
    documents = change.documents.sections if change.documents else ()
    for section, (place, text) in zip(documents, clean.sections, strict=False):  # none of those in doubt
        files = tuple(shown[path] for path in section.files if path in shown)
        is_open = for_people(section.path, place) == section.path
        if is_open and (files or not section.files) and not unsent_reason(section.path, skip_paths):
            found.append(
                ShownSection(section.path, section.line, place, text, files, section.score, section.how)
            )
    return tuple(found)
