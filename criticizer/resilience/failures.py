"""The classes of failures.

Adapters map foreign errors to these classes; no code above them parses messages. A stage returns, or
raises `RetryableFailure`, `PermanentFailure` or `UncertainFailure`; anything else is
`INTERNAL_BUG`, which is not retried.

`TABLE` holds for each class and component the code, the severity, whether it is retried, the message to the
user and the hint to the operator. `docs/failures.md` is generated from it (`manage.py failure_table`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class ErrorClass(StrEnum):
    """Stable names of the failure classes."""

    NETWORK_TIMEOUT = "NETWORK_TIMEOUT"
    NETWORK_UNREACHABLE = "NETWORK_UNREACHABLE"
    UPSTREAM_UNAVAILABLE = "UPSTREAM_UNAVAILABLE"
    UPSTREAM_INTERNAL = "UPSTREAM_INTERNAL"
    RATE_LIMITED = "RATE_LIMITED"
    WRITE_CONFLICT = "WRITE_CONFLICT"
    DATABASE_UNAVAILABLE = "DATABASE_UNAVAILABLE"
    SCHEMA_INVALID = "SCHEMA_INVALID"
    AUTH_DENIED = "AUTH_DENIED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
    PATH_DENIED = "PATH_DENIED"
    POLICY_REJECTED = "POLICY_REJECTED"
    REDACTION_BLOCKED = "REDACTION_BLOCKED"
    TOKEN_LIMIT = "TOKEN_LIMIT"  # noqa: S105
    CONFIG_INVALID = "CONFIG_INVALID"
    INTERNAL_BUG = "INTERNAL_BUG"
    WORKER_LOST = "WORKER_LOST"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    DELIVERY_UNCERTAIN = "DELIVERY_UNCERTAIN"
    RECIPIENT_REJECTED = "RECIPIENT_REJECTED"


class Component(IntEnum):
    """The part in which a failure happened, which is the first digit of its code."""

    SOURCE = 1
    REVIEWER = 2
    DATABASE = 3
    INTERNAL = 4
    CONFIGURATION = 5
    QUEUE = 6
    PROVIDER = 7


class Severity(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class FailureKind:
    """One row of the table: everything fixed about an error class of a component."""

    code: str
    error_class: ErrorClass
    component: Component
    severity: Severity
    retryable: bool
    message: str
    hint: str

    @property
    def facts(self) -> dict[str, str]:
        """Return the class, code and severity for each log line about such a failure."""
        return {"error_class": self.error_class, "code": self.code, "severity": self.severity.value}


COMPONENT_NAMES = {
    Component.SOURCE: "the version control server",
    Component.REVIEWER: "the language model",
    Component.DATABASE: "the database",
    Component.INTERNAL: "Criticizer",
    Component.CONFIGURATION: "the configuration",
    Component.QUEUE: "the work queue",
    Component.PROVIDER: "the notification provider",
}

_OUTSIDE = (Component.SOURCE, Component.REVIEWER, Component.PROVIDER)

# class, components, severity, retryable, message to the user, hint to the operator.
# The order fixes the sequence numbers: append, never reorder.
_ROWS: tuple[tuple[ErrorClass, tuple[Component, ...], Severity, bool, str, str], ...] = (
    (ErrorClass.SCHEMA_INVALID, (Component.INTERNAL,), Severity.HIGH, False,
     "The request is not valid. See details for the fields to correct.",
     "Correct the request or the payload, then post or replay it."),
    (ErrorClass.PATH_DENIED, (Component.INTERNAL,), Severity.HIGH, False,
     "The changelist touches a path outside the allow-list, so nothing of it is read or sent.",
     "The dead letter names the paths; widen the allow-list only if they are in scope."),
    (ErrorClass.POLICY_REJECTED, (Component.INTERNAL,), Severity.HIGH, False,
     "A policy of this installation refused the review.",
     "Read the policy named in the context; replay after changing it or the changelist."),
    (ErrorClass.REDACTION_BLOCKED, (Component.INTERNAL,), Severity.HIGH, False,
     "The review was stopped because secrets could not be removed from its text with certainty.",
     "See the reason code in the context; nothing was sent. Correct the rule or the input, then replay."),
    (ErrorClass.INTERNAL_BUG, (Component.INTERNAL,), Severity.CRITICAL, False,
     "Criticizer itself failed on this changelist.",
     "A defect: report the stack trace, deploy a correction, then replay."),
    (ErrorClass.WORKER_LOST, (Component.INTERNAL,), Severity.CRITICAL, False,
     "The worker was lost each time it processed this changelist.",
     "Look for out-of-memory kills at the times of the attempts; replay with a smaller load or more memory."),
    (ErrorClass.DEADLINE_EXCEEDED, (Component.INTERNAL,), Severity.HIGH, False,
     "The review was not finished before its deadline.",
     "Find the slow stage in the attempts; raise REVIEW_SLA_SECONDS or restore the slow dependency."),
    (ErrorClass.WRITE_CONFLICT, (Component.DATABASE,), Severity.MEDIUM, True,
     "Two workers touched the same record; the work is repeated.",
     "Harmless when rare. If it repeats, look for long transactions on the database."),
    (ErrorClass.DATABASE_UNAVAILABLE, (Component.DATABASE,), Severity.MEDIUM, True,
     "The database is not reachable; the work is repeated when it is back.",
     "Restore PostgreSQL; workers reconnect by themselves."),
    (ErrorClass.NETWORK_TIMEOUT, _OUTSIDE, Severity.MEDIUM, True,
     "{component} did not answer in time.",
     "Check the load of {component} and the network in between."),
    (ErrorClass.NETWORK_UNREACHABLE, _OUTSIDE, Severity.MEDIUM, True,
     "{component} could not be reached.",
     "Check that {component} is up, its address, DNS and firewalls."),
    (ErrorClass.UPSTREAM_UNAVAILABLE, _OUTSIDE, Severity.MEDIUM, True,
     "{component} is temporarily unavailable.",
     "See the status page or log of {component}."),
    (ErrorClass.UPSTREAM_INTERNAL, _OUTSIDE, Severity.MEDIUM, True,
     "{component} reported an error of its own.",
     "See the status page or log of {component}."),
    (ErrorClass.RATE_LIMITED, _OUTSIDE, Severity.LOW, True,
     "{component} asked us to slow down.",
     "Lower the concurrency or raise the quota at {component}."),
    (ErrorClass.SCHEMA_INVALID, _OUTSIDE, Severity.HIGH, False,
     "{component} answered in a form that cannot be used.",
     "Compare what the detail and the context say of the answer with the documented form; a wrong address"
     " or a changed version of {component} is likely."),
    (ErrorClass.AUTH_DENIED, _OUTSIDE, Severity.CRITICAL, False,
     "{component} refused our credentials.",
     "Renew or rotate the credential, then replay."),
    (ErrorClass.PERMISSION_DENIED, _OUTSIDE, Severity.CRITICAL, False,
     "{component} does not permit this operation to our account.",
     "Grant the account the right named in the context, then replay."),
    (ErrorClass.NOT_FOUND, _OUTSIDE, Severity.HIGH, False,
     "{component} does not know what was asked for.",
     "Check the number or name; replay only if it exists now."),
    (ErrorClass.POLICY_REJECTED, (Component.REVIEWER, Component.PROVIDER), Severity.HIGH, False,
     "{component} refused the content by its policy.",
     "Read the refusal in the context; change the content or the provider."),
    (ErrorClass.TOKEN_LIMIT, (Component.REVIEWER,), Severity.MEDIUM, False,
     "A part of the change is larger than the language model can read.",
     "Lower LLM_MAX_INPUT_TOKENS, or choose a model with a larger window."),
    (ErrorClass.CONFIG_INVALID, (Component.CONFIGURATION,), Severity.CRITICAL, False,
     "This installation is not set up for the review. An operator has to correct it.",
     "Correct what the dead letter names (a setting, a program, the data directory), restart, then replay."),
    (ErrorClass.DELIVERY_UNCERTAIN, (Component.PROVIDER,), Severity.HIGH, False,
     "A message may have been sent; it is not known whether it was.",
     "Look in the recipient's mailbox; confirm delivery, or resend and accept a possible duplicate."),
    (ErrorClass.RECIPIENT_REJECTED, (Component.PROVIDER,), Severity.HIGH, False,
     "{component} permanently refused the recipient.",
     "Correct or remove the recipient, then replay."),
    (ErrorClass.WORKER_LOST, (Component.QUEUE,), Severity.MEDIUM, True,
     "A worker was lost; another one repeats the stage.",
     "Harmless when rare. If it repeats, look for out-of-memory kills."),
    (ErrorClass.UPSTREAM_UNAVAILABLE, (Component.INTERNAL,), Severity.MEDIUM, True,
     "The storage of artifacts is not reachable; the work is repeated when it is back.",
     "Check that the buckets answer, their address and the network in between."),
)  # fmt: skip


def _build_table() -> dict[tuple[ErrorClass, Component], FailureKind]:
    table: dict[tuple[ErrorClass, Component], FailureKind] = {}
    sequence: dict[Component, int] = dict.fromkeys(Component, 0)
    for error_class, places, severity, retryable, message, hint in _ROWS:
        for component in places:
            sequence[component] += 1
            name = COMPONENT_NAMES[component]
            text = message.replace("{component}", name)
            table[error_class, component] = FailureKind(
                code=f"CRITICIZER_E{component.value}{sequence[component]:02d}",
                error_class=error_class,
                component=component,
                severity=severity,
                retryable=retryable,
                message=text[0].upper() + text[1:],
                hint=hint.replace("{component}", name),
            )
    return table


TABLE: Mapping[tuple[ErrorClass, Component], FailureKind] = _build_table()


def kind_of(error_class: ErrorClass, component: Component) -> FailureKind:
    """Return the table's row for a class of a component.

    For a pair without a row of its own, such as a denied path that a source found, it is the class's first
    row.
    """
    found = TABLE.get((error_class, component))
    if found is not None:
        return found
    return next(kind for (known, _), kind in TABLE.items() if known == error_class)


def kind_with_code(code: str) -> FailureKind | None:
    """Return the table's row with this code, or None."""
    return next((kind for kind in TABLE.values() if kind.code == code), None)


NO_CREDIT = "the account of the model server has no credit"
# Hints for details to which the hint of their class does not apply.
_HINTS: Mapping[str, str] = {NO_CREDIT: "Add credit to the account at the model server, then replay."}


def hint_for(kind: FailureKind, detail: str) -> str:
    """Return the hint to the operator for a failure with this detail."""
    return _HINTS.get(detail.strip(), kind.hint)


class Failure(Exception):
    """A classified failure.

    `detail` is one sentence for operators. `context` holds small facts (attempt, upstream
    status, identifiers); it is redacted before it is stored. Neither may carry file
    content, prompts or credentials.
    """

    retryable = False

    def __init__(
        self,
        error_class: ErrorClass,
        component: Component,
        detail: str = "",
        *,
        context: Mapping[str, object] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(detail or str(error_class))
        self.error_class = error_class
        self.component = component
        self.detail = detail
        self.context = dict(context or {})
        self.retry_after_seconds = retry_after_seconds

    @property
    def kind(self) -> FailureKind:
        return kind_of(self.error_class, self.component)

    @property
    def facts(self) -> dict[str, str]:
        """Return the class, code and severity for each log line about this failure."""
        return {**self.kind.facts, "error_class": str(self.error_class)}


class RetryableFailure(Failure):
    """A failure that may not happen again: the stage is repeated within its budget."""

    retryable = True


class QuotaExceeded(RetryableFailure):
    """A server's quota is used up: nothing was done, and no call may be made until it is filled.

    `gate` turns it into a wait that costs no attempt, however long. Where the server does not say how long
    (`retry_after_seconds` is None), it is a minute, doubled with each refusal in a row.
    """

    def __init__(
        self,
        component: Component,
        detail: str,
        retry_after_seconds: float | None,
        *,
        context: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            ErrorClass.RATE_LIMITED,
            component,
            detail,
            context=context,
            retry_after_seconds=retry_after_seconds,
        )


class PermanentFailure(Failure):
    """A failure that would happen again: the stage ends as a dead letter at once."""


class UncertainFailure(Failure):
    """A failure after which the effect may have happened; never repeated automatically.

    For deliveries only.
    """


class DependencyUnavailable(Exception):
    """Not a failure: `dependency` must not be called for `seconds` from now.

    A stage that raises it gives its attempt back and is due again later: waiting for an open
    circuit or for a quota costs no attempt. `reason` is one sentence for people. `write` stores what the
    stage waits for; it is called before the attempt is given back, in the same commit.
    """

    def __init__(
        self,
        dependency: str,
        seconds: float,
        reason: str = "",
        write: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(f"waiting for {dependency}")
        self.dependency = dependency
        self.seconds = seconds
        self.reason = reason
        self.write = write
