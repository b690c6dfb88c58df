"""Circuits in the admin: pages, forcing and releasing, permissions."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.utils import quote as admin_quote
from django.test import Client

from criticizer.db import prepared
from criticizer.models import Circuit, CircuitEvent, OutboxMessage
from criticizer.queue import outbox
from criticizer.resilience import gate, overrides
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.states import CircuitChange, CircuitState
from tests import factories
from tests.admin.test_letters import answer
from tests.core.test_circuit_breaker import calls, parked

pytestmark = pytest.mark.django_db
LIST = "/admin/criticizer/circuit/"
LLM = "llm:openai"


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


@pytest.fixture
def circuit(settings: Any) -> Circuit:
    CHECKS.clear()
    gate.check(LLM)
    return Circuit.objects.get(pk=LLM)


def act(client: Client, action: str, names: list[str], **fields: object) -> Any:
    """Ask for an action; with `fields`, answer its question."""
    question = client.post(LIST, {"action": action, "_selected_action": names}, follow=True)
    return answer(client, question, **fields) if fields else question


def said(answer: Any) -> list[str]:
    return [str(message) for message in answer.context["messages"]]


def test_the_list_shows_state_reason_and_what_waits(ann: Client, circuit: Circuit) -> None:
    calls(0, 10)
    parked(3)
    text = ann.get(LIST).content.decode()
    assert "10 of 10 calls within a minute failed, the last with NETWORK_TIMEOUT" in text
    assert '<td class="field-waiting">3</td>' in text


def test_the_circuit_shows_its_history(ann: Client, circuit: Circuit) -> None:
    calls(0, 10)
    overrides.force(LLM, CircuitState.FORCED_CLOSED, actor="<b>eve</b>", reason="<i>INC-7</i>", seconds=60)
    text = ann.get(f"{LIST}{quote(admin_quote(LLM))}/change/").content.decode()
    for part in ("Forced closed", "Opened", "the breaker", "&lt;b&gt;eve", "&lt;i&gt;INC-7", "Release"):
        assert part in text


def test_forcing_asks_why_and_how_long_first(ann: Client, circuit: Circuit) -> None:
    shown = act(ann, "force_open", [LLM])
    assert "No call is made until the time is over." in shown.content.decode()
    assert not CircuitEvent.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"reason": "", "minutes": 60},
        {"reason": "INC-7", "minutes": ""},
        {"reason": "INC-7", "minutes": 1441},
        {"reason": "INC-7", "minutes": 0},
    ],
)
def test_without_reason_or_end_nothing_is_forced(
    ann: Client, circuit: Circuit, fields: dict[str, object]
) -> None:
    shown = act(ann, "force_open", [LLM], **fields)
    assert "Nothing was changed. Correct these fields and submit again." in shown.content.decode()
    circuit.refresh_from_db()
    assert circuit.state == CircuitState.CLOSED


def test_forced_open_and_released_with_actor_reason_and_end(ann: Client, circuit: Circuit) -> None:
    shown = act(ann, "force_open", [LLM], reason="INC-7", minutes=30)
    assert said(shown) == ["1 forced open."]
    circuit.refresh_from_db()
    assert (circuit.state, circuit.actor, circuit.reason) == (CircuitState.FORCED_OPEN, "ann", "INC-7")
    shown = act(ann, "release", [LLM], reason="over")
    assert said(shown) == ["1 released."]
    events = CircuitEvent.objects.order_by("id").values_list("change", "actor", "reason")
    assert list(events) == [
        (CircuitChange.FORCED_OPEN, "ann", "INC-7"),
        (CircuitChange.RELEASED, "ann", "over"),
    ]


def test_forced_closed_lets_what_waits_go(ann: Client, circuit: Circuit) -> None:
    calls(0, 10)
    parked(2)
    act(ann, "force_closed", [LLM], reason="the breaker is wrong", minutes=5)
    assert not OutboxMessage.objects.exclude(waiting_for="").exists()


def test_releasing_what_is_not_forced_says_so(ann: Client, circuit: Circuit) -> None:
    shown = act(ann, "release", [LLM], reason="why not")
    assert said(shown) == ["0 released, 1 skipped: it is not forced, or does not exist any more."]


@pytest.mark.parametrize("group", ["auditor", "reviewer"])
def test_only_operators_force(ann: Client, circuit: Circuit, group: str) -> None:
    mallory = factories.staff_client("mallory", group)
    question = act(ann, "force_open", [LLM])
    assert "Force open: 1 circuit" in question.content.decode()
    answer(mallory, question, reason="because", minutes=30)
    circuit.refresh_from_db()
    assert circuit.state == CircuitState.CLOSED


def test_rows_have_no_form(ann: Client, circuit: Circuit) -> None:
    address = f"{LIST}{quote(admin_quote(LLM))}/change/"
    assert ann.post(address, {"state": "closed"}).status_code == 403
    assert ann.get(f"{LIST}add/").status_code == 403
    assert ann.post(f"{LIST}{quote(admin_quote(LLM))}/delete/", {"post": "yes"}).status_code == 403


# -- pages, probes and metrics ----------------------------------------------------------------


def test_pages_say_that_the_model_does_not_answer(ann: Client, settings: Any, circuit: Circuit) -> None:
    settings.LLM_PROVIDER, settings.LLM_REQUIRED = "openai", True
    sentence = (
        "The language model is not answering. Reviews wait; they continue automatically when it answers."
    )
    assert sentence not in ann.get("/").content.decode()
    calls(0, 10)
    for address in ("/", "/admin/"):
        assert sentence in ann.get(address).content.decode()
    overrides.force(LLM, CircuitState.FORCED_CLOSED, actor="ann", reason="INC-7", seconds=60)
    assert sentence not in ann.get("/").content.decode()


def test_pages_tell_a_model_that_is_tried_again_from_one_that_is_away(
    ann: Client, settings: Any, circuit: Circuit
) -> None:
    settings.LLM_PROVIDER, settings.LLM_REQUIRED = "openai", True
    calls(0, 10)
    Circuit.objects.update(state=CircuitState.HALF_OPEN)
    page = ann.get("/").content.decode()
    assert "The language model is being tried again. Reviews wait;" in page
    assert "is not answering" not in page


def test_where_the_model_is_not_required_they_say_what_happens_instead(
    ann: Client, settings: Any, circuit: Circuit
) -> None:
    settings.LLM_PROVIDER, settings.LLM_REQUIRED = "openai", False
    calls(0, 10)
    assert "Reviews are made by the deterministic checks alone." in ann.get("/").content.decode()


def test_pages_say_nothing_of_one_webhook_or_of_what_is_not_configured(ann: Client, settings: Any) -> None:
    CHECKS.clear()
    settings.LLM_PROVIDER = "none"
    calls(0, 3, "provider:webhook:dead.example.com")
    calls(0, 10)
    assert "is not answering" not in ann.get("/").content.decode()


def test_strangers_learn_nothing_of_circuits(client: Client, settings: Any, circuit: Circuit) -> None:
    settings.LLM_PROVIDER = "openai"
    calls(0, 10)
    assert "is not answering" not in client.get("/login/").content.decode()


def test_an_open_circuit_is_told_by_readyz_and_is_no_reason_to_restart(
    client: Client, settings: Any, circuit: Circuit
) -> None:
    for queue in outbox.queues():
        factories.WorkerClusterFactory(queue=queue)
    assert client.get("/readyz").json() == {"status": "ok"}
    calls(0, 10)
    calls(0, 3, "provider:webhook:ci.example.com")
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "circuits": {LLM: "open", "provider:webhook:ci.example.com": "open"},
    }
    stranger = client.get("/readyz", REMOTE_ADDR="192.0.2.7")
    assert stranger.json()["circuits"] == {LLM: "open", "provider:webhook": "open"}


def test_metrics_count_states_waiting_messages_and_pauses(client: Client, circuit: Circuit) -> None:
    calls(0, 10)
    gate.check("p4:main:1666")
    parked(4)
    prepared.rows(
        "INSERT INTO paces (name, paused_until) VALUES ('provider:mail', now() + interval '1 hour')"
    )
    text = client.get("/metrics").content.decode()
    for line in (
        'criticizer_circuit_state{dependency="llm:openai"} 2.0',
        'criticizer_circuit_state{dependency="p4:main:1666"} 0.0',
        'criticizer_waiting_messages{dependency="llm:openai"} 4.0',
        'criticizer_paused_seconds{dependency="provider:mail"} 3',
        "criticizer_scrape_success 1.0",
    ):
        assert line in text
