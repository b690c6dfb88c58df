"""The pages of an attempt, an outbox message and a worker cluster, with their links."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from criticizer.models import Circuit
from tests import factories
from tests.admin.test_list_rendering import HOSTILE

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    return client


def page(client: Client, table: str, row: Any) -> str:
    text = client.get(reverse(f"admin:{table}_change", args=[row.pk])).content.decode()
    assert '<script>"' not in text
    return text


def facts(text: str) -> dict[str, str]:
    """Return what the page says, name -> words."""
    pairs = re.findall(r"<dt>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", text, re.DOTALL)
    return {name: " ".join(re.sub("<[^>]*>", " ", words).split()) for name, words in pairs}


def test_an_attempt_says_why_it_failed_and_leads_to_review_stage_and_letter(root: Client) -> None:
    letter = factories.DeadLetterFactory(stage="fetch")
    run = factories.StageRunFactory(job=letter.job, stage="fetch", status="failed", attempts=3)
    attempt = factories.AttemptFactory(
        stage_run=run, number=3, outcome="failed", error_class="NETWORK_TIMEOUT", code="CRITICIZER_E101",
        detail=HOSTILE, context={"server": "main"}, finished_at=timezone.now(), retry_delay_seconds=2.5,
    )  # fmt: skip
    text = page(root, "reviews_attempt", attempt)
    assert "<h1>Attempt 3 at stage fetch</h1>" in text
    assert "The version control server did not answer in time." in text
    assert "Check the load of the version control server" in text
    said = facts(text)
    assert (said["Attempt"], said["Outcome"], said["Stage"]) == (
        "3 of 5",
        "Failed",
        "Fetch Failed all attempts",
    )
    assert (said["Dead letter"], said["Tried again after"]) == (f"Dead letter {letter.pk} New", "2.5 s")
    assert said["Started"].endswith(" UTC")
    for address in (
        reverse("admin:reviews_reviewjob_change", args=[letter.job_id]),
        reverse("admin:deadletters_deadletter_change", args=[letter.pk]),
        f"{reverse('failure-codes')}#CRITICIZER_E101",
    ):
        assert f'href="{address}"' in text
    (others,) = re.findall(r'href="([^"]*/attempt/\?q=[^"]*)"', text)
    found = root.get(others.replace("&amp;", "&")).context["cl"].result_list
    assert [row.pk for row in found] == [attempt.pk]


def test_an_attempt_that_did_not_fail_says_nothing_of_failures(root: Client) -> None:
    text = page(root, "reviews_attempt", factories.AttemptFactory(outcome="started"))
    assert 'class="module lead"' not in text
    assert (facts(text)["Dead letter"], facts(text)["Ended"]) == ("none", "\N{EN DASH}")


def test_a_message_leads_to_its_review_its_queue_and_what_it_waits_for(root: Client) -> None:
    Circuit.objects.create(name="llm:openai", state="open")
    run = factories.StageRunFactory(stage="llm", status="retry_wait")
    message = factories.OutboxMessageFactory(
        aggregate_type="stage_run", aggregate_id=run.pk, queue="llm", waiting_for="llm:openai",
        error_message=HOSTILE,
    )  # fmt: skip
    text = page(root, "criticizer_outboxmessage", message)
    said = facts(text)
    assert (said["State"], said["Queue"], said["Waits for"]) == ("Waiting", "llm", "llm:openai")
    assert said["Stage"] == f"{run.get_stage_display()} {run.get_status_display()}"
    assert f'href="{reverse("admin:reviews_reviewjob_change", args=[run.job_id])}"' in text
    assert f'href="{reverse("admin:criticizer_circuit_change", args=["llm_3Aopenai"])}"' in text


def test_a_message_names_no_review_outside_the_readers_scope() -> None:
    run = factories.StageRunFactory()
    message = factories.OutboxMessageFactory(aggregate_type="stage_run", aggregate_id=run.pk)
    for reads in (True, False):
        user = factories.UserFactory(is_staff=True, is_superuser=not reads)
        client = Client()
        client.force_login(user)
        answer = client.get(reverse("admin:criticizer_outboxmessage_change", args=[message.pk]))
        told = f'/reviewjob/{run.job_id}/change/"' in answer.content.decode()
        assert told is not reads


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "Alive"),
        ({"draining": True}, "Draining"),
        ({"beat_at": timezone.now() - timedelta(hours=1)}, "Silent"),
    ],
)
def test_a_cluster_says_how_it_is_and_leads_to_its_queue(root: Client, fields: Any, state: str) -> None:
    cluster = factories.WorkerClusterFactory(queue="llm", **fields)
    text = page(root, "criticizer_workercluster", cluster)
    assert f"<h1>Workers of llm on {cluster.host}</h1>" in text
    assert facts(text)["State"] == state
    assert f'href="{reverse("admin:criticizer_outboxmessage_changelist")}?q=queue%3Allm"' in text


def test_the_page_of_a_review_shows_dismissed_findings_with_their_verdict(root: Client) -> None:
    job = factories.job_with_stages()
    factories.FindingRowFactory(job=job, title="It stands")
    gone = factories.FindingRowFactory(job=job, title="It is dismissed")
    factories.FindingEventFactory(job=job, identity=gone.identity, kind="wrong", actor="ann", text=HOSTILE)
    text = page(root, "reviews_reviewjob", job)
    rows = [" ".join(re.sub("<[^>]*>", " ", row).split()) for row in re.findall("<tr>.*?</tr>", text)]
    assert len([row for row in rows if "It stands" in row and "Dismissed" not in row]) == 1
    assert len([row for row in rows if "It is dismissed" in row and "Dismissed as wrong by ann" in row]) == 1
