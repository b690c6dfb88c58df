"""Copies of the content of artifacts: encrypted, or emptied at the end of their lifetime.

A verification finds those that are not.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import IntegrityError
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.db import prepared
from criticizer.models import SecurityEvent
from criticizer.resilience.failures import ErrorClass, PermanentFailure
from criticizer.security import expired_copies
from criticizer.security.encryption import key_id
from deadletters.models import DeadLetter, DeadLetterPayload, OperatorAlert
from notifications.delivery import snapshot
from notifications.models import Delivery, Digest
from notifications.models.suppressions import UnarchivedMail
from reviews.artifacts import integrity
from reviews.models import FindingRow, StageRun
from tests import factories
from tests.acceptance.test_scenarios import FOUND
from tests.acceptance.world import MAIL, World
from tests.fakes.llm import Reply, error
from tests.fakes.webhook import Behaviour
from tests.reviewers.test_answer import answer_of

MARK = "return 2;"  # of the code that the finding quotes


@pytest.fixture(autouse=True)
def _always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_copies, "EVERY_SECONDS", -1.0)


def everything_stored() -> str:
    """Return every column of every table as one text."""
    tables = prepared.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    return "\n".join(
        str(row) for table in tables for row in prepared.rows(f"SELECT * FROM {table['tablename']}")
    )


def reviewed(world: World) -> int:
    """Review a change with a finding and a failing delivery; return the job."""
    world.llm.script(Reply(answer=answer_of(FOUND)))
    job = world.job(world.change(), world.hook, MAIL)
    world.settle()
    assert world.status(job) == "succeeded"
    return job


def age(days: float) -> None:
    """Let everything be so many days old."""
    then = timezone.now() - timedelta(days=days)
    for model, column in (
        (Delivery, "created_at"),
        (Digest, "created_at"),
        (OperatorAlert, "created_at"),
        (UnarchivedMail, "created_at"),
        (DeadLetter, "last_failure_at"),
    ):
        model.objects.update(**{column: then})


def test_code_in_a_finding_is_sealed_and_everything_else_is_emptied_in_time(world: World) -> None:
    job = reviewed(world)
    assert [line[2] for line in FindingRow.objects.get(job_id=job).excerpt if MARK in line[2]]
    assert MARK in everything_stored()  # the frozen messages
    age(31)
    expired_copies.empty_expired()
    assert MARK not in everything_stored()
    # Pages and a further message still show it.
    assert [line[2] for line in FindingRow.objects.get(job_id=job).excerpt if MARK in line[2]]
    assert set(Delivery.objects.values_list("status", flat=True)) == {"sent"}


def test_nothing_is_emptied_before_its_time_and_the_rest_is_found_by_the_verification(world: World) -> None:
    UnarchivedMail.objects.create(token="11111111-1111-1111-1111-111111111111")
    world.llm.server.respond = lambda request: error(401, "no", "invalid_api_key")
    world.job(world.change(), world.hook)
    world.work()
    DeadLetterPayload.objects.update(last_stack="Traceback: return 2;")
    OperatorAlert.objects.create(dedup_key="k", kind="high", title="t", text=MARK)
    Digest.objects.create(recipient=MAIL, due_at=Now(), payload={"text": MARK})
    factories.DeliveryFactory(payload={"text": MARK})
    age(29)
    assert expired_copies.empty_expired() == 0
    assert integrity.find_overdue_copies() == 0
    age(31)
    tables = {"deliveries", "digests", "unarchived_mails", "dead_letter_payloads", "operator_alerts"}
    assert integrity.find_overdue_copies() == len(tables)
    assert integrity.find_overdue_copies() == 0  # once a day
    events = SecurityEvent.objects.filter(kind=SecurityEvent.Kind.ARTIFACT_FAULT)
    assert set(events.values_list("path", flat=True)) == tables
    assert OperatorAlert.objects.filter(kind="storage_fault").count() == len(tables)
    OperatorAlert.objects.filter(kind="storage_fault").delete()
    expired_copies.empty_expired()
    assert not dict(expired_copies.overdue(timedelta()))
    assert MARK not in everything_stored()


def test_one_run_is_bounded(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    monkeypatch.setattr(expired_copies, "BATCH", 2)
    monkeypatch.setattr(expired_copies, "BATCHES", 2)
    factories.DeliveryFactory.create_batch(5, payload={"text": MARK})
    age(31)
    assert [expired_copies.empty_expired() for _ in range(3)] == [4, 1, 0]


def test_a_message_whose_time_is_over_is_made_again_or_refused_and_never_sent_empty(world: World) -> None:
    world.receiver.script(Behaviour(status=410))
    world.llm.script(Reply(answer=answer_of(FOUND)))
    job = world.job(world.change(), world.hook)
    world.settle()
    assert world.status(job) == "dead_lettered"
    age(31)
    expired_copies.empty_expired()
    row = Delivery.objects.get(job_id=job)
    with pytest.raises(PermanentFailure, match="deleted at the end of its time") as caught:
        snapshot.thaw(row)
    assert caught.value.error_class is ErrorClass.POLICY_REJECTED
    world.replay(job)
    world.settle()
    # Made again from the findings: the same bytes.
    assert world.status(job) == "succeeded"
    assert len(world.receiver.processed) == 1


def test_finished_parts_are_gone_when_their_stage_has_ended(world: World) -> None:
    world.llm.server.respond = lambda request: error(401, "no", "invalid_api_key")
    job = world.job(world.change(), world.hook)
    world.work()
    run = world.stage(job, "llm")
    assert run.status == "failed"
    assert run.progress == {}
    with pytest.raises(IntegrityError, match="stage_runs_ended_without_progress"):
        StageRun.objects.filter(pk=run.pk).update(progress={"part": MARK})


def test_excerpts_of_an_older_version_are_sealed_and_until_then_the_verification_fails(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode()]
    empty, *others = factories.FindingRowFactory.create_batch(4)
    prepared.rows(
        "UPDATE findings SET excerpt = CASE id WHEN %(empty)s THEN '[]' ELSE %(text)s END",
        {"empty": empty.pk, "text": f'[[2, "+", "{MARK}"]]'},
    )
    with pytest.raises(CommandError, match="4 findings with code in plain text"):
        call_command("verify_artifacts")
    assert SecurityEvent.objects.get(path="findings").context["rows"] == 4
    monkeypatch.setattr(integrity, "SEALED_AT_ONCE", 3)
    integrity.verify_round()
    assert integrity.find_unsealed() == 1
    integrity.verify_round()
    call_command("verify_artifacts")
    assert MARK not in everything_stored()
    for finding in (empty, *others):
        finding.refresh_from_db()
    assert [finding.excerpt for finding in (empty, *others)] == [[], *([[[2, "+", MARK]]] * 3)]


def test_excerpts_are_rotated_with_the_artifacts(db: None, settings: Any) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ARTIFACT_KEYS = [old]
    finding = factories.FindingRowFactory(excerpt=[[1, "+", MARK]])
    plain = factories.FindingRowFactory(excerpt=[])
    prepared.rows(
        "UPDATE findings SET excerpt = %(text)s WHERE id = %(id)s",
        {"id": plain.pk, "text": '[[2, "+", "never sealed"]]'},
    )
    settings.ARTIFACT_KEYS = [new, old]
    call_command("rotate_artifact_keys")
    settings.ARTIFACT_KEYS = [new]
    finding.refresh_from_db()
    plain.refresh_from_db()
    assert finding.excerpt == [[1, "+", MARK]]
    assert plain.excerpt == [[2, "+", "never sealed"]]
    stored = prepared.rows("SELECT excerpt FROM findings")
    assert all(row["excerpt"].startswith(key_id(new)) for row in stored)
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode()]
    finding.refresh_from_db()
    assert finding.excerpt == []  # a page without it is better than none
