"""Suggestions that are proven on the files of a review: stored, carried to later versions.

A suggestion that is not proven is stored as text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reviews import fixes
from reviews.models import Artifact, FindingRow
from reviews.sources.base import Change, ChangeStatus
from reviews.states import JobStatus
from tests.fakes.llm import Reply
from tests.pipeline.test_stage_llm import Bench, bench, job_of  # noqa: F401 - a fixture
from tests.reviewers.build import change as change_of
from tests.reviewers.build import edited
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import D

pytestmark = pytest.mark.django_db(transaction=True)
NEW = "def total(price, count):\n    sum = price * count\n    return sum\n\n\nEND = 1\n"
SHELF = replace(
    change_of(edited(f"{D}a.py", NEW.replace("    sum = price * count\n", ""), NEW)),
    status=ChangeStatus.SHELVED,
)
BETTER = "    sum = price * max(count, 0)"


def suggesting(**fields: Any) -> Reply:
    found = raw_finding(file=f"{D}a.py", quote="    sum = price * count", suggestion="Bound it.", **fields)
    return Reply(answer=answer_of(found), repeat=9)


def reviewed(bench: Bench, reply: Reply, change: Change = SHELF, version: int = 1) -> FindingRow:  # noqa: F811
    bench.settings.LLM_MAX_INPUT_TOKENS = 16_000
    bench.llm.server.respond = lambda _: reply
    job = bench.job(change, "1", version)
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    return FindingRow.objects.get(job=job)


def test_a_proven_suggestion_is_stored_sealed_and_written_as_a_patch(bench: Bench) -> None:  # noqa: F811
    row = reviewed(bench, suggesting(replace=["    sum = price * count"], **{"with": BETTER}))
    assert f"-    sum = price * count\n+{BETTER}\n" in fixes.patch_of(row)
    assert fixes.replacement_of(row) == BETTER
    assert row.suggestion == f"Bound it.\n\n```\n{BETTER}\n```", "channels without patches show it as text"
    usage = job_of(row.job_id).usage
    assert (usage["edits"], usage["edits_refused"]) == (1, 0)
    stored = FindingRow.objects.raw("SELECT id, edit AS sealed FROM findings")[0]
    assert "max(count" not in stored.sealed  # type: ignore[attr-defined]


def test_a_carried_finding_is_proven_on_the_new_text_of_its_file(bench: Bench) -> None:  # noqa: F811
    reply = suggesting(replace=["    sum = price * count"], **{"with": BETTER})
    first = reviewed(bench, reply)
    second = reviewed(bench, Reply(status=500), version=2)
    assert (second.fate.fate, second.edit) == ("carried", first.edit)  # type: ignore[union-attr]
    assert job_of(second.job_id).usage["edits"] == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"replace": ["    sum = price * count"], "with": "    sum = price * ("}, "syntax"),
        ({"replace": ["    sum = cost"], "with": BETTER}, "place"),
    ],
)
def test_a_refused_suggestion_is_text_and_counted(
    bench: Bench,  # noqa: F811
    fields: dict[str, Any],
    why: str,
) -> None:
    row = reviewed(bench, suggesting(**fields))
    assert (row.edit, fixes.patch_of(row)) == ([], "")
    assert fields["with"] in row.suggestion
    usage = job_of(row.job_id).usage
    assert (usage["edits"], usage["edits_refused"]) == (1, 1)


def test_without_the_raw_change_no_suggestion_is_proven_and_the_review_goes_on(
    bench: Bench,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load: Callable[..., bytes] = fixes.redactor.store.load
    asked: list[Artifact.Kind] = []

    def without_raw(job_id: int, kind: Artifact.Kind) -> bytes:
        asked.append(kind)
        if asked.count(Artifact.Kind.CHANGE) > 1:  # after the change was redacted
            Artifact.objects.filter(kind=kind).update(deleted_at="2026-01-01T00:00:00Z")
        return load(job_id, kind)

    monkeypatch.setattr(fixes.redactor.store, "load", without_raw)
    row = reviewed(bench, suggesting(replace=["    sum = price * count"], **{"with": BETTER}))
    assert (row.edit, asked.count(Artifact.Kind.CHANGE)) == ([], 2)
    assert job_of(row.job_id).usage["edits_refused"] == 1


def test_an_edit_of_new_lines_replaces_no_lines_of_the_old_side(bench: Bench) -> None:  # noqa: F811
    old = NEW.replace("price * count", "price * abs(count)")
    change = replace(change_of(edited(f"{D}a.py", old, NEW)), status=ChangeStatus.SHELVED)
    found = raw_finding(
        file=f"{D}a.py", quote="    sum = price * abs(count)", side="old",
        replace=["    sum = price * count"], **{"with": BETTER},
    )  # fmt: skip
    row = reviewed(bench, Reply(answer=answer_of(found), repeat=9), change)
    assert (row.side, row.line) == ("old", 2)
    assert row.proven_edit is not None
    assert fixes.replacement_of(row) == ""
