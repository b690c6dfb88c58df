"""The published description of the API."""

from __future__ import annotations

import io
import json
import re

import pytest
from django.core.management import call_command
from django.urls import resolve
from drf_spectacular.generators import SchemaGenerator

from notifications.recipients import CHANNELS
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
        "scans/{scan_id}/documents/",
    ):
        assert f"/api/v1/{path}:" in schema
    assert "scheme: bearer" in schema


def test_every_field_and_parameter_has_a_description() -> None:
    out = io.StringIO()
    call_command("spectacular", format="openapi-json", stdout=out)
    schema = json.loads(out.getvalue())
    without = [
        f"{name}.{field}"
        for name, shape in schema["components"]["schemas"].items()
        for field, described in shape.get("properties", {}).items()
        if not described.get("description")
    ]
    without += [
        f"{path} {parameter['name']}"
        for path, methods in schema["paths"].items()
        if path.startswith("/api/v1/")
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] != "path" and not parameter.get("description")
    ]
    assert without == []
    assert re.search(r"<[^`\"]*>", re.sub(r"`[^`]*`", "", out.getvalue())) is None  # would vanish as a tag
    recipients = schema["components"]["schemas"]["ReviewRequestRequest"]["properties"]["recipients"]
    assert [channel for channel in CHANNELS if f"{channel}:<" not in recipients["description"]] == ["swarm"]
    assert "swarm:review-<number>" in recipients["description"]


def test_the_described_query_parameters_are_those_that_are_accepted() -> None:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    for path, methods in schema["paths"].items():
        view = resolve(re.sub(r"{(?:job|letter|scan)_id}", "1", path)).func.view_class
        described = {
            p["name"] for m in methods.values() for p in m.get("parameters", ()) if p["in"] == "query"
        }
        assert described == set(getattr(view, "query", described)), path


def test_schema_and_docs_need_no_key(mallory: ApiClient) -> None:
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
