"""What recipients are told of a review: compared with the version before, as an answer to it."""

from __future__ import annotations

from typing import Any

import pytest

from notifications.rendering import Ending
from reviews.models import ReviewJob
from reviews.recipients import visibility
from reviews.recipients.scopes import Scope
from reviews.reports import messages_for, report_of
from tests.factories import (
    CoverageRowFactory,
    DeliveryFactory,
    FindingRowFactory,
    ReviewJobFactory,
    StageRunFactory,
)

pytestmark = pytest.mark.django_db

ANN, BOB = "mail:ann@example.com", "mail:bob@example.com"
OPEN, SECRET = "//depot/main/a.py", "//depot/secret/b.py"


def version(number: int, *titles: str, file: str = OPEN) -> ReviewJob:
    """Return a version of changelist 12345 whose model found so titled remarks."""
    job: Any = ReviewJobFactory(changelist_id="12345", review_version=number, status="succeeded")
    StageRunFactory(job=job, stage="llm", status="succeeded")
    for path in (OPEN, SECRET):
        CoverageRowFactory(job=job, file=path, status="reviewed")
    for title in titles:
        FindingRowFactory(job=job, file=file, title=title, source="llm")
    found: ReviewJob = job
    return found


def answered(before: ReviewJob, after: ReviewJob, ending: Ending) -> ReviewJob:
    """Return `after` as its stage llm stores it: its findings are new, those of `before` ended so."""
    before.findings.update(ending=ending, ended_in=after)
    after.findings.update(is_new=True)
    after.compared_with = before.review_version
    after.save()
    return after


def test_a_first_version_is_compared_with_nothing() -> None:
    report = report_of(version(1, "A"))
    assert report.since is None
    assert [finding.is_new for finding in report.findings] == [None]


def test_a_later_version_says_what_became_of_the_one_before() -> None:
    report = report_of(answered(version(2, "B", "C"), version(4, "E"), Ending.NOT_REPORTED))
    assert report.since is not None
    assert report.since.version == 2
    assert [finding.is_new for finding in report.findings] == [True]
    assert [(entry.finding.title, entry.status) for entry in report.since.earlier] == [
        ("B", Ending.NOT_REPORTED),
        ("C", Ending.NOT_REPORTED),
    ]


def test_fixed_findings_are_listed_first_then_the_worst() -> None:
    before, after = version(1, "a", "b", "c"), version(2)
    answered(before, after, Ending.FIXED)
    before.findings.filter(title="b").update(severity="critical")
    before.findings.filter(title="c").update(severity="critical", ending=Ending.GONE)
    since = report_of(after).since
    assert since is not None
    assert [entry.finding.title for entry in since.earlier] == ["b", "a", "c"]


def test_findings_are_linked_to_where_the_review_page_shows_them() -> None:
    job = version(1, "A")
    (finding,) = report_of(job).findings
    assert finding.anchor == f"finding-{job.findings.get().pk}"


def test_fixed_findings_of_hidden_files_are_not_shown() -> None:
    whole = report_of(answered(version(1, "A", "B", file=SECRET), version(2, "C"), Ending.FIXED))
    part = visibility.part_of(whole, visibility.Reach((Scope(prefixes=("//depot/main/",)),)))
    assert whole.since is not None
    assert len(whole.since.earlier) == 2
    assert part.since is not None
    assert part.since.earlier == ()


def test_a_message_answers_the_newest_one_that_its_recipient_has() -> None:
    sent = {}
    for number in (1, 2):
        job = version(number, "A")
        row = DeliveryFactory(job=job, recipient=ANN, status="sent")
        sent[number] = row.token
        DeliveryFactory(job=job, recipient=BOB, status="failed")
    third = version(3, "A")
    report = report_of(third)
    messages = messages_for(third, {ANN: report, BOB: report, "webhook:https://ci.example.com/x": report})
    assert messages[ANN].answers == sent[2]
    assert messages[BOB].answers is None
    assert "/unsubscribe/" in messages[ANN].unsubscribe_url
    assert messages[ANN].unsubscribe_url in messages[ANN].text
    assert messages["webhook:https://ci.example.com/x"].unsubscribe_url == ""
    assert messages_for(third, {ANN: report})[ANN] == messages[ANN]  # the same on every attempt
