"""The admin as a whole: read-only tables, bounded lists, roles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse

from criticizer.admin_site import base
from criticizer.models import SecurityEvent
from reviews import roles
from tests import factories
from tests.pages.test_verdicts import client_of, reviewer

pytestmark = pytest.mark.django_db
READ_ONLY = ["reviews.reviewjob", "criticizer.securityevent", "criticizer.workercluster"]


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    return client


def row_of(label: str) -> Any:
    return {
        "reviews.reviewjob": factories.ReviewJobFactory,
        "criticizer.securityevent": factories.SecurityEventFactory,
        "criticizer.workercluster": factories.WorkerClusterFactory,
    }[label]()


@pytest.mark.parametrize("label", READ_ONLY)
def test_even_the_superuser_only_reads_what_the_product_writes(root: Client, label: str) -> None:
    row = row_of(label)
    base = f"admin:{label.replace('.', '_')}"
    change = reverse(f"{base}_change", args=[row.pk])
    assert root.get(reverse(f"{base}_changelist")).status_code == 200
    assert root.get(change).status_code == 200
    assert root.get(reverse(f"{base}_add")).status_code == 403
    assert root.post(change, {}).status_code == 403
    assert root.post(reverse(f"{base}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403


def test_no_admin_module_assigns_a_state() -> None:
    for room in ("criticizer", "reviews", "notifications", "deadletters"):
        path = Path(apps.get_app_config(room).path) / "admin.py"
        if path.exists():
            text = path.read_text()
            assert ".status = " not in text, path
            assert "update(" not in text, path


def test_a_list_counts_at_most_its_bound(
    root: Client, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    monkeypatch.setattr(base, "MAX_COUNTED", 3)
    for _ in range(5):
        factories.SecurityEventFactory()
    with django_assert_max_num_queries(6) as queries:
        answer = root.get("/admin/criticizer/securityevent/")
    assert answer.context["cl"].result_count == 3
    counts = [query["sql"] for query in queries.captured_queries if "COUNT(" in query["sql"]]
    assert len(counts) == 1
    assert "LIMIT 3" in counts[0]
    assert not any("DISTINCT" in query["sql"] for query in queries.captured_queries)


def test_the_number_of_queries_of_the_job_list_does_not_grow(
    root: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(10):
        factories.ReviewJobFactory()
    # The session, the user, the views, the page in its time limit (in a test: a savepoint, and the limits
    # around it), no count, workers and circuits.
    with django_assert_max_num_queries(11):
        root.get("/admin/reviews/reviewjob/")


def test_security_events_are_narrowed_by_kind(root: Client) -> None:
    factories.SecurityEventFactory()
    factories.SecurityEventFactory(kind=SecurityEvent.Kind.AUTH_FAILED)
    answer = root.get("/admin/criticizer/securityevent/?kind=auth_failed")
    assert [row.kind for row in answer.context["cl"].result_list] == ["auth_failed"]


def test_the_job_shows_what_became_of_each_raw_finding(root: Client) -> None:
    job = factories.ReviewJobFactory(status="succeeded")
    run = factories.StageRunFactory(job=job, stage="llm", status="succeeded")
    earlier, newest = (factories.AttemptFactory(stage_run=run, outcome="succeeded") for _ in range(2))
    factories.FindingFateFactory(attempt=earlier, title="Of an earlier attempt")
    shown = factories.FindingFateFactory(attempt=newest, fate="shown", reason="", title="")
    factories.FindingRowFactory(job=job, fate=shown, title="Division by zero")
    factories.FindingFateFactory(
        attempt=newest, fate="merged", merged_into=shown, reason="", title="", line=77
    )
    factories.FindingFateFactory(attempt=newest, title="<b>Refuted</b>", reason="Line 3: So.")
    factories.FindingFateFactory(attempt=newest, fate="dropped", title="Nowhere", reason="unknown_file")
    address = f"/admin/reviews/reviewjob/{job.pk}/change/"
    text = root.get(address).content.decode()
    table = text[text.index("What became of the model's findings") : text.index("<h2>Coverage")]
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in re.findall("<tr>.*?</tr>", table)][1:]
    assert "4 found: 1 shown, 1 merged, 1 refuted, 1 unknown file" in table
    words = [" ".join(row) for row in rows]
    assert [word.partition("pass 1 ")[2] for word in words] == [
        "Shown Division by zero //depot/main/app.py:12",
        "Merged Division by zero //depot/main/app.py:77",
        "Refuted &lt;b&gt;Refuted&lt;/b&gt; //depot/main/app.py:12 Line 3: So.",
        "Dropped Nowhere //depot/main/app.py:12 unknown_file",
    ]
    factories.CoverageRowFactory(job=job, file="//depot/main/app.py")
    answer = client_of(reviewer("dora", "//depot/main/...", is_staff=True)).get(address)
    assert answer.status_code == 200
    assert "What became" not in answer.content.decode()  # their reasons may name any file


def test_the_job_shows_everything_it_has(root: Client) -> None:
    job = factories.ReviewJobFactory(status="dead_lettered")
    run = factories.StageRunFactory(job=job, status="failed")
    factories.AttemptFactory(stage_run=run, outcome="failed", detail="the cable was cut")
    factories.FindingRowFactory(job=job, title="<b>A finding</b>")
    factories.CoverageRowFactory(job=job, file="//depot/main/covered.py")
    factories.DeliveryFactory(job=job, recipient="mail:carol@example.com")
    factories.DeadLetterFactory(job=job)
    text = root.get(f"/admin/reviews/reviewjob/{job.pk}/change/").content.decode()
    for part in (
        "the cable was cut",
        "&lt;b&gt;A finding&lt;/b&gt;",
        "//depot/main/covered.py",
        "mail:carol@example.com",
        "/admin/deadletters/deadletter/",
        f"/reviews/{job.pk}/",
    ):
        assert part in text


@pytest.mark.parametrize(
    "path", ["/admin/reviews/reviewjob/999/change/", "/admin/reviews/reviewjob/x/change/"]
)
def test_a_row_that_is_gone_leads_back(root: Client, path: str) -> None:
    assert root.get(path).status_code == 302


def test_tables_of_the_worker_library_are_not_offered() -> None:
    assert not [model for model in admin.site._registry if model._meta.app_label == "django_q"]


def test_the_roles_are_there_after_migrating_and_repeating_changes_nothing() -> None:
    before = {group.name: group.permissions.count() for group in Group.objects.all()}
    assert {name: len(granted) for name, granted in roles.ROLES.items()} == before
    roles.ensure_roles()
    assert {group.name: group.permissions.count() for group in Group.objects.all()} == before


def test_what_an_installation_added_to_a_role_stays() -> None:
    extra = Permission.objects.get(codename="view_securityevent")
    Group.objects.get(name="operator").permissions.add(extra)
    roles.ensure_roles()
    assert extra in Group.objects.get(name="operator").permissions.all()


def test_a_permission_that_no_model_declares_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(roles.ROLES, "reviewer", ("reviews.view_nothing",))
    with pytest.raises(LookupError, match="view_nothing"):
        roles.ensure_roles()


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("reviewer", ["reviews.reviewjob"], ["deadletters.deadletter", "reviews.apikey"]),
        ("operator", ["deadletters.deadletter", "criticizer.workercluster"], ["reviews.allowlistentry"]),
        ("security admin", ["reviews.apikey", "criticizer.securityevent"], ["deadletters.deadletter"]),
    ],
)
def test_a_role_opens_its_own_tables_and_no_others(
    client: Client, role: str, may: list[str], may_not: list[str]
) -> None:
    user = factories.UserFactory(is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client.force_login(user)
    answers = {
        label: client.get(reverse(f"admin:{label.replace('.', '_')}_changelist")).status_code
        for label in (*may, *may_not)
    }
    assert answers == {**dict.fromkeys(may, 200), **dict.fromkeys(may_not, 403)}


def test_a_late_heartbeat_is_shown_as_silent(root: Client) -> None:
    factories.WorkerClusterFactory()
    factories.WorkerClusterFactory(beat_at="2026-01-01T00:00:00Z")
    text = root.get("/admin/criticizer/workercluster/").content.decode()
    assert ">Alive<" in text
    assert ">Silent<" in text
