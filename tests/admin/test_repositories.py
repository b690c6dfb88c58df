"""The page of code hosts, its test of a connection, and the pull request on a review's page."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from criticizer.codehosts.registry import HOSTS, secrets_variable, sign_of
from criticizer.models import SecurityEvent
from reviews.admin import connection_test, github_app
from reviews.intake import refusals
from reviews.models import (
    HostChange,
    HostCheck,
    HostDelivery,
    HostInstallation,
    HostRefusal,
    HostVersion,
)
from reviews.sources.pull import pull_request_id
from tests import factories
from tests.fakes.accounts import TOKEN, GiteaServer, GitLabServer
from tests.fakes.closed import closed_port
from tests.fakes.github import APP_ID, HEAD, SLUG, WEBHOOK_SECRET, Act, GitHubServer, private_key
from tests.hosts.kinds import KINDS, SIGNING_KEY, as_bytes, gitlab_event, gitlab_headers
from tests.security.conftest import grow_old

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"
CODE = "abcDEF0123456789"
NEW_APP = "https://github.com/settings/apps/new"


@pytest.fixture
def ann(client: Client) -> Client:
    client.force_login(factories.UserFactory(username="ann", is_staff=True, is_superuser=True))
    return client


def change(host: str = "github", **fields: Any) -> HostChange:
    seen = {
        "repository_id": 5, "number": 7, "full_name": "Acme/Web",
        "changelist_id": pull_request_id(host, "acme/web", 7), "head_sha": HEAD, "base_sha": "",
        "base_ref": "main", "reported_at": timezone.now(),
    }  # fmt: skip
    return HostChange.objects.create(host=host, **{**seen, **fields})


def result_of(client: Client, host: str) -> str:
    page = client.post(f"/admin/repositories/{host}/test/").content.decode()
    found = re.search(r'class="trial" role="status">(.*?)</p>', page, re.DOTALL)
    assert found is not None
    return unescape(re.sub(r"<[^>]+>", "", found[1].replace("<br>", " ")))


def test_the_page_says_what_is_connected_what_came_and_what_fails(ann: Client, settings: Any) -> None:
    settings.GITEA_WEBHOOK_SECRETS = ["a secret that is nowhere shown"]
    HostInstallation.objects.create(host="github", installation_id=3, account="acme", status="suspended")
    HostDelivery.objects.create(host="gitlab", delivery_id="1", event="merge_request.open", ignored=HOSTILE)
    job = factories.ReviewJobFactory()
    version = HostVersion.objects.create(
        change=change(), job=job, head_sha=HEAD, base_sha="", base_ref="main", is_automatic=True
    )
    HostCheck.objects.create(
        version=version, error_class="PERMISSION_DENIED", detail="it lacks checks: write"
    )
    page = ann.get("/admin/repositories/").content.decode()
    for text in (
        "GITHUB_APP_ID and GITHUB_PRIVATE_KEY", "GITEA_URL and GITEA_TOKEN", "suspended", "Acme/Web",
        "1 open", "merge_request.open", "it lacks checks: write", "1 accepted", "//gitlab/ in the allow-list",
        f"{settings.BASE_URL.rstrip('/')}/api/v1/hosts/gitea/webhook/", "pull requests (write)",
    ):  # fmt: skip
        assert text in page, text
    assert HOSTILE not in page
    assert "nowhere shown" not in page


def test_the_app_is_made_by_one_form_that_the_policy_of_this_page_alone_permits(
    ann: Client, settings: Any
) -> None:
    answer = ann.get("/admin/repositories/")
    page = answer.content.decode()
    assert f'<form method="post" action="{NEW_APP}?state=' in page
    found = re.search(r'name="manifest" value="([^"]*)"', page)
    assert found is not None
    manifest = json.loads(unescape(found[1]))
    assert manifest["hook_attributes"]["url"].endswith("/api/v1/hosts/github/webhook/")
    assert manifest["default_permissions"] == {
        "checks": "write", "contents": "read", "metadata": "read", "pull_requests": "write",
    }  # fmt: skip
    assert "pull_request" in manifest["default_events"]
    # No token of ours goes to the other site.
    form = page[page.index(NEW_APP) : page.index("</form>", page.index(NEW_APP))]
    assert "csrf" not in form
    assert f"form-action 'self' {NEW_APP};" in f"{answer['Content-Security-Policy']};"
    assert NEW_APP not in ann.get("/admin/providers/")["Content-Security-Policy"]
    settings.GITHUB_API_URL = "https://ghe.example.com/api/v3"
    settings.DEPOT_ALLOW_LIST = ["//github/acme/website/..."]
    answer = ann.get("/admin/repositories/")
    own, of_acme = "/settings/apps/new", "/organizations/acme/settings/apps/new"
    site = "https://ghe.example.com"
    assert f"form-action 'self' {site}{own} {site}{of_acme};" in f"{answer['Content-Security-Policy']};"
    for way in (own, of_acme):
        assert f'action="{site}{way}?state=' in answer.content.decode()


@pytest.fixture
def github(settings: Any) -> Iterator[GitHubServer]:
    with GitHubServer() as server:
        server.codes.add(CODE)
        settings.GITHUB_API_URL = server.url
        yield server


def returned_to(client: Client) -> str:
    """Return the address that GitHub sends a person back to from its form."""
    page = client.get("/admin/repositories/").content.decode()
    found = re.search(r'/settings/apps/new\?(state=[^"]+)"', page)
    assert found is not None
    return f"/admin/repositories/?code={CODE}&{unescape(found[1])}"


def test_credentials_of_a_new_app_are_shown_once_and_kept_nowhere(
    ann: Client, github: GitHubServer, caplog: pytest.LogCaptureFixture
) -> None:
    address = returned_to(ann)
    assert "Show the App's credentials" in ann.get(address).content.decode()
    assert github.codes
    assert not SecurityEvent.objects.exists()
    answer = ann.post(address)
    page = unescape(answer.content.decode())
    for line in (f"GITHUB_APP_ID={APP_ID}\n", f"GITHUB_APP_SLUG={SLUG}\n", WEBHOOK_SECRET, private_key()):
        assert line in page
    assert "no-store" in answer["Cache-Control"]
    event = SecurityEvent.objects.get()
    assert (event.kind, event.actor) == ("app_credentials", "ann")
    again = ann.post(address).content.decode()
    assert "GitHub does not take this code (it answered 404): it takes each once, within an hour" in again
    for kept in (again, caplog.text, repr(SecurityEvent.objects.values()), repr(dict(ann.session))):
        assert WEBHOOK_SECRET not in kept
        assert "PRIVATE KEY" not in kept
    assert github.faults == []


@pytest.mark.parametrize("state", ["none", "forged", "of another", "old"])
def test_a_code_without_ones_own_fresh_state_is_not_exchanged(
    ann: Client, github: GitHubServer, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    address = returned_to(ann)
    if state == "of another":
        ann.force_login(factories.UserFactory(username="bea", is_staff=True, is_superuser=True))
    elif state == "old":
        monkeypatch.setattr(github_app, "_HOUR", -1)
    else:
        address = f"{address.partition('&')[0]}{'&state=1.x.y' if state == 'forged' else ''}"
    for answer in (ann.get(address), ann.post(address)):
        assert "No form that you sent" in answer.content.decode()
    assert github.calls == []
    assert not SecurityEvent.objects.exists()


@pytest.mark.parametrize("code", ["x", "../../evil" * 3, HOSTILE])
def test_a_code_of_another_form_is_not_exchanged(ann: Client, github: GitHubServer, code: str) -> None:
    state = parse_qs(urlsplit(returned_to(ann)).query)["state"][0]
    address = f"/admin/repositories/?{urlencode({'code': code, 'state': state})}"
    assert HOSTILE not in ann.post(address).content.decode()
    assert github.calls == []


def test_only_those_who_may_change_installations_make_apps(
    ann: Client, client: Client, github: GitHubServer
) -> None:
    address = returned_to(ann)
    olga = factories.staff_client("olga", "operator")
    assert "apps/new" not in olga.get("/admin/repositories/").content.decode()
    assert "new App" not in olga.get(address).content.decode()
    assert olga.post(address).status_code == 403
    assert github.calls == []


def test_an_exchange_that_fails_says_what_to_do_and_can_be_repeated(
    ann: Client, github: GitHubServer
) -> None:
    address = returned_to(ann)
    github.script(Act(keep=False, status=503), on="POST /app-manifests")
    page = ann.post(address).content.decode()
    assert "generate a private key" in page
    assert "PRIVATE KEY" not in page
    assert "PRIVATE KEY" in ann.post(address).content.decode()


def test_credentials_are_shown_after_a_recent_password_only(ann: Client, github: GitHubServer) -> None:
    address = returned_to(ann)
    grow_old(ann)
    way = ann.post(address)["Location"]
    assert parse_qs(urlsplit(way).query)["next"] == [address]
    assert github.calls == []


def test_a_connection_that_works_lacks_something_or_does_not(ann: Client, settings: Any) -> None:
    assert "Set GITHUB_APP_ID" in result_of(ann, "github")
    with GitHubServer() as server:
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        assert "accepts the key" in result_of(ann, "github")
        del server.granted["checks"]
        assert "Missing: permission checks: write." in result_of(ann, "github")
        server.keys.clear()
        assert "AUTH_DENIED" in result_of(ann, "github")
        assert server.faults == []


def test_what_an_app_lacks_is_named_with_what_to_do(ann: Client, settings: Any) -> None:
    with GitHubServer() as server:
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        settings.GITHUB_REPOSITORIES = ["acme/web", "other/*"]
        repo = server.add("Acme/Web")
        assert "accepts the key" in result_of(ann, "github")
        server.accepted = {**server.granted, "pull_requests": "read"}
        said = result_of(ann, "github")
        assert "Missing: permission pull_requests: write on acme/web." in said
        assert "accept the App's new permissions" in said
        server.accepted, server.suspended_at = None, "2026-01-31T12:00:00Z"
        assert "it is suspended. Let the owner resume it" in " ".join(result_of(ann, "github").split())
        server.suspended_at, repo.is_hidden = None, True
        said = result_of(ann, "github")
        assert "the installation does not include it" in said
        assert "Repository access of the installation on acme" in said
        server.owners = {"else"}
        assert "Install the App on acme" in result_of(ann, "github")
        server.owners, repo.is_hidden = {"acme"}, False
        server.deliveries = [
            {"id": 2, "event": "ping", "status_code": 404, "status": "Invalid HTTP Response: 404"}
        ]
        assert "of the last one, ping, GitHub says 404 Invalid HTTP Response" in result_of(ann, "github")
        server.deliveries.insert(0, {"id": 3, "event": "ping", "status_code": 202, "status": "OK"})
        assert "accepts the key" in result_of(ann, "github")
        server.is_installed = False
        assert "the App is installed nowhere" in result_of(ann, "github")
        server.script(Act(keep=False, status=503), on="GET /app/installations")
        assert "UPSTREAM_UNAVAILABLE" in result_of(ann, "github")
        assert server.tokens == {}  # it is asked for and never minted
        assert server.faults == []


def test_without_named_repositories_the_allow_list_says_what_is_asked_for(ann: Client, settings: Any) -> None:
    with GitHubServer() as server:
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        server.owners, server.selection = {"else"}, "selected"
        settings.DEPOT_ALLOW_LIST = ["//depot/...", "//github/acme/website/..."]
        said = " ".join(result_of(ann, "github").split())
        assert "sight of acme/website: the App is not installed on acme. Install the App on acme" in said
        assert "The App is installed on else (selected repositories)." in said
        repo = server.add("acme/website")
        server.owners = {"acme"}
        said = result_of(ann, "github")
        assert "The connection works" in said
        assert "Asked about acme/website." in said
        repo.is_hidden = True
        assert "the installation does not include it" in result_of(ann, "github")
        assert server.tokens == {}
        assert server.faults == []


@pytest.mark.parametrize("by", ["allow-list", "pattern"])
def test_an_owner_without_a_named_repository_is_asked_for_an_installation(
    ann: Client, settings: Any, by: str
) -> None:
    with GitHubServer() as server:
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        settings.DEPOT_ALLOW_LIST = ["//github/acme/...", "//github/*/web/..."]
        settings.GITHUB_REPOSITORIES = ["Acme/*"] if by == "pattern" else []
        said = result_of(ann, "github")
        assert "The connection works" in said
        assert "Asked about no repository" in said
        assert "GITHUB_REPOSITORIES or the allow-list names none" in said
        assert "Asked whether the App is installed on acme; which" in said
        server.accepted = {**server.granted, "checks": "read"}
        assert "Missing: permission checks: write on acme." in result_of(ann, "github")
        server.owners = {"else"}
        assert "Missing: an installation on acme: the App is not installed on acme." in result_of(
            ann, "github"
        )
        assert server.faults == []


def test_a_test_asks_for_few_of_many_repositories(ann: Client, settings: Any) -> None:
    with GitHubServer() as server:
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        names = [f"acme/web{number}" for number in range(40)]
        settings.GITHUB_REPOSITORIES = names
        for name in names:
            server.add(name)
        assert "Asked about 10 of 40 repositories: acme/web" in result_of(ann, "github")
        assert server.count("GET", "/repos/acme/web.*/installation") == connection_test.MAX_TESTED


@pytest.mark.parametrize(("name", "kind"), [("gitea", GiteaServer), ("gitlab", GitLabServer)])
def test_what_an_account_lacks_is_named_with_what_to_do(
    ann: Client, settings: Any, name: str, kind: type[GiteaServer]
) -> None:
    with kind() as server:
        setattr(settings, f"{name.upper()}_URL", server.url)
        setattr(settings, f"{name.upper()}_TOKEN", (TOKEN,))
        setattr(settings, f"{name.upper()}_REPOSITORIES", ["acme/web"])
        repo = server.add("Acme/Web")
        assert "accepts the token" in result_of(ann, name)
        repo.level = "read"
        said = result_of(ann, name)
        assert "Asked about acme/web." in said
        assert f"the account of {name.upper()}_TOKEN may only read it" in said
        assert ("the role Developer" if name == "gitlab" else "write access") in said
        repo.is_hidden = True
        assert "does not see it" in result_of(ann, name)
        assert server.faults == []


@pytest.mark.parametrize("name", KINDS)
def test_a_refused_webhook_is_shown_with_its_reason_until_one_is_accepted(
    ann: Client, settings: Any, name: str
) -> None:
    kind, secrets = KINDS[name], secrets_variable(name)
    body = as_bytes({**kind.event(), "planted": "in the body"})
    good = kind.headers(body, delivery="guid-7")
    wrong = {**good, kind.proof: good[kind.proof][:-4] + "abc="}

    def post(headers: Mapping[str, str], content: bytes = body) -> str:
        refusals.forget()
        sent = dict(headers)
        content_type = sent.pop("Content-Type")
        Client().post(kind.path, content, content_type=content_type, headers=sent)
        return unescape(ann.get("/admin/repositories/").content.decode())

    setattr(settings, secrets, [])
    assert f"Set {secrets} and restart." in post(good)
    setattr(settings, secrets, [kind.secret, "another secret of this host"])
    unsigned = {key: value for key, value in good.items() if key not in (kind.proof, "X-Gitea-Signature")}
    assert "It was not signed" in post(unsigned)
    page = post({**wrong, "X-Gitea-Signature": ""})
    assert f"Set the same secret in the webhook on {HOSTS[name].label} and in {secrets}" in page
    assert "guid-7" in page
    assert "application/json" in post({**good, "Content-Type": "application/x-www-form-urlencoded"})
    listed = kind.headers(b"[]", delivery="guid-8")
    assert "it names the field" in post(listed, b"[]")
    rows = str(list(HostRefusal.objects.values()))
    assert HostRefusal.objects.count() == 5
    assert not [one for one in ("planted", good[kind.proof], wrong[kind.proof]) if one in rows]
    settings.GITHUB_REPOSITORIES = settings.GITEA_REPOSITORIES = settings.GITLAB_REPOSITORIES = ["acme/*"]
    assert "It was not signed" not in post(good)


def test_a_wrong_secret_is_a_problem_of_the_connection(ann: Client, settings: Any) -> None:
    with GitHubServer() as server:
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        HostRefusal.objects.create(host="github", reason="wrong")
        said = result_of(ann, "github")
        assert "Its signature fits no secret. Set the same secret" in " ".join(said.split())


def test_a_gitlab_whose_clock_is_off_is_told_so(ann: Client, settings: Any) -> None:
    settings.GITLAB_WEBHOOK_SECRETS = [SIGNING_KEY]
    body = as_bytes(gitlab_event())
    sent = gitlab_headers(body, at=time.time() - 900)
    refusals.forget()
    answer = Client().post(KINDS["gitlab"].path, body, content_type=sent.pop("Content-Type"), headers=sent)
    assert answer.status_code == 401
    assert "more than five minutes" in ann.get("/admin/repositories/").content.decode()


def test_a_flood_of_refused_webhooks_is_one_write_in_some_seconds(
    settings: Any, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(refusals, "APART_SECONDS", 3600.0)  # however slow this machine is
    settings.GITHUB_WEBHOOK_SECRETS = ["a secret of the tests"]
    refusals.forget()
    client = Client()
    client.post(KINDS["github"].path, b"{}", content_type="application/json")
    with django_assert_num_queries(0):
        for _ in range(50):
            client.post(KINDS["github"].path, b"{}", content_type="application/json")
    assert HostRefusal.objects.count() == 1


@pytest.mark.parametrize(("name", "kind"), [("gitea", GiteaServer), ("gitlab", GitLabServer)])
def test_a_connection_by_token(ann: Client, settings: Any, name: str, kind: type[GiteaServer]) -> None:
    with kind() as server, closed_port() as nowhere:
        setattr(settings, f"{name.upper()}_URL", server.url)
        setattr(settings, f"{name.upper()}_TOKEN", (TOKEN,))
        said = result_of(ann, name)
        assert "accepts the token" in said
        assert f"Asked about no repository: none has sent an event, and {name.upper()}_REPOSITORIES" in said
        assert ("or the allow-list" in said) is (name == "gitea")
        server.accepted.clear()
        said = result_of(ann, name)
        assert "AUTH_DENIED" in said
        assert TOKEN not in said
        setattr(settings, f"{name.upper()}_URL", f"http://127.0.0.1:{nowhere}")
        assert "NETWORK_UNREACHABLE" in result_of(ann, name)
    assert ann.post("/admin/repositories/nowhere/test/").status_code == 404


@pytest.mark.parametrize(
    ("host", "link"),
    [
        ("github", "https://github.com/Acme/Web/pull/7"),
        ("gitea", "https://gitea.example.com/Acme/Web/pulls/7"),
        ("gitlab", "https://gitlab.com/Acme/Web/-/merge_requests/7"),
    ],
)
def test_a_review_shows_its_pull_request_its_head_and_whether_it_can_be_merged(
    ann: Client, settings: Any, host: str, link: str
) -> None:
    settings.GITEA_URL = "https://gitea.example.com"
    job = factories.job_with_stages(changelist_id=pull_request_id(host, "acme/web", 7))
    found = change(host, head_sha="2" * 40, is_mergeable=False)
    HostVersion.objects.create(
        change=found, job=job, head_sha=HEAD, base_sha="", base_ref="main", is_automatic=True
    )
    page = ann.get(f"/reviews/{job.pk}/").content.decode()
    assert f'<a href="{link}" rel="noreferrer">Acme/Web{sign_of(host)}7</a> (open, has conflicts)' in page
    assert HEAD[:12] in page
    assert "newer one" in page
    HostChange.objects.update(head_sha=HEAD, is_mergeable=True)
    page = ann.get(f"/reviews/{job.pk}/").content.decode()
    assert "(open, can be merged)" in page
    assert "newer one" not in page
    HostChange.objects.update(state="draft")
    assert "(draft, can be merged)" in ann.get(f"/reviews/{job.pk}/").content.decode()


@pytest.mark.parametrize("state", ["closed", "merged"])
def test_of_a_pull_request_that_has_ended_nothing_is_said_about_merging(ann: Client, state: str) -> None:
    job = factories.job_with_stages(changelist_id="gitlab:acme/web!7")
    found = change("gitlab", state=state, is_mergeable=True)
    HostVersion.objects.create(
        change=found, job=job, head_sha=HEAD, base_sha="", base_ref="main", is_automatic=True
    )
    assert f"Acme/Web!7</a> ({state})" in ann.get(f"/reviews/{job.pk}/").content.decode()


def test_a_live_update_keeps_the_pull_request_and_follows_it(ann: Client) -> None:
    job = factories.job_with_stages(changelist_id="github:acme/web#7")
    HostVersion.objects.create(
        change=change(), job=job, head_sha=HEAD, base_sha="", base_ref="main", is_automatic=True
    )
    live = f"/reviews/{job.pk}/live/"
    answer = ann.get(live)
    assert "Acme/Web#7</a> (open)" in answer.content.decode()
    have = {"have": answer["X-Live-Have"]}
    assert "review-head" not in ann.get(live, have).content.decode()
    HostChange.objects.update(state="merged")
    assert "Acme/Web#7</a> (merged)" in ann.get(live, have).content.decode()
