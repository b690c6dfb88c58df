"""The port through which dead letters put jobs back to work (settings.DEADLETTER_RECOVERY)."""

from __future__ import annotations

from reviews import artifacts, pipeline
from reviews.models import Artifact, ReviewJob
from reviews.states import ACTIVE_JOB, JobStatus, Stage


class JobRecovery:
    """Describes, validates and replays review jobs (specification 000, 8.5)."""

    def describe(self, job_id: int) -> str:
        """Return one line that names the job to an operator."""
        job = ReviewJob.objects.get(pk=job_id)
        return f"changelist {job.changelist_id}, version {job.review_version}"

    def validate(self, job_id: int, stage: str, *, restart: bool) -> list[str]:
        """Return why a replay cannot work now, one sentence each; empty when it can."""
        job = ReviewJob.objects.get(pk=job_id)
        problems = []
        if job.status != JobStatus.DEAD_LETTERED:
            problems.append(f"the job is {job.get_status_display().lower()}, not dead-lettered")
        newer = ReviewJob.objects.filter(
            changelist_id=job.changelist_id, review_version__gt=job.review_version
        ).order_by("-review_version")
        if found := newer.first():
            problems.append(f"newer version exists: {found.review_version}")
        elif ReviewJob.objects.filter(changelist_id=job.changelist_id, status__in=ACTIVE_JOB).exists():
            problems.append("another version of this changelist is being worked on")
        if stage == Stage.LLM and not restart and not artifacts.exists(job_id, Artifact.Kind.CHANGE):
            why = artifacts.trouble(job_id, Artifact.Kind.CHANGE) or "the change artifact has expired"
            problems.append(f"{why}; restart from the first stage instead")
        return problems

    def replay(self, job_id: int, stage: str, *, restart: bool) -> bool:
        """Put the job back to work inside the caller's transaction; False when it cannot be."""
        return pipeline.replay(job_id, Stage.FETCH if restart else Stage(stage))
