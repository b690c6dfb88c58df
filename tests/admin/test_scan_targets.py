"""Scanned paths in the admin: operators edit them, each with a reason and a trace."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from reviews.audit.history import events_of
from reviews.models import Scan, ScanTarget
from tests import factories

pytestmark = pytest.mark.django_db
LIST = "/admin/reviews/scantarget/"
LINE = {"path": "//app/...", "every_hours": "24", "recipients": "", "reason": "DOC-7"}


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


def test_an_operator_adds_a_path_and_who_is_notified(ann: Client) -> None:
    ann.post(
        f"{LIST}add/", {**LINE, "recipients": "mail:Ann@Example.com\nwebhook:https://hooks.example.com/x"}
    )
    row = ScanTarget.objects.get()
    assert (row.path, row.folder, row.every_hours, row.next_at) == ("//app/...", "//app/", 24, None)
    assert row.recipients.split() == ["mail:Ann@example.com", "webhook:https://hooks.example.com/x"]


def test_a_path_of_an_unknown_repository_is_added_with_a_warning(ann: Client) -> None:
    shown = ann.post(f"{LIST}add/", LINE, follow=True).content.decode()
    assert "It cannot be scanned yet: no git repository is named app: add app=/path" in shown
    row = ScanTarget.objects.get()
    assert f'href="/scans/{row.pk}/"' in ann.get(f"{LIST}{row.pk}/change/").content.decode()


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "app"},
        {"path": "//app/*.md"},
        {"path": "-//app/..."},
        {"every_hours": "-1"},
        {"every_hours": "8761"},
        {"recipients": "ann"},
        {"reason": ""},
    ],
)
def test_what_cannot_be_scanned_is_refused(ann: Client, changes: dict[str, str]) -> None:
    answer = ann.post(f"{LIST}add/", {**LINE, **changes})
    assert "errorlist" in answer.content.decode()
    assert not ScanTarget.objects.exists()


def test_edits_are_recorded_and_what_the_schedule_writes_is_none(ann: Client) -> None:
    ann.post(f"{LIST}add/", LINE)
    row = ScanTarget.objects.get()
    ScanTarget.objects.update(next_at=timezone.now(), problem="no repository")
    assert events_of(ScanTarget).objects.count() == 1
    ann.post(f"{LIST}{row.pk}/change/", {**LINE, "every_hours": "1", "reason": "DOC-8"})
    row.refresh_from_db()
    assert (row.every_hours, row.next_at, row.problem) == (1, None, ""), "another interval counts from now"
    history = ann.get(f"{LIST}{row.pk}/history/").content.decode()
    for part in ("Added", "Changed", ">ann<", "every_hours: 24 \u2192 1"):
        assert part in history


def test_a_path_stays_once_it_is_added_as_its_readers_follow_from_it(ann: Client) -> None:
    row = factories.ScanTargetFactory(path="//secret/...", reason="DOC-7")
    assert "add another path instead" in ann.get(f"{LIST}add/").content.decode()
    assert 'name="path"' not in ann.get(f"{LIST}{row.pk}/change/").content.decode()
    ann.post(f"{LIST}{row.pk}/change/", {**LINE, "every_hours": "2", "reason": "DOC-8"})
    row.refresh_from_db()
    assert (row.path, row.every_hours) == ("//secret/...", 2)
    with pytest.raises(DatabaseError, match="Cannot update rows"), transaction.atomic():
        ScanTarget.objects.filter(pk=row.pk).update(path="//app/...")


def test_the_question_before_a_deletion_counts_scans_and_loads_none(ann: Client) -> None:
    row = factories.ScanTargetFactory()
    for number in range(2):
        job = factories.ReviewJobFactory(changelist_id=str(number), kind="scan")
        Scan.objects.create(job=job, target=row)
    with CaptureQueriesContext(connection) as queries:
        question = ann.get(f"{LIST}{row.pk}/delete/").content.decode()
    assert "Its scans are deleted too: 2 scans." in question
    assert not [query["sql"] for query in queries if "scan_documents" in query["sql"]]
    ann.post(f"{LIST}{row.pk}/delete/", {"post": "yes", "reason": "its documents moved"})
    assert not Scan.objects.exists()


def test_a_deletion_needs_a_reason(ann: Client) -> None:
    row = factories.ScanTargetFactory()
    question = ann.get(f"{LIST}{row.pk}/delete/").content.decode()
    for part in (row.path, "Stop scanning", 'value="Delete the scanned path"'):
        assert part in question
    ann.post(f"{LIST}{row.pk}/delete/", {"post": "yes"})
    assert ScanTarget.objects.exists()
    ann.post(f"{LIST}{row.pk}/delete/", {"post": "yes", "reason": "its documents moved"})
    assert not ScanTarget.objects.exists()
    assert "its documents moved" in ann.get("/admin/reviews/scantargetevent/").content.decode()
