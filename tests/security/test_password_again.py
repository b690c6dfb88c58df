"""The password asked again before an action of a list; the chosen rows are not lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings
from django.contrib import admin
from django.db.models import Model
from django.test import Client

from criticizer.models import Circuit
from criticizer.resilience import overrides
from criticizer.resilience.states import CircuitState
from deadletters.models import DeadLetter, DeadLetterGroup, ReplayBatch
from notifications.models import Delivery, Suppression
from reviews.models import AgentTask, ApiKey
from tests import factories
from tests.admin.test_letters import messages_of
from tests.agents.conftest import add_tasks, waiting_job
from tests.factories import PASSWORD
from tests.security.conftest import grow_old

pytestmark = pytest.mark.django_db

LETTERS, GROUPS = "/admin/deadletters/deadletter/", "/admin/deadletters/deadlettergroup/"
NOTICE = "Confirm your password first."
NOTHING_DONE = "Password confirmed. Your action was not performed; please submit it again."


def confirm(client: Client, way: str) -> Any:
    """Give the password at the address `way`; return the page to which that leads."""
    target = parse_qs(urlsplit(way).query)["next"][0]
    return client.post("/reauth/", {"password": PASSWORD, "next": target}, follow=True)


def _letter(status: str = "new", **fields: Any) -> Callable[[], Model]:
    def make() -> Model:
        row: Model = factories.DeadLetterFactory(status=status, **fields)
        return row

    return make


def _verified() -> Model:
    row: Model = factories.DeadLetterFactory(
        status="verifying", verified_by="bob", verified_at=factories._now()
    )
    return row


def _group(status: str = "open") -> Callable[[], Model]:
    def make() -> Model:
        row: Model = factories.DeadLetterGroupFactory(status=status)
        return row

    return make


def _snoozed_group() -> Model:
    row: Model = factories.DeadLetterGroupFactory(snooze_until=factories._now() + timedelta(hours=3))
    return row


def _group_with_letter() -> Model:
    return DeadLetterGroup.objects.get(pk=factories.DeadLetterFactory().group_id)


def _circuit() -> Model:
    return Circuit.objects.create(name="llm:openai")


def _forced_circuit() -> Model:
    row = Circuit.objects.create(name="llm:openai")
    assert overrides.force(row.pk, actor="bob", reason="OPS-1", state=CircuitState.FORCED_OPEN, seconds=600)
    return row


def _in_doubt() -> Model:
    row: Model = factories.DeliveryFactory(status="uncertain", error_class="DELIVERY_UNCERTAIN")
    factories.DeliveryAttemptFactory(delivery=row, outcome="ambiguous")
    return row


def _agent_task() -> Model:
    return add_tasks(waiting_job())[0]


WHY = {"reason": "OPS-1: looked into it"}
# The list's table, its action -> a row that it can change, and what the question asks for.
ACTIONS: dict[tuple[str, str], tuple[Callable[[], Model], dict[str, str]]] = {
    ("deadletters_deadletter", "triage"): (_letter(), {"category": "data"}),
    ("deadletters_deadletter", "remediate"): (_letter("triaged"), {"evidence_note": "the disk was full"}),
    ("deadletters_deadletter", "validate"): (_letter("remediated"), {"override_reason": "tried by hand"}),
    ("deadletters_deadletter", "replay_batch"): (_letter(), WHY),
    ("deadletters_deadletter", "verify"): (_letter("verifying"), {}),
    ("deadletters_deadletter", "resolve"): (_verified, {"resolution": "OPS-1: the key was renewed"}),
    ("deadletters_deadletter", "discard"): (_letter(), WHY),
    ("deadletters_deadletter", "reopen"): (_letter("discarded"), WHY),
    ("deadletters_deadlettergroup", "replay_all"): (_group_with_letter, WHY),
    ("deadletters_deadlettergroup", "acknowledge"): (_group(), WHY),
    ("deadletters_deadlettergroup", "resolve"): (_group(), WHY),
    ("deadletters_deadlettergroup", "ignore"): (_group(), WHY),
    ("deadletters_deadlettergroup", "reopen"): (_group("resolved"), WHY),
    ("deadletters_deadlettergroup", "assign"): (_group(), {"owner": "ann"}),
    ("deadletters_deadlettergroup", "snooze"): (_group(), {"hours": "3", **WHY}),
    ("deadletters_deadlettergroup", "end_snooze"): (_snoozed_group, WHY),
    ("deadletters_deadlettergroup", "annotate"): (_group(), {"note": "look at the disk"}),
    ("notifications_delivery", "decide"): (_in_doubt, {"decision": "confirm", **WHY}),
    ("notifications_suppression", "lift"): (factories.SuppressionFactory, WHY),
    ("criticizer_circuit", "force_open"): (_circuit, {"minutes": "5", **WHY}),
    ("criticizer_circuit", "force_closed"): (_circuit, {"minutes": "5", **WHY}),
    ("criticizer_circuit", "release"): (_forced_circuit, WHY),
    ("reviews_agenttask", "expire"): (_agent_task, WHY),
    ("reviews_agenttask", "offer_again"): (_agent_task, WHY),
}


def choose(client: Client, table: str, action: str, ids: list[Any]) -> Any:
    query = "?by=all" if table.startswith("deadletters") else ""  # closed ones as well
    form = {"action": action, "_selected_action": ids}
    return client.post(f"/admin/{table.replace('_', '/')}/{query}", form)


def answer_of(question: Any, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the address and the form with which a browser answers a question."""
    html = question.content.decode()
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html))
    return f"{question.request['PATH_INFO']}?{question.request['QUERY_STRING']}", {**hidden, **given}


def everything() -> list[list[dict[str, Any]]]:
    """Return all that the actions of these lists may change."""
    kinds: list[type[Model]] = [
        DeadLetter,
        DeadLetterGroup,
        ReplayBatch,
        Delivery,
        Suppression,
        Circuit,
        AgentTask,
    ]
    return [list(kind._default_manager.order_by("pk").values()) for kind in kinds]


def test_no_action_of_a_list_that_asks_is_forgotten_here() -> None:
    lists = {
        name.removeprefix("admin:").removesuffix("_changelist")
        for name, when in settings.REAUTH_VIEWS.items()
        if when == "answer"
    }
    there = {
        (f"{model._meta.app_label}_{model._meta.model_name}", action)
        for model, desk in admin.site._registry.items()
        for action in (*(desk.actions or ()), *(a.name for a in getattr(desk, "bulk_actions", ())))
    }
    assert {(table, action) for table, action in there if table in lists} == set(ACTIONS)


def _one_of_each_list() -> list[Any]:
    """Return all actions, of which `make test` runs the first of each list.

    `make test-all` runs the others too.
    """
    first = dict(reversed(ACTIONS))
    return [
        pytest.param(table, action, marks=() if first[table] == action else pytest.mark.long)
        for table, action in ACTIONS
    ]


@pytest.mark.parametrize(("table", "action"), _one_of_each_list())
def test_an_answer_with_an_old_password_does_nothing_and_the_same_answer_counts_after_it(
    sam: Client, table: str, action: str
) -> None:
    make, given = ACTIONS[table, action]
    address, form = answer_of(choose(sam, table, action, [make().pk]), given)
    before = everything()
    grow_old(sam)
    turned_away = sam.post(address, form)
    assert turned_away["Location"].startswith("/reauth/?next=%2Fadmin%2F")
    assert everything() == before
    page = confirm(sam, turned_away["Location"])
    assert messages_of(page) == [NOTHING_DONE]
    assert everything() == before
    sam.post(address, form)
    assert everything() != before


@pytest.mark.parametrize(("table", "action"), _one_of_each_list())
def test_with_an_old_password_the_question_stands_without_its_form(
    sam: Client, table: str, action: str
) -> None:
    row = ACTIONS[table, action][0]()
    before = everything()
    grow_old(sam)
    question = choose(sam, table, action, [row.pk])
    assert question.status_code == 200
    html = question.content.decode()
    assert NOTICE in html
    assert 'class="ask"' not in html
    assert 'name="selection"' not in html
    assert everything() == before
    page = confirm(sam, question.context["reauth_address"])
    assert page.status_code == 200
    assert messages_of(page) == []  # nothing was sent that could have been done
    assert row.pk in [shown.pk for shown in page.context["cl"].result_list]
    assert NOTICE not in choose(sam, table, action, [row.pk]).content.decode()


@pytest.mark.parametrize("what", ["letters", "groups"])
def test_the_way_back_from_the_password_leads_to_the_chosen_rows(sam: Client, what: str) -> None:
    letters = [factories.DeadLetterFactory(stage=stage) for stage in ("fetch", "llm", "notify")]
    ids = [letter.pk if what == "letters" else letter.group_id for letter in letters]
    table = "deadletters_deadletter" if what == "letters" else "deadletters_deadlettergroup"
    grow_old(sam)
    question = choose(sam, table, "replay_batch" if what == "letters" else "replay_all", ids[:2])
    page = confirm(sam, question.context["reauth_address"])
    assert sorted(row.pk for row in page.context["cl"].result_list) == sorted(ids[:2])


def test_the_way_back_from_the_password_keeps_the_search_of_all_that_matched(sam: Client) -> None:
    wanted = factories.DeadLetterFactory(stage="llm")
    factories.DeadLetterFactory(stage="fetch")
    grow_old(sam)
    form = {"action": "discard", "_selected_action": [wanted.pk], "select_across": "1"}
    question = sam.post(f"{LETTERS}?q=stage%3Allm", form)
    page = confirm(sam, question.context["reauth_address"])
    assert page.request["QUERY_STRING"] == "q=stage%3Allm"
    assert [row.pk for row in page.context["cl"].result_list] == [wanted.pk]


def test_an_action_that_asks_nothing_is_turned_away_and_says_so(sam: Client) -> None:
    key = factories.ApiKeyFactory()
    grow_old(sam)
    form = {"action": "revoke", "_selected_action": [key.pk]}
    page = confirm(sam, sam.post("/admin/reviews/apikey/", form)["Location"])
    assert messages_of(page) == [NOTHING_DONE]
    assert ApiKey.objects.get().revoked_at is None


def test_whoever_only_opened_a_page_is_not_told_that_nothing_was_done(sam: Client) -> None:
    grow_old(sam)
    page = confirm(sam, sam.get("/admin/reviews/apikey/add/")["Location"])
    assert messages_of(page) == []


def test_what_was_turned_away_is_said_where_it_was_and_once(sam: Client) -> None:
    grow_old(sam)
    sent = sam.post("/admin/reviews/apikey/add/", {"name": "ci", "role": "trigger"})
    elsewhere = confirm(sam, "/reauth/?next=/admin/")
    assert messages_of(elsewhere) == []
    assert messages_of(confirm(sam, sent["Location"])) == []


def test_a_draft_asks_for_the_password_before_its_settings_are_typed(sam: Client) -> None:
    letter = factories.DeadLetterFactory()
    sam.post(*answer_of(choose(sam, "deadletters_deadletter", "replay_batch", [letter.pk]), WHY))
    batch = ReplayBatch.objects.get()
    address = f"/admin/deadletters/replaybatch/{batch.pk}/"
    grow_old(sam)
    page = sam.get(f"{address}change/")
    assert NOTICE in page.content.decode()
    assert 'name="evidence_note"' not in page.content.decode()
    turned_away = sam.post(f"{address}submit/", {"row_version": batch.row_version, "do": "submit"})
    page = confirm(sam, turned_away["Location"])
    assert messages_of(page) == [NOTHING_DONE]
    assert 'name="evidence_note"' in page.content.decode()
    assert ReplayBatch.objects.get().status == "draft"
