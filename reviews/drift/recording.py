"""The trees before and after a change, as far as their files have been fetched.

The comparison runs in the redacting process, which has no access to the source. Its result lists the input
that was missing; `fetching` reads that and runs the comparison again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reviews.drift.change import compare
from reviews.drift.claims import Kind
from reviews.drift.meaning import looking
from reviews.drift.trees import Entry, Stored, words_in

SECONDS = 5.0  # of the processor, for one comparison


@dataclass(slots=True)
class MissingInput:
    """Missing input: contents by digest, words to look for, paths not known to be visible."""

    digests: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.digests or self.words or self.paths)


@dataclass
class Recording:
    """The known part of the trees before and after a change. Paths are relative to their root.

    `after` has kind and digest of each file that may be seen, `before` of those where the trees differ
    (None: not there). `contents` are by digest (None: not to be had), `words` map to files of `after` that
    the change does not touch (None: they are not searched), `sees` says which paths could be seen.
    """

    after: dict[str, tuple[str, str]]
    before: dict[str, tuple[str, str] | None]
    renames: dict[str, str]
    is_whole: bool
    contents: dict[str, str | None] = field(default_factory=dict)
    words: dict[str, list[str]] | None = None
    sees: dict[str, bool] = field(default_factory=dict)


class RecordedTree:
    """One side of a recording (`trees.Tree`). It adds missing input to `asked`."""

    def __init__(self, made: Recording, asked: MissingInput, *, is_before: bool) -> None:
        self._made, self._asked = made, asked
        chosen: dict[str, tuple[str, str] | None] = {**made.after, **(made.before if is_before else {})}
        self.entries: Mapping[str, Entry] = {
            path: Entry(Stored(entry[0]), entry[1]) for path, entry in chosen.items() if entry is not None
        }
        self._touched = [path for path in made.before if path in self.entries]

    @property
    def is_whole(self) -> bool:
        return self._made.is_whole

    def sees(self, path: str) -> bool:
        if self._made.is_whole or path in self.entries:
            return True
        if path not in self._made.sees:
            self._asked.paths.add(path)
        return self._made.sees.get(path, False)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        found = {}
        for path in paths:
            digest = self.entries[path].digest
            if digest not in self._made.contents:
                self._asked.digests.add(digest)
            elif (text := self._made.contents[digest]) is not None:
                found[path] = text.encode()
        return found

    def where(self, words: Collection[str]) -> Mapping[str, frozenset[str]] | None:
        if self._made.words is None:
            return None
        own = words_in(self.read(self._touched).items(), words)
        self._asked.words.update(word for word in words if word not in self._made.words)
        return {word: own[word].union(self._made.words[word]) for word in words if word in self._made.words}


def answer(raw: bytes) -> bytes:
    """Return the result of a comparison and its missing input as JSON (`fetching` reads it).

    Sections that describe the change are searched once no input is missing, or if `is_last`.
    """
    fields: dict[str, Any] = json.loads(raw)
    described, is_last = fields.pop("described"), fields.pop("is_last")
    documents, kinds = frozenset(fields.pop("documents")), frozenset(map(Kind, fields.pop("kinds")))
    made, asked = Recording(**fields), MissingInput()
    before, after = (RecordedTree(made, asked, is_before=is_before) for is_before in (True, False))
    reads = documents.__contains__
    report = compare(before, after, made.renames, reads=reads, kinds=kinds, seconds=SECONDS)
    sections = looking.described(before, after, made.renames, **described) if described else []
    found = {
        "sections": [looking.as_fields(one) for one in sections] if is_last or not asked else [],
        "untrue": [asdict(drifted) for drifted in report.drifted],
        "read": report.changed,
        "counts": report.figures,
        "asked": {name: sorted(values) for name, values in asdict(asked).items()},
    }
    return json.dumps(found).encode()
