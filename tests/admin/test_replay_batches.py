"""Replay batches in the admin: frozen draft, dry run, approval, result."""

from __future__ import annotations

import csv
import html
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.utils import timezone

from criticizer.models import OutboxMessage
from deadletters import batches, workflow
from deadletters.admin.forms import BatchSettingsForm
from deadletters.admin.letters import BATCH
from deadletters.models import DeadLetter, ReplayBatch, ReplayItem
from tests import factories
from tests.admin.test_letters import LIST as LETTERS
from tests.admin.test_letters import answer, make_letter, messages_of

pytestmark = pytest.mark.django_db
LIST = "/admin/deadletters/replaybatch/"
GROUPS = "/admin/deadletters/deadlettergroup/"


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


@pytest.fixture
def carol() -> Client:
    return factories.staff_client("carol", "approver")


def drafted(ann: Client, letters: int = 2, **settings: Any) -> ReplayBatch:
    """Make a draft with its dry run, which is what the list of dead letters does."""
    actor = User.objects.get(pk=ann.session["_auth_user_id"]).username
    ids = [make_letter().pk for _ in range(letters)]
    chosen_by = {"q": "", "picked": letters}
    batch = batches.draft(filter=chosen_by, ids=ids, actor=actor, reason="OPS-7: the server is back")
    batches.dry_run(batch.pk)
    batch.refresh_from_db()
    if settings:
        batches.configure(batch.pk, actor="ann", **settings)
        batch.refresh_from_db()
    return batch


def page(client: Client, batch: ReplayBatch, query: str = "") -> str:
    return str(client.get(f"{LIST}{batch.pk}/change/{query}").content.decode())


def send(client: Client, batch: ReplayBatch, name: str, **fields: Any) -> Any:
    now = ReplayBatch.objects.get(pk=batch.pk)
    body = {"row_version": now.row_version, **fields}
    return client.post(f"{LIST}{batch.pk}/{name.replace('_', '-')}/", body, follow=True)


def submit(client: Client, batch: ReplayBatch, **fields: Any) -> Any:
    given = {
        "do": "submit",
        "evidence_note": "the server is back",
        "canary_size": "1",
        "rate_per_minute": "600",
        "max_in_flight": "5",
        **fields,
    }
    return send(client, batch, "submit", **given)


def status_of(batch: ReplayBatch) -> str:
    return str(ReplayBatch.objects.get(pk=batch.pk).status)


def test_a_draft_replays_nothing_and_says_of_each_letter_what_would_happen(ann: Client) -> None:
    chosen = {"action": "replay_batch", "_selected_action": [make_letter().pk for _ in range(2)]}
    answer(ann, ann.post(LETTERS, chosen), reason="OPS-7: the server is back")
    batch = ReplayBatch.objects.get()
    text = page(ann, batch)
    assert f"Batch {batch.pk}: replay of 2 dead letters" in text
    assert "Submit: 2 dead letters" in text
    assert "Can be replayed" in text
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"new"}
    assert not OutboxMessage.objects.filter(message_type="replay_batch").exists()


@pytest.mark.long
def test_the_dry_run_tells_apart_what_became_of_the_letters(ann: Client) -> None:
    batch = drafted(ann, 3)
    first, *_ = batch.items.order_by("id")
    workflow.discard(first.letter_id, actor="bob", reason="not needed")
    response = submit(ann, batch, do="check")
    assert "1 closed" in messages_of(response)[0]
    text = page(ann, batch)
    assert "It is resolved or discarded." in text
    assert "the dead letter is discarded" in text


def test_submitting_starts_the_batch_with_the_settings_of_the_form(ann: Client) -> None:
    batch = drafted(ann)
    assert messages_of(submit(ann, batch)) == ["Started."]
    batch.refresh_from_db()
    assert (batch.status, batch.rate_per_minute, batch.max_in_flight) == ("running", 600, 5)
    assert OutboxMessage.objects.filter(message_type="replay_batch", aggregate_id=batch.pk).exists()


@pytest.mark.long
def test_saving_with_a_dry_run_does_not_start_it(ann: Client) -> None:
    batch = drafted(ann)
    (said,) = messages_of(submit(ann, batch, do="check"))
    assert said.startswith("Dry run, nothing was replayed: 2 can be replayed")
    assert status_of(batch) == "draft"


@pytest.mark.long
def test_a_draft_is_checked_only_together_with_what_was_typed(ann: Client) -> None:
    batch = drafted(ann)
    batches.configure(batch.pk, actor="ann", is_restart=True)  # takes the verdicts away
    for _ in range(2):
        text = page(ann, batch)
        assert f"{LIST}{batch.pk}/dry-run/" not in text
        assert "Check again" not in text
        (form,) = re.findall(r'<form method="post" action="[^"]*/submit/">.*?</form>', text, re.DOTALL)
        assert "Save and dry run" in form
        submit(ann, batch, do="check", is_restart="on", evidence_note="typed just now")
    batch.refresh_from_db()
    assert batch.evidence_note == "typed just now"


@pytest.mark.long
def test_who_may_not_save_is_not_told_to(ann: Client) -> None:
    batch = drafted(ann)
    batches.configure(batch.pk, actor="ann", is_restart=True)
    saves = "“Save and dry run” saves the settings above and checks for each dead letter"
    assert saves in page(ann, batch)
    text = page(factories.staff_client("uma", "auditor"), batch)
    assert "Save and dry run" not in text
    assert "A dry run checks for each dead letter" in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rate_per_minute": "0"}, "greater than or equal to 1"),
        pytest.param({"rate_per_minute": "many"}, "Enter a whole number", marks=pytest.mark.long),
        pytest.param({"max_in_flight": "9999"}, "less than or equal to 500", marks=pytest.mark.long),
        ({"evidence_link": "javascript:alert(1)"}, "Enter a valid URL"),
        pytest.param({"category": "weather"}, "Select a valid choice", marks=pytest.mark.long),
    ],
)
def test_settings_out_of_range_change_nothing(ann: Client, fields: dict[str, str], words: str) -> None:
    batch = drafted(ann)
    text = submit(ann, batch, **fields).content.decode()
    assert words in text
    assert "Nothing was changed." in text
    assert status_of(batch) == "draft"


def test_without_evidence_it_is_not_submitted(ann: Client) -> None:
    batch = drafted(ann)
    (said,) = messages_of(submit(ann, batch, evidence_note=""))
    assert said.startswith("Nothing was changed: evidence is required")
    assert status_of(batch) == "draft"


# What bob makes of each setting of a draft while ann looks at it.
OTHERS = {
    "rate_per_minute": 7,
    "max_in_flight": 7,
    "canary_size": 7,
    "category": "data",
    "evidence_link": "https://tickets.example.com/OPS-9",
    "evidence_note": "the disk is larger",
    "override_reason": "the check knows the old host",
    "is_restart": True,
}


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(name, marks=() if name == "rate_per_minute" else pytest.mark.long)
        for name in BatchSettingsForm.base_fields
    ],
)
def test_a_batch_that_changed_meanwhile_is_refused(ann: Client, setting: str) -> None:
    batch, value = drafted(ann), OTHERS[setting]
    version = ReplayBatch.objects.get(pk=batch.pk).row_version
    assert batches.configure(batch.pk, actor="bob", **{setting: value}).message == "changed"
    response = submit(ann, batch, row_version=version)
    assert response.status_code == 409
    assert "changed while you were editing. Your change was not saved." in response.content.decode()
    batch.refresh_from_db()
    assert (batch.status, getattr(batch, setting)) == ("draft", value)


@pytest.mark.long
def test_who_was_slower_reads_what_happened_meanwhile(ann: Client, carol: Client) -> None:
    batch = drafted(ann)
    (seen,) = re.findall(r'name="seen" value="(\d+)"', page(ann, batch))
    version = ReplayBatch.objects.get(pk=batch.pk).row_version
    batches.configure(batch.pk, actor="bob", rate_per_minute=7)
    response = submit(ann, batch, row_version=version, seen=seen, evidence_note="typed by ann")
    (said,) = re.findall(r'<div class="changed".*?</div>', response.content.decode(), re.DOTALL)
    assert "Configured by bob" in said
    assert "a minute: 7" in said
    assert "Drafted by ann" not in said
    assert "your input is still below" in said
    assert "typed by ann" in response.content.decode()
    submit(ann, batch, is_restart="on")
    asked = carol.get(f"{LIST}{batch.pk}/approve/").content.decode()
    fields = dict(re.findall(r'name="(row_version|seen)" value="(\d+)"', asked))
    batches.set_pace(batch.pk, actor="bob", rate_per_minute=6000)
    response = send(carol, batch, "approve", reason="read it", **fields)
    assert response.status_code == 409
    (said,) = re.findall(r'<div class="changed".*?</div>', response.content.decode(), re.DOTALL)
    assert "Pace by bob" in said
    assert "6000 a minute" in said
    assert "is still below" not in said
    assert len(re.findall("<li>", said)) == 1


def test_what_changed_while_an_approval_was_on_its_way_is_not_approved(
    ann: Client, carol: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = drafted(ann)
    submit(ann, batch, is_restart="on")

    def faster(row: ReplayBatch, actor: str) -> str:
        """Bob's pace comes after the view has read the batch, and before its approval locks it."""
        batches.set_pace(row.pk, actor="bob", rate_per_minute=6000)
        return ""

    monkeypatch.setattr("deadletters.batches.why_not_approve", faster)
    (said,) = messages_of(send(carol, batch, "approve", reason="read it"))
    assert said == "Nothing was changed: it was changed after you opened it: reload and try again."
    assert status_of(batch) == "awaiting"


def test_a_large_batch_waits_for_somebody_else(ann: Client, carol: Client, settings: Any) -> None:
    settings.REPLAY_APPROVAL_ABOVE = 1
    batch = drafted(ann)
    assert messages_of(submit(ann, batch)) == ["Submitted: another person must approve it."]
    assert f"{LIST}{batch.pk}/approve/" not in page(ann, batch)
    assert ann.get(f"{LIST}{batch.pk}/approve/").status_code == 403
    assert "Approve: 2 dead letters" in carol.get(f"{LIST}{batch.pk}/approve/").content.decode()
    assert "A reason is required." in send(carol, batch, "approve", reason=" ").content.decode()
    assert messages_of(send(carol, batch, "approve", reason="read it")) == ["Approved and started."]
    batch.refresh_from_db()
    assert (batch.status, batch.requested_by, batch.approved_by) == ("running", "ann", "carol")


@pytest.mark.long
def test_who_approves_sees_what_makes_the_batch_dangerous(ann: Client, carol: Client) -> None:
    batch = drafted(ann)
    override = {"override_reason": "the check knows the old host", "is_restart": "on"}
    submit(ann, batch, **override)
    text = carol.get(f"{LIST}{batch.pk}/approve/").content.decode()
    for part in (
        "<dd>the first stage</dd>",
        "the check knows the old host",
        "the server is back",
        "600 a minute, at most 5 at once",
        "<dt>Canary size</dt><dd>1</dd>",
        "2 dead letters picked by hand from the list",
        "2 NETWORK_TIMEOUT in stage fetch",
    ):
        assert part in text, part


@pytest.mark.long
def test_who_approves_sees_how_many_letters_were_overruled_by_hand(ann: Client, carol: Client) -> None:
    batch = drafted(ann)
    row = "<dt>Overridden by hand</dt><dd>1 dead letter: "
    assert row not in page(ann, batch)
    letter = batch.items.order_by("id")[0].letter_id
    workflow.triage(letter, actor="bob", category="data", note="OPS-1")
    workflow.remediate(letter, actor="bob", evidence_note="OPS-1")
    assert workflow.validate_many([letter], actor="bob").done == 1
    assert "not needed" in page(ann, batch)
    DeadLetter.objects.filter(pk=letter).update(validation_ok=False, override_reason="the check is wrong")
    assert "needed once it is submitted" in page(ann, batch)
    assert messages_of(submit(ann, batch)) == ["Submitted: another person must approve it."]
    assert row in carol.get(f"{LIST}{batch.pk}/approve/").content.decode()
    send(carol, batch, "approve", reason="read it")
    assert row not in page(ann, batch)


@pytest.mark.long
def test_a_draft_says_whether_it_will_need_an_approval(ann: Client, settings: Any) -> None:
    batch = drafted(ann)
    needed = "needed once it is submitted"
    # The list looks at no letter: one of them may be overruled by hand.
    for above, said, listed in ((1, needed, needed), (2, "not needed", "not by its settings")):
        settings.REPLAY_APPROVAL_ABOVE = above
        assert f"<dt>Approved by</dt><dd>{said}</dd>" in page(ann, batch)
        assert listed in ann.get(LIST).content.decode()
    settings.REPLAY_APPROVAL_ABOVE = 1
    submit(ann, batch)
    assert "<dt>Approved by</dt><dd>not approved yet</dd>" in page(ann, batch)


def test_who_asked_cannot_approve_even_with_the_permission(client: Client, settings: Any) -> None:
    settings.REPLAY_APPROVAL_ABOVE = 0
    root = factories.UserFactory(username="root", is_staff=True, is_superuser=True)
    client.force_login(root)
    batch = drafted(client, 1)
    submit(client, batch)
    assert f"{LIST}{batch.pk}/approve/" not in page(client, batch)
    (said,) = messages_of(send(client, batch, "approve", reason="it is fine"))
    assert said == "Nothing was changed: you cannot approve your own batch."
    assert status_of(batch) == "awaiting"


def both_roles() -> Client:
    client = factories.staff_client("both", "operator")
    User.objects.get(username="both").groups.add(Group.objects.get(name="approver"))
    return client


def test_one_person_with_both_roles_does_not_approve_what_they_submitted(ann: Client, carol: Client) -> None:
    both = both_roles()
    batch = drafted(ann)
    submit(both, batch, override_reason="the check knows the old host", is_restart="on")
    batch.refresh_from_db()
    assert (batch.status, batch.requested_by) == ("awaiting", "both")
    assert f"{LIST}{batch.pk}/approve/" not in page(both, batch)
    (said,) = messages_of(send(both, batch, "approve", reason="it is fine"))
    assert said == "Nothing was changed: you cannot approve your own batch."
    assert "both; drafted or configured by ann" in carol.get(f"{LIST}{batch.pk}/approve/").content.decode()
    assert messages_of(send(carol, batch, "approve", reason="read it")) == ["Approved and started."]


@pytest.mark.long
def test_who_configured_a_batch_is_told_why_they_cannot_approve_it(ann: Client) -> None:
    both = both_roles()
    batch = drafted(ann)
    submit(both, batch, do="check", is_restart="on")
    submit(ann, batch, is_restart="on")
    assert f"{LIST}{batch.pk}/approve/" not in page(both, batch)
    (said,) = messages_of(both.get(f"{LIST}{batch.pk}/approve/", follow=True))
    assert said == "Nothing was changed: you drafted or configured this batch and cannot approve it."
    text = page(both, batch)
    assert "begins at the first stage: yes" in text
    assert status_of(batch) == "awaiting"


@pytest.mark.long
def test_who_approves_reads_no_verdicts_of_other_settings(ann: Client, carol: Client) -> None:
    batch = drafted(ann)
    submit(ann, batch, do="check")
    assert "Can be replayed" in page(ann, batch)
    submit(ann, batch, is_restart="on")
    none = "No dry run was made with these settings."
    assert none in carol.get(f"{LIST}{batch.pk}/approve/").content.decode()
    text = page(carol, batch)
    assert "Not checked with these settings." in text
    assert "Can be replayed" not in text
    assert f'action="{LIST}{batch.pk}/dry-run/"' in text
    (said,) = messages_of(send(carol, batch, "dry_run"))
    assert said.startswith("Dry run, nothing was replayed: 2 can be replayed")
    text = carol.get(f"{LIST}{batch.pk}/approve/").content.decode()
    assert "Can be replayed" in text
    assert none not in text
    assert none not in ann.get(f"{LIST}{batch.pk}/cancel/").content.decode()


def test_who_may_approve_may_refuse_and_the_letters_are_let_go(ann: Client, carol: Client) -> None:
    batch = drafted(ann)
    assert f"{LIST}{batch.pk}/refuse/" not in page(carol, batch)
    submit(ann, batch, is_restart="on")
    assert f"{LIST}{batch.pk}/refuse/" not in page(ann, batch)
    assert ann.get(f"{LIST}{batch.pk}/refuse/").status_code == 403
    assert f"{LIST}{batch.pk}/refuse/" in page(carol, batch)
    assert "A reason is required." in send(carol, batch, "refuse", reason=" ").content.decode()
    (said,) = messages_of(send(carol, batch, "refuse", reason="the vendor is still away"))
    assert said == "Refused; 2 dead letters were not replayed."
    batch.refresh_from_db()
    assert (batch.status, batch.approved_by) == ("cancelled", "")
    assert batch.status_reason == "refused by carol: the vendor is still away"
    assert set(batch.items.values_list("status", "detail")) == {("cancelled", "the batch was refused")}
    assert messages_of(send(carol, batch, "refuse", reason="again")) == [
        "Nothing was changed: the batch is cancelled."
    ]


@pytest.mark.parametrize(
    "status", ["draft", *(pytest.param(one, marks=pytest.mark.long) for one in ("running", "cancelled"))]
)
def test_a_dry_run_is_made_only_where_it_is_offered(ann: Client, carol: Client, status: str) -> None:
    batch = drafted(ann)
    if status == "running":
        submit(ann, batch)
    elif status == "cancelled":
        batches.cancel(batch.pk, actor="ann")
    batch.refresh_from_db()
    for client in (ann, carol):
        assert f'action="{LIST}{batch.pk}/dry-run/"' not in page(client, batch)
        (said,) = messages_of(send(client, batch, "dry_run"))
        assert said == f"Nothing was changed: the batch is {status}."
    assert ReplayBatch.objects.get(pk=batch.pk).report == batch.report


@pytest.mark.long
def test_a_batch_that_ended_without_a_dry_run_does_not_mention_one(ann: Client) -> None:
    batch = drafted(ann)
    submit(ann, batch)
    assert "What would happen to each of the 2 dead letters" in page(ann, batch)
    ReplayBatch.objects.filter(pk=batch.pk).update(report={})  # as the form of a group makes one
    assert "Dry run" not in page(ann, batch)
    ReplayBatch.objects.filter(pk=batch.pk).update(status="cancelled", finished_at=timezone.now())
    assert "Dry run" not in page(ann, batch)


@pytest.mark.long
def test_a_batch_that_is_paused_is_checked_by_who_may_replay(ann: Client, carol: Client) -> None:
    batch = drafted(ann)
    submit(ann, batch)
    batches.pause(batch.pk, actor="ann")
    assert f'action="{LIST}{batch.pk}/dry-run/"' not in page(carol, batch)
    assert messages_of(send(carol, batch, "dry_run")) == ["Nothing was changed: the batch is paused."]
    assert messages_of(send(ann, batch, "dry_run"))[0].startswith("Dry run, nothing was replayed")


@pytest.mark.long
def test_how_many_batches_wait_stands_on_every_list_of_dead_letters(ann: Client) -> None:
    batch = drafted(ann)
    submit(ann, batch, is_restart="on")
    assert '<strong class="waiting">1 to approve</strong>' in ann.get(LETTERS).content.decode()
    batches.cancel(batch.pk, actor="ann")
    assert "to approve</strong>" not in ann.get(LETTERS).content.decode()


@pytest.mark.parametrize(
    ("across", "said"),
    [
        ("0", "2 dead letters picked by hand from the list of state:new"),
        pytest.param("1", "state:new", marks=pytest.mark.long),
    ],
)
def test_a_batch_says_whether_its_letters_were_all_that_matched(ann: Client, across: str, said: str) -> None:
    ids = [make_letter().pk for _ in range(3)]
    body = {"action": "replay_batch", "_selected_action": ids[:2], "select_across": across}
    question = ann.post(f"{LETTERS}?q=state:new", body)
    answer(ann, question, reason="OPS-7: the server is back")
    batch = ReplayBatch.objects.get()
    assert batch.item_count == (3 if across == "1" else 2)
    assert f">{said}</a>" in page(ann, batch)


def test_pause_resume_and_cancel(ann: Client) -> None:
    batch = drafted(ann)
    submit(ann, batch)
    assert messages_of(send(ann, batch, "pause")) == ["Paused."]
    assert messages_of(send(ann, batch, "resume", reason="looked at it")) == ["Resumed."]
    (said,) = messages_of(send(ann, batch, "cancel", reason="the server is away again"))
    assert said == "Cancelled; 2 dead letters were not replayed."
    assert status_of(batch) == "cancelled"
    text = page(ann, batch)
    assert "the server is away again" in text
    assert "Not replayed" in text
    assert messages_of(send(ann, batch, "resume", reason="again")) == [
        "Nothing was changed: the batch is cancelled."
    ]


@pytest.mark.long
def test_what_is_decided_about_is_what_has_no_outcome_yet(ann: Client) -> None:
    batch = drafted(ann, 3)
    submit(ann, batch)
    assert "Cancel the batch: 3 dead letters" in ann.get(f"{LIST}{batch.pk}/cancel/").content.decode()
    batch.items.filter(pk=batch.items.order_by("id")[0].pk).update(status="skipped")
    batches.pause(batch.pk, actor="ann")
    text = ann.get(f"{LIST}{batch.pk}/resume/").content.decode()
    assert "Resume: 2 dead letters" in text
    assert "2 dead letters of 3 without an outcome" in text


@pytest.mark.long
def test_what_is_new_since_the_draft_leads_to_just_that(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (timezone.now() + timedelta(minutes=minutes) for minutes in (-5, 5))
    chosen = [make_letter(created_at=before) for _ in range(2)]
    one, two = (row.group for row in chosen)
    make_letter(created_at=before, group=one)  # was there, and nobody chose it
    batch = batches.draft(filter={}, ids=[row.pk for row in chosen], actor="ann", reason="OPS-7")
    newer = [make_letter(created_at=after, group=group) for group in (one, two)]
    make_letter(created_at=after, group=factories.DeadLetterGroupFactory(error_class="RATE_LIMITED"))
    closed = make_letter(created_at=after, group=two)
    workflow.discard(closed.pk, actor="bob", reason="not needed")
    workflow.triage(newer[0].pk, actor="bob", category="data")
    words = f"{len(newer)} new since it was drafted"
    (address,) = re.findall(rf'<a href="([^"]+)">{words}</a>', page(ann, batch))
    found = ann.get(html.unescape(address)).context["cl"].result_list
    assert {row.pk for row in found} == {row.pk for row in newer}
    monkeypatch.setattr("deadletters.admin.batch_page.MAX_CHARACTERS", 20)  # no search can name them
    text = page(ann, batch)
    assert words in text
    assert f"{words}</a>" not in text


def test_progress_is_sent_while_it_runs_and_only_when_it_changed(ann: Client) -> None:
    batch = drafted(ann)
    submit(ann, batch)
    live = f"{LIST}{batch.pk}/live/"
    first = ann.get(live)
    assert first.headers["X-Live-Next"] == "2"
    assert "0 of 2 dead letters have an outcome." in first.content.decode()
    have = first.headers["X-Live-Have"]
    assert ann.get(live, {"have": have}).status_code == 204
    batches.pause(batch.pk, actor="ann")
    last = ann.get(live, {"have": have})
    assert (last.status_code, "X-Live-Next" in last.headers) == (200, False)
    again = drafted_again(batch, ann)
    have = ann.get(live).headers["X-Live-Have"]
    assert f'data-live-have="{have}"' in page(ann, again)


@pytest.mark.long
def test_the_page_follows_jobs_that_are_at_work_when_it_is_held(ann: Client) -> None:
    batch = drafted(ann)
    submit(ann, batch)
    item = batch.items.filter(pk=batch.items.order_by("id")[0].pk)
    item.update(status="ready")
    item.update(status="replaying", started_at=timezone.now())
    for act in (batches.pause, batches.cancel):
        assert act(batch.pk, actor="ann").ok
        assert "X-Live-Next" in ann.get(f"{LIST}{batch.pk}/live/").headers
        assert 'data-live-next="2"' in page(ann, batch)
    item.update(status="succeeded", finished_at=timezone.now())
    assert "X-Live-Next" not in ann.get(f"{LIST}{batch.pk}/live/").headers
    assert "data-live-next" not in page(ann, batch)


@pytest.mark.long
def test_the_letters_of_a_batch_are_found_by_its_number(ann: Client) -> None:
    batch = drafted(ann)
    ids = set(batch.items.values_list("letter_id", flat=True))
    workflow.discard(min(ids), actor="bob", reason="not needed")  # closed ones are shown as well
    other = make_letter()
    (address,) = re.findall(r'<a href="([^"]+)">Show them in the list</a>', page(ann, batch))
    assert address == f"{LETTERS}?q=batch%3A{batch.pk}"
    assert {row.pk for row in ann.get(address).context["cl"].result_list} == ids
    found = ann.get(LETTERS, {"q": f"-batch:{batch.pk}"}).context["cl"].result_list
    assert [row.pk for row in found] == [other.pk]


def test_the_letters_of_a_batch_are_found_by_an_index(ann: Client) -> None:
    batch = drafted(ann)
    found = DeadLetter.objects.filter(BATCH.condition(str(batch.pk))).order_by("-last_failure_at", "-id")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    plan = found[:100].explain()
    assert re.search(r"replay_items_(once|next)", plan)
    assert "InitPlan" in plan  # found once, not asked of every letter from the latest on


def drafted_again(batch: ReplayBatch, ann: Client) -> ReplayBatch:
    """Let the batch run as it did when its progress was asked for first."""
    batches.resume(batch.pk, actor="ann")
    return batch


@pytest.mark.long
def test_items_are_shown_by_outcome_page_by_page(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletters.admin.batch_page.ITEMS_PER_PAGE", 2)
    batch = drafted(ann, 3)
    ReplayItem.objects.filter(pk=batch.items.first().pk).update(status="skipped", detail="=cmd()")  # type: ignore[union-attr]
    first = ann.get(f"{LIST}{batch.pk}/change/")
    assert len(first.context["items"]) == 2
    second = ann.get(f"{LIST}{batch.pk}/change/{first.context['older']}")
    assert len(second.context["items"]) == 1
    skipped = ann.get(f"{LIST}{batch.pk}/change/?outcome=skipped")
    assert [item.detail for item in skipped.context["items"]] == ["=cmd()"]


def test_the_table_is_safe_for_spreadsheets(ann: Client) -> None:
    batch = drafted(ann)
    ReplayItem.objects.filter(batch=batch).update(status="skipped", detail='=HYPERLINK("http://x")')
    response = ann.get(f"{LIST}{batch.pk}/csv/")
    assert "attachment" in response.headers["Content-Disposition"]
    header, *rows = csv.reader(io.StringIO(response.content.decode()))
    assert header[0] == "letter"
    assert len(rows) == 2
    assert all(row[header.index("detail")].startswith("'=") for row in rows)


def test_reading_never_acts(ann: Client) -> None:
    batch = drafted(ann)
    for name in ("submit", "dry-run", "pause", "approve", "refuse", "resume", "cancel"):
        ann.get(f"{LIST}{batch.pk}/{name}/", {"reason": "because"})
    assert status_of(batch) == "draft"


def test_a_reader_reads_and_does_nothing(ann: Client) -> None:
    batch = drafted(ann)
    uma = factories.staff_client("uma", "auditor")
    assert "you need the permission" in page(uma, batch)
    for name in ("submit", "dry_run", "pause", "approve", "refuse", "resume", "cancel"):
        assert send(uma, batch, name, reason="because").status_code == 403
    assert status_of(batch) == "draft"


def test_the_list_leads_to_the_batch_and_teaches_when_it_is_empty(ann: Client) -> None:
    assert "No batch yet." in ann.get(LIST).content.decode()
    batch = drafted(ann)
    text = ann.get(LIST).content.decode()
    assert f"{LIST}{batch.pk}/change/" in text
    assert f"Batch {batch.pk}<br>" in text
    assert not re.search(r'value="delete_selected"', ann.get(LIST).content.decode())


@pytest.mark.long
def test_all_open_letters_of_a_group_are_one_press_away(ann: Client) -> None:
    letter = make_letter()
    question = ann.post(GROUPS, {"action": "replay_all", "_selected_action": [letter.group_id]})
    response = answer(ann, question, reason="the vendor is back")
    assert messages_of(response) == ["1 put into a batch. Open the batch."]
    batch = ReplayBatch.objects.get()
    assert response.request["PATH_INFO"] == f"{LIST}{batch.pk}/change/"
    assert f"all open dead letters of group {letter.group_id}" in page(ann, batch)
