"""Disk space of the mirrors of code hosts' repositories (guarantee G314).

Everyone who can open a pull request adds to a mirror, each head its own pack. Above MAX_PACKS, heads but the
newest MAX_VERSIONS are let go and the rest is packed as one. A mirror that is still above MAX_MIRROR_BYTES is
deleted and fetched again once no review reads it, and at twice that size in any case; a review that reads it
then is repeated. Above a size of all mirrors, those unused for longest are deleted: the hosts have all of
their content.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from pathlib import Path

import structlog

from criticizer.resilience.failures import Failure
from reviews.sources.git_command import GitCommand

log = structlog.get_logger(__name__)

MAX_PACKS, MAX_VERSIONS = 50, 50
MAX_MIRROR_BYTES = 4_000_000_000  # two of the largest packs that are fetched
IN_USE_SECONDS = 600.0  # after its fetch, what a review reads from a mirror


def is_too_large(mirror: Path) -> bool:
    """Return whether a mirror must be fetched again.

    If a review may be reading it, only at twice the size.
    """
    if (size := _size(mirror)) <= MAX_MIRROR_BYTES:
        return False
    is_in_use = time.time() - mirror.stat().st_mtime <= IN_USE_SECONDS
    if is_in_use and size <= 2 * MAX_MIRROR_BYTES:
        return False
    log.warning("mirror_too_large", mirror=mirror.name, bytes=size)
    return True


def keep_small(git: GitCommand, mirror: Path) -> None:
    """Repack a mirror of many packs with its newest versions. If that fails it stays as it is.

    Under the mirror's lock; a review that reads from it goes on.
    """
    if len(_packs(mirror)) <= MAX_PACKS:
        return
    versions = sorted((mirror / "refs" / "versions").glob("*"), key=lambda path: path.stat().st_mtime)
    try:
        for old in versions[:-MAX_VERSIONS]:
            git.run("update-ref", "-d", f"refs/versions/{old.name}")
        done = git.run("repack", "-a", "-d", "-q").exit_code == 0
    except Failure:
        done = False
    log.info("mirror_packed", mirror=mirror.name, done=done)


def delete_unused(directory: Path, older_than_seconds: float, max_bytes: float) -> int:
    """Delete the mirrors that were not fetched for so long; return how many.

    Above `max_bytes` in all, those unused for longest as well. One that a review may be reading stays.
    """
    deleted = 0
    mirrors = [lock.with_name(lock.name.removesuffix(".flock")) for lock in directory.glob("*/*.git.flock")]
    used = {mirror: mirror.stat().st_mtime for mirror in mirrors if mirror.is_dir()}
    sizes = {mirror: _size(mirror) for mirror in used}
    for mirror in sorted(used, key=used.__getitem__):
        unused_seconds = time.time() - used[mirror]
        is_too_much = sum(sizes.values()) > max_bytes and unused_seconds > IN_USE_SECONDS
        if unused_seconds < older_than_seconds and not is_too_much:
            continue
        with mirror.with_name(f"{mirror.name}.flock").open("w") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if mirror.stat().st_mtime != used[mirror]:
                continue  # it was fetched while the others were measured
            shutil.rmtree(mirror)
            del sizes[mirror]
            deleted += 1
    return deleted


def _packs(mirror: Path) -> list[Path]:
    return list((mirror / "objects" / "pack").glob("*.pack"))


def _size(mirror: Path) -> int:
    """Return the size of a mirror's packs: all of its objects."""
    size = 0
    for pack in _packs(mirror):
        with contextlib.suppress(FileNotFoundError):  # repacked at this moment
            size += pack.stat().st_size
    return size
