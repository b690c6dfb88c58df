"""Search for the sections that describe a change, from two trees.

They are read, mapped and cut to what may be asked about.
"""

from __future__ import annotations

import posixpath
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reviews.drift.extraction import is_document
from reviews.drift.meaning.changed import ChangedFile
from reviews.drift.meaning.mapping import LEAST, MAX_FILES, Mapped, Sections, mapped
from reviews.drift.meaning.sections import Section, sections_of
from reviews.drift.page import MAX_BYTES
from reviews.drift.trees import Stored, Tree

SECONDS = 3.0  # of the processor
MAX_CHARS = 200_000  # of all sections that are kept


def described(
    before: Tree,
    after: Tree,
    renames: Mapping[str, str],
    documents: Sequence[str],
    most: int,
    *,
    keeps_rest: bool,
) -> list[Mapped]:
    """Return the sections of documents that describe what a change touches, the best first.

    At most `most`. With `keeps_rest` others follow, for a comparison by meaning; their score is 0.
    """
    until = time.thread_time() + SECONDS
    files = _changed(before, after, renames)
    if not files:
        return []
    sections: list[Section] = []
    for path, data in after.read([path for path in documents if path in after.entries]).items():
        if len(data) <= MAX_BYTES and time.thread_time() < until:
            sections += sections_of(path, data.decode(errors="replace"))
    counted = Counter(posixpath.basename(path) for path in after.entries)
    names = {name for name in (posixpath.basename(file.path) for file in files) if counted[name] <= 1}
    found = mapped(Sections(sections), files, names, lambda: time.thread_time() > until)
    kept = [one for one in found if one.score >= LEAST]
    if keeps_rest:
        known = {one.section for one in kept}
        kept += [Mapped(section, (), 0.0) for section in sections if section not in known]
    return list(_within(kept[:most]))


def _within(found: Sequence[Mapped]) -> Sequence[Mapped]:
    room = MAX_CHARS
    for number, one in enumerate(found):
        room -= len(one.section.text)
        if room < 0:
            return found[:number]
    return found


def _changed(before: Tree, after: Tree, renames: Mapping[str, str]) -> list[ChangedFile]:
    came_from = {new: old for old, new in renames.items()}
    paths = [
        path
        for path in sorted(before.entries.keys() | after.entries.keys())
        if before.entries.get(path) != after.entries.get(path)
        and path not in renames
        and not is_document(path)
    ][:MAX_FILES]
    found = []
    for path in paths:
        old = came_from.get(path, path)
        file = ChangedFile(path, old, _text(before, old), _text(after, path))
        if file.before != file.after:
            found.append(file)
    return found


def _text(tree: Tree, path: str) -> str | None:
    entry = tree.entries.get(path)
    if entry is None or entry.stored is not Stored.FILE:
        return None
    data = tree.read([path]).get(path)
    return data.decode(errors="replace") if data is not None else None


def as_fields(one: Mapped) -> dict[str, Any]:
    """Return a section as JSON has it."""
    return {**one.section._asdict(), "files": one.files, "score": one.score, "how": one.how}
