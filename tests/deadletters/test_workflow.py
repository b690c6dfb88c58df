"""The steps of the workflow: taken in order, refused otherwise, recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from criticizer.resilience.circuit_breaker import create
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from criticizer.resilience.health_checks import CHECKS
from deadletters import groups, transitions, workflow
from deadletters.categories import checklist, suggested_category
from deadletters.models import DeadLetter, OperatorAlert
from deadletters.ports import recovery
from deadletters.retention import policy
from deadletters.states import Category, LetterAction, LetterStatus
from notifications.states import DeliveryStatus
from reviews import pipeline
from reviews.models import Artifact, JobEvent, ReviewJob
from reviews.states import JobStatus
from tests import factories, scripted
from tests.deadletters.conftest import Fail, Work, denied
from tests.letters import walk, walk_and_replay

pytestmark = pytest.mark.django_db


def _actions(letter: DeadLetter) -> list[str]:
    return [event.action for event in letter.events.order_by("id")]


STEPS: dict[str, Any] = {
    "triage": lambda pk: workflow.triage(pk, actor="ann", category="data"),
    "remediate": lambda pk: workflow.remediate(pk, actor="ann", evidence_note="OPS-1"),
    "validate": lambda pk: workflow.validate(pk, actor="ann"),
    "replay": lambda pk: workflow.replay(pk, actor="ann", reason="OPS-1"),
    "verify": lambda pk: workflow.verify(pk, actor="ann"),
    "resolve": lambda pk: workflow.resolve(pk, actor="ann", resolution="OPS-1"),
    "discard": lambda pk: workflow.discard(pk, actor="ann", reason="OPS-1"),
}
_L = LetterStatus
_BEFORE = {_L.NEW, _L.TRIAGED, _L.REMEDIATED, _L.VALIDATED}
ALLOWED = {
    "triage": _BEFORE,
    "remediate": _BEFORE - {_L.NEW},
    "validate": {_L.REMEDIATED, _L.VALIDATED},
    "replay": {_L.VALIDATED},
    "verify": {_L.VERIFYING},
    "resolve": {_L.VERIFYING},
    "discard": _BEFORE | {_L.VERIFYING},
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("status", list(LetterStatus))
def test_step_in_the_wrong_state_is_refused_and_recorded(step: str, status: LetterStatus) -> None:
    if status in ALLOWED[step]:
        return
    letter = factories.DeadLetterFactory(status=status)
    result = STEPS[step](letter.pk)
    assert not result.ok
    assert status.label.lower() in result.message
    assert DeadLetter.objects.get(pk=letter.pk).status == status
    assert _actions(letter) == ["refused"]


SETS: dict[str, Any] = {
    "triage": lambda ids: workflow.triage_many(ids, actor="ann"),
    "remediate": lambda ids: workflow.remediate_many(ids, actor="ann", evidence_note="OPS-1"),
    "validate": lambda ids: workflow.validate_many(ids, actor="ann"),
    "verify": lambda ids: workflow.verify_many(ids, actor="ann"),
    "resolve": lambda ids: workflow.resolve_many(ids, actor="ann", resolution="OPS-1"),
    "discard": lambda ids: workflow.discard_many(ids, actor="ann", reason="OPS-1"),
    "reopen": lambda ids: workflow.reopen_many(ids, actor="ann", reason="OPS-1"),
}


@pytest.mark.parametrize(
    ("step", "status", "why"),
    [
        ("triage", _L.REMEDIATED, "it is already remediated"),
        ("remediate", _L.NEW, "it is new: triage it first"),
        ("validate", _L.TRIAGED, "it is triaged: remediate it first"),
        ("validate", _L.REPLAYING, "it is already replaying"),
        ("verify", _L.VALIDATED, "it is validated: replay it first"),
        ("verify", _L.REPLAY_PENDING, "it is waiting for its replay"),
        ("resolve", _L.REMEDIATED, "it is remediated: validate it first"),
        ("resolve", _L.RESOLVED, "it is already resolved"),
        ("discard", _L.REPLAYING, "it is already replaying"),
        ("discard", _L.DISCARDED, "it is already discarded"),
        ("reopen", _L.RESOLVED, "it is resolved, not discarded"),
    ],
)
def test_large_sets_count_refusals_by_state(step: str, status: LetterStatus, why: str) -> None:
    letters = [factories.DeadLetterFactory(status=status) for _ in range(4)]
    for number, letter in enumerate(letters):
        factories.DeadLetterEventFactory(letter=letter, actor=f"bob{number}")
    tally = SETS[step]([letter.pk for letter in letters])
    assert (tally.done, tally.skipped) == (0, {why: 4})


def test_small_sets_name_the_last_actor_in_one_query() -> None:
    letters = [factories.DeadLetterFactory() for _ in range(3)]
    for letter, actor in zip(letters, ("bob", "carol", "dora"), strict=True):
        workflow.discard(letter.pk, actor=actor, reason="OPS-1")
        transitions.note(letter.pk, LetterAction.REFUSED, "eve", "too late")
    with CaptureQueriesContext(connection) as asked:
        tally = workflow.discard_many([letter.pk for letter in letters], actor="ann", reason="OPS-1")
    for letter, actor in zip(letters, ("bob", "carol", "dora"), strict=True):
        assert tally.skipped_ids[letter.pk].startswith(f"it is already discarded (discarded by {actor} at 20")
    looks = [query for query in asked.captured_queries if 'FROM "dead_letter_events"' in query["sql"]]
    assert len(looks) == 1


def test_letter_changed_during_checks_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    letter = factories.DeadLetterFactory(status=LetterStatus.REMEDIATED)
    port = recovery()
    answers = type(port).answers

    def slow(self: Any, failed: Any, *, restart: bool | None) -> Any:
        workflow.remediate(letter.pk, actor="bob", evidence_note="OPS-2")
        return answers(self, failed, restart=restart)

    monkeypatch.setattr(type(port), "answers", slow)
    tally = workflow.validate_many([letter.pk], actor="ann")
    assert tally.skipped_ids == {letter.pk: "it was changed while it was checked"}


def test_letter_from_creation_to_resolution(fail: Fail, work: Work) -> None:
    letter = fail()
    assert workflow.triage(letter.pk, actor="ann", category="auth_config", note="expired").ok
    done = checklist("auth_config")[:1]
    assert workflow.remediate(
        letter.pk, actor="ann", evidence_link="https://ops.example.com/1", checklist=done
    ).ok
    validation = workflow.validate(letter.pk, actor="ann")
    assert validation.ok, validation
    assert {"job", "version", "artifact", "deliveries"} <= {check.name for check in validation.checks}
    scripted.CALLS.clear()
    assert workflow.replay(letter.pk, actor="ann", reason="key rotated").ok
    work()
    assert [call[0] for call in scripted.CALLS] == ["llm", "notify"]
    letter.refresh_from_db()
    assert letter.status == LetterStatus.VERIFYING
    assert not workflow.resolve(letter.pk, actor="ann", resolution="done").ok  # not verified yet
    assert workflow.verify(letter.pk, actor="ann").ok
    assert not workflow.resolve(letter.pk, actor="ann", resolution=" x ").ok
    assert workflow.resolve(letter.pk, actor="bob", resolution="the key was rotated").ok
    letter.refresh_from_db()
    assert (letter.status, letter.resolved_by, letter.closed_at is not None) == ("resolved", "bob", True)
    assert (letter.evidence_link, letter.checklist) == ("https://ops.example.com/1", list(done))
    assert _actions(letter) == [
        "created", "triaged", "remediated", "validated", "replayed", "succeeded", "refused", "verified",
        "refused", "resolved",
    ]  # fmt: skip


def test_triaging_again_clears_later_steps(fail: Fail) -> None:
    letter = fail()
    walk(letter.pk)
    assert workflow.triage(letter.pk, actor="bob", category="data").ok
    letter.refresh_from_db()
    assert (letter.status, letter.category, letter.triaged_by) == ("triaged", "data", "bob")
    assert (letter.evidence_note, letter.validated_at, letter.validation_ok) == ("", None, None)


@pytest.mark.parametrize("given", [{}, {"evidence_note": " x "}, {"evidence_link": "javascript:alert(1)"}])
def test_remediation_needs_evidence(fail: Fail, given: dict[str, str]) -> None:
    letter = fail()
    workflow.triage(letter.pk, actor="ann", category="data")
    assert not workflow.remediate(letter.pk, actor="ann", **given).ok


def test_an_unknown_category_is_refused(fail: Fail) -> None:
    assert not workflow.triage(fail().pk, actor="ann", category="weather").ok


def test_step_on_a_stale_version_is_refused(fail: Fail) -> None:
    letter = fail()
    assert workflow.triage(letter.pk, actor="bob", category="data", row_version=letter.row_version).ok
    late = workflow.triage(letter.pk, actor="ann", category="transient", row_version=letter.row_version)
    assert not late.ok
    assert "it was changed by bob" in late.message


# -- validation --------------------------------------------------------------------------------


def _remediated(fail: Fail, **more: Any) -> DeadLetter:
    letter = fail(**more)
    workflow.triage(letter.pk, actor="ann", category="transient")
    workflow.remediate(letter.pk, actor="ann", evidence_note="OPS-1")
    return letter


def test_an_open_circuit_fails_the_validation_unless_it_is_overruled(fail: Fail, settings: Any) -> None:
    letter = _remediated(fail)
    settings.LLM_PROVIDER = "openai"
    CHECKS.clear()
    create("llm:openai")
    from criticizer.db import prepared

    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now() + interval '1 hour'")
    failed = workflow.validate(letter.pk, actor="ann")
    assert not failed.ok
    assert [check.name for check in failed.failed] == ["circuit llm:openai"]
    letter.refresh_from_db()
    assert (letter.status, letter.validation_ok) == ("remediated", False)
    assert not workflow.validate(letter.pk, actor="ann", override_reason="x").ok  # says nothing
    assert workflow.validate(letter.pk, actor="ann", override_reason="the vendor says it is back").ok
    letter.refresh_from_db()
    assert (letter.status, letter.override_reason) == ("validated", "the vendor says it is back")
    assert workflow.replay(letter.pk, actor="ann", reason="OPS-1").ok


def test_a_newer_version_cannot_be_overruled(fail: Fail) -> None:
    letter = _remediated(fail)
    factories.ReviewJobFactory(changelist_id="12345", review_version=2, status=JobStatus.SUCCEEDED)
    failed = workflow.validate(letter.pk, actor="ann", override_reason="all the same")
    assert not failed.ok
    assert "newer version exists: 2" in failed.message


def test_uncertain_delivery_must_be_decided_first(fail: Fail) -> None:
    letter = _remediated(fail, stage="notify", failure=denied())
    doubt = factories.DeliveryFactory(job=letter.job, status=DeliveryStatus.UNCERTAIN)
    factories.DeliveryFactory(job=letter.job, status=DeliveryStatus.SENT)
    failed = workflow.validate(letter.pk, actor="ann", override_reason="all the same")
    assert not failed.ok
    assert "decide about them first" in failed.message
    type(doubt).objects.filter(pk=doubt.pk).update(status=DeliveryStatus.PENDING)
    passed = workflow.validate(letter.pk, actor="ann")
    assert passed.ok
    assert "1 delivery already made, not repeated" in next(
        check.message for check in passed.checks if check.name == "deliveries"
    )


def test_without_its_artifact_only_a_restart_is_possible(fail: Fail, work: Work) -> None:
    letter = _remediated(fail)
    Artifact.objects.update(deleted_at=timezone.now())
    # It can be fetched again, which nobody can vouch for here: no source is configured.
    assert not workflow.validate(letter.pk, actor="ann").ok
    assert workflow.validate(letter.pk, actor="ann", override_reason="it is mended").ok
    refused = workflow.replay(letter.pk, actor="ann", reason="OPS-1")
    assert not refused.ok
    assert "restart from the first stage" in refused.message
    scripted.CALLS.clear()
    assert workflow.replay(letter.pk, actor="ann", reason="OPS-1", restart=True).ok
    work()
    assert [call[0] for call in scripted.CALLS] == ["fetch", "llm", "notify"]


def test_a_dependency_that_does_not_answer_fails_the_validation(fail: Fail, settings: Any) -> None:
    letter = _remediated(fail)
    settings.LLM_PROVIDER = "openai"
    CHECKS["llm"] = silent
    failed = workflow.validate(letter.pk, actor="ann")
    assert [check.message for check in failed.failed] == ["llm:openai: the key is refused"]
    CHECKS["llm"] = answers
    assert workflow.validate(letter.pk, actor="ann").ok


def silent(name: str) -> None:
    raise PermanentFailure(ErrorClass.AUTH_DENIED, Component.REVIEWER, "the key is refused")


def answers(name: str) -> None:
    pass


def test_a_validation_is_stale_after_an_hour(fail: Fail) -> None:
    letter = fail()
    walk(letter.pk)
    DeadLetter.objects.update(validated_at=timezone.now() - timedelta(minutes=61))
    refused = workflow.replay(letter.pk, actor="ann", reason="OPS-1")
    assert refused.message == "the validation is older than 60 minutes: validate again"
    letter.refresh_from_db()
    assert letter.status == LetterStatus.REMEDIATED
    assert "stale" in _actions(letter)
    assert workflow.validate(letter.pk, actor="ann").ok
    assert workflow.replay(letter.pk, actor="ann", reason="OPS-1").ok


# -- failing again -----------------------------------------------------------------------------


def test_the_same_non_retryable_class_escalates_and_alerts_once_a_day(fail: Fail, work: Work) -> None:
    letters = [fail("1"), fail("2")]
    for letter in letters:
        scripted.SCRIPT["llm"].append(denied())
        assert walk_and_replay(letter.pk).ok
        work()
        letter.refresh_from_db()
        assert (letter.status, letter.failed_replay_count, letter.is_escalated) == ("new", 1, True)
        assert (letter.category, letter.evidence_note, letter.validated_at) == ("", "", None)
        assert _actions(letter)[-2:] == ["failed_again", "escalated"]
    assert OperatorAlert.objects.filter(kind="escalated").count() == 1


def test_another_class_joins_another_group_without_escalation(fail: Fail, work: Work) -> None:
    letter = fail()
    before = letter.group
    scripted.SCRIPT["llm"].append(PermanentFailure(ErrorClass.NOT_FOUND, Component.REVIEWER, "no such model"))
    walk_and_replay(letter.pk)
    work()
    letter.refresh_from_db()
    before.refresh_from_db()
    assert (letter.is_escalated, letter.failed_replay_count) == (False, 1)
    assert letter.group != before
    assert (letter.group.error_class, letter.group.open_count, before.open_count) == ("NOT_FOUND", 1, 0)
    assert not OperatorAlert.objects.filter(kind="escalated").exists()


def test_the_same_retryable_class_does_not_escalate(fail: Fail, work: Work, make_spent: Any) -> None:
    timeout = RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Component.REVIEWER, "slow")
    letter = make_spent(timeout)
    walk_and_replay(letter.pk)
    make_spent.again(timeout)
    letter.refresh_from_db()
    assert (letter.status, letter.failed_replay_count, letter.is_escalated) == ("new", 1, False)


@pytest.fixture
def make_spent(work: Work) -> Any:
    """Make a job use up its budget with one retryable failure."""
    from criticizer.db import prepared
    from reviews.intake import review_requests

    class Spent:
        def __call__(self, failure: RetryableFailure) -> DeadLetter:
            review_requests.request_review(review_requests.ReviewRequest("k", "7", 1))
            self.again(failure)
            letter = DeadLetter.objects.get()
            factories.stored_change(letter.job)
            return letter

        def again(self, failure: RetryableFailure) -> None:
            for _ in range(5):
                scripted.SCRIPT["llm"].append(failure)
                prepared.rows("UPDATE outbox_messages SET available_at = now()")
                work()

    return Spent()


def test_a_restart_that_fails_earlier_goes_on_as_that_stages_letter(fail: Fail, work: Work) -> None:
    letter = fail(stage="notify")
    scripted.SCRIPT["fetch"].append(PermanentFailure(ErrorClass.NOT_FOUND, Component.SOURCE, "gone"))
    assert walk_and_replay(letter.pk, restart=True).ok
    work()
    letter.refresh_from_db()
    assert (letter.status, letter.stage, letter.error_class) == ("new", "fetch", "NOT_FOUND")
    assert DeadLetter.objects.count() == 1


def test_a_letter_whose_job_failed_later_can_be_verified_for_its_own_stage(fail: Fail, work: Work) -> None:
    letter = fail()
    scripted.SCRIPT["notify"].append(
        PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, "gone")
    )
    walk_and_replay(letter.pk)
    work()
    letter.refresh_from_db()
    assert letter.status == LetterStatus.VERIFYING
    assert workflow.verify(letter.pk, actor="ann").ok
    assert workflow.resolve(letter.pk, actor="ann", resolution="the key was rotated").ok


# -- verification ------------------------------------------------------------------------------


def test_many_that_are_verified_say_which_were_escalated(fail: Fail, work: Work) -> None:
    letters = [fail(str(number), stage="notify", failure=denied()) for number in range(2)]
    for letter in letters:
        factories.DeliveryFactory(job=letter.job, status=DeliveryStatus.SENT)
        walk_and_replay(letter.pk)
        work()
    new = factories.DeadLetterFactory()
    tally = workflow.verify_many([new.pk, *(letter.pk for letter in letters)], actor="ann")
    assert (tally.done, tally.escalated, list(tally.skipped_ids)) == (0, 2, [new.pk])
    assert all(DeadLetter.objects.get(pk=letter.pk).is_escalated for letter in letters)


@pytest.mark.parametrize(
    ("declined", "says"),
    [
        (("ann", "bob"), "verified: the effect is there"),
        (("ann",), "the effect is missing: the review has recipients, and none was notified"),
        ((), "the effect is missing: the review has recipients, and none was notified"),
    ],
)
def test_recipient_who_declined_messages_needs_no_delivery(
    fail: Fail, work: Work, declined: tuple[str, ...], says: str
) -> None:
    letter = fail(stage="notify", failure=denied())
    ReviewJob.objects.update(recipients=["mail:ann@example.com", "mail:bob@example.com"])
    walk_and_replay(letter.pk)
    work()
    if declined:
        wishes = {f"mail:{name}@example.com": "muted" for name in declined}
        JobEvent.objects.create(
            job=letter.job, kind=JobEvent.Kind.NOT_TOLD, actor="criticizer", context={"recipients": wishes}
        )
    assert workflow.verify(letter.pk, actor="ann").message == says


# -- sets --------------------------------------------------------------------------------------


# -- taking a discard back --------------------------------------------------------------------


def _discarded(fail: Fail, **given: Any) -> DeadLetter:
    letter = fail(**given)
    assert workflow.triage(letter.pk, actor="ann", category="data").ok
    assert workflow.discard(letter.pk, actor="ann", reason="OPS-1: by mistake").ok
    return letter


def test_discarded_letter_can_be_reopened(fail: Fail, work: Work) -> None:
    letter = _discarded(fail)
    assert groups.resolve_group(letter.group_id, actor="ann", reason="it is over").ok
    assert workflow.reopen_many([letter.pk], actor="bob", reason="OPS-2: it was the wrong one").done == 1
    letter.refresh_from_db()
    assert (letter.status, letter.category, letter.closed_at) == ("new", "", None)
    last = letter.events.latest("pk")
    assert (last.action, last.actor, last.reason) == ("reopened", "bob", "OPS-2: it was the wrong one")
    group = letter.group
    assert (group.status, group.open_count) == ("open", 1)
    told = group.events.get(action="reopened")
    assert (told.actor, told.reason) == ("bob", "1 dead letter reopened: OPS-2: it was the wrong one")
    # It goes on as any new letter does.
    assert walk_and_replay(letter.pk).ok
    work()
    letter.refresh_from_db()
    assert letter.status == LetterStatus.VERIFYING


def test_reopen_requires_a_reason(fail: Fail) -> None:
    letter = _discarded(fail)
    with pytest.raises(ValueError, match="A reason is required"):
        workflow.reopen_many([letter.pk], actor="ann", reason="  ")


def test_old_reopened_letter_is_not_archived_at_once(fail: Fail) -> None:
    letter = _discarded(fail)
    long_ago = timezone.now() - timedelta(days=20)
    DeadLetter.objects.update(first_failure_at=long_ago, last_failure_at=long_ago)
    assert workflow.reopen_many([letter.pk], actor="ann", reason="OPS-1").done == 1
    assert policy.enforce(timezone.now()) == 0
    letter.refresh_from_db()
    assert letter.expires_at is not None
    assert letter.expires_at > timezone.now() + timedelta(days=6)


def _superseded(letter: DeadLetter) -> str:
    factories.ReviewJobFactory(changelist_id=letter.job.changelist_id, review_version=7, status="succeeded")
    return "newer version exists: 7"


def _cancelled(letter: DeadLetter) -> str:
    assert workflow.reopen_many([letter.pk], actor="ann", reason="OPS-1").done == 1
    assert walk_and_replay(letter.pk).ok
    assert pipeline.cancel(letter.job_id, "ann", "not needed")
    return "the job is cancelled, not dead-lettered"


def _open_already(letter: DeadLetter) -> str:
    other = factories.DeadLetterFactory(job=letter.job, stage=letter.stage, group=letter.group)
    return f"dead letter {other.pk} of the same job and stage is open"


def _failed_later(letter: DeadLetter) -> str:
    other = factories.DeadLetterFactory(job=letter.job, stage="notify")
    return f"its job failed later, in notify: see dead letter {other.pk}"


def _edited(letter: DeadLetter) -> str:
    transitions.note(letter.pk, LetterAction.EDITED, "bob", "recipients", {"edit": 1, "successor": 4711})
    return "its data was edited: it was replaced by dead letter 4711"


@pytest.mark.parametrize("happens", [_superseded, _cancelled, _open_already, _failed_later, _edited])
def test_superseded_letter_cannot_be_reopened(happens: Callable[[DeadLetter], str], fail: Fail) -> None:
    letter = _discarded(fail)
    assert workflow.why_not_reopened([letter.pk]) == {}
    why = happens(letter)
    assert workflow.why_not_reopened([letter.pk]) == {letter.pk: why}
    tally = workflow.reopen_many([letter.pk], actor="ann", reason="OPS-1")
    assert (tally.done, tally.skipped) == (0, {why: 1})
    letter.refresh_from_db()
    assert letter.status == LetterStatus.DISCARDED


def test_reopen_many_reports_why_others_are_skipped(fail: Fail) -> None:
    back = [_discarded(fail, changelist=str(number)) for number in (101, 102)]
    stays = _discarded(fail, changelist="103")
    why = _superseded(stays)
    opened = fail("104")
    assert groups.ignore(back[0].group_id, actor="ann", reason="not of interest").ok
    ids = [*(letter.pk for letter in back), stays.pk, opened.pk, 987_654]
    assert set(workflow.why_not_reopened(ids)) == {stays.pk, opened.pk}
    tally = workflow.reopen_many(ids, actor="ann", reason="OPS-2")
    assert tally.done_ids == [letter.pk for letter in back]
    assert tally.skipped_ids[stays.pk] == why
    assert tally.skipped_ids[opened.pk] == "it is new, not discarded"
    assert tally.skipped_ids[987_654] == "it no longer exists"
    group = back[0].group
    group.refresh_from_db()
    assert (group.open_count, group.status) == (3, "ignored")  # that one is an operator's word


def test_concurrent_failure_skips_only_its_own_letter(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constraint names the letter that failed after the survey; the others are reopened."""
    back, taken = _discarded(fail, changelist="101"), _discarded(fail, changelist="102")
    _open_already(taken)
    monkeypatch.setattr(sys.modules[workflow.reopen_many.__module__], "_reasons", lambda part: {})
    tally = workflow.reopen_many([back.pk, taken.pk], actor="ann", reason="OPS-2")
    assert tally.done_ids == [back.pk]
    assert tally.skipped_ids == {taken.pk: "another dead letter of its job and stage is open"}


def test_tallies_count_done_and_skipped_letters(fail: Fail, work: Work) -> None:
    letters = [fail(str(n)) for n in range(3)]
    closed = factories.DeadLetterFactory(status=LetterStatus.DISCARDED)
    ids = [letter.pk for letter in letters] + [closed.pk, 999_999]
    triaged = workflow.triage_many(ids, actor="ann")
    assert triaged.done == 3
    assert triaged.skipped == {"it is already discarded": 1, "it no longer exists": 1}
    assert set(DeadLetter.objects.filter(pk__in=ids[:3]).values_list("category", flat=True)) == {
        Category.AUTH_CONFIG
    }
    assert workflow.remediate_many(ids, actor="ann", evidence_note="OPS-1").done == 3
    assert workflow.validate_many(ids, actor="ann").done == 3
    for letter in letters:
        assert workflow.replay(letter.pk, actor="ann", reason="OPS-1").ok
        work()
    assert workflow.resolve_many(ids, actor="ann", resolution="done").done == 0
    assert workflow.verify_many(ids[:3], actor="ann").done == 3
    assert workflow.resolve_many(ids, actor="ann", resolution="done").done == 3
    assert letters[0].events.filter(action=LetterAction.RESOLVED, actor="ann").count() == 1


def test_many_letters_are_triaged_in_a_few_statements(django_assert_max_num_queries: Any) -> None:
    group = factories.DeadLetterGroupFactory()
    letters = [factories.DeadLetterFactory(group=group) for _ in range(20)]
    with django_assert_max_num_queries(9):
        workflow.triage_many([letter.pk for letter in letters], actor="ann", category="data")
    with django_assert_max_num_queries(9):
        assert workflow.discard_many([letter.pk for letter in letters], actor="ann", reason="old").done == 20
    group.refresh_from_db()
    assert group.open_count == 0


def test_every_class_suggests_a_category() -> None:
    assert {suggested_category(name) for name in ErrorClass} == set(Category)
    assert suggested_category("NO_SUCH_CLASS") == Category.CODE_DEFECT
    assert all(checklist(category) for category in Category)
    assert checklist("weather") == ()


def test_set_validation_leaves_the_allow_list_to_the_replay(fail: Fail) -> None:
    letter = fail()
    workflow.triage(letter.pk, actor="ann", category="data", note="OPS-1")
    workflow.remediate(letter.pk, actor="ann", evidence_note="OPS-1")
    assert workflow.validate_many([letter.pk], actor="ann").done == 1
    letter.refresh_from_db()
    (left,) = (check for check in letter.validation if check["is_left"])
    assert left["name"] == "allow-list"
    assert left["message"].startswith("not checked for a set of letters")
    response = factories.staff_client("ann", "operator").get(
        f"/admin/deadletters/deadletter/{letter.pk}/change/"
    )
    state = '<span class="state" data-state="check-unknown">Checked during the replay</span>'
    shown = f"{state}<span><strong>allow-list"
    assert shown in response.content.decode()
    assert workflow.validate(letter.pk, actor="ann").ok
    letter.refresh_from_db()
    assert not any(check["is_left"] for check in letter.validation)
