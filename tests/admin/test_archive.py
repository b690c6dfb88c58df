"""The archive in the admin: files, archived letters, restoring, and reopening of discards."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.test import Client
from django.utils import timezone

from deadletters import groups, workflow
from deadletters.admin import archive as archive_admin
from deadletters.models import DeadLetter, DeadLetterGroup, LetterArchive
from deadletters.retention import letter_archive, policy
from tests import factories
from tests.admin.test_letters import LIST, answer, ask, make_letter, messages_of, page
from tests.letters import archive_in

pytestmark = pytest.mark.django_db
ARCHIVE = "/admin/deadletters/letterarchive/"


@pytest.fixture(autouse=True)
def _own_files(settings: Any, tmp_path: Path) -> None:
    archive_in(tmp_path / "letters", settings)


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


def archived(*, of: int = 1, **fields: Any) -> tuple[list[DeadLetter], LetterArchive]:
    """Let retention write one file of letters; return them and the file's row."""
    at = timezone.now() - timedelta(days=8)
    letters = [make_letter(first_failure_at=at, last_failure_at=at, **fields) for _ in range(of)]
    assert policy.enforce(timezone.now()) == of
    return letters, LetterArchive.objects.latest("pk")


def shown(client: Client, address: str) -> str:
    """Return what a page says, without its tags."""
    return " ".join(re.sub("<[^>]*>", " ", client.get(address).content.decode()).split())


def at(archive: LetterArchive, query: str = "") -> str:
    return f"{ARCHIVE}{archive.pk}/change/{query}"


# -- the list ----------------------------------------------------------------------------------


def test_the_list_says_what_lies_in_each_file(ann: Client) -> None:
    letters, archive = archived(of=3)
    LetterArchive.objects.create(  # of a version that did not count yet
        name="older", sha256="0" * 64, letter_count=7, first_letter=1, last_letter=9
    )
    text = shown(ann, ARCHIVE)
    numbers = f"{letters[0].pk}\u2013{letters[2].pk}"
    assert f"{archive.name} 3 dead letters {numbers} 3 never triaged none restored" in text
    assert "older 7 dead letters 1\u20139 none restored" in text
    assert '<a href="/admin/deadletters/letterarchive/" aria-current="page">Archive</a>' in (
        ann.get(ARCHIVE).content.decode()
    )


def test_a_letters_number_finds_the_file_that_holds_it(ann: Client) -> None:
    """Files hold letters by age: their numbers overlap."""
    first, between, last = (make_letter() for _ in range(3))
    old = timezone.now() - timedelta(days=8)
    for some in ([first, last], [between]):
        DeadLetter.objects.filter(pk__in=[letter.pk for letter in some]).update(last_failure_at=old)
        policy.enforce(timezone.now())
    wide, narrow = LetterArchive.objects.order_by("pk")
    for numbers, files in (
        (f"{between.pk}", [narrow]),
        (f"{last.pk}", [wide]),
        (f"{first.pk},{between.pk}", [narrow, wide]),
        ("987654", []),
    ):
        found = ann.get(f"{ARCHIVE}?q=letter:{numbers}").context["cl"].result_list
        assert list(found) == files
    assert "is not a number" in shown(ann, f"{ARCHIVE}?q=letter:x")
    assert "Search for fewer at a time" in shown(ann, f"{ARCHIVE}?q=letter:{','.join(['1'] * 51)}")


# -- a file ------------------------------------------------------------------------------------


def test_a_file_lists_its_letters_a_page_at_a_time(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_admin, "LETTERS_PER_PAGE", 2)
    letters, archive = archived(of=3, status="discarded", closed_at=timezone.now() - timedelta(days=8))
    text = shown(ann, at(archive))
    assert "1 to 2 of 3, by number" in text
    first = f"{letters[0].pk} {letters[0].job} fetch NETWORK_TIMEOUT CRITICIZER_E101 Discarded 8 d ago No"
    assert first in text
    assert str(letters[2].job) not in text
    assert str(letters[2].job) in shown(ann, at(archive, "?page=2"))
    letter_archive.restore(archive, actor="ann", reason="OPS-1", letters=[letters[0].pk])
    assert "Discarded 8 d ago Yes : Discarded" in shown(ann, at(archive))


def test_a_letter_is_shown_as_it_was_archived_with_its_timeline(ann: Client) -> None:
    (letter,), archive = archived()
    text = shown(ann, at(archive, f"?letter={letter.pk}"))
    for part in (
        f"Dead letter {letter.pk} as archived",
        "The version control server did not answer in time.",
        "Traceback &lt;b&gt;bold&lt;/b&gt;",
        "note &lt;script&gt;",
        "Restore this dead letter",
    ):
        assert part in text
    since, then = text.split("History as archived")
    assert "Archived and removed by criticizer" in since.split("History since then")[1]
    assert "Created by pipeline" in then
    assert "Created by pipeline" not in since
    response = ann.get(at(archive, "?letter=987654"), follow=True)
    assert messages_of(response) == ["This file does not hold dead letter 987654."]


def test_the_old_address_of_a_letter_leads_to_it_in_the_archive(ann: Client) -> None:
    (letter,), archive = archived()
    for tail in ("change", "discard"):
        response = ann.get(f"{LIST}{letter.pk}/{tail}/", follow=True)
        assert response.redirect_chain[-1][0] == at(archive, f"?letter={letter.pk}")
        assert f"Dead letter {letter.pk} as archived" in response.content.decode()
    with connection.cursor() as cursor:  # a database that lost the row: none of its own statements deletes it
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("DELETE FROM letter_archives")
        cursor.execute("SET LOCAL session_replication_role = origin")
    response = ann.get(f"{LIST}{letter.pk}/change/", follow=True)
    assert response.redirect_chain[-1][0] == "/admin/"


class BucketAway(Exception):
    """Error of a storage that is no file system; such errors are no OSErrors."""


@pytest.mark.parametrize("what", ["gone", "changed", "other key", "unreadable", "away"])
def test_a_damaged_file_says_so_and_what_to_do(
    ann: Client, what: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (letter,), archive = archived()
    path = Path(letter_archive.storage().path(archive.name))
    said = f"{archive.name} is missing."
    if what == "gone":
        path.unlink()
    elif what == "changed":
        path.write_bytes(letter_archive.Vault(settings.ARTIFACT_KEYS).seal(b"{}"))
        said = "its digest differs."
    elif what == "other key":
        settings.ARTIFACT_KEYS = [Fernet.generate_key().decode()]
        said = "opens with none of ARTIFACT_KEYS."
    elif what == "unreadable":
        path.unlink()
        path.mkdir()
        said = "cannot be read: Is a directory."
    else:

        def away(name: str) -> bytes:
            raise BucketAway

        monkeypatch.setattr(letter_archive, "_opened", away)
        said = "cannot be read: BucketAway."
    for query in ("", f"?letter={letter.pk}"):
        text = shown(ann, at(archive, query))
        assert "This file cannot be read" in text
        assert said in text
        assert ("Put the file back from a backup" in text) == (what not in {"unreadable", "away"})
        assert "Restore all" not in text
    response = ann.post(f"{ARCHIVE}{archive.pk}/restore/", {"reason": "OPS-1"}, follow=True)
    (message,) = messages_of(response)
    assert message.startswith("Nothing was restored: ")
    assert not DeadLetter.objects.exists()


# -- the way back ------------------------------------------------------------------------------


def test_one_letter_is_restored_for_a_reason_by_who_is_logged_in(ann: Client) -> None:
    (letter, other), archive = archived(of=2)
    groups.resolve_group(letter.group_id, actor="bob", reason="it is over")
    address = f"{ARCHIVE}{archive.pk}/restore/?letter={letter.pk}"
    assert f"Restore dead letter {letter.pk}" in shown(ann, address)
    assert "A reason is required." in ann.post(address, {"reason": ""}).content.decode()
    assert not DeadLetter.objects.exists()
    response = ann.post(address, {"reason": "OPS-4: still needed"}, follow=True)
    assert messages_of(response) == ["1 restored. Open it."]
    back = DeadLetter.objects.get()
    assert back.pk == letter.pk != other.pk
    event = back.events.get(action="restored")
    assert (event.actor, event.reason) == ("ann", "OPS-4: still needed")
    assert f"{LIST}{letter.pk}/change/" in response.content.decode()
    assert "Restore this dead letter" not in response.content.decode()
    # Its group needs attention again, and says who brought that about.
    assert DeadLetterGroup.objects.get().status == "open"
    landing = ann.get("/admin/deadletters/deadlettergroup/").context["cl"].result_list
    assert [group.pk for group in landing] == [letter.group_id]
    assert "1 restored." not in shown(ann, ARCHIVE)
    assert LetterArchive.objects.get().restored_count == 1


@pytest.mark.long
def test_all_letters_are_restored_and_what_stays_says_why(ann: Client) -> None:
    (one, two, three), archive = archived(of=3)
    letter_archive.restore(archive, actor="bob", reason="OPS-1", letters=[one.pk])
    replaced = make_letter(job=two.job)
    address = f"{ARCHIVE}{archive.pk}/restore/"
    assert "3 dead letters , 1 of which exists already and is skipped" in shown(ann, address)
    response = ann.post(address, {"reason": "OPS-4: still needed"}, follow=True)
    (message,) = messages_of(response)
    assert message == (
        "1 restored, 1 skipped: it already exists; "
        "1 skipped: its job has another open dead letter of this stage. Open it."
    )
    assert set(DeadLetter.objects.values_list("pk", flat=True)) == {one.pk, three.pk, replaced.pk}
    address = f"{ARCHIVE}{archive.pk + 1}/restore/"
    assert ann.get(address, follow=True).redirect_chain[-1][0] == "/admin/"


def test_many_that_are_back_are_shown_together(ann: Client) -> None:
    letters, archive = archived(of=2)
    response = ann.post(f"{ARCHIVE}{archive.pk}/restore/", {"reason": "OPS-4"}, follow=True)
    assert messages_of(response) == ["2 restored. Show these 2 dead letters."]
    (link,) = re.findall(r'href="([^"]*)">Show these', response.content.decode())
    found = ann.get(link.replace("&amp;", "&")).context["cl"].result_list
    assert {letter.pk for letter in found} == {letter.pk for letter in letters}


@pytest.mark.parametrize("role", ["approver", "auditor"])
def test_who_only_reads_sees_the_archive_and_restores_nothing(role: str) -> None:
    (letter,), archive = archived()
    eve = factories.staff_client("eve", role)
    text = shown(eve, at(archive, f"?letter={letter.pk}"))
    assert "you need the permission to restore dead letters" in text
    assert not re.search(r"\bRestore\b", shown(eve, at(archive)))
    assert eve.post(f"{ARCHIVE}{archive.pk}/restore/", {"reason": "OPS-1"}).status_code == 403
    assert not DeadLetter.objects.exists()


# -- discards ----------------------------------------------------------------------------------


def test_a_discard_says_how_it_is_taken_back(ann: Client) -> None:
    letter = make_letter()
    text = shown(ann, f"{LIST}{letter.pk}/discard/")
    kept = "for 7 days, as long as its review is still dead-lettered."
    assert f"You can undo this with Reopen on its page {kept}" in text
    assert (
        "Reopen undoes this as long as the dead letters are stored and their reviews are still dead-lettered."
        in (ask(ann, "discard", [letter.pk]).content.decode())
    )


def test_a_discarded_letter_is_reopened_on_its_page(ann: Client) -> None:
    letter = make_letter()
    workflow.discard(letter.pk, actor="ann", reason="by mistake")
    html = page(ann, letter)
    assert "Reopen undoes the discard" in html
    (target,) = re.findall(r'<form method="post" action="([^"]*by=all)">', html)
    form = {"action": "reopen", "_selected_action": [letter.pk]}
    question = ann.post(target, form, follow=True)
    assert "Discarded dead letters are new again" in question.content.decode()
    response = answer(ann, question, reason="OPS-5: it was the wrong one")
    assert messages_of(response) == ["1 reopened."]
    text = shown(ann, f"{LIST}{letter.pk}/change/")
    assert "Now: Triage" in text
    assert "Reopened by ann" in text
    assert "OPS-5: it was the wrong one" in text
    assert "Reopen\u2026" not in text


def test_a_discarded_letter_that_cannot_be_reopened_says_why(ann: Client) -> None:
    letter = make_letter()
    workflow.discard(letter.pk, actor="ann", reason="by mistake")
    factories.ReviewJobFactory(changelist_id=letter.job.changelist_id, review_version=2, status="succeeded")
    html = page(ann, letter)
    assert "It cannot be reopened: newer version exists: 2." in html
    assert 'value="reopen"' not in html


@pytest.mark.long
def test_many_are_reopened_from_the_list_and_the_others_say_why_not(ann: Client) -> None:
    one, two, stays = (make_letter() for _ in range(3))
    for letter in (one, two, stays):
        workflow.discard(letter.pk, actor="ann", reason="by mistake")
    factories.ReviewJobFactory(changelist_id=stays.job.changelist_id, review_version=2, status="succeeded")
    form = {"action": "reopen", "_selected_action": [one.pk, two.pk, stays.pk]}
    question = ann.post(f"{LIST}?q=state:discarded", form, follow=True)
    assert "1 dead letter, newer version exists: 2" in question.content.decode()
    (message,) = messages_of(answer(ann, question, reason="OPS-5"))
    assert message.startswith("2 reopened, 1 skipped: newer version exists: 2.")
    assert DeadLetter.objects.filter(status="new").count() == 2


def test_who_only_reads_cannot_reopen(ann: Client) -> None:
    letter = make_letter()
    workflow.discard(letter.pk, actor="ann", reason="by mistake")
    eve = factories.staff_client("eve", "auditor")
    assert 'value="reopen"' not in page(eve, letter)


def test_a_letter_that_a_batch_has_in_hand_says_so(ann: Client) -> None:
    from deadletters import batches

    letter = make_letter(last_failure_at=timezone.now() - timedelta(days=6.5))
    batch = batches.draft(filter={}, ids=[letter.pk], actor="ann", reason="OPS-1")
    address = f"/admin/deadletters/replaybatch/{batch.pk}/change/"
    assert f'<a href="{address}">It is not archived while it is part of batch {batch.pk}.</a>' in page(
        ann, letter
    )
