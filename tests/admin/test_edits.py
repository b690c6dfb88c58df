"""The pages of edits: who sees a button, the preview of a request, and who decides."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from criticizer.security import reauthentication
from deadletters.edits import edit_requests
from deadletters.models import DeadLetter, LetterEdit
from reviews.models import ReviewJob
from tests import factories
from tests.deadletters.test_edit_requests import ANN, BOB, CAROL, asked, make_letter
from tests.letters import remove

pytestmark = pytest.mark.django_db
LETTERS = "/admin/deadletters/deadletter/"
EDITS = "/admin/deadletters/letteredit/"
NEW = f"{ANN}\n  carol@EXAMPLE.com "


@pytest.fixture(autouse=True)
def _on(settings: Any) -> None:
    settings.DEADLETTER_EDIT = True


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


@pytest.fixture
def bob() -> Client:
    return factories.staff_client("bob", "approver")


@pytest.fixture
def letter() -> DeadLetter:
    return make_letter()


def page(client: Client, address: str) -> str:
    return str(client.get(address).content.decode())


def letter_page(client: Client, letter: DeadLetter) -> str:
    return page(client, f"{LETTERS}{letter.pk}/change/")


def fill_in(client: Client, letter: DeadLetter, recipients: str, do: str, **fields: Any) -> Any:
    letter.refresh_from_db()
    body = {
        "row_version": letter.row_version,
        "data_recipients": recipients,
        "do": do,
        "reason": "",
        **fields,
    }
    return client.post(f"{LETTERS}{letter.pk}/edit/", body, follow=True)


def look_and_ask(client: Client, letter: DeadLetter, recipients: str = NEW) -> Any:
    looked = fill_in(client, letter, recipients, "look")
    return fill_in(
        client, letter, recipients, "ask", reason="OPS-1: has left", looked_at=looked.context["looked_at"]
    )


def messages_of(response: Any) -> list[str]:
    return [re.sub("<[^>]*>", "", str(message)) for message in response.context["messages"]]


# -- asking ------------------------------------------------------------------------------------


@pytest.mark.long
def test_off_there_is_no_button_and_the_address_names_the_setting(
    ann: Client, bob: Client, letter: DeadLetter, settings: Any
) -> None:
    edit = asked(make_letter())
    settings.DEADLETTER_EDIT = False
    assert "Edit the data" not in letter_page(ann, letter)
    refused = ann.get(f"{LETTERS}{letter.pk}/edit/", follow=True)
    assert "DEADLETTER_EDIT=true" in messages_of(refused)[0]
    assert "DEADLETTER_EDIT=true" in messages_of(fill_in(ann, letter, NEW, "ask"))[0]
    assert "It cannot be approved" in page(bob, f"{EDITS}{edit.pk}/change/")
    late = bob.post(f"{EDITS}{edit.pk}/approve/", {"reason": "checked"}, follow=True)
    assert "DEADLETTER_EDIT=true" in messages_of(late)[0]
    assert not DeadLetter.objects.filter(generation=2).exists()


def test_off_is_the_default() -> None:
    from criticizer import settings as product

    assert product.DEADLETTER_EDIT is False


@pytest.mark.long
def test_only_who_works_on_letters_is_offered_an_edit_and_only_where_one_is_possible(
    ann: Client, bob: Client, letter: DeadLetter
) -> None:
    assert "Edit the data" in letter_page(ann, letter)
    assert "Edit the data" not in letter_page(bob, letter)
    assert bob.get(f"{LETTERS}{letter.pk}/edit/").status_code == 403
    late = make_letter(status="verifying")
    assert "Edit the data" not in letter_page(ann, late)
    refused = ann.get(f"{LETTERS}{late.pk}/edit/", follow=True)
    assert "already to be verified" in messages_of(refused)[0]


def test_the_page_shows_what_is_locked_and_why(ann: Client, letter: DeadLetter) -> None:
    text = page(ann, f"{LETTERS}{letter.pk}/edit/")
    for part in (letter.job.idempotency_key, "It deduplicates requests.", ANN, BOB,
                 "They can read the findings", "A replay sets a new deadline"):  # fmt: skip
        assert part in text
    assert "rarely caused by data" not in text
    assert "rarely caused by data" in page(
        ann, f"{LETTERS}{make_letter(error_class='NETWORK_TIMEOUT').pk}/edit/"
    )


def test_the_difference_is_shown_before_it_can_be_asked_for(ann: Client, letter: DeadLetter) -> None:
    looked = fill_in(ann, letter, NEW, "look")
    (shown,) = looked.context["difference"]
    assert [(line.text, line.state) for line in shown.lines] == [
        (BOB, "removed"),
        (CAROL, "added"),
        (ANN, "kept"),
    ]
    assert not LetterEdit.objects.exists()
    # Asking for something else than what was looked at shows the difference once more.
    other = fill_in(ann, letter, ANN, "ask", reason="OPS-1", looked_at=looked.context["looked_at"])
    assert [line.state for line in other.context["difference"][0].lines] == ["removed", "kept"]
    assert not LetterEdit.objects.exists()
    done = look_and_ask(ann, letter)
    assert messages_of(done) == ["Requested: another person must approve it."]
    edit = LetterEdit.objects.get()
    assert (edit.requested_by, edit.after) == ("ann", {"recipients": [ANN, CAROL]})
    assert "Edit requested" in letter_page(ann, letter)
    assert "It is not archived while an edit of it waits for approval." in letter_page(ann, letter)


@pytest.mark.parametrize(
    ("recipients", "message"),
    [
        ("", "At least one recipient is required"),
        (f"{ANN}\nnobody", "nobody: A mail recipient lacks its domain."),
        (f"{ANN}\n{BOB}", "The data is unchanged. Change a field first."),
        (BOB, "has been notified already and cannot be removed."),
        (f"{ANN}\nmail:&lt;b&gt;@example.com", "must be the bare address"),
    ],
)
def test_what_cannot_be_is_said_beside_its_field(
    ann: Client, letter: DeadLetter, recipients: str, message: str
) -> None:
    response = fill_in(ann, letter, recipients, "look")
    assert message in response.content.decode()
    assert "Nothing was changed." in response.content.decode()
    assert not response.context["difference"]


def test_an_edit_needs_a_reason(ann: Client, letter: DeadLetter) -> None:
    looked = fill_in(ann, letter, NEW, "look")
    response = fill_in(ann, letter, NEW, "ask", looked_at=looked.context["looked_at"])
    assert "A reason is required." in response.content.decode()
    assert not LetterEdit.objects.exists()


def test_a_letter_that_changed_meanwhile_is_not_edited(ann: Client, letter: DeadLetter) -> None:
    body = {"row_version": letter.row_version + 1, "data_recipients": NEW, "do": "ask", "reason": "OPS-1"}
    response = ann.post(f"{LETTERS}{letter.pk}/edit/", body)
    assert response.status_code == 409
    assert "changed while you were editing. Your change was not saved." in response.content.decode()


@pytest.mark.long
def test_a_locked_field_in_the_form_is_not_listened_to(ann: Client, letter: DeadLetter) -> None:
    fill_in(ann, letter, NEW, "look", data_changelist_id="7", changelist_id="7")
    look_and_ask(ann, letter)
    assert set(LetterEdit.objects.get().after) == {"recipients"}


# -- deciding ----------------------------------------------------------------------------------


@pytest.mark.long
def test_approvers_see_what_waits_and_how_much(ann: Client, bob: Client, letter: DeadLetter) -> None:
    assert "to approve" not in page(bob, "/admin/deadletters/deadlettergroup/")
    edit = asked(letter)
    for address in (EDITS, "/admin/deadletters/deadlettergroup/", "/admin/deadletters/replaybatch/"):
        assert "1 to approve" in page(bob, address)
    shown = bob.get(EDITS).context["cl"].result_list
    assert [row.pk for row in shown] == [edit.pk]
    text = page(bob, f"{EDITS}{edit.pk}/change/")
    assert "Approve the edit…" in text
    assert "Refuse the edit…" in text
    assert "Withdraw" not in text
    own = page(ann, f"{EDITS}{edit.pk}/change/")
    assert "Withdraw the edit…" in own
    assert "Approve the edit…" not in own


@pytest.mark.long
def test_an_approval_links_the_letters_both_ways(ann: Client, bob: Client, letter: DeadLetter) -> None:
    look_and_ask(ann, letter)
    edit = LetterEdit.objects.get()
    question = page(bob, f"{EDITS}{edit.pk}/approve/")
    assert CAROL in question
    assert "the approval replays nothing" in question
    empty = bob.post(f"{EDITS}{edit.pk}/approve/", {"reason": ""})
    assert "A reason is required." in empty.content.decode()
    done = bob.post(f"{EDITS}{edit.pk}/approve/", {"reason": "carol leads"}, follow=True)
    new = letter.generations.get()
    assert messages_of(done) == [f"Approved. Replaced by dead letter {new.pk}."]
    old_text, new_text = letter_page(ann, letter), letter_page(ann, new)
    assert re.search(
        rf"Edited by ann, approved by bob .*: replaced by <a[^>]*>dead letter {new.pk}</a>", old_text
    )
    assert re.search(rf"Generation 2: the edited copy of <a[^>]*>dead letter {letter.pk}</a>", new_text)
    assert "Now: Validate" in new_text
    assert CAROL in new_text
    assert ReviewJob.objects.get().recipients == [ANN, CAROL]
    again = bob.get(f"{EDITS}{edit.pk}/refuse/", follow=True)
    assert messages_of(again) == ["Nothing was changed: the edit is applied."]


def test_who_asked_cannot_decide_even_with_the_permission(letter: DeadLetter) -> None:
    user = factories.UserFactory(username="xena", is_staff=True, is_superuser=True)
    xena = Client()
    xena.force_login(user)
    look_and_ask(xena, letter)
    edit = LetterEdit.objects.get()
    for name in ("approve", "refuse"):
        refused = xena.post(f"{EDITS}{edit.pk}/{name}/", {"reason": "quick"}, follow=True)
        assert "your own edit" in messages_of(refused)[0]
    done = xena.post(f"{EDITS}{edit.pk}/withdraw/", {"reason": "no more"}, follow=True)
    assert messages_of(done) == ["Withdrawn."]
    edit.refresh_from_db()
    assert edit.status == "withdrawn"


def test_a_stale_edit_says_why_it_is_refused(bob: Client, letter: DeadLetter) -> None:
    edit = asked(letter)
    ReviewJob.objects.update(recipients=[ANN])
    done = bob.post(f"{EDITS}{edit.pk}/approve/", {"reason": "checked"}, follow=True)
    assert messages_of(done) == [
        "Nothing was changed: the edit was refused: its recipients changed since the edit was requested."
    ]


def test_an_edit_whose_letter_is_in_the_archive_can_still_be_read(bob: Client, letter: DeadLetter) -> None:
    edit = asked(letter)
    edit_requests.withdraw(edit.pk, actor="ann", reason="no more")
    remove(letter.pk)
    assert "which is in the archive" in page(bob, f"{EDITS}{edit.pk}/change/")
    assert len(bob.get(f"{EDITS}?by=all").context["cl"].result_list) == 1


@pytest.mark.parametrize("address", ["letter", "approve"])
def test_the_password_is_asked_for_again(
    ann: Client, bob: Client, letter: DeadLetter, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = asked(make_letter())
    monkeypatch.setattr(reauthentication, "MAX_AGE_SECONDS", -1)
    client, path = (
        (ann, f"{LETTERS}{letter.pk}/edit/") if address == "letter" else (bob, f"{EDITS}{edit.pk}/approve/")
    )
    for response in (client.get(path), client.post(path, {"reason": "checked"})):
        assert response.status_code == 302
        assert "/confirm-password/" in response["Location"] or "reauth" in response["Location"]
    edit.refresh_from_db()
    assert edit.status == "requested"


@pytest.mark.long
def test_what_people_typed_is_shown_as_text(ann: Client, bob: Client) -> None:
    letter = make_letter()
    looked = fill_in(ann, letter, NEW, "look")
    fill_in(
        ann, letter, NEW, "ask", reason="<script>alert(1)</script>", looked_at=looked.context["looked_at"]
    )
    edit = LetterEdit.objects.get()
    for address in (EDITS, f"{EDITS}{edit.pk}/change/", f"{EDITS}{edit.pk}/approve/"):
        assert "<script>alert(1)" not in page(bob, address)
