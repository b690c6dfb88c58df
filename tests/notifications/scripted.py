"""A provider in memory that does what a test says, and helpers around delivery rows.

Origin of its behaviour: constructed, within what `notifications.providers.base` allows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from math import inf
from uuid import UUID

from criticizer.db import prepared
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.delivery import send as sending
from notifications.delivery import snapshot, store
from notifications.delivery.prepare import create_deliveries
from notifications.models import Delivery
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Provider, Question
from notifications.recipients import split
from notifications.states import SendOutcome
from reviews.models import ReviewJob
from reviews.pipeline.base import statement
from tests.notifications.samples import message

ANN = "mail:ann@example.com"
BOB = "mail:bob@example.com"
CI = "webhook:https://ci.example.com/hook"


def not_sent(
    error_class: ErrorClass = ErrorClass.NETWORK_UNREACHABLE, wait: float | None = None
) -> RetryableFailure:
    return RetryableFailure(error_class, Component.PROVIDER, "scripted", retry_after_seconds=wait)


def refused(error_class: ErrorClass = ErrorClass.RECIPIENT_REJECTED) -> PermanentFailure:
    return PermanentFailure(error_class, Component.PROVIDER, "scripted")


def unclear(error_class: ErrorClass = ErrorClass.DELIVERY_UNCERTAIN) -> UncertainFailure:
    return UncertainFailure(error_class, Component.PROVIDER, "scripted")


def untold(job: ReviewJob) -> list[str]:
    """Return the recipients that keep the job from its end, as the pipeline queries them."""
    rows = prepared.rows(
        statement("SELECT recipient FROM deliveries d WHERE $UNNOTIFIED ORDER BY id"), {"job": job.pk}
    )
    return [row["recipient"] for row in rows]


class ScriptedProvider:
    """A provider that accepts, unless the script has an exception for the call.

    It counts calls and arrivals. A failure given as (exception, True) happens after the message was accepted.
    """

    def __init__(
        self,
        name: str,
        *,
        deduplicates: bool = False,
        can_look_up: bool = False,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.name = name
        self.capabilities = capabilities or Capabilities(
            key_window_seconds=inf if deduplicates else 0.0,
            look_up=frozenset({LookUpBy.KEY} if can_look_up else ()),
            resends_after_absence=None,
        )
        self.calls: list[Message] = []
        self.arrived: Counter[UUID] = Counter()
        self.looked_up: list[tuple[UUID, str]] = []
        self.script: deque[object] = deque()
        self.before_send: Callable[[Message], None] = lambda message: None
        self.look_up_failure: Exception | None = None
        self.answers: deque[LookUp] = deque()  # of look-ups, before the true one

    def send(self, message: Message) -> str:
        self.before_send(message)
        self.calls.append(message)
        step = self.script.popleft() if self.script else None
        accepted = True
        if isinstance(step, tuple):
            step, accepted = step
        elif step is not None:
            accepted = False
        if accepted and not (self.capabilities.key_window_seconds and self.arrived[message.token]):
            self.arrived[message.token] += 1
        if isinstance(step, BaseException):
            raise step
        return f"id-{message.token}"

    def look_up(self, question: Question) -> LookUp:
        token = question.message.token
        self.looked_up.append((token, question.notification_id))
        if self.look_up_failure:
            raise self.look_up_failure
        if self.answers:
            return self.answers.popleft()
        if not self.capabilities.look_up:
            return LookUp(Evidence.UNKNOWN)
        if self.arrived[token]:
            return LookUp(Evidence.FOUND, f"id-{token}")
        return LookUp(Evidence.ABSENT)

    def probe(self) -> str:
        return "It does what the test says."


def prepare(
    job: ReviewJob,
    *recipients: str,
    digest_minutes: int = 0,
    not_after: datetime | None = None,
    **changes: object,
) -> list[Delivery]:
    """Prepare sample messages to the recipients; return their rows in the order of sending."""
    messages = {}
    for recipient in recipients:
        token = snapshot.token_for(job.changelist_id, recipient, job.review_version)
        messages[recipient] = replace(message(split(recipient)[1], **changes), token=token)
    create_deliveries(
        job.pk,
        job.changelist_id,
        job.review_version,
        messages,
        digest_minutes=dict.fromkeys(recipients, digest_minutes) if digest_minutes else {},
        not_after=not_after,
    )
    return list(Delivery.objects.filter(job=job).order_by("id"))


def deliver(
    job: ReviewJob,
    providers: Mapping[str, Provider],
    may_continue: Callable[[], bool] = lambda: True,
    tried: Mapping[str, str] | None = None,
) -> sending.Outcome:
    return sending.deliver(job.pk, providers, may_continue=may_continue, tried=tried)


def outcomes(row: Delivery) -> list[str]:
    return list(row.attempt_rows.order_by("id").values_list("outcome", flat=True))


def crashed(row: Delivery, provider: str) -> None:
    """Leave the row as a worker leaves it that died between its claim and its record."""
    claimed = store.claim(store.read(row.pk), provider)
    assert claimed is not None
    assert outcomes(row)[-1] == SendOutcome.STARTED
