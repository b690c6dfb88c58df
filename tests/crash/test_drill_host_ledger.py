"""The drill's books of pull requests: each kind of falsified entry is found."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.drill_host_ledger import HostBooks, reconcile, reconcile_all
from benchmarks.drill_ledger import Verdict
from notifications.providers.pull_requests.markdown import Marker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, SECOND = "1" * 40, "2" * 40
Rows = list[dict[str, Any]]
Falsify = Callable[[HostBooks, Rows], HostBooks]


def text(head: str, version: int, kind: str = "summary") -> str:
    return str(Marker(str(uuid.UUID(int=version)), 500, 7, version, head, kind=kind))


def books() -> tuple[HostBooks, Rows]:
    """Return the books of a pull request whose head was replaced during its review."""
    checks = (
        {"head_sha": FIRST, "status": "completed", "conclusion": "cancelled"},
        {"head_sha": SECOND, "status": "completed", "conclusion": "neutral"},
    )
    reviews = ({"id": 1, "number": 7, "state": "COMMENTED", "body": text(SECOND, 2, "review")},)
    host = HostBooks(((7, FIRST), (7, SECOND)), frozenset({FIRST}), ((7, text(SECOND, 2)),), checks, reviews)
    version = {"number": 7, "is_automatic": True, "finished_at": NOW}
    rows = [
        {**version, "head_sha": FIRST, "job": 1, "review_version": 1, "status": "superseded"},
        {**version, "head_sha": SECOND, "job": 2, "review_version": 2, "status": "succeeded"},
    ]
    return host, rows


def of_host(**changes: Any) -> Falsify:
    return lambda host, rows: replace(host, **changes)


def of_version(position: int, **values: object) -> Falsify:
    def falsify(host: HostBooks, rows: Rows) -> HostBooks:
        rows[position].update(values)
        return host

    return falsify


def without_version(position: int) -> Falsify:
    def falsify(host: HostBooks, rows: Rows) -> HostBooks:
        del rows[position]
        return host

    return falsify


def with_version(**values: object) -> Falsify:
    def falsify(host: HostBooks, rows: Rows) -> HostBooks:
        rows.append({**rows[1], "job": 3, "review_version": 3, **values})
        return host

    return falsify


HOST = books()[0]
NAMED = {FIRST: f"head {FIRST[:12]} of pull request 7", SECOND: f"head {SECOND[:12]} of pull request 7"}
FALSIFIED: Mapping[str, tuple[Falsify, str, str]] = {
    "a newest head that no webhook and no poll found": (
        without_version(1), "lost", f"{NAMED[SECOND]} has no review"),
    "a head whose webhook was answered": (without_version(0), "lost", f"{NAMED[FIRST]} has no review"),
    "no summary": (of_host(comments=()), "lost", "pull request 7 has no summary"),
    "no check run": (of_host(checks=HOST.checks[:1]), "lost", f"{NAMED[SECOND]} has no check run"),
    "a second automatic review": (with_version(), "duplicated", f"{NAMED[SECOND]} has 2 reviews"),
    "a second summary": (
        of_host(comments=(*HOST.comments, (7, text(FIRST, 1)))), "duplicated",
        "pull request 7 has 2 summaries"),
    "a second check run": (
        of_host(checks=(*HOST.checks, HOST.checks[1])), "duplicated", f"{NAMED[SECOND]} has 2 check runs"),
    "a second review with inline comments": (
        of_host(reviews=HOST.reviews * 2), "duplicated",
        f"{NAMED[SECOND]} has 2 reviews with inline comments"),
    "a review without an end": (
        of_version(1, status="in_progress", finished_at=None), "stuck",
        f"{NAMED[SECOND]}: job 2 is in_progress"),
    "an open check run": (
        of_host(checks=(HOST.checks[0], {**HOST.checks[1], "status": "in_progress", "conclusion": None})),
        "stuck", f"the check run of {NAMED[SECOND]} is in_progress"),
    "a summary of an older head": (
        of_host(comments=((7, text(FIRST, 1)),)), "wrong_state",
        "the summary of pull request 7 is not of its newest head"),
    "a check run that tells another end": (
        of_version(1, status="dead_lettered"), "wrong_state",
        f"the check run of {NAMED[SECOND]} says neutral, and its job is dead_lettered"),
    "an end that none asked for": (
        of_version(1, status="timed_out"), "wrong_state", f"{NAMED[SECOND]}: job 2 ended as timed_out"),
    "superseded by none": (
        of_version(1, status="superseded"), "wrong_state", f"{NAMED[SECOND]}: job 2 was superseded by none"),
    "a draft of a review": (
        of_host(reviews=({**HOST.reviews[0], "state": "PENDING"},)), "wrong_state", "review 1 is PENDING"),
    "a request that the host does not know": (
        of_host(faults=("Not Found",)), "wrong_state", "the host was asked what it does not know: Not Found"),
}  # fmt: skip


def test_good_books_are_good() -> None:
    assert reconcile(*books()) == Verdict()


def test_a_head_that_was_replaced_before_any_webhook_or_poll_told_of_it_needs_no_review() -> None:
    host, rows = books()
    assert reconcile(replace(host, taken_in=frozenset(), checks=host.checks[1:]), rows[1:]).ok


def test_a_person_may_ask_for_another_review_of_a_head() -> None:
    host, rows = books()
    assert not reconcile(with_version(is_automatic=False)(host, rows), rows).duplicated


@pytest.mark.parametrize("case", FALSIFIED)
def test_a_falsified_entry_is_found(case: str) -> None:
    falsify, kind, sentence = FALSIFIED[case]
    host, rows = books()
    verdict = reconcile(falsify(host, rows), rows)
    assert sentence in getattr(verdict, kind)
    assert not verdict.ok


def test_each_host_is_compared_with_its_own_reviews() -> None:
    host, rows = books()
    known = [{**row, "host": name} for name in ("github", "gitea") for row in rows]
    both = (host, replace(host, host="gitea"))
    assert reconcile_all(both, known) == Verdict()
    assert reconcile_all(both, known[:2]).lost == [
        f"gitea: {NAMED[FIRST]} has no review",
        f"gitea: {NAMED[SECOND]} has no review",
    ]
