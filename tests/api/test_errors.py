"""Every error has the same body, wherever it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from criticizer.resilience.failures import TABLE, Component, ErrorClass, PermanentFailure
from reviews.api import representations
from reviews.api.error_catalog import API_TABLE
from reviews.intake import api_keys, review_requests
from reviews.models import HostDelivery
from tests.api.conftest import ApiClient, assert_error, review
from tests.hosts import deliveries

URL = "/api/v1/reviews/"


def test_codes_are_unique_and_apart_from_those_of_failures() -> None:
    taxonomy = {kind.code for kind in TABLE.values()}
    own = [kind.code for kind in API_TABLE if kind.code not in taxonomy]
    shared = {"SCHEMA_INVALID", "INTERNAL_BUG", "WRITE_CONFLICT", "DATABASE_UNAVAILABLE"}
    assert {kind.error for kind in API_TABLE if kind.code in taxonomy} == shared
    assert len(own) == len(set(own)) == len(API_TABLE) - len(shared)
    assert all("E450" <= code.removeprefix("CRITICIZER_") <= "E499" for code in own)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/api/", "/api/v2/reviews/", "/api/v1/reviews/abc/", "/api/v1/secrets"])
def test_unknown_address_is_not_found_with_and_without_a_key(mallory: ApiClient, path: str) -> None:
    assert_error(mallory.get(path), 404, "NOT_FOUND")
    assert_error(mallory.post_json(path, {}), 404, "NOT_FOUND")


@pytest.mark.django_db
def test_missing_slash_is_redirected_with_method_and_body(trigger: ApiClient) -> None:
    response = trigger.post_json("/api/v1/reviews?x=1", review())
    assert (response.status_code, response["Location"]) == (308, "/api/v1/reviews/?x=1")


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["put", "patch", "delete"])
def test_unknown_method_gets_the_allow_header(trigger: ApiClient, method: str) -> None:
    response = getattr(trigger, method)(URL)
    assert_error(response, 405, "METHOD_NOT_ALLOWED")
    assert response["Allow"] == "GET, POST, HEAD, OPTIONS"


@pytest.mark.django_db
def test_only_json_is_answered(trigger: ApiClient) -> None:
    assert_error(trigger.get(URL, headers={"Accept": "application/xml"}), 406, "NOT_ACCEPTABLE")


@pytest.mark.django_db
def test_a_defect_is_answered_without_internals(trigger: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: Any) -> None:
        raise RuntimeError("the inner secret")

    monkeypatch.setattr(review_requests, "request_review", broken)
    response = trigger.post_json(URL, review())
    assert assert_error(response, 500, "INTERNAL_BUG") == {}
    assert b"secret" not in response.content
    monkeypatch.undo()
    assert trigger.post_json(URL, review()).status_code == 201


@pytest.mark.django_db
def test_a_classified_failure_keeps_its_class_and_hides_its_detail(
    trigger: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: Any) -> None:
        raise PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, "the inner secret")

    monkeypatch.setattr(review_requests, "request_review", broken)
    response = trigger.post_json(URL, review())
    assert_error(response, 500, "CONFIG_INVALID")
    assert b"secret" not in response.content


class Outage:
    """An outage of the database for this process, from `begin` to `end`."""

    def __init__(self, nowhere: Path) -> None:
        self.nowhere = str(nowhere)
        self.host = connection.settings_dict["HOST"]

    def begin(self) -> None:
        connection.close()
        connection.settings_dict["HOST"] = self.nowhere

    def end(self) -> None:
        connection.close()
        connection.settings_dict["HOST"] = self.host


@pytest.fixture
def outage(transactional_db: None, tmp_path: Path) -> Iterator[Outage]:
    made = Outage(tmp_path)
    yield made
    made.end()


def test_api_without_database_answers_503_with_retry_after(outage: Outage) -> None:
    client = ApiClient(api_keys.create("ci", "trigger"))
    outage.begin()
    response = client.post_json(URL, review())
    assert_error(response, 503, "DATABASE_UNAVAILABLE")
    assert response["Retry-After"] == "5"
    outage.end()
    assert client.post_json(URL, review()).status_code == 201


def test_a_webhook_without_database_is_503_and_counts_when_it_is_sent_again(
    outage: Outage, settings: Any
) -> None:
    """Its host does not repeat it: it is asked for again, under the same id."""
    settings.GITHUB_WEBHOOK_SECRETS = [deliveries.SECRET]
    settings.GITHUB_REPOSITORIES = ["acme/*"]
    body = json.dumps(deliveries.pull_request()).encode()
    headers = deliveries.headers(body, "pull_request", delivery="once")
    kind = headers.pop("Content-Type")
    client = Client(raise_request_exception=False)

    def post() -> Any:
        return client.post(deliveries.PATH, body, content_type=kind, headers=headers)

    outage.begin()
    assert_error(post(), 503, "DATABASE_UNAVAILABLE")
    outage.end()
    assert not HostDelivery.objects.exists()
    assert [post().status_code for _ in range(2)] == [202, 200]


def test_a_connection_lost_while_idle_costs_no_request(transactional_db: None) -> None:
    client = ApiClient(api_keys.create("ci", "trigger"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (backend,) = cursor.fetchone()
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [backend])
    other.close()
    assert client.post_json(URL, review()).status_code == 201


@pytest.mark.parametrize("path", ["/", "/admin/", "/reviews/1/"])
def test_pages_without_database_answer_503_with_retry_after(outage: Outage, path: str) -> None:
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = "x" * 32  # a session that must be looked up
    outage.begin()
    response = client.get(path)
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert response["Content-Type"].startswith("text/html")
    assert b"Not available right now" in response.content
    assert b"pages.css" in response.content  # in the site's design
    outage.end()
    assert client.get(path).status_code in {200, 302, 404}


@pytest.mark.django_db
def test_any_other_defect_of_a_page_stays_a_500(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(representations, "job_rows", broken)
    response = ApiClient(api_keys.create("ann", "reviewer")).get(URL)
    assert response.status_code == 500
