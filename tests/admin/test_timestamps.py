"""Times are relative in lists, and exact on pages that are read beside logs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import DateTimeField
from django.test import Client
from django.urls import reverse

from criticizer.admin_site import timestamps
from criticizer.admin_site.base import ReadOnlyAdmin
from criticizer.models import SecurityEvent
from tests import factories
from tests.admin.test_list_rendering import ROWS

NOW = datetime(2026, 11, 21, 17, 30, 5, tzinfo=UTC)
# As Django writes them when nobody says how: "Nov. 21, 2026, 5:30 p.m.", "4 minutes ago", an ISO moment.
STRANGE = re.compile(r">[^<]*(?:[ap]\.m\.|\bminutes? ago|\d{4}-\d\d-\d\dT\d\d)[^<]*<")


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    return client


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (3 * 3600 + 1, "3 h ago"),
        (9 * 86_400, "9 d ago"),
        (-5 * 60, "in 5 min"),
        (-86_400, "in 1 d"),
    ],
)
def test_a_moment_is_told_in_its_largest_unit(
    monkeypatch: pytest.MonkeyPatch, seconds: int, words: str
) -> None:
    monkeypatch.setattr(timestamps, "timezone", SimpleNamespace(now=lambda: NOW))
    shown = timestamps.time_ago(NOW - timedelta(seconds=seconds))
    assert re.sub("<[^>]*>", "", shown) == words
    assert 'title="2026-' in shown


def test_an_exact_moment_is_utc_whatever_its_zone() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert re.sub("<[^>]*>", "", timestamps.timestamp(elsewhere)) == "2026-11-21 17:30:05 UTC"
    assert (timestamps.time_ago(None), timestamps.timestamp(None)) == ("\N{EN DASH}", "\N{EN DASH}")


@pytest.mark.django_db
@pytest.mark.parametrize("model", ROWS, ids=lambda model: model.__name__)
def test_no_list_and_no_page_writes_a_moment_in_another_way(root: Client, model: Any) -> None:
    ROWS[model]()
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    listed = root.get(f"{reverse(f'{name}_changelist')}?by=all").content.decode()
    assert "data-relative" in listed
    row = model.objects.first()
    shown = root.get(reverse(f"{name}_change", args=[admin.utils.quote(row.pk)])).content.decode()
    assert STRANGE.findall(listed) + STRANGE.findall(shown) == []


@pytest.mark.django_db
def test_a_read_only_page_writes_its_moments_exactly(root: Client) -> None:
    event = SecurityEvent.objects.create(kind="path_denied", path="//depot/x", reason="outside")
    made = f"{SecurityEvent.objects.get().created_at:%Y-%m-%d %H:%M:%S} UTC</time>"
    page = root.get(reverse("admin:criticizer_securityevent_change", args=[event.pk])).content.decode()
    assert made in page
    assert "data-relative" not in page


@pytest.mark.parametrize("model", admin.site._registry, ids=lambda model: model._meta.label)
def test_no_list_leaves_a_moment_to_django(rf: Any, model: Any) -> None:
    names = admin.site.get_model_admin(model).get_list_display(rf.get("/"))
    moments_of = {field.name for field in model._meta.get_fields() if isinstance(field, DateTimeField)}
    assert moments_of & {name for name in names if isinstance(name, str)} == set()


def test_only_pages_of_rows_that_exist_are_read_only() -> None:
    keys = next(made for made in admin.site._registry.values() if type(made).__name__ == "ApiKeyAdmin")
    assert isinstance(keys, ReadOnlyAdmin)
    assert keys.get_fieldsets(SimpleNamespace(), None)[0][1]["fields"] == ("name", "role", "prefixes")  # type: ignore[arg-type]
