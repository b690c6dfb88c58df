"""Log lines of requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from django.test import Client

from criticizer.observability.logging import django_logging


@pytest.mark.django_db
def test_a_request_is_logged_without_its_query_string(caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/login/", "/api/v1/reviews/", "/nothing/"):
        Client().get(f"{path}?recipient=webhook:https://ci.example.com/T0KEN")
    assert "GET /login/" in caplog.text
    assert "T0KEN" not in caplog.text
    assert "recipient" not in caplog.text


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """Return the lines of Django's log, as they are written, with the records of this test only."""
    options = django_logging("INFO")["formatters"]["json"]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=options["foreign_pre_chain"], processors=options["processors"]
    )
    found: list[dict[str, Any]] = []

    class Written(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(formatter.format(record)))

    handler, django = Written(), logging.getLogger("django")
    django.addHandler(handler)
    yield found
    django.removeHandler(handler)


@pytest.mark.django_db
def test_a_forged_host_writes_one_short_warning_without_a_stack(lines: list[dict[str, Any]]) -> None:
    """Anybody may send one: an alarm on severity would be theirs to raise (G580)."""
    for path in ("/login/", "/api/v1/reviews/"):
        forged = Client().get(path, headers={"host": "evil.example/" + "x" * 9_000})
        assert forged.status_code == 400
    Client().get("/nothing/")
    assert [line["level"] for line in lines] == ["warning"] * 3
    assert not {"severity", "error_class", "code", "stack"} & set().union(*lines)
    assert [line.get("error") for line in lines] == ["DisallowedHost", "DisallowedHost", None]
    assert "evil.example" in lines[0]["event"]
    assert max(len(json.dumps(line)) for line in lines) < 600


@pytest.mark.django_db
def test_too_many_fields_write_a_warning_and_a_defect_an_error(lines: list[dict[str, Any]]) -> None:
    posted = Client().post("/login/", {f"field{number}": "x" for number in range(1_100)})
    assert posted.status_code == 400
    assert [(line["level"], line["error"]) for line in lines] == [("warning", "TooManyFieldsSent")]
    try:
        raise ValueError("a defect")
    except ValueError:
        logging.getLogger("django.request").exception("Internal Server Error: /x/")
    assert (lines[1]["level"], lines[1]["severity"]) == ("error", "critical")
