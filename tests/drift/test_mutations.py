"""The mutation corpus: exactly what a change makes untrue is found (guarantee G470)."""

from __future__ import annotations

import pytest

from reviews.drift.change import compare
from reviews.drift.claims import Verdict
from reviews.drift.extraction import is_document
from reviews.drift.walk import scan
from tests.drift.corpus import MUTATIONS, TREES, Files, Mutation
from tests.drift.memory_tree import MemoryTree


def tree(files: Files) -> MemoryTree:
    return MemoryTree({path: text.encode() for path, text in files.items()})


@pytest.mark.parametrize("name", TREES)
def test_every_claim_of_a_clean_tree_holds(name: str) -> None:
    report, found = scan(tree(TREES[name]))
    assert {claim.key: judged for claim, judged in found.items() if judged.verdict is not Verdict.HOLDS} == {}
    assert report.counts[Verdict.HOLDS] >= 5


def test_the_corpus_is_large_enough() -> None:
    assert sum(is_document(path) for files in TREES.values() for path in files) >= 40
    assert len(MUTATIONS) >= 40


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.tree}: {one.name}")
def test_a_mutation_flips_its_claims_and_nothing_else(mutation: Mutation) -> None:
    report = compare(tree(TREES[mutation.tree]), tree(mutation.applied()), mutation.moves)
    found = {(one.claim.document, one.claim.kind.value, one.claim.subject) for one in report.drifted}
    assert found == mutation.flips
