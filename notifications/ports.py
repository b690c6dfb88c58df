"""The port to the app whose jobs the deliveries belong to (settings.DELIVERY_JOBS)."""

from __future__ import annotations

from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string


class Jobs(Protocol):
    """Questions and notices about the jobs of deliveries."""

    def why_no_resend(self, job_id: int) -> str:
        """Return why nothing more is sent for a job, one sentence, or ""."""
        ...

    def note(self, job_id: int, *, actor: str, words: str) -> None:
        """Record a decision in the job's history, inside the caller's transaction."""
        ...

    def resume_job(self, job_id: int, *, actor: str, reason: str) -> str:
        """Resume a job, outside transactions; return a sentence about it."""
        ...

    def resume_soon(self) -> None:
        """Have a worker resume every job whose deliveries are decided."""
        ...


def jobs() -> Jobs:
    """Return the configured port (settings.DELIVERY_JOBS)."""
    port: Jobs = import_string(settings.DELIVERY_JOBS)()
    return port
