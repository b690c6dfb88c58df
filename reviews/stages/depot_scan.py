"""The copy of a depot path that a scan reads.

It is made once for a job, kept for the slices of its scan, and deleted after it. The scanning process has no
access to Perforce: it reads this copy and nothing else.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from criticizer.resilience import gate
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from reviews import config
from reviews.drift.fetching import Sight, is_document_or_manifest
from reviews.drift.trees import MAX_FILE_BYTES
from reviews.models import ReviewJob
from reviews.sources.paths import encode_path
from reviews.sources.perforce import depot_copy
from reviews.sources.perforce.depot_copy import Copier, DepotCopy
from reviews.sources.perforce.source import PerforceSource
from reviews.states import ACTIVE_JOB

COPIES = "depot-copies"  # below the data directory: <job>.git, and drafts beside it


def copy_of(job: ReviewJob, source: PerforceSource, sight: Sight, seconds: float) -> DepotCopy:
    """Return the copy of a job's depot path at its changelist; make it if there is none.

    Raises the failures of Perforce, DependencyUnavailable while it must not be called, and RetryableFailure
    where the copy cannot be written.
    """
    folder = job.scope_prefixes[0]
    if not config.may_scan(folder, job.changelist_id):
        detail = "the allow-list excludes all of this path: add an entry for it, or delete the scanned path"
        raise PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, detail)
    copier = Copier(
        client=source.client,
        git_executable=settings.GIT_EXECUTABLE or "git",
        folder=folder,
        change=int(job.changelist_id),
        place=_place(job.pk),
        max_file_bytes=MAX_FILE_BYTES,
        sees=lambda name: sight.sees(folder + encode_path(name)),
        comes_first=is_document_or_manifest,
        sees_all=sight.is_whole(folder),
    )
    if (made := copier.existing()) is not None:
        return made
    with gate.guarded(config.perforce_dependency()):
        found = copier.read(min(depot_copy.SECONDS, seconds))
    return copier.write(*found)


def delete(job_id: int) -> None:
    """Delete the copy of a job whose scan is over."""
    depot_copy.delete(_place(job_id))


def delete_left() -> int:
    """Delete the copies of jobs that are over, and return how many jobs that were.

    Drafts of copies that dead workers left are deleted too. Run by maintenance.
    """
    found: dict[int, list[Path]] = {}
    for path in (settings.DATA_DIR / COPIES).glob("*.git*"):
        if (name := path.name.partition(".")[0]).isdigit():
            found.setdefault(int(name), []).append(path)
    active = ReviewJob.objects.filter(pk__in=found, status__in=ACTIVE_JOB).values_list("pk", flat=True)
    over = found.keys() - set(active)
    for job_id in over:
        for path in found[job_id]:
            depot_copy.delete(path)
    return len(over)


def _place(job_id: int) -> Path:
    return Path(settings.DATA_DIR) / COPIES / f"{job_id}.git"
