"""Files that are still there after a power cut, for what is deleted elsewhere once they are written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.files.storage import FileSystemStorage
from django.utils.deconstruct import deconstructible


@deconstructible(path="criticizer.storage.DurableFileStorage")
class DurableFileStorage(FileSystemStorage):
    """Django's files on a disk; `save` returns when the file and its directories lie on it."""

    def _save(self, name: str, content: Any) -> str:
        saved: str = super()._save(name, content)  # type: ignore[misc]  # the stubs leave it out
        path = Path(self.path(saved))
        sync(path)
        for directory in path.relative_to(self.location).parents:  # the last one is the location itself
            sync(Path(self.location) / directory)
        return saved


def sync(path: Path) -> None:
    """Return when a file, or the entries of a directory, lie on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
