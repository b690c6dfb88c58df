"""The policy for uncertain deliveries as one table of capabilities and history."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import pytest

from notifications.delivery import uncertainty_policy
from notifications.delivery.uncertainty_policy import (
    Decision,
    DeliveryHistory,
    LookupResult,
    PolicyStep,
    next_step,
)
from notifications.providers.base import Capabilities, Evidence, LookUpBy

ID, KEY = LookUpBy.ID, LookUpBy.KEY
ABSENT, UNKNOWN = Evidence.ABSENT, Evidence.UNKNOWN
HOUR, DAY = 3600.0, 86_400.0

SMTP = Capabilities()
WEBHOOK = Capabilities(key_window_seconds=inf)
MAILDIR = Capabilities(look_up=frozenset({KEY}), resends_after_absence=None)
ARCHIVE = Capabilities(look_up=frozenset({KEY}), settle_seconds=180, looks=2, look_spacing_seconds=720)
POSTMARK = Capabilities(
    look_up=frozenset({ID, KEY}),
    settle_seconds=90,
    looks=3,
    look_spacing_seconds=300,
    retention_seconds=45 * DAY,
)
RESEND = Capabilities(key_window_seconds=23 * HOUR, look_up=frozenset({ID, KEY}), resends_after_absence=0)
SLACK = Capabilities(look_up=frozenset({ID, KEY}), settle_seconds=15)
SWARM = Capabilities(look_up=frozenset({ID, KEY}), settle_seconds=10, resends_after_absence=None)
BY_ID = Capabilities(look_up=frozenset({ID}))

# One attempt that began at 1000; at 1030 its outcome was found to be unknown.
UNCERTAIN = DeliveryHistory(
    now=1030.0, first_attempt_at=1000.0, last_attempt_at=1000.0, uncertain_since=1030.0
)


def at(now: float, **changes: object) -> DeliveryHistory:
    return replace(UNCERTAIN, now=now, **changes)  # type: ignore[arg-type]


def looked(now: float, *looks: tuple[Evidence, float], **changes: object) -> DeliveryHistory:
    return at(now, looks=tuple(LookupResult(evidence, when) for evidence, when in looks), **changes)


TABLE: list[tuple[str, Capabilities, DeliveryHistory, PolicyStep, float]] = [
    # No key and no look-up: an operator, at once and for ever.
    ("smtp", SMTP, at(1030), PolicyStep.HOLD, 0),
    ("smtp, an id that cannot be asked about", SMTP, at(1030, has_provider_id=True), PolicyStep.HOLD, 0),
    ("asked by id only, and there is none", BY_ID, at(1030), PolicyStep.HOLD, 0),
    ("asked by id only, and there is one", BY_ID, at(1030, has_provider_id=True), PolicyStep.LOOK, 0),
    # The same key again, inside its window.
    ("webhook", WEBHOOK, at(1030), PolicyStep.REPEAT, 0),
    ("webhook a year later", WEBHOOK, at(1000 + 365 * DAY), PolicyStep.REPEAT, 0),
    ("resend inside the window", RESEND, at(1000 + 23 * HOUR - 1), PolicyStep.REPEAT, 0),
    ("resend at the window's end", RESEND, at(1000 + 23 * HOUR), PolicyStep.LOOK, 0),
    ("resend: the window is the first attempt's", RESEND, at(1000 + DAY, last_attempt_at=900 + DAY),
     PolicyStep.LOOK, 0),
    ("resend: a known id is asked about first", RESEND, at(1030, has_provider_id=True), PolicyStep.LOOK, 0),
    ("resend: its id is unknown there", RESEND, looked(1031, (ABSENT, 1030), has_provider_id=True),
    PolicyStep.REPEAT, 0),
    ("resend: absence is no proof there", RESEND, looked(1000 + DAY, (ABSENT, 999 + DAY)),
    PolicyStep.HOLD, 0),
    # Settling, then looks, each with its distance.
    ("maildir needs no time", MAILDIR, at(1030), PolicyStep.LOOK, 0),
    ("archive: too early", ARCHIVE, at(1100), PolicyStep.WAIT, 110),
    ("archive: settled", ARCHIVE, at(1210), PolicyStep.LOOK, 0),
    ("archive: one absence is none", ARCHIVE, looked(1211, (ABSENT, 1210)), PolicyStep.WAIT, 719),
    ("archive: second look", ARCHIVE, looked(1930, (ABSENT, 1210)), PolicyStep.LOOK, 0),
    ("archive: proven", ARCHIVE, looked(1931, (ABSENT, 1210), (ABSENT, 1930)), PolicyStep.RESEND, 0),
    ("postmark: two of three", POSTMARK, looked(1500, (ABSENT, 1120), (ABSENT, 1420)), PolicyStep.WAIT, 220),
    ("postmark: three of three", POSTMARK, looked(1721, *((ABSENT, t) for t in (1120, 1420, 1720))),
     PolicyStep.RESEND, 0),
    ("a known id needs no settling", SLACK, at(1030, has_provider_id=True), PolicyStep.LOOK, 0),
    ("and its absence counts as a look", SLACK, looked(1031, (ABSENT, 1030), has_provider_id=True),
    PolicyStep.RESEND, 0),
    # Resends are bounded, unless the answer is authoritative.
    ("archive: proven twice", ARCHIVE, looked(1931, (ABSENT, 1210), (ABSENT, 1930), resends=1),
    PolicyStep.HOLD, 0),
    ("archive: a second uncertain attempt is looked up", ARCHIVE, at(1210, resends=1), PolicyStep.LOOK, 0),
    ("swarm: any number", SWARM, looked(1041, (ABSENT, 1040), resends=7), PolicyStep.RESEND, 0),
    # A look that could not tell: asked again, with growing distance, a few times.
    ("slack: could not tell", SLACK, looked(1046, (UNKNOWN, 1045)), PolicyStep.WAIT, 29),
    ("slack: could not tell twice", SLACK, looked(1076, (UNKNOWN, 1045), (UNKNOWN, 1075)),
    PolicyStep.WAIT, 59),
    ("slack: told in the end", SLACK, looked(1076, (UNKNOWN, 1045), (ABSENT, 1075)), PolicyStep.RESEND, 0),
    ("archive: never sooner than its spacing", ARCHIVE, looked(1211, (UNKNOWN, 1210)), PolicyStep.WAIT, 719),
    ("archive: absences keep their distance", ARCHIVE, looked(1300, (ABSENT, 1210), (UNKNOWN, 1250)),
     PolicyStep.WAIT, 670),
    ("archive: not telling is not absence", ARCHIVE, looked(1931, (UNKNOWN, 1210), (ABSENT, 1930)),
     PolicyStep.WAIT, 719),
    ("slack: never told", SLACK, looked(9000, *[(UNKNOWN, 8000)] * 5), PolicyStep.HOLD, 0),
    # Past retention only "found" means something.
    ("postmark: old and never asked", POSTMARK, at(1000 + 46 * DAY), PolicyStep.LOOK, 0),
    ("postmark: old and absent", POSTMARK, looked(1000 + 46 * DAY, (ABSENT, 999 + 46 * DAY)),
    PolicyStep.HOLD, 0),
    ("postmark: old, proven absent before it was", POSTMARK,
     looked(1000 + 46 * DAY, *((ABSENT, t) for t in (1120, 1420, 1720))), PolicyStep.LOOK, 0),
]  # fmt: skip


def test_the_step_follows_from_capabilities_and_history() -> None:
    failures = []
    for name, capabilities, facts, step, seconds in TABLE:
        decision = next_step(capabilities, facts)
        has_reason = bool(decision.reason) == (step in {PolicyStep.WAIT, PolicyStep.HOLD})
        if (decision.step, decision.seconds) != (step, pytest.approx(seconds)) or not has_reason:
            failures.append((name, decision))
    assert failures == []


def test_waits_are_scaled_but_provider_windows_are_not() -> None:
    assert next_step(ARCHIVE, at(1031.0), time_scale=0.01) == Decision(
        PolicyStep.WAIT, pytest.approx(0.8), "The next look-up proves nothing before then."
    )
    assert next_step(ARCHIVE, at(1031.8), time_scale=0.01).step is PolicyStep.LOOK
    assert next_step(RESEND, at(1000 + 22 * HOUR), time_scale=0.01).step is PolicyStep.REPEAT
    assert next_step(POSTMARK, at(1000 + 44 * DAY), time_scale=0.01).step is PolicyStep.LOOK


def test_every_uncertain_delivery_comes_to_an_end() -> None:
    """For every answer of every provider, following the waits and look-ups ends."""
    every = [MAILDIR, ARCHIVE, POSTMARK, SLACK, SWARM, BY_ID, RESEND, WEBHOOK, SMTP]
    for capabilities, has_provider_id, evidence in product(every, [True, False], [ABSENT, UNKNOWN]):
        facts = replace(UNCERTAIN, has_provider_id=has_provider_id)
        for _ in range(50):
            decision = next_step(capabilities, facts)
            if decision.step is PolicyStep.WAIT:
                facts = replace(facts, now=facts.now + decision.seconds)
            elif decision.step is PolicyStep.LOOK:
                facts = replace(facts, looks=(*facts.looks, LookupResult(evidence, facts.now)))
            else:
                break
        case = (capabilities, has_provider_id, evidence)
        assert decision.step in {PolicyStep.REPEAT, PolicyStep.RESEND, PolicyStep.HOLD}, case
        assert facts.now - UNCERTAIN.now <= 2 * HOUR, case
        if evidence is UNKNOWN:
            assert decision.step is not PolicyStep.RESEND, case  # silence is no proof


def test_a_found_message_is_not_uncertain() -> None:
    with pytest.raises(ValueError, match="found"):
        next_step(SLACK, looked(1046, (Evidence.FOUND, 1045)))


def test_only_providers_without_key_and_look_up_hold_at_once() -> None:
    assert [uncertainty_policy.can_only_hold(can) for can in (SMTP, BY_ID, WEBHOOK, ARCHIVE)] == [
        True, True, False, False,
    ]  # fmt: skip
