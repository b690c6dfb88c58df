"""A tree in memory, for what is verified without a repository."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from reviews.drift.trees import Entry, Stored, words_in


class MemoryTree:
    """A tree in memory (`Tree`). Links and submodules are given by their paths."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        *,
        links: Iterable[str] = (),
        submodules: Iterable[str] = (),
        sees: Callable[[str], bool] | None = None,
    ) -> None:
        self._sees = sees
        self._files = {path: data for path, data in files.items() if self.sees(path)}
        self.entries: Mapping[str, Entry] = {
            **{path: Entry(Stored.FILE, str(hash(data))) for path, data in self._files.items()},
            **{path: Entry(Stored.LINK, "") for path in links if self.sees(path)},
            **{path: Entry(Stored.SUBMODULE, "") for path in submodules if self.sees(path)},
        }

    @property
    def is_whole(self) -> bool:
        return self._sees is None

    def sees(self, path: str) -> bool:
        return self._sees is None or self._sees(path)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        return {path: self._files[path] for path in paths if path in self._files}

    def where(self, words: Collection[str]) -> Mapping[str, frozenset[str]]:
        return words_in(self._files.items(), words)
