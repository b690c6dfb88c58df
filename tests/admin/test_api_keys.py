"""API keys in the admin: shown once, revoked at once, their digest never seen."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from reviews.intake import api_keys
from reviews.models import ApiKey
from tests import factories

pytestmark = pytest.mark.django_db
LIST = "/admin/reviews/apikey/"


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "security admin")


def test_a_new_key_is_shown_once_and_works(ann: Client) -> None:
    answer = ann.post(f"{LIST}add/", {"name": "ci", "role": "trigger"})
    (key,) = re.findall(r"<code>(crz_[\w-]+)</code>", answer.content.decode())
    assert "no-store" in answer["Cache-Control"]
    row = ApiKey.objects.get()
    assert (row.name, row.role, row.key_sha256) == ("ci", "trigger", api_keys.digest(key))
    for path in (LIST, f"{LIST}{row.pk}/change/", "/admin/"):
        text = ann.get(path).content.decode()
        assert key not in text
        assert row.key_sha256 not in text
    assert key not in str(dict(ann.session.items()))


def test_a_new_key_is_narrowed_to_depot_trees(ann: Client) -> None:
    trees = "//depot/main/...\n\n  //depot/libs/... \n"
    answer = ann.post(f"{LIST}add/", {"name": "ci", "role": "auditor", "prefixes": trees})
    assert "crz_" in answer.content.decode()
    row = ApiKey.objects.get()
    assert (row.role, row.prefixes) == ("auditor", ["//depot/main/...", "//depot/libs/..."])
    assert "//depot/libs/..." in ann.get(f"{LIST}{row.pk}/change/").content.decode()


@pytest.mark.parametrize("trees", ["//depot/main", "-//depot/main/...", "//depot/*/...", "//d/a/...\nx"])
def test_a_line_that_is_no_tree_makes_no_key(ann: Client, trees: str) -> None:
    answer = ann.post(f"{LIST}add/", {"name": "ci", "role": "trigger", "prefixes": trees})
    assert "errorlist" in answer.content.decode()
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("name", ["", " ", "a\x07b", "x" * 65, "taken"])
def test_a_bad_name_makes_no_key(ann: Client, name: str) -> None:
    factories.ApiKeyFactory(name="taken")
    answer = ann.post(f"{LIST}add/", {"name": name, "role": "trigger"})
    assert "errorlist" in answer.content.decode()
    assert ApiKey.objects.count() == 1


def test_revoking_says_what_happened_to_each(ann: Client) -> None:
    chosen = [factories.ApiKeyFactory().pk, factories.ApiKeyFactory().pk]
    body = {"action": "revoke", "_selected_action": chosen[:1]}
    assert "1 revoked." in ann.post(LIST, body, follow=True).content.decode()
    body["_selected_action"] = chosen
    assert "1 revoked, 1 skipped: already revoked." in ann.post(LIST, body, follow=True).content.decode()
    assert not ApiKey.objects.filter(revoked_at=None).exists()


def test_keys_are_neither_edited_nor_deleted(ann: Client) -> None:
    row = factories.ApiKeyFactory(role="reviewer")
    ann.post(f"{LIST}{row.pk}/change/", {"name": row.name, "role": "operator"})
    ann.post(f"{LIST}{row.pk}/delete/", {"post": "yes"})
    row.refresh_from_db()
    assert row.role == "reviewer"
