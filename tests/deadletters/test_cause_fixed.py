"""The one button for a fixed cause: it records every step and resolves what is verified."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from deadletters import batches, groups, workflow
from deadletters.batches import closing
from deadletters.batches import worker as batch_runs
from deadletters.models import DeadLetter, DeadLetterGroup, ReplayBatch
from deadletters.states import BatchStatus, LetterStatus
from deadletters.types import Check, CheckKind, Failed
from notifications.models import Delivery, DeliveryAttempt
from reviews.models import JobEvent, ReviewJob
from reviews.replay.adapter import JobRecovery
from reviews.states import JobStatus
from reviews.web.outcomes import outcomes
from tests import factories, scripted
from tests.admin.test_letters import messages_of
from tests.deadletters.conftest import Fail, Look, Work, denied
from tests.deadletters.test_batches import _run

pytestmark = pytest.mark.django_db
STEPS = ["created", "triaged", "remediated", "validated", "queued", "replayed", "succeeded", "verified"]


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


def press(client: Client, group_id: int, text: str = "OPS-7: the key was rotated") -> Any:
    return client.post(
        f"/admin/deadletters/deadlettergroup/{group_id}/fixed/", {"evidence": text}, follow=True
    )


def batch_page(client: Client, batch: ReplayBatch) -> str:
    return client.get(f"/admin/deadletters/replaybatch/{batch.pk}/change/").content.decode()


def test_one_text_takes_all_letters_of_a_group_through_every_step_to_resolved(
    ann: Client, fail: Fail, look: Look, work: Work
) -> None:
    letters = [fail(str(number)) for number in range(4)]
    group_id = letters[0].group_id
    page = ann.get(f"/admin/deadletters/deadlettergroup/{group_id}/change/").content.decode()
    assert "The cause is fixed: replay 4" in page
    assert messages_of(press(ann, group_id)) == []  # it would stay on the page, whatever happens
    batch = ReplayBatch.objects.get()
    assert "batch-outcome" not in batch_page(ann, batch)
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    for letter in DeadLetter.objects.all():
        assert (letter.status, letter.resolution) == (LetterStatus.RESOLVED, "OPS-7: the key was rotated")
        assert [event.action for event in letter.events.all()] == [*STEPS, "resolved"]
        actors = set(letter.events.exclude(actor="criticizer").values_list("actor", flat=True))
        assert actors == {f"ann (batch {batch.pk})", f"batch {batch.pk}"}
    group = DeadLetterGroup.objects.get()
    assert (group.status, group.open_count) == ("resolved", 0)
    assert group.events.latest("id").reason == "OPS-7: the key was rotated"
    page = batch_page(ann, batch)
    assert "<strong>4 resolved.</strong>" in page
    assert re.search(rf'deadlettergroup/{group_id}/change/">AUTH_DENIED in stage llm</a> is resolved\.', page)
    assert f'href="/reviews/{letters[0].job_id}/"' in page
    assert re.findall("Afterwards|>Verdict<|<dt>Reason", page) == []


def test_a_letter_that_fails_again_stays_open_and_so_does_its_group(
    ann: Client, fail: Fail, look: Look, work: Work
) -> None:
    letters = [fail(str(number)) for number in range(2)]
    scripted.SCRIPT["llm"].extend([None, denied()])
    press(ann, letters[0].group_id)
    batch = _run(ReplayBatch.objects.get(), look, work)
    assert sorted(DeadLetter.objects.values_list("status", flat=True)) == ["new", "resolved"]
    assert (DeadLetterGroup.objects.get().status, batch.status) == ("open", BatchStatus.FINISHED)
    page = batch_page(ann, batch)
    assert "<strong>1 resolved, 1 failed again.</strong>" in page
    assert "</a> has 1 open dead letter." in page
    assert "Remove that cause and replay." in page
    assert '<span class="state" data-state="partial">Finished</span>' in page  # no green tick
    assert "Canary size" not in page  # both were replayed first


@pytest.mark.parametrize("error_class", ["INTERNAL_BUG", "SCHEMA_INVALID"])
def test_data_and_defects_keep_their_six_steps(ann: Client, error_class: str) -> None:
    letter = factories.DeadLetterFactory(error_class=error_class)
    page = ann.get(f"/admin/deadletters/deadlettergroup/{letter.group_id}/change/").content.decode()
    assert "The cause is fixed" not in page
    assert "Nothing was changed" in messages_of(press(ann, letter.group_id))[0]
    assert not ReplayBatch.objects.exists()


def test_a_letter_triaged_as_a_defect_is_left_out(ann: Client, fail: Fail) -> None:
    plain, defect = fail("1"), fail("2")
    workflow.triage(defect.pk, actor="ann", category="code_defect")
    press(ann, plain.group_id)
    assert [item.letter_id for item in ReplayBatch.objects.get().items.all()] == [plain.pk]


def test_many_letters_wait_for_a_second_person(ann: Client, fail: Fail, settings: Any) -> None:
    settings.REPLAY_APPROVAL_ABOVE = 1
    letters = [fail(str(number)) for number in range(2)]
    text = messages_of(press(ann, letters[0].group_id))
    assert text == ["Submitted: another person must approve it."]
    batch = ReplayBatch.objects.get()
    assert batch.status == BatchStatus.AWAITING
    assert not batches.approve(batch.pk, actor="ann").ok


def test_without_a_text_or_the_permission_nothing_starts(ann: Client, fail: Fail) -> None:
    letter = fail("1")
    answer = press(ann, letter.group_id, " ")
    assert "Not saved. Say what was done, or link a ticket." in answer.content.decode()
    viewer = factories.staff_client("vic", "auditor")
    assert press(viewer, letter.group_id).status_code == 403
    assert not ReplayBatch.objects.exists()


def test_letters_verified_before_the_press_are_resolved_with_its_text(
    ann: Client, fail: Fail, look: Look, work: Work
) -> None:
    letter = fail("1")
    batch = batches.draft(filter={}, ids=[letter.pk], actor="ann", reason="OPS-1", evidence_note="OPS-1")
    batches.submit(batch.pk, actor="ann")
    _run(batch, look, work)
    letter.refresh_from_db()
    assert letter.is_verified
    assert batches.replay_fixed(letter.group_id, actor="bea", evidence="OPS-7").result.message == "1 resolved"
    assert DeadLetterGroup.objects.get().status == "resolved"


@pytest.mark.django_db(transaction=True)
def test_two_presses_at_once_replay_each_letter_once(fail: Fail) -> None:
    letter = fail("1")

    def once(name: str) -> bool:
        try:
            return batches.replay_fixed(letter.group_id, actor=name, evidence="OPS-7").result.ok
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(once, ["ann", "bea"])) == [False, True]
    assert ReplayBatch.objects.count() == 1


def test_an_ignored_group_stays_ignored(fail: Fail, look: Look, work: Work) -> None:
    letter = fail("1")
    groups.ignore(letter.group_id, actor="ann", reason="noise")
    batches.replay_fixed(letter.group_id, actor="ann", evidence="OPS-7")
    _run(ReplayBatch.objects.get(), look, work)
    assert DeadLetterGroup.objects.get().status == "ignored"
    assert DeadLetter.objects.get().status == LetterStatus.RESOLVED


def test_a_proof_that_comes_late_resolves_too_and_waiting_adds_no_lines(
    fail: Fail, look: Look, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = fail("1")
    batches.replay_fixed(letter.group_id, actor="ann", evidence="OPS-7: the key was rotated")
    waiting = Check(CheckKind.DELIVERIES, False, "1 not settled yet", is_waiting=True)

    def not_yet(self: JobRecovery, failed: Failed) -> list[Check]:
        return [waiting]

    with monkeypatch.context() as patched:
        patched.setattr(JobRecovery, "verify", not_yet)
        assert _run(ReplayBatch.objects.get(), look, work).status == BatchStatus.FINISHED
        lines = letter.events.count()
        batch_runs.ensure()
        assert letter.events.count() == lines
    batch_runs.ensure()
    letter.refresh_from_db()
    assert letter.status == LetterStatus.RESOLVED
    assert DeadLetterGroup.objects.get().status == "resolved"


@pytest.mark.long
def test_proofs_that_do_not_come_hold_up_no_other(
    fail: Fail, look: Look, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [fail(str(number)) for number in range(3)]
    proven = letters[1]
    batches.replay_fixed(proven.group_id, actor="ann", evidence="OPS-7: the key was rotated")
    waiting = Check(CheckKind.DELIVERIES, False, "1 not settled yet", is_waiting=True)
    verify = JobRecovery.verify
    has_come = False

    def looked_at(self: JobRecovery, failed: Failed) -> list[Check]:
        is_proven = has_come and failed.job_id == proven.job_id
        return list(verify(failed)) if is_proven else [waiting]

    monkeypatch.setattr(JobRecovery, "verify", looked_at)
    monkeypatch.setattr(closing, "LATE_AT_ONCE", 1)
    assert _run(ReplayBatch.objects.get(), look, work).status == BatchStatus.FINISHED
    has_come = True
    for _ in range(200):
        batch_runs.ensure()
        proven.refresh_from_db()
        if proven.status == LetterStatus.RESOLVED:
            break
    assert proven.status == LetterStatus.RESOLVED
    assert DeadLetter.objects.filter(status=LetterStatus.VERIFYING).count() == 2


def test_resolution_and_outcome_are_one_commit(
    fail: Fail, look: Look, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = fail("1")
    batches.replay_fixed(letter.group_id, actor="ann", evidence="OPS-7")
    batch = ReplayBatch.objects.get()
    look(batch.pk)
    work()

    def dies(*_: Any, **__: Any) -> None:
        raise RuntimeError("the worker dies")

    with monkeypatch.context() as patched:
        patched.setattr(closing.groups, "resolve_group", dies)
        with pytest.raises(RuntimeError):
            look(batch.pk)
    letter.refresh_from_db()
    assert (letter.status, batch.items.get().status) == (LetterStatus.VERIFYING, "replaying")
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert DeadLetterGroup.objects.get().status == "resolved"


# -- refused recipients ----------------------------------------------------------------------------


def refused_letter(fail: Fail, *more: str) -> DeadLetter:
    """Return the letter of a review that told bob and whose mail to bbo was refused."""
    failure = PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, "550 no such user")
    letter = fail("1", stage="notify", failure=failure)
    ReviewJob.objects.filter(pk=letter.job_id).update(
        recipients=["mail:bob@example.com", "mail:bbo@example.com"]
    )
    job = ReviewJob.objects.get(pk=letter.job_id)
    sent = factories.DeliveryFactory(job=job, recipient="mail:bob@example.com", status="sent")
    DeliveryAttempt.objects.create(delivery=sent, number=1, outcome="accepted")
    factories.DeliveryFactory(
        job=job, recipient="mail:bbo@example.com", status="failed", error_class="RECIPIENT_REJECTED"
    )
    for status in more:
        factories.DeliveryFactory(job=job, recipient=f"mail:{status}@example.com", status=status)
    return letter


def give_up(client: Client, letter: DeadLetter) -> Any:
    address = f"/admin/deadletters/deadletter/{letter.pk}/give-up/"
    form = {"reason": "OPS-9: he has left", "row_version": letter.row_version}
    return client.post(address, form, follow=True)


def test_giving_up_a_refused_recipient_ends_the_review_as_delivered(
    ann: Client, fail: Fail, look: Look, work: Work
) -> None:
    letter = refused_letter(fail)
    page = ann.get(f"/admin/deadletters/deadletter/{letter.pk}/change/").content.decode()
    assert "Give up this recipient…" in page
    assert (
        "mail:bbo@example.com"
        in ann.get(f"/admin/deadletters/deadletter/{letter.pk}/give-up/").content.decode()
    )
    assert "Recipient given up" in messages_of(give_up(ann, letter))[0]
    assert _run(ReplayBatch.objects.get(), look, work).status == BatchStatus.FINISHED
    letter.refresh_from_db()
    assert (letter.status, letter.job.status) == (LetterStatus.RESOLVED, JobStatus.SUCCEEDED)
    assert outcomes([letter.job])[letter.job_id].word == "Reviewed; 1 message not delivered"
    assert dict(Delivery.objects.values_list("recipient", "status")) == {
        "mail:bob@example.com": "sent",
        "mail:bbo@example.com": "abandoned",
    }
    last = DeliveryAttempt.objects.get(delivery__recipient="mail:bbo@example.com")
    assert (last.outcome, last.detail) == ("abandoned", "recipient given up by ann: OPS-9: he has left")
    assert JobEvent.objects.get(kind=JobEvent.Kind.DELIVERY_DECIDED).actor == "ann"
    assert [event.action for event in letter.events.all()] == [*STEPS, "resolved"]


@pytest.mark.parametrize("status", ["uncertain", "failed", "pending", "cancelled"])
def test_a_recipient_is_not_given_up_while_another_message_is_at_fault(
    ann: Client, fail: Fail, status: str
) -> None:
    letter = refused_letter(fail, status)
    assert "Nothing was changed" in messages_of(give_up(ann, letter))[0]
    assert not Delivery.objects.filter(status="abandoned").exists()
    assert not ReplayBatch.objects.exists()


def test_other_failures_and_other_people_cannot_give_up_a_recipient(ann: Client, fail: Fail) -> None:
    letter = fail("2")
    page = ann.get(f"/admin/deadletters/deadletter/{letter.pk}/change/").content.decode()
    assert "Give up this recipient" not in page
    assert give_up(factories.staff_client("abe", "approver"), letter).status_code == 403
