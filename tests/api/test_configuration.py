"""`POST /api/v1/config/validate/`."""

from __future__ import annotations

from typing import Any

import pytest

from reviews.configuration.keys import KEYS
from tests.api.conftest import ApiClient, assert_error

pytestmark = pytest.mark.django_db

URL = "/api/v1/config/validate/"


def test_a_file_is_answered_with_what_would_hold_here(trigger: ApiClient, settings: Any) -> None:
    settings.LLM_PROVIDER, settings.FINDING_BUDGET = "none", 6
    response = trigger.post_json(URL, {"text": "llm: true\nmin_severity: severe\ncheck: {block: high}\n"})
    assert response.status_code == 200
    found = response.json()
    assert set(found["values"]) == set(found["sources"]) == set(KEYS)
    assert (found["values"]["llm"], found["values"]["max_findings"]) == (False, 6)
    assert (found["values"]["check.block"], found["sources"]["check.block"]) == ("high", "file")
    assert [(each["line"], each["code"], each["kind"]) for each in found["warnings"]] == [
        (1, "CRITICIZER_E502", "above_ceiling"), (2, "CRITICIZER_E502", "not_a_choice"),
    ]  # fmt: skip
    assert found["hidden"] == 0


def test_a_file_that_is_no_yaml_is_an_answer_too(trigger: ApiClient) -> None:
    found = trigger.post_json(URL, {"text": "[" * 60_000}).json()
    assert [each["code"] for each in found["warnings"]] == ["CRITICIZER_E501"]
    assert trigger.post_json(URL, {"text": ""}).json()["warnings"] == []


def test_other_bodies_are_refused(trigger: ApiClient) -> None:
    for body in ({}, {"text": 7}, {"text": "a: 1", "repository": "x"}):
        assert_error(trigger.post_json(URL, body), 400, "SCHEMA_INVALID")
    assert_error(trigger.post_json(URL, {"text": "x" * 70_000}), 413, "PAYLOAD_TOO_LARGE")
