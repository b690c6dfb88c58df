"""GitHub's API as an App: tokens, limits, and what each answer means, over a real socket."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from email.utils import formatdate

import httpx
import pytest

from criticizer.codehosts.github import tokens
from criticizer.codehosts.github.client import GitHub
from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.github.tokens import AppConfig, app_token
from criticizer.codehosts.names import Repository
from criticizer.http_client import Answer, Limits
from criticizer.redaction import clean
from criticizer.resilience.failures import (
    ErrorClass,
    Failure,
    PermanentFailure,
    QuotaExceeded,
    RetryableFailure,
    UncertainFailure,
)
from tests.fakes.closed import closed_port
from tests.fakes.github import APP_ID, INSTALLATION, SLUG, Act, GitHubServer, private_key

E = ErrorClass
WEB = Repository("acme/web")
PULL, COMMENTS = "/repos/acme/web/pulls/7", "/repos/acme/web/issues/7/comments"
MINT = f"/app/installations/{INSTALLATION}/access_tokens"


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with GitHubServer() as running:
        running.add("acme/web")
        yield running
        assert running.faults == []


def github(server: GitHubServer, *keys: int, limits: Limits | None = None) -> GitHub:
    config = AppConfig(
        str(APP_ID), [private_key(key) for key in keys or (1,)], server.url, SLUG, limits or Limits()
    )
    return GitHub(config, clock=server.now, pause=server.forward)


def comment(client: GitHub) -> object:
    return client.call(WEB, "POST", COMMENTS, {"body": "Hello 🙂"}).content["body"]


def test_a_token_is_narrowed_to_one_repository_and_what_is_needed(server: GitHubServer) -> None:
    server.granted |= {"issues": "write", "administration": "write"}
    server.add("acme/other")
    assert comment(github(server)) == "Hello 🙂"
    asked = next(call for call in server.calls if call.path == MINT)
    assert asked.body == {
        "repositories": ["web"],
        "permissions": {
            "checks": "write", "contents": "read", "metadata": "read", "pull_requests": "write",
        },
    }  # fmt: skip


def test_a_token_is_made_once_and_renewed_ten_minutes_before_its_end(server: GitHubServer) -> None:
    client = github(server)
    for seconds in (0, 2900, 200):
        server.forward(seconds)
        client.call(WEB, "GET", PULL)
    assert server.count("POST", MINT) == 2
    assert all(status < 300 for _, status in server.said)


@pytest.mark.parametrize("is_long", [True, False])
def test_a_revoked_token_is_renewed_once(server: GitHubServer, is_long: bool) -> None:
    server.has_long_tokens = is_long
    client = github(server)
    client.call(WEB, "GET", PULL)
    server.tokens.clear()
    assert comment(client) == "Hello 🙂"
    assert server.count("POST", COMMENTS) == 2
    assert server.count("POST", MINT) == 2


def test_a_second_refusal_of_a_token_is_auth_denied(server: GitHubServer) -> None:
    client = github(server)
    client.call(WEB, "GET", PULL)
    server.script(*[Act(keep=False, status=401) for _ in range(9)], on=f"POST {COMMENTS}")
    with pytest.raises(PermanentFailure) as refused:
        comment(client)
    assert refused.value.error_class is E.AUTH_DENIED
    # The old one, and the new one with the pauses of a token that may not be known everywhere yet.
    assert server.count("POST", COMMENTS) == 4
    assert server.count("POST", MINT) == 2


def test_the_apps_own_token_is_signed_once_in_five_minutes_and_anew_when_refused(
    server: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[float] = []

    def counted(app_id: str, private_key: str, now: float) -> str:
        signed.append(now)
        return app_token(app_id, private_key, now)

    monkeypatch.setattr(tokens, "app_token", counted)
    client = github(server)
    for seconds in (0, 299, 2):
        server.forward(seconds)
        client.as_app("GET", "/app")
    assert len(signed) == 2
    server.script(Act(keep=False, status=401), on="GET /app")
    with pytest.raises(PermanentFailure):
        client.as_app("GET", "/app")
    server.forward(1)
    client.as_app("GET", "/app")
    assert len(signed) == 3
    server.forward(-60)  # the clock was set back
    client.as_app("GET", "/app")
    assert len(signed) == 4


@pytest.mark.parametrize("lag", [2.0, 12.0])
def test_a_fresh_token_that_is_not_known_yet_is_shown_again(server: GitHubServer, lag: float) -> None:
    server.lag_seconds = lag
    assert comment(github(server)) == "Hello 🙂"
    assert server.count("POST", MINT) == 1


def test_a_missing_object_is_not_taken_for_lag_once_the_token_was_accepted(server: GitHubServer) -> None:
    client = github(server)
    client.call(WEB, "GET", PULL)
    began = server.now()
    with pytest.raises(PermanentFailure) as refused:
        client.call(WEB, "GET", "/repos/acme/web/pulls/8")
    assert refused.value.error_class is E.NOT_FOUND
    assert server.now() - began < 2  # nothing was waited for
    assert server.count("GET", "/repos/acme/web/pulls/8") == 1


def test_the_second_key_is_used_while_the_first_is_refused(server: GitHubServer) -> None:
    server.keys = {2}
    client = github(server, 1, 2)
    assert comment(client) == "Hello 🙂"
    assert client.as_app("GET", "/app").content["slug"] == SLUG
    assert [status for path, status in server.said if path == "GET /app"] == [200]


def test_a_key_that_is_none_is_named_and_not_quoted(server: GitHubServer) -> None:
    client = GitHub(AppConfig("1", ["-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n"], server.url))
    with pytest.raises(PermanentFailure, match="GITHUB_PRIVATE_KEY") as refused:
        client.as_app("GET", "/app")
    assert refused.value.error_class is E.CONFIG_INVALID
    assert "c2VjcmV0" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_permission_that_is_not_granted_is_named(server: GitHubServer) -> None:
    del server.granted["checks"]
    with pytest.raises(PermanentFailure, match="checks: write") as refused:
        github(server).call(WEB, "GET", PULL)
    assert refused.value.error_class is E.PERMISSION_DENIED


def test_an_app_that_is_not_installed_is_not_found(server: GitHubServer) -> None:
    client = github(server)
    client.call(WEB, "GET", PULL)
    server.is_installed = False
    with pytest.raises(PermanentFailure, match="not installed") as refused:
        comment(client)
    assert refused.value.error_class is E.NOT_FOUND


SECONDARY = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}
USED_UP = {"x-ratelimit-remaining": "0"}


@pytest.mark.parametrize(
    ("act", "kind", "error_class"),
    [
        (Act(keep=False, status=400), PermanentFailure, E.INTERNAL_BUG),
        (Act(keep=False, status=403), PermanentFailure, E.PERMISSION_DENIED),
        (Act(keep=False, status=403, body={"message": "Repository was archived so is read-only."}),
         PermanentFailure, E.RECIPIENT_REJECTED),
        (Act(keep=False, status=403, body={"message": "Unable to create comment because issue is locked."}),
         PermanentFailure, E.RECIPIENT_REJECTED),
        (Act(keep=False, status=404), PermanentFailure, E.NOT_FOUND),
        (Act(keep=False, status=409), RetryableFailure, E.WRITE_CONFLICT),
        (Act(keep=False, status=410), PermanentFailure, E.RECIPIENT_REJECTED),
        (Act(keep=False, status=410, body={"message": "This API version is gone."}),
         PermanentFailure, E.CONFIG_INVALID),
        (Act(keep=False, status=307), PermanentFailure, E.CONFIG_INVALID),
        (Act(keep=False, status=422), PermanentFailure, E.SCHEMA_INVALID),
        (Act(keep=False, status=422, body={"message": "was submitted too quickly"}),
         QuotaExceeded, E.RATE_LIMITED),
        (Act(keep=False, status=429), QuotaExceeded, E.RATE_LIMITED),
        (Act(keep=False, status=403, body=SECONDARY), QuotaExceeded, E.RATE_LIMITED),
        (Act(keep=False, status=403, headers=USED_UP), QuotaExceeded, E.RATE_LIMITED),
        (Act(keep=False, status=403, headers={"retry-after": "2"}), QuotaExceeded, E.RATE_LIMITED),
        (Act(status=500), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(status=502), UncertainFailure, E.UPSTREAM_UNAVAILABLE),
        (Act(status=503), UncertainFailure, E.UPSTREAM_UNAVAILABLE),
        (Act(status=504), UncertainFailure, E.NETWORK_TIMEOUT),
        pytest.param(Act(then="hang"), UncertainFailure, E.NETWORK_TIMEOUT, marks=pytest.mark.long),
        (Act(then="reset"), UncertainFailure, E.NETWORK_UNREACHABLE),
        (Act(then="cut"), UncertainFailure, E.NETWORK_UNREACHABLE),
        (Act(then="page"), UncertainFailure, E.UPSTREAM_INTERNAL),
    ],
)  # fmt: skip
def test_each_answer_means_what_it_can_mean(
    server: GitHubServer, act: Act, kind: type[Failure], error_class: ErrorClass
) -> None:
    client = github(server, limits=Limits(read_timeout_seconds=1.0) if act.then == "hang" else None)
    client.call(WEB, "GET", PULL)
    server.script(act, on=f"POST {COMMENTS}")
    with pytest.raises(Failure) as caught:
        comment(client)
    assert (type(caught.value), caught.value.error_class) == (kind, error_class)
    if kind is UncertainFailure:  # the same of a question is repeated
        server.script(act, on=f"GET {PULL}")
        with pytest.raises(RetryableFailure):
            client.call(WEB, "GET", PULL)


@pytest.mark.parametrize("status", [409, 503])
def test_a_pause_that_a_failure_asks_for_is_kept(server: GitHubServer, status: int) -> None:
    client = github(server)
    client.call(WEB, "GET", PULL)
    server.script(Act(status=status, headers={"retry-after": "100"}), on=f"GET {PULL}")
    with pytest.raises(RetryableFailure) as failed:
        client.call(WEB, "GET", PULL)
    assert failed.value.retry_after_seconds == 100
    server.script(Act(status=503, headers={"retry-after": "100"}), on=f"POST {COMMENTS}")
    with pytest.raises(UncertainFailure) as unclear:
        comment(client)
    assert unclear.value.retry_after_seconds == 100


def test_nothing_listens_is_certain_not_to_have_happened() -> None:
    with closed_port() as port, pytest.raises(RetryableFailure) as caught:
        GitHub(AppConfig("1", [private_key()], f"http://127.0.0.1:{port}")).as_app("GET", "/app")
    assert caught.value.error_class is E.NETWORK_UNREACHABLE


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "2", **USED_UP}, 2),
        ({"retry-after": "+90"}, 90),  # a date
        (USED_UP | {"x-ratelimit-reset": "+2400"}, 2401),
        # A reset of another limit: 4290 calls are left, so it is not this one that refused.
        ({"x-ratelimit-remaining": "4290", "x-ratelimit-reset": "+3348"}, None),
        ({}, None),
    ],
)
def test_a_limit_lasts_as_long_as_the_answer_says(
    server: GitHubServer, headers: dict[str, str], seconds: float | None
) -> None:
    client = github(server)
    client.call(WEB, "GET", PULL)
    # The reset is a time of GitHub's clock: ours, an hour behind, would wait too long.
    told = dict(headers)
    if reset := headers.get("x-ratelimit-reset"):
        told["x-ratelimit-reset"] = str(int(server.now()) + int(reset))
    if (after := headers.get("retry-after", "")).startswith("+"):
        told["retry-after"] = formatdate(server.now() + int(after), usegmt=True)
    server.script(Act(keep=False, status=403, body=SECONDARY, headers=told), on=f"POST {COMMENTS}")
    behind = GitHub(client.config, clock=lambda: server.now() - 3600)
    behind._tokens = client._tokens
    with pytest.raises(QuotaExceeded) as refused:
        comment(behind)
    assert refused.value.retry_after_seconds == (seconds and pytest.approx(seconds, abs=2))


@pytest.mark.parametrize("seconds", [-3600, -700, 120, 3600])
def test_a_host_whose_clock_is_not_ours_is_shown_tokens_of_its_own_time(
    server: GitHubServer, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    config = AppConfig(str(APP_ID), [private_key()], server.url, SLUG)
    client = GitHub(config, clock=lambda: server.now() + seconds, pause=server.forward)
    assert comment(client) == "Hello 🙂"
    assert comment(client) == "Hello 🙂"
    assert server.count("POST", MINT) == 1
    server.forward(2900)
    assert comment(client) == "Hello 🙂"
    server.forward(200)  # ten minutes before the end, whatever the clock
    assert comment(client) == "Hello 🙂"
    assert server.count("POST", MINT) == 2
    refused = [path for path, status in server.said if status == 401]
    assert len(refused) == 1
    assert "host_clock_differs" in caplog.text


def test_no_token_is_signed_for_a_time_that_is_days_away(server: GitHubServer) -> None:
    config = AppConfig(str(APP_ID), [private_key()], server.url, SLUG)
    client = GitHub(config, clock=lambda: server.now() - 200_000, pause=server.forward)
    with pytest.raises(PermanentFailure, match="the clock") as refused:
        client.as_app("GET", "/app")
    assert refused.value.error_class is E.AUTH_DENIED
    assert server.count("GET", "/app") == 1


def test_pages_are_followed_to_the_end_and_to_no_other_host(server: GitHubServer) -> None:
    for number in range(250):
        server.say("acme/web", 7, f"comment {number}")
    client = github(server)
    pages = list(client.pages(WEB, COMMENTS))
    assert [len(page) for page in pages] == [100, 100, 50]
    server.script(Act(keep=False, status=302, headers={"Location": "http://localhost:1/x"}))
    with pytest.raises(PermanentFailure, match="another host"):
        client.call(WEB, "GET", PULL)


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("address", ["http://[", "http://a:b:c/", "/\u2028" + "x" * 70_000])
def test_an_answer_that_leads_to_no_address_is_a_failure(
    server: GitHubServer, monkeypatch: pytest.MonkeyPatch, address: str, is_link: bool
) -> None:
    def exchanged(*_: object, **__: object) -> Answer:
        if is_link:
            return Answer(200, httpx.Headers({"link": f'<{address}>; rel="next"'.encode()}), b"[]")
        return Answer(302, httpx.Headers({"location": address.encode()}))

    client = github(server)
    client.token(WEB)
    monkeypatch.setattr("criticizer.codehosts.client.exchange", exchanged)
    with pytest.raises(PermanentFailure, match="to no address"):
        list(client.pages(WEB, COMMENTS))


def test_an_answer_that_is_nested_without_end_leaves_a_comment_uncertain(
    server: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = github(server)
    client.token(WEB)
    nested = Answer(201, httpx.Headers(), b"[" * 1_000_000)
    monkeypatch.setattr("criticizer.codehosts.client.exchange", lambda *_, **__: nested)
    with pytest.raises(UncertainFailure):
        comment(client)
    with pytest.raises(RetryableFailure):
        list(client.pages(WEB, COMMENTS))


def test_a_renamed_repository_is_followed_when_it_is_read(server: GitHubServer) -> None:
    client = github(server)
    client.call(WEB, "GET", PULL)
    server.rename("acme/web", "acme/site")
    known = Repository("acme/web", server.repos["acme/site"].number)
    assert client.call(known, "GET", PULL).content["number"] == 7


def test_no_log_and_no_text_has_a_token_or_the_key(
    server: GitHubServer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    client = github(server)
    for is_long in (True, False):
        server.has_long_tokens = is_long
        server.forward(3600)
        comment(client)
    server.script(*[Act(keep=False, status=401) for _ in range(9)], on=f"POST {COMMENTS}")
    with pytest.raises(PermanentFailure) as refused:
        comment(client)
    written = caplog.text + "".join(capsys.readouterr())
    told = (
        f"{refused.value} {json.dumps(refused.value.context)} {client!r} {client.config!r} {client._tokens!r}"
    )
    signed = next(c.headers["authorization"] for c in server.calls if c.path == MINT).removeprefix("Bearer ")
    secrets = [*server.tokens, signed, private_key().splitlines()[3]]
    assert not [secret for secret in secrets if secret in written or secret in told]
    for secret in (*server.tokens, signed):
        assert secret not in clean(f"Authorization: Bearer {secret}!")


@pytest.mark.parametrize(
    "name", ["acme", "acme/..", "acme/.", "../web", "acme/web/x", "acme/we b", "/web", ""]
)
def test_a_name_that_would_change_the_address_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="owner/name"):
        Repository(name)


def test_the_dependency_is_the_host_and_the_owner() -> None:
    for url, server in (
        ("https://api.github.com", "api.github.com"),
        ("https://ghe.test/api/v3", "ghe.test"),
    ):
        host = GitHubHost(AppConfig("1", [], url))
        assert host.dependency("Acme/web") == f"github:{server}:443:acme"
