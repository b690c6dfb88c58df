"""Tell each recipient exactly once: prepare, then send and mark (specification 004, 6.3 to 6.5).

    prepare   one row a recipient, message and token frozen
    deliver   per row: re-read ► settle what may have happened ► may the provider be called?
              ► claim, attempt on disk ► send (no transaction open) ► one UPDATE: id, time, sent

A recipient's digest is one delivery that carries others (`digests`): one message, one UPDATE for all.

Callers see to it that one worker at a time delivers a job (the stage's lease). Should two
meet all the same, the claim's guard lets one of them send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog
from django.db import Error as DatabaseTrouble

from criticizer.resilience import circuit_breaker, gate
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
from notifications.delivery import reconcile, snapshot, store, uncertainty_policy
from notifications.delivery.dependency_names import dependency_of
from notifications.delivery.operator_actions import (
    abandon_uncertain,
    cancel_unsent,
    confirm_delivered,
    leave_digests,
    resend_uncertain,
    reset_failed,
    revive_cancelled,
    supersede_unsent,
)
from notifications.delivery.outcome import NextStep, Outcome, Tally
from notifications.delivery.prepare import prepare
from notifications.delivery.reconcile import Audit, Finding, ask_again, audit_sent, settle
from notifications.delivery.snapshot import token_for
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.providers.base import ABOUT_RECIPIENT, Message, Provider, capabilities_for
from notifications.recipients import split, without_provider
from notifications.states import GIVEN_UP_DELIVERY, DeliveryStatus, SendOutcome
from notifications.suppressions import reports

__all__ = [
    "Audit",
    "Outcome",
    "abandon_uncertain",
    "ask_again",
    "audit_sent",
    "cancel_unsent",
    "confirm_delivered",
    "deliver",
    "leave_digests",
    "prepare",
    "resend_uncertain",
    "reset_failed",
    "revive_cancelled",
    "settle",
    "supersede_unsent",
    "token_for",
]

log = structlog.get_logger(__name__)

_MAX_ID = 512  # of the column


def deliver(job_id: int, providers: Mapping[str, Provider], *, may_continue: Callable[[], bool]) -> Outcome:
    """Bring every delivery of a job to its end, in order; one failing does not stop the others.

    `providers` maps channel to provider. `may_continue` is asked before each row and again
    right before each send; a False answer stops without sending.

    Raises, after all rows, in this order: what is a defect of ours as it came; else
    RetryableFailure when any row is to be repeated (with the largest Retry-After); else Waiting
    when a row's provider must not be called now or its digest is not due (the shortest wait);
    else UncertainFailure DELIVERY_UNCERTAIN when any row waits for an operator; else
    PermanentFailure with the class of a refused row. Must not be called in a transaction.
    """
    tally = Tally()
    for delivery_id in list(
        Delivery.objects.filter(job_id=job_id).order_by("id").values_list("id", flat=True)
    ):
        if not may_continue():
            tally.steps[NextStep.STOPPED] += 1
            break
        try:
            tally.steps[_deliver_row(delivery_id, providers, may_continue)] += 1
        except Failure as failure:
            tally.failures.append(failure)
        except DependencyUnavailable as waiting:
            tally.waits.append(waiting)
        except DatabaseTrouble:
            raise
        except Exception as error:  # noqa: BLE001
            # One recipient's defect must not cost the others theirs; it is raised after them.
            log.error("delivery_defect", delivery=delivery_id, job=job_id, error=type(error).__name__)
            tally.defects.append(error)
        if tally.steps[NextStep.STOPPED]:
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
        tally.raise_worst()
    return outcome


def _deliver_row(
    delivery_id: int, providers: Mapping[str, Provider], may_continue: Callable[[], bool]
) -> NextStep:
    """Bring one delivery to its end; raise what stands in its way."""
    row = store.read(delivery_id)
    if row.digest_id is not None:
        row = lifecycle.turn(row)
    if row.status == DeliveryStatus.SENT:
        return NextStep.ALREADY_SENT
    if row.status in GIVEN_UP_DELIVERY:
        return NextStep.GIVEN_UP
    if row.status == DeliveryStatus.FAILED:
        error_class = ErrorClass(row.error_class or ErrorClass.RECIPIENT_REJECTED)
        raise PermanentFailure(error_class, Component.PROVIDER, row.detail, context=_context(row))
    if row.status == DeliveryStatus.UNCERTAIN:
        raise _uncertain(row)

    provider = providers.get(split(row.recipient)[0])
    in_doubt = False
    if store.may_have_happened(row):
        finding = reconcile.settle_row(row, provider)
        if finding is Finding.SENT:
            return NextStep.SENT
        row = store.read(row.pk)
        if finding is Finding.HELD:
            raise _uncertain(row)
        in_doubt = finding is Finding.REPEATABLE
    message = _message(row, provider)
    assert provider is not None
    if not may_continue():
        return NextStep.STOPPED
    # Before the claim: a provider that must not be called now costs the row nothing.
    permit = gate.acquire_permit(dependency_of(row.recipient, provider))
    try:
        claimed = _claimed(row, provider)
        if claimed.digest_id is not None:
            message = snapshot.thaw(store.read(row.pk))  # fixed by the claim
        return _send(row, claimed, provider, message, permit, in_doubt=in_doubt)
    finally:
        permit.release()  # of one that was not reported


def _claimed(row: Delivery, provider: Provider) -> store.Claim:
    """Claim the row, or raise what becomes of a job whose delivery another worker took."""
    claimed = store.claim(row, provider.name)
    if claimed is not None:
        return claimed
    if row.digest_id is not None:
        raise lifecycle.digest_in_progress()  # all jobs of a digest come at once: not a failure
    raise RetryableFailure(
        ErrorClass.WRITE_CONFLICT,
        Component.DATABASE,
        "another worker took the delivery",
        context=_context(row),
    )


def _message(row: Delivery, provider: Provider | None) -> Message:
    """Return the row's message; refuse the row when it cannot be sent at all."""
    try:
        if provider is None:
            raise PermanentFailure(
                ErrorClass.CONFIG_INVALID,
                Component.CONFIGURATION,
                _no_provider(row.recipient),
                context=_context(row),
            )
        # What may have been sent already is settled first, whoever wants no mail any more.
        if row.status == DeliveryStatus.PENDING:
            reports.refuse_suppressed(row.recipient)
        return snapshot.thaw(row)
    except PermanentFailure as failure:
        # A row in reconciliation is not failed before its question is answered (004, 8.2).
        if row.status == DeliveryStatus.PENDING:
            _fail(row, failure)
        raise


def _fail(row: Delivery, failure: PermanentFailure) -> None:
    """Move a row that is not being sent to FAILED; raise Waiting when a digest took it meanwhile."""
    is_moved = row.status == DeliveryStatus.PENDING and store.move(
        row, DeliveryStatus.FAILED, failure=failure
    )
    if not is_moved and row.digest_id is not None:
        raise lifecycle.digest_in_progress() from failure


def _no_provider(recipient: str) -> str:
    channel = split(recipient)[0]
    return without_provider(channel, config.problems().get(channel, ""))


def _send(
    row: Delivery,
    claimed: store.Claim,
    provider: Provider,
    message: Message,
    permit: gate.Permit,
    *,
    in_doubt: bool,
) -> NextStep:
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
        if in_doubt:
            # A refusal now says nothing about the attempt before it.
            _record(claimed, SendOutcome.REJECTED, DeliveryStatus.UNCERTAIN, failure)
            permit.report(failure)
            raise _uncertain(row) from failure
        _refused(row, claimed, permit, failure)
        raise
    except UncertainFailure as failure:
        if uncertainty_policy.is_hopeless(capabilities_for(provider, message.address)):
            _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.UNCERTAIN, failure)
            permit.report(failure)
            raise _uncertain(row, failure) from failure
        _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.RECONCILING, failure)
        _wait_if_told(permit, failure)
        held = failure.error_class is ErrorClass.DELIVERY_UNCERTAIN  # which this one is not
        raise RetryableFailure(
            ErrorClass.NETWORK_TIMEOUT if held else failure.error_class,
            failure.place,
            failure.detail,
            context=failure.context,
            retry_after_seconds=failure.retry_after_seconds,
        ) from failure
    except Exception as error:
        # Nobody knows how far a defect got: it counts as "may have been sent".
        defect = UncertainFailure(
            ErrorClass.INTERNAL_BUG, Component.PROVIDER, f"unhandled {type(error).__qualname__}"
        )
        _record(claimed, SendOutcome.AMBIGUOUS, DeliveryStatus.RECONCILING, defect)
        raise
    try:
        _mark(row, claimed, notification_id)
    finally:
        permit.report(None)  # the provider answered, whatever the database did
    return NextStep.SENT


def _refused(row: Delivery, claimed: store.Claim, permit: gate.Permit, failure: PermanentFailure) -> None:
    """Write a refusal down; raise Waiting where it is no failure of this row.

    Refused credentials of the provider hold all rows alike: until the circuit has said so, nobody
    sees the row as failed.
    """
    is_of_all = failure.error_class in circuit_breaker.AUTH
    first = DeliveryStatus.PENDING if is_of_all else DeliveryStatus.FAILED
    _record(claimed, SendOutcome.REJECTED, first, failure)
    waiting = permit.report(failure)
    if waiting is not None:
        if not is_of_all:
            store.move(store.read(row.pk), DeliveryStatus.PENDING)
        raise waiting from failure
    if is_of_all:
        _fail(store.read(row.pk), failure)


def _wait_if_told(permit: gate.Permit, failure: Failure) -> None:
    """Report the failure; raise Waiting where it is to cost the stage no attempt."""
    about_provider = None if failure.context.get(ABOUT_RECIPIENT) else failure
    if (waiting := permit.report(about_provider)) is not None:
        raise waiting from failure


def _mark(row: Delivery, claimed: store.Claim, notification_id: str) -> None:
    try:
        marked = store.recorded(lambda: store.mark_sent(claimed, notification_id[:_MAX_ID]))
    except DatabaseTrouble as error:
        # Sent, and the row does not say so (004, 8.2 first row). Never permanent here: the
        # next attempt finds the open attempt and asks the provider before anything else.
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
        error_class=failure.error_class,
    )


def _uncertain(row: Delivery, failure: Failure | None = None) -> UncertainFailure:
    """Return what the letters of held deliveries are grouped by, whatever the provider saw."""
    return UncertainFailure(
        ErrorClass.DELIVERY_UNCERTAIN,
        Component.PROVIDER,
        "a delivery may have been made and waits for an operator's decision",
        context={**(failure.context if failure else {}), **_context(row)},
    )


def _context(row: Delivery) -> dict[str, object]:
    return {"delivery": row.pk, "attempts": row.attempts}
