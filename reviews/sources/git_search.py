"""Search for names, and reading of files, in the tree of a commit."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from criticizer.resilience.failures import ErrorClass, RetryableFailure
from reviews.sources.base import Mention, TreeEntry
from reviews.sources.git_command import GitCommand
from reviews.sources.names import defines, same_language
from reviews.sources.paths import decode_path, encode_path

MAX_OUTPUT_BYTES = 16_000_000
MAX_PATTERN_BYTES = 32_000  # of the words that are searched at once
_FILE_MODES = ("100644", "100664", "100755")
_KINDS = {"120000": "link", "160000": "submodule"}


def find(
    git: GitCommand, depot: str, sha: str, names: Sequence[str], like: Sequence[str], seconds: float
) -> Iterator[Mention]:
    """Yield where names stand in text files of the same languages as the paths `like`.

    A list that is too long is cut: what comes after it is not known.
    """
    # One expression: a list of patterns costs git time in proportion to its length.
    pattern = "|".join(re.escape(name) for name in names)
    globs = sorted({f"*{ending}" for path in like for ending in same_language(path)})
    if not globs:
        return
    result = git.run(
        "grep", "-I", "-n", "-w", "-E", "-z", "--full-name", "--no-recurse-submodules", "--no-textconv",
        "--no-color", "--no-column", "-e", pattern, sha, "--", *globs,
        max_bytes=MAX_OUTPUT_BYTES, timeout_seconds=seconds,
    )  # fmt: skip
    if result.exit_code > 1 and not result.truncated:
        raise git.failure(result)
    wanted = set(names)
    for line in result.stdout.decode("utf-8", "surrogateescape").split("\n"):
        place, _, rest = line.partition("\0")
        _, separator, text = rest.partition("\0")
        if not separator or not place.startswith(f"{sha}:"):
            continue
        path = f"//{depot}/{encode_path(place[len(sha) + 1 :])}"
        defined = set(defines(path, text))
        for name in wanted.intersection(re.findall(r"[\w$]+", text)):
            yield Mention(path, name, name in defined)


def read(
    git: GitCommand, depot: str, sha: str, paths: Sequence[str], max_bytes: int, seconds: float
) -> Iterator[tuple[str, bytes | None]]:
    """Yield what a commit holds of `paths`, in their order; None for other than ordinary files."""
    # A folder above the repository is no place of it, however wide the allow-list is.
    paths = [path for path in paths if path.startswith(f"//{depot}/")]
    if not paths:
        return
    names = [decode_path(path.removeprefix(f"//{depot}/")) for path in paths]
    raw = [f":(literal){name}" for name in names]  # a file may be named like a pathspec: `:!a.py`
    listed = git.output("ls-tree", "-z", "--full-tree", sha, "--", *raw, timeout_seconds=seconds)
    blobs: dict[str, str] = {}
    for entry in filter(None, listed.decode("utf-8", "surrogateescape").split("\0")):
        facts, _, name = entry.partition("\t")
        mode, _, blob = facts.partition(" blob ")
        # Never a link, a submodule or a folder.
        blobs[f"//{depot}/{encode_path(name)}"] = blob if mode in _FILE_MODES else ""
    objects = git.objects([blob for blob in blobs.values() if blob])
    chosen, room = set(), max_bytes
    for path in paths:
        found = objects.get(blobs.get(path, ""))
        if found is not None and found.kind == "blob" and found.size_bytes <= room:
            chosen.add(path)
            room -= found.size_bytes
    contents = git.contents(list(dict.fromkeys(blobs[path] for path in chosen)), objects)
    for path in paths:
        if path in blobs:
            yield path, contents[blobs[path]] if path in chosen else None


def tree(git: GitCommand, sha: str, seconds: float) -> dict[str, TreeEntry] | None:
    """Return the files of a commit by their raw names; None where the list is too long."""
    result = git.run("ls-tree", "-r", "-l", "-z", "--full-tree", sha, timeout_seconds=seconds)
    if result.truncated:
        return None
    if result.exit_code != 0:
        raise git.failure(result)
    found = {}
    for entry in filter(None, result.stdout.decode("utf-8", "surrogateescape").split("\0")):
        facts, _, name = entry.partition("\t")
        mode, _, digest, size = facts.split()
        found[name] = TreeEntry(_KINDS.get(mode, "file"), digest, int(size) if size.isdigit() else None)
    return found


def holding(git: GitCommand, sha: str, words: Sequence[str], seconds: float) -> dict[str, frozenset[str]]:
    """Return the raw names of text files that hold each word.

    Left out are words that could not be searched: those of a batch with too long an answer, and those for
    which no time was left. The first batch may take all of the time, and raises as `GitCommand` does.
    """
    until, found = time.monotonic() + seconds, dict[str, frozenset[str]]()
    for number, batch in enumerate(_batches(words)):
        left = until - time.monotonic()
        if number and left <= 0:
            break
        try:
            found.update(_holding(git, sha, batch, left) or {})
        except RetryableFailure as failure:
            if not number or failure.error_class is not ErrorClass.NETWORK_TIMEOUT:
                raise
            break
    return found


def _batches(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield words in batches whose pattern is one argument of a command.

    Linux takes arguments of up to 128 KiB.
    """
    batch: list[str] = []
    room = MAX_PATTERN_BYTES
    for word in words:
        size = len(re.escape(word).encode("utf-8", "surrogateescape")) + 1
        if size > MAX_PATTERN_BYTES:
            continue
        if size > room:
            yield batch
            batch, room = [], MAX_PATTERN_BYTES
        batch.append(word)
        room -= size
    if batch:
        yield batch


def _holding(
    git: GitCommand, sha: str, words: Sequence[str], seconds: float
) -> dict[str, frozenset[str]] | None:
    """Return the files that hold each word; None where the answer is too long."""
    pattern = "|".join(re.escape(word) for word in words)
    result = git.run(
        "grep", "-I", "-o", "-w", "-E", "-z", "--full-name", "--no-recurse-submodules", "--no-textconv",
        "--no-color", "--no-column", "--no-line-number", "-e", pattern, sha,
        max_bytes=MAX_OUTPUT_BYTES, timeout_seconds=seconds,
    )  # fmt: skip
    if result.truncated:
        return None
    if result.exit_code > 1:
        raise git.failure(result)
    found: dict[str, set[str]] = {word: set() for word in words}
    for line in result.stdout.decode("utf-8", "surrogateescape").split("\n"):
        place, separator, word = line.partition("\0")
        if separator and word in found:
            found[word].add(place[len(sha) + 1 :])
    return {word: frozenset(names) for word, names in found.items()}
