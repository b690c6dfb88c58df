"""Findings that a dismissal is about: the same in other words and near by, no other defect."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.utils import timezone

from benchmarks.review_quality import JUDGED
from reviews import dismissals
from reviews.evaluation import corpus
from reviews.models import FindingEvent, FindingRow

ROOT = Path(__file__).resolve().parents[2]
RECORDED = JUDGED.parent / "aacr_positive_samples.json.gz"
FILE = "//depot/main/app.py"
CODE = "return max(0, cents - best_discount(cart.coupon))"
_NUMBERS = itertools.count(1)


def finding(
    title: str, message: str = "", line: int | None = 40, code: str = CODE, **fields: object
) -> FindingRow:
    excerpt = [[line, "+", code]] if line else []
    given = {
        "file": FILE,
        "side": "new",
        "rule": "",
        "severity": "high",
        "category": "bug",
        "source": "llm",
        "identity": uuid4(),
        **fields,
    }
    return FindingRow(
        pk=next(_NUMBERS), title=title, message=message, line=line, end_line=line, excerpt=excerpt, **given
    )


def dismissal(of: FindingRow, *others: FindingRow, **fields: object) -> FindingEvent:
    facts = {"paths": "", **dismissals.facts_of(of, [of, *others]), **fields}
    return FindingEvent(
        pk=next(_NUMBERS), identity=of.identity, file=of.file, kind="wrong", actor="ann",
        **facts,
    )  # fmt: skip


def is_dismissed(one: FindingRow, by: FindingEvent) -> bool:
    return bool(dismissals.matched([one], [by]))


# -- the bars -------------------------------------------------------------------------------------

OTHER_WORDS = {
    "returns": "gives back", "return": "give back", "is": "ends up", "raises": "throws", "every": "each",
    "so": "and therefore", "never": "not ever", "only": "just", "because": "since", "and": "as well as",
    "empty": "blank", "wrong": "incorrect", "before": "ahead of", "after": "following", "when": "whenever",
    "left": "dropped", "unknown": "unrecognised", "shorter": "smaller", "compares": "checks",
    "first": "initial", "last": "final", "once": "one time", "lost": "gone", "missing": "absent",
}  # fmt: skip
OPENINGS = ("", "It looks like this: ", "In the new code, ", "Note that ")
ENDINGS = ("", " Please check.", " This may surprise callers.", " Consider a test for it.")


def reworded(text: str, chance: random.Random) -> str:
    """Say the same in other words: synonyms, fewer words, clauses in another order or left out."""
    words = [OTHER_WORDS.get(word, word) if chance.random() < 0.7 else word for word in text.split(" ")]
    clauses = re.split(r"(?<=[,.;]) ", " ".join(word for word in words if chance.random() > 0.1))
    if len(clauses) > 1 and chance.random() < 0.3:
        clauses.pop(chance.randrange(len(clauses)))
    if chance.random() < 0.5:
        clauses = clauses[1:] + clauses[:1]
    return f"{chance.choice(OPENINGS)}{' '.join(clauses)}{chance.choice(ENDINGS)}"


def defects() -> Iterator[tuple[str, list[corpus.Defect]]]:
    """Yield the seeded defects of each project of the evaluation's corpus."""
    found: dict[str, dict[str, corpus.Defect]] = {}
    for case in corpus.load(ROOT / "tests" / "corpus", 1):
        for defect in case.defects:
            found.setdefault(defect.file.partition("/")[0], {})[defect.name] = defect
    yield from ((name, list(of.values())) for name, of in found.items())


def test_reworded_findings_that_moved_within_5_lines_stay_dismissed_in_90_percent() -> None:
    chance, kept = random.Random(7), []
    for defect in (one for _, of in defects() for one in of):
        by = dismissal(finding(defect.title, defect.problem, code=defect.quote))
        for moved in (-5, -3, -1, 0, 1, 3, 5):
            title, problem = reworded(defect.title, chance), reworded(defect.problem, chance)
            # The code around it, and so the quote, may have changed too.
            code = defect.quote if chance.random() < 0.5 else f"{defect.quote}  # {chance.random()}"
            kept.append(is_dismissed(finding(title, problem, 40 + moved, code), by))
    assert len(kept) >= 300
    assert sum(kept) / len(kept) >= 0.9


def test_another_defect_on_the_same_lines_is_hidden_in_at_most_1_percent() -> None:
    hidden = [
        is_dismissed(finding(other.title, other.problem), dismissal(finding(one.title, one.problem)))
        for _, of in defects()
        for one, other in itertools.permutations(of, 2)
    ]
    assert len(hidden) >= 200
    assert sum(hidden) / len(hidden) <= 0.01


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded reviews are not here")
def test_recorded_remarks_of_one_category_on_the_same_lines_are_hidden_in_at_most_1_percent() -> None:
    hidden = []
    for name in (RECORDED, RECORDED.with_name(RECORDED.name.replace("positive", "negative"))):
        for pull in json.loads(gzip.decompress(name.read_bytes())):
            for one, other in itertools.combinations(pull["comments"], 2):
                if all(one[key] == other[key] for key in ("path", "side", "category")) and overlap(
                    one, other
                ):
                    by = dismissal(finding("", one["note"]))
                    hidden.append(is_dismissed(finding("", other["note"]), by))
    assert len(hidden) >= 100
    assert sum(hidden) / len(hidden) <= 0.01


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    (first, last), (start, end) = (
        sorted((it.get("from_line") or 0, it.get("to_line") or it.get("from_line") or 0))
        for it in (one, other)
    )
    return first > 0 and start > 0 and first <= end and start <= last


# -- the rules ------------------------------------------------------------------------------------

SAID = ("The lock is not released", "When read() raises, the lock stays taken.")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"line": 45}, True),
        ({"line": 46}, True),  # the code says where it has moved
        ({"line": 46, "code": "lock.acquire(timeout=30)"}, False),
        ({"line": 45, "code": "lock.acquire(timeout=30)"}, True),
        ({"line": None}, False),
        ({"file": "//depot/main/other.py"}, False),
        ({"category": "security"}, False),
        ({"severity": "critical"}, False),  # two people dismiss those
    ],
)
def test_a_dismissal_of_a_finding_is_about_its_place(changes: dict[str, object], expected: bool) -> None:
    assert is_dismissed(finding(*SAID, **changes), dismissal(finding(*SAID))) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("extent", "changes", "expected"),
    [
        ({"scope": "file"}, {"line": 900, "code": ""}, True),
        ({"scope": "file"}, {"title": "Slow", "message": "A loop in a loop."}, False),
        ({"scope": "file"}, {"file": "//depot/main/b.py"}, False),
        ({"scope": "path", "paths": "//depot/main/..."}, {"file": "//depot/main/sub/b.py", "line": 9}, True),
        ({"scope": "path", "paths": "//depot/main/*.py"}, {"file": "//depot/main/sub/b.py"}, False),
        ({"scope": "path", "paths": "//depot/main/..."}, {"file": "//depot/mainly/b.py"}, False),
        ({"scope": "path", "paths": "//depot/main/..."}, {"title": "Slow", "message": "A loop."}, False),
        ({"scope": "rule"}, {"title": "Other", "message": "", "file": "//lib/c.py"}, True),
        ({"scope": "rule"}, {"title": "Other", "source": "check:secrets"}, False),
        ({"scope": "rule"}, {"title": "Other", "category": "style", "file": "//lib/c.py"}, True),
        ({"scope": "rule", "rule": "no-todo"}, {"rule": "no-todo", "source": "llm"}, True),
        ({"scope": "rule", "rule": "no-todo"}, {"rule": "naming", "source": "llm"}, False),
        ({"scope": "rule", "paths": "//depot/..."}, {"file": "//lib/c.py"}, False),
        (
            {"scope": "category"},
            {"title": "Other", "message": "", "source": "llm", "file": "//lib/c.py"},
            True,
        ),
        ({"scope": "category"}, {"category": "security"}, False),
        ({"scope": "category"}, {"severity": "critical"}, False),
        ({"scope": "category", "severity": "critical"}, {"severity": "critical"}, True),
        # Its giver sees //depot/ only: neither a file beyond, nor what rests on one.
        ({"scope": "category", "within": ["//depot/"]}, {"file": "//depot/x.py"}, True),
        ({"scope": "category", "within": ["//depot/"]}, {"file": "//lib/c.py"}, False),
        ({"scope": "category", "within": ["//depot/"]}, {"evidence": ["//lib/c.py"]}, False),
    ],
)
def test_a_dismissal_reaches_as_far_as_its_scope_says(
    extent: dict[str, object], changes: dict[str, object], expected: bool
) -> None:
    by = dismissal(finding(*SAID, source="check:locks"), **extent)
    fields = {"title": SAID[0], "message": SAID[1], "source": "check:locks", **changes}
    assert is_dismissed(finding(**fields), by) == expected  # type: ignore[arg-type]


def test_one_dismissal_of_a_finding_dismisses_one_of_two_equal_ones() -> None:
    """The order of two equal findings in a file tells them apart, not their lines."""
    first, second = finding(*SAID, 10), finding(*SAID, 200)
    by = dismissal(second, first)
    moved = [finding(*SAID, 190), finding(*SAID, 380)]
    assert [row.line for row, _ in dismissals.matched(moved, [by])] == [380]
    assert dismissals.matched(moved, [by], {second.identity}) == []  # the review has that very finding


@pytest.mark.long
def test_many_findings_and_dismissals_are_matched_in_little_time() -> None:
    made = [
        finding(f"Remark {number}", "About locks.", number, file=f"//depot/main/{number // 100}.py")
        for number in range(2_000)
    ]
    rows, dismissed = made[::10], [dismissal(row) for row in made]
    began = timezone.now()
    assert len(dismissals.matched(rows, dismissed[::-1])) == 200
    assert timezone.now() - began < timedelta(seconds=10)


def test_many_dismissals_by_path_switch_off_none_by_category() -> None:
    row = finding("The list may be empty")
    wide = dismissal(finding("Anything else"), scope="category")
    others = [
        dismissal(finding("Other"), scope="path", paths="//depot/other/...") for _ in range(dismissals._TRIED)
    ]
    assert dismissals.matched([row], [*others, wide]) == [(row, wide)]


def test_the_words_of_a_dismissal_are_read_once_for_all_findings_of_a_review() -> None:
    class Words(list[str]):
        reads = 0

        def __iter__(self) -> Iterator[str]:
            Words.reads += 1
            return super().__iter__()

    by = dismissal(finding("The list may be empty"))
    by.words = Words(by.words)
    dismissals.matched([finding("The list may be empty") for _ in range(20)], [by])
    assert Words.reads == 1
