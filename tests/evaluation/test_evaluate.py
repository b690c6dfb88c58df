"""`manage.py evaluate`: exit codes, recordings, judges and public benchmarks."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from reviews.evaluation import judging, public_sets
from reviews.evaluation.judging import Pair
from reviews.reviewers import redactor
from tests.fakes.llm import FakeLlm, Recorded, Reply, error
from tests.sources.gitrepo import GitRepo

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT.parent / "shared" / "data" / "review"
PROJECT = """
language = "python"
[files]
"a.py" = '''
LIMIT = 5


def first(values: list[int]) -> int:
    return 0
'''
[[edits]]
id = "first"
why = "Return the first value"
file = "a.py"
level = "diff"
severity = "high"
before = "    return 0"
right = "    return values[0]"
wrong = "    return values[1]"
quote = "return values[1]"
title = "The second value is returned"
problem = "Index 1 is the second value."
needs = ["a.py:return values[1]"]
[[changes]]
wrong = ["first"]
[[changes]]
right = ["first"]
"""
# Precision and recall of twelve tools by the counts of the benchmark's dashboard (judge GPT-5.2).
PUBLISHED = {
    "augment": (0.373, 0.591), "baz": (0.346, 0.270), "bugbot": (0.383, 0.431), "claude": (0.305, 0.372),
    "coderabbit": (0.212, 0.416), "copilot": (0.235, 0.533), "gemini": (0.246, 0.328),
    "graphite": (0.667, 0.088), "greptile": (0.338, 0.365), "kg": (0.489, 0.168), "propel": (0.389, 0.372),
    "qodo": (0.234, 0.423),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _redactor() -> Iterator[None]:
    yield
    redactor.close()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    directory = tmp_path / "corpus"
    directory.mkdir()
    (directory / "mine.toml").write_text(PROJECT)
    return directory


@pytest.fixture
def llm(settings: Any) -> Iterator[FakeLlm]:
    with FakeLlm(respond=reviewer_and_judge) as server:
        settings.LLM_PROVIDER, settings.LLM_BASE_URL, settings.LLM_MODEL = "openai", server.base_url, "small"
        yield server


def reviewer_and_judge(request: Recorded) -> Reply:
    """Find the wrong line; judge that texts are the same when they share their third word."""
    user = request.body["messages"][-1]["content"]
    if "BEGIN first remark" in user:
        one, other = (part.split("\n")[1].split() for part in user.split("BEGIN ")[1:])
        return Reply(answer={"same": bool(set(one) & set(other) & {"second", "values", "two"})})
    if claim := re.search(r"^id (\S+)\ntitle: (.*)$", user, re.MULTILINE):
        verdict = {"id": claim[1], "title": claim[2], "verdict": "confirmed", "why": "It is so."}
        return Reply(answer={"verdicts": [verdict]})
    wrong = "    return values[1]"
    found = {
        "file": "a.py", "quote": wrong.strip(), "line": 5, "severity": "high", "title": "Wrong index",
        "problem": "The index of the second element is used.",
    }  # fmt: skip
    return Reply(answer={"findings": [found] if wrong in user else [], "files_read": ["a.py"]})


def evaluated(*arguments: Any, **options: Any) -> dict[str, str]:
    """Run the command; return each printed figure as text."""
    out = StringIO()
    call_command("evaluate", *arguments, stdout=out, **options)
    return {
        name: value.strip()
        for name, _, value in (line.partition("  ") for line in out.getvalue().splitlines())
    }


def refusal(*arguments: Any, **options: Any) -> tuple[int, str]:
    with pytest.raises(CommandError) as refused:
        evaluated(*arguments, **options)
    return refused.value.returncode, str(refused.value)


def test_a_worse_figure_ends_with_1_and_another_corpus_with_2(corpus: Path, tmp_path: Path) -> None:
    gate = tmp_path / "baseline.json"
    assert float(evaluated(corpus=corpus, output=gate)["recall"]) == 1
    again = tmp_path / "again.json"
    evaluated(corpus=corpus, gate=gate, output=again)
    assert again.read_bytes() == gate.read_bytes()
    baseline = json.loads(gate.read_text())
    gate.write_text(json.dumps({**baseline, "figures": {**baseline["figures"], "precision": 1.01}}))
    status, said = refusal(corpus=corpus, gate=gate)
    assert (status, "precision fell from 1.0100" in said) == (1, True)
    (corpus / "mine.toml").write_text(PROJECT + "# changed\n")
    status, said = refusal(corpus=corpus, gate=gate)
    assert (status, "another corpus" in said) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["oracle", "--corpus", "/nonexistent"], "give the directory of a corpus"),
        (["real"], "no model is configured"),
        (["real", "--runs", "2"], "--runs must be at least 3"),
        (["replay"], "--answers FILE"),
        (["replay", "--answers", "/nonexistent"], "holds no recorded answers"),
        (["martian"], "give --judged FILE"),
        (["aacr"], "--samples"),
        (["aacr", "--samples", "/nonexistent"], "cannot be read"),
        (
            ["aacr", "--samples", str(ROOT / "tests/corpus/baseline.json")],
            "not in the form of this benchmark",
        ),
        (["martian", "--judged", str(ROOT / "tests/corpus/baseline.json")], "not in the form"),
        (["oracle", "--output", "/nonexistent/figures.json"], "there is no directory /nonexistent"),
        (["oracle", "--gate", "/nonexistent"], "is no output of evaluate"),
    ],
)
def test_nothing_measured_ends_with_2_and_says_what_to_do(
    arguments: list[str], said: str, corpus: Path
) -> None:
    status, text = refusal(*arguments, **({} if "--corpus" in arguments else {"corpus": corpus}))
    assert status == 2
    assert said in text


def test_a_real_model_is_measured_over_runs_and_its_answers_are_replayed(
    llm: FakeLlm, corpus: Path, tmp_path: Path, settings: Any
) -> None:
    answers, output = tmp_path / "answers.jsonl", tmp_path / "figures.json"
    said = evaluated("real", corpus=corpus, record=answers, output=output)
    assert said["recall"] == "mean 1  least 1  most 1"
    assert said["precision"] == "mean 1  least 1  most 1"
    report = json.loads(output.read_text())
    assert (report["model"], report["verifier"], report["judge"]) == ("small", "small", None)
    assert (len(report["runs"]), report["runs"][0]["calls"]) == (3, 3)  # two changes, one finding
    asked = len(llm.requests)
    assert evaluated("replay", corpus=corpus, answers=answers) == said
    assert len(llm.requests) == asked
    settings.LLM_VERIFY = "off"
    evaluated("real", corpus=corpus, output=output)
    report = json.loads(output.read_text())
    assert (report["verifier"], report["runs"][0]["calls"]) == (None, 2)
    status, text = refusal("replay", corpus=corpus, answers=answers, seed=7)
    assert (status, "no recorded answer" in text) == (2, True)


def test_a_judge_is_used_only_after_it_agreed_with_recorded_judgements(
    llm: FakeLlm, corpus: Path, tmp_path: Path
) -> None:
    def judged(*pairs: tuple[str, str, bool]) -> Path:
        tools = {
            "one": {"tp": [[a, b] for a, b, same in pairs if same], "fp": [], "fn": []},
            "two": {"tp": [], "fp": [b for _, b, same in pairs if not same], "fn": [pairs[0][0]]},
        }
        file = tmp_path / "judged.json.gz"
        file.write_bytes(gzip.compress(json.dumps({"judge": {"url": tools}}).encode()))
        return file

    agreeing = judged(("two values", "values", True), ("two values", "rain", False))
    said = evaluated("real", corpus=corpus, judge="large", judged=agreeing)
    assert said["recall"] == "mean 1  least 1  most 1"
    contrary = judged(("two values", "rain", True), ("two values", "two", False))
    status, text = refusal("real", corpus=corpus, judge="large", judged=contrary)
    assert (status, "kappa" in text) == (2, True)


@pytest.mark.long
def test_a_rate_limit_and_a_failed_review_do_not_end_hours_of_measuring(
    llm: FakeLlm, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reviews.evaluation.answers.PAUSES", (0,))
    llm.script(error(429, "Slow down."), error(503, "Later."))
    assert evaluated("real", corpus=corpus)["recall"] == "mean 1  least 1  most 1"
    llm.script(Reply(answer="I cannot say.", repeat=4))  # asked twice for each change of the first run
    assert evaluated("real", corpus=corpus)["recall"].endswith("least 0  most 1")
    llm.script(Reply(status=401, body="{}", repeat=4))
    status, text = refusal("real", corpus=corpus)
    assert (status, "not measured" in text) == (2, True)


def test_kappa_is_agreement_beyond_chance() -> None:
    assert judging.kappa([True, True, False, False], [True, True, False, False]) == 1
    assert judging.kappa([True, True, False, False], [True, False, True, False]) == 0
    assert judging.kappa([True, True, True, False], [True, True, False, False]) == pytest.approx(0.5)


@pytest.mark.long
def test_pull_requests_of_aacr_are_reviewed_from_clones(llm: FakeLlm, corpus: Path, tmp_path: Path) -> None:
    clone = GitRepo(tmp_path / "clones" / "owner" / "shop")
    base = clone.commit_files({"a.py": "def first(values):\n    # the first\n\n\n    return 0\n"})
    head = clone.commit_files({"a.py": "def first(values):\n    # the first\n\n\n    return values[1]\n"})
    remark = {
        "note": "The second value is returned.", "path": "a.py", "side": "right",
        "from_line": 6, "to_line": 5, "category": "Code Defect", "context": "Diff Level",
    }  # fmt: skip
    rows = [
        {
            "githubPrUrl": f"https://github.com/owner/{name}/pull/{number}",
            "source_commit": head,
            "target_commit": base,
            "comments": [remark],
        }
        for number, name in enumerate(("shop", "absent"), start=1)
    ]
    samples = tmp_path / "positive_samples.json"
    samples.write_text(json.dumps(rows))
    output = tmp_path / "figures.json"
    said = evaluated("aacr", corpus=corpus, samples=samples, repositories=tmp_path / "clones", output=output)
    assert said["recall_diff"] == said["precision"] == "mean 1  least 1  most 1"
    (missing,) = json.loads(output.read_text())["pulls_not_read"]
    assert "owner/absent" in missing


def test_published_figures_of_martian_follow_from_recorded_judgements() -> None:
    """Guarantee G192."""
    judged = RECORDED / "martian_judged.json.gz"
    if not judged.exists():
        pytest.skip("the recorded reviews are not here")
    scores = public_sets.martian_scores(judged)["openai_gpt-5.2"]
    assert {n: (round(s.precision, 3), round(s.recall, 3)) for n, s in scores.items()} == PUBLISHED
    pairs = judging.sample(public_sets.martian_pairs(judged), 1)
    assert sum(pair.same for pair in pairs) == len(pairs) // 2 == judging.MAX_PAIRS // 2
    goldens = public_sets.martian_goldens(RECORDED / "martian_golden")
    assert len(goldens) == 50
    assert {pull.repository.count("/") for pull in goldens} == {1}
    remarks = [
        remark
        for pull in public_sets.aacr(RECORDED / "aacr_positive_samples.json.gz")
        for remark in pull.remarks
    ]
    assert len(remarks) == 1505
    assert sum(remark.level == "repository" for remark in remarks) / len(remarks) == pytest.approx(
        0.16, abs=0.01
    )


def test_pairs_on_which_recorded_judges_differ_are_left_out(tmp_path: Path) -> None:
    said = [
        {"tp": [["g", "a"]], "fp": ["b", "c"], "fn": []},
        {"tp": [["g", "a"], ["g", "b"]], "fp": ["c"], "fn": []},
    ]
    file = tmp_path / "judged.json"
    file.write_text(json.dumps({f"judge {n}": {"url": {"tool": one}} for n, one in enumerate(said)}))
    assert public_sets.martian_pairs(file) == [Pair("g", "a", True), Pair("g", "c", False)]
