"""The API against its own description: no 5xx, no answer that the description does not know.

schemathesis makes requests from the OpenAPI document, valid ones and ones that break it, and
checks each answer's status, media type, headers and body against the document. They go through
the whole WSGI application in this process.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as openapi_checks

from criticizer.wsgi import application
from reviews.intake import api_keys
from reviews.models import Scan
from tests import factories, skips
from tests.agents.conftest import add_tasks, waiting_job

pytestmark = pytest.mark.django_db

EXAMPLES = 15 if skips.is_all() else 4  # for each operation, caller and mode
OPERATIONS = (
    "GET /api/v1/reviews/",
    "POST /api/v1/reviews/",
    "GET /api/v1/reviews/{job_id}/",
    "GET /api/v1/reviews/{job_id}/coverage/",
    "GET /api/v1/reviews/{job_id}/evidence/",
    "POST /api/v1/reviews/{job_id}/evidence/",
    "GET /api/v1/reviews/{job_id}/findings/",
    "GET /api/v1/reviews/{job_id}/findings.{form}",
    "POST /api/v1/reviews/{job_id}/cancel/",
    "GET /api/v1/findings/",
    "POST /api/v1/findings/{finding_id}/verdict/",
    "POST /api/v1/config/validate/",
    "POST /api/v1/triggers/perforce/",
    "GET /api/v1/agent-tasks/",
    "POST /api/v1/agent-tasks/claim/",
    "POST /api/v1/agent-tasks/{task_id}/claim/",
    "POST /api/v1/agent-tasks/{task_id}/heartbeat/",
    "POST /api/v1/agent-tasks/{task_id}/release/",
    "POST /api/v1/agent-tasks/{task_id}/result/",
    "GET /api/v1/dead-letters/",
    "GET /api/v1/dead-letters/{letter_id}/",
    "GET /api/v1/scans/",
    "POST /api/v1/scans/",
    "GET /api/v1/scans/{scan_id}/",
    "GET /api/v1/scans/{scan_id}/documents/",
)
CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
]


@pytest.fixture(autouse=True)
def _one_connection(document: Any) -> Iterator[None]:
    """Requests share this test's transaction, as those of Django's own test client do.

    After `document`, whose client connects these signals again.
    """
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@functools.cache
def _document() -> Any:
    answer = Client().get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"})
    return json.loads(answer.content)


@pytest.fixture
def document(db: None) -> Any:
    """The document as a client reads it. Made once: it says the same to everybody."""
    return _document()


@functools.cache
def operations() -> dict[str, Any]:
    schema = schemathesis.openapi.from_dict(_document())
    schema.app = application
    found = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        found[operation.label] = operation
    return found


def test_every_operation_is_tried(document: Any) -> None:
    assert set(OPERATIONS) == {label for label in operations() if "/api/v1/" in label}


CALLERS = ("trigger", "operator", "none", "revoked", "reviewer", "agent")
FIRST = {"agent-tasks": "agent", "dead-letters": "operator", "verdict": "operator"}  # who may, where not CI
MODES = {"valid": GenerationMode.POSITIVE, "invalid": GenerationMode.NEGATIVE}


def is_long(label: str, caller: str) -> bool:
    """In `make test`: who may use the operation. Who may not is refused, says test_matrix."""
    return caller != next((caller for part, caller in FIRST.items() if part in label), "trigger")


CASES = [
    pytest.param(
        label, caller, mode,
        marks=pytest.mark.long if is_long(label, caller) else (),
        id=f"{label}-{caller}-{name}",
    )
    for label in OPERATIONS
    for caller in CALLERS
    for name, mode in MODES.items()
]  # fmt: skip


@pytest.mark.parametrize(("label", "caller", "mode"), CASES)
def test_no_answer_is_undocumented(label: str, caller: str, mode: GenerationMode, document: Any) -> None:
    job = factories.job_with_stages()
    known = {
        "job_id": job.pk,
        "finding_id": factories.FindingRowFactory(job=job).pk,
        "letter_id": factories.DeadLetterFactory().pk,
        "form": "sarif",
        "scan_id": Scan.objects.create(job=job, target=factories.ScanTargetFactory(path="//depot/...")).pk,
        "task_id": str(add_tasks(waiting_job())[0].pk),
    }
    headers = {}
    if caller != "none":
        role, prefixes = caller.replace("revoked", "operator"), ["//depot/..."] if caller == "agent" else []
        headers["Authorization"] = f"Bearer {api_keys.create(caller, role, prefixes)}"
    if caller == "revoked":
        api_keys.revoke("revoked")
    operation = operations()[label]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_known=st.booleans())
    def probe(case: Any, is_known: bool) -> None:
        if is_known and case.path_parameters:
            case.path_parameters = {name: known[name] for name in case.path_parameters}
        case.call_and_validate(headers=headers, checks=CHECKS)

    probe()
