"""Figures of the whole pipeline with the oracle, and their fall when a part of it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command

from reviews.evaluation import changes, corpus, figures, modes
from reviews.evaluation.corpus import Case
from reviews.evaluation.figures import Result
from reviews.evaluation.matching import by_words, matched
from reviews.evaluation.modes import Models, Ready, reviewed
from reviews.evaluation.oracle import Oracle, sees
from reviews.reviewers import redactor
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.quotes import Place, ShownText, SideText
from tests.evaluation.test_corpus import CORPUS

SEED = 1
LIMITS = ReviewLimits()
BASELINE = CORPUS / "baseline.json"


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in corpus.load(CORPUS, SEED)}


@pytest.fixture(scope="module")
def options() -> modes.Options:
    return modes.Options.of(settings, {"corpus": CORPUS, "seed": SEED})


@pytest.fixture(scope="module")
def fetched(
    cases: Mapping[str, Case], options: modes.Options, tmp_path_factory: pytest.TempPathFactory
) -> list[changes.Fetched]:
    return list(changes.fetched(list(cases.values()), tmp_path_factory.mktemp("corpus"), options.git))


@pytest.fixture(scope="module")
def ready(fetched: list[changes.Fetched], options: modes.Options) -> Iterator[list[Ready]]:
    yield [modes.ready_case(one, options) for one in fetched]
    redactor.close()


def results_of(ready: list[Ready], oracles: Mapping[str, Oracle], verifies: bool = True) -> list[Result]:
    def models_of(name: str) -> Models:
        return Models(oracles[name], oracles[name] if verifies else None)

    return asyncio.run(reviewed(ready, models_of, LIMITS, SEED))


def figures_of(ready: list[Ready], cases: Mapping[str, Case], verifies: bool = True) -> dict[str, float]:
    oracles = {name: Oracle(case, SEED) for name, case in cases.items()}
    return figures.figures_of(results_of(ready, oracles, verifies), by_words)


@pytest.fixture(scope="module")
def oracles(cases: Mapping[str, Case]) -> dict[str, Oracle]:
    return {name: Oracle(case, SEED) for name, case in cases.items()}


@pytest.fixture(scope="module")
def results(ready: list[Ready], oracles: Mapping[str, Oracle]) -> list[Result]:
    """Return what the whole pipeline finds, after which the oracles know what they were asked."""
    return results_of(ready, oracles)


@pytest.fixture(scope="module")
def whole(results: list[Result]) -> dict[str, float]:
    return figures.figures_of(results, by_words)


def test_figures_are_no_worse_than_the_baseline(
    ready: list[Ready], whole: Mapping[str, float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A prompt or pipeline that loses recall or precision is refused here (guarantee G230)."""
    monkeypatch.setattr(modes, "ready_corpus", lambda *_: ready)
    call_command("evaluate", gate=BASELINE, output=tmp_path / "figures.json")
    assert whole["recall_diff"] == whole["line_accuracy"] == 1
    assert whole["leaked"] == whole["failed"] == 0


@pytest.mark.long
def test_figures_fall_when_a_part_of_the_pipeline_is_broken(
    fetched: list[changes.Fetched],
    ready: list[Ready],
    whole: Mapping[str, float],
    cases: Mapping[str, Case],
    options: modes.Options,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guarantee G230."""
    blind = replace(options, limits=replace(options.limits, context_share=0))
    deep = [one for one in fetched if any(defect.level != "diff" for defect in one.case.defects)]
    without_context = figures_of([modes.ready_case(one, blind) for one in deep], cases)
    for level in ("recall_file", "recall_repository"):
        assert without_context[level] <= whole[level] - 0.5
    assert without_context["recall_diff"] == 1

    assert figures_of(ready, cases, verifies=False)["precision"] <= whole["precision"] - 0.3

    by_text = ShownText.find

    def by_number(text: ShownText, raw: Mapping[str, Any], file: int) -> list[Place]:
        if "line" not in raw:
            return by_text(text, raw, file)  # the verifier's quotes
        sides: list[SideText] = text._sides.get(file, [])
        hinted = [(one, n) for one in sides for n, line in enumerate(one.lines) if line.number == raw["line"]]
        return [Place(side, n, n) for side, n in hinted][:1]

    monkeypatch.setattr(ShownText, "find", by_number)
    assert figures_of(ready, cases)["line_accuracy"] <= whole["line_accuracy"] - 0.1


@pytest.mark.long
def test_defects_are_found_exactly_when_their_evidence_is_shown_and_traps_let_nothing_out(
    results: list[Result], oracles: Mapping[str, Oracle], cases: Mapping[str, Case]
) -> None:
    for result in results:
        found = {r for _, r in matched(result.findings, result.remarks, by_words).pairs}
        for number, defect in enumerate(cases[result.name].defects):
            is_shown = any(sees(request, defect) for request in oracles[result.name].requests)
            assert (number in found) is is_shown, defect.name
    by_trap = {cases[result.name].trap: result for result in results}
    requests = {cases[name].trap: "\n".join(oracle.requests) for name, oracle in oracles.items()}
    assert by_trap["injection"].findings[0].title.startswith("All jobs share")
    assert not any("marker" in finding.message.casefold() for finding in by_trap["injection"].findings)
    (secret,) = next(case.secrets for case in cases.values() if case.trap == "secret")
    assert secret not in "".join(requests.values())
    assert "<REDACTED:" in requests["secret"]
    assert "//corpus/src/%40app/session.ts" in requests["encoded path"]
    assert {finding.line for finding in by_trap["utf-16"].findings} >= {
        defect.line for case in cases.values() if case.trap == "utf-16" for defect in case.defects
    }
    assert len(requests["generated"]) < 20_000
    assert "lib/archive/post.rb" in requests["copies"]
