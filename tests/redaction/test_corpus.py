"""Recall and precision over the labelled rows, where they are at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from criticizer.redaction import redact

ROWS = Path(__file__).resolve().parents[3] / "shared" / "data" / "redaction_dev.jsonl.gz"
CERTAIN = {"pem", "pem-boundary", "uri", "header", "smtp", "truncated"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    if not ROWS.is_file():
        pytest.skip("the labelled rows are not at hand")
    with gzip.open(ROWS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_recall_is_at_least_98_percent(rows: list[dict[str, Any]]) -> None:
    wanted = [row for row in rows if row["expect"] == "redact"]
    missed = []
    for row in wanted:
        text = redact(row["text"], row["policy"]).text
        if any(secret in text for secret in row["secrets"]):
            missed.append(row)
    assert [row["id"] for row in missed if row["cls"] in CERTAIN] == []
    assert 1 - len(missed) / len(wanted) >= 0.98


def test_at_most_2_percent_of_ordinary_rows_change(rows: list[dict[str, Any]]) -> None:
    kept = [row for row in rows if row["expect"] == "keep"]
    changed = [row for row in kept if redact(row["text"], row["policy"]).text != row["text"]]
    assert [
        row["id"] for row in changed if row["cls"] in {"neg-hash", "neg-uuid", "neg-lock", "neg-b64"}
    ] == []
    assert len(changed) / len(kept) <= 0.02


def test_rows_are_stable_and_keep_their_lines(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        once = redact(row["text"], row["policy"]).text
        assert once.count("\n") == row["text"].count("\n")
        assert redact(once, row["policy"]).text == once
