"""Every error answer of the API has the same body, wherever the error comes from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import InternalError, OperationalError
from django.http import HttpResponse
from django.middleware.common import CommonMiddleware

from reviews.api import representations
from reviews.api.error_catalog import API_TABLE, IN_DOUBT
from reviews.api.throttling import ApiKeyThrottle
from reviews.intake import review_requests
from tests.api.conftest import ApiClient, assert_error, review
from tests.factories import ReviewJobFactory

URL = "/api/v1/reviews/"
EVENTS = "/api/v1/triggers/perforce/"
Ask = Callable[[ApiClient], HttpResponse]


def post(body: object, path: str = URL, **extra: Any) -> Ask:
    return lambda client: client.post_json(path, body, **extra)


def raw(content: bytes, content_type: str = "application/json") -> Ask:
    return lambda client: client.post(URL, content, content_type=content_type)


def get(path: str, **extra: Any) -> Ask:
    return lambda client: client.get(path, **extra)


def older_version(client: ApiClient) -> HttpResponse:
    client.post_json(URL, review(review_version=3))
    return client.post_json(URL, review(idempotency_key="another", review_version=2))


def final_review(client: ApiClient) -> HttpResponse:
    job = ReviewJobFactory(status="succeeded", requested_by="key:the operator")
    return client.post_json(f"{URL}{job.pk}/cancel/", {"reason": "x"})


TABLE: list[tuple[str, str, Ask, int, str]] = [
    ("no JSON", "trigger", raw(b"{"), 400, "SCHEMA_INVALID"),
    ("no UTF-8", "trigger", raw(b'{"changelist_id": "\xff"}'), 400, "SCHEMA_INVALID"),
    ("no object", "trigger", post([1]), 400, "SCHEMA_INVALID"),
    ("nested too deeply", "trigger", raw(b"[" * 30_000), 400, "SCHEMA_INVALID"),
    ("half a surrogate pair", "trigger", raw(b'{"\\ud800": 1}'), 400, "SCHEMA_INVALID"),
    ("nothing at all", "trigger", raw(b""), 400, "SCHEMA_INVALID"),
    ("an unknown field", "trigger", post({**review(), "extra": 1}), 400, "SCHEMA_INVALID"),
    ("a bad recipient", "trigger", post(review(recipients=["x"])), 400, "SCHEMA_INVALID"),
    ("a bad filter", "reviewer", get(f"{URL}?status=x"), 400, "SCHEMA_INVALID"),
    ("a bad page", "reviewer", get(f"{URL}?page=x"), 400, "SCHEMA_INVALID"),
    ("a bad event", "trigger", post({"event": "x"}, EVENTS), 400, "SCHEMA_INVALID"),
    ("a foreign host", "trigger", get(URL, headers={"Host": "evil.example.com"}), 400, "SCHEMA_INVALID"),
    ("no key", "", get(URL), 401, "AUTH_DENIED"),
    ("a wrong key", "", get(URL, headers={"Authorization": "Bearer crz_x"}), 401, "AUTH_DENIED"),
    ("the wrong role", "reviewer", post(review()), 403, "PERMISSION_DENIED"),
    ("the wrong role for letters", "trigger", get("/api/v1/dead-letters/"), 403, "PERMISSION_DENIED"),
    ("no such address", "", get("/api/v1/nothing/"), 404, "NOT_FOUND"),
    ("no such version", "trigger", get("/api/v9/reviews/"), 404, "NOT_FOUND"),
    ("no such review", "reviewer", get(f"{URL}999999/"), 404, "NOT_FOUND"),
    ("no such page", "reviewer", get(f"{URL}?page=99"), 404, "NOT_FOUND"),
    ("no such letter", "operator", get("/api/v1/dead-letters/999999/"), 404, "NOT_FOUND"),
    ("no such number", "reviewer", get(f"{URL}{'9' * 40}/"), 404, "NOT_FOUND"),
    ("PUT", "trigger", lambda client: client.put(URL), 405, "METHOD_NOT_ALLOWED"),
    ("GET of an event", "trigger", get(EVENTS), 405, "METHOD_NOT_ALLOWED"),
    ("TRACE", "trigger", lambda client: client.trace(URL), 405, "METHOD_NOT_ALLOWED"),
    ("XML wanted", "trigger", get(URL, headers={"Accept": "application/xml"}), 406, "NOT_ACCEPTABLE"),
    ("an older version", "trigger", older_version, 409, "VERSION_CONFLICT"),
    ("a final review", "operator", final_review, 409, "STATE_CONFLICT"),
    ("too much", "trigger", raw(b'"' + b"x" * 70_000 + b'"'), 413, "PAYLOAD_TOO_LARGE"),
    ("XML sent", "trigger", raw(b"<a/>", "application/xml"), 415, "UNSUPPORTED_MEDIA_TYPE"),
    ("text sent", "trigger", raw(b"a=1", "text/plain"), 415, "UNSUPPORTED_MEDIA_TYPE"),
]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("role", "ask", "status", "error"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_every_error_answer_has_the_same_body(
    client_with_role: Callable[..., ApiClient], role: str, ask: Ask, status: int, error: str
) -> None:
    response = ask(client_with_role(role) if role else ApiClient())
    assert_error(response, status, error)
    assert response["Content-Type"] == "application/json"
    kind = next(kind for kind in API_TABLE if (kind.status, kind.error) == (status, error))
    message = kind.message.format(limit="64 KiB")
    assert (response.json()["code"], response.json()["message"]) == (kind.code, message)


@pytest.mark.django_db
def test_throttled_key_gets_retry_after(trigger: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApiKeyThrottle, "allow_request", lambda *given: False)
    monkeypatch.setattr(ApiKeyThrottle, "wait", lambda *given: 6.2)
    response = trigger.get(URL)
    assert_error(response, 429, "RATE_LIMITED")
    assert response["Retry-After"] == "7"
    monkeypatch.undo()
    assert trigger.get(URL).status_code == 200


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*given: Any, **named: Any) -> None:
        raise error

    return fail


def caused(error: Exception, sqlstate: str) -> Exception:
    class Driver(Exception):
        pass

    error.__cause__ = Driver()
    error.__cause__.sqlstate = sqlstate  # type: ignore[attr-defined]
    return error


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("raised", "status", "error"),
    [
        (RuntimeError("the inner secret"), 500, "INTERNAL_BUG"),
        (caused(InternalError("the inner secret"), "25P02"), 500, "INTERNAL_BUG"),
        (caused(OperationalError("the inner secret"), "57P01"), 503, "DATABASE_UNAVAILABLE"),
        (caused(OperationalError("the inner secret"), "40P01"), 503, "WRITE_CONFLICT"),
        (caused(InternalError("the inner secret"), "25006"), 503, "DATABASE_UNAVAILABLE"),
    ],
    ids=["defect", "aborted", "database", "deadlock", "standby"],
)
@pytest.mark.parametrize("where", ["post", "get"])
def test_internal_failure_has_the_error_body_without_internals(
    client_with_role: Callable[..., ApiClient],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    raised: Exception,
    status: int,
    error: str,
) -> None:
    client = client_with_role("trigger")
    ask = post(review()) if where == "post" else get(URL)
    name = (review_requests, "request_review") if where == "post" else (representations, "job_rows")
    monkeypatch.setattr(*name, failing(raised))
    response = ask(client)
    assert_error(response, status, error)
    assert b"secret" not in response.content
    assert ("Retry-After" in response) == (status == 503)
    monkeypatch.undo()
    assert ask(client).status_code in {200, 201}


@pytest.mark.django_db
def test_defect_in_middleware_has_the_error_body(trigger: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommonMiddleware, "process_request", failing(RuntimeError("the inner secret")))
    response = trigger.get(URL)
    assert_error(response, 500, "INTERNAL_BUG")
    assert b"secret" not in response.content
    page = trigger.get("/login/")
    assert (page.status_code, page["Content-Type"].partition(";")[0]) == (500, "text/html")
    monkeypatch.undo()
    assert trigger.get(URL).status_code == 200


# -- recorded or refused, never both -----------------------------------------------------------


class Lost:
    """A connection that is lost right after intake, or right before it, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool, times: int = 1) -> None:
        self.real, self.after, self.times = review_requests.request_review, after, times
        monkeypatch.setattr(review_requests, "request_review", self)

    def __call__(self, request: review_requests.ReviewRequest) -> review_requests.IntakeResult:
        self.times -= 1
        if self.times < 0:
            return self.real(request)
        if self.after:
            self.real(request)
        raise OperationalError("the server closed the connection unexpectedly")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("after", "status"), [(True, 200), (False, 201)], ids=["committed", "not"])
def test_a_commit_in_doubt_is_looked_up(
    trigger: ApiClient, monkeypatch: pytest.MonkeyPatch, after: bool, status: int
) -> None:
    Lost(monkeypatch, after=after)
    response = trigger.post_json(URL, review())
    assert response.status_code == status
    assert response.json()["idempotency_key"] == review()["idempotency_key"]
    assert [job["id"] for job in trigger.get(URL).json()["results"]] == [response.json()["id"]]


@pytest.mark.django_db(transaction=True)
def test_commit_that_stays_in_doubt_asks_to_post_again(
    trigger: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lost(monkeypatch, after=True, times=2)
    response = trigger.post_json(URL, review())
    assert_error(response, 503, "DATABASE_UNAVAILABLE")
    assert response.json()["code"] == IN_DOUBT.code
    assert "same idempotency_key" in response.json()["message"]
    assert response["Retry-After"] == "5"
    assert trigger.post_json(URL, review()).json()["duplicate"] is True  # as the message says


def test_every_row_of_the_table_has_a_whole_sentence_and_a_code() -> None:
    for kind in API_TABLE:
        assert re.fullmatch(r"CRITICIZER_E\d{3}", kind.code)
        assert kind.message.endswith(".")
        assert kind.message[0].isupper()
