"""Matching of many allow-list lines against many paths, in one pass over the paths.

Lines with the same beginning share it, so a path is compared level by level with all of them at
once. Names with a `*` are found by the longer of their fixed ends; only those with a `*` at both
ends are tried one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from reviews.sources.allowlist import AllowListLine, level_matches, parse_line
from reviews.sources.paths import canonical_case

_PARSED_LINES = 50_000  # what one process remembers


@dataclass(slots=True)
class _Patterns:
    """Names with a `*` in one directory, by the longer of their fixed ends."""

    nodes: dict[tuple[str, ...], _Node] = field(default_factory=dict)
    by_end: dict[tuple[bool, str], list[tuple[str, ...]]] = field(default_factory=dict)
    lengths: set[tuple[bool, int]] = field(default_factory=set)  # (is a beginning, characters)

    def below(self, pieces: tuple[str, ...]) -> _Node:
        node = self.nodes.get(pieces)
        if node is None:
            node = self.nodes[pieces] = _Node()
            begins = len(pieces[0]) > len(pieces[-1])
            end = pieces[0] if begins else pieces[-1]
            self.lengths.add((begins, len(end)))
            self.by_end.setdefault((begins, end), []).append(pieces)
        return node

    def candidates(self, name: str) -> Iterator[tuple[str, ...]]:
        """Yield the patterns whose longer end the name has."""
        for begins, length in self.lengths:
            end = name[:length] if begins else name[len(name) - length :]
            if length <= len(name):
                yield from self.by_end.get((begins, end), ())


@dataclass(slots=True)
class _Node:
    """A directory that some lines begin with."""

    names: dict[str, _Node] = field(default_factory=dict)
    patterns: _Patterns = field(default_factory=_Patterns)
    tree: str | None = None  # the line that means everything below
    file: str | None = None  # the line that means exactly this

    def below(self, pieces: tuple[str, ...]) -> _Node:
        if len(pieces) == 1:
            return self.names.setdefault(pieces[0], _Node())
        return self.patterns.below(pieces)


class LineIndex:
    """Including lines such as `//depot/main/...` and `//depot/main/*.c`.

    `rejected` holds the lines that are not valid or exclude: they match nothing. `steps` counts
    the comparisons made so far.
    """

    def __init__(self, lines: Iterable[str], *, case_sensitive: bool = True) -> None:
        self._case_sensitive = case_sensitive
        self._root = _Node()
        self.rejected: list[str] = []
        self.steps = 0
        # On a server that ignores case, several lines are one.
        self._same: dict[str, list[str]] = {}
        for line in dict.fromkeys(lines):
            self._add(line)

    def matching(self, paths: Iterable[str]) -> set[str]:
        """Return the lines that match at least one of the depot paths."""
        found: set[str] = set()
        for path in paths:
            folded = canonical_case(path, case_sensitive=self._case_sensitive)
            if folded.startswith("//"):
                self._match(folded[2:].split("/"), found)
        return {line for one in found for line in self._same[one]}

    def _add(self, text: str) -> None:
        try:
            line = _parsed(text, self._case_sensitive)
        except ValueError:
            self.rejected.append(text)
            return
        if not line.include:
            self.rejected.append(text)
            return
        node = self._root
        for pieces in line.levels:
            node = node.below(pieces)
        if line.tree:
            node.tree = known = node.tree or text
        else:
            node.file = known = node.file or text
        self._same.setdefault(known, []).append(text)

    def _match(self, segments: Sequence[str], found: set[str]) -> None:
        nodes = [self._root]
        for segment in segments:
            following = []
            for node in nodes:
                self.steps += 1
                if node.tree is not None:
                    found.add(node.tree)  # this segment is below it
                if (named := node.names.get(segment)) is not None:
                    following.append(named)
                for pieces in node.patterns.candidates(segment):
                    self.steps += 1
                    if level_matches(pieces, segment):
                        following.append(node.patterns.nodes[pieces])
            nodes = following
            if not nodes:
                return
        found.update(node.file for node in nodes if node.file is not None)


@functools.lru_cache(maxsize=_PARSED_LINES)
def _parsed(text: str, case_sensitive: bool) -> AllowListLine:
    return parse_line(text.strip(), case_sensitive)
