"""The operators' first page: all that needs them, each with one next step, and the tasks."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils import timezone

from criticizer.models import Circuit, OutboxMessage
from deadletters import batches
from deadletters.models import DeadLetterGroup, LetterEdit, ReplayBatch
from reviews.dashboard import now
from reviews.models import SourcePosition
from reviews.web.navigation import _TASKS
from tests import factories

pytestmark = pytest.mark.django_db
PAGE = "/admin/"


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


def rows(client: Client) -> list[tuple[str, str]]:
    """Return (what, next step) of each row, as the page shows them."""
    text = client.get(PAGE).content.decode()
    found = re.findall(r'<li class="need".*?</li>', text, re.DOTALL)
    return [
        (
            re.sub(r"<[^>]+>", "", re.search(r'need-kind">.*?</a>', row, re.DOTALL)[0].partition(">")[2]),  # type: ignore[index]
            re.search(r'need-action" href="[^"]*">([^<]*)', row)[1],  # type: ignore[index]
        )
        for row in found
    ]


def everything() -> dict[str, Any]:
    letter = factories.DeadLetterFactory(error_class="AUTH_DENIED", stage="llm", detail="the key was refused")
    job = factories.ReviewJobFactory()
    run = factories.StageRunFactory(job=job, stage="llm")
    Circuit.objects.create(
        name="llm:openai", state="open", reason="the server refused the key", changed_at=timezone.now()
    )
    OutboxMessage.objects.create(
        aggregate_type="stage_run", aggregate_id=run.pk, message_type="run_stage", queue="stages",
        waiting_for="llm:openai",
    )  # fmt: skip
    SourcePosition.objects.create(stream="perforce submitted", problem="the ticket has expired")
    factories.DeliveryFactory(status="uncertain")
    batch = batches.draft(
        filter={}, ids=[letter.pk], actor="bea", reason="OPS-1", evidence_note="OPS-1", is_restart=True
    )
    batches.submit(batch.pk, actor="bea")
    other = factories.DeadLetterFactory(error_class="INTERNAL_BUG", stage="fetch")
    LetterEdit.objects.create(
        letter=other, before={}, after={}, reason="OPS-2: wrong name", requested_by="bea"
    )
    return {"job": job, "batch": batch}


def test_everything_that_needs_a_person_stands_there_with_its_next_step(ann: Client) -> None:
    job = everything()["job"]
    found = rows(ann)
    assert found[:2] == [
        ("Dependency open llm:openai", "See the cause"),
        ("Poll fails perforce submitted", "See the source"),
    ]
    assert dict(found[2:]) == {
        "Failure group AUTH_DENIED in stage llm": "Replay when fixed",
        "Failure group INTERNAL_BUG in stage fetch": "Work on it",
        "Uncertain deliveries 1 message may or may not have arrived": "Decide",
        f"Waits for approval Batch {batch_number()}: 1 dead letter": "Open the batch",
        f"Waits for approval Edit of dead letter {LetterEdit.objects.get().letter_id}": "Open the edit",
    }
    text = ann.get(PAGE).content.decode()
    for part in ("the server refused the key", "the ticket has expired", "the key was refused",
                 f"1 waiting, the first until {job.deadline_at:%Y-%m-%d %H:%M}"):  # fmt: skip
        assert part in text, part
    approver = factories.staff_client("abe", "approver")
    assert dict(rows(approver))[f"Waits for approval Batch {batch_number()}: 1 dead letter"] == "Approve"


def batch_number() -> int:
    return ReplayBatch.objects.get().pk


def test_what_is_calm_is_not_listed_and_an_empty_list_teaches(ann: Client) -> None:
    Circuit.objects.create(name="llm:openai", state="closed")
    Circuit.objects.create(name="provider:mail", state="forced_closed", retry_at=timezone.now())
    SourcePosition.objects.create(stream="perforce submitted")
    letter = factories.DeadLetterFactory()
    DeadLetterGroup.objects.filter(pk=letter.group_id).update(status="ignored")
    text = ann.get(PAGE).content.decode()
    assert "Nothing needs you now" in text
    assert "each with its next step" in text
    assert rows(ann) == []


def test_many_of_a_kind_are_bounded_and_lead_to_the_rest(ann: Client) -> None:
    for number in range(now.SHOWN + 3):
        SourcePosition.objects.create(stream=f"git {number}", problem="gone")
    assert len(rows(ann)) == now.SHOWN
    assert "More polls" in ann.get(PAGE).content.decode()


def test_the_number_of_queries_does_not_grow_with_what_is_wrong(
    ann: Client, django_assert_max_num_queries: Any
) -> None:
    everything()
    user = factories.UserFactory(is_superuser=True, is_staff=True)
    for number in range(20):
        factories.DeadLetterFactory(error_class="NETWORK_TIMEOUT", detail=f"host {number}")
        Circuit.objects.create(name=f"provider:webhook:{number}", state="open")
        factories.DeliveryFactory(status="uncertain")
    with django_assert_max_num_queries(14):
        assert now.needs_now(user)


def test_rows_outside_the_viewing_scope_are_left_out() -> None:
    everything()
    kim = factories.staff_client("kim", "operator", reads=False)
    Group.objects.get(name="operator").permissions.remove(Permission.objects.get(codename="view_all_files"))
    assert {what.split(" ")[0] for what, _ in rows(kim)} == {"Dependency", "Poll"}


def test_people_without_a_kind_see_no_such_list() -> None:
    everything()
    assert "Needs you now" not in factories.staff_client("sam", "security admin").get(PAGE).content.decode()


# -- the way in, and the tasks ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "is_staff", "wanted"),
    [("operator", True, "/admin/"), ("operator", False, "/"), ("reviewer", True, "/")],
)
def test_login_leads_operators_to_what_needs_them(role: str, is_staff: bool, wanted: str) -> None:
    factories.staff_client("ann", role)
    User.objects.update(is_staff=is_staff)
    form = {"username": "ann", "password": factories.PASSWORD}
    assert Client().post("/login/", form)["Location"] == wanted
    assert Client().post("/login/?next=/", form)["Location"] == "/"
    factories.DeadLetterFactory()
    assert Client().post("/login/?next=/", form)["Location"] == wanted
    assert Client().post("/login/?next=/subscriptions/", form)["Location"] == "/subscriptions/"


def tasks(client: Client, address: str = PAGE) -> list[str]:
    text = client.get(address).content.decode()
    return re.findall(r">([^<]+)</a></li>", re.search(r'aria-label="Tasks">.*?</nav>', text, re.DOTALL)[0])  # type: ignore[index]


def test_the_tasks_are_those_that_the_user_may_open(ann: Client) -> None:
    assert tasks(ann) == ["Now", "Reviews", "Failures", "Deliveries", "Sources", "System"]
    assert tasks(factories.staff_client("sam", "security admin")) == [
        "Now", "Reviews", "Deliveries", "Sources", "Access",
    ]  # fmt: skip
    text = ann.get(PAGE).content.decode()
    assert "Recent actions" not in text
    assert "nav-sidebar" not in text


@pytest.mark.parametrize(
    ("address", "task", "page"),
    [
        ("/admin/deadletters/replaybatch/", "Failures", "Replay batches"),
        ("/admin/failure-codes/", "Failures", "Failure codes"),
        ("/admin/providers/", "Deliveries", "Providers"),
        ("/admin/reviews/subscriptionevent/", "Deliveries", "Subscriptions"),
        ("/admin/criticizer/circuit/", "System", "Circuits"),
    ],
)
def test_the_open_task_and_its_page_are_marked(ann: Client, address: str, task: str, page: str) -> None:
    text = ann.get(address).content.decode()
    current = re.findall(r'aria-current="(true|page)">([^<]+)</a></li>', text)
    assert ("true", task) in current
    assert ("page", page) in current


@pytest.mark.parametrize(
    ("beside", "page"),
    [
        ("reviews/sourceposition", "repositories"),
        pytest.param("notifications/suppression", "providers", marks=pytest.mark.long),
    ],
)
def test_the_navigation_shows_the_pages_that_open(beside: str, page: str) -> None:
    """Each person has another selection of the permissions."""
    needed = ("view_hostinstallation", "view_all_files", "view_delivery")
    for held in itertools.chain.from_iterable(map(partial(itertools.combinations, needed), range(4))):
        user = factories.UserFactory(username="-".join(held) or "none", is_staff=True)
        names = (*held, f"view_{beside.partition('/')[2]}")
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        client = Client()
        client.force_login(user)
        text = client.get(f"/admin/{beside}/").content.decode()
        opens = client.get(f"/admin/{page}/").status_code == 200
        assert (f'href="/admin/{page}/"' in text) == opens, held


def test_every_table_of_the_admin_belongs_to_one_task() -> None:
    targets = [target for links in _TASKS.values() for _, target in links]
    assert len(set(targets)) == len(targets)
    for model in admin.site._registry:
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        subject = name.removesuffix("event")
        assert name in targets or subject in targets, name


def test_the_edits_of_a_list_are_reached_from_the_list() -> None:
    sam = factories.staff_client("sam", "security admin")
    for table in ("allowlistentry", "viewerscope", "subscription"):
        assert f'href="/admin/reviews/{table}event/"' in sam.get(f"/admin/reviews/{table}/").content.decode()
