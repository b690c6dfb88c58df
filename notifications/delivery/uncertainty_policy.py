"""The policy for a delivery that may have been made: what to do next (pure; guarantee G51).

Decided from what the provider promises and what the rows record, nothing else:

    repeat    the provider still treats the same message with the same key as one message
    look      look the message up at the provider now
    wait      look it up later: its index may lag, or it could not answer
    resend    absence is proven and a resend is left
    hold      nothing is proven and no step is safe: an operator decides
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

from notifications.providers.base import Capabilities, Evidence, LookUpBy

# Look-ups without an answer that are allowed in addition to those that prove absence ...
UNANSWERED_LOOKS = 4
# ... each after the provider's spacing or this, doubled each time. The job waits as long.
UNANSWERED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LookupResult:
    """A look-up that did not find the message. `at`: seconds on the database's clock."""

    evidence: Evidence
    at: float


@dataclass(frozen=True, slots=True)
class DeliveryHistory:
    """An uncertain delivery's history; times in seconds on the database's clock.

    `first_attempt_at`, `last_attempt_at`: start of the first and last attempt that may have been
    accepted, since an operator last decided. `uncertain_since`: when the last one's outcome was found
    to be unknown. `looks`: the look-ups after it, in order. `resends`: attempts after proof of absence.
    """

    now: float
    first_attempt_at: float
    last_attempt_at: float
    uncertain_since: float
    has_provider_id: bool = False
    looks: tuple[LookupResult, ...] = ()
    resends: int = 0


class PolicyStep(Enum):
    REPEAT = auto()
    LOOK = auto()
    WAIT = auto()
    RESEND = auto()
    HOLD = auto()


@dataclass(frozen=True, slots=True)
class Decision:
    """A step; `seconds` of WAIT, `reason` of WAIT and HOLD."""

    step: PolicyStep
    seconds: float = 0.0
    reason: str = ""


def can_look_up(capabilities: Capabilities, *, has_provider_id: bool) -> bool:
    return LookUpBy.KEY in capabilities.look_up or (has_provider_id and LookUpBy.ID in capabilities.look_up)


def can_only_hold(capabilities: Capabilities) -> bool:
    """Return whether every attempt without an answer must be held for an operator."""
    return capabilities.key_window_seconds <= 0 and not can_look_up(capabilities, has_provider_id=False)


def next_step(capabilities: Capabilities, facts: DeliveryHistory, *, time_scale: float = 1.0) -> Decision:
    """Return the next step for an uncertain delivery.

    `time_scale` shortens waits in drills. A provider's key window and retention are not waits.
    """
    # A look-up by the provider's own id is the cheapest and surest.
    if facts.has_provider_id and LookUpBy.ID in capabilities.look_up and not facts.looks:
        return Decision(PolicyStep.LOOK)
    if facts.now - facts.first_attempt_at < capabilities.key_window_seconds:
        return Decision(PolicyStep.REPEAT)
    if not can_look_up(capabilities, has_provider_id=facts.has_provider_id):
        if capabilities.key_window_seconds > 0:
            return _hold("the provider's key has expired and it offers no look-up")
        return _hold("an attempt has no outcome and the provider offers no look-up")
    if facts.now - facts.last_attempt_at > capabilities.retention_seconds:
        # Only "found" still means something: look once, then hold.
        ended = facts.last_attempt_at + capabilities.retention_seconds
        if any(look.at > ended for look in facts.looks):
            return _hold("the attempt is older than the provider's retention: absence is no proof")
        return Decision(PolicyStep.LOOK)

    absent = sum(look.evidence is Evidence.ABSENT for look in facts.looks)
    unanswered = len(facts.looks) - absent
    if absent >= capabilities.looks:
        return _after_absence(capabilities, facts)
    if unanswered > UNANSWERED_LOOKS:
        return _hold("several look-ups at the provider gave no answer")
    due = _next_look_at(capabilities, facts, unanswered, time_scale)
    if facts.now < due:
        return Decision(PolicyStep.WAIT, due - facts.now, "The next look-up proves nothing before then.")
    return Decision(PolicyStep.LOOK)


def _next_look_at(
    capabilities: Capabilities, facts: DeliveryHistory, unanswered: int, time_scale: float
) -> float:
    due = facts.uncertain_since + capabilities.settle_seconds * time_scale
    for look in facts.looks:
        match look.evidence:
            case Evidence.ABSENT:
                pause = capabilities.look_spacing_seconds
            case Evidence.UNKNOWN:
                pause = max(capabilities.look_spacing_seconds, UNANSWERED_SECONDS * 2 ** (unanswered - 1))
            case Evidence.FOUND:
                raise ValueError("a delivery that was found is not uncertain")
            case _:
                assert_never(look.evidence)
        due = max(due, look.at + pause * time_scale)
    return due


def _after_absence(capabilities: Capabilities, facts: DeliveryHistory) -> Decision:
    allowed = capabilities.resends_after_absence
    if allowed is None or facts.resends < allowed:
        return Decision(PolicyStep.RESEND)
    if allowed == 0:
        return _hold("the provider does not have it, which is no proof with this provider")
    return _hold("it was resent on proof of absence once and is uncertain again")


def _hold(reason: str) -> Decision:
    return Decision(PolicyStep.HOLD, reason=reason)
