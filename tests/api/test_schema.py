"""The published description of the API."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command

from tests.api.conftest import ApiClient

pytestmark = pytest.mark.django_db


def test_the_schema_is_valid_without_a_warning() -> None:
    out = io.StringIO()
    call_command("spectacular", validate=True, fail_on_warn=True, stdout=out)
    schema = out.getvalue()
    for path in (
        "reviews/",
        "reviews/{job_id}/",
        "reviews/{job_id}/cancel/",
        "triggers/perforce/",
        "dead-letters/",
    ):
        assert f"/api/v1/{path}:" in schema
    assert "scheme: bearer" in schema


def test_anybody_may_read_the_schema_and_its_browser(mallory: ApiClient) -> None:
    schema = mallory.get("/api/schema/")
    assert (schema.status_code, schema["Content-Type"]) == (200, "application/vnd.oai.openapi; charset=utf-8")
    page = mallory.get("/api/docs/")
    assert page.status_code == 200
    script = mallory.get("/api/docs/?script=")
    assert script["Content-Type"] == "application/javascript"


def test_the_browser_of_the_schema_has_no_inline_code(mallory: ApiClient) -> None:
    page = mallory.get("/api/docs/")
    assert "default-src 'self'" in page["Content-Security-Policy"]
    assert b"<style" not in page.content
    assert b"<script>" not in page.content
    assert b" style=" not in page.content
