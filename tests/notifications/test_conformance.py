"""Promises of every provider, checked against each over a real file system or socket.

The expected step for an uncertain delivery follows from the capabilities alone, by the product's own
`uncertainty_policy`: a provider that promises too much fails here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from criticizer.resilience.failures import (
    Component,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.delivery import uncertainty_policy
from notifications.delivery.uncertainty_policy import DeliveryHistory, LookupResult, PolicyStep
from notifications.providers.base import (
    Capabilities,
    Evidence,
    LookUp,
    LookUpBy,
    Message,
    Question,
    capabilities_for,
)
from notifications.providers.registry import PROVIDERS
from notifications.recipients import CHANNELS, HOST_CHANNELS
from tests.notifications.rigs import RIGS, Rig
from tests.notifications.samples import message


@pytest.fixture(params=RIGS.values(), ids=list(RIGS))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path, request)


def sample(rig: Rig, **changes: object) -> Message:
    """Return a message that was made just now: nothing about it is old."""
    return message(rig.address, **{"created_at_epoch": int(time.time()), **changes})


def promises(rig: Rig) -> Capabilities:
    return capabilities_for(rig.provider, rig.address)


# How long ago the attempts of the suite were: longer than any provider settles.
AGO = 3600.0


def look(rig: Rig, sent: Message, notification_id: str = "") -> LookUp:
    return rig.provider.look_up(Question(sent, notification_id, time.time() - AGO))


# -- the normal course -------------------------------------------------------------------------


def test_send_reaches_the_recipient_once_and_returns_an_id(rig: Rig) -> None:
    sent = sample(rig)
    notification_id = rig.provider.send(sent)
    assert 0 < len(notification_id) <= 512
    assert rig.arrived() == [str(sent.token)]


def test_two_tokens_are_two_messages(rig: Rig) -> None:
    for token in (1, 2):
        rig.provider.send(sample(rig, token=token))
    assert len(set(rig.arrived())) == 2


def test_hostile_text_arrives_whole_and_makes_no_header(rig: Rig) -> None:
    hostile = sample(rig, text=".\r\n.\r\nQUIT\r\nFrom mallory\nBcc: x@y\n" + "long " * 500)
    rig.provider.send(hostile)
    assert rig.arrived() == [str(hostile.token)]


def test_a_repetition_that_an_operator_allowed_arrives_and_is_the_same_intent(rig: Rig) -> None:
    sent = sample(rig, repeat_notice="This may repeat an earlier message.")
    rig.provider.send(sent)
    assert rig.arrived() == [str(sent.token)]


def test_a_probe_says_what_works_and_sends_nothing(rig: Rig) -> None:
    said = rig.provider.probe()
    assert said[:1].isupper()
    assert said.endswith(".")
    assert rig.arrived() == []


# -- the capabilities --------------------------------------------------------------------------


def test_capabilities_are_declared_and_make_sense(rig: Rig) -> None:
    can = promises(rig)
    assert 0 < len(rig.provider.name) <= 32
    assert rig.provider.name not in set(CHANNELS) - {"webhook", "slack", "swarm", *HOST_CHANNELS}
    assert can.absence
    assert can.looks >= 1
    assert min(can.settle_seconds, can.look_spacing_seconds, can.key_window_seconds) >= 0
    assert can.looks == 1 or can.look_spacing_seconds > 0
    assert can.retention_seconds > can.settle_seconds + can.looks * can.look_spacing_seconds
    assert can.max_bytes is None or can.max_bytes > 1000


def test_inside_its_key_window_a_repetition_is_the_same_message(rig: Rig) -> None:
    first, second = (rig.provider.send(sample(rig, created_at_epoch=1_772_600_767)) for _ in range(2))
    if promises(rig).key_window_seconds > 0:
        assert first == second
        assert len(rig.arrived()) == 1


def test_look_up_tells_the_truth_or_says_that_it_cannot(rig: Rig) -> None:
    can, sent = promises(rig), sample(rig)
    before = look(rig, sent)
    notification_id = rig.provider.send(sent)
    by_key, by_id = look(rig, sent), look(rig, sent, notification_id)
    assert before.evidence is not Evidence.FOUND
    if LookUpBy.KEY in can.look_up:
        assert (by_key.evidence, by_key.notification_id) == (Evidence.FOUND, notification_id)
    if LookUpBy.ID in can.look_up:
        assert by_id.evidence is Evidence.FOUND
    if not can.look_up:
        assert {before.evidence, by_key.evidence, by_id.evidence} == {Evidence.UNKNOWN}


def test_absence_is_said_where_it_is_proven(rig: Rig) -> None:
    can, sent = promises(rig), sample(rig, token=9)
    if LookUpBy.KEY not in can.look_up or can.resends_after_absence == 0:
        pytest.skip("its absence is no proof, and it does not say that it were one")
    rig.provider.send(sample(rig))
    rig.prove_alive()
    assert look(rig, sent).evidence is Evidence.ABSENT


def test_looking_up_sends_nothing(rig: Rig) -> None:
    look(rig, sample(rig), "some-id")
    assert rig.arrived() == []


# -- refusals ----------------------------------------------------------------------------------


def test_a_permanent_refusal_is_a_permanent_failure_and_nothing_arrives(rig: Rig) -> None:
    rig.refuse()
    with pytest.raises(PermanentFailure) as refusal:
        rig.provider.send(sample(rig))
    assert rig.arrived() == []
    assert refusal.value.component in {Component.PROVIDER, Component.CONFIGURATION}


def test_failures_do_not_name_the_recipient(rig: Rig) -> None:
    rig.refuse()
    with pytest.raises(Failure) as refusal:
        rig.provider.send(sample(rig))
    told = f"{refusal.value.detail} {refusal.value.context}"
    assert rig.address not in told
    assert "example.com" not in told


def test_where_nothing_listens_it_is_certain_that_nothing_was_sent(rig: Rig) -> None:
    if rig.far_away is None:
        pytest.skip("there is no one place that could be away")
    far = Rig(rig.far_away, rig.far_address or rig.address, rig.arrived, rig.refuse)
    with pytest.raises(RetryableFailure):
        far.provider.send(sample(far))
    if promises(far).look_up:
        with pytest.raises(RetryableFailure):
            look(far, sample(far), "some-id")
    if not rig.far_address:
        with pytest.raises(Failure):
            far.provider.probe()


# -- doubt -------------------------------------------------------------------------------------


def come_through(rig: Rig, sent: Message) -> PolicyStep:
    """Treat an uncertain message as the product does by the capabilities; return the last step."""
    began = time.time() - AGO
    now, looks, resends = time.time(), [], 0  # type: tuple[float, list[Look], int]
    for _ in range(20):
        facts = DeliveryHistory(now, began, began, began, looks=tuple(looks), resends=resends)
        choice = uncertainty_policy.next_step(promises(rig), facts)
        match choice.step:
            case PolicyStep.REPEAT | PolicyStep.RESEND:
                rig.provider.send(sent)
                return choice.step
            case PolicyStep.WAIT:
                now += choice.seconds
            case PolicyStep.HOLD:
                return PolicyStep.HOLD
            case PolicyStep.LOOK:
                answer = look(rig, sent)
                if answer.evidence is Evidence.FOUND:
                    return PolicyStep.LOOK
                looks.append(LookupResult(answer.evidence, now))
    raise AssertionError("no end")


def test_a_lost_answer_after_acceptance_reaches_no_recipient_twice(rig: Rig) -> None:
    if rig.lose_answer is None:
        pytest.skip("it is no server that could fall silent")
    sent = sample(rig)
    rig.lose_answer()
    with pytest.raises(UncertainFailure):
        rig.provider.send(sent)
    assert rig.arrived() == [str(sent.token)]  # it did arrive: "failed" would have been a lie
    rig.prove_alive()
    ended = come_through(rig, sent)
    assert rig.arrived() == [str(sent.token)]
    assert (ended is PolicyStep.HOLD) == uncertainty_policy.can_only_hold(promises(rig))


def test_a_message_that_is_lost_is_sent_again_on_proof_or_held(rig: Rig) -> None:
    if rig.lose_message is None:
        pytest.skip("it is no server that could fall silent")
    sent = sample(rig)
    rig.lose_message()
    with pytest.raises(UncertainFailure):
        rig.provider.send(sent)
    assert rig.arrived() == []
    rig.prove_alive()
    ended = come_through(rig, sent)
    assert rig.arrived() == ([] if uncertainty_policy.can_only_hold(promises(rig)) else [str(sent.token)])
    assert (ended is PolicyStep.HOLD) == uncertainty_policy.can_only_hold(promises(rig))


# -- one file, one line ------------------------------------------------------------------------


def test_every_provider_of_the_registry_is_tried_here(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    tried = set()
    for name, make in RIGS.items():
        if "archive" in name:  # the same class, with a mailbox behind it
            continue
        with ExitStack() as stack:
            (tmp_path / name).mkdir()
            tried.add(type(make(stack, tmp_path / name, request).provider))
    assert tried == {entry.kind for entry in PROVIDERS}
