"""A GitHub App in one click, over sockets from the form to the first webhook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import httpx
import pytest
from django.test import Client

from criticizer.models import SecurityEvent
from reviews.models import ReviewJob
from tests import factories
from tests.fakes.github import APP_ID, SLUG, GitHubServer
from tests.hosts import deliveries

pytestmark = pytest.mark.django_db(transaction=True)
HIDDEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Person:
    """Ann in her browser, which is logged in here and on GitHub."""

    def __init__(self, base_url: str, settings: Any) -> None:
        client = Client()
        client.force_login(factories.UserFactory(username="ann", is_staff=True, is_superuser=True))
        name = settings.SESSION_COOKIE_NAME
        cookies = {name: client.cookies[name].value}
        self.web = httpx.Client(base_url=base_url, cookies=cookies, timeout=30, trust_env=False)

    def reads(self, address: str) -> str:
        answer = self.web.get(address)
        assert answer.status_code == 200, answer.text
        return answer.text

    def presses(self, page: str, address: str) -> str:
        token = HIDDEN.search(page)
        assert token is not None
        answer = self.web.post(address, data={"csrfmiddlewaretoken": token[1]})
        assert answer.status_code == 200, answer.text
        return unescape(answer.text)

    def sends_form(self, page: str, organization: str) -> str:
        """Send an organisation's form to GitHub; return the address to which GitHub redirects."""
        way = f"/organizations/{organization}" if organization else ""
        form = re.search(
            rf'<form method="post" action="([^"]+://[^/"]+{way}/settings/apps/new[^"]*)".*?</form>', page
        )
        assert form is not None
        manifest = re.search(r'name="manifest" value="([^"]*)"', form[0])
        assert manifest is not None
        # Another site: her cookies of ours do not go there.
        answer = httpx.post(unescape(form[1]), data={"manifest": unescape(manifest[1])}, trust_env=False)
        assert answer.status_code == 302, answer.text
        return answer.headers["Location"]


@pytest.fixture
def github(settings: Any, live_server: Any) -> Iterator[GitHubServer]:
    with GitHubServer() as server:
        settings.BASE_URL, settings.GITHUB_API_URL = live_server.url, server.url
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY, settings.GITHUB_WEBHOOK_SECRETS = "", (), []
        settings.GITHUB_REPOSITORIES, settings.DEPOT_ALLOW_LIST = [], ["//github/acme/website/..."]
        yield server


@pytest.fixture
def ann(github: GitHubServer, live_server: Any, settings: Any) -> Iterator[Person]:
    person = Person(live_server.url, settings)
    with person.web:
        yield person


@pytest.mark.parametrize("organization", [pytest.param("", marks=pytest.mark.long), "acme"])
def test_an_app_in_one_click_from_the_form_to_the_first_webhook(
    ann: Person, github: GitHubServer, settings: Any, organization: str
) -> None:
    back = ann.sends_form(ann.reads("/admin/repositories/"), organization)
    ((path, manifest),) = github.manifests
    assert path == (f"/organizations/{organization}" if organization else "") + "/settings/apps/new"
    assert manifest["hook_attributes"]["url"] == f"{settings.BASE_URL}{deliveries.PATH}"
    shown = ann.presses(ann.reads(back), back)
    given = dict(re.findall(r"(GITHUB_\w+)=(\S+)", shown))
    key = re.search(r"-----BEGIN RSA PRIVATE KEY-----.*?-----END RSA PRIVATE KEY-----", shown, re.DOTALL)
    assert key is not None
    assert (given["GITHUB_APP_ID"], given["GITHUB_APP_SLUG"]) == (str(APP_ID), SLUG)
    # She sets them and restarts, installs the App, and tests the connection.
    settings.GITHUB_APP_ID, settings.GITHUB_APP_SLUG = given["GITHUB_APP_ID"], given["GITHUB_APP_SLUG"]
    settings.GITHUB_PRIVATE_KEY = (key[0],)
    settings.GITHUB_WEBHOOK_SECRETS = [given["GITHUB_WEBHOOK_SECRETS"]]
    github.is_installed = False
    page = ann.reads("/admin/repositories/")
    assert "the App is installed nowhere" in ann.presses(page, "/admin/repositories/github/test/")
    github.is_installed = True
    github.add("Acme/Website")
    said = ann.presses(page, "/admin/repositories/github/test/")
    assert "The connection works" in said
    assert "Asked about acme/website." in said
    # GitHub calls the webhook of the manifest, signed with the secret that it gave out.
    body = json.dumps(deliveries.pull_request()).encode()
    sent = deliveries.headers(body, "pull_request", secret=given["GITHUB_WEBHOOK_SECRETS"])
    answer = httpx.post(manifest["hook_attributes"]["url"], content=body, headers=sent, trust_env=False)
    assert answer.status_code == 202, answer.text
    assert ReviewJob.objects.get().changelist_id == "github:acme/website#7"
    assert github.faults == []


def test_a_code_that_github_did_not_give_out_is_named_as_such(ann: Person, github: GitHubServer) -> None:
    back = ann.sends_form(ann.reads("/admin/repositories/"), "")
    made_up = re.sub(r"code=\w+", f"code={'f' * 40}", back)
    said = ann.presses(ann.reads(made_up), made_up)
    assert "GitHub does not take this code (it answered 404)" in said
    assert "only those that it gave out itself" in said
    assert "not installed" not in said
    assert "make the App again here" in said
    assert SecurityEvent.objects.filter(kind="app_credentials").count() == 1
    # The true one is still good.
    assert "GITHUB_APP_ID=" in ann.presses(ann.reads(back), back)
    assert github.faults == []
