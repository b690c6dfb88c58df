"""The event ledger and the polled sources in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from criticizer.observability import metrics
from reviews.intake import source_events
from reviews.intake.source_events import Event, Kind
from reviews.models import SourceEvent, SourcePosition
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann() -> Client:
    """An operator."""
    return factories.staff_client("ola", "operator")


def test_an_operator_reads_events_and_goes_to_their_reviews(ann: Client) -> None:
    entry = source_events.receive(Event(Kind.CHANGE, "12345", "main"))
    source_events.find(Event(Kind.CHANGE, "12346", "main"))
    page = ann.get("/admin/reviews/sourceevent/").content.decode()
    assert f'href="/admin/reviews/reviewjob/{entry.job_id}/change/"' in page
    assert "Found by the poll, without a trigger" in page
    only = ann.get("/admin/reviews/sourceevent/?outcome=found_by_poll").content.decode()
    assert ("12346" in only, "12345" in only) == (True, False)
    assert "12345" in ann.get("/admin/reviews/sourceevent/?q=12345").content.decode()
    row = SourceEvent.objects.get(changelist_id="12345")
    assert ann.get(f"/admin/reviews/sourceevent/{row.pk}/change/").status_code == 200


def test_an_event_without_a_review_says_so(ann: Client) -> None:
    SourceEvent.objects.create(
        server="main", event="change-commit", changelist_id="7", origin="trigger", outcome="refused"
    )
    page = ann.get("/admin/reviews/sourceevent/").content.decode()
    assert "Refused: the trigger posts it again" in page
    assert ">none<" in page


def test_the_number_of_queries_does_not_grow(ann: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(5):
        source_events.receive(Event(Kind.CHANGE, str(100 + number), "main"))
    with django_assert_max_num_queries(10):
        ann.get("/admin/reviews/sourceevent/")


def test_nobody_edits_what_the_ledger_wrote(client: Client) -> None:
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    source_events.receive(Event(Kind.CHANGE, "12345", "main"))
    row = SourceEvent.objects.get()
    assert client.get("/admin/reviews/sourceevent/add/").status_code == 403
    assert client.post(f"/admin/reviews/sourceevent/{row.pk}/change/", {}).status_code == 403
    assert client.post(f"/admin/reviews/sourceevent/{row.pk}/delete/", {"post": "yes"}).status_code == 403


def test_the_admin_says_how_far_the_poll_is_and_what_stopped_it(ann: Client) -> None:
    SourcePosition.objects.create(stream="perforce submitted", place="12345", missing=3)
    SourcePosition.objects.create(stream="git demo main", problem="NETWORK_TIMEOUT: <b>silent</b>")
    page = ann.get("/admin/reviews/sourceposition/").content.decode()
    assert "Complete" in page
    assert "Stopped" in page
    assert "&lt;b&gt;silent" in page
    assert "<b>silent" not in page


def test_what_the_poll_found_is_measured() -> None:
    source_events.find(Event(Kind.CHANGE, "12346", "main"))
    SourcePosition.objects.create(stream="perforce submitted", missing=3)
    SourcePosition.objects.create(stream="perforce shelved", problem="waiting")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.DatabaseCollector(dict).collect()
        for sample in family.samples
    }
    assert found["criticizer_scrape_success",] == 1
    assert found["criticizer_source_events_recent", "poll", "found_by_poll"] == 1
    assert found["criticizer_poll_found_missing", "perforce submitted"] == 3
    assert found["criticizer_poll_stopped", "perforce shelved"] == 1
    assert found["criticizer_poll_age_seconds", "perforce submitted"] < 60
    assert connection.is_usable()
