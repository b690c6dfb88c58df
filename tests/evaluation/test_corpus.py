"""The corpus of this repository is what it claims to be."""

from __future__ import annotations

import difflib
from collections import Counter
from pathlib import Path

import pytest

from reviews.evaluation import corpus
from reviews.evaluation.corpus import Case, CorpusError, Evidence

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
TRAPS = {"injection", "secret", "encoded path", "utf-16", "generated", "copies"}


def text_of(case: Case, path: str, *, before: bool = False) -> str:
    codec = "utf-16" if case.trap == "utf-16" and path.endswith(".cpp") else "utf-8"
    return (case.before if before else case.after)[path].decode(codec)


def shown_by_diff(case: Case, path: str) -> str:
    """Return the text of an ordinary diff with three lines of context."""
    sides = [text_of(case, path, before=before).splitlines() for before in (True, False)]
    return "\n".join(line[1:] for line in difflib.unified_diff(*sides, n=3, lineterm=""))


def level_of(case: Case, need: Evidence) -> str:
    if case.before[need.path] == case.after[need.path]:
        return "repository"
    return "diff" if need.text in shown_by_diff(case, need.path) else "file"


def test_sixty_changes_with_defects_in_their_shares_and_every_trap() -> None:
    cases = corpus.load(CORPUS, 1)
    levels = Counter(defect.level for case in cases for defect in case.defects)
    assert len(cases) == 60
    assert sum(not case.defects for case in cases) == 24
    assert levels == {"diff": 25, "file": 17, "repository": 8}
    assert {case.trap for case in cases if case.trap} == TRAPS
    assert max(len(content) for case in cases for content in case.after.values()) > 4_900_000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_evidence_lies_where_its_defect_says_and_nowhere_else(seed: int) -> None:
    for case in corpus.load(CORPUS, seed):
        for defect in case.defects:
            assert text_of(case, defect.file).splitlines()[defect.line - 1] == defect.quote
            levels = {level_of(case, need) for need in defect.needs}
            assert levels == {defect.level}, defect.name
            for need in defect.needs:
                texts = [text_of(case, path) for path in case.after if not path.endswith(".json")]
                assert sum(text.count(need.text) for text in texts) == 1, defect.name
        for claim in case.claims:
            assert claim.refuted_by.text in text_of(case, claim.refuted_by.path), claim.problem


def test_a_seed_gives_the_same_corpus_and_another_seed_other_lines() -> None:
    assert corpus.load(CORPUS, 1) == corpus.load(CORPUS, 1)
    one, other = (
        {d.name: d.line for case in corpus.load(CORPUS, seed) for d in case.defects} for seed in (1, 2)
    )
    assert sum(one[name] != other[name] for name in one) > 25


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("not = [toml", "TOMLDecodeError"),
        ('language = "python"', "KeyError"),
        (
            'language = "python"\n[files]\n"a.py" = "x\\n"\n[[edits]]\nid = "e"\nwhy = "w"\nfile = "a.py"\n'
            'before = "y"\nwrong = "z"\n[[changes]]\nwrong = ["e"]',
            "`before` must occur once in a.py",
        ),
    ],
)
def test_a_broken_corpus_is_named_with_its_file(tmp_path: Path, broken: str, said: str) -> None:
    (tmp_path / "mine.toml").write_text(broken)
    with pytest.raises(CorpusError, match=r"mine\.toml: ") as refused:
        corpus.load(tmp_path, 1)
    assert said in str(refused.value)
