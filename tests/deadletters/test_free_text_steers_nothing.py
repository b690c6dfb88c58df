"""Free text in notes, reasons and evidence changes no state: only operators' steps do."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import models, transaction
from django.utils import timezone
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from criticizer.resilience.failures import ErrorClass
from deadletters import batches, groups, workflow
from deadletters.edits import edit_requests
from deadletters.models import DeadLetter, DeadLetterEvent, LetterEdit
from deadletters.retention import policy
from deadletters.states import EventSource, LetterStatus
from reviews.models import JobEvent
from reviews.replay import delivery_resolution
from tests import factories, skips
from tests.deadletters.conftest import Fail, Look, Work
from tests.deadletters.test_edit_requests import ask, make_letter

pytestmark = pytest.mark.django_db
EXAMPLES = 8 if skips.is_all() else 2  # and each of STEERING, in `make test` every third
NEUTRAL = "OPS-1: a plain sentence"
# Texts that code once looked for, and texts that it writes itself.
STEERING = (
    "deliveries decided: the recipient has it",
    "the circuit of llm:openai is forced open",
    "circuit llm:openai",
    "job",
    "criticizer",
    "it was changed after you opened it: reload and try again",
    "dead_letters_one_open_per_stage",
)
TYPED = st.one_of(
    st.sampled_from(STEERING).flatmap(lambda text: st.text().map(lambda more: text + more)),
    st.text(min_size=3),
).filter(lambda text: "\0" not in text and sum(map(str.isalnum, text)) >= 3)

_TEXTS = {"evidence_link", "title", "path", "dedup_key", "status_reason", "reason", "file", "name"}

Steps = Callable[[str], object]


def _value(value: Any) -> Any:
    """Return what a row says without the texts in its JSON."""
    if isinstance(value, dict):
        return sorted(value)
    if isinstance(value, list):
        return [(one.get("kind"), one["ok"]) if isinstance(one, dict) else bool(one) for one in value]
    if isinstance(value, str):
        return re.sub(r"\d+", "0", value)  # numbers of rows, which sequences never give twice
    return value


def _state() -> list[tuple[Any, ...]]:
    """Return every row of the apps that work on dead letters, without free text.

    That leaves statuses, names and numbers.
    """
    found: list[tuple[Any, ...]] = []
    for label in ("deadletters", "reviews", "notifications"):
        for model in apps.get_app_config(label).get_models():
            names = [
                field.attname
                for field in model._meta.concrete_fields
                if not field.primary_key
                and not isinstance(field, models.TextField | models.DateTimeField | models.UUIDField)
                and not isinstance(field, models.ForeignKey | models.BigIntegerField)
                and field.attname not in _TEXTS
            ]
            rows = model._base_manager.order_by("pk").values(*names) if names else ()
            found += [(model.__name__, *((name, _value(row[name])) for name in names)) for row in rows]
    return found


def _after(steps: Steps, text: str) -> list[tuple[Any, ...]]:
    """Return the state after some steps with a text; the steps are taken back."""
    with transaction.atomic():
        steps(text)
        found = _state()
        transaction.set_rollback(True)
    return found


def _assert_steers_nothing(steps: Steps) -> None:
    expected = _after(steps, NEUTRAL)
    assert _after(steps, NEUTRAL) == expected

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(text=TYPED)
    def check(text: str) -> None:
        assert _after(steps, text) == expected

    for text in STEERING[:: 1 if skips.is_all() else 3]:
        check = example(text=text)(check)
    check()


def test_no_text_of_the_steps_from_triage_to_resolution_steers(fail: Fail, work: Work) -> None:
    letter = fail()
    other = fail("2")

    def steps(text: str) -> None:
        workflow.triage(letter.pk, actor="ann", category="transient", note=text)
        workflow.remediate(letter.pk, actor="ann", evidence_note=text, checklist=[text])
        workflow.validate(letter.pk, actor="ann", override_reason=text)
        workflow.replay(letter.pk, actor="ann", reason=text, restart=True)
        work()
        workflow.verify(letter.pk, actor="ann")
        workflow.resolve(letter.pk, actor="ann", resolution=text)
        workflow.discard(other.pk, actor="ann", reason=text)
        workflow.reopen_many([other.pk], actor="ann", reason=text)
        policy.enforce(timezone.now())

    _assert_steers_nothing(steps)


def test_no_text_about_a_group_steers(fail: Fail) -> None:
    group_id = fail().group_id

    def steps(text: str) -> None:
        groups.acknowledge(group_id, actor="ann", reason=text)
        groups.annotate(group_id, actor="ann", note=f"{text}!")
        until = timezone.now() + timedelta(days=1)
        groups.snooze(group_id, actor="ann", until=until, reason=text)
        groups.snooze(group_id, actor="ann", until=None, reason=text)
        groups.resolve_group(group_id, actor="ann", reason=text)
        groups.ignore(group_id, actor="ann", reason=text)
        fail("2")
        groups.reopen(group_id, actor="ann", reason=text)

    _assert_steers_nothing(steps)


@pytest.mark.long
def test_no_text_about_a_batch_steers(fail: Fail, work: Work, look: Look) -> None:
    letters = [fail(str(number)) for number in range(2)]

    def steps(text: str) -> None:
        batch = batches.draft(
            filter={}, ids=[letter.pk for letter in letters], actor="ann", reason=text, evidence_note=text
        )
        batches.dry_run(batch.pk)
        batches.configure(batch.pk, actor="ann", override_reason=text, is_restart=True)
        batches.submit(batch.pk, actor="ann")
        batches.approve(batch.pk, actor="bob", reason=text)
        look(batch.pk)
        work()
        batches.pause(batch.pk, actor="ann", reason=text)
        batches.resume(batch.pk, actor="ann", reason=text)
        look(batch.pk)
        batches.cancel(batch.pk, actor="ann", reason=text)

    _assert_steers_nothing(steps)


@pytest.mark.long
def test_no_text_about_an_edit_steers(settings: Any) -> None:
    settings.DEADLETTER_EDIT = True
    withdrawn, refused, approved = make_letter(), make_letter(), make_letter()

    def steps(text: str) -> None:
        for letter, end in (
            (withdrawn, lambda edit: edit_requests.withdraw(edit, actor="ann", reason=text)),
            (refused, lambda edit: edit_requests.refuse(edit, actor="bob", reason=text)),
            (approved, lambda edit: edit_requests.approve(edit, actor="bob", reason=text)),
        ):
            assert ask(letter, reason=text).ok
            end(LetterEdit.objects.get(letter=letter).pk)
        edit_requests.refuse_stale()

    _assert_steers_nothing(steps)


@pytest.fixture
def decided() -> DeadLetter:
    """A letter of a delivery in doubt about which an operator decided two hours ago."""
    now = timezone.now()
    job = factories.ReviewJobFactory(status="dead_lettered", recipients=[])
    for stage, status in (("fetch", "succeeded"), ("llm", "succeeded"), ("notify", "failed")):
        factories.StageRunFactory(job=job, stage=stage, status=status)
    letter: DeadLetter = factories.DeadLetterFactory(
        job=job,
        stage="notify",
        error_class=ErrorClass.DELIVERY_UNCERTAIN,
        last_failure_at=now - timedelta(hours=3),
    )
    kind = JobEvent.Kind.DELIVERY_DECIDED
    JobEvent.objects.create(
        job=job, kind=kind, actor="bob", reason="it arrived", created_at=now - timedelta(hours=2)
    )
    return letter


def test_the_audit_leaves_a_letter_alone_whatever_an_operator_typed_since(decided: DeadLetter) -> None:
    def steps(text: str) -> None:
        workflow.triage(decided.pk, actor="ann", category="transient", note=text)
        workflow.remediate(decided.pk, actor="ann", evidence_note=text)
        DeadLetter.objects.update(triaged_at=timezone.now() - timedelta(hours=1))
        assert delivery_resolution.resume_decided_jobs() == 0
        decided.refresh_from_db()
        assert (decided.status, decided.triaged_by) == (LetterStatus.REMEDIATED, "ann")

    _assert_steers_nothing(steps)


@pytest.mark.long
def test_a_decision_remediates_a_letter_whatever_an_operator_typed_before(decided: DeadLetter) -> None:
    def steps(text: str) -> None:
        workflow.triage(decided.pk, actor="ann", category="transient", note=text)
        workflow.remediate(decided.pk, actor="ann", evidence_note=text)
        delivery_resolution.resume_job(decided.job_id, actor="bob", reason=text)
        decided.refresh_from_db()
        assert decided.remediated_by == "bob"
        last = DeadLetterEvent.objects.filter(letter=decided, action="remediated").latest("id")
        assert last.source == EventSource.DELIVERY_RESOLUTION

    _assert_steers_nothing(steps)
