"""The page of code hosts, its test of a connection, and the pull request on a review's page."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from reviews.models import HostChange, HostCheck, HostDelivery, HostInstallation, HostVersion
from tests import factories
from tests.fakes.accounts import TOKEN, GiteaServer, GitLabServer
from tests.fakes.closed import closed_port
from tests.fakes.github import APP_ID, HEAD, SLUG, GitHubServer, private_key

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"
NEW_APP = "https://github.com/settings/apps/new"


@pytest.fixture
def ann(client: Client) -> Client:
    client.force_login(factories.UserFactory(username="ann", is_staff=True, is_superuser=True))
    return client


def change(host: str = "github", **fields: Any) -> HostChange:
    seen = {
        "repository_id": 5, "number": 7, "full_name": "Acme/Web", "changelist_id": f"{host}:acme/web#7",
        "head_sha": HEAD, "base_sha": "", "base_ref": "main", "reported_at": timezone.now(),
    }  # fmt: skip
    return HostChange.objects.create(host=host, **{**seen, **fields})


def result_of(client: Client, host: str) -> str:
    page = client.post(f"/admin/repositories/{host}/test/").content.decode()
    found = re.search(r'class="trial" role="status">(.*?)</p>', page, re.DOTALL)
    assert found is not None
    return unescape(re.sub(r"<[^>]+>", "", found[1]))


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
    assert f'<form method="post" action="{NEW_APP}"' in page
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
    policy = ann.get("/admin/repositories/")["Content-Security-Policy"]
    assert "form-action 'self' https://ghe.example.com/settings/apps/new" in policy


def test_what_github_returns_after_that_names_the_exchange(ann: Client) -> None:
    page = ann.get("/admin/repositories/?code=abcDEF0123456789").content.decode()
    assert "https://api.github.com/app-manifests/abcDEF0123456789/conversions" in page
    for wrong in ("x", "../../evil" * 3, HOSTILE):
        assert "conversions" not in ann.get("/admin/repositories/", {"code": wrong}).content.decode()


def test_a_connection_that_works_lacks_something_or_does_not(ann: Client, settings: Any) -> None:
    assert "Set GITHUB_APP_ID" in result_of(ann, "github")
    with GitHubServer() as server:
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        assert "accepts the key" in result_of(ann, "github")
        del server.granted["checks"]
        assert "Missing: permission checks: write" in result_of(ann, "github")
        server.keys.clear()
        assert "AUTH_DENIED" in result_of(ann, "github")
        assert server.faults == []


@pytest.mark.parametrize(("name", "kind"), [("gitea", GiteaServer), ("gitlab", GitLabServer)])
def test_a_connection_by_token(ann: Client, settings: Any, name: str, kind: type[GiteaServer]) -> None:
    with kind() as server, closed_port() as nowhere:
        setattr(settings, f"{name.upper()}_URL", server.url)
        setattr(settings, f"{name.upper()}_TOKEN", (TOKEN,))
        assert "accepts the token" in result_of(ann, name)
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
    job = factories.job_with_stages(changelist_id=f"{host}:acme/web#7")
    found = change(host, head_sha="2" * 40, is_mergeable=False)
    HostVersion.objects.create(
        change=found, job=job, head_sha=HEAD, base_sha="", base_ref="main", is_automatic=True
    )
    page = ann.get(f"/reviews/{job.pk}/").content.decode()
    assert f'<a href="{link}" rel="noreferrer">Acme/Web#7</a> (open, has conflicts)' in page
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
    job = factories.job_with_stages(changelist_id="gitlab:acme/web#7")
    found = change("gitlab", state=state, is_mergeable=True)
    HostVersion.objects.create(
        change=found, job=job, head_sha=HEAD, base_sha="", base_ref="main", is_automatic=True
    )
    assert f"Acme/Web#7</a> ({state})" in ann.get(f"/reviews/{job.pk}/").content.decode()


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
