"""SARIF of other tools: what is read of it, and which findings say what a linter said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from criticizer.redaction import Redactor
from reviews.reviewers.base import Fate, Finding, FindingSeverity, RawId
from reviews.reviewers.chunks import tokens
from reviews.reviewers.instructions import system_prompt
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import request_text
from reviews.reviewers.reported import Reported, with_reported, without_reported
from reviews.reviewers.sarif_import import (
    MAX_RESULTS,
    NO_RESULT,
    NOT_OPEN,
    TOO_MANY,
    LinterResult,
    NotSarif,
    read_sarif,
)
from reviews.reviewers.units import keys_of, room_beside
from tests.reviewers.build import added, change
from tests.reviewers.test_units import D, Scripted, code, run, shelf, stored
from tests.sarif import wrong_in

REGION = {"startLine": 3, "endLine": 4}


def result(uri: str = "src/a.py", text: str = "`os` imported but unused", **fields: Any) -> dict[str, Any]:
    place = {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": REGION}}
    return {"ruleId": "F401", "message": {"text": text}, "locations": [place], **fields}


def sarif(*results: Any, **fields: Any) -> dict[str, Any]:
    run = {"tool": {"driver": {"name": "ruff"}}, "results": list(results), **fields}
    return {"version": "2.1.0", "runs": [run]}


def test_a_result_is_read_with_its_tool_rule_and_lines() -> None:
    body = sarif(result(level="error"))
    assert wrong_in(json.dumps(body)) == []
    found, left_out = read_sarif(body)
    assert found == (LinterResult("ruff", "F401", "error", "src/a.py", 3, 4, "`os` imported but unused"),)
    assert not left_out


RULES = [
    {"id": "E1", "defaultConfiguration": {"level": "note"}, "messageStrings": {"m": {"text": "{0} is {1}"}}}
]


def test_what_a_result_refers_to_is_looked_up() -> None:
    driver = {"driver": {"name": "x", "rules": RULES}}
    artifacts = [{"location": {"uri": "file:///build/src/b%20c.py"}}]
    place = {"physicalLocation": {"artifactLocation": {"index": 0}, "region": {"startLine": 1}}}
    raw = {"ruleIndex": 0, "message": {"id": "m", "arguments": ["a", "b"]}, "locations": [place]}
    (found,), _ = read_sarif(sarif(raw, tool=driver, artifacts=artifacts))
    assert found == LinterResult("x", "E1", "note", "build/src/b c.py", 1, 1, "a is b")


class Counted(dict[str, Any]):
    """A rule that counts how often it is looked at."""

    looks = 0

    def get(self, *given: Any) -> Any:
        Counted.looks += 1
        return super().get(*given)


def test_many_results_of_unknown_rules_do_not_search_all_rules_each_time() -> None:
    """A body of 1 MiB holds enough rules and results to keep a web thread busy for an hour."""
    Counted.looks = 0
    rules = [Counted(id=f"E{n}") for n in range(100)]
    results = [result(ruleId=f"unknown {n}") for n in range(100)]
    found, _ = read_sarif(sarif(*results, tool={"driver": {"name": "x", "rules": rules}}))
    assert len(found) == 100
    assert Counted.looks <= 3 * len(rules)


@pytest.mark.parametrize(
    "uri", ["/build/src/a.py", "./src/a.py", "src\\a.py", "file:///src/a.py", "C:\\w\\a.py"]
)
def test_a_path_is_read_however_it_is_written(uri: str) -> None:
    (found,), _ = read_sarif(sarif(result(uri)))
    assert found.path.endswith("a.py")
    assert "\\" not in found.path


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        *[(raw, NO_RESULT) for raw in (None, 3, {}, [], result(text=""), result(locations=[]))],
        *[
            (result(uri), NO_RESULT)
            for uri in ("", "../a.py", "https://x.test/a.py", "a\0.py", "a" * 5_000, 3)
        ],
        *[(result(message=text), NO_RESULT) for text in ("x", {"id": "m"}, {"text": 3})],
        (result(kind="pass"), NOT_OPEN),
        (result(baselineState="absent"), NOT_OPEN),
        (result(suppressions=[{"kind": "inSource"}]), NOT_OPEN),
    ],
)
def test_what_is_no_open_result_is_counted(raw: Any, why: str) -> None:
    found, left_out = read_sarif(sarif(raw, result()))
    assert (len(found), dict(left_out)) == (1, {why: 1})


def test_results_beyond_the_limit_are_counted_and_equal_ones_are_one() -> None:
    many = [result(text=f"number {n}") for n in range(MAX_RESULTS + 7)]
    found, left_out = read_sarif(sarif(*many, *many[:3]))
    assert (len(found), left_out[TOO_MANY]) == (MAX_RESULTS, 7)


@pytest.mark.parametrize(
    "body", [None, [], "x", {}, {"version": "2.0.0"}, {"version": "2.1.0"}, {"version": "2.1.0", "runs": [1]}]
)
def test_what_is_no_sarif_is_refused(body: Any) -> None:
    with pytest.raises(NotSarif):
        read_sarif(body)


def test_no_value_anywhere_breaks_the_reader() -> None:
    source = random.Random(1)
    values: list[Any] = [None, True, -1, 1.5, 10**30, "", "\0", [], {}, ["x"], {"text": []}]

    def broken(value: Any) -> Any:
        if source.random() < 0.1:
            return source.choice(values)
        if isinstance(value, dict):
            return {name: broken(one) for name, one in value.items()}
        return [broken(one) for one in value] if isinstance(value, list) else value

    whole = sarif(result(rule={"index": 0, "id": "E1"}), tool={"driver": {"name": "x", "rules": RULES}})
    read = 0
    for _ in range(3_000):
        try:
            found, _ = read_sarif(broken(whole))
        except NotSarif:
            continue
        read += len(found)
        for one in found:
            assert one.path
            assert one.message
            assert 0 < one.line <= one.end_line
    assert read > 200


def reported(message: str = "`os` imported but unused", line: int = 7, rule: str = "F401") -> Reported:
    (shown,) = Redactor().redact_all([f"line {line}: [ruff {rule}] {message}"])
    return Reported(0, line, line, rule, message, shown)


def finding(title: str, line: int | None = 7, **fields: Any) -> Finding:
    severity = fields.pop("severity", FindingSeverity.HIGH)
    return Finding(
        D + "f0.py", severity, "bug", title, "", "llm", line=line, end_line=line, raw=RawId(1, 1, 0), **fields
    )


@pytest.mark.parametrize(
    ("found", "is_known"),
    [
        (finding("The import of `os` is unused"), True),
        (finding("The import of `os` is unused", line=10), True),
        (finding("The import of `sys` is unused", line=8), False),
        (finding("The import of `os` is unused", line=11), False),
        (finding("The import of `os` is unused", line=None), False),
        (finding("F401 here"), True),
        (finding("os.remove is called with a path of the caller"), False),
        (finding("The import of `os` is unused", severity=FindingSeverity.CRITICAL), False),
    ],
)
def test_a_finding_that_says_what_a_linter_said_is_not_shown_again(found: Finding, is_known: bool) -> None:
    kept, dropped = without_reported([found], [reported()], [D + "f0.py"])
    assert (len(kept), [fated.reason for fated in dropped]) == (
        (0, ["reported_by_linter"]) if is_known else (1, [])
    )


def ready(count: int, with_results: Callable[[int], Reported] | None = None) -> Prepared:
    prepared = prepare(change(*shelf(count)), Redactor(), LIMITS)
    return replace(prepared, reported=(with_results(0),)) if with_results else prepared


LIMITS = ReviewLimits(max_input_tokens=8_000, finding_budget=100)


def test_the_model_is_shown_the_result_and_its_finding_is_dropped_and_counted() -> None:
    def known(file: int) -> Reported:
        return replace(reported("defect is assigned and never used"), file=file)

    model = Scripted(say=lambda one: {**one, "problem": "defect is assigned and is never used."})
    outcome = run(ready(3, known), model)
    assert "[ruff F401] defect is assigned and never used" in model.asked[0]
    assert outcome.review.findings == ()
    assert [(fated.fate, fated.reason) for fated in outcome.fates] == [(Fate.DROPPED, "reported_by_linter")]
    assert len(run(ready(3), Scripted()).review.findings) == 1


def test_a_result_asks_about_its_file_again_and_about_no_other() -> None:
    first = run(ready(9), Scripted())
    again = ready(9, lambda file: reported())
    before, after = (keys_of(one, LIMITS, "m", "") for one in (ready(9), again))
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, *[True] * 8]
    model = Scripted()
    run(again, model, stored(first))
    assert len(model.asked) == 1
    assert model.asked[0].count("=== F") == 1


def test_many_results_keep_the_request_in_its_limit() -> None:
    files = [added(D + f"f{n}.py", code(f"a{n}", lines=150)) for n in range(9)]
    prepared = prepare(change(*files), Redactor(), LIMITS)
    many = [replace(reported(f"number {n} " + "x" * 500), file=n % 9) for n in range(400)]
    paths = [entry.path for entry in prepared.text.manifest]
    chunks = [with_reported(c, many, room_beside(prepared, c), paths) for c in prepared.chunks]
    assert any(chunk.reported for chunk in chunks)
    for part in range(len(chunks)):
        text = request_text(prepared.text, chunks, part)
        assert tokens(system_prompt(10)) + tokens(text) <= LIMITS.max_input_tokens
