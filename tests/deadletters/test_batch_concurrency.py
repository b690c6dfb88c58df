"""Events between a batch's looks at its letters: a cancel, another look, a late answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deadletters import batches
from deadletters.batches import prepare
from deadletters.models import DeadLetter, ReplayBatch, ReplayItem
from deadletters.states import BatchStatus, ItemStatus, LetterStatus
from deadletters.types import Check, CheckKind, Failed
from reviews.replay.adapter import JobRecovery
from tests.deadletters.conftest import Fail, Look, Work

pytestmark = pytest.mark.django_db


def drafted(*letters: DeadLetter) -> ReplayBatch:
    return batches.draft(
        filter={},
        ids=[letter.pk for letter in letters],
        actor="ann",
        reason="OPS-1: key rotated",
        evidence_note="OPS-1: key rotated",
        canary_size=0,
        rate_per_minute=6000,
    )


def test_dry_run_keeps_the_outcome_of_a_concurrently_settled_item(
    fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = drafted(fail("1"), fail("2"))
    settled, open_ = batch.items.order_by("id")
    survey = JobRecovery.survey

    def slow(self: JobRecovery, *args: Any, **given: Any) -> Any:
        ReplayItem.objects.filter(pk=settled.pk).update(
            status=ItemStatus.SKIPPED, detail="there is version 4"
        )
        return survey(self, *args, **given)

    monkeypatch.setattr(JobRecovery, "survey", slow)
    batches.dry_run(batch.pk)
    assert list(batch.items.order_by("id").values_list("verdict", "detail")) == [
        ("", "there is version 4"),
        ("eligible", ""),
    ]
    assert open_.pk != settled.pk


def test_cancel_during_health_checks_moves_no_letter(
    fail: Fail, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = fail()
    batch = drafted(letter)
    batches.submit(batch.pk, actor="ann")
    ask = prepare._why_unavailable

    def slow(*args: Any) -> str:
        assert batches.cancel(batch.pk, actor="ann", reason="the evidence is of something else").ok
        return ask(*args)

    monkeypatch.setattr(prepare, "_why_unavailable", slow)
    look(batch.pk)
    letter.refresh_from_db()
    assert (letter.status, letter.evidence_note) == (LetterStatus.NEW, "")
    assert [event.action for event in letter.events.all()] == ["created"]


def test_item_handled_by_another_look_is_not_queued_again(
    fail: Fail, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = fail()
    batch = drafted(letter)
    batches.submit(batch.pk, actor="ann")
    walk: Callable[..., dict[int, str]] = prepare._advance

    def stalled(*args: Any) -> dict[int, str]:
        skipped = walk(*args)
        batch.items.update(status=ItemStatus.SKIPPED, detail="the other look: a delivery is uncertain")
        return skipped

    monkeypatch.setattr(prepare, "_advance", stalled)
    look(batch.pk)
    letter.refresh_from_db()
    assert letter.status == LetterStatus.VALIDATED  # anybody can take it on from here
    assert batch.items.get().detail == "the other look: a delivery is uncertain"


def test_pending_effect_does_not_fail_the_item(
    fail: Fail, look: Look, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = drafted(fail("1"), fail("2"))
    batches.submit(batch.pk, actor="ann")

    def not_yet(self: JobRecovery, failed: Failed) -> list[Check]:
        return [
            Check(
                CheckKind.DELIVERIES, False, "0 of 1 delivery is proven, 1 not settled yet", is_waiting=True
            )
        ]

    monkeypatch.setattr(JobRecovery, "verify", not_yet)
    for _ in range(6):
        look(batch.pk)
        work()
    look(batch.pk)
    batch.refresh_from_db()
    assert batch.status == BatchStatus.FINISHED
    assert {item.status for item in batch.items.all()} == {ItemStatus.SUCCEEDED}
    assert all(item.detail.startswith("not yet: ") for item in batch.items.all())
    assert {letter.status for letter in DeadLetter.objects.all()} == {LetterStatus.VERIFYING}
    assert not DeadLetter.objects.filter(is_escalated=True).exists()
