"""Groups of the same failure: the landing page, the page of a group, operators' decisions."""

from __future__ import annotations

import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.utils import timezone

from criticizer.db import prepared
from criticizer.http_client import Answer
from criticizer.models import SecurityEvent
from criticizer.resilience.failures import Component, ErrorClass, kind_of
from deadletters import groups
from deadletters.admin import groups as admin_groups
from deadletters.admin.sparkline import counts_by_day, sentence, sparkline
from deadletters.fingerprint import Fingerprint
from deadletters.models import DeadLetterGroup, DeadLetterGroupDay
from reviews.reviewers.provider_errors import failure_of_answer
from tests import emptying, factories
from tests.admin.test_letters import answer, messages_of
from tests.letters import draft_of_a_letter

pytestmark = pytest.mark.django_db
LIST = "/admin/deadletters/deadlettergroup/"


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


@pytest.fixture
def group() -> DeadLetterGroup:
    letter = factories.DeadLetterFactory(error_class="AUTH_DENIED", stage="llm")
    return DeadLetterGroup.objects.get(pk=letter.group_id)


def ask(client: Client, action: str, ids: list[int]) -> Any:
    """Choose groups as their own pages do: whatever their status."""
    return client.post(f"{LIST}?by=all", {"action": action, "_selected_action": ids}, follow=True)


def decide(client: Client, action: str, group: DeadLetterGroup, **fields: Any) -> DeadLetterGroup:
    answer(client, ask(client, action, [group.pk]), **fields)
    return DeadLetterGroup.objects.get(pk=group.pk)


def listed(client: Client, query: str = "") -> list[int]:
    return [row.pk for row in client.get(LIST + query).context["cl"].result_list]


# -- the advice ---------------------------------------------------------------------------------


@pytest.mark.long
def test_the_advice_fits_a_model_account_without_credit(ann: Client) -> None:
    code = kind_of(ErrorClass.PERMISSION_DENIED, Component.REVIEWER).code
    refused = failure_of_answer(Answer(402, httpx.Headers()), "call-1")
    fields = {"error_class": refused.error_class, "code": code, "stage": "llm"}
    letter = factories.DeadLetterFactory(detail=refused.detail, **fields)
    for address in (f"{LIST}{letter.group_id}/change/", f"/admin/deadletters/deadletter/{letter.pk}/change/"):
        shown = ann.get(address).content.decode()
        assert "Add credit to the account at the model server, then replay." in shown
        assert "Grant the account" not in shown
    other = factories.DeadLetterFactory(detail="the model server does not permit this to our key", **fields)
    assert "Grant the account" in ann.get(f"{LIST}{other.group_id}/change/").content.decode()


def test_denied_paths_and_the_allow_list_are_on_the_page_of_the_group(ann: Client) -> None:
    audit = factories.staff_client("carol", "auditor")
    letter = factories.DeadLetterFactory(error_class="PATH_DENIED", code="CRITICIZER_E402", stage="fetch")
    SecurityEvent.objects.create(
        kind=SecurityEvent.Kind.PATH_DENIED,
        changelist_id=letter.job.changelist_id,
        path="//app/<secret>.md",
        reason="no line of the allow-list matches",
    )
    for address in (f"{LIST}{letter.group_id}/change/", f"/admin/deadletters/deadletter/{letter.pk}/change/"):
        assert "allowlistentry" not in ann.get(address).content.decode()  # an operator may not read it
        shown = audit.get(address).content.decode()
        assert "//app/&lt;secret&gt;.md: no line of the allow-list matches" in shown
        assert '<a href="/admin/reviews/allowlistentry/explain/">Would this path be allowed?</a>' in shown


def test_the_note_of_a_group_stands_with_the_advice(ann: Client, group: DeadLetterGroup) -> None:
    groups.annotate(group.pk, actor="bob", note="call the <vendor>")
    letter = group.letters.get()
    for address in (f"{LIST}{group.pk}/change/", f"/admin/deadletters/deadletter/{letter.pk}/change/"):
        assert '<p class="whole">call the &lt;vendor&gt;</p>' in ann.get(address).content.decode()


# -- the drawing ---------------------------------------------------------------------------------


def test_a_day_without_a_failure_counts_nothing() -> None:
    today = timezone.now().date()
    counted = {today: 3, today - timedelta(days=13): 1, today - timedelta(days=14): 9}
    assert counts_by_day(counted, today) == [1, *[0] * 12, 3]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([0] * 14, "None in the last 14 days"),
        ([0] * 13 + [4], "4 in the last 14 days, 4 today, most today: 4"),
        ([5] + [0] * 12 + [1], "6 in the last 14 days, 1 today, most 13 days ago: 5"),
        ([0] * 12 + [7, 7], "14 in the last 14 days, 7 today, most today: 7"),
    ],
)
def test_the_drawing_is_said_in_words(counts: list[int], words: str) -> None:
    assert sentence(counts) == words
    assert f'aria-label="{words}"' in sparkline(counts)


def test_one_failure_beside_thousands_is_still_drawn() -> None:
    heights = {int(x): int(height) for x, height in re.findall(r"M(\d+) 22v-(\d+)h", sparkline([5000, 1, 0]))}
    assert heights == {0: 22, 6: 3, 12: 1}


# -- the landing page ------------------------------------------------------------------------------


def test_the_page_says_what_broke_since_when_how_often_and_whose(
    ann: Client, group: DeadLetterGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()  # its day may end meanwhile
    monkeypatch.setattr(admin_groups, "timezone", SimpleNamespace(now=lambda: now))
    DeadLetterGroupDay.objects.create(group=group, day=now.date(), count=4)
    groups.assign(group.pk, actor="ann", owner="team platform")
    groups.annotate(group.pk, actor="ann", note="see the wall", runbook_url="https://runbooks.example.com/7")
    text = ann.get(LIST).content.decode()
    for part in (
        "AUTH_DENIED",
        "1 open",
        "4 in the last 14 days, 4 today",
        "team platform",
        "see the wall",
        'href="https://runbooks.example.com/7"',
        f"{LIST}{group.pk}/change/",
    ):
        assert part in text


def test_the_trend_costs_one_query_however_many_groups(
    ann: Client, django_assert_max_num_queries: Any
) -> None:
    for error_class in ("AUTH_DENIED", "NOT_FOUND", "RATE_LIMITED", "INTERNAL_BUG", "PATH_DENIED"):
        factories.DeadLetterFactory(error_class=error_class)
    with django_assert_max_num_queries(16) as queries:  # one only in a test: the limits around the page's
        ann.get(LIST)
    trends = [query["sql"] for query in queries.captured_queries if "dead_letter_group_days" in query["sql"]]
    assert len(trends) == 1


NEWEST_WORDS = "set P4PORT, P4USER and perforce in CHANGE_SOURCES"
COMMON_WORDS = "set P<n>PORT, P<n>USER and perforce in CHANGE_SOURCES"


def test_a_group_shows_what_its_newest_letter_says(ann: Client) -> None:
    group = factories.DeadLetterGroupFactory(normalized_message=COMMON_WORDS)
    now = timezone.now()
    for minutes, detail in ((9, "the first words"), (1, NEWEST_WORDS), (5, "old")):
        factories.DeadLetterFactory(
            group=group, detail=detail, last_failure_at=now - timedelta(minutes=minutes)
        )
    for address in (LIST, f"{LIST}{group.pk}/change/"):
        text = ann.get(address).content.decode()
        assert text.index(NEWEST_WORDS) < text.index("set P&lt;n&gt;PORT")
    assert "the first words" not in ann.get(LIST).content.decode()


def test_what_all_letters_have_in_common_is_not_said_twice(ann: Client) -> None:
    group = factories.DeadLetterGroupFactory(normalized_message="the key was refused")
    for address in (LIST, f"{LIST}{group.pk}/change/"):  # its letters are gone: the group still says why
        assert ann.get(address).content.decode().count("the key was refused") == 1
    factories.DeadLetterFactory(group=group, detail="the key was refused ")
    assert ann.get(LIST).content.decode().count("the key was refused") == 1


def test_the_newest_letters_cost_one_query_that_the_index_serves(
    ann: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptying.make_as_new("dead_letters")
    for error_class in ("AUTH_DENIED", "NOT_FOUND", "RATE_LIMITED"):
        factories.DeadLetterFactory(error_class=error_class)
    asked: list[tuple[str, Any]] = []
    original = prepared.rows

    def rows(text: str, given: Any = None) -> list[dict[str, Any]]:
        asked.append((text, given))
        return original(text, given)

    monkeypatch.setattr(prepared, "rows", rows)
    ann.get(LIST)
    monkeypatch.undo()
    ((text, given),) = [one for one in asked if "dead_letters" in one[0]]
    assert len(given["groups"]) == 3
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {text}", given)
        assert "dead_letters_in_group" in "\n".join(row[0] for row in cursor.fetchall())


def test_only_what_needs_attention_is_listed_first(ann: Client, group: DeadLetterGroup) -> None:
    quiet = factories.DeadLetterGroupFactory(error_class="NOT_FOUND", status="ignored")
    assert listed(ann) == [group.pk]
    assert set(listed(ann, "?by=all")) == {group.pk, quiet.pk}
    assert listed(ann, "?q=state:ignored") == [quiet.pk]


def test_snoozed_groups_are_told_apart(ann: Client, group: DeadLetterGroup) -> None:
    groups.snooze(group.pk, actor="ann", until=timezone.now() + timedelta(hours=1))
    assert listed(ann) == []
    assert listed(ann, "?q=-is:snoozed") == []
    assert listed(ann, "?q=is:snoozed") == [group.pk]
    assert "Snoozed" in ann.get(f"{LIST}?q=is:snoozed").content.decode()
    DeadLetterGroup.objects.update(snooze_until=timezone.now() - timedelta(seconds=1))
    assert listed(ann) == [group.pk]


def test_an_empty_list_teaches_what_stands_here(ann: Client) -> None:
    assert "No failures." in ann.get(LIST).content.decode()


# -- decisions -------------------------------------------------------------------------------------


def test_acknowledge_resolve_ignore_and_reopen(ann: Client, group: DeadLetterGroup) -> None:
    assert decide(ann, "acknowledge", group, reason="mine").status == "acknowledged"
    assert decide(ann, "ignore", group, reason="known").status == "ignored"
    assert decide(ann, "reopen", group, reason="not so known").status == "open"
    assert DeadLetterGroup.objects.get(pk=group.pk).owner == "ann"
    history = list(group.events.order_by("id").values_list("action", "actor", "reason"))
    assert history == [
        ("acknowledged", "ann", "mine"),
        ("ignored", "ann", "known"),
        ("reopened", "ann", "not so known"),
    ]


def test_a_group_with_open_letters_is_not_resolved_and_says_why_before_it_asks(
    ann: Client, group: DeadLetterGroup
) -> None:
    response = ask(ann, "resolve", [group.pk])
    assert response.redirect_chain == [(f"{LIST}{group.pk}/change/", 302)]
    assert messages_of(response) == ["Resolve is not possible now: 1 of its letters is still open."]
    assert not group.events.exists()


def test_only_the_groups_that_can_be_resolved_are_and_the_question_says_which_are_not(
    ann: Client, group: DeadLetterGroup
) -> None:
    over = factories.DeadLetterFactory(status="discarded", error_class="NOT_FOUND").group
    question = ask(ann, "resolve", [group.pk, over.pk])
    assert "Skipped: 1 group, 1 of its letters is still open." in question.content.decode()
    response = answer(ann, question, reason="over")
    assert messages_of(response) == [
        "1 resolved, 1 skipped: 1 of its letters is still open. Show these 2 groups."
    ]
    statuses = dict(DeadLetterGroup.objects.values_list("pk", "status"))
    assert statuses == {group.pk: "open", over.pk: "resolved"}


def test_the_list_says_that_none_needs_attention_and_leads_to_the_others(
    ann: Client, group: DeadLetterGroup
) -> None:
    DeadLetterGroup.objects.update(status="resolved")
    text = ann.get(LIST).content.decode()
    assert 'No group needs attention. <a href="?by=all">Show all</a>' in text
    assert "No failures." not in text


def test_assign_snooze_and_note(ann: Client, group: DeadLetterGroup) -> None:
    assert decide(ann, "assign", group, owner="carol").owner == "carol"
    until = decide(ann, "snooze", group, hours="24", reason="the vendor works on it").snooze_until
    assert until is not None
    assert timedelta(hours=23) < until - timezone.now() < timedelta(hours=25)
    noted = decide(ann, "annotate", group, note="call the vendor", runbook_url="https://r.example.com")
    assert (noted.note, noted.runbook_url) == ("call the vendor", "https://r.example.com")


def test_a_snooze_is_ended_from_the_page_and_from_the_list(ann: Client, group: DeadLetterGroup) -> None:
    address = f"{LIST}{group.pk}/change/"
    assert "End the snooze" not in ann.get(address).content.decode()
    refused = messages_of(ask(ann, "end_snooze", [group.pk]))
    assert refused == ["End the snooze is not possible now: it is not snoozed."]
    groups.snooze(group.pk, actor="ann", until=timezone.now() + timedelta(hours=1))
    assert "End the snooze" in ann.get(address).content.decode()
    body = {"action": "end_snooze", "_selected_action": [group.pk]}
    question = ann.post(f"{LIST}?q=is:snoozed", body, follow=True)
    assert messages_of(answer(ann, question, reason="the vendor is back")) == ["1 no longer snoozed."]
    assert listed(ann) == [group.pk]


@pytest.mark.long
def test_the_note_of_one_group_is_there_to_be_changed(ann: Client, group: DeadLetterGroup) -> None:
    groups.annotate(group.pk, actor="bob", note="call the vendor", runbook_url="https://r.example.com")
    question = ask(ann, "annotate", [group.pk])
    assert question.context["form"].initial == {
        "note": "call the vendor",
        "runbook_url": "https://r.example.com",
    }
    assert "If empty" not in question.content.decode()
    noted = decide(ann, "annotate", group, note="", runbook_url="https://r.example.com")
    assert (noted.note, noted.runbook_url) == ("", "https://r.example.com")


@pytest.mark.long
def test_what_is_left_empty_for_several_groups_stays(ann: Client, group: DeadLetterGroup) -> None:
    other = factories.DeadLetterFactory(error_class="NOT_FOUND").group
    for one in (group, other):
        groups.annotate(one.pk, actor="bob", note=f"note {one.pk}", runbook_url="https://old.example.com")
    question = ask(ann, "annotate", [group.pk, other.pk])
    assert "If empty, each group keeps its own." in question.content.decode()
    assert "Enter a note, a runbook" in answer(ann, question).content.decode()
    # One of them is changed meanwhile: what is left empty for the other stays all the same.
    groups.assign(other.pk, actor="bob", owner="bob")
    answer(ann, question, runbook_url="https://new.example.com")
    found = dict(DeadLetterGroup.objects.values_list("note", "runbook_url"))
    assert found == {
        f"note {group.pk}": "https://new.example.com",
        f"note {other.pk}": "https://old.example.com",
    }


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("acknowledge", {"reason": ""}),
        ("ignore", {"reason": " "}),
        ("snooze", {"hours": "0", "reason": "because"}),
        ("snooze", {"hours": "9999", "reason": "because"}),
        ("annotate", {"runbook_url": "javascript:alert(1)"}),
    ],
)
def test_a_decision_that_is_not_filled_in_changes_nothing(
    ann: Client, group: DeadLetterGroup, action: str, fields: dict[str, str]
) -> None:
    version = DeadLetterGroup.objects.get(pk=group.pk).row_version
    response = answer(ann, ask(ann, action, [group.pk]), **fields)
    assert "Nothing was changed." in response.content.decode()
    assert DeadLetterGroup.objects.get(pk=group.pk).row_version == version


def test_several_groups_are_decided_about_together(ann: Client, group: DeadLetterGroup) -> None:
    other = factories.DeadLetterFactory(error_class="NOT_FOUND").group
    groups.acknowledge(other.pk, actor="bob")
    response = answer(ann, ask(ann, "acknowledge", [group.pk, other.pk]), reason="mine")
    assert messages_of(response) == ["1 acknowledged, 1 skipped: already acknowledged. Show these 2 groups."]


def test_a_group_that_somebody_decided_about_meanwhile_is_left_alone(
    ann: Client, group: DeadLetterGroup
) -> None:
    question = ask(ann, "acknowledge", [group.pk])
    groups.occurred(Fingerprint(group.fingerprint, "again"), draft_of_a_letter())
    groups.assign(group.pk, actor="bob", owner="bob")
    assert messages_of(answer(ann, question, reason="mine")) == [
        "0 acknowledged, 1 skipped: assigned by bob since."
    ]
    assert messages_of(answer(ann, ask(ann, "acknowledge", [group.pk]), reason="mine")) == ["1 acknowledged."]


def test_a_reader_decides_nothing(client: Client, group: DeadLetterGroup) -> None:
    user = factories.UserFactory(is_staff=True)
    user.groups.add(Group.objects.get(name="auditor"))
    client.force_login(user)
    text = client.get(f"{LIST}{group.pk}/change/").content.decode()
    assert "Acknowledge" not in text
    assert "Replay all" not in text
    ask(client, "ignore", [group.pk])
    assert DeadLetterGroup.objects.get(pk=group.pk).status == "open"


# -- the page of a group -----------------------------------------------------------------------------


def test_the_group_leads_to_its_letters_and_takes_them_a_step_on(ann: Client, group: DeadLetterGroup) -> None:
    factories.DeadLetterFactory(error_class="AUTH_DENIED", stage="llm", status="triaged")
    text = ann.get(f"{LIST}{group.pk}/change/").content.decode()
    for part in ("Replay all 2 open", "Triage 1", "Remediate 1", "Fingerprint", "v1:"):
        assert part in text


def test_a_link_that_is_none_is_not_made_one(ann: Client, group: DeadLetterGroup) -> None:
    DeadLetterGroup.objects.filter(pk=group.pk).update(runbook_url="javascript:alert(1)")
    for address in (LIST, f"{LIST}{group.pk}/change/"):
        assert "javascript:" not in ann.get(address).content.decode()


def test_a_group_that_is_gone_leads_back(ann: Client) -> None:
    assert ann.get(f"{LIST}999999/change/").status_code == 302


def test_a_group_is_not_edited_by_hand(ann: Client, group: DeadLetterGroup) -> None:
    assert ann.post(f"{LIST}{group.pk}/change/", {"status": "ignored"}).status_code == 403


def test_a_group_whose_letters_are_all_verified_asks_for_nothing_but_to_resolve_them(ann: Client) -> None:
    given = {"error_class": "AUTH_DENIED", "stage": "llm", "status": "verifying"}
    for _ in range(2):
        letter = factories.DeadLetterFactory(**given, verified_by="bob", verified_at=timezone.now())
    text = ann.get(f"{LIST}{letter.group_id}/change/").content.decode()
    assert "Open: all replayed and verified, resolve them" in text
    assert 'data-state="group-open"' not in text
    assert 'class="button default">Resolve all 2 verified' in text
    assert "Replay all" not in text
    factories.DeadLetterFactory(**given)
    waits = ann.get(f"{LIST}{letter.group_id}/change/").content.decode()
    assert "all replayed and verified" not in waits
    assert "Replay all" not in waits  # it was replayed: it waits for its verification


def test_verified_letters_are_resolved_and_the_others_verified(ann: Client, group: DeadLetterGroup) -> None:
    given = {"error_class": "AUTH_DENIED", "stage": "llm", "status": "verifying"}
    waiting = [factories.DeadLetterFactory(**given) for _ in range(2)]
    verified = factories.DeadLetterFactory(**given, verified_by="bob", verified_at=timezone.now())
    text = ann.get(f"{LIST}{group.pk}/change/").content.decode()
    rows = {row["button"]: row for row in ann.get(f"{LIST}{group.pk}/change/").context["by_state"]}
    assert list(rows) == ["Triage 1", "Verify all 2 unverified", "Resolve 1 verified"]
    meant = {"verify": {letter.pk for letter in waiting}, "resolve": {verified.pk}}
    for row in list(rows.values())[1:]:
        form = {"action": row["action"], "_selected_action": "0", "select_across": "1"}
        question = ann.post(f"/admin/deadletters/deadletter/?{row['query']}", form)
        assert {letter.pk for letter in question.context["rows"]} == meant[row["action"]]
    assert text.count('data-state="verified">Verified<') == 2  # the row of the state, and the letter
