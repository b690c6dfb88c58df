"""Storages of artifacts and of removed dead letters.

They are directories, or buckets of an S3 server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.files.storage import FileSystemStorage
from django.utils.deconstruct import deconstructible

_FILES = "django.core.files.storage.FileSystemStorage"
_PRIVATE = {"file_permissions_mode": 0o600, "directory_permissions_mode": 0o700}


@deconstructible(path="criticizer.storage.DurableFileStorage")
class DurableFileStorage(FileSystemStorage):
    """Django's file storage with fsync, for files whose original is deleted after the write."""

    def _save(self, name: str, content: Any) -> str:
        saved: str = super()._save(name, content)  # type: ignore[misc]  # the stubs leave it out
        path = Path(self.path(saved))
        sync(path)
        for directory in path.relative_to(self.location).parents:  # the last one is the location itself
            sync(Path(self.location) / directory)
        return saved


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def artifact_storages(values: Mapping[str, Any], data_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the STORAGES of raw and redacted artifacts and of removed dead letters.

    Each storage has its own location. `ARTIFACT_STORAGE=s3` needs django-storages (extra `s3`).
    """
    if values["ARTIFACT_STORAGE"] == "file":
        return {
            "artifacts_raw": _directory(_FILES, data_dir / "artifacts" / "raw"),
            "artifacts_redacted": _directory(_FILES, data_dir / "artifacts" / "redacted"),
            # The only copy of what was removed from the database: it is flushed to the disk.
            "letter_archive": _directory("criticizer.storage.DurableFileStorage", data_dir / "letters"),
        }
    common = {
        "endpoint_url": values["ARTIFACT_S3_ENDPOINT"] or None,
        "region_name": values["ARTIFACT_S3_REGION"] or None,
        "access_key": values["ARTIFACT_S3_ACCESS_KEY"] or None,
        "secret_key": values["ARTIFACT_S3_SECRET_KEY"] or None,
        "default_acl": None,
        "file_overwrite": False,
        "querystring_auth": True,
        **_s3_client(),
    }
    buckets = {"artifacts_raw": "RAW", "artifacts_redacted": "REDACTED", "letter_archive": "LETTERS"}
    return {
        alias: {
            "BACKEND": "storages.backends.s3.S3Storage",
            "OPTIONS": {**common, "bucket_name": values[f"ARTIFACT_S3_BUCKET_{name}"]},
        }
        for alias, name in buckets.items()
    }


def _directory(backend: str, location: Path) -> dict[str, Any]:
    return {"BACKEND": backend, "OPTIONS": {"location": location, **_PRIVATE}}


def _s3_client() -> dict[str, Any]:
    """Return the timeouts of the S3 client, without retries: stages retry, with their budgets."""
    try:
        from botocore.config import Config
    except ImportError:  # reported by the system check criticizer.E004
        return {}
    return {
        "client_config": Config(
            connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1}, signature_version="s3v4"
        )
    }
