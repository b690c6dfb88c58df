"""Reports for recipients: compared with the version before, as an answer to it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from notifications.providers.payload import review_payload
from notifications.rendering import Ending, render
from reviews.diff_places import with_places
from reviews.models import FindingRow, ReviewJob
from reviews.recipients import recipient_reports
from reviews.recipients.viewing_scopes import Scope
from reviews.reports import messages_for, report_of
from reviews.reviewers.coverage_texts import TOO_LARGE, stopped_banner
from tests.factories import (
    CoverageRowFactory,
    DeliveryFactory,
    FindingEventFactory,
    FindingRowFactory,
    ReviewJobFactory,
    StageRunFactory,
)

pytestmark = pytest.mark.django_db

ANN, BOB = "mail:ann@example.com", "mail:bob@example.com"
SWARM = "swarm:review-1"
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
    """Return `after` as its stage llm stores it: its findings are new.

    Those of `before` have this ending.
    """
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


def closed(job: ReviewJob) -> set[str]:
    """Return the titles of the findings whose comments P4 Code Review closes with this version."""
    reports = with_places(job, {SWARM: report_of(job)})
    review = review_payload(messages_for(job, reports)[SWARM])
    assert review is not None
    return set(FindingRow.objects.filter(identity__in=review.closed).values_list("title", flat=True))


def test_what_a_version_without_a_message_fixed_is_closed_with_the_next() -> None:
    titles = {f"A {number}" for number in range(60)}
    first, second = version(1, *titles), version(2, "B", "C")
    answered(first, second, Ending.FIXED)
    third = answered(second, version(3, "D"), Ending.NOT_REPORTED)
    second.findings.filter(title="C").update(ending=Ending.FIXED)
    assert closed(third) == {*titles, "C"}
    assert closed(second) == titles, "a version that is sent late closes what it fixed itself"


def test_what_is_fixed_and_reported_again_is_not_closed() -> None:
    first, second = version(1, "A"), version(2)
    answered(first, second, Ending.FIXED)
    back = answered(second, version(3, "A again"), Ending.NOT_REPORTED)
    back.findings.update(identity=first.findings.get().identity)
    assert closed(back) == set()
    assert closed(answered(back, version(4), Ending.NOT_REPORTED)) == set(), "not fixed this time"


def test_a_dismissed_finding_has_its_comment_closed() -> None:
    job = version(2, "A", "B")
    FindingEventFactory(identity=job.findings.get(title="A").identity, job=job, kind="intended")
    assert closed(job) == {"A"}


def test_findings_are_linked_to_where_the_review_page_shows_them() -> None:
    job = version(1, "A")
    (finding,) = report_of(job).findings
    assert finding.anchor == f"finding-{job.findings.get().pk}"


def test_fixed_findings_of_hidden_files_are_not_shown() -> None:
    whole = report_of(answered(version(1, "A", "B", file=SECRET), version(2, "C"), Ending.FIXED))
    part = recipient_reports.part_of(whole, Scope(prefixes=("//depot/main/",)))
    assert whole.since is not None
    assert len(whole.since.earlier) == 2
    assert part.since is not None
    assert part.since.earlier == ()


def test_the_banner_of_a_partial_review_tells_readers_of_a_part_of_their_files_only() -> None:
    job = version(1, "A")
    ReviewJob.objects.filter(pk=job.pk).update(
        stopped="timed_out",
        banner="Review timed out after 3 of 10 parts. 2 files were skipped: too large to compare (2).",
    )
    for file in ("//depot/secret/b.bin", "//depot/main/b.bin"):
        CoverageRowFactory(job=job, file=file, status="skipped", reason=TOO_LARGE)
    job.refresh_from_db()
    whole = report_of(job)
    assert whole.banner == job.banner
    part = recipient_reports.part_of(whole, Scope(prefixes=("//depot/main/",)))
    assert part.is_partial
    assert part.banner == f"{stopped_banner('timed_out')} 1 file was skipped: too large to compare (1)."
    assert "3 of 10" not in render(part, ANN, UUID(int=7)).text
    nothing = recipient_reports.part_of(whole, Scope(prefixes=("//depot/none/",)))
    assert nothing.banner == ""


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
