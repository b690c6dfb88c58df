"""Ids in the context of a dead letter: of the request, of its payload and of the provider.

Each stage is made to fail in turn.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from django.urls import reverse

from notifications.models import Delivery
from reviews.intake import api_keys
from reviews.models import Artifact, ReviewJob
from tests.acceptance.world import World
from tests.api.conftest import ApiClient
from tests.fakes.llm import error
from tests.fakes.webhook import Behaviour


def fetch_fails(world: World) -> str:
    return "99999"


def llm_fails(world: World) -> str:
    world.llm.server.respond = lambda request: error(401, "no", "invalid_api_key")
    return world.change()


def webhook_fails(world: World) -> str:
    world.receiver.script(Behaviour(status=410, headers={"X-Request-Id": "receiver-77"}))
    return world.change()


@pytest.mark.parametrize(
    ("trouble", "ids"),
    [
        (fetch_fails, set()),
        (llm_fails, {"call", "payload_hash"}),
        (webhook_fails, {"message_id", "provider_request", "payload_hash"}),
    ],
    ids=["fetch", "llm", "notify"],
)
def test_ids_of_the_request_and_of_the_provider_are_in_the_context(
    world: World, admin_client: Any, caplog: pytest.LogCaptureFixture, trouble: Any, ids: set[str]
) -> None:
    answer = world.api.post(
        reverse("api-reviews"),
        json.dumps(
            {
                "changelist_id": trouble(world),
                "idempotency_key": "k-1",
                "recipients": [world.hook],
                "review_version": 1,
            }
        ),
        content_type="application/json",
    )
    assert answer.status_code == 201, answer.content
    world.settle()
    job = ReviewJob.objects.get()
    letter = world.letter(job.pk)
    context = letter.sanitized_context
    assert context["request_id"] == job.request_id
    assert str(UUID(job.request_id)) == job.request_id  # ours, as in the log: a client's could say anything
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    created = next(line for line in lines if line["event"] == "job_created")
    assert created["request_id"] == job.request_id
    assert context["request_hash"] == job.request_sha256[:16]
    assert ids <= set(context), context
    if "payload_hash" in ids:
        assert Artifact.objects.get(job=job, kind="change").sha256.startswith(context["payload_hash"])
    if "message_id" in ids:
        assert context["message_id"] == str(Delivery.objects.get(job=job).token)
        assert context["provider_request"] == "receiver-77"
    page = admin_client.get(reverse("admin:deadletters_deadletter_change", args=[letter.pk]))
    assert job.request_id in page.content.decode()
    operator = ApiClient(api_keys.create("ops", "operator"))
    shown = operator.get(reverse("api-dead-letter", args=[letter.pk])).json()
    assert shown["sanitized_context"] == context
