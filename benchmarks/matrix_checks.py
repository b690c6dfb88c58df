"""Check runs, and statuses of commits, in the matrix.

Each has to show the end of its review once, whatever dies. A cell is a reviewed head whose worker is killed
at one statement while it opens or closes its check run; another worker comes after it. It is truthful when
the host shows one check run that is concluded, and the row says so.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.utils import timezone

from benchmarks.matrix_rig import LIMITS, Rig
from benchmarks.matrix_run import Bench, Cell, verdict_of
from benchmarks.matrix_worker import Workers
from tests.fakes import hosts

PATIENCE_SECONDS = 20.0
_REFUSED = {"PERMISSION_DENIED", "RECIPIENT_REJECTED"}
_AGO = timedelta(days=14)  # told no longer


class CheckBench(Bench):
    """One host: its rig, its workers and the check runs of its reviewed heads."""

    def __init__(self, rig: Rig, workers: Workers) -> None:
        self.rig, self.workers, self.channel = rig, workers, rig.name
        self._name = rig.name.removesuffix(hosts.CHECK)
        self._numbers = itertools.count(1)
        self._together = {}

    def job(self) -> int:
        from reviews.models import HostChange, HostVersion
        from reviews.states import JobStatus
        from tests import factories

        number = next(self._numbers)
        changelist = self.rig.recipient(number)
        job = factories.job_with_stages(changelist_id=changelist, status=JobStatus.IN_PROGRESS)
        seen = {"head_sha": f"{number:040x}", "base_sha": "b" * 40, "base_ref": "main"}
        change = HostChange.objects.create(
            host=self._name, repository_id=number + 1, number=1, changelist_id=changelist,
            full_name=f"owner{number}/web", reported_at=timezone.now(), **seen,
        )  # fmt: skip
        HostVersion.objects.create(change=change, job=job, is_automatic=False, **seen)
        return int(job.pk)

    def _cell(self, *given: Any) -> Cell:
        from reviews.models import HostVersion

        HostVersion.objects.update(created_at=timezone.now() - _AGO)  # those of earlier cells
        return super()._cell(*given)

    def judge(self, job: int, *, refuses: bool, arrived: Counter[str] | None = None) -> tuple[str, str, int]:
        from reviews.models import HostCheck

        row = HostCheck.objects.select_related("version").filter(version__job_id=job).first()
        if row is None:
            return "loss", "none", 0
        seen = self.rig.arrived() if arrived is None else arrived
        key = self._key(row)
        concluded, left_open = seen[key], seen[f"open:{key}"]
        status = "sent" if row.told == "succeeded" else "failed" if row.error_class in _REFUSED else "pending"
        verdict = verdict_of(
            status, concluded + left_open, is_marked=not left_open, refuses=refuses, may_hold=False
        )
        return verdict, status, concluded + left_open

    def open_jobs(self) -> set[int]:
        from reviews.models import HostCheck, HostVersion

        told = HostCheck.objects.filter(told="succeeded").values("version")
        return set(HostVersion.objects.exclude(pk__in=told).values_list("job_id", flat=True))

    def known_tokens(self) -> set[str]:
        from reviews.models import HostCheck

        keys = {self._key(row) for row in HostCheck.objects.select_related("version")}
        return keys | {f"open:{key}" for key in keys}

    def statuses(self, jobs: list[int]) -> Counter[str]:
        from reviews.models import HostCheck

        return Counter(HostCheck.objects.filter(version__job_id__in=jobs).values_list("told", flat=True))

    def _key(self, row: Any) -> str:
        return str(row.token) if self._name == "github" else str(row.version.head_sha)


def host_of_spec(spec: list[str]) -> Any:
    """Return the product's host for a rig, in whatever process."""
    channel, url, key = spec
    return hosts.host_at(channel.removesuffix(hosts.CHECK), url, key=key, limits=LIMITS)


def live(job_id: int, host: Any) -> tuple[bool, str]:
    """Tell a check run that its review runs, end the review, and tell that, until both was told.

    Return whether time was up before that, and the last failure.
    """
    from criticizer.models import PaceSlot
    from reviews import check_runs
    from reviews.models import HostCheck, ReviewJob
    from reviews.states import JobStatus

    check_runs.connected_hosts = lambda: {host.name: host}
    end = time.monotonic() + PATIENCE_SECONDS
    for wanted in (("active", "succeeded"), ("succeeded",)):
        while time.monotonic() < end:
            PaceSlot.objects.update(token=None, expires_at=timezone.now())  # of a worker that died
            HostCheck.objects.filter(version__job_id=job_id).update(due_at=None)
            check_runs.run()
            row = HostCheck.objects.filter(version__job_id=job_id).first()
            if row is not None and row.told in wanted:
                break
            if row is not None and row.error_class in _REFUSED:
                return False, _failure_of(row)
            time.sleep(0.01)
        ReviewJob.objects.filter(pk=job_id).update(status=JobStatus.SUCCEEDED, finished_at=timezone.now())
    return time.monotonic() >= end, _failure_of(HostCheck.objects.filter(version__job_id=job_id).first())


def _failure_of(row: Any) -> str:
    return "no row" if row is None else f"{row.error_class}: {row.detail}" if row.error_class else ""


def watched(host: Any) -> Iterator[tuple[Any, str]]:
    """Yield what moves a check run, each with the module whose functions count."""
    from reviews import check_runs

    yield check_runs, check_runs.__name__
    for kind in (type(host), type(host.client)):
        yield from ((owner, owner.__module__) for owner in kind.__mro__ if owner is not object)
