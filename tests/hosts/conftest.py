"""A sender of webhooks to the product, through Django's whole stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.hosts import deliveries

Send = Callable[..., tuple[int, Any]]


@pytest.fixture(autouse=True)
def _configured(settings: Any) -> None:
    settings.GITHUB_WEBHOOK_SECRETS = [deliveries.SECRET]
    settings.GITHUB_APP_ID = deliveries.APP_ID
    settings.GITHUB_REPOSITORIES = ["acme/*", "codertocat/*", "octocoders/*"]


@pytest.fixture
def send(db: None) -> Send:
    """Return a sender of events: `send("pull_request", content)` -> (status, answer)."""
    client = Client(raise_request_exception=False)

    def post(event: str, content: Any, *, delivery: str = "", **headers: str) -> tuple[int, Any]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        sent = {**deliveries.headers(body, event, delivery=delivery), **headers}
        content_type = sent.pop("Content-Type")
        answer = client.post(deliveries.PATH, body, content_type=content_type, headers=sent)
        return answer.status_code, answer.json() if answer.content else None

    return post
