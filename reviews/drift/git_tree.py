"""The tree of one commit of a local git repository, as drift reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from reviews.drift.trees import MAX_FILE_BYTES, Entry, Stored
from reviews.sources import git_search
from reviews.sources.git_command import MAX_OUTPUT_BYTES, GitCommand, GitObject

MAX_ROOM = 64_000_000  # bytes of contents read at once
SECONDS = 60.0  # of one command


class GitTree:
    """The files of a commit (`trees.Tree`), all of them seen.

    Raises as `GitCommand` does, and PermanentFailure POLICY_REJECTED where the list of files is too long.
    """

    is_whole = True

    def __init__(self, git: GitCommand, sha: str) -> None:
        self._git, self._sha = git, sha
        listed = git_search.tree(git, sha, SECONDS)
        if listed is None:
            raise PermanentFailure(
                ErrorClass.POLICY_REJECTED,
                Component.SOURCE,
                f"the commit has too many files: git's list of them has more than {MAX_OUTPUT_BYTES:,} bytes,"
                " and a commit of this size is not scanned",
            )
        self.entries: Mapping[str, Entry] = {
            path: Entry(Stored(entry.kind), entry.digest) for path, entry in listed.items()
        }
        self._objects = {
            entry.digest: GitObject("blob", entry.size_bytes)
            for entry in listed.values()
            if entry.size_bytes is not None and entry.size_bytes <= MAX_FILE_BYTES
        }

    def sees(self, path: str) -> bool:
        return True

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of ordinary files up to MAX_FILE_BYTES each, and MAX_ROOM together."""
        chosen: dict[str, str] = {}
        room = MAX_ROOM
        for path in paths:
            entry = self.entries.get(path)
            found = self._objects.get(entry.digest) if entry and entry.stored is Stored.FILE else None
            if entry is not None and found is not None and found.size_bytes <= room:
                chosen[path] = entry.digest
                room -= found.size_bytes
        contents = self._git.contents(sorted(set(chosen.values())), self._objects)
        return {path: contents[digest] for path, digest in chosen.items()}

    def where(self, words: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Return the files that hold each word; left out are words that could not be searched."""
        return git_search.holding(self._git, self._sha, sorted(words), SECONDS) if words else {}


def renames_between(git: GitCommand, base: str, head: str) -> dict[str, str]:
    """Return the files that git takes for renamed between two commits: old paths to new ones."""
    listed = git.output(
        "diff-tree", "-r", "-z", "--name-status", "--no-ext-diff", "--no-textconv",
        "--find-renames=50%", "--diff-filter=R", base, head, "--",
    )  # fmt: skip
    words = [word for word in listed.decode("utf-8", "replace").split("\0") if word]
    return dict(zip(words[1::3], words[2::3], strict=True))
