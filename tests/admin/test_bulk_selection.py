"""Complaints about other admins of failed work: one test for each."""

# ruff: noqa: F811  the fixtures of other tests are imported by name

from __future__ import annotations

import csv
import html
import io
import re

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from deadletters import batches, workflow
from deadletters.models import DeadLetter, DeadLetterEvent, DeadLetterGroup, ReplayBatch
from reviews.models import ReviewJob
from tests import factories
from tests.admin.test_letters import LIST as LETTERS
from tests.admin.test_letters import answer, make_letter, messages_of, step
from tests.admin.test_replay_batches import GROUPS
from tests.admin.test_replay_batches import LIST as BATCHES
from tests.deadletters.conftest import Fail, Work, fail, look, work  # noqa: F401  fixtures
from tests.deadletters.test_batches import Look, _run
from tests.pipeline.conftest import _no_session_left, _scripted  # noqa: F401  scripted stages

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


def replayed_in_bulk(ann: Client, group: DeadLetterGroup) -> ReplayBatch:
    """Replay all open letters of a group by the buttons of the admin."""
    question = ann.post(GROUPS, {"action": "replay_all", "_selected_action": [group.pk]})
    answer(ann, question, reason="OPS-7: the key was rotated")
    batch = ReplayBatch.objects.latest("id")
    batches.configure(batch.pk, actor="ann", evidence_note="the key was rotated", canary_size=0)
    batches.set_pace(batch.pk, actor="ann", rate_per_minute=6000)
    assert batches.submit(batch.pk, actor="ann").ok
    return ReplayBatch.objects.get(pk=batch.pk)


def test_bulk_retry_takes_all_that_match_not_only_the_page(
    ann: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletters.admin.letters.DeadLetterAdmin.list_per_page", 2)
    for _ in range(5):
        make_letter(error_class="AUTH_DENIED")
    make_letter(error_class="NOT_FOUND")
    address = f"{LETTERS}?q=error:AUTH_DENIED"
    page = ann.get(address).context["cl"].result_list
    assert len(page) == 2
    body = {"action": "replay_batch", "_selected_action": [row.pk for row in page], "select_across": "1"}
    question = ann.post(address, body)
    text = question.content.decode()
    assert "<strong>5 dead letters</strong>: all that match error:AUTH_DENIED" in text
    assert "Create a draft of 5 dead letters</button>" in text  # the count is shown twice
    late = make_letter(error_class="AUTH_DENIED")
    answer(ann, question, reason="the key was rotated")
    chosen = set(ReplayBatch.objects.get().items.values_list("letter_id", flat=True))
    assert len(chosen) == 5
    assert late.pk not in chosen


def test_retry_all_after_an_outage_is_always_reachable(ann: Client) -> None:
    letters = [make_letter(error_class="UPSTREAM_UNAVAILABLE") for _ in range(3)]
    for status in ("open", "acknowledged", "ignored", "resolved"):
        DeadLetterGroup.objects.update(status=status)
        text = ann.get(f"{GROUPS}{letters[0].group_id}/change/").content.decode()
        assert "Replay all 3 open" in text
    query, action = re.findall(r'action="([^"]*group%3A[^"]*)">.*?name="action" value="(\w+)"', text)[0]
    body = {"action": action, "_selected_action": "0", "select_across": "1"}
    question = ann.post(query.replace("&amp;", "&"), body)
    assert "<strong>3 dead letters</strong>" in question.content.decode()


def test_failures_are_grouped_by_error_and_the_groups_are_where_one_lands(ann: Client) -> None:
    for _ in range(3):
        make_letter(error_class="AUTH_DENIED")
    make_letter(error_class="NOT_FOUND")
    page = ann.get("/admin/deadletters/deadlettergroup/")
    assert {(row.error_class, row.open_count) for row in page.context["cl"].result_list} == {
        ("AUTH_DENIED", 3),
        ("NOT_FOUND", 1),
    }
    crumb = f'<a href="{GROUPS}">Dead letters</a>'
    assert crumb in ann.get(f"{LETTERS}{DeadLetter.objects.first().pk}/change/").content.decode()  # type: ignore[union-attr]
    found = ann.get(f"{LETTERS}?q=error:NOT_FOUND").context["cl"].result_list
    assert [row.error_class for row in found] == ["NOT_FOUND"]


@pytest.mark.long
def test_a_bulk_retry_keeps_the_order_within_a_changelist(
    ann: Client,
    fail: Fail,
    look: Look,
) -> None:
    older, other = fail("12345"), fail("777")
    newer_job = factories.job_with_stages(changelist_id="12345", review_version=2, status="dead_lettered")
    newer = factories.DeadLetterFactory(job=newer_job, stage="llm", group=older.group)
    ReviewJob.objects.filter(pk=newer_job.pk).update(review_version=2)
    batch = replayed_in_bulk(ann, older.group)
    look(batch.pk)
    items = {item.letter_id: item for item in batch.items.all()}
    assert {items[older.pk].lane, items[newer.pk].lane} == {"12345"}
    at_work = [item.lane for item in items.values() if item.status == "replaying"]
    assert len(at_work) == len(set(at_work))
    assert items[other.pk].status == "replaying"


def test_a_resubmitted_letter_never_vanishes(ann: Client, fail: Fail) -> None:
    letter = fail()
    payload = letter.sanitized_context
    workflow.triage(letter.pk, actor="ann", category="auth_config")
    workflow.remediate(letter.pk, actor="ann", evidence_note="rotated")
    workflow.validate(letter.pk, actor="ann", override_reason="tried by hand")
    step(ann, letter, "replay", start="stage", reason="the key works")
    kept = DeadLetter.objects.get(pk=letter.pk)
    assert (kept.status, kept.sanitized_context) == ("replaying", payload)
    assert str(kept.job) in ann.get(f"{LETTERS}?q=job:{kept.job_id}").content.decode()


def test_a_retry_says_what_it_did_and_leads_there(ann: Client, fail: Fail) -> None:
    letter = fail()
    for name, fields in [
        ("triage", {"category": "auth_config"}),
        ("remediate", {"evidence_note": "rotated"}),
        ("validate", {}),
    ]:
        before = letter.events.count()
        assert messages_of(step(ann, letter, name, **fields))
        assert letter.events.count() == before + 1
    if DeadLetter.objects.get(pk=letter.pk).status == "remediated":
        step(ann, letter, "validate", do="override", override_reason="tried by hand")
    response = step(ann, letter, "replay", start="stage", reason="the key works")
    (message,) = response.context["messages"]
    assert f'<a href="/admin/reviews/reviewjob/{letter.job_id}/change/">Follow the job</a>' in str(message)
    assert letter.events.filter(action="replayed", actor="ann").exists()


@pytest.mark.long
def test_failures_that_arrive_during_a_retry_are_told_apart(
    ann: Client,
    fail: Fail,
    look: Look,
    work: Work,
) -> None:
    first = fail("1")
    batch = replayed_in_bulk(ann, first.group)
    newcomer = fail("2")
    assert newcomer.group_id == first.group_id
    text = ann.get(f"{BATCHES}{batch.pk}/change/").content.decode()
    (address,) = re.findall(r'<a href="([^"]+)">1 new since it was drafted</a>', text)
    assert [row.pk for row in ann.get(html.unescape(address)).context["cl"].result_list] == [newcomer.pk]
    _run(batch, look, work)
    assert [item.letter_id for item in batch.items.all()] == [first.pk]
    assert DeadLetter.objects.get(pk=newcomer.pk).status == "new"


@pytest.mark.long
def test_which_items_of_a_batch_failed_is_shown_and_exported(
    ann: Client,
    fail: Fail,
    look: Look,
    work: Work,
) -> None:
    letters = [fail("1"), fail("2")]
    batch = replayed_in_bulk(ann, letters[0].group)
    batch.items.filter(letter=letters[1]).update(job_id=letters[1].job_id)
    workflow.discard(letters[1].pk, actor="bob", reason="not needed")
    _run(batch, look, work)
    page = ann.get(f"{BATCHES}{batch.pk}/change/?outcome=skipped")
    assert [item.letter_id for item in page.context["items"]] == [letters[1].pk]
    header, *rows = csv.reader(io.StringIO(ann.get(f"{BATCHES}{batch.pk}/csv/").content.decode()))
    outcomes = {int(row[0]): row[header.index("outcome")] for row in rows}
    assert outcomes == {letters[0].pk: "succeeded", letters[1].pk: "skipped"}


def test_everything_is_done_in_the_admin_with_a_permission_and_a_record(ann: Client) -> None:
    letter = make_letter()
    mallory = factories.staff_client("mallory", "reviewer")
    for name in ("triage", "remediate", "validate", "replay", "verify", "resolve", "discard"):
        assert step(mallory, letter, name, reason="mine", category="data").status_code == 403
    step(ann, letter, "triage", category="transient")
    written = DeadLetterEvent.objects.filter(letter_id=letter.pk).values_list("actor", "action")
    assert ("ann", "triaged") in set(written)
    assert "mallory" not in {actor for actor, _ in written}


def test_the_error_text_is_the_link(ann: Client) -> None:
    letter = make_letter(error_class="AUTH_DENIED", detail="the server refused the key")
    row = re.search(r'<th[^>]* class="field-what">(.*?)</th>', ann.get(LETTERS).content.decode(), re.DOTALL)
    assert row is not None
    assert f'<a href="{LETTERS}{letter.pk}/change/' in row[1]
    assert "AUTH_DENIED" in row[1]
    assert "the server refused the key" in row[1]
    groups = re.search(
        r'<th[^>]* class="field-cause">(.*?)</th>', ann.get(GROUPS).content.decode(), re.DOTALL
    )
    assert groups is not None
    assert f'<a href="{GROUPS}{letter.group_id}/change/' in groups[1]


def test_nothing_is_given_up_without_a_question_and_it_stays_readable(ann: Client) -> None:
    letter = make_letter()
    ann.get(f"{LETTERS}{letter.pk}/discard/")
    ann.post(LETTERS, {"action": "discard", "_selected_action": [letter.pk]})
    assert DeadLetter.objects.get(pk=letter.pk).status == "new"
    step(ann, letter, "discard", reason="the branch is gone")
    assert "the branch is gone" in ann.get(f"{LETTERS}{letter.pk}/change/").content.decode()
    assert ann.post(f"{LETTERS}{letter.pk}/delete/", {"post": "yes"}).status_code == 403


def test_after_an_action_on_many_the_same_letters_are_one_click_away(ann: Client) -> None:
    """They do not match the search any more: what is triaged is not new."""
    ids = [make_letter().pk for _ in range(3)]
    make_letter(error_class="NOT_FOUND")
    address = f"{LETTERS}?q=state:new"
    question = ann.post(address, {"action": "triage", "_selected_action": ids})
    done = answer(ann, question, category="transient")
    assert (done.request["PATH_INFO"], done.request["QUERY_STRING"]) == (LETTERS, "q=state%3Anew")
    assert {row.pk for row in done.context["cl"].result_list}.isdisjoint(ids)
    (message,) = done.context["messages"]
    (link,) = re.findall(r'<a href="([^"]*)">Show these 3 dead letters</a>', str(message))
    found = ann.get(link.replace("&amp;", "&")).context["cl"].result_list
    assert {row.pk for row in found} == set(ids)


def test_the_way_back_to_very_many_letters_leads_to_the_first_of_them(
    ann: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("criticizer.admin_site.bulk_actions.MAX_NAMED", 2)
    ids = [make_letter().pk for _ in range(3)]
    question = ann.post(LETTERS, {"action": "discard", "_selected_action": ids})
    (message,) = answer(ann, question, reason="the branch is gone").context["messages"]
    (link,) = re.findall(r'<a href="([^"]*)">Show the first 2 dead letters</a>', str(message))
    found = ann.get(link.replace("&amp;", "&")).context["cl"].result_list
    assert len(found) == 2
    assert {row.pk for row in found} < set(ids)


def test_a_batch_leads_back_to_what_it_was_chosen_by(ann: Client) -> None:
    letter = make_letter(error_class="AUTH_DENIED")
    address = f"{LETTERS}?q=error:AUTH_DENIED"
    body = {"action": "replay_batch", "_selected_action": [letter.pk], "select_across": "1"}
    text = answer(ann, ann.post(address, body), reason="the key was rotated").content.decode()
    assert f'<a href="{LETTERS}?q=error%3AAUTH_DENIED&amp;by=all">error:AUTH_DENIED</a>' in text


def test_the_answer_to_another_lists_question_does_nothing(ann: Client) -> None:
    letter = make_letter()
    question = ann.post(GROUPS, {"action": "acknowledge", "_selected_action": [letter.group_id]})
    (selection,) = re.findall(r'name="selection" value="([^"]*)"', question.content.decode())
    body = {"action": "discard", "_selected_action": "0", "selection": selection, "reason": "not mine"}
    done = ann.post(LETTERS, body, follow=True)
    assert messages_of(done) == ["This confirmation has expired. Select the rows again."]
    assert not DeadLetter.objects.exclude(status="new").exists()


@pytest.mark.parametrize("left", ["", "auditor"])
def test_an_answer_after_the_role_was_lost_does_nothing(left: str) -> None:
    """The confirmation page gives no right: it was asked for when its reader still had the role."""
    client = factories.staff_client("eve", "operator")
    letter = make_letter()
    question = client.post(LETTERS, {"action": "discard", "_selected_action": [letter.pk]})
    (selection,) = re.findall(r'name="selection" value="([^"]*)"', question.content.decode())
    User.objects.get(username="eve").groups.set(Group.objects.filter(name=left))
    body = {"action": "discard", "_selected_action": "0", "selection": selection, "reason": "still mine"}
    assert client.post(LETTERS, body).status_code == (200 if left else 403)
    assert DeadLetter.objects.get(pk=letter.pk).status == "new"
