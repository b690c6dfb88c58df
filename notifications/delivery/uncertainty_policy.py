"""What to do about a delivery of which nobody knows whether it was made (004, 8.2; pure).

Decided from what the provider promises and from what the rows say, from nothing else:

    repeat    the provider still takes the same message with the same key for one message
    look      ask the provider now
    wait      ask it again later: its index may lag, or it could not tell
    resend    absence is proven and a resend is left
    hold      nothing is proven and nothing is safe: an operator decides
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

from notifications.providers.base import Capabilities, Evidence, LookUpBy

# A provider that cannot tell is asked this often more than it takes to prove absence ...
UNANSWERED_LOOKS = 4
# ... after its spacing, and this long at least, then twice as long each time. The job waits too.
UNANSWERED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LookupResult:
    """One look-up that did not find the message. `at`: seconds on the database's clock."""

    evidence: Evidence
    at: float


@dataclass(frozen=True, slots=True)
class DeliveryHistory:
    """What the rows say of one delivery in doubt; times in seconds on the database's clock.

    `first_attempt_at`: start of the first attempt that may have been accepted, since an
    operator last decided. `last_attempt_at`: start of the last such attempt; `doubtful_since`:
    when its outcome was found to be unknown. `looks`: those after it, in order. `resends`:
    attempts that were made on evidence of absence.
    """

    now: float
    first_attempt_at: float
    last_attempt_at: float
    doubtful_since: float
    knows_id: bool = False
    looks: tuple[LookupResult, ...] = ()
    resends: int = 0


class PolicyStep(Enum):
    REPEAT = auto()
    LOOK = auto()
    WAIT = auto()
    RESEND = auto()
    HOLD = auto()


@dataclass(frozen=True, slots=True)
class Choice:
    """`seconds` of WAIT; `reason` of WAIT and HOLD, one phrase for people."""

    step: PolicyStep
    seconds: float = 0.0
    reason: str = ""


def can_be_asked(capabilities: Capabilities, *, knows_id: bool) -> bool:
    """Say whether a look-up can search for the message at all."""
    return LookUpBy.KEY in capabilities.look_up or (knows_id and LookUpBy.ID in capabilities.look_up)


def is_hopeless(capabilities: Capabilities) -> bool:
    """Say whether an attempt without an answer can only be held for an operator."""
    return capabilities.key_window_seconds <= 0 and not can_be_asked(capabilities, knows_id=False)


def next_step(capabilities: Capabilities, facts: DeliveryHistory, *, time_scale: float = 1.0) -> Choice:
    """Return the next step for a delivery in doubt.

    `time_scale` shortens the waits of drills; what a provider keeps (its key window, its
    retention) is no wait.
    """
    asks = can_be_asked(capabilities, knows_id=facts.knows_id)
    # The provider's own id is the cheapest and surest question (004, 6.4).
    if facts.knows_id and LookUpBy.ID in capabilities.look_up and not facts.looks:
        return Choice(PolicyStep.LOOK)
    if facts.now - facts.first_attempt_at < capabilities.key_window_seconds:
        return Choice(PolicyStep.REPEAT)
    if not asks:
        return Choice(PolicyStep.HOLD, reason=_why_silent(capabilities))
    if facts.now - facts.last_attempt_at > capabilities.retention_seconds:
        return _past_retention(capabilities, facts)

    absent = sum(look.evidence is Evidence.ABSENT for look in facts.looks)
    unanswered = len(facts.looks) - absent
    if absent >= capabilities.looks:
        return _absent(capabilities, facts)
    if unanswered > UNANSWERED_LOOKS:
        return Choice(PolicyStep.HOLD, reason="the provider was asked several times and could not tell")
    due = _next_look_at(capabilities, facts, unanswered, time_scale)
    if facts.now < due:
        return Choice(PolicyStep.WAIT, due - facts.now, "Its next look-up proves nothing before then.")
    return Choice(PolicyStep.LOOK)


def _next_look_at(
    capabilities: Capabilities, facts: DeliveryHistory, unanswered: int, time_scale: float
) -> float:
    due = facts.doubtful_since + capabilities.settle_seconds * time_scale
    for look in facts.looks:
        match look.evidence:
            case Evidence.ABSENT:
                pause = capabilities.look_spacing_seconds
            case Evidence.UNKNOWN:
                pause = max(capabilities.look_spacing_seconds, UNANSWERED_SECONDS * 2 ** (unanswered - 1))
            case Evidence.FOUND:
                raise ValueError("a delivery that was found is not in doubt")
            case _:
                assert_never(look.evidence)
        due = max(due, look.at + pause * time_scale)
    return due


def _absent(capabilities: Capabilities, facts: DeliveryHistory) -> Choice:
    allowed = capabilities.resends_after_absence
    if allowed is None or facts.resends < allowed:
        return Choice(PolicyStep.RESEND)
    if allowed == 0:
        return Choice(
            PolicyStep.HOLD, reason="the provider does not have it, which is no proof with this provider"
        )
    return Choice(
        PolicyStep.HOLD, reason="it was sent again on proof of absence before, and is in doubt again"
    )


def _past_retention(capabilities: Capabilities, facts: DeliveryHistory) -> Choice:
    """Only "found" still means something: look once, then hold."""
    ended = facts.last_attempt_at + capabilities.retention_seconds
    if any(look.at > ended for look in facts.looks):
        return Choice(
            PolicyStep.HOLD, reason="the provider keeps messages for less long: absence is no proof"
        )
    return Choice(PolicyStep.LOOK)


def _why_silent(capabilities: Capabilities) -> str:
    if capabilities.key_window_seconds > 0:
        return "the provider's key has run out and it cannot be asked"
    return "an attempt has no outcome and the provider cannot be asked"
