"""Edits beside concurrent actions: one wins, the other is refused, none is half done."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from deadletters import workflow
from deadletters.edits import edit_requests
from deadletters.models import DeadLetter, DeadLetterGroup, LetterEdit
from notifications.models import Delivery
from reviews.models import ReviewJob
from tests import skips
from tests.deadletters.test_edit_requests import ANN, BOB, CAROL, ask, asked, make_letter

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 6 if skips.is_all() else 2


@pytest.fixture(autouse=True)
def _on(settings: Any) -> None:
    settings.DEADLETTER_EDIT = True


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Do all of them at the same moment, each on a connection of its own; return their answers."""
    barrier = Barrier(len(actions))

    def do(action: Callable[[], Any]) -> Any:
        try:
            barrier.wait(30)
            return action()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result(60) for future in [pool.submit(do, action) for action in actions]]


def _approved(edit: LetterEdit, by: str = "bob") -> Callable[[], Any]:
    return lambda: edit_requests.approve(edit.pk, actor=by, reason="checked")


def test_concurrent_approvals_make_one_generation() -> None:
    for _ in range(ROUNDS):
        letter = make_letter()
        edit = asked(letter)
        answers = at_once(_approved(edit, "bob"), _approved(edit, "carol"))
        assert sorted(answer.ok for answer in answers) == [False, True]
        refused = next(answer.message for answer in answers if not answer.ok)
        edit.refresh_from_db()
        assert refused.startswith(f"already applied by {edit.decided_by} at ")
        assert letter.generations.count() == 1


def test_concurrent_requests_leave_one_edit() -> None:
    for _ in range(ROUNDS):
        letter = make_letter()
        answers = at_once(partial(ask, letter, actor="ann"), partial(ask, letter, actor="bob"))
        assert sorted(answer.ok for answer in answers) == [False, True]
        assert letter.edits.count() == 1


@pytest.mark.long
def test_concurrent_approval_and_withdrawal_have_one_outcome() -> None:
    for _ in range(ROUNDS):
        letter = make_letter()
        edit = asked(letter)
        withdraw = lambda pk=edit.pk: edit_requests.withdraw(pk, actor="ann", reason="no more")  # noqa: E731
        approved, withdrawn = at_once(_approved(edit), withdraw)
        assert approved.ok != withdrawn.ok
        edit.refresh_from_db()
        assert edit.status == ("applied" if approved.ok else "withdrawn")
        assert letter.generations.count() == int(approved.ok)


def _consistent(letter: DeadLetter, *, is_applied: bool) -> None:
    """All of an edit is there, or none of it."""
    job = ReviewJob.objects.get(pk=letter.job_id)
    assert job.recipients == ([ANN, CAROL] if is_applied else [ANN, BOB])
    assert letter.generations.count() == int(is_applied)
    bob = Delivery.objects.get(job=job, recipient=BOB).status
    assert (bob == "superseded") == is_applied
    group = DeadLetterGroup.objects.get(pk=letter.group_id)
    open_letters = group.letters.exclude(status__in=["resolved", "discarded"]).count()
    assert group.open_count == open_letters


def test_an_approval_that_races_a_replay_leaves_one_of_them() -> None:
    for _ in range(ROUNDS):
        letter = make_letter()
        edit = asked(letter)
        workflow.triage(letter.pk, actor="dora", category="data")
        workflow.remediate(letter.pk, actor="dora", evidence_note="OPS-1")
        assert workflow.validate(letter.pk, actor="dora", override_reason="known").ok
        replay = lambda pk=letter.pk: workflow.replay(pk, actor="dora", reason="OPS-1")  # noqa: E731
        approved, replayed = at_once(_approved(edit), replay)
        assert approved.ok != replayed.ok
        _consistent(letter, is_applied=approved.ok)
        letter.refresh_from_db()
        edit.refresh_from_db()
        assert (letter.status, edit.status) == (
            ("discarded", "applied") if approved.ok else ("replaying", "refused")
        )


@pytest.mark.long
def test_an_approval_that_races_a_discard_leaves_one_of_them() -> None:
    for _ in range(ROUNDS):
        letter = make_letter()
        edit = asked(letter)
        discard = lambda pk=letter.pk: workflow.discard(pk, actor="dora", reason="OPS-1")  # noqa: E731
        approved, discarded = at_once(_approved(edit), discard)
        assert approved.ok != discarded.ok
        _consistent(letter, is_applied=approved.ok)
        edit.refresh_from_db()
        assert edit.status == ("applied" if approved.ok else "refused")
