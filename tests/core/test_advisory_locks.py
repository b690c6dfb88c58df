"""Advisory locks: no two things share a number, and who holds one lets go of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import transaction

from criticizer.db import prepared
from criticizer.queue import advisory_locks
from criticizer.queue.advisory_locks import Lock
from criticizer.queue.broker import connect

# What is locked there is a text: there is no number that another could share.
BY_TEXT = {"reviews/intake/review_requests.py": 1}
UNLOCK_ALL = "SELECT pg_advisory_unlock_all()"  # a session that was closed lets go later


def test_no_number_is_given_twice() -> None:
    assert len({lock.value for lock in Lock.__members__.values()}) == len(Lock.__members__)


def test_no_other_module_holds_a_lock_number() -> None:
    found = {}
    for room in ("criticizer", "reviews", "notifications", "deadletters"):
        for path in (settings.BASE_DIR / room).rglob("*.py"):
            text = path.read_text()
            name = str(path.relative_to(settings.BASE_DIR))
            if number := len(re.findall(r"pg_\w*advisory", text)):
                found[name] = number
            if name != "criticizer/queue/advisory_locks.py":
                assert not re.search(r"\b7_?10[01]_?\d{3}\b", text), (
                    f"{name}: a number of criticizer.queue.advisory_locks"
                )
    assert found.pop("criticizer/queue/advisory_locks.py")
    assert found == BY_TEXT


@pytest.fixture
def elsewhere() -> Iterator[object]:
    """A session of another process."""
    with connect() as other:
        yield lambda lock: other.execute(advisory_locks.TRY, {"lock": lock.value}).fetchone()["got"]
        other.execute(UNLOCK_ALL)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lock", Lock)
def test_a_lock_that_is_held_elsewhere_is_said_to_be_and_the_others_are_free(
    lock: Lock, elsewhere: object
) -> None:
    assert elsewhere(lock)  # type: ignore[operator]
    for other in Lock:
        with advisory_locks.held(other) as is_mine:
            assert is_mine == (other is not lock)
        with transaction.atomic():
            assert advisory_locks.take_now(other) == (other is not lock)


@pytest.mark.django_db(transaction=True)
def test_a_lock_ends_with_its_block_and_with_its_transaction(elsewhere: object) -> None:
    def fails() -> None:
        with advisory_locks.held(Lock.SWEEP) as is_mine:
            assert is_mine
            assert not elsewhere(Lock.SWEEP)  # type: ignore[operator]
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fails()
    assert elsewhere(Lock.SWEEP)  # type: ignore[operator]
    with transaction.atomic():
        assert advisory_locks.take_now(Lock.ROLL_UP)
        assert not elsewhere(Lock.ROLL_UP)  # type: ignore[operator]
    assert elsewhere(Lock.ROLL_UP)  # type: ignore[operator]


@pytest.mark.django_db(transaction=True)
def test_a_lock_of_one_key_leaves_the_other_keys_free() -> None:
    with connect() as other, advisory_locks.held(Lock.DIGEST_ASK, 2**40) as is_mine:
        assert is_mine
        answers = [
            other.execute(
                "SELECT pg_try_advisory_lock(%s, hashint8(%s)) AS got", [Lock.DIGEST_ASK.value, key]
            ).fetchone()
            for key in (2**40, 2**40 + 1)
        ]
        assert answers == [{"got": False}, {"got": True}]
        other.execute(UNLOCK_ALL)
    with connect() as other, transaction.atomic():
        advisory_locks.take(Lock.DIGEST_JOIN, "mail:ann@example.com")
        held = "SELECT classid, objsubid FROM pg_locks WHERE locktype = 'advisory'"
        assert other.execute(held).fetchall() == [{"classid": Lock.DIGEST_JOIN.value, "objsubid": 2}]
    assert prepared.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
