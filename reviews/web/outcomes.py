"""Outcomes of reviews in a reader's words: more than a status where an operator is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from criticizer.resilience.failures import ErrorClass
from criticizer.wording import plural_count
from deadletters.models import DeadLetter
from deadletters.states import OPEN_LETTER, LetterStatus
from notifications.models import Delivery
from notifications.states import SETTLED_DELIVERY, DeliveryStatus
from reviews.models import ReviewJob, StageRun
from reviews.states import JobStatus, Stage, StageStatus
from reviews.web.labels import state_for_readers


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a review in a reader's words.

    `word` is the state as readers see it; `look` is the status whose colours it has.
    """

    word: str
    look: str


def outcomes(jobs: Sequence[ReviewJob]) -> dict[int, Outcome]:
    """Return the outcome of each job by id, in at most four queries.

    A review of which only messages failed is reviewed, and stays so when an operator gives up their
    recipients; a discarded dead letter leaves nothing to do.
    """
    stopped = [job.pk for job in jobs if job.status == JobStatus.DEAD_LETTERED]
    done = [job.pk for job in jobs if job.status == JobStatus.SUCCEEDED]
    special = {**(_special(stopped) if stopped else {}), **(_given_up(done) if done else {})}
    return {
        job.pk: special.get(job.pk, Outcome(state_for_readers(job.status), str(job.status))) for job in jobs
    }


def _given_up(done: list[int]) -> dict[int, Outcome]:
    given_up = Delivery.objects.filter(
        job__in=done, status=DeliveryStatus.ABANDONED, error_class=ErrorClass.RECIPIENT_REJECTED
    )
    counted = given_up.order_by().values_list("job").annotate(number=Count("pk"))
    return {job: _undelivered(number) for job, number in counted}


def _undelivered(number: int) -> Outcome:
    word = f"Reviewed; {plural_count(number, 'message')} not delivered"
    return Outcome(word, JobStatus.RETRYABLE_FAILED.value)


def _special(stopped: list[int]) -> dict[int, Outcome]:
    reviewed = StageRun.objects.filter(job__in=stopped, stage=Stage.LLM, status=StageStatus.SUCCEEDED)
    failed = Count("pk", filter=Q(status=DeliveryStatus.FAILED))
    unsettled = Count("pk", filter=~Q(status__in=SETTLED_DELIVERY))
    undelivered = {
        job: number
        for job, number, rest in Delivery.objects.filter(job__in=list(reviewed.values_list("job", flat=True)))
        .order_by()
        .values_list("job")
        .annotate(failed=failed, unsettled=unsettled)
        if number and not rest
    }
    letters = DeadLetter.objects.filter(job__in=stopped, status__in=(*OPEN_LETTER, LetterStatus.DISCARDED))
    statuses: dict[int, set[str]] = {}
    for job, status in letters.values_list("job", "status"):
        statuses.setdefault(job, set()).add(status)
    found = {}
    for job in stopped:
        if number := undelivered.get(job):
            found[job] = _undelivered(number)
        elif statuses.get(job) == {LetterStatus.DISCARDED}:
            found[job] = Outcome("Stopped: given up by an operator", JobStatus.CANCELLED.value)
    return found
