"""Subscribers of a change by their `Reviews:`, from the stand-in `p4` (documented records)."""

from __future__ import annotations

from pathlib import Path

import pytest

from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, RetryableFailure
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Change
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.perforce import reviewers
from reviews.sources.perforce.reviewers import Subscriber, Subscribers
from reviews.sources.perforce.source import PerforceSource
from tests.fakes.p4.server import CONNECTION_REFUSED, FakeDepot, added

A, B = "//depot/main/a.c", "//depot/main/b.c"


@pytest.fixture
def depot(tmp_path: Path) -> FakeDepot:
    made = FakeDepot(tmp_path)
    made.user("ann", "ann@example.com", "//depot/main/...")
    made.user("bob", "bob@example.com", "//depot/libs/...")
    made.user("eve", "eve@example.com", "//depot/main/...", "-//depot/main/a.c")
    return made


def asked(depot: FakeDepot, number: str) -> Subscribers:
    source = PerforceSource(depot.config())
    return source.reviewers.of(fetched(source, number))


def fetched(source: PerforceSource, number: str) -> Change:
    return ChangeFetcher(source, AllowList(["//depot/main/..."]), print).fetch(number)


def test_readers_of_a_submitted_change_are_found_with_their_address(depot: FakeDepot) -> None:
    number = depot.submit(added(A, "1\n"))
    assert asked(depot, number).people == (Subscriber("ann", "ann@example.com"),)
    assert [call.argv[-3:] for call in depot.calls("reviews")] == [["reviews", "-c", number]]
    assert [call.argv[-3:] for call in depot.calls("user")] == [["user", "-o", "ann"]]


def test_readers_of_a_shelf_are_found_by_its_paths(depot: FakeDepot) -> None:
    number = depot.shelve(added(A, "1\n"), added(B, "2\n"))
    assert [person.user for person in asked(depot, number).people] == ["ann", "eve"]
    (call,) = depot.calls("reviews")
    assert call.stdin == [A, B]


def test_change_without_subscribers_looks_up_no_user(depot: FakeDepot) -> None:
    depot.scenario["users"].clear()
    assert asked(depot, depot.submit(added(A, "1\n"))) == Subscribers()
    assert depot.calls("user") == []


def test_what_a_user_is_called_never_becomes_an_option_or_a_pattern(depot: FakeDepot) -> None:
    for name in ("-o", "--help", "a b", "x*", "u@host", '"q"'):
        depot.user(name, "m@example.com", "//depot/main/...")
    found = asked(depot, depot.submit(added(A, "1\n")))
    assert [person.user for person in found.people] == ["ann"]
    assert found.left_out == 6
    assert len(depot.calls("user")) == 1


def test_there_is_a_limit_and_it_says_how_many_it_left_out(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewers, "MAX_PEOPLE", 2)
    for name in ("u1", "u2", "u3"):
        depot.user(name, f"{name}@example.com", "//depot/main/...")
    found = asked(depot, depot.submit(added(A, "1\n")))
    assert ([person.user for person in found.people], found.left_out) == (["ann", "u1"], 2)


def test_user_that_cannot_be_looked_up_has_the_address_of_p4_reviews(depot: FakeDepot) -> None:
    number = depot.submit(added(A, "1\n"))
    depot.misbehave("user", messages=["no_permission"])
    assert asked(depot, number).people == (Subscriber("ann", "ann@example.com"),)


def test_form_of_a_missing_user_gives_no_address(depot: FakeDepot) -> None:
    number = depot.submit(added(A, "1\n"))
    invented = '{"Email":"ann@client-host","FullName":"ann","User":"ann"}\n'
    depot.misbehave("user", stdout=invented)
    assert asked(depot, number).people == (Subscriber("ann", "ann@example.com"),)


@pytest.mark.parametrize("command", ["reviews", "user"])
@pytest.mark.parametrize(
    ("trouble", "kind", "error_class"),
    [
        ({"stderr": CONNECTION_REFUSED, "exit": 1}, RetryableFailure, ErrorClass.NETWORK_UNREACHABLE),
        ({"messages": ["busy"]}, RetryableFailure, ErrorClass.RATE_LIMITED),
        ({"messages": ["session_expired"]}, PermanentFailure, ErrorClass.AUTH_DENIED),
    ],
)
def test_trouble_with_the_server_is_classified(
    depot: FakeDepot, command: str, trouble: dict[str, object], kind: type[Failure], error_class: ErrorClass
) -> None:
    source = PerforceSource(depot.config())
    change = fetched(source, depot.submit(added(A, "1\n")))
    depot.misbehave(command, **trouble)
    with pytest.raises(kind) as failed:
        source.reviewers.of(change)
    assert failed.value.error_class is error_class
    depot.recover()
    assert [person.user for person in source.reviewers.of(change).people] == ["ann"]
