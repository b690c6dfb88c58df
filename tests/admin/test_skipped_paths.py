"""Skipped paths in the admin: operators edit them, each with a reason and a trace."""

from __future__ import annotations

import pytest
from django.test import Client

from reviews.audit.history import events_of
from reviews.models import SkippedPath
from tests import factories

pytestmark = pytest.mark.django_db
LIST = "/admin/reviews/skippedpath/"
LINE = {"pattern": "//depot/main/docs/...", "reason": "TICKET-7"}


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


def add(client: Client, **changes: object) -> str:
    return client.post(f"{LIST}add/", {**LINE, **changes}, follow=True).content.decode()


def test_an_operator_skips_a_path_and_the_list_says_what_that_means(ann: Client) -> None:
    text = add(ann)
    assert SkippedPath.objects.get().pattern == LINE["pattern"]
    assert "is still reviewed" in text
    assert "changes fetched from now on" in text


@pytest.mark.parametrize(
    "pattern",
    ["", "docs/...", "-//depot/main/docs/...", "//depot/.../docs", "//depot/main/../x", "//depot/a\tb"],
)
def test_a_pattern_in_another_form_is_refused(ann: Client, pattern: str) -> None:
    assert "errorlist" in add(ann, pattern=pattern)
    assert not SkippedPath.objects.exists()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("//depto/main/docs/...", "matches nothing that may be read"),
        ("//depto/main/*/a.md", "matches nothing that may be read"),
        ("//depot/other/a.md", "matches nothing that may be read"),
        ("//depot/main/secret/...", "matches nothing that may be read"),
        ("//depot/...", "keeps every path from the model"),
        ("//depot/main/docs/...", ""),
        ("//depot/main/d*/...", ""),
        ("//depot/main/docs/a.md", ""),
    ],
)
def test_a_pattern_that_skips_nothing_or_everything_is_saved_with_a_warning(
    ann: Client, settings: object, pattern: str, words: str
) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "-//depot/main/secret/..."]  # type: ignore[attr-defined]
    text = add(ann, pattern=pattern)
    assert SkippedPath.objects.get().pattern == pattern
    for warning in ("matches nothing that may be read", "keeps every path from the model"):
        assert (warning in text) == (warning == words)


def test_the_first_include_counts_for_what_is_every_path(ann: Client, settings: object) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//art/..."]  # type: ignore[attr-defined]
    assert "every path" not in add(ann, pattern="//depot/main/...")
    SkippedPath.objects.all().delete()
    factories.AllowListEntryFactory(pattern="//depot/main/tiles/...")
    assert "keeps every path from the model" in add(ann, pattern="//depot/main/...")


def test_the_error_of_a_relative_pattern_offers_no_exclude(ann: Client) -> None:
    text = add(ann, pattern="web/*.png")
    assert "is not a depot path: write //depot/directory/..." in text
    assert "in front to exclude" not in text


@pytest.mark.parametrize("reason", ["", " ", "x"])
def test_every_path_needs_a_reason(ann: Client, reason: str) -> None:
    add(ann, reason=reason)
    assert not SkippedPath.objects.exists()


def test_edits_and_deletions_are_recorded_with_who_and_why(ann: Client) -> None:
    add(ann)
    row = SkippedPath.objects.get()
    address = f"{LIST}{row.pk}/change/"
    changed = {"pattern": "//depot/main/docs/*.md"}
    assert "Enter a new reason" in ann.post(address, {**LINE, **changed}).content.decode()
    ann.post(address, {**changed, "reason": "TICKET-8"})
    history = ann.get(f"{LIST}{row.pk}/history/").content.decode()
    for part in ("Added", "Changed", ">ann<", "//depot/main/docs/... \u2192 //depot/main/docs/*.md"):
        assert part in history
    ann.post(f"{LIST}{row.pk}/delete/", {"post": "yes"})
    assert SkippedPath.objects.exists(), "a deletion needs a reason"
    ann.post(f"{LIST}{row.pk}/delete/", {"post": "yes", "reason": "docs are reviewed again"})
    assert not SkippedPath.objects.exists()
    assert list(events_of(SkippedPath).objects.order_by("pgh_id").values_list("pgh_label", flat=True)) == [
        "insert",
        "update",
        "delete",
    ]
    assert "docs are reviewed again" in ann.get("/admin/reviews/skippedpathevent/").content.decode()


def test_the_allow_list_says_where_a_path_can_be_skipped_instead() -> None:
    security = factories.staff_client("sam", "security admin")
    line = {"kind": "exclude", "pattern": "//depot/main/docs/...", "position": 1, "reason": "TICKET-7"}
    text = security.post("/admin/reviews/allowlistentry/add/", line, follow=True).content.decode()
    assert "Skipped paths" in text


def test_the_explanation_of_a_path_says_that_no_model_reads_it() -> None:
    factories.SkippedPathFactory(pattern="//depot/main/docs/...")
    security = factories.staff_client("sam", "security admin")
    address = "/admin/reviews/allowlistentry/explain/"
    text = security.get(address, {"path": "//depot/main/docs/a.md"}).content.decode()
    assert "on a skipped path, only the checks read it: //depot/main/docs/..." in text
    assert "skipped path" not in security.get(address, {"path": "//depot/main/src/a.c"}).content.decode()


@pytest.mark.parametrize(
    ("pattern", "warns"),
    [("//depot/main/docs", True), ("//depot/main/docs/a.md", False), ("//depot/main/docs/...", False)],
)
def test_a_pattern_that_may_be_meant_for_a_folder_is_saved_with_a_warning(
    ann: Client, pattern: str, warns: bool
) -> None:
    text = add(ann, pattern=pattern)
    assert SkippedPath.objects.get().pattern == pattern
    assert (f"{pattern} names one file. If it is a folder, write {pattern}/... for" in text) == warns
