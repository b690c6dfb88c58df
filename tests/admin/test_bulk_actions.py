"""Messages about an action on many rows."""

from __future__ import annotations

import pytest

from criticizer.admin_site.bulk_actions import ActionResult


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (ActionResult(3), "3 triaged."),
        (ActionResult(3, {"it is new": 1}), "3 triaged, 1 skipped: it is new."),
        (ActionResult(0, {"rare": 1, "frequent": 9}), "0 triaged, 9 skipped: frequent; 1 skipped: rare."),
        (
            ActionResult(1, {"late": 2}, {"escalated: why": 4}),
            "1 triaged, 4 escalated: why, 2 skipped: late.",
        ),
        (
            ActionResult(0, {f"reason {number}": number for number in range(1, 8)}),
            "0 triaged, 7 skipped: reason 7; 6 skipped: reason 6; 5 skipped: reason 5; 4 skipped: reason 4; "
            "3 skipped: reason 3; and 3 for 2 other reasons.",
        ),
        (
            ActionResult(0, dict.fromkeys("abcdef", 2)),
            "0 triaged, 2 skipped: a; 2 skipped: b; 2 skipped: c; 2 skipped: d; 2 skipped: e; "
            "and 2 for 1 other reason.",
        ),
    ],
)
def test_a_sum_says_the_most_frequent_reasons_and_counts_the_others(
    outcome: ActionResult, sentence: str
) -> None:
    assert outcome.sentence("triaged") == sentence
