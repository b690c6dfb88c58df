"""Hostile values in path, query and form of each address: no server error (G181).

Each address gets some of the hostile values, the next one others. `make test` gives it an eighth as many
as `make test-all`, every second address a key, every fourth action a choice of rows and every third list a
long search: each value and parameter is still tried.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.test import Client
from django.urls import NoReverseMatch, reverse

from reviews.models import ViewerScope
from tests import factories, skips
from tests.security.addresses import addresses, parameters
from tests.security.world import review_rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_remembered_people")]

IDS = (
    "0", "-1", "1", "1.5", "7e3", "None", "2147483648", "9223372036854775808", "9" * 60, "x" * 3000,
    "0b6e7f0e-3f1e-4a8e-9c53-0d5d3a1b2c3d", "%00", "1%00", "%FF", "%C3%A9", "%D9%A3", "_00", "_3A", "a/b",
    "%20", "{{7*7}}", "%27", "..%2F1", "%0A", "%F0%9F%98%80",
)  # fmt: skip
VALUES = (
    "",
    "0",
    "-1",
    "9" * 30,
    "1.5",
    "abc",
    "%00",
    "%FF",
    "%C3%A9",
    "_00",
    "%D9%A3",
    ",",
    "a%2Cb",
    "%27",
    "x" * 2000,
)
DJANGO = (
    "o", "p", "all", "e", "q", "_popup", "_to_field", "_changelist_filters", "_facets", "_saveasnew", "next",
    "id", "id__gt", "id__in", "pk", "job", "job__id", "job__status", "status", "created_at__year",
    "nothing__x__y", "app_label", "model_name", "field_name", "term",
)  # fmt: skip
SEARCHES = (
    "cl:", "age:%3E99999999999d", "letter:" + "9" * 40, "is:x", "-", "%22", "a:b:c", "version:%3E-1",
    "batch:1,x", "number:%D9%A3", "cl:%00", "age:%3C0.0000001s", "%00", "group:9223372036854775808",
)  # fmt: skip


SHARE = 1 if skips.is_all() else 8  # of those values each address gets one in so many
EVERY = 1 if skips.is_all() else 2  # address gets a key that is none, and every other action such rows

LISTS = {
    f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist": desk
    for model, desk in admin.site._registry.items()
}


def own_parameters() -> set[str]:
    """Return the names of the query parameters that the product's code reads."""
    found: set[str] = set()
    for app in ("criticizer", "reviews", "notifications", "deadletters"):
        for module in Path(settings.BASE_DIR, app).rglob("*.py"):
            found |= set(re.findall(r'\.GET(?:\.get\(|\.getlist\(|\[)"(\w+)"', module.read_text()))
    for desk in admin.site._registry.values():
        for one in getattr(desk, "list_filter", ()):
            found.add(getattr(one, "parameter_name", str(one)))
    return found


def filled(name: str, values: list[str]) -> str | None:
    """Return an address with texts as they are in the place of its parameters."""
    marks = [str(98765431 + number) for number in range(len(values))]
    try:
        address = reverse(name, args=marks)
    except NoReverseMatch:
        return None
    for mark, value in zip(marks, values, strict=True):
        address = address.replace(mark, value)
    return address


@pytest.fixture(scope="module")
def rows(module_db: None) -> dict[str, Any]:
    return review_rows("okapi99", "//alt/okapi99.py")


@pytest.fixture(scope="module")
def clients(rows: dict[str, Any]) -> Iterator[Client]:
    """Yield a superuser and a user with one viewing scope, by turns.

    That user has every permission but the one to see all files.
    """
    root = factories.UserFactory(username="root", is_staff=True, is_superuser=True)
    mallory = factories.UserFactory(username="mallory", is_staff=True, reads=False)
    mallory.user_permissions.set(Permission.objects.exclude(codename="view_all_files"))
    group = Group.objects.create(name="alt")
    ViewerScope.objects.create(group=group, prefix="//alt/...", reason="their project")
    mallory.groups.add(group)
    found = []
    for user in (root, mallory):
        found.append(Client(raise_request_exception=False))
        found[-1].force_login(user)
    return itertools.cycle(found)


def pages() -> list[tuple[str, int]]:
    """Return name and number of parameters of every address for people."""
    return [
        (name, len(parameters(pattern)))
        for name, pattern in addresses()
        if not name.startswith("api-") and not name.endswith("None")
    ]


def broken(client: Client, method: str, address: str, form: dict[str, Any] | None = None) -> list[str]:
    """Return the address when it answers with a server error."""
    point = transaction.savepoint()
    try:
        answer = client.post(address, form or {}) if method == "POST" else client.get(address)
    finally:
        transaction.savepoint_rollback(point)
    found = f"{answer.status_code} {method} {address[:160]} {form or ''}"
    return [found] if answer.status_code >= 500 else []


def some(values: Sequence[str], number: int, turn: int) -> list[str]:
    """Return some of the values, others at each turn."""
    number = -(-number // SHARE)
    return [values[(turn * number + one) % len(values)] for one in range(number)]


def test_no_key_in_an_address_breaks_it(clients: Iterator[Client]) -> None:
    failures = []
    for turn, (name, count) in enumerate(pages()[::EVERY]):
        for value in some(IDS, 6, turn) if count else ():
            if address := filled(name, [value] * count):
                failures += broken(next(clients), "GET", address)
        for value in some(IDS, 2, turn) if count else ():
            if address := filled(name, [value] * count):
                failures += broken(next(clients), "POST", address, {"reason": value, "row_version": value})
    assert failures == []


def test_no_query_breaks_a_page(clients: Iterator[Client], rows: dict[str, Any]) -> None:
    failures, lists = [], 0
    own = sorted(own_parameters())
    assert len(own) > 20
    for turn, (name, count) in enumerate(pages()):
        table = next((t for t in rows if name.startswith(f"admin:{t}_")), None)
        if count > 1 or (count and table is None):
            continue
        address = filled(name, [str(rows[table])] if count and table else [])
        assert address is not None
        for value in some(VALUES, 3, turn):
            query = "&".join(f"{one}={value}" for one in own)
            failures += broken(next(clients), "GET", f"{address}?{query}")
        if not name.endswith("_changelist"):
            continue
        lists += 1
        for number, one in enumerate(DJANGO[lists % SHARE :: SHARE]):
            failures += broken(
                next(clients), "GET", f"{address}?{one}={VALUES[(turn + number) % len(VALUES)]}"
            )
        for words in some(SEARCHES, 4, turn):
            failures += broken(next(clients), "GET", f"{address}?q={words}")
    assert failures == []


def test_a_search_of_thousands_of_words_is_refused(clients: Iterator[Client]) -> None:
    """Each word was a condition on each field: one such address took a minute of the processor."""
    root = next(clients)
    for name in list(LISTS)[:: 1 if skips.is_all() else 3]:
        address = reverse(name)
        found = root.get(address, {"q": "a " * 5_000}).content.decode()
        if 'id="searchbar"' in found:
            assert "A search has at most 500 characters." in found, address
        assert root.get(address, {"q": "a" * 499}).status_code == 200


def test_no_choice_of_rows_breaks_a_list(clients: Iterator[Client]) -> None:
    failures = []
    lists = [(name, desk) for name, _ in pages() if (desk := LISTS.get(name))]
    assert len(lists) > 20
    for turn, (name, desk) in enumerate(lists):
        actions = [
            "",
            "nonsense",
            *(desk.actions or ()),
            *(a.name for a in getattr(desk, "bulk_actions", ())),
        ]
        for number, action in enumerate(actions[turn % EVERY**2 :: EVERY**2]):
            for value in some(IDS, 2, turn + number):
                form = {
                    "action": action,
                    "_selected_action": unquote(value),
                    "index": value,
                    "select_across": value,
                }
                failures += broken(next(clients), "POST", reverse(name), form)
                failures += broken(
                    next(clients), "POST", reverse(name), {**form, "selection": unquote(value)}
                )
    assert failures == []
