"""Preferences of recipients: mute, threshold and their history."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from notifications.models import RecipientPreference
from notifications.preferences import policy
from notifications.preferences.policy import BELOW_THRESHOLD, MUTED, Preference

pytestmark = pytest.mark.django_db

ANN, BOB = "mail:ann@example.com", "mail:bob@example.com"


def unwanted(worst: dict[str, str]) -> dict[str, str]:
    return policy.apply_preferences(worst).unwanted


def test_without_preferences_every_review_is_sent() -> None:
    assert policy.preference_of(ANN) == Preference(ANN)
    assert unwanted({ANN: "", BOB: "critical"}) == {}


def test_a_muted_recipient_gets_nothing_until_the_mute_ends() -> None:
    policy.mute(ANN, timezone.now() + timedelta(hours=1), "ann")
    assert unwanted({ANN: "critical", BOB: ""}) == {ANN: MUTED}
    RecipientPreference.objects.update(muted_until=timezone.now() - timedelta(seconds=1))
    assert unwanted({ANN: "critical"}) == {}
    assert policy.preference_of(ANN).muted_until is None


def test_muted_without_an_end_stays_muted_until_unmuted() -> None:
    policy.mute(ANN, None, "link")
    assert policy.preference_of(ANN).is_muted_for_ever
    policy.mute(ANN, None, "link")
    assert unwanted({ANN: "critical"}) == {ANN: MUTED}
    policy.unmute(ANN, "ann", "back from leave")
    assert unwanted({ANN: "critical"}) == {}


def test_any_spelling_mutes_the_same_recipient() -> None:
    policy.mute("ann@EXAMPLE.com", None, "link")
    assert unwanted({ANN: "high"}) == {ANN: MUTED}


@pytest.mark.parametrize(
    ("threshold", "told"),
    [
        ("", ["", "low", "medium", "high", "critical", "odd"]),
        ("low", ["low", "medium", "high", "critical", "odd"]),
        ("medium", ["medium", "high", "critical", "odd"]),
        ("high", ["high", "critical", "odd"]),
        ("critical", ["critical", "odd"]),
    ],
)
def test_a_threshold_lets_through_what_reaches_it(threshold: str, told: list[str]) -> None:
    policy.set_threshold(ANN, threshold, "ann")
    severities = ["", "low", "medium", "high", "critical", "odd"]
    assert [worst for worst in severities if not unwanted({ANN: worst})] == told
    assert unwanted({ANN: ""}) == ({} if threshold == "" else {ANN: BELOW_THRESHOLD})


def test_changing_one_preference_keeps_the_others() -> None:
    policy.set_threshold(ANN, "high", "ann")
    policy.mute(ANN, None, "ann")
    policy.unmute(ANN, "ann")
    assert policy.preference_of(ANN).threshold == "high"


@pytest.mark.parametrize("recipient", ["", "nonsense", "pager:5", "mail:a b@example.com"])
def test_an_invalid_recipient_cannot_be_muted(recipient: str) -> None:
    with pytest.raises(ValueError, match=r"recipient|channel|address"):
        policy.mute(recipient, None, "ann")
    assert not RecipientPreference.objects.exists()


def test_an_unknown_threshold_and_an_unknown_actor_are_refused() -> None:
    with pytest.raises(ValueError, match="urgent"):
        policy.set_threshold(ANN, "urgent", "ann")
    with pytest.raises(ValueError, match="actor is required"):
        policy.mute(ANN, None, " ")


def test_every_change_is_recorded_with_actor_and_reason() -> None:
    events = apps.get_model("notifications", "RecipientPreferenceEvent").objects
    policy.mute(ANN, None, "unsubscribe link")
    policy.unmute(ANN, "oli", "asked for it in OPS-7")
    kept = [(row.pgh_label, row.actor, row.reason, row.muted_until) for row in events.order_by("pgh_id")]
    assert kept == [
        ("insert", "unsubscribe link", "", policy.NO_END),
        ("update", "oli", "asked for it in OPS-7", None),
    ]
    assert events.latest("pgh_id").pgh_context.metadata["actor"] == "oli"


@pytest.mark.parametrize("statement", ["UPDATE {} SET actor = 'x'", "DELETE FROM {}", "TRUNCATE {}"])
def test_the_history_cannot_be_changed(statement: str) -> None:
    policy.mute(ANN, None, "ann")
    with (
        pytest.raises(DatabaseError, match=r"annot|append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement.format("notifications_recipientpreferenceevent"))
