from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from benchmarks.review_quality import JUDGED, merged_share, recorded_pairs
from criticizer.redaction import Redactor
from reviews.reviewers.anchoring import anchor
from reviews.reviewers.base import Finding, FindingSeverity, Side
from reviews.reviewers.chunks import Chunk, pack
from reviews.reviewers.merging import merged
from reviews.sources.base import FileChange
from reviews.sources.diffs import diff_file, render
from tests.reviewers.build import edited
from tests.reviewers.test_answer import answer_of, raw_finding

A, B = "//depot/p/a.py", "//depot/p/sub/b.py"
OLD_A = (
    "def total(price, count, discount):\n    log(price)\n"
    "    total = price * count - discount\n    return total\n"
)
NEW_A = OLD_A.replace(" - discount", "")
FAR = "".join(f"    step({n})\n" for n in range(40))
OLD_TWICE = "def one():\n    close(handle)\n" + FAR + "def two():\n    close(handle)\n"
NEW_TWICE = OLD_TWICE.replace("def one():\n", "def one():\n    x = 1\n").replace(
    "def two():\n", "def two():\n    y = 1\n"
)


def chunk_of(*files: FileChange) -> Chunk:
    diffs = [diff_file(file) for file in files]
    rendered = [render(diff) for diff in diffs]
    redacted = Redactor().redact_all([r.text for r in rendered])
    (chunk,) = pack(diffs, rendered, redacted, [1] * len(files), 50_000)
    return chunk


CHUNK = chunk_of(edited(A, OLD_A, NEW_A), edited(B, OLD_TWICE, NEW_TWICE))
PATHS = {0: A, 1: B}


def anchored(*findings: dict[str, Any], chunk: Chunk = CHUNK) -> tuple[tuple[Finding, ...], dict[str, int]]:
    done = anchor(answer_of(*findings), chunk, PATHS, [A, B])
    return done.findings, dict(Counter(fated.reason for fated in done.dropped))


def one(**fields: Any) -> Finding:
    (finding,), dropped = anchored(raw_finding(**fields))
    assert dropped == {}
    return finding


def test_an_exact_quote_gives_line_quote_and_excerpt() -> None:
    finding = one(problem="It ignores the discount.", trigger="Any discount.", suggestion="Subtract it.")
    assert (finding.file, finding.line, finding.end_line, finding.side) == (A, 3, 3, Side.NEW)
    assert finding.quote == "    total = price * count"
    assert finding.message == "It ignores the discount. Trigger: Any discount."
    assert (finding.source, finding.suggestion, finding.demoted) == ("llm", "Subtract it.", False)
    assert finding.excerpt == (
        (1, " ", "def total(price, count, discount):"),
        (2, " ", "    log(price)"),
        (None, "-", "    total = price * count - discount"),
        (3, "+", "    total = price * count"),
        (4, " ", "    return total"),
    ), "both sides of a replaced line"


@pytest.mark.parametrize(
    "quote",
    [
        "total = price * count",
        "\ttotal  =  price * count ",
        "    total = price * count\n",
        "price * count",
        "3 +    total = price * count",
        "    3     total = price * count",
        "+    total = price * count",
        "3: total = price * count",
        "[3] total = price * count",
        "Line 3: total = price * count",
        "3 | total = price * count",
        "`total = price * count`",
        "```python\n    total = price * count\n```",
        "\u201ctotal = price * count\u201d",
        "total\u00a0=\u00a0price * count;",
        "total = ... count",
        "total = price * c...",
        "    total = price * count\n    return total",
        "    3 +    total = price * count\n    4     return total",
        "total = price * count return total",
        "    total = price * count\\n    return total",
        "total = price * count\n\n\n  return total",
        "-    total = price * count - discount\n+    total = price * count",
    ],
)
def test_a_quote_is_found_in_whatever_way_it_is_written(quote: str) -> None:
    assert one(quote=quote).line == 3


@pytest.mark.parametrize(
    "quote", ["total = cost * count", "count", "", "   ", "...", "`", "return  nothing at all"]
)
def test_a_quote_that_is_not_there_loses_its_line_and_counts_at_most_medium(quote: str) -> None:
    finding = one(quote=quote, severity="critical", line=3 if quote != "count" else None)
    assert (finding.line, finding.end_line, finding.demoted) == (None, None, True)
    assert finding.severity is FindingSeverity.MEDIUM
    assert one(quote=quote, severity="low").severity is FindingSeverity.LOW


def test_a_removed_line_is_found_on_the_old_side() -> None:
    finding = one(quote="    total = price * count - discount", side="old")
    assert (finding.side, finding.line) == (Side.OLD, 3)
    assert one(quote="    total = price * count - discount", side=None).side is Side.OLD


def test_text_decides_the_side_when_only_one_has_it() -> None:
    finding = one(quote="    total = price * count - discount", side="new")
    assert (finding.side, finding.line) == (Side.OLD, 3)
    assert one(quote="    return total", side="old").side is Side.OLD
    assert one(quote="-    return total").side is Side.NEW, "what a finding states counts more than a mark"


def test_among_several_places_the_stated_hunk_decides() -> None:
    assert one(file=B, quote="    close(handle)", hunk="F2H1").line == 3
    assert one(file=B, quote="    close(handle)", hunk="F2H2").line == 46


@pytest.mark.parametrize("hunk", [None, "F1H1", "F2H9"])
def test_an_ambiguous_quote_shows_its_candidates_and_keeps_its_severity(hunk: str | None) -> None:
    finding = one(file=B, quote="    close(handle)", hunk=hunk, severity="critical")
    assert (finding.line, finding.demoted, finding.severity) == (None, False, FindingSeverity.CRITICAL)
    assert finding.message.endswith("The quoted text is on lines 3 and 46.")
    assert finding.excerpt == ((3, " ", "    close(handle)"), (46, " ", "    close(handle)"))


@pytest.mark.parametrize(
    ("hints", "line"),
    [
        ({"line": 46}, 46),
        ({"line": 44}, 46),
        ({"line": 4}, 3),
        ({"line": 46, "hunk": "F2H1"}, 46),
        ({"line": 20}, None),
        ({"quote": "46: close(handle)"}, 46),
        ({"quote": "    y = 1\n    close(handle)"}, 45),
        ({"quote": "def two():\n...\n    close(handle)"}, 44),
        ({"quote_end": "    step(0)"}, 3),
    ],
)
def test_what_else_a_finding_states_chooses_among_places(hints: dict[str, Any], line: int | None) -> None:
    assert one(**{"file": B, "quote": "    close(handle)", "hunk": None, **hints}).line == line


def test_a_number_alone_never_places_a_finding() -> None:
    assert one(quote="something else entirely", line=3).demoted
    assert one(quote="", line=3).demoted
    assert one(quote="total = price * count", line=40).line == 3, "the text decides"


def test_a_part_of_a_line_counts_where_its_number_is_stated() -> None:
    assert one(quote="count", line=3).line == 3
    assert one(quote="ount", line=30).demoted


def test_hostile_quotes_cost_bounded_time() -> None:
    old = "".join(f"    item(a, {n % 3})\n" for n in range(1200))
    chunk = chunk_of(edited(A, old, old.replace("item(a, 1)", "item(a, 4)")))
    quotes = [
        "a",
        "item(",
        "item(a,",
        "...item(...item(...",
        "item(a...a, " * 300,
        "\n" * 4000,
        "+\n-\n" * 900,
    ]
    begun = time.process_time()
    anchored(*(raw_finding(quote=quote, quote_end="item(a", line=7) for quote in quotes), chunk=chunk)
    assert time.process_time() - begun < 5


def test_a_range_ends_at_the_second_quote() -> None:
    assert one(quote_end="    return total").end_line == 4
    assert one(quote_end="not there").end_line == 3
    assert one(quote_end="    log(price)").end_line == 3, "an end before the start is no end"


def test_a_finding_on_a_file_that_was_not_sent_is_dropped_and_counted() -> None:
    findings, dropped = anchored(
        raw_finding(file="//depot/p/invented.py"), raw_finding(file=""), raw_finding()
    )
    assert len(findings) == 1
    assert dropped == {"unknown_file": 2}


@pytest.mark.parametrize("name", ["p/a.py", "a.py", "b/p/a.py", "`//depot/p/a.py`", "F1", "F1 //depot/p/a.py",
                                  "./p/a.py", "p\\a.py", "//depot/p/a.py#7", "other/a.py"])  # fmt: skip
def test_a_file_is_known_by_its_id_and_by_the_end_of_its_path(name: str) -> None:
    assert one(file=name).file == A


def test_a_quote_of_a_removed_secret_is_dropped_and_counted() -> None:
    findings, dropped = anchored(raw_finding(quote='token = "<REDACTED:github-token:1>"'))
    assert (findings, dropped) == ((), {"redaction_placeholder": 1})


def test_a_line_far_from_any_change_is_dropped_and_counted() -> None:
    old = "def run():\n" + "".join(f"    step({n})\n" for n in range(12))
    chunk = chunk_of(edited(A, old, old.replace("step(8)", "step(88)")))
    findings, dropped = anchored(raw_finding(quote="def run():"), chunk=chunk)
    assert (findings, dropped) == ((), {"not_near_a_change": 1})


def test_text_of_findings_is_plain() -> None:
    finding = one(title="a<b>c\nx", problem="see http://evil.example/", suggestion="![a](http://x/y.png)")
    assert (finding.title, finding.suggestion) == ("a<b>c x", "![a] (http[:]//x/y.png)")
    assert "see http[:]//evil[.]example/" in finding.message


def make(title: str, line: int | None = 3, **fields: Any) -> Finding:
    severity = fields.pop("severity", FindingSeverity.HIGH)
    return Finding(
        A, severity, "bug", title, "m", fields.pop("source", "llm"), line=line, end_line=line, **fields
    )


def test_the_same_remark_on_the_same_place_is_kept_once_at_its_severest() -> None:
    findings = merged(
        [
            make("Discount is ignored", severity=FindingSeverity.MEDIUM),
            make("The discount is ignored"),
            make("Handle is never closed"),
            make("Discount is ignored", line=40),
            make("Discount is ignored", line=None),
        ]
    )
    assert [(f.title, f.line, str(f.severity)) for f in findings] == [
        ("Discount is ignored", None, "high"),
        ("Handle is never closed", 3, "high"),
        ("The discount is ignored", 3, "high"),
        ("Discount is ignored", 40, "high"),
    ]


def test_findings_are_ordered_by_severity_file_and_line() -> None:
    low, critical = (
        make("a", 1, severity=FindingSeverity.LOW),
        make("b", 9, severity=FindingSeverity.CRITICAL),
    )
    assert merged([low, critical]) == (critical, low)


SAME = (
    "The total ignores the discount that the caller passes.",
    "Discount passed by the caller is ignored in the total",
)


@pytest.mark.parametrize(
    ("lines", "count"), [((3, 3), 1), ((3, 8), 1), ((3, 9), 2), ((None, None), 1), ((3, None), 2)]
)
def test_one_defect_in_other_words_near_by_is_one_finding(lines: tuple[int | None, ...], count: int) -> None:
    two = [make(text, line) for text, line in zip(SAME, lines, strict=True)]
    assert len(merged(two)) == count


def test_two_defects_of_one_line_stay_two_and_checks_are_never_merged() -> None:
    assert len(merged([make(SAME[0]), make("The handle is never closed when reading fails.")])) == 2
    by_checks = [make(SAME[0], source="check:a"), make(SAME[0], source="check:b")]
    assert len(merged(by_checks)) == 2


@pytest.mark.long
@pytest.mark.skipif(not JUDGED.exists(), reason="the recorded reviews are not here")
def test_recorded_remarks_on_one_defect_are_merged_and_those_on_two_are_not() -> None:
    same, different = recorded_pairs()
    assert merged_share(same) >= 0.5
    assert merged_share(different) <= 0.03
