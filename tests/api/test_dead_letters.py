"""Reading dead letters through the API; the workflow is in the admin."""

from __future__ import annotations

from typing import Any

import pytest

from reviews.api import dead_letter_schemas
from tests.api.conftest import ApiClient, assert_error
from tests.factories import DeadLetterEventFactory, DeadLetterFactory

pytestmark = pytest.mark.django_db

URL = "/api/v1/dead-letters/"


def test_a_letter_shows_its_payload_and_its_history(operator: ApiClient) -> None:
    letter = DeadLetterFactory(sanitized_context={"attempt": 5}, last_stack="Traceback …")
    DeadLetterEventFactory(letter=letter, action="created", actor="pipeline")
    DeadLetterEventFactory(letter=letter, action="replayed", actor="ann", reason="ticket renewed")
    body = operator.get(f"{URL}{letter.pk}/").json()
    assert set(body) == set(dead_letter_schemas.DeadLetterSerializer().fields)
    assert (body["id"], body["job"], body["changelist_id"]) == (
        letter.pk,
        letter.job_id,
        letter.job.changelist_id,
    )
    assert (body["error_class"], body["code"], body["stage"]) == ("NOT_FOUND", "CRITICIZER_E107", "fetch")
    assert (body["sanitized_context"], body["last_stack"]) == ({"attempt": 5}, "Traceback …")
    assert [(event["action"], event["actor"]) for event in body["events"]] == [
        ("created", "pipeline"), ("replayed", "ann")
    ]  # fmt: skip
    assert body["links"]["job"].endswith(f"/api/v1/reviews/{letter.job_id}/")


def test_the_latest_failure_comes_first(operator: ApiClient) -> None:
    made = [DeadLetterFactory().pk for _ in range(3)]
    body = operator.get(URL).json()
    assert [letter["id"] for letter in body["results"]] == made[::-1]
    assert body["count"] == 3


def test_list_needs_the_same_number_of_queries_for_one_letter_and_for_many(
    operator: ApiClient, django_assert_num_queries: Any
) -> None:
    operator.get(URL)
    for letters in (1, 5):
        for _ in range(letters):
            DeadLetterEventFactory(letter=DeadLetterFactory())
        with django_assert_num_queries(5):  # the key, the count, the page, the dead letters, their events
            operator.get(URL)


def test_an_unknown_letter_is_not_found(operator: ApiClient) -> None:
    assert_error(operator.get(f"{URL}4711/"), 404, "NOT_FOUND")
