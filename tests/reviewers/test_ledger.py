"""The ledger of raw findings, and the order and number in which findings are shown."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from criticizer.redaction import Redactor
from criticizer.resilience.failures import Component, ErrorClass, RetryableFailure
from reviews.reviewers.base import Fate, Finding, FindingSeverity, RawId, Verification
from reviews.reviewers.instructions import VERIFY_TASK
from reviews.reviewers.model import ModelAnswer, ModelRequest
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prompt_leaks import marks_of
from reviews.reviewers.ranking import ranked, within_budget
from reviews.reviewers.review import ReviewOutcome, review_prepared
from reviews.reviewers.review_context import ReviewContext
from tests.reviewers.build import added, change
from tests.reviewers.test_verifying import asked_in, check_ledger

AFTERWARDS = {Fate.DISMISSED, Fate.CARRIED, Fate.SUPPRESSED}  # fates that a review alone does not give
WORDS = ["index", "length", "rate", "mean", "user", "token", "cache", "lock", "path", "retry"]
LIMITS = ReviewLimits(max_input_tokens=5_500, finding_budget=2)
LINES = [f"value_{n} = compute_{n}(argument_{n})" for n in range(30)]
CHANGE = change(
    *(added(f"//depot/p/f{k}.py", "\n".join(LINES) + "\nbreakpoint()\n") for k in range(2)),
)
PREPARED = prepare(CHANGE, Redactor(), LIMITS)


class RandomModel:
    """A model that finds and judges at random, and counts the raw findings of its answers."""

    model = "random"

    def __init__(self, source: Random) -> None:
        self.source = source
        self.raw = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if VERIFY_TASK in request.user.text:
            return ModelAnswer(self.verdicts(request.user.text), 1, 1, "stop", "random")
        found = [self.finding(request.user.text) for _ in range(self.source.randrange(14))]
        while found and not any(isinstance(one, dict) and one.get("problem") for one in found):
            found[0] = self.finding(
                request.user.text
            )  # an answer of which nothing is usable is asked for again
        self.raw += len(found)
        return ModelAnswer(json.dumps({"findings": found, "files_read": []}), 1, 1, "stop", "random")

    async def aclose(self) -> None:
        pass

    def finding(self, request: str) -> object:
        source = self.source
        if source.random() < 0.1:
            return source.choice([{"title": "nothing"}, 7, {"file": "//depot/p/f0.py"}])
        words = " ".join(source.choices(WORDS, k=3))
        if source.random() < 0.05:
            words += f" {marks_of(request)[0]}"
        line = source.randrange(30)
        quote = source.choice([LINES[line]] * 8 + ["no such line", 'x = "<REDACTED:token:1>"'])
        file = source.choice(["//depot/p/f0.py", "//depot/p/f1.py", "f1.py", "made/up.c"])
        severity = source.choice(["critical", "high", "medium", "medium", "low"])
        said = {"title": words, "problem": words[::-1], "severity": severity}
        return {"file": file, "line": line + 1, "quote": quote, **said}

    def verdicts(self, request: str) -> str:
        source = self.source
        if source.random() < 0.1:
            raise RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Component.REVIEWER, "slow")
        if source.random() < 0.1:
            return source.choice(["", "all wrong", '{"verdicts": ['])
        said = [
            {"id": name, "title": title, "verdict": verdict, "quote": source.choice(LINES), "why": "So."}
            for title, name in asked_in(request)
            if (verdict := source.choice(["refuted", "refuted", "confirmed", "unsure", ""]))
        ]
        return json.dumps({"verdicts": said, "seen": []})


@pytest.mark.parametrize("runs", [40, pytest.param(5_000, marks=pytest.mark.long)])
def test_every_raw_finding_has_one_fate(runs: int) -> None:
    async def run(seed: int) -> tuple[RandomModel, ReviewOutcome]:
        model = RandomModel(Random(seed))
        around = ReviewContext(verifier=model if seed % 8 else None)
        return model, await review_prepared(PREPARED, model, LIMITS, {}, around)

    async def all_runs() -> Counter[Fate]:
        fates: Counter[Fate] = Counter()
        for seed in range(runs):
            model, outcome = await run(seed)
            check_ledger(outcome)
            assert len(outcome.fates) == model.raw + len(PREPARED.findings), f"seed {seed}"
            fates.update(fated.fate for fated in outcome.fates)
        return fates

    assert len(PREPARED.chunks) == 2
    assert set(asyncio.run(all_runs())) == set(Fate) - {Fate.DISMISSED, Fate.CARRIED, Fate.SUPPRESSED}, (
        "each one occurs"
    )


def test_the_order_is_verdict_agreement_severity_and_confidence_last() -> None:
    def make(title: str, **fields: Any) -> Finding:
        return replace(
            Finding("a", FindingSeverity.MEDIUM, "bug", title, "m", "llm", line=1, raw=RawId(1, 1, 0)),
            **fields,
        )

    order = [
        make("confirmed and said by two", verification=Verification.CONFIRMED, merges=(RawId(2, 1, 0),)),
        make("confirmed", verification=Verification.CONFIRMED, severity=FindingSeverity.HIGH, confidence=1),
        make("surer", verification=Verification.CONFIRMED, confidence=90),
        make("less sure", verification=Verification.CONFIRMED, confidence=10),
        make("not verified", verification=Verification.UNVERIFIED, severity=FindingSeverity.HIGH),
        make("folded", folded="not verified", severity=FindingSeverity.HIGH),
    ]
    mixed = list(order)
    Random(7).shuffle(mixed)
    assert [f.title for f in ranked(mixed)] == [f.title for f in order]


def test_critical_findings_are_never_folded() -> None:
    severities = ["low"] * 6 + ["critical"] * 5
    found = [
        Finding(
            f"f{n}", FindingSeverity(severity), "bug", "t", "m", "llm", folded="not verified" if n > 9 else ""
        )
        for n, severity in enumerate(severities)
    ]
    done = within_budget(found, 3)
    assert len(done) == len(found)
    assert {f.severity for f in done if f.folded} == {FindingSeverity.LOW}
    assert sum(not f.folded for f in done) == 5
