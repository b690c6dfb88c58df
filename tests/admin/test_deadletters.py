"""The dead-letter console: what an operator reads, and what the actions do to the job."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from criticizer.models import OutboxMessage
from deadletters.models import DeadLetter
from deadletters.states import LetterStatus
from reviews.models import ReviewJob
from tests import factories

pytestmark = pytest.mark.django_db
LIST = "/admin/deadletters/deadletter/"


@pytest.fixture
def ann(client: Client) -> Client:
    user = factories.UserFactory(username="ann", is_staff=True)
    user.groups.add(Group.objects.get(name="operator"))
    client.force_login(user)
    return client


@pytest.fixture
def letter() -> DeadLetter:
    """A fetch that failed for good, as the pipeline leaves it."""
    job = factories.ReviewJobFactory(status="dead_lettered", changelist_id="48190")
    run = factories.StageRunFactory(job=job, stage="fetch", status="failed", error_class="NOT_FOUND")
    factories.AttemptFactory(stage_run=run, outcome="failed", error_class="NOT_FOUND", code="CRITICIZER_E107")
    for stage in ("llm", "notify"):
        factories.StageRunFactory(job=job, stage=stage, status="cancelled")
    found: DeadLetter = factories.DeadLetterFactory(
        job=job,
        code="CRITICIZER_E101",
        error_class="NETWORK_TIMEOUT",
        last_stack="Traceback <b>bold</b>",
        sanitized_context={"attempt": 5, "note": "<script>"},
    )
    factories.DeadLetterEventFactory(letter=found)
    return found


def act(client: Client, action: str, ids: list[int], **fields: str) -> Any:
    body = {"action": action, "_selected_action": ids, **fields}
    return client.post(LIST, body, follow=True)


def messages_of(answer: Any) -> list[str]:
    return [str(message) for message in answer.context["messages"]]


def test_the_letter_shows_what_why_and_what_to_do(ann: Client, letter: DeadLetter) -> None:
    text = ann.get(f"{LIST}{letter.pk}/change/").content.decode()
    for part in (
        "The version control server did not answer in time.",
        "Check the load of the version control server",
        "CRITICIZER_E101",
        "Traceback &lt;b&gt;bold&lt;/b&gt;",
        "&lt;script&gt;",
        "Attempts of this stage",
        "Created",
    ):
        assert part in text


def test_the_list_opens_with_what_is_open(ann: Client, letter: DeadLetter) -> None:
    factories.DeadLetterFactory(status=LetterStatus.DISCARDED)
    shown = {query: ann.get(LIST + query).context["cl"].result_count for query in ("", "?status=all")}
    assert shown == {"": 1, "?status=all": 2}


@pytest.mark.parametrize("action", ["replay", "restart", "discard"])
def test_an_action_asks_first_and_changes_nothing_yet(ann: Client, letter: DeadLetter, action: str) -> None:
    answer = act(ann, action, [letter.pk])
    assert "admin/deadletters/deadletter/confirm.html" in [template.name for template in answer.templates]
    letter.refresh_from_db()
    assert letter.status == LetterStatus.OPEN


def test_no_action_without_a_reason(ann: Client, letter: DeadLetter) -> None:
    answer = act(ann, "discard", [letter.pk], confirmed="yes", reason="  ")
    assert "Say why first." in answer.content.decode()
    letter.refresh_from_db()
    assert letter.status == LetterStatus.OPEN


def test_replay_puts_the_job_back_to_work_and_says_so(ann: Client, letter: DeadLetter) -> None:
    answer = act(ann, "replay", [letter.pk], confirmed="yes", reason="the server is back")
    assert messages_of(answer) == ["1 replayed."]
    letter.refresh_from_db()
    assert letter.status == LetterStatus.REPLAYING
    assert ReviewJob.objects.get(pk=letter.job_id).is_active
    assert OutboxMessage.objects.count() == 1
    event = letter.events.order_by("-id").first()
    assert event is not None
    assert (event.action, event.actor, event.reason) == ("replayed", "ann", "the server is back")


def test_restart_is_recorded_as_one(ann: Client, letter: DeadLetter) -> None:
    assert messages_of(act(ann, "restart", [letter.pk], confirmed="yes", reason="again")) == ["1 restarted."]
    assert letter.events.filter(action="restarted").exists()


def test_the_second_replay_is_skipped_and_says_who_was_first(ann: Client, letter: DeadLetter) -> None:
    act(ann, "replay", [letter.pk], confirmed="yes", reason="first")
    other = factories.DeadLetterFactory()
    answer = act(ann, "discard", [letter.pk, other.pk], confirmed="yes", reason="second")
    (message,) = messages_of(answer)
    assert message.startswith("1 discarded, 1 skipped: already replaying")


def test_a_set_of_letters_gets_one_sum_of_results(ann: Client, letter: DeadLetter) -> None:
    others = [factories.DeadLetterFactory().pk for _ in range(2)]
    gone = max(others) + 1000
    answer = act(ann, "discard", [letter.pk, *others, gone], confirmed="yes", reason="old")
    assert messages_of(answer) == ["3 discarded, 1 skipped: the letter does not exist any more."]


def test_a_reader_sees_letters_but_may_not_act(client: Client, letter: DeadLetter) -> None:
    user = factories.UserFactory(is_staff=True)
    operator = Group.objects.get(name="operator")
    user.user_permissions.set(operator.permissions.exclude(codename="replay_deadletter"))
    client.force_login(user)
    assert "Replay from the failed stage" not in client.get(f"{LIST}{letter.pk}/change/").content.decode()
    act(client, "discard", [letter.pk], confirmed="yes", reason="mine")
    letter.refresh_from_db()
    assert letter.status == LetterStatus.OPEN


def test_reading_never_acts(ann: Client, letter: DeadLetter) -> None:
    ann.get(LIST, {"action": "discard", "_selected_action": letter.pk, "confirmed": "yes", "reason": "no"})
    letter.refresh_from_db()
    assert letter.status == LetterStatus.OPEN


def test_actions_need_the_forms_token(ann: Client, letter: DeadLetter) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = ann.cookies
    answer = strict.post(LIST, {"action": "discard", "_selected_action": letter.pk, "confirmed": "yes"})
    assert answer.status_code == 403
    assert "The form has expired" in answer.content.decode()


def test_letters_are_neither_added_nor_edited_nor_deleted(ann: Client, letter: DeadLetter) -> None:
    change = reverse("admin:deadletters_deadletter_change", args=[letter.pk])
    assert ann.get(f"{LIST}add/").status_code == 403
    assert ann.post(change, {"status": "resolved"}).status_code == 403
    assert ann.post(f"{LIST}{letter.pk}/delete/", {"post": "yes"}).status_code == 403
    text = ann.get(LIST).content.decode()
    assert not re.search(r'value="delete_selected"', text)


def test_closed_letters_offer_no_action(ann: Client) -> None:
    closed = factories.DeadLetterFactory(status=LetterStatus.DISCARDED)
    assert 'name="action"' not in ann.get(f"{LIST}{closed.pk}/change/").content.decode()
