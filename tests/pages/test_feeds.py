"""Atom feeds of the lists and saved views: their owners, their entries, and their end."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from criticizer.models import SavedView
from reviews.models import ViewerScope
from reviews.web import finding_list
from tests.pages.test_finding_list import SECRET, found
from tests.pages.test_verdicts import client_of, reviewer

pytestmark = pytest.mark.django_db

ATOM = "{http://www.w3.org/2005/Atom}"
LISTS = {"findings": "/findings/", "reviews": "/"}


@pytest.fixture
def bob() -> Client:
    return client_of(reviewer("bob"))


def feed_of(client: Client, name: str = "findings", query: str = "") -> str:
    """Return the address of a list's feed, which is in the head and in the text of the page."""
    text = client.get(f"{LISTS[name]}{query}").content.decode().replace("&amp;", "&")
    addresses = re.findall(rf'href="(/feeds/{name}\.atom\?[^"]*)"', text)
    assert len(addresses) == 2
    assert addresses[0] == addresses[1]
    return addresses[0]


def entries(address: str, **headers: str) -> list[str]:
    """Return the titles of a feed, read without a login."""
    answer = Client().get(address, headers=headers)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/atom+xml; charset=utf-8"
    root = ElementTree.fromstring(answer.content)
    return [str(title.text) for title in root.findall(f"{ATOM}entry/{ATOM}title")]


def test_a_feed_needs_no_login_and_holds_what_the_filter_finds(bob: Client) -> None:
    found("A", severity="critical")
    found("B", author="carol")
    assert entries(feed_of(bob)) == ["High: B", "Critical: A"]
    assert entries(feed_of(bob, query="?severity=critical&after=99999")) == ["Critical: A"]
    assert entries(feed_of(bob, "reviews", "?author=carol")) == ["Change of B"]


def test_a_feed_shows_titles_and_no_code_as_text(bob: Client) -> None:
    title = "<script>\x07 &amp; \u202e\ufffe\uffff"
    row = found(title, message="the message", suggestion="the fix", excerpt=[[1, "+", "the code"]])
    answer = Client().get(feed_of(bob))
    for hidden in ("the message", "the fix", "the code"):
        assert hidden not in answer.content.decode()
    assert entries(feed_of(bob)) == ["High: <script>⟨U+0007⟩ &amp; ⟨U+202E⟩⟨U+FFFE⟩⟨U+FFFF⟩"]
    assert f"/reviews/{row.job_id}/#finding-{row.pk}" in answer.content.decode()


def test_scopes_are_those_of_the_moment() -> None:
    found("A")
    found("B", SECRET)
    dora = client_of(reviewer("dora", "//depot/main/..."))
    findings, reviews = feed_of(dora), feed_of(dora, "reviews")
    assert (entries(findings), entries(reviews)) == (["High: A"], ["Change of A"])
    ViewerScope.objects.all().delete()
    assert (entries(findings), entries(reviews)) == ([], [])


@pytest.mark.parametrize(
    "ended", ["reset", "password", "inactive", "inactive for a while", "role", "deleted"]
)
def test_old_links_close(ended: str) -> None:
    found("A")
    user = reviewer("dora", "//depot/main/...")
    dora = client_of(user)
    other = feed_of(client_of(reviewer("bob")))
    address = feed_of(dora)
    if ended == "reset":
        answer = dora.post("/subscriptions/", {"action": "reset_feeds"}, follow=True)
        assert "Your feed links are closed" in answer.content.decode()
    elif ended == "password":
        user.set_password("a password that mallory does not know")
        user.save()
    elif ended.startswith("inactive"):
        type(user).objects.filter(pk=user.pk).update(is_active=False)
        type(user).objects.filter(pk=user.pk).update(is_active=ended != "inactive")
    elif ended == "role":
        user.groups.remove(*Group.objects.filter(name="reviewer"))
        user.user_permissions.clear()
    else:
        user.delete()
    assert Client().get(address).status_code == 404
    assert entries(other) == ["High: A"]
    if ended == "reset":
        assert entries(feed_of(dora)) == ["High: A"]
        dora.post("/subscriptions/", {"action": "reset_feeds"})
        assert Client().get(address).status_code == 404


def test_links_stay_open_when_an_account_changes_otherwise(bob: Client) -> None:
    address = feed_of(bob)
    user = User.objects.get(username="bob")
    bob.force_login(user)
    user.email = "bob@example.org"
    user.save()
    assert Client().get(address).status_code == 200


def test_an_account_without_an_address_resets_its_links() -> None:
    dora = client_of(reviewer("dora", email=""))
    address = feed_of(dora)
    dora.post("/subscriptions/", {"action": "reset_feeds"})
    assert Client().get(address).status_code == 404


@pytest.mark.parametrize("how", ["none", "forged", "of another", "text", "long"])
def test_forged_keys_are_not_found(bob: Client, how: str) -> None:
    key = parse_qs(urlsplit(feed_of(bob)).query)["key"][0]
    body, _, signature = key.partition(".")
    forged = {
        "none": "",
        "forged": f"{body}.{signature[:-1]}{'A' if signature[-1] != 'A' else 'B'}",
        "of another": f"B{body[1:]}.{signature}",
        "text": "\x01 é",
        "long": "x" * 5000,
    }[how]
    assert Client().get("/feeds/findings.atom", {"key": forged}).status_code == 404
    assert Client().get("/feeds/findings.atom", {"key": key}).status_code == 200


def test_our_logs_leave_the_key_out(bob: Client, caplog: pytest.LogCaptureFixture) -> None:
    address = feed_of(bob)
    key = parse_qs(urlsplit(address).query)["key"][0]
    for suffix in ("", "x", "&severity=nonsense"):  # also of requests that are refused
        Client().get(f"{address}{suffix}")
    assert caplog.text.count("/feeds/findings.atom") >= 3
    assert key not in caplog.text


def test_a_feed_that_is_known_is_not_sent_again(bob: Client) -> None:
    found("A")
    address = feed_of(bob)
    answer = Client().get(address)
    again = Client().get(address, headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    found("B")
    assert entries(address, **{"If-None-Match": answer["ETag"]}) == ["High: B", "High: A"]


def test_a_feed_is_bounded(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        found(f"{number}")
    monkeypatch.setattr(finding_list, "PAGE_SIZE", 3)
    assert entries(feed_of(bob)) == ["High: 3", "High: 2", "High: 1"]


def test_a_search_that_takes_too_long_says_when_to_ask_again(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = feed_of(bob)
    monkeypatch.setattr(finding_list, "finding_page", lambda *_: finding_list.FindingPage(is_cancelled=True))
    monkeypatch.setattr("reviews.web.feeds.finding_page", finding_list.finding_page)
    answer = Client().get(address)
    assert (answer.status_code, answer["Retry-After"]) == (503, "900")


def test_a_filter_that_is_not_valid_is_refused_rather_than_widened(bob: Client) -> None:
    found("A")
    assert Client().get(f"{feed_of(bob)}&severity=nonsense").status_code == 400


# -- saved views ------------------------------------------------------------------------------


def save(client: Client, of: str = "findings", **fields: Any) -> str:
    answer = client.post(f"/views/{of}/", fields, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_view_is_saved_shown_renamed_and_deleted(bob: Client) -> None:
    found("A", severity="critical")
    assert "Save this view" not in bob.get("/findings/").content.decode()
    assert "Save this view" in bob.get("/findings/?severity=critical").content.decode()
    text = save(bob, name="x", query="severity=critical&after=7")
    assert 'href="/findings/?severity=critical" aria-current="page">x</a>' in text
    view = SavedView.objects.get()
    text = save(bob, rename=view.pk, name="worst")
    assert 'href="/findings/?severity=critical">worst</a>' in text
    assert "worst" not in bob.get("/").content.decode()
    assert "View deleted" in save(bob, forget=view.pk)
    assert not SavedView.objects.exists()


def test_a_view_belongs_to_one_person_and_one_list(bob: Client) -> None:
    save(bob, name="worst", query="severity=critical")
    view = SavedView.objects.get()
    dora = client_of(reviewer("dora"))
    assert "worst" not in dora.get("/findings/?severity=critical").content.decode()
    for fields in ({"forget": view.pk}, {"rename": view.pk, "name": "mine"}):
        save(dora, **fields)
        save(bob, "reviews", **fields)
    view.refresh_from_db()
    assert view.name == "worst"


def test_two_views_do_not_get_one_name(bob: Client) -> None:
    save(bob, name="a", query="severity=critical")
    save(bob, name="b", query="severity=high")
    second = SavedView.objects.get(name="b")
    assert "you have a view" in save(bob, rename=second.pk, name="a")
    assert set(SavedView.objects.values_list("name", flat=True)) == {"a", "b"}


@pytest.mark.parametrize("query", ["&".join(f"a{n}=1" for n in range(60)), "x=" + "9" * 2000])
def test_a_monstrous_query_is_no_view_and_breaks_nothing(bob: Client, query: str) -> None:
    assert bob.get(f"/findings/?{query}").status_code == 200
    save(bob, name="x", query=query)
    assert SavedView.objects.filter(query__gt="").count() == 0


def test_a_list_that_does_not_exist_has_no_views(bob: Client) -> None:
    assert bob.post("/views/users/", {"name": "x"}).status_code == 404
