"""Clients of the API: one per role, with real keys, through Django's whole stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from reviews.intake import api_keys
from tests import stack
from tests.stack import Stack

Json = dict[str, Any]


@pytest.fixture(scope="module")
def web_of_module(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[Stack]:
    with stack.web_of_module(tmp_path_factory, django_db_blocker) as made:
        yield made


@pytest.fixture
def web(web_of_module: Stack, transactional_db: None) -> Stack:
    """The product's web server on the tests' database, without workers: one for each module."""
    return web_of_module


class ApiClient(Client):
    """A client that posts JSON with a bearer key.

    A failing view answers 500, as it does in production.
    """

    def __init__(self, key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        super().__init__(raise_request_exception=False, headers=headers)

    def post_json(self, path: str, body: object, **extra: Any) -> HttpResponse:
        response: HttpResponse = self.post(path, body, content_type="application/json", **extra)
        return response


Maker = Callable[..., ApiClient]


@pytest.fixture
def client_with_role(db: None) -> Maker:
    """Return a maker of clients: `client_with_role("operator", name="ann")`."""

    def make(role: str, name: str = "") -> ApiClient:
        return ApiClient(api_keys.create(name or f"the {role}", role))

    return make


@pytest.fixture
def trigger(client_with_role: Maker) -> ApiClient:
    return client_with_role("trigger")


@pytest.fixture
def reviewer(client_with_role: Maker) -> ApiClient:
    return client_with_role("reviewer")


@pytest.fixture
def operator(client_with_role: Maker) -> ApiClient:
    return client_with_role("operator")


@pytest.fixture
def mallory(db: None) -> ApiClient:
    """The outsider: no key at all."""
    return ApiClient()


def review(**fields: object) -> Json:
    """Return the body of a valid request; a field set to None is left out."""
    body: Json = {
        "idempotency_key": "p4-main-12345-1",
        "changelist_id": "12345",
        "review_version": 1,
        "recipients": ["mail:ann@example.com", "webhook:https://ci.example.com/hooks/review"],
        "rerun": False,
        **fields,
    }
    return {name: value for name, value in body.items() if value is not None}


def assert_error(response: HttpResponse, status: int, error: str) -> Json:
    """Check the form that every error has, and return its details."""
    body: Json = response.json()  # type: ignore[attr-defined]
    assert (response.status_code, body["error"]) == (status, error), body
    assert set(body) == {"error", "code", "message", "details"}
    assert body["code"].startswith("CRITICIZER_E")
    assert body["message"].endswith(".")
    assert isinstance(body["details"], dict)
    details: Json = body["details"]
    return details
