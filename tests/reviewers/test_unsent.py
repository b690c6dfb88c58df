from __future__ import annotations

import json

import pytest

from reviews.reviewers.base import CoverageStatus
from reviews.reviewers.coverage_texts import unread_banner
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.unsent import unsent_reason
from tests.fakes.llm import FakeLlm
from tests.reviewers.build import added, change, edited
from tests.reviewers.test_review import D, coverage, review

LIMITS = ReviewLimits(max_input_tokens=8_000, skip_paths=("//depot/*/testdata/*", "*.snap"))


def test_files_that_no_reviewer_reads_are_checked_and_not_sent() -> None:
    unread = ["package-lock.json", "sub/go.sum", "testdata/deep/x.py", "a.snap"]
    files = [edited(D + name, "old\n", "line of nobody\nbreakpoint()\n") for name in unread]
    with FakeLlm() as llm:
        outcome = review(llm, change(*files, added(D + "main.py", "x = 1\n")), LIMITS)
        sent = json.dumps([request.body for request in llm.requests])
    assert "line of nobody" not in sent
    rows = coverage(outcome)
    assert rows[D + "main.py"] == (CoverageStatus.REVIEWED, "")
    for name in unread:
        status, reason = rows[D + name]
        assert status is CoverageStatus.CHECKED
        assert reason.endswith("only the checks read it")
        assert name in sent, "the model knows that the file changed"
    assert unread_banner(outcome.review.coverage) == (
        "4 files were read by the checks only: lock file (2), named by LLM_SKIP_PATHS (2)."
    )
    assert {finding.file for finding in outcome.review.findings} == {D + "testdata/deep/x.py"}


def test_a_change_of_such_files_alone_is_reviewed_without_a_call() -> None:
    with FakeLlm() as llm:
        outcome = review(llm, change(edited(D + "yarn.lock", "a\n", "b\n")), LIMITS)
        assert llm.requests == []
    assert outcome.review.findings == ()


@pytest.mark.parametrize(
    "path", ["src/vendors.py", "lock.json", "vendor/a.py", "package.json", "a/podsx/b.m"]
)
def test_similar_names_are_sent(path: str) -> None:
    assert unsent_reason(path, LIMITS.skip_paths) == ""
