"""Verification: missing effects, pending effects, and how a letter leaves that state."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from deadletters import workflow
from deadletters.models import DeadLetter, OperatorAlert
from deadletters.retention import policy
from deadletters.states import LetterStatus
from notifications.states import UNSENT_DELIVERY, DeliveryStatus
from reviews.models import Artifact
from tests import factories, scripted
from tests.deadletters.conftest import Fail, Work, denied
from tests.letters import walk_and_replay

pytestmark = pytest.mark.django_db


def _told(kind: str = "not_verified") -> int:
    return OperatorAlert.objects.filter(kind=kind).count()


def _replayed(fail: Fail, work: Work, changelist: str = "1") -> DeadLetter:
    """Return a letter whose job succeeded after its replay."""
    letter = fail(changelist, stage="notify", failure=denied())
    assert walk_and_replay(letter.pk).ok
    work()
    letter.refresh_from_db()
    assert (letter.status, letter.job.status) == ("verifying", "succeeded")
    return letter


def _without_findings(fail: Fail, work: Work) -> DeadLetter:
    """Return a letter whose replay got past its stage, without its effect; the job failed later."""
    letter = fail()
    letter.job.coverage.all().delete()
    scripted.SCRIPT["notify"].append(
        PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, "gone")
    )
    assert walk_and_replay(letter.pk).ok
    work()
    Artifact.objects.update(deleted_at=timezone.now())  # nobody can say that the change had no files
    letter.refresh_from_db()
    assert (letter.status, letter.job.status) == ("verifying", "dead_lettered")
    return letter


def test_missing_effect_of_a_succeeded_job_waits_for_later_evidence(fail: Fail, work: Work) -> None:
    letter = _replayed(fail, work)
    delivery = factories.DeliveryFactory(job=letter.job, status=DeliveryStatus.SENT)
    for actor in ("batch 7", "ann"):
        checked = workflow.verify(letter.pk, actor=actor)
        assert checked.message == "the effect is missing: 0 of 1 delivery with their provider's evidence"
    letter.refresh_from_db()
    assert (letter.status, letter.is_escalated, letter.verified_at) == ("verifying", True, None)
    assert [check["name"] for check in letter.verification if not check["ok"]] == ["deliveries"]
    assert not workflow.resolve(letter.pk, actor="ann", resolution="it was told").ok
    assert _told() == 1  # of this round
    factories.DeliveryAttemptFactory(delivery=delivery, outcome="found", notification_id="<1@x>")
    assert workflow.verify(letter.pk, actor="ann").ok
    assert workflow.resolve(letter.pk, actor="ann", resolution="the audit found it").ok


@pytest.mark.parametrize("status", [DeliveryStatus.PENDING, DeliveryStatus.FAILED])
def test_verification_fails_again_when_the_effect_is_gone(
    fail: Fail, work: Work, status: DeliveryStatus
) -> None:
    letter = _replayed(fail, work)
    assert workflow.verify(letter.pk, actor="ann").ok
    factories.DeliveryFactory(job=letter.job, status=status)
    assert not workflow.verify(letter.pk, actor="ann").ok
    letter.refresh_from_db()
    assert (letter.status, letter.verified_at, letter.verified_by) == ("verifying", None, "")
    assert not workflow.resolve(letter.pk, actor="ann", resolution="it was told").ok


@pytest.mark.parametrize("status", UNSENT_DELIVERY)
def test_verification_waits_for_unsettled_deliveries(fail: Fail, work: Work, status: DeliveryStatus) -> None:
    letter = _replayed(fail, work)
    factories.DeliveryFactory(job=letter.job, status=status)
    checked = workflow.verify(letter.pk, actor="ann")
    words = "0 of 1 delivery with their provider's evidence, 1 not settled yet"
    assert (checked.ok, checked.message) == (False, f"not yet: {words}")
    letter.refresh_from_db()
    assert (letter.status, letter.is_escalated, _told()) == ("verifying", False, 0)
    factories.DeliveryFactory(job=letter.job, status=DeliveryStatus.FAILED)
    assert workflow.verify(letter.pk, actor="ann").message.startswith("the effect is missing: 0 of 2 deliv")
    assert _told() == 1


def test_missing_effect_of_a_dead_lettered_job_starts_over(fail: Fail, work: Work) -> None:
    letter = _without_findings(fail, work)
    long_ago = timezone.now() - timedelta(days=20)
    DeadLetter.objects.update(first_failure_at=long_ago, last_failure_at=long_ago)
    checked = workflow.verify(letter.pk, actor="ann")
    assert "neither findings nor coverage are stored" in checked.message
    letter.refresh_from_db()
    assert (letter.status, letter.category, letter.is_escalated, _told()) == ("new", "", True, 1)
    # Its failure is long past, and yet it stays: it is escalated.
    policy.enforce(timezone.now())
    letter.refresh_from_db()
    assert letter.expires_at is None


@pytest.mark.long
def test_missing_effect_alerts_again_after_another_replay(fail: Fail, work: Work) -> None:
    letter = _without_findings(fail, work)
    assert not workflow.verify(letter.pk, actor="ann").ok
    assert walk_and_replay(letter.pk, restart=True).ok
    work()
    assert not workflow.verify(letter.pk, actor="ann").ok
    letter.refresh_from_db()
    assert (letter.status, letter.job.status, _told()) == ("verifying", "succeeded", 2)


def test_unverified_letter_can_be_discarded(fail: Fail, work: Work) -> None:
    letters = [_replayed(fail, work, changelist) for changelist in ("1", "2")]
    first, second = (letter.pk for letter in letters)
    with pytest.raises(ValueError, match="A reason is required"):
        workflow.discard(first, actor="ann", reason=" ")
    assert workflow.discard(first, actor="ann", reason="OPS-1: told by hand").ok
    assert workflow.discard_many([second], actor="ann", reason="OPS-1: told by hand").done == 1
    for letter in letters:
        letter.refresh_from_db()
        assert (letter.status, letter.job.status) == (LetterStatus.DISCARDED, "succeeded")
    refused = workflow.reopen_many([first], actor="ann", reason="OPS-2")
    assert refused.skipped_ids == {first: "the job is succeeded, not dead-lettered"}
