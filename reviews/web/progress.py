"""Progress of a review: its stages, and one sentence about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.fields.json import KeyTransform

from criticizer.models import OutboxMessage
from criticizer.resilience.failures import COMPONENT_NAMES, Component, kind_with_code
from notifications.states import DeliveryStatus
from reviews.models import Attempt, ReviewJob, StageRun
from reviews.pipeline import AGGREGATE
from reviews.recipients.viewing_scopes import Scope
from reviews.states import JobStatus, StageStatus
from reviews.web.labels import took
from reviews.web.outcomes import Outcome
from reviews.web.review_list import in_stage_order

MAX_ATTEMPTS = 25


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage with its newest attempts and the reason of its last failure."""

    run: StageRun
    attempts: Sequence[Attempt]
    trouble: str
    has_ended: bool  # its review: nothing is pending any more
    waits_for: str = ""  # display name of a dependency that may not be called now
    parts: str = ""  # such as `3 of 10 parts are reviewed`, while it runs

    @property
    def number(self) -> int:
        return in_stage_order(self.run) + 1

    @property
    def word(self) -> str:
        is_left = self.has_ended and self.run.status == StageStatus.PENDING
        return "Not run" if is_left else self.run.get_status_display()

    @property
    def is_running(self) -> bool:
        return self.run.status == StageStatus.RUNNING


def stages_of(job: ReviewJob, scope: Scope) -> list[StageView]:
    """Return the three stages in their order, each with its newest attempts.

    Details of attempts may name files, and parts are those of the whole change, so only users who see every
    file get them.
    """
    views = []
    # Not the answers, which can be long.
    rows = job.stages.defer("progress").annotate(parts=KeyTransform(StageRun.PARTS, "progress"))
    runs = sorted(rows, key=in_stage_order)
    waiting = dict(
        OutboxMessage.objects.filter(aggregate_type=AGGREGATE, aggregate_id__in=[run.pk for run in runs])
        .exclude(waiting_for="")
        .values_list("aggregate_id", "waiting_for")
    )
    for run in runs:
        attempts = list(run.attempt_rows.order_by("-id")[:MAX_ATTEMPTS])
        for attempt in attempts if not scope.everything else ():
            attempt.detail = ""
        waits_for = _in_words(waiting[run.pk]) if run.pk in waiting else ""
        parts = _parts(run) if scope.everything else ""
        views.append(StageView(run, attempts, _trouble(run, attempts), not job.is_active, waits_for, parts))
    return views


def _parts(run: Any) -> str:
    """Return how many parts a running stage has finished, or "" where it is not known."""
    if run.status != StageStatus.RUNNING or not run.parts:
        return ""
    finished, total = run.parts
    return f"{finished} of {total} parts {'is' if finished == 1 else 'are'} reviewed"


def _in_words(dependency: str) -> str:
    """Return the display name of a dependency such as `llm:openai`."""
    kind = dependency.partition(":")[0]
    places = {"p4": Component.SOURCE, "llm": Component.REVIEWER, "provider": Component.PROVIDER}
    return f"{COMPONENT_NAMES[places[kind]]} ({dependency})" if kind in places else dependency


def _trouble(run: StageRun, attempts: Iterable[Attempt]) -> str:
    if run.status not in {StageStatus.RETRY_WAIT, StageStatus.FAILED}:
        return ""
    code = next((attempt.code for attempt in attempts if attempt.code), "")
    kind = kind_with_code(code)
    return kind.message if kind else ""


def progress_sentence(job: ReviewJob, stages: Sequence[StageView], outcome: Outcome) -> str:
    """Return the progress as one sentence, for screen readers."""
    run = next((view.run for view in stages if view.run.status != StageStatus.SUCCEEDED), None)
    if not job.is_active or run is None:
        return f"This review has ended: {outcome.word}."
    attempt = f"attempt {run.attempts} of {run.max_attempts}"
    if run.status == StageStatus.RUNNING:
        parts = next((f": {view.parts}" for view in stages if view.parts), "")
        return f"{run.get_stage_display()} is running, {attempt}{parts}."
    if run.status == StageStatus.RETRY_WAIT:
        return f"{run.get_stage_display()} failed in {attempt} and is tried again."
    if waits_for := next((view.waits_for for view in stages if view.waits_for), ""):
        return f"{run.get_stage_display()} waits for {waits_for}."
    return f"{run.get_stage_display()} waits for a worker."


def progress_line(job: ReviewJob, outcome: Outcome) -> str:
    """Return the progress in a few words: `Reviewed in 6.7 s`."""
    if job.is_active or job.finished_at is None:
        return "Progress"
    taken = took(job.created_at, job.finished_at)
    return f"Reviewed in {taken}" if job.status == JobStatus.SUCCEEDED else f"{outcome.word} after {taken}"


def notified(job: ReviewJob) -> str:
    """Return how many recipients were notified of an ended review, such as `3 notified`, or ""."""
    if job.is_active or job.status != JobStatus.SUCCEEDED:
        return ""
    number = job.deliveries.filter(status=DeliveryStatus.SENT).count()
    return f"{number} notified" if number else ""
