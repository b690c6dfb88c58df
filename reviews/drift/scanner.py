"""Scanner of one commit: its documents one after the other, as far as paths may be seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from reviews.drift import verify, walk
from reviews.drift.change import Report
from reviews.drift.claims import Claim, Judgement, Kind, Verdict
from reviews.drift.git_tree import GitTree
from reviews.drift.history_gate import gated
from reviews.drift.index import Index, documents_in
from reviews.drift.trees import Entry, Tree
from reviews.drift.walk import Document, Found
from reviews.sources.git_command import GitCommand

Sees = Callable[[Sequence[str]], Sequence[bool]]


class SeenTree:
    """A tree without the paths that may not be seen (`trees.Tree`).

    `sees` is asked of each path once.
    """

    def __init__(self, tree: Tree, sees: Sees, known: dict[str, bool], *, is_whole: bool) -> None:
        self._tree, self._ask, self._known, self.is_whole = tree, sees, known, is_whole
        missing = [path for path in tree.entries if path not in known]
        if missing and not is_whole:
            known.update(zip(missing, sees(missing), strict=True))
        self.entries: Mapping[str, Entry] = {
            path: entry for path, entry in tree.entries.items() if is_whole or known[path]
        }

    def sees(self, path: str) -> bool:
        """Return whether a path may be seen, whether it exists or not."""
        if not self.is_whole and path not in self._known:
            self._known[path] = self._ask([path])[0]
        return self.is_whole or self._known[path]

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        return self._tree.read([path for path in paths if path in self.entries])

    def where(self, words: Collection[str]) -> Mapping[str, frozenset[str]] | None:
        found = self._tree.where(words)
        if found is None or self.is_whole:
            return found
        return {
            word: frozenset(path for path in held if path in self.entries) for word, held in found.items()
        }


class Scanner:
    """Verifies the documents of one commit. Raises as `GitCommand` does."""

    def __init__(self, git: GitCommand, sha: str, sees: Sees, *, is_whole: bool) -> None:
        self._git, self._sha, self._sees, self._is_whole = git, sha, sees, is_whole
        self._known: dict[str, bool] = {}
        self._index = Index(self._tree(git, sha), {})
        self._writers: dict[str, Index] = {}
        self.report = Report()

    @property
    def paths(self) -> list[str]:
        """Return the documents that may be seen, the most exposed first."""
        return list(documents_in(self._index.entries))

    @property
    def unparsed(self) -> int:
        """Return how many files did not parse so far."""
        return len(self._index.unparsed)

    def documents(self, paths: Sequence[str], kinds: Collection[Kind]) -> Found:
        """Read documents for claims, within the bounds of a scan.

        Each is read as a whole or not at all.
        """
        return walk.read(self._index, self.report, paths, kinds)

    def look_for(self, documents: Sequence[Document]) -> None:
        """Search at once for the words that claims of these documents name."""
        self._index.look_for(verify.words_of(claim for each in documents for claim in each.claims))

    def verified(self, document: Document) -> Iterator[tuple[Claim, Judgement]]:
        """Yield each claim of a document with its verdict; refuted only where it once held."""
        for claim in document.claims:
            judged = verify.judge(claim, self._index)
            if judged.verdict is Verdict.REFUTED:
                judged = gated(self._git, self._sha, claim, judged, self._writers, tree_of=self._tree)
            yield claim, judged

    def _tree(self, git: GitCommand, sha: str) -> Tree:
        return SeenTree(GitTree(git, sha), self._sees, self._known, is_whole=self._is_whole)
