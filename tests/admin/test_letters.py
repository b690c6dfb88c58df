"""The page of one dead letter and the actions on many: what is shown, asked, done and said."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from criticizer.models import OutboxMessage
from criticizer.security import reauthentication
from deadletters import workflow
from deadletters.admin import letter_page
from deadletters.admin import letters as letters_admin
from deadletters.admin.letter_advice import named_in
from deadletters.models import DeadLetter, ReplayBatch
from deadletters.states import LetterStatus
from reviews.config import record_violation
from reviews.models import ReviewJob, ViewerScope
from reviews.sources.enforcement import SecurityViolation
from tests import factories

pytestmark = pytest.mark.django_db
LIST = "/admin/deadletters/deadletter/"


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


@pytest.fixture
def letter() -> DeadLetter:
    """A fetch that failed for good, as the pipeline leaves it."""
    return make_letter()


def make_letter(**fields: Any) -> DeadLetter:
    job = factories.ReviewJobFactory(status="dead_lettered")
    run = factories.StageRunFactory(job=job, stage="fetch", status="failed", error_class="NETWORK_TIMEOUT")
    factories.AttemptFactory(stage_run=run, outcome="failed", error_class="NETWORK_TIMEOUT")
    for stage in ("llm", "notify"):
        factories.StageRunFactory(job=job, stage=stage, status="cancelled")
    given = {
        "job": job,
        "code": "CRITICIZER_E101",
        "error_class": "NETWORK_TIMEOUT",
        "last_stack": "Traceback <b>bold</b>",
        "sanitized_context": {"attempt": 5, "note": "<script>"},
        **fields,
    }
    found: DeadLetter = factories.DeadLetterFactory(**given)
    factories.DeadLetterEventFactory(letter=found)
    return found


def page(client: Client, letter: DeadLetter, query: str = "") -> str:
    return str(client.get(f"{LIST}{letter.pk}/change/{query}").content.decode())


def step(client: Client, letter: DeadLetter, name: str, **fields: Any) -> Any:
    """Send a step's form as the page of the letter shows it now."""
    now = DeadLetter.objects.get(pk=letter.pk)
    last = now.events.order_by("-id").first()
    body = {"row_version": now.row_version, "seen": last.pk if last else 0, **fields}
    return client.post(f"{LIST}{letter.pk}/{name}/", body, follow=True)


def ask(client: Client, action: str, ids: list[int], **fields: Any) -> Any:
    return client.post(LIST, {"action": action, "_selected_action": ids, **fields}, follow=True)


def answer(client: Client, question: Any, **fields: Any) -> Any:
    """Answer the question of `ask` with a form."""
    html = question.content.decode()
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html))
    query = question.request["QUERY_STRING"]
    return client.post(f"{question.request['PATH_INFO']}?{query}", {**hidden, **fields}, follow=True)


def messages_of(response: Any) -> list[str]:
    return [re.sub("<[^>]*>", "", str(message)) for message in response.context["messages"]]


def status_of(letter: DeadLetter) -> str:
    return str(DeadLetter.objects.get(pk=letter.pk).status)


def validated(letter: DeadLetter) -> None:
    """Take a letter through the steps before its replay, as somebody else did earlier."""
    workflow.triage(letter.pk, actor="bob", category="transient")
    workflow.remediate(letter.pk, actor="bob", evidence_note="the server is back")
    workflow.validate(letter.pk, actor="bob", override_reason="tried by hand")
    assert status_of(letter) == "validated"


# -- reading -----------------------------------------------------------------------------------


def test_the_letter_shows_what_why_and_what_to_do(ann: Client, letter: DeadLetter) -> None:
    text = page(ann, letter)
    for part in (
        "The version control server did not answer in time.",
        "Check the load of the version control server",
        "CRITICIZER_E101",
        "Traceback &lt;b&gt;bold&lt;/b&gt;",
        "&lt;script&gt;",
        "Attempts of this stage",
        "Now: Triage",
        "Stored until",
        f"/admin/reviews/reviewjob/{letter.job_id}/change/",
        f"/admin/deadletters/deadlettergroup/{letter.group_id}/change/",
    ):
        assert part in text
    assert "<b>bold" not in text


@pytest.mark.long
def test_a_letter_leads_to_the_form_that_replays_all_of_its_cause(
    ann: Client, letter: DeadLetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = f'href="/admin/deadletters/deadlettergroup/{letter.group_id}/change/#fixed-title"'
    text = page(ann, letter)
    assert "Only this dead letter has this cause." in text
    assert f"{form}>Replay it with one form</a>" in text
    others = [make_letter() for _ in range(2)]
    assert {other.group_id for other in others} == {letter.group_id}
    text = page(ann, letter)
    assert text.index("3 dead letters have this cause.") < text.index("Now: Triage")
    assert f"{form}>Replay all 3 together</a>" in text
    monkeypatch.setattr(letter_page, "MAX_TOGETHER", 2)
    text = page(ann, letter)
    assert "2 or more dead letters have this cause." in text
    assert f"{form}>Replay all together</a>" in text
    group = ann.get(f"/admin/deadletters/deadlettergroup/{letter.group_id}/change/").content.decode()
    assert 'id="fixed-title"' in group
    assert "The cause is fixed: replay 3</button>" in group


@pytest.mark.parametrize("why", ["data defect", "closed", "no permission"])
def test_a_letter_that_the_form_of_its_group_leaves_out_does_not_lead_there(
    ann: Client, letter: DeadLetter, why: str
) -> None:
    make_letter()
    reader = ann
    if why == "data defect":
        workflow.triage(letter.pk, actor="bob", category="data")
    elif why == "closed":
        workflow.discard(letter.pk, actor="bob", reason="not needed any more")
    else:
        reader = factories.staff_client("carol", "auditor")
    text = page(reader, letter)
    assert f"Dead letter {letter.pk}" in text
    assert "#fixed-title" not in text


def test_the_list_opens_with_what_is_open(ann: Client, letter: DeadLetter) -> None:
    factories.DeadLetterFactory(status=LetterStatus.DISCARDED)
    queries = ("", "?by=all", "?q=state:discarded")
    shown = [len(ann.get(LIST + query).context["cl"].result_list) for query in queries]
    assert shown == [1, 2, 1]


@pytest.mark.parametrize(
    ("search", "shown"),
    [
        ("cl:109", 2),
        ("109", 2),
        ("job:{job}", 2),
        ("letter:{letter}", 1),
        ("cl:109 is:open", 1),
        ("group:{group}", 1),  # as the group's page leads to its open ones
        ("-cl:110", 1),
        ("error:NETWORK_TIMEOUT", 1),
        ("cl:109&by=open", 1),
    ],
)
def test_a_search_that_names_a_letter_finds_it_closed_or_not(ann: Client, search: str, shown: int) -> None:
    job = factories.ReviewJobFactory(changelist_id="109", status="dead_lettered")
    opened = make_letter(job=job)
    closed = make_letter(job=job, status="discarded", stage="llm", group=opened.group)
    query = search.format(job=job.pk, letter=closed.pk, group=opened.group_id)
    assert len(ann.get(f"{LIST}?q={query}").context["cl"].result_list) == shown


@pytest.mark.long
def test_a_search_among_the_open_ones_leads_to_the_closed_ones(ann: Client) -> None:
    closed = make_letter(status="discarded")
    page = ann.get(f"{LIST}?q=group:{closed.group_id}").content.decode()
    (link,) = re.findall(r'No open dead letters. <a href="([^"]*)">Search the closed ones too</a>', page)
    found = ann.get(LIST + link.replace("&amp;", "&")).context["cl"].result_list
    assert [row.pk for row in found] == [closed.pk]
    assert 'No open dead letters. <a href="?by=all">Show all</a>' in ann.get(LIST).content.decode()
    for query in ("?q=stat:new", "?q=cl:1", "?by=all&q=code:x"):  # unreadable, or among all already
        assert "No open dead letters" not in ann.get(LIST + query).content.decode()


@pytest.mark.long
def test_the_order_of_a_search_by_name_leads_back_to_the_open_ones(ann: Client, letter: DeadLetter) -> None:
    orders = ann.get(f"{LIST}?q=state:discarded").context["cl"].orders
    (back,) = [address for title, address, _ in orders if title.startswith("Open")]
    assert ann.get(LIST + back).context["cl"].ordering_name == "open"


def test_words_find_letters_by_what_their_failure_says(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = factories.DeadLetterGroupFactory(
        error_class="AUTH_DENIED", normalized_message="the model refused the key"
    )
    letter = make_letter(group=refused, job=factories.ReviewJobFactory(changelist_id="777"))
    other = make_letter(
        group=factories.DeadLetterGroupFactory(
            error_class="NOT_FOUND", normalized_message="the key of the door"
        )
    )

    def found(search: str) -> list[int]:
        return sorted(row.pk for row in ann.get(f"{LIST}?q={search}").context["cl"].result_list)

    assert found("refused") == found('"model" refus') == [letter.pk]
    assert found("key") == [letter.pk, other.pk]
    assert found("-refused") == [other.pk]
    assert found("key 777") == [letter.pk]
    assert found("nothing") == []
    monkeypatch.setattr(letters_admin, "MAX_GROUPS", 1)
    response = ann.get(f"{LIST}?q=key")
    assert "More than 1 groups of failures contain these words" in messages_of(response)[0]
    assert not response.context["cl"].result_list


def test_a_letter_has_a_number_in_its_name_and_says_of_which_review_it_is(
    ann: Client, letter: DeadLetter
) -> None:
    text = page(ann, letter)
    assert f"<h1>Dead letter {letter.pk}: NETWORK_TIMEOUT in stage fetch</h1>" in text
    assert f"<title>Dead letter {letter.pk}: NETWORK_TIMEOUT in stage fetch" in text
    assert f'Review <a class="path" href="/reviews/{letter.job_id}/">{letter.job}</a>' in text


def test_the_list_has_the_exact_moment_of_the_failure(ann: Client) -> None:
    letter = make_letter(failed_replay_count=2)
    moment = f"{letter.last_failure_at:%Y-%m-%d %H:%M:%S}"
    assert re.search(
        f'title="{moment} UTC" data-relative>[^<]*</time>, 2 failed replays', ann.get(LIST).content.decode()
    )


def test_a_discarded_letter_says_so_first_and_advises_nothing(ann: Client, letter: DeadLetter) -> None:
    assert "Check the load of the version control server" in page(ann, letter)
    workflow.discard(letter.pk, actor="ann", reason="OPS-9: the branch is gone")
    text = re.sub("<[^>]*>", "", page(ann, letter))
    assert re.search(r"Discarded by ann\s+\d+ s ago: OPS-9: the branch is gone", text)
    assert text.index("OPS-9: the branch is gone") < text.index("The version control server did not answer")
    assert "Check the load of the version control server" not in text
    assert "It is archived then, and can be restored." in text


def test_a_resolved_letter_says_how_it_ended(ann: Client) -> None:
    letter = make_letter(status="resolved", is_escalated=True)
    text = re.sub("<[^>]*>", "", page(ann, letter))
    assert f"Resolved by {letter.resolved_by}" in text
    assert f": {letter.resolution}" in text
    assert "fix the cause first" not in text


def test_who_looks_for_a_letter_that_never_was_is_told_so(ann: Client) -> None:
    response = ann.get(f"{LIST}987654/change/", follow=True)
    assert messages_of(response) == [
        "That dead letter does not exist any more. It is not in the archive either."
    ]


@pytest.mark.parametrize(
    ("status", "now", "done"),
    [
        ("new", "triage", 0),
        ("triaged", "remediate", 1),
        ("remediated", "validate", 2),
        ("validated", "replay", 3),
        ("replaying", "replay", 3),
        ("verifying", "verify", 4),
        ("resolved", "", 6),
        ("discarded", "", 0),
    ],
)
def test_the_steps_show_how_far_the_letter_is(ann: Client, status: str, now: str, done: int) -> None:
    steps = ann.get(f"{LIST}{make_letter(status=status).pk}/change/").context["steps"]
    assert [step.name for step in steps if step.state == "now"] == ([now] if now else [])
    assert sum(step.state == "done" for step in steps) == done
    assert len(steps) == 6


def test_a_verified_letter_asks_for_its_resolution(ann: Client) -> None:
    letter = make_letter(status="verifying", verified_by="ann", verified_at=timezone.now())
    assert "Now: Resolve" in page(ann, letter)


@pytest.mark.long
def test_letters_to_be_verified_and_letters_to_be_resolved_are_told_apart(ann: Client) -> None:
    waiting = make_letter(status="verifying")
    verified = make_letter(status="verifying", verified_by="ann", verified_at=timezone.now())
    make_letter()
    make_letter(status="resolved")
    desk = ann.get(LIST).context["cl"].model_admin
    found = {}
    for title in ("To verify", "To resolve"):
        response = ann.get(f"{LIST}?{desk.starting_views[title]}")
        chips = re.findall(r'data-state="(verif[a-z]+)">([A-Za-z ]+)<', response.content.decode())
        found[title] = ([row.pk for row in response.context["cl"].result_list], chips)
    assert found == {
        "To verify": ([waiting.pk], [("verifying", "To be verified")]),
        "To resolve": ([verified.pk], [("verified", "Verified")]),
    }
    assert "The dead letter is verified." in page(ann, verified)
    assert '<span class="state" data-state="verified">Verified</span>' in page(ann, verified)
    assert '<span class="state" data-state="verifying">To be verified</span>' in page(ann, waiting)
    assert "it is already verified" in messages_of(step(ann, verified, "triage", category="data"))[0]


@pytest.mark.long
def test_the_history_is_paged(ann: Client, letter: DeadLetter) -> None:
    for number in range(120):
        factories.DeadLetterEventFactory(letter=letter, reason=f"event {number:03d}")
    first = ann.get(f"{LIST}{letter.pk}/change/")
    assert len(first.context["events"]) == 50
    second = ann.get(f"{LIST}{letter.pk}/change/?events_before={first.context['events_before']}")
    assert second.context["events"][0].reason == "event 069"
    last = ann.get(f"{LIST}{letter.pk}/change/?events_before={second.context['events_before']}")
    assert (len(last.context["events"]), last.context["events_before"]) == (21, None)


@pytest.mark.parametrize("query", ["?events_before=x", "?events_before=-1", "?redo=replay", "?redo=\u0661"])
def test_a_strange_address_shows_the_letter_as_it_is(ann: Client, letter: DeadLetter, query: str) -> None:
    assert "Now: Triage" in page(ann, letter, query)


def test_the_countdown_warns_of_letters_that_nobody_works_on(ann: Client, settings: Any) -> None:
    settings.DLQ_MAX_AGE_DAYS = 7
    old = make_letter(last_failure_at=timezone.now() - timedelta(days=6, hours=12))
    assert "expiry soon" in page(ann, old)
    workflow.triage(old.pk, actor="ann", category="data")
    worked_on = page(ann, old)
    assert "It is not archived while it is being worked on." in worked_on
    assert '<dd class="whole"><span class="expiry">' in worked_on  # a letter that stays has no date
    escalated = page(ann, make_letter(is_escalated=True, last_failure_at=old.last_failure_at))
    assert "It is escalated: it is not archived before it is resolved or discarded." in escalated
    assert '<dd class="whole"><span class="expiry">' in escalated


def test_the_countdown_promises_no_alert_of_each_letter(ann: Client) -> None:
    text = page(ann, make_letter())
    assert "It is archived then, and can be restored. Alerts count such dead letters" in text
    assert "with an alert" not in text


# -- the steps -----------------------------------------------------------------------------------


def test_the_class_suggests_the_category(ann: Client, letter: DeadLetter) -> None:
    form = ann.get(f"{LIST}{letter.pk}/change/").context["form"]
    assert form.initial["category"] == "transient"


def test_the_whole_way_in_the_admin(ann: Client, letter: DeadLetter) -> None:
    said = [messages_of(step(ann, letter, "triage", category="transient", note="p4 was down"))]
    said += [messages_of(step(ann, letter, "remediate", evidence_link="https://t.example.com/OPS-7"))]
    first = step(ann, letter, "validate")
    if status_of(letter) == "remediated":  # no Perforce server answers in this test
        assert "Override and continue" in first.content.decode()
        step(ann, letter, "validate", do="override", override_reason="p4 was asked by hand")
    assert status_of(letter) == "validated"
    said += [messages_of(step(ann, letter, "replay", start="stage", reason="the server is back"))]
    assert said == [
        ["Triaged as transient."],
        ["Remediation recorded."],
        ["Replayed from stage fetch. Follow the job."],
    ]
    assert status_of(letter) == "replaying"
    assert ReviewJob.objects.get(pk=letter.job_id).is_active
    assert OutboxMessage.objects.filter(aggregate_type="stage_run").count() == 1
    event = letter.events.order_by("-id").first()
    assert event is not None
    assert (event.action, event.actor, event.reason) == ("replayed", "ann", "the server is back")
    assert "The job is running." in page(ann, letter)


def test_a_restart_is_an_explicit_choice_and_recorded_as_one(ann: Client, letter: DeadLetter) -> None:
    validated(letter)
    form = ann.get(f"{LIST}{letter.pk}/change/").context["form"]
    assert form["start"].value() == "stage"
    step(ann, letter, "replay", start="restart", reason="the change was amended")
    assert letter.events.filter(action="restarted").exists()


@pytest.mark.parametrize(
    ("status", "name", "fields", "words"),
    [
        ("new", "triage", {}, "Choose a category."),
        ("new", "triage", {"category": "weather"}, "Select a valid choice"),
        ("triaged", "remediate", {}, "Enter a link to a ticket, or what was done."),
        ("triaged", "remediate", {"evidence_link": "javascript:alert(1)"}, "Enter a valid URL."),
        ("validated", "replay", {"start": "stage", "reason": " "}, "A reason is required."),
        ("validated", "replay", {"reason": "because"}, "This field is required."),
    ],
)
def test_a_form_that_is_not_filled_in_changes_nothing_and_says_where(
    ann: Client, status: str, name: str, fields: dict[str, str], words: str
) -> None:
    letter = make_letter(status=status)
    text = step(ann, letter, name, **fields).content.decode()
    assert "Nothing was changed." in text
    assert words in text
    assert re.search(r'<a href="#id_\w+">', text)
    assert status_of(letter) == status


@pytest.mark.parametrize("name", ["remediate", "validate", "replay", "verify", "resolve"])
def test_no_step_can_be_skipped_by_its_address(ann: Client, letter: DeadLetter, name: str) -> None:
    step(ann, letter, name, evidence_note="done", start="stage", reason="now", resolution="over")
    assert status_of(letter) == "new"
    assert letter.events.filter(action="refused", actor="ann").exists()


def test_a_step_can_be_taken_again_and_the_later_ones_are_asked_for_anew(
    ann: Client, letter: DeadLetter
) -> None:
    validated(letter)
    assert "Now: Triage" in page(ann, letter, "?redo=triage")
    assert messages_of(step(ann, letter, "triage", category="data")) == ["Triaged as data."]
    assert status_of(letter) == "triaged"


def test_a_letter_that_changed_meanwhile_refuses_and_says_who_changed_what(
    ann: Client, letter: DeadLetter
) -> None:
    last = letter.events.order_by("-id").first()
    looked_at = {"row_version": letter.row_version, "seen": last.pk if last else 0}
    workflow.triage(letter.pk, actor="bob", category="data", note="the branch is gone")
    response = ann.post(f"{LIST}{letter.pk}/triage/", {**looked_at, "category": "transient"})
    text = response.content.decode()
    assert response.status_code == 409
    assert "changed while you were editing. Your change was not saved." in text
    assert "Triaged by bob" in text
    assert "the branch is gone" in text
    assert DeadLetter.objects.get(pk=letter.pk).category == "data"


@pytest.mark.parametrize("body", [{}, {"row_version": "x"}, {"row_version": "-1"}])
def test_without_the_version_that_was_looked_at_nothing_is_done(
    ann: Client, letter: DeadLetter, body: dict[str, str]
) -> None:
    response = ann.post(f"{LIST}{letter.pk}/triage/", {**body, "category": "transient"})
    assert response.status_code == 409
    assert status_of(letter) == "new"


def test_discarding_asks_first(ann: Client, letter: DeadLetter) -> None:
    assert "Discard the dead letter" in ann.get(f"{LIST}{letter.pk}/discard/").content.decode()
    assert status_of(letter) == "new"
    assert "A reason is required." in step(ann, letter, "discard", reason=" ").content.decode()
    assert messages_of(step(ann, letter, "discard", reason="the branch is gone")) == ["Discarded."]
    assert status_of(letter) == "discarded"


def test_a_letter_whose_effect_is_missing_is_checked_again_or_discarded(ann: Client) -> None:
    letter = make_letter(status="verifying", is_escalated=True)
    text = page(ann, letter)
    assert "fix the cause first" in text
    assert "Check the effect" in text
    assert f"/{letter.pk}/discard/" in text
    assert messages_of(step(ann, letter, "discard", reason="told by hand")) == ["Discarded."]
    steps = ann.get(f"{LIST}{letter.pk}/change/").context["steps"]
    assert [step.state for step in steps] == ["done"] * 4 + ["ended"] * 2


def test_a_replaying_letter_cannot_be_discarded(ann: Client) -> None:
    letter = make_letter(status="replaying")
    assert f"/{letter.pk}/discard/" not in page(ann, letter)
    assert messages_of(step(ann, letter, "discard", reason="tired")) == [
        "Nothing was changed: the dead letter is replaying."
    ]


# -- who may -------------------------------------------------------------------------------------


def test_a_reader_sees_letters_but_may_not_act(client: Client, letter: DeadLetter) -> None:
    user = factories.UserFactory(is_staff=True)
    operator = Group.objects.get(name="operator")
    user.user_permissions.set(operator.permissions.exclude(codename="replay_deadletter"))
    client.force_login(user)
    text = page(client, letter)
    assert "you need the permission" in text
    assert '<form method="post" action="/admin/deadletters' not in text
    assert f"/{letter.pk}/discard/" not in text
    assert step(client, letter, "triage", category="data").status_code == 403
    assert step(client, letter, "discard", reason="mine").status_code == 403
    ask(client, "discard", [letter.pk])
    assert status_of(letter) == "new"


def test_who_may_act_is_led_to_the_discard(ann: Client, letter: DeadLetter) -> None:
    assert f"/{letter.pk}/discard/" in page(ann, letter)


def test_reading_never_acts(ann: Client, letter: DeadLetter) -> None:
    ann.get(LIST, {"action": "discard", "_selected_action": letter.pk, "reason": "no"})
    for name in ("triage", "remediate", "validate", "replay", "verify", "resolve"):
        assert ann.get(f"{LIST}{letter.pk}/{name}/", {"category": "data"}).status_code == 302
    assert status_of(letter) == "new"


@pytest.mark.parametrize("address", ["triage/", "discard/"])
def test_steps_need_the_forms_token(ann: Client, letter: DeadLetter, address: str) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = ann.cookies
    body = {"row_version": letter.row_version, "category": "data", "reason": "because"}
    assert strict.post(f"{LIST}{letter.pk}/{address}", body).status_code == 403
    assert status_of(letter) == "new"


def test_a_replay_asks_for_a_password_that_is_too_old(ann: Client, letter: DeadLetter) -> None:
    validated(letter)
    session = Session.objects.get()
    store = type(session).get_session_store_class()(session.session_key)
    store["password_at"] -= reauthentication.MAX_AGE_SECONDS + 1
    store.save()
    text = page(ann, letter)
    assert "Confirm your password first." in text
    assert 'name="reason"' not in text  # nobody types what would be lost
    response = step(ann, letter, "replay", start="stage", reason="now")
    assert "Confirm your password" in response.content.decode()
    assert status_of(letter) == "validated"


def test_letters_are_neither_added_nor_edited_nor_deleted(ann: Client, letter: DeadLetter) -> None:
    assert ann.get(f"{LIST}add/").status_code == 403
    assert ann.post(f"{LIST}{letter.pk}/change/", {"status": "resolved"}).status_code == 403
    assert ann.post(f"{LIST}{letter.pk}/delete/", {"post": "yes"}).status_code == 403
    assert not re.search(r'value="delete_selected"', ann.get(LIST).content.decode())


# -- many ----------------------------------------------------------------------------------------

SET_ACTIONS = ["triage", "remediate", "validate", "verify", "resolve", "discard", "replay_batch"]


@pytest.mark.parametrize("action", SET_ACTIONS)
def test_an_action_asks_first_and_changes_nothing_yet(ann: Client, letter: DeadLetter, action: str) -> None:
    response = ask(ann, action, [letter.pk])
    assert "admin/deadletters/deadletter/confirm.html" in [template.name for template in response.templates]
    assert status_of(letter) == "new"


@pytest.mark.parametrize(
    "action",
    [
        "discard",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("remediate", "resolve", "replay_batch")),
    ],
)
def test_no_action_without_its_words(ann: Client, letter: DeadLetter, action: str) -> None:
    response = answer(ann, ask(ann, action, [letter.pk]), reason="  ")
    assert "Nothing was changed." in response.content.decode()
    assert status_of(letter) == "new"


def test_a_set_of_letters_gets_one_sum_of_results(ann: Client, letter: DeadLetter) -> None:
    others = [make_letter().pk for _ in range(2)]
    question = ask(ann, "discard", [letter.pk, *others])
    workflow.discard(others[0], actor="bob", reason="faster")
    (message,) = messages_of(answer(ann, question, reason="old"))
    assert message == "2 discarded, 1 skipped: discarded by bob since. Show these 3 dead letters."


def test_letters_that_somebody_worked_on_since_the_question_are_spared(ann: Client) -> None:
    triaged, checked, own, refused = (make_letter() for _ in range(4))
    workflow.triage(own.pk, actor="bob", category="data")
    question = ask(ann, "triage", [letter.pk for letter in (triaged, checked, own, refused)])
    workflow.triage(triaged.pk, actor="bob", category="code_defect")
    workflow.triage(checked.pk, actor="bob", category="data")
    workflow.remediate(checked.pk, actor="carol", evidence_note="OPS-1")
    factories.DeadLetterEventFactory(letter=own, action="failed_again", source="system")
    assert not workflow.replay(refused.pk, actor="bob", reason="OPS-1").ok
    (message,) = messages_of(answer(ann, question, category="transient"))
    assert message.startswith(
        "2 triaged, 1 skipped: triaged by bob since; 1 skipped: remediated by carol since."
    )
    found = dict(DeadLetter.objects.values_list("pk", "category"))
    assert [found[letter.pk] for letter in (triaged, checked, own, refused)] == [
        "code_defect",
        "data",
        "transient",
        "transient",
    ]


@pytest.mark.long
def test_a_set_that_is_verified_says_that_it_escalated_and_does_not_call_it_skipped(ann: Client) -> None:
    done = factories.ReviewJobFactory(status="succeeded")
    waiting, new = make_letter(status="verifying", job=done), make_letter()
    question = ask(ann, "verify", [waiting.pk, new.pk])
    assert "A dead letter whose effect is missing is escalated." in question.content.decode()
    (message,) = messages_of(answer(ann, question))
    assert message.startswith(
        "0 verified, 1 escalated: the effect is missing, 1 skipped: it is new: triage it"
    )


@pytest.mark.long
def test_no_batch_is_made_of_letters_that_somebody_else_took_up(ann: Client, letter: DeadLetter) -> None:
    question = ask(ann, "replay_batch", [letter.pk])
    workflow.discard(letter.pk, actor="bob", reason="faster")
    assert messages_of(answer(ann, question, reason="OPS-1")) == [
        "0 put into a batch, 1 skipped: discarded by bob since."
    ]
    assert not ReplayBatch.objects.exists()


def test_what_changed_since_a_question_is_looked_up_in_bounded_parts(
    letter: DeadLetter, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    desk: Any = admin.site._registry[DeadLetter]
    ids = [letter.pk, make_letter().pk, make_letter().pk]
    stamp = desk.stamp()
    for pk in ids:
        workflow.triage(pk, actor="bob", category="data")
    monkeypatch.setattr("deadletters.admin.base._IDS_PER_QUERY", 2)
    with django_assert_num_queries(2):
        assert desk.changed_since(ids, stamp) == dict.fromkeys(ids, "triaged by bob since")
    assert desk.changed_since(ids, desk.stamp()) == {}


def test_many_are_triaged_each_by_its_own_class(ann: Client, letter: DeadLetter) -> None:
    other = make_letter(error_class="AUTH_DENIED")
    response = answer(ann, ask(ann, "triage", [letter.pk, other.pk]), category="")
    assert messages_of(response) == ["2 triaged. Show these 2 dead letters."]
    found = DeadLetter.objects.order_by("pk").values_list("category", flat=True)
    assert list(found) == ["transient", "auth_config"]


def test_many_go_through_the_steps_together(ann: Client) -> None:
    ids = [make_letter().pk for _ in range(3)]
    answer(ann, ask(ann, "triage", ids), category="transient")
    answer(ann, ask(ann, "remediate", ids), evidence_note="the server is back")
    response = answer(ann, ask(ann, "validate", ids), override_reason="asked by hand")
    assert messages_of(response) == ["3 validated. Show these 3 dead letters."]
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"validated"}


def test_an_answer_to_a_question_that_was_changed_does_nothing(ann: Client, letter: DeadLetter) -> None:
    response = ask(ann, "discard", [letter.pk], selection="WzFd:abc:def", reason="because")
    assert messages_of(response) == ["This confirmation has expired. Select the rows again."]
    assert status_of(letter) == "new"


def test_a_single_letter_leads_to_its_page(ann: Client, letter: DeadLetter) -> None:
    response = answer(ann, ask(ann, "discard", [letter.pk]), reason="old")
    assert response.request["PATH_INFO"] == f"{LIST}{letter.pk}/change/"


# -- what the letter is about ------------------------------------------------------------------


def test_denied_paths_are_named_to_people_who_may_see_them(ann: Client) -> None:
    """Operators cannot open the security events; a viewing scope shows the paths inside it."""
    letter = make_letter(error_class="PATH_DENIED", code="CRITICIZER_E402")
    for path in ("//depot/main/docs/a.md", "//depot/vault/key.txt"):
        record_violation(SecurityViolation(letter.job.changelist_id, path, "excluded by -//…", "query"))
    record_violation(SecurityViolation("4711", "//depot/other/b.c", "of another change", "query"))
    text = page(ann, letter)
    assert "//depot/main/docs/a.md: excluded by" in text
    assert "//depot/vault/key.txt" in text
    assert "//depot/other/b.c" not in text
    some = User.objects.create_user("some")
    group = Group.objects.create(name="main")
    some.groups.add(group)
    ViewerScope.objects.create(group=group, prefix="//depot/main/...", reason="test")
    named = named_in(letter, some)
    assert named is not None
    assert ([line.partition(":")[0] for line in named.lines], named.hidden) == (["//depot/main/docs/a.md"], 1)


def test_the_refused_recipient_is_named(ann: Client) -> None:
    letter = make_letter(stage="notify", error_class="RECIPIENT_REJECTED", code="CRITICIZER_E710")
    for status, name in (("failed", "bbo"), ("sent", "carol")):
        factories.DeliveryFactory(
            job=letter.job, status=status, recipient=f"mail:{name}@example.com",
            error_class="RECIPIENT_REJECTED" if status == "failed" else "",
        )  # fmt: skip
    text = page(ann, letter)
    assert "mail:bbo@example.com: RECIPIENT_REJECTED" in text
    assert "carol" not in text
    assert named_in(letter, factories.UserFactory()) is None
