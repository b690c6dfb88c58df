"""Answerable people of a batch: drafter, submitter, and who may approve it."""

from __future__ import annotations

from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.resilience.circuit_breaker import create
from criticizer.resilience.health_checks import CHECKS
from deadletters import batches, workflow
from deadletters.batches import preflight
from deadletters.models import DeadLetter, OperatorAlert, ReplayItem
from deadletters.states import BatchStatus
from tests.deadletters.conftest import Fail, Work
from tests.deadletters.test_batches import Look, _drafted, _outcomes, _run
from tests.deadletters.test_workflow import silent

pytestmark = pytest.mark.django_db


# -- four eyes ---------------------------------------------------------------------------------


def test_submitter_is_requester_and_actor_of_a_batch(fail: Fail, look: Look) -> None:
    batch = _drafted([fail()], is_restart=True)
    assert batches.submit(batch.pk, actor="both").ok
    batch.refresh_from_db()
    assert (batch.requested_by, batch.status) == ("both", "awaiting")
    assert batches.approve(batch.pk, actor="both").message == "you cannot approve your own batch"
    refused = batches.approve(batch.pk, actor="ann")
    assert refused.message == "you drafted or configured this batch and cannot approve it"
    assert batches.approve(batch.pk, actor="carol").ok
    look(batch.pk)
    actors = DeadLetter.objects.get().events.filter(action__in=("remediated", "restarted"))
    assert {event.actor for event in actors} == {f"both (batch {batch.pk})"}


def test_submitter_is_requester_of_a_batch_without_approval(fail: Fail) -> None:
    batch = _drafted([fail()])
    assert batches.submit(batch.pk, actor="bob").message == "started"
    batch.refresh_from_db()
    assert batch.requested_by == "bob"
    assert batches.makers(batch) == ["ann"]


def test_configurer_cannot_approve_a_batch_but_rate_setter_can(fail: Fail) -> None:
    batch = _drafted([fail()], is_restart=True)
    batches.configure(batch.pk, actor="both", override_reason="the host has moved")
    batches.set_pace(batch.pk, actor="carol", rate_per_minute=7)
    batches.submit(batch.pk, actor="ann")
    assert batches.makers(batch) == ["ann", "both"]
    refused = batches.approve(batch.pk, actor="both")
    assert (refused.ok, refused.message) == (
        False,
        "you drafted or configured this batch and cannot approve it",
    )
    assert batches.approve(batch.pk, actor="carol").ok


def test_timeline_records_changed_batch_settings(fail: Fail) -> None:
    batch = _drafted([fail()])
    secret = "key = 'sk-ant-api03-" + "Ab3xQ9" * 12 + "'"
    batches.configure(batch.pk, actor="bob", is_restart=True, override_reason=secret, rate_per_minute="7")
    batches.configure(batch.pk, actor="bob", evidence_note="x" * 3_000, evidence_link="", category="data")
    first, second = batch.events.filter(action="configured").order_by("id")
    assert first.reason.startswith("failed checks overridden: ")
    assert "Ab3xQ9Ab3xQ9" not in first.reason
    assert first.reason.endswith("; begins at the first stage: yes; a minute: 7")
    assert second.reason.startswith("category: data; what was done: xxx")
    assert len(second.reason) < 600


def test_unchanged_batch_settings_add_no_event(fail: Fail) -> None:
    batch = _drafted([fail()])
    same = {"evidence_note": batch.evidence_note, "canary_size": "0", "is_restart": False}
    assert batches.configure(batch.pk, actor="carol", **same).message == "nothing has changed"
    assert batches.makers(batch) == ["ann"]


def test_batch_awaiting_approval_alerts_once(fail: Fail) -> None:
    batch = _drafted([fail("1"), fail("2")], is_restart=True)
    OperatorAlert.objects.all().delete()  # of the letters
    batches.submit(batch.pk, actor="bob")
    alert = OperatorAlert.objects.get()
    assert (alert.kind, alert.dedup_key) == ("batch_awaiting", f"batch-awaiting:{batch.pk}")
    assert alert.title == f"Replay batch {batch.pk} waits for approval"
    assert alert.text == "Submitted by bob: 2 dead letters, from the first stage."
    assert alert.path == f"/admin/deadletters/replaybatch/{batch.pk}/change/"


def test_batch_without_approval_raises_no_alert(fail: Fail) -> None:
    batches.submit(_drafted([fail()]).pk, actor="ann")
    assert not OperatorAlert.objects.filter(kind="batch_awaiting").exists()


# -- the dry run is of these settings ----------------------------------------------------------


@pytest.mark.parametrize(
    "given", [{"is_restart": True}, {"override_reason": "the host has moved"}, {"category": "data"}]
)
def test_changed_setting_clears_dry_run_verdicts(
    fail: Fail, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_FORGOTTEN_AT_ONCE", 2)
    batch = _drafted([fail(str(number)) for number in range(5)])
    batches.dry_run(batch.pk)
    batches.configure(batch.pk, actor="ann", evidence_note="OPS-2", rate_per_minute=7)
    batch.refresh_from_db()
    assert batch.report["verdicts"] == {"eligible": 5}  # these do not matter
    batches.configure(batch.pk, actor="ann", **given)
    batch.refresh_from_db()
    assert batch.report == {}
    assert set(batch.items.values_list("verdict", "detail")) == {("", "")}


def test_dry_run_is_repeated_when_settings_change_during_it(
    fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = fail()
    letter.job.artifacts.all().delete()
    batch = _drafted([letter])
    whole = preflight._verdict

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(preflight, "_verdict", whole)
        assert batches.configure(batch.pk, actor="bob", is_restart=True).ok
        return whole(*given)

    monkeypatch.setattr(preflight, "_verdict", overtaken)
    assert batches.dry_run(batch.pk)["verdicts"] == {"eligible": 1}  # from the failed stage: expired
    batch.refresh_from_db()
    assert batch.report["verdicts"] == {"eligible": 1}
    assert ReplayItem.objects.get().verdict == "eligible"


# -- what operators validated themselves -------------------------------------------------------


@pytest.fixture
def silent_model(settings: Any) -> None:
    settings.LLM_PROVIDER = "openai"
    CHECKS["llm"] = silent


def _overruled(letter: DeadLetter, override_reason: str) -> None:
    workflow.triage(letter.pk, actor="bob", category="data", note="OPS-1")
    workflow.remediate(letter.pk, actor="bob", evidence_note="OPS-1")
    assert workflow.validate(letter.pk, actor="bob", override_reason=override_reason).ok


@pytest.mark.parametrize("is_restart", [False, True])
def test_batch_keeps_validations_an_operator_overruled(
    fail: Fail, look: Look, work: Work, silent_model: None, is_restart: bool
) -> None:
    letter = fail()
    _overruled(letter, "the vendor answers real calls")
    batch = _drafted([letter], is_restart=is_restart)
    batches.submit(batch.pk, actor="ann")
    batches.approve(batch.pk, actor="carol")
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert _outcomes(batch) == ["succeeded"]
    letter.refresh_from_db()
    assert (letter.override_reason, letter.validated_by) == ("the vendor answers real calls", "bob")
    assert not letter.events.filter(action="not_validated").exists()


def test_overruled_letter_requires_batch_approval(fail: Fail, silent_model: None) -> None:
    letter, other, third = fail("1"), fail("2"), fail("3")
    batch = _drafted([letter, other, third])
    assert not batches.needs_approval(batch)
    _overruled(letter, "the vendor answers real calls")
    _overruled(other, "the vendor answers real calls")
    prepared.rows(
        "UPDATE dead_letters SET validated_at = now() - interval '61 minutes' WHERE id = %(id)s",
        {"id": other.pk},
    )
    assert batches.needs_approval(batch)
    assert batches.submit(batch.pk, actor="ann").message == "submitted: another person must approve it"
    text = "Submitted by ann: 3 dead letters, 1 of them with failed checks overridden by hand."
    assert OperatorAlert.objects.get(kind="batch_awaiting").text == text


def test_validation_overruled_after_submission_is_repeated(
    fail: Fail, look: Look, silent_model: None
) -> None:
    letter = fail()
    batch = _drafted([letter])
    assert batches.submit(batch.pk, actor="ann").message == "started"
    _overruled(letter, "the vendor answers real calls")
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, _outcomes(batch)) == ("stopped", ["pending"])  # the silent model is asked


def test_validation_overruled_after_approval_is_repeated(fail: Fail, look: Look, silent_model: None) -> None:
    letter, other = fail("1"), fail("2")
    _overruled(letter, "the vendor answers real calls")
    batch = _drafted([letter, other])
    batches.submit(batch.pk, actor="ann")
    batches.approve(batch.pk, actor="carol")
    _overruled(other, "whatever")
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, _outcomes(batch)) == ("stopped", ["pending", "pending"])


def test_override_after_submission_is_replaced_by_the_batchs_validation(
    fail: Fail, look: Look, settings: Any, silent_model: None
) -> None:
    letter = fail()
    batch = _drafted([letter])
    batches.submit(batch.pk, actor="ann")
    _overruled(letter, "the vendor answers real calls")
    CHECKS.clear()
    look(batch.pk)
    letter.refresh_from_db()
    assert (letter.status, letter.override_reason) == ("replaying", "")
    assert letter.validated_by == f"ann (batch {batch.pk})"


def test_failed_check_without_override_stops_the_batch(fail: Fail, look: Look, silent_model: None) -> None:
    letter, other = fail("1"), fail("2")
    _overruled(letter, "the vendor answers real calls")
    batch = _drafted([letter, other])
    batches.submit(batch.pk, actor="ann")
    batches.approve(batch.pk, actor="carol")
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, _outcomes(batch)) == ("stopped", ["pending", "pending"])
    letter.refresh_from_db()
    assert (letter.status, letter.override_reason) == ("validated", "the vendor answers real calls")


@pytest.mark.parametrize(("restart", "is_repeated"), [(False, False), (True, True)])
def test_validation_for_another_start_stage_is_repeated(
    fail: Fail, look: Look, restart: bool, is_repeated: bool
) -> None:
    letter = fail()
    workflow.triage(letter.pk, actor="bob", category="data", note="OPS-1")
    workflow.remediate(letter.pk, actor="bob", evidence_note="OPS-1")
    assert workflow.validate_many([letter.pk], actor="bob", restart=restart).done == 1
    batch = _drafted([letter])
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    letter.refresh_from_db()
    assert letter.status == "replaying"
    assert (letter.validated_by == f"ann (batch {batch.pk})") == is_repeated


def test_stale_validation_is_repeated_by_a_batch(fail: Fail, look: Look) -> None:
    letter = fail()
    workflow.triage(letter.pk, actor="bob", category="data", note="OPS-1")
    workflow.remediate(letter.pk, actor="bob", evidence_note="OPS-1")
    assert workflow.validate_many([letter.pk], actor="bob").done == 1
    prepared.rows("UPDATE dead_letters SET validated_at = now() - interval '61 minutes'")
    batch = _drafted([letter])
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    letter.refresh_from_db()
    assert (letter.status, letter.validated_by) == ("replaying", f"ann (batch {batch.pk})")


def test_batch_override_applies_to_every_letter(fail: Fail, look: Look, silent_model: None) -> None:
    letter = fail()
    _overruled(letter, "the vendor answers real calls")
    batch = _drafted([letter], override_reason="OPS-1: the probe is broken")
    batches.submit(batch.pk, actor="ann")
    batches.approve(batch.pk, actor="carol")
    look(batch.pk)
    letter.refresh_from_db()
    assert (letter.status, letter.override_reason) == ("replaying", "OPS-1: the probe is broken")


@pytest.mark.parametrize("by_hand", [True, False])
def test_batch_override_does_not_overrule_an_open_circuit(
    fail: Fail, look: Look, work: Work, settings: Any, by_hand: bool
) -> None:
    settings.LLM_PROVIDER = "openai"
    CHECKS.clear()
    letter = fail()
    create("llm:openai")
    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now()")
    if by_hand:
        _overruled(letter, "the vendor answers real calls")
    batch = _drafted([letter], override_reason="" if by_hand else "OPS-1: it is over")
    assert batches.dry_run(batch.pk)["verdicts"] == {"circuit_open": 1}
    batches.submit(batch.pk, actor="ann")
    assert batches.approve(batch.pk, actor="carol").ok
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, batch.status_reason) == ("stopped", "the circuit of llm:openai is open")
    assert _outcomes(batch) == ["pending"]
    assert not letter.events.filter(action__in=("queued", "unqueued")).exists()
    prepared.rows("DELETE FROM circuits")
    batches.resume(batch.pk, actor="ann")
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert _outcomes(batch) == ["succeeded"]
