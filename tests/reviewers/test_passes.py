"""Further passes: who is asked how often, what that costs, and what agreement says."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from reviews.reviewers.base import CoverageStatus, Finding
from reviews.reviewers.model import ModelAnswer, ModelRequest
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.review import ReviewOutcome, review_prepared
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.units import KnownUnit
from reviews.sources.passes import MAX_PASSES, Passes
from tests.reviewers.build import added
from tests.reviewers.test_units import D, Scripted, code, prepared_of, shelf, stored

LIMITS = ReviewLimits(max_input_tokens=16_000)
PAY = f"{D}pay/a.py"
THRICE = Passes([f"{D}pay/...=3"])
CALL = added(PAY, code("a", "b = 'defect'"))
SEEN, REMARKS = 0.45, 2  # share of true defects that a pass sees, and what it makes up


def review(
    prepared: Prepared,
    model: Any,
    passes: Passes = THRICE,
    second: Any = None,
    known: dict[str, KnownUnit] | None = None,
    progress: dict[str, str] | None = None,
) -> ReviewOutcome:
    around = ReviewContext(passes=passes, second=second, known=known or {})
    return asyncio.run(review_prepared(prepared, model, LIMITS, {} if progress is None else progress, around))


@pytest.mark.parametrize(
    "line",
    ["", "//depot/a/...", "//depot/a/...=0", f"//depot/a/...={MAX_PASSES + 1}", "-//depot/a/...=2", "a=2"],
)
def test_wrong_lines_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"passes|excludes|path|empty"):
        Passes([line])


def test_the_first_pattern_that_matches_decides() -> None:
    passes = Passes(["//depot/pay/demo/...=1", "//depot/pay/...=3"])
    assert [passes.of(f"//depot/{name}") for name in ("pay/demo/a", "pay/b", "c")] == [1, 3, 1]


def test_only_files_that_ask_for_it_are_read_again_and_in_another_order() -> None:
    files = [added(f"{D}pay/f{n}.py", code(f"f{n}")) for n in range(6)] + [added(f"{D}x.py", code("x"))]
    outcome = review(prepared_of(*files, limits=LIMITS), model := Scripted())
    orders = [re.findall(r"^=== F\d+ (\S+)$", text, re.MULTILINE) for text in model.asked]
    assert len(orders) == outcome.review.usage.calls == 3
    assert sorted(orders[1]) == sorted(orders[2]) == [f"{D}pay/f{n}.py" for n in range(6)]
    assert len({tuple(path for path in order if "pay" in path) for order in orders}) == 3
    assert f"{D}x.py" in orders[0]
    assert [re.findall(r"Pass \d", text) for text in model.asked] == [[], ["Pass 2"], ["Pass 3"]]


def test_the_cost_is_the_passes_less_what_is_known() -> None:
    files = [replace(file, path=file.path.replace("/p/", "/p/pay/")) for file in shelf(12)]
    prepared = prepared_of(*files, limits=LIMITS)
    once, thrice = review(prepared, Scripted(), Passes()), review(prepared, Scripted())
    assert thrice.review.usage.calls == 3 * once.review.usage.calls
    assert thrice.parts == once.parts
    part = once.review.usage.input_tokens
    assert abs(thrice.review.usage.input_tokens - 3 * part) < 0.01 * part
    progress: dict[str, str] = {}
    review(prepared, Scripted(), progress=progress)
    review(prepared, again := Scripted(), progress=progress)
    assert again.asked == []


def test_units_are_kept_by_their_passes() -> None:
    prepared = prepared_of(CALL, limits=LIMITS)
    known = stored(first := review(prepared, Scripted()))
    second = review(prepared, model := Scripted(), known=known)
    assert (model.asked, len(second.review.findings)) == ([], 1)
    assert [f.report_count for f in (*first.review.findings, *second.review.findings)] == [3, 3]
    for passes, other in ((Passes(), None), (Passes([f"{D}...=2"]), None), (THRICE, Scripted("other"))):
        review(prepared, model := Scripted(), passes, other, known)
        assert model.asked


def test_every_other_pass_asks_the_second_model() -> None:
    outcome = review(
        prepared_of(CALL, limits=LIMITS), first := Scripted(), second=(other := Scripted("other"))
    )
    assert (len(first.asked), len(other.asked)) == (2, 1)
    assert (outcome.review.model, outcome.review.banner) == ("m, other", "")
    assert [f.report_count for f in outcome.review.findings] == [3]


@dataclass
class Failing(Scripted):
    """A model that refuses all further passes."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if "Pass " in request.user.text:
            raise PermanentFailure(ErrorClass.POLICY_REJECTED, Component.REVIEWER, "refused")
        return await super().complete(request)


def test_a_pass_without_an_answer_takes_nothing_away_and_is_told() -> None:
    outcome = review(prepared_of(CALL, limits=LIMITS), Failing())
    assert [f.title for f in outcome.review.findings] == ["Wrong: b = 'defect'"]
    assert [row.status for row in outcome.review.coverage] == [CoverageStatus.REVIEWED]
    assert outcome.review.banner == "2 requests for a second opinion had no answer."
    assert (outcome.parts, outcome.reviewed, outcome.units) == (1, 1, ())


# --- agreement -----------------------------------------------------------------------------------


@dataclass
class Noisy:
    """A model that sees each true defect by chance, and makes up other ones, anew in every pass."""

    seed: int
    model: str = "noisy"
    asked: list[str] = field(default_factory=list)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.asked.append(request.user.text)
        source = random.Random(f"{self.seed} {len(self.asked)}")
        found = []
        for number, line in re.findall(r"^ +(\d+) \+(.*)$", request.user.text, re.MULTILINE):
            if "defect" in line and source.random() < SEEN:
                found.append(
                    _remark(number, line, f"The value of {line.split()[0]} is never checked for zero")
                )
        lines = re.findall(r"^ +(\d+) \+(.*)$", request.user.text, re.MULTILINE)
        for number, line in source.sample(lines, REMARKS):
            words = " ".join(source.choices(WORDS, k=9))
            found.append(_remark(number, line, f"Noise: {words}"))
        return ModelAnswer(_json(found), 100, 10, "stop", self.model)

    async def aclose(self) -> None:
        pass


WORDS = [
    f"{a}{b}{c}" for a in ("ka", "lo", "mi", "pu") for b in "bdgkt" for c in ("ran", "sel", "vor", "zim")
]


def _remark(number: str, line: str, title: str) -> dict[str, Any]:
    return {
        "file": PAY, "line": int(number), "quote": line, "title": title[:80], "problem": title,
        "severity": "medium",
    }  # fmt: skip


def _json(found: list[dict[str, Any]]) -> str:
    return json.dumps({"findings": found, "files_read": [PAY]})


def agreement(changes: int) -> tuple[float, float, float, float]:
    """Return precision and recall of one pass, and of what at least two of three passes say."""
    lines = [f"value_{n} = {n}  # {'defect' if n % 20 == 10 else 'fine'}" for n in range(60)]
    prepared = prepared_of(added(PAY, "\n".join(lines) + "\n"), limits=LIMITS)
    once = [f for seed in range(changes) for f in review(prepared, Noisy(seed), Passes()).review.findings]
    found = [f for seed in range(changes) for f in review(prepared, Noisy(seed)).review.findings]
    return *_figures(once, changes), *_figures([f for f in found if f.report_count >= 2], changes)


def _figures(found: list[Finding], changes: int) -> Iterator[float]:
    right = sum(not finding.title.startswith("Noise") for finding in found)
    yield right / len(found)
    yield right / (3 * changes)


@pytest.mark.parametrize("changes", [120, pytest.param(200, marks=pytest.mark.long)])
def test_what_two_of_three_passes_say_is_right_and_the_rest_is_folded(changes: int) -> None:
    precision, recall, both_precision, both_recall = agreement(changes)
    assert (precision < 0.5, 0.4 < recall < 0.5) == (True, True)
    assert both_precision >= 0.9
    assert both_recall >= 0.4
    lines = [f"value_{n} = {n}  # {'defect' if n % 20 == 10 else 'fine'}" for n in range(60)]
    shown = review(prepared_of(added(PAY, "\n".join(lines) + "\n"), limits=LIMITS), Noisy(1)).review.findings
    assert {f.folded for f in shown if f.report_count == 1} == {"only one of 3 passes"}
    assert {f.folded for f in shown if f.report_count > 1} == {""}
    assert [f.report_count for f in shown] == sorted((f.report_count for f in shown), reverse=True)
