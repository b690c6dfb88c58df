"""API keys: made once, checked cheaply, refused loudly but not endlessly."""

from __future__ import annotations

import hashlib
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from criticizer.models import SecurityEvent
from reviews.api.auth import PER_MINUTE, SAME_SECONDS, RefusalLog
from reviews.api.throttling import ApiKeyThrottle
from reviews.intake import api_keys
from reviews.models import ApiKey
from tests.api.conftest import ApiClient, Maker, assert_error

pytestmark = pytest.mark.django_db

URL = "/api/v1/reviews/"


def make(name: str, role: str) -> tuple[str, str]:
    """Run the command and return what it wrote to stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    call_command("create_api_key", name=name, role=role, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_the_command_prints_the_key_and_nothing_else() -> None:
    out, err = make("ci", "trigger")
    assert re.fullmatch(r"crz_[A-Za-z0-9_-]{43}\n", out)
    assert "ci" in err
    assert out.strip() not in err
    row = ApiKey.objects.get()
    assert (row.name, row.role, row.prefix) == ("ci", "trigger", out[:12])
    assert row.key_sha256 == hashlib.sha256(out.strip().encode()).hexdigest()
    assert ApiClient(out.strip()).get(URL).status_code == 200


def test_no_column_holds_the_key() -> None:
    key = api_keys.create("ci", "trigger")
    row = ApiKey.objects.filter(name="ci").values().get()
    assert all(key not in str(value) for value in row.values())


def test_a_name_is_used_once() -> None:
    make("ci", "trigger")
    with pytest.raises(CommandError, match="already an API key called 'ci'"):
        make("ci", "operator")
    assert ApiKey.objects.get().role == "trigger"


@pytest.mark.parametrize(("name", "role"), [("", "trigger"), ("x" * 65, "trigger"), ("a\nb", "trigger")])
def test_a_bad_name_is_refused(name: str, role: str) -> None:
    with pytest.raises(CommandError, match="printable"):
        make(name, role)


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(CommandError, match="role"):
        make("ci", "emperor")


def test_a_revoked_key_is_refused_from_the_next_request_on() -> None:
    key = api_keys.create("ci", "trigger")
    assert ApiClient(key).get(URL).status_code == 200
    out = io.StringIO()
    call_command("revoke_api_key", name="ci", stdout=out)
    assert "is revoked" in out.getvalue()
    assert_error(ApiClient(key).get(URL), 401, "AUTH_DENIED")
    event = SecurityEvent.objects.get()
    assert (event.kind, event.reason, event.actor) == ("auth_failed", "revoked", "ci")


def test_revoking_a_revoked_key_is_reported() -> None:
    api_keys.create("ci", "trigger")
    call_command("revoke_api_key", name="ci", stdout=io.StringIO())
    out = io.StringIO()
    call_command("revoke_api_key", name="ci", stdout=out)
    assert "was already revoked" in out.getvalue()


def test_revoking_an_unknown_key_is_an_error() -> None:
    with pytest.raises(CommandError, match="no API key named 'ghost'"):
        call_command("revoke_api_key", name="ghost")


def test_the_last_use_is_written_at_most_once_a_minute() -> None:
    client = ApiClient(api_keys.create("ci", "trigger"))
    client.get(URL)
    first = ApiKey.objects.get().last_used_at
    assert first is not None
    client.get(URL)
    assert ApiKey.objects.get().last_used_at == first
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    client.get(URL)
    last = ApiKey.objects.get().last_used_at
    assert last is not None
    assert last >= first


@pytest.mark.parametrize(
    "header",
    [
        "Bearer crz_unknown",
        "bearer crz_unknown",
        "Bearer",
        "Bearer ",
        "Bearer something-else",
        "Bearer crz_" + "x" * 500,
        "Bearer crz_caf\xc3\xa9",
        "Basic Y3J6X3g6eA==",
        "crz_unknown",
    ],
)
def test_malformed_unknown_and_revoked_keys_get_the_same_answer(db: None, header: str) -> None:
    response = ApiClient().get(URL, headers={"Authorization": header})
    assert_error(response, 401, "AUTH_DENIED")
    assert response["WWW-Authenticate"] == "Bearer"


def test_the_scheme_may_be_written_in_any_case() -> None:
    key = api_keys.create("ci", "trigger")
    assert ApiClient().get(URL, headers={"Authorization": f"bEaReR  {key}"}).status_code == 200


def test_a_flood_of_bad_keys_leaves_one_event(mallory: ApiClient) -> None:
    for number in range(50):
        mallory.get(URL, headers={"Authorization": f"Bearer crz_guess{number}"})
    event = SecurityEvent.objects.get()
    assert (event.kind, event.reason, event.actor) == ("auth_failed", "unknown", "")
    assert "guess" not in str(event.context)


def test_next_event_counts_the_suppressed_refusals() -> None:
    now = 0.0
    refusals = RefusalLog(clock=lambda: now)
    kind = SecurityEvent.Kind.AUTH_FAILED
    assert [refusals.note(kind, "unknown", "", "192.0.2.1") for _ in range(3)] == [True, False, False]
    now = SAME_SECONDS
    assert refusals.note(kind, "unknown", "", "192.0.2.1")
    assert [event.context["suppressed"] for event in SecurityEvent.objects.order_by("id")] == [0, 2]


def test_a_flood_from_many_addresses_is_bounded() -> None:
    refusals = RefusalLog(clock=lambda: 0.0)
    for number in range(PER_MINUTE * 3):
        refusals.note(SecurityEvent.Kind.AUTH_FAILED, "unknown", "", f"192.0.2.{number}")
    assert SecurityEvent.objects.count() == PER_MINUTE


def test_denied_role_writes_a_security_event(reviewer: ApiClient) -> None:
    assert_error(reviewer.post_json(URL, {}), 403, "PERMISSION_DENIED")
    event = SecurityEvent.objects.get()
    assert (event.kind, event.reason, event.actor) == ("role_denied", "POST as reviewer", "the reviewer")


@pytest.mark.parametrize(
    ("method", "path", "roles"),
    [
        ("get", "/api/v1/reviews/", {"trigger", "reviewer", "operator"}),
        ("get", "/api/v1/reviews/1/", {"trigger", "reviewer", "operator"}),
        ("post", "/api/v1/reviews/", {"trigger"}),
        ("post", "/api/v1/reviews/1/cancel/", {"trigger", "operator"}),
        ("post", "/api/v1/triggers/perforce/", {"trigger"}),
        ("get", "/api/v1/dead-letters/", {"operator"}),
        ("get", "/api/v1/dead-letters/1/", {"operator"}),
    ],
)
@pytest.mark.parametrize("role", ["trigger", "reviewer", "operator"])
def test_each_role_may_do_what_it_is_for(
    client_with_role: Maker, method: str, path: str, roles: set[str], role: str
) -> None:
    response = getattr(client_with_role(role), method)(path, content_type="application/json")
    assert (response.status_code != 403) == (role in roles)
    assert response.status_code in {200, 400, 403, 404}


def test_throttled_requests_get_retry_after(
    trigger: ApiClient, client_with_role: Maker, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": {"api_key": "3/min"}}
    now = 1000.0
    monkeypatch.setattr(ApiKeyThrottle, "clock", staticmethod(lambda: now))
    assert [trigger.get(URL).status_code for _ in range(4)] == [200, 200, 200, 429]
    response = trigger.get(URL)
    assert_error(response, 429, "RATE_LIMITED")
    assert response["Retry-After"] == "20"
    assert client_with_role("reviewer").get(URL).status_code == 200  # each key has its own rate
    now += 20
    assert [trigger.get(URL).status_code for _ in range(2)] == [200, 429]
