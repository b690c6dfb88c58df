"""The usual attacks on a web application, by name, each through the whole middleware stack."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from criticizer.security.headers import policy
from notifications.recipients import normalise
from reviews.intake import api_keys
from reviews.models import ApiKey
from reviews.sources.allowlist import AllowList
from tests import factories
from tests.factories import PASSWORD
from tests.security.hardened import assert_hardened

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> Client:
    """A superuser whose requests are checked for forgery, as a browser's are."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(factories.UserFactory(username="ann", is_staff=True, is_superuser=True))
    return client


# -- CSRF ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "/login/",
        "/logout/",
        "/reauth/",
        "/admin/login/",
        "/admin/logout/",
        "/admin/password_change/",
        "/admin/deadletters/deadletter/",
        "/admin/reviews/apikey/",
        "/admin/reviews/apikey/add/",
        "/admin/reviews/allowlistentry/add/",
        "/admin/reviews/viewerscope/add/",
        "/admin/criticizer/circuit/",
        "/admin/auth/user/add/",
    ],
)
def test_csrf_a_form_without_its_token_does_nothing(root: Client, address: str) -> None:
    answer = root.post(address, {"name": "evil", "role": "operator", "username": "ann", "password": PASSWORD})
    assert answer.status_code == 403
    assert not ApiKey.objects.exists()
    assert "_auth_user_id" in root.session


def test_csrf_a_token_of_another_session_does_nothing(root: Client) -> None:
    stranger = Client()
    stranger.get("/login/")
    token = stranger.cookies["csrftoken"].value
    answer = root.post("/admin/reviews/apikey/add/", {"name": "evil", "role": "operator"},
                       headers={"X-CSRFToken": token, "Origin": "https://mallory.example"})  # fmt: skip
    assert answer.status_code == 403
    assert not ApiKey.objects.exists()


def test_csrf_a_session_is_no_key_of_the_api(root: Client) -> None:
    answer = root.post("/api/v1/reviews/", {"changelist_id": "1"}, content_type="application/json")
    assert answer.status_code == 401


def test_cookies_are_kept_from_scripts_and_other_sites() -> None:
    user = factories.UserFactory()
    client = Client()
    client.get("/login/")
    client.post("/login/", {"username": user.username, "password": PASSWORD})
    for name in ("sessionid", "csrftoken"):
        assert client.cookies[name]["httponly"]
        assert client.cookies[name]["samesite"] == "Lax"
        assert not client.cookies[name]["domain"]


def test_a_login_begins_a_new_session() -> None:
    user = factories.UserFactory()
    client = Client()
    session = client.session
    session["planted"] = "by mallory"
    session.save()
    before = session.session_key
    client.post("/login/", {"username": user.username, "password": PASSWORD})
    assert client.session.session_key != before


# -- where requests lead -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    ["https://mallory.example/", "//mallory.example/", "/\\mallory.example", "https:mallory.example",
     "javascript:alert(1)", "\thttps://mallory.example/", "http:///mallory.example"],
)  # fmt: skip
@pytest.mark.parametrize("door", ["/login/", "/admin/login/"])
def test_open_redirect_a_login_leads_to_this_host_only(door: str, target: str) -> None:
    user = factories.UserFactory(is_staff=True)
    form = {"username": user.username, "password": PASSWORD, "next": target}
    where = Client().post(door, form)["Location"]
    assert where.startswith("/")
    assert not where.startswith(("//", "/\\"))


@pytest.mark.parametrize(
    "path", ["//mallory.example/reviews", "/api//mallory.example", "/admin//mallory.example/x"]
)
def test_open_redirect_a_missing_slash_leads_to_this_host_only(root: Client, path: str) -> None:
    where = root.get(path).headers.get("Location", "/")
    assert not where.startswith(("//", "/\\", "http"))


@pytest.mark.parametrize(
    "host", ["mallory.example", "127.0.0.1.mallory.example", "127.0.0.1@mallory.example", "", "a b"]
)
@pytest.mark.parametrize("path", ["/login/", "/api/v1/reviews/", "/admin/", "/api/docs/"])
def test_host_header_an_unknown_host_is_refused(host: str, path: str) -> None:
    client = Client(raise_request_exception=False)
    answer = client.get(path, headers={"Host": host, "X-Forwarded-Host": "mallory.example"})
    assert answer.status_code == 400
    assert b"mallory" not in answer.content


def test_host_header_links_come_from_the_configuration(settings: Any) -> None:
    client = Client(headers={"Authorization": f"Bearer {api_keys.create('ci', 'trigger')}"})
    job = factories.job_with_stages()
    answer = client.get(f"/api/v1/reviews/{job.pk}/", headers={"X-Forwarded-Host": "mallory.example"})
    assert answer.json()["links"]["self"].startswith(settings.BASE_URL)


@pytest.mark.parametrize(
    "path",
    ["../settings.py", "%2e%2e/settings.py", "..%2f..%2fmanage.py", "....//manage.py", "%00",
     "..\\..\\manage.py", "/etc/passwd", "%2fetc%2fpasswd", "reviews/../../x.py", "reviews/%252e%252e/x"],
)  # fmt: skip
def test_path_traversal_static_files_stay_in_their_directories(path: str) -> None:
    client = Client(raise_request_exception=False)
    assert client.get(f"/static/{path}").status_code in {301, 302, 308, 400, 404}


@pytest.mark.parametrize("artifact", ["../../etc/passwd", "%2e%2e", "1/../2", "0x1", "-1", "9" * 40])
def test_path_traversal_artifacts_are_numbers(root: Client, artifact: str) -> None:
    assert root.get(f"/admin/reviews/artifact/{artifact}/content/").status_code in {302, 404}


@pytest.mark.parametrize("path", ["//depot/main/../x", "//depot/main//x", "//depot/./x", "//depot/main/..."])
def test_path_traversal_depot_paths_are_refused(path: str) -> None:
    assert not AllowList(["//depot/main/..."]).decide(path).allowed


# -- SSRF, before anything is resolved (the providers' own tests connect) ------------------------


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "gopher://127.0.0.1:6379/_x", "ftp://example.com/", "dict://127.0.0.1/",
     "unix:/tmp/s", "https://user:pass@example.com/", "https://example.com@127.0.0.1/",
     "https://127.0.0.1\\@example.com/",
     "https://example.com/#@127.0.0.1", "https:///x", "https://", "//example.com/", "https://example.com:0/",
     "https://[fe80::1%25eth0]/", "https://exa mple.com/", "https://example.com:99999/", "http://[::1", "http://%31/"],
)  # fmt: skip
def test_ssrf_such_addresses_never_become_recipients(url: str) -> None:
    with pytest.raises(ValueError, match=r"\."):
        normalise(f"webhook:{url}")


# -- bodies, methods, headers --------------------------------------------------------------------


def test_a_body_over_the_bound_is_refused_unread(root: Client) -> None:
    answer = root.post("/login/", {"username": "x" * 1_100_000})
    assert (answer.status_code, "Connection" in answer) == (413, False)


@pytest.mark.parametrize("length", ["-1", "abc", "9" * 30, "1e9"])
def test_a_nonsense_length_is_refused(length: str) -> None:
    client = Client(raise_request_exception=False)
    assert client.post("/login/", {}, CONTENT_LENGTH=length).status_code == 413


def test_methods_that_echo_or_tunnel_are_unknown() -> None:
    client = Client(raise_request_exception=False)
    for method in ("TRACE", "CONNECT", "TRACK"):
        assert client.generic(method, "/login/").status_code in {400, 403, 405}


def test_the_policy_names_no_unsafe_source_and_no_other_host(settings: Any) -> None:
    text = policy()
    assert text.startswith("default-src 'self'")
    assert "unsafe" not in text
    assert "http" not in text
    assert "*" not in text
    assert "form-action 'self'" in text
    assert "base-uri 'none'" in text
    assert "object-src 'none'" in text


def test_the_page_of_roles_is_current() -> None:
    call_command("role_table", check=True)


def test_error_pages_and_probes_carry_the_headers_too(client: Client) -> None:
    client.raise_request_exception = False
    for response in (
        client.get("/livez"),
        client.get("/readyz"),
        client.get("/nowhere/"),
        client.get("/static/reviews/pages.css"),
        client.get("/", headers={"Host": "mallory.example"}),
        client.post("/login/", b"x" * 10, content_type="text/plain", CONTENT_LENGTH=str(2_000_000)),
        client.post("/logout/", headers={"X-CSRFToken": "wrong"}),
    ):
        assert_hardened(response, str(response.status_code))
        response.close()
