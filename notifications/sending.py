"""Tell each recipient exactly once: prepare, then send and mark (specification 004, 6.3 to 6.5).

    prepare   one row a recipient, message and token frozen
    deliver   per row: re-read ► settle what may have happened ► may the provider be called?
              ► claim, attempt on disk ► send (no transaction open) ► one UPDATE: id, time, sent

Callers see to it that one worker at a time delivers a job (the stage's lease). Should two
meet all the same, the claim's guard lets one of them send.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

import structlog
from django.db import Error as DatabaseTrouble
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from criticizer import dependencies
from criticizer.failures import (
    ErrorClass,
    Failure,
    PermanentFailure,
    Place,
    RetryableFailure,
    UncertainFailure,
    Waiting,
)
from notifications import frozen, ledger, reconcile
from notifications.circuits import dependency_of
from notifications.decisions import (
    cancel_unsent,
    confirm_delivered,
    resend_uncertain,
    reset_failed,
    revive_cancelled,
    supersede_unsent,
)
from notifications.frozen import token_for
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import ABOUT_RECIPIENT, Message, Provider
from notifications.recipients import split
from notifications.reconcile import Audit, Finding, audit_sent, settle
from notifications.states import DeliveryStatus, SendOutcome

__all__ = [
    "Audit",
    "Outcome",
    "audit_sent",
    "cancel_unsent",
    "confirm_delivered",
    "deliver",
    "prepare",
    "resend_uncertain",
    "reset_failed",
    "revive_cancelled",
    "settle",
    "supersede_unsent",
    "token_for",
    "unnotified",
]

log = structlog.get_logger(__name__)

_MAX_ID = 512  # of the column


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `deliver` did. `stopped` says that `may_continue` ended it before all rows were done."""

    sent: int = 0
    already_sent: int = 0
    given_up: int = 0  # superseded or cancelled rows
    stopped: bool = False


class _Step(Enum):
    SENT = auto()
    ALREADY_SENT = auto()
    GIVEN_UP = auto()
    STOPPED = auto()


@dataclass(slots=True)
class _Tally:
    steps: dict[_Step, int] = field(default_factory=lambda: dict.fromkeys(_Step, 0))
    failures: list[Failure] = field(default_factory=list)
    waits: list[Waiting] = field(default_factory=list)
    defects: list[Exception] = field(default_factory=list)

    def outcome(self) -> Outcome:
        return Outcome(
            sent=self.steps[_Step.SENT],
            already_sent=self.steps[_Step.ALREADY_SENT],
            given_up=self.steps[_Step.GIVEN_UP],
            stopped=self.steps[_Step.STOPPED] > 0,
        )


def prepare(job_id: int, changelist_id: str, review_version: int, messages: Mapping[str, Message]) -> None:
    """Write one row a recipient, keyed (changelist_id, recipient, review_version) (004, 6.3).

    Rows that exist are kept: a sent one stays sent, one that may have been sent keeps the
    bytes that were sent, and one of which nothing can have been sent takes the new message.
    Every row ends up belonging to `job_id`.

    Raises ValueError when a message carries another token or address than its recipient's.
    """
    rows = [
        _row(job_id, changelist_id, review_version, recipient, message)
        for recipient, message in messages.items()
    ]
    doubtful = DeliveryAttempt.objects.filter(
        delivery=OuterRef("pk"),
        outcome__in=[SendOutcome.STARTED, SendOutcome.ACCEPTED, SendOutcome.AMBIGUOUS],
    )
    with transaction.atomic():
        Delivery.objects.bulk_create(rows, ignore_conflicts=True)
        existing = Delivery.objects.filter(changelist_id=changelist_id, review_version=review_version)
        existing.exclude(job_id=job_id).filter(recipient__in=messages).update(job_id=job_id, updated_at=Now())
        for row in rows:
            # Differs only where an earlier run left a row and the review was made anew since.
            existing.filter(recipient=row.recipient, status=DeliveryStatus.PENDING).exclude(
                payload_sha256=row.payload_sha256
            ).exclude(Exists(doubtful)).update(
                subject=row.subject,
                payload=row.payload,
                payload_sha256=row.payload_sha256,
                updated_at=Now(),
            )


def _row(job_id: int, changelist_id: str, review_version: int, recipient: str, message: Message) -> Delivery:
    token = token_for(changelist_id, recipient, review_version)
    if message.token != token or message.address != split(recipient)[1]:
        raise ValueError("a message must carry the token and the address of its recipient")
    payload, digest = frozen.freeze(message)
    return Delivery(
        job_id=job_id,
        changelist_id=changelist_id,
        recipient=recipient,
        review_version=review_version,
        token=token,
        subject=message.subject,
        payload=payload,
        payload_sha256=digest,
    )


def unnotified(changelist_id: str, review_version: int, recipients: Collection[str]) -> list[str]:
    """Return the recipients without a sent delivery: a job succeeds only with none (004, 6.5)."""
    notified = set(
        Delivery.objects.filter(
            changelist_id=changelist_id,
            review_version=review_version,
            status=DeliveryStatus.SENT,
            notified_at__isnull=False,
        ).values_list("recipient", flat=True)
    )
    return [recipient for recipient in recipients if recipient not in notified]


def deliver(job_id: int, providers: Mapping[str, Provider], *, may_continue: Callable[[], bool]) -> Outcome:
    """Bring every delivery of a job to its end, in order; one failing does not stop the others.

    `providers` maps channel to provider. `may_continue` is asked before each row and again
    right before each send; a False answer stops without sending.

    Raises, after all rows, in this order: what is a defect of ours as it came; else
    RetryableFailure when any row is to be repeated (with the largest Retry-After); else Waiting
    when a row's provider must not be called now (the shortest wait); else UncertainFailure
    DELIVERY_UNCERTAIN when any row waits for an operator; else PermanentFailure with the class
    of a refused row. Must not be called in a transaction.
    """
    tally = _Tally()
    for delivery_id in list(
        Delivery.objects.filter(job_id=job_id).order_by("id").values_list("id", flat=True)
    ):
        if not may_continue():
            tally.steps[_Step.STOPPED] += 1
            break
        try:
            tally.steps[_deliver_row(delivery_id, providers, may_continue)] += 1
        except Failure as failure:
            tally.failures.append(failure)
        except Waiting as waiting:
            tally.waits.append(waiting)
        except DatabaseTrouble:
            raise
        except Exception as error:  # noqa: BLE001
            # One recipient's defect must not cost the others theirs; it is raised after them.
            log.error("delivery_defect", delivery=delivery_id, job=job_id, error=type(error).__name__)
            tally.defects.append(error)
        if tally.steps[_Step.STOPPED]:
            break
    outcome = tally.outcome()
    log.info(
        "deliveries_done",
        job=job_id,
        sent=outcome.sent,
        failed=len(tally.failures),
        waiting=len(tally.waits),
        stopped=outcome.stopped,
    )
    if not outcome.stopped:
        _raise(tally)
    return outcome


def _deliver_row(
    delivery_id: int, providers: Mapping[str, Provider], may_continue: Callable[[], bool]
) -> _Step:
    """Bring one delivery to its end; raise what stands in its way."""
    row = ledger.read(delivery_id)
    if row.status == DeliveryStatus.SENT:
        return _Step.ALREADY_SENT
    if row.status in {DeliveryStatus.SUPERSEDED, DeliveryStatus.CANCELLED}:
        return _Step.GIVEN_UP
    if row.status == DeliveryStatus.FAILED:
        error_class = ErrorClass(row.error_class or ErrorClass.RECIPIENT_REJECTED)
        raise PermanentFailure(error_class, Place.PROVIDER, row.detail, context=_context(row))
    if row.status == DeliveryStatus.UNCERTAIN:
        raise _uncertain(row)

    provider = providers.get(split(row.recipient)[0])
    in_doubt = False
    if ledger.may_have_happened(row):
        finding = reconcile.settle_row(row, provider)
        if finding is Finding.SENT:
            return _Step.SENT
        row = ledger.read(delivery_id)
        if finding is Finding.HELD:
            raise _uncertain(row)
        in_doubt = finding is Finding.REPEATABLE
    message = _message(row, provider)
    assert provider is not None
    if not may_continue():
        return _Step.STOPPED
    # Before the claim: a provider that must not be called now costs the row nothing.
    permit = dependencies.admit(dependency_of(row.recipient, provider))
    try:
        claimed = ledger.claim(row, provider.name)
        if claimed is None:
            raise RetryableFailure(
                ErrorClass.WRITE_CONFLICT,
                Place.DATABASE,
                "another worker took the delivery",
                context=_context(row),
            )
        return _send(row, claimed, provider, message, permit, in_doubt=in_doubt)
    finally:
        permit.release()  # of one that was not reported


def _message(row: Delivery, provider: Provider | None) -> Message:
    """Return the row's message; refuse the row when it cannot be sent at all."""
    try:
        if provider is None:
            raise PermanentFailure(
                ErrorClass.CONFIG_INVALID,
                Place.CONFIGURATION,
                "no provider is configured for the recipient's channel",
                context=_context(row),
            )
        return frozen.thaw(row)
    except PermanentFailure as failure:
        # A row in reconciliation is not failed before its question is answered (004, 8.2).
        if row.status == DeliveryStatus.PENDING:
            ledger.move(row, DeliveryStatus.FAILED, failure=failure)
        raise


def _send(
    row: Delivery,
    claimed: ledger.Claim,
    provider: Provider,
    message: Message,
    permit: dependencies.Permit,
    *,
    in_doubt: bool,
) -> _Step:
    """Send once, then write down what came of it, on the row first and then for the circuit.

    `in_doubt`: an earlier attempt may have arrived.
    """
    unresolved = DeliveryStatus.RECONCILING if in_doubt else DeliveryStatus.PENDING
    try:
        notification_id = provider.send(message)
    except RetryableFailure as failure:
        _record(claimed, SendOutcome.NOT_SENT, unresolved, failure)
        _wait_if_told(permit, failure)
        raise
    except PermanentFailure as failure:
        # A refusal now says nothing about the attempt before it.
        _record(
            claimed,
            SendOutcome.REJECTED,
            DeliveryStatus.UNCERTAIN if in_doubt else DeliveryStatus.FAILED,
            failure,
        )
        if in_doubt:
            permit.report(failure)
            raise _uncertain(row) from failure
        if (waiting := permit.report(failure)) is not None:
            # Not this row's failure: refused credentials of the provider hold all rows alike.
            ledger.move(ledger.read(row.pk), DeliveryStatus.PENDING)
            raise waiting from failure
        raise
    except UncertainFailure as failure:
        capabilities = provider.capabilities
        if not (capabilities.can_look_up or capabilities.deduplicates):
            _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.UNCERTAIN, failure)
            permit.report(failure)
            raise
        _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.RECONCILING, failure)
        _wait_if_told(permit, failure)
        raise RetryableFailure(
            failure.error_class,
            failure.place,
            failure.detail,
            context=failure.context,
            retry_after_seconds=failure.retry_after_seconds,
        ) from failure
    except Exception as error:
        # Nobody knows how far a defect got: it counts as "may have been sent".
        defect = UncertainFailure(
            ErrorClass.INTERNAL_BUG, Place.PROVIDER, f"unhandled {type(error).__qualname__}"
        )
        _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.RECONCILING, defect)
        raise
    try:
        _mark(row, claimed, notification_id)
    finally:
        permit.report(None)  # the provider answered, whatever the database did
    return _Step.SENT


def _wait_if_told(permit: dependencies.Permit, failure: Failure) -> None:
    """Report the failure; raise Waiting where it is to cost the stage no attempt."""
    about_provider = None if failure.context.get(ABOUT_RECIPIENT) else failure
    if (waiting := permit.report(about_provider)) is not None:
        raise waiting from failure


def _mark(row: Delivery, claimed: ledger.Claim, notification_id: str) -> None:
    try:
        marked = ledger.recorded(lambda: ledger.mark_sent(claimed, notification_id[:_MAX_ID]))
    except DatabaseTrouble as error:
        # Sent, and the row does not say so (004, 8.2 first row). Never permanent here: the
        # next attempt finds the open attempt and asks the provider before anything else.
        log.error("delivery_mark_failed", delivery=row.pk, job=row.job_id, error=type(error).__name__)
        raise RetryableFailure(
            ErrorClass.DATABASE_UNAVAILABLE,
            Place.DATABASE,
            "a message was sent and could not be marked as sent",
            context=_context(row),
        ) from error
    log.info("delivery_sent", delivery=row.pk, job=row.job_id, attempt=claimed.attempt, marked=marked)


def _record(claimed: ledger.Claim, outcome: SendOutcome, to: DeliveryStatus, failure: Failure) -> None:
    ledger.recorded(lambda: ledger.record_failure(claimed, outcome, to, failure))
    log.warning(
        "delivery_not_made",
        delivery=claimed.delivery_id,
        attempt=claimed.attempt,
        outcome=outcome,
        status=to,
        error_class=failure.error_class,
    )


def _raise(tally: _Tally) -> None:
    if tally.defects:
        raise tally.defects[0]
    _raise_worst(tally, RetryableFailure)
    if tally.waits:
        raise min(tally.waits, key=lambda waiting: waiting.seconds)
    _raise_worst(tally, UncertainFailure)
    _raise_worst(tally, PermanentFailure)


def _raise_worst(tally: _Tally, kind: type[Failure]) -> None:
    found = [failure for failure in tally.failures if isinstance(failure, kind)]
    if found:
        worst = max(found, key=_wait)
        raise kind(
            worst.error_class,
            worst.place,
            worst.detail,
            context={**worst.context, **_counts(tally.failures)},
            retry_after_seconds=worst.retry_after_seconds,
        ) from worst


def _wait(failure: Failure) -> float:
    return failure.retry_after_seconds or 0.0


def _counts(failures: Iterable[Failure]) -> dict[str, object]:
    counts = {"to_repeat": 0, "uncertain": 0, "refused": 0}
    for failure in failures:
        if isinstance(failure, RetryableFailure):
            counts["to_repeat"] += 1
        else:
            counts["uncertain" if isinstance(failure, UncertainFailure) else "refused"] += 1
    return dict(counts)


def _uncertain(row: Delivery) -> UncertainFailure:
    return UncertainFailure(
        ErrorClass.DELIVERY_UNCERTAIN,
        Place.PROVIDER,
        "a delivery may have been made and waits for an operator's decision",
        context=_context(row),
    )


def _context(row: Delivery) -> dict[str, object]:
    return {"delivery": row.pk, "attempts": row.attempts}
