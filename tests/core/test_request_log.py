"""Log lines of requests."""

from __future__ import annotations

import pytest
from django.test import Client


@pytest.mark.django_db
def test_a_request_is_logged_without_its_query_string(caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/login/", "/api/v1/reviews/", "/nothing/"):
        Client().get(f"{path}?recipient=webhook:https://ci.example.com/T0KEN")
    assert "GET /login/" in caplog.text
    assert "T0KEN" not in caplog.text
    assert "recipient" not in caplog.text
