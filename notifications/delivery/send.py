"""Sends each recipient a job's message exactly once (guarantees G46 to G54).

    prepare   one row per recipient, with a frozen message and a token
    deliver   per row: re-read ► reconcile what may have been sent ► may the provider be called?
              ► claim, attempt on disk ► send (no transaction open) ► one UPDATE: id, time, sent

A recipient's digest is one delivery that carries others (`digests`): one message, one UPDATE for all.

The stage's lease lets one worker at a time deliver a job. If two workers meet all the same, the guard
of the claim lets one of them send.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog
from django.db import Error as DatabaseError
from django.utils import timezone

from criticizer.queue import outbox
from criticizer.resilience import circuit_breaker, gate
from criticizer.resilience.exchange import one_call
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications import config
from notifications.config import dependency_of
from notifications.delivery import reconcile, snapshot, store, uncertainty_policy
from notifications.delivery.outcome import Outcome, RowResult, Tally
from notifications.delivery.reconcile import Finding
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.providers.base import ABOUT_RECIPIENT, Message, Provider, capabilities_for
from notifications.providers.failures import NotWanted
from notifications.recipients import is_required, missing_provider_reason, split
from notifications.states import WITHDRAWN_DELIVERY, DeliveryStatus, SendOutcome
from notifications.suppressions import bounces

log = structlog.get_logger(__name__)

_MAX_ID = 512  # of the column
# What one run may spend on recipients before it begins with another: a slow receiver must not hold a worker.
SENDING_SECONDS = 20.0
OPTIONAL_SECONDS = 300.0
OPTIONAL_PAUSE_SECONDS = 30.0


def deliver(
    job_id: int,
    providers: Mapping[str, Provider],
    *,
    may_continue: Callable[[], bool],
    tried: Mapping[str, str] | None = None,
) -> Outcome:
    """Work through every delivery of a job, in order; one failure does not stop the others.

    `providers` maps channel to provider. `may_continue` is called before each row and again right
    before each send; False stops without sending.

    Returns early, with `is_out_of_time`, when SENDING_SECONDS are used up and a row is left: the caller
    goes on later with the outcome's `tried`, the rows that must be repeated or wait, and why. They are not
    tried again before the others (guarantee G134).

    Raises, after all rows, in this order: an unexpected exception as it came; RetryableFailure when any
    row must be repeated (with the largest Retry-After); DependencyUnavailable when a row's provider must
    not be called now or its digest is not due (the shortest wait); UncertainFailure DELIVERY_UNCERTAIN
    when any row waits for an operator; PermanentFailure with the class of a refused row. A row that is not
    required raises nothing but a wait, and that for a few minutes only. Must not be called in a transaction.
    """
    tally = Tally(tried=dict(tried or {}))
    for delivery_id in list(
        Delivery.objects.filter(job_id=job_id).order_by("id").values_list("id", flat=True)
    ):
        if not may_continue():
            tally.ended["stopped"] += 1
        elif (reason := tally.tried.get(str(delivery_id))) is not None:
            tally.tried_before(delivery_id, reason)
        elif tally.seconds >= SENDING_SECONDS:
            tally.ended["out_of_time"] += 1
        else:
            try:
                _try_row(delivery_id, job_id, providers, may_continue, tally)
            except Delivery.DoesNotExist:
                tally.waits.append(lost_rows())
        if tally.ended["stopped"] or tally.ended["out_of_time"]:
            break
    outcome = tally.outcome()
    log.info(
        "deliveries_done",
        job=job_id,
        sent=outcome.sent,
        failed=len(tally.failures),
        waiting=len(tally.waits),
        stopped=outcome.stopped,
        is_out_of_time=outcome.is_out_of_time,
    )
    if not outcome.stopped and (tally.defects or not outcome.is_out_of_time):
        tally.raise_worst()
    return outcome


def lost_rows() -> DependencyUnavailable:
    """Return what a stage raises if a promoted standby lacks its rows: the stage starts over."""
    return DependencyUnavailable("", 0.0, "its deliveries were lost with a database: they are made again")


def _try_row(
    delivery_id: int,
    job_id: int,
    providers: Mapping[str, Provider],
    may_continue: Callable[[], bool],
    tally: Tally,
) -> None:
    """Deliver one row; count its result and the time it took."""
    began = time.monotonic()
    try:
        result = _deliver_row(delivery_id, providers, may_continue)
        tally.ended[result] += 1
        if result in {"already_sent", "withdrawn"}:
            return  # only read: a run makes one try at least
    except (Failure, DependencyUnavailable) as result:
        if (found := _for_job(store.read(delivery_id), result)) is not None:
            tally.add(delivery_id, found)
        else:
            log.warning("optional_delivery_left", delivery=delivery_id, job=job_id, why=str(result))
    except (DatabaseError, Delivery.DoesNotExist):
        raise
    except Exception as error:  # noqa: BLE001
        # One recipient's defect must not stop the others; it is raised after them.
        log.error("delivery_defect", delivery=delivery_id, job=job_id, error=type(error).__name__)
        tally.defects.append(error)
    tally.seconds += time.monotonic() - began


def _for_job(
    row: Delivery, result: Failure | DependencyUnavailable
) -> Failure | DependencyUnavailable | None:
    """Return a row's result for its job, or None if the job goes on without it (G310).

    A job waits for a row that is not required for OPTIONAL_SECONDS in all. The audit of deliveries sends what
    is left then.
    """
    if is_required(row.recipient):
        return result
    if isinstance(result, RetryableFailure):
        result = DependencyUnavailable("", outbox.scaled(OPTIONAL_PAUSE_SECONDS), "It is tried again.")
    if not isinstance(result, DependencyUnavailable):
        return None
    left = OPTIONAL_SECONDS - (timezone.now() - row.created_at).total_seconds()
    return result if result.seconds <= left else None


def _deliver_row(
    delivery_id: int, providers: Mapping[str, Provider], may_continue: Callable[[], bool]
) -> RowResult:
    row = store.read(delivery_id)
    if row.digest_id is not None:
        row = lifecycle.row_for_job(row)
    if row.status == DeliveryStatus.SENT:
        return "already_sent"
    if row.status in WITHDRAWN_DELIVERY:
        return "withdrawn"
    if row.status == DeliveryStatus.FAILED:
        error_class = ErrorClass(row.error_class or ErrorClass.RECIPIENT_REJECTED)
        raise PermanentFailure(error_class, Component.PROVIDER, row.detail, context=_context(row))
    if row.status == DeliveryStatus.UNCERTAIN:
        raise _uncertain(row)

    provider = providers.get(split(row.recipient)[0])
    may_repeat = False
    if store.may_have_happened(row):
        finding = reconcile.settle_row(row, provider)
        if finding is Finding.SENT:
            return "sent"
        row = store.read(row.pk)
        if finding is Finding.HELD:
            raise _uncertain(row)
        may_repeat = finding is Finding.REPEATABLE
    message = _message(row, provider)
    assert provider is not None
    if not may_continue():
        return "stopped"
    # Before the claim: a provider that must not be called now costs the row nothing.
    permit = gate.acquire_permit(dependency_of(row.recipient, provider))
    try:
        claimed = store.claim(row, provider.name)
        reconcile.require_moved(row, claimed is not None)
        assert claimed is not None
        if claimed.digest_id is not None:
            message = snapshot.thaw(store.read(row.pk))  # fixed by the claim
        return _send(row, claimed, provider, message, permit, may_repeat=may_repeat)
    finally:
        permit.release()  # unless it was reported


def _message(row: Delivery, provider: Provider | None) -> Message:
    """Return the row's message; fail a pending row that cannot be sent at all."""
    try:
        if provider is None:
            channel = split(row.recipient)[0]
            raise PermanentFailure(
                ErrorClass.CONFIG_INVALID,
                Component.CONFIGURATION,
                missing_provider_reason(channel, config.problems().get(channel, "")),
                context=_context(row),
            )
        # What may have been sent is reconciled first, also for a suppressed recipient.
        if row.status == DeliveryStatus.PENDING:
            bounces.refuse_suppressed(row.recipient)
        return snapshot.thaw(row)
    except PermanentFailure as failure:
        # A row is not failed before it is reconciled (guarantee G52).
        if row.status == DeliveryStatus.PENDING:
            _fail(row, failure)
        raise


def _fail(row: Delivery, failure: PermanentFailure) -> None:
    """Fail a row that is not being sent; raise DependencyUnavailable when a digest took it."""
    is_moved = row.status == DeliveryStatus.PENDING and store.move(
        row, DeliveryStatus.FAILED, failure=failure
    )
    if not is_moved and row.digest_id is not None:
        raise lifecycle.digest_in_progress() from failure


def _send(
    row: Delivery,
    claimed: store.Claim,
    provider: Provider,
    message: Message,
    permit: gate.Permit,
    *,
    may_repeat: bool,
) -> RowResult:
    """Send once, then record the outcome: first on the row, then for the circuit.

    `may_repeat`: an earlier attempt may have arrived.
    """
    unresolved = DeliveryStatus.RECONCILING if may_repeat else DeliveryStatus.PENDING
    try:
        with one_call():
            notification_id = provider.send(message)
    except RetryableFailure as failure:
        _record(claimed, SendOutcome.NOT_SENT, unresolved, failure)
        _report_failure(permit, failure)
        raise
    except NotWanted as failure:
        _record(claimed, SendOutcome.NOT_SENT, unresolved, failure)
        permit.report(None)
        if not may_repeat:
            store.move(store.read(row.pk), DeliveryStatus.SUPERSEDED)
        return "withdrawn"
    except PermanentFailure as failure:
        if may_repeat:
            # A refusal now proves nothing about the attempt before it.
            _record(claimed, SendOutcome.REJECTED, DeliveryStatus.UNCERTAIN, failure)
            permit.report(failure)
            raise _uncertain(row) from failure
        _refused(row, claimed, permit, failure)
        raise
    except UncertainFailure as failure:
        if uncertainty_policy.can_only_hold(capabilities_for(provider, message.address)):
            _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.UNCERTAIN, failure)
            permit.report(failure)
            raise _uncertain(row, failure) from failure
        _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.RECONCILING, failure)
        _report_failure(permit, failure)
        is_held_class = failure.error_class is ErrorClass.DELIVERY_UNCERTAIN  # this one is not held
        raise RetryableFailure(
            ErrorClass.NETWORK_TIMEOUT if is_held_class else failure.error_class,
            failure.component,
            failure.detail,
            context=failure.context,
            retry_after_seconds=failure.retry_after_seconds,
        ) from failure
    except Exception as error:
        # A defect may have happened after the send: it counts as "may have been sent".
        defect = UncertainFailure(
            ErrorClass.INTERNAL_BUG, Component.PROVIDER, f"unhandled {type(error).__qualname__}"
        )
        _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.RECONCILING, defect)
        raise
    try:
        _mark(row, claimed, notification_id)
    finally:
        permit.report(None)  # the provider answered, whatever the database did
    return "sent"


def _refused(row: Delivery, claimed: store.Claim, permit: gate.Permit, failure: PermanentFailure) -> None:
    """Record a refusal; raise DependencyUnavailable where it is not a failure of this row.

    Refused credentials stop all rows of a provider: the row fails only if the circuit does not open.
    """
    is_credentials = failure.error_class in circuit_breaker.AUTH
    first = DeliveryStatus.PENDING if is_credentials else DeliveryStatus.FAILED
    _record(claimed, SendOutcome.REJECTED, first, failure)
    waiting = permit.report(failure)
    if waiting is not None:
        if not is_credentials:
            store.move(store.read(row.pk), DeliveryStatus.PENDING)
        raise waiting from failure
    if is_credentials:
        _fail(store.read(row.pk), failure)


def _report_failure(permit: gate.Permit, failure: Failure) -> None:
    """Report the failure to the circuit; raise DependencyUnavailable where it opened."""
    about_provider = None if failure.context.get(ABOUT_RECIPIENT) else failure
    if (waiting := permit.report(about_provider)) is not None:
        raise waiting from failure


def _mark(row: Delivery, claimed: store.Claim, notification_id: str) -> None:
    try:
        marked = store.recorded(lambda: store.mark_sent(claimed, notification_id[:_MAX_ID]))
    except DatabaseError as error:
        # Sent but not marked. Never permanent: the next run finds the open attempt and reconciles it.
        log.error("delivery_mark_failed", delivery=row.pk, job=row.job_id, error=type(error).__name__)
        raise RetryableFailure(
            ErrorClass.DATABASE_UNAVAILABLE,
            Component.DATABASE,
            "a message was sent and could not be marked as sent",
            context=_context(row),
        ) from error
    log.info("delivery_sent", delivery=row.pk, job=row.job_id, attempt=claimed.attempt, marked=marked)


def _record(claimed: store.Claim, outcome: SendOutcome, to: DeliveryStatus, failure: Failure) -> None:
    store.recorded(lambda: store.record_failure(claimed, outcome, to, failure))
    log.warning(
        "delivery_not_made",
        delivery=claimed.delivery_id,
        attempt=claimed.attempt,
        outcome=outcome,
        status=to,
        **failure.facts,
    )


def _uncertain(row: Delivery, failure: Failure | None = None) -> UncertainFailure:
    """Return the one failure of held deliveries: their dead letters are one group."""
    return UncertainFailure(
        ErrorClass.DELIVERY_UNCERTAIN,
        Component.PROVIDER,
        "a delivery may have been made and waits for an operator's decision",
        context={**(failure.context if failure else {}), **_context(row)},
    )


def _context(row: Delivery) -> dict[str, object]:
    return {"delivery": row.pk, "attempts": row.attempts}
