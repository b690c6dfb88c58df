"""The tree of one commit of a local git repository, as drift reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from reviews.drift.trees import MAX_FILE_BYTES, Entry, Stored, words_in
from reviews.sources.git_command import GitCommand

MAX_ROOM = 64_000_000  # bytes of contents read at once
_STORED = {"120000": Stored.LINK, "160000": Stored.SUBMODULE}


class GitTree:
    """The files of a commit (`trees.Tree`), all of them seen. Raises as `GitCommand` does."""

    is_whole = True

    def __init__(self, git: GitCommand, sha: str) -> None:
        self._git = git
        self.entries: Mapping[str, Entry] = dict(self._listed(sha))
        self._objects = git.objects(sorted({entry.digest for entry in self.entries.values()}))

    def _listed(self, sha: str) -> list[tuple[str, Entry]]:
        listed = self._git.output("ls-tree", "-r", "-z", "--full-tree", sha)
        found = []
        for line in filter(None, listed.decode("utf-8", "replace").split("\0")):
            facts, _, path = line.partition("\t")
            mode, _, digest = facts.split(" ")
            found.append((path, Entry(_STORED.get(mode, Stored.FILE), digest)))
        return found

    def sees(self, path: str) -> bool:
        return True

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of ordinary files up to MAX_FILE_BYTES each, and MAX_ROOM together."""
        chosen: dict[str, str] = {}
        room = MAX_ROOM
        for path in paths:
            entry = self.entries.get(path)
            size = self._size(path)
            if entry is not None and entry.stored is Stored.FILE and size is not None and size <= room:
                chosen[path] = entry.digest
                room -= size
        contents = self._git.contents(sorted(set(chosen.values())), self._objects)
        return {path: contents[digest] for path, digest in chosen.items()}

    def where(self, words: Collection[str]) -> Mapping[str, frozenset[str]] | None:
        """Return the files that hold each word; None where the tree is too large to be read whole."""
        paths = [path for path, entry in self.entries.items() if entry.stored is Stored.FILE]
        sizes = [size for path in paths if (size := self._size(path)) is not None]
        if len(sizes) < len(paths) or sum(sizes) > MAX_ROOM:
            return None
        return words_in(self.read(paths).items(), words)

    def _size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None where it is too large or not stored here."""
        found = self._objects.get(self.entries[path].digest) if path in self.entries else None
        return found.size_bytes if found and found.size_bytes <= MAX_FILE_BYTES else None


def renames_between(git: GitCommand, base: str, head: str) -> dict[str, str]:
    """Return the files that git takes for renamed between two commits: old paths to new ones."""
    listed = git.output(
        "diff-tree", "-r", "-z", "--name-status", "--no-ext-diff", "--no-textconv",
        "--find-renames=50%", "--diff-filter=R", base, head, "--",
    )  # fmt: skip
    words = [word for word in listed.decode("utf-8", "replace").split("\0") if word]
    return dict(zip(words[1::3], words[2::3], strict=True))
