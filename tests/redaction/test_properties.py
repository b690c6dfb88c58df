# ruff: noqa: E501 - tables are read by their rows
"""Properties of every text: stable, deterministic, the same lines, still a diff."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unidiff import PatchSet

from criticizer.redaction import RedactionBlocked, Redactor, clean, find_secrets, guard, redact
from tests import skips
from tests.redaction.fakes import begin, diff, draw, end, password, pem_lines

ROOT = Path(__file__).resolve().parents[2]
PIECES = [
    'password = "', "'", '"', "token:", " = ", "\n", "\r\n", "\r", "\u2028", "\x0b", "\t", "\\", "\\n", "&quot;", "%3A", "://", "@", ":",
    "ghp_" + draw(36), password(), draw(40), draw(64, "0123456789abcdef"), begin(), end(), *pem_lines(), "\n+", "\n-", "\n ",
    "\n@@ -1,2 +1,2 @@\n", "\ndiff --git a/x b/x\n", "\n--- a/x\n+++ b/x\n", "<REDACTED:password:1>", "<REDACTED:", "<", ">",
    "Authorization: Bearer ", "Cookie: a=", "kind: Secret\ndata:\n  a: ", "\u200b", "\u0430", "\uff50", "\x1b[0m", "\u00e9", "\U0001d41a",
    "- name: DB_PASSWORD\n  value: ", "curl -u a:", "-p", "key", "secret_", ",", " ", "  ", "(", ")", "{", "}", "eyJhbGciOi", ".", "#",
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=25).map("".join)
quick = settings(
    deadline=None, max_examples=skips.examples(150), suppress_health_check=[HealthCheck.too_slow]
)


def attempt(text: str) -> str | None:
    """Return the redacted text, None where the input is refused for what it is."""
    try:
        return redact(text).text
    except RedactionBlocked as blocked:
        if blocked.reason_code not in ("nul_byte", "undecodable"):
            raise
        return None


@quick
@given(texts)
def test_redacting_again_changes_nothing(text: str) -> None:
    once = attempt(text)
    if once is not None:
        assert redact(once).text == once


@quick
@given(texts)
def test_lines_stay_where_they_are(text: str) -> None:
    once = attempt(text)
    if once is not None:
        assert once.count("\n") == text.count("\n")
        assert len(once.splitlines()) == len(text.splitlines())


@quick
@given(texts)
def test_result_passes_the_guard(text: str) -> None:
    once = attempt(text)
    if once is not None:
        assert guard(redact(text)) == once


@quick
@given(texts)
def test_found_secrets_are_ordered_and_inside_the_text(text: str) -> None:
    if attempt(text) is None:
        return
    found = find_secrets(text)
    assert all(0 <= a.start < a.end <= len(text) for a in found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    assert all(text.count("\n", 0, a.start) + 1 == a.line for a in found)


@quick
@given(st.text(max_size=300))
def test_clean_answers_whatever_it_is_given(text: str) -> None:
    assert len(clean(text, 100)) <= 100


@pytest.mark.long
@quick
@given(st.lists(texts, max_size=4))
def test_parts_together_are_stable_too(parts: list[str]) -> None:
    if any(attempt(part) is None for part in parts):
        return
    once = [part.text for part in Redactor().redact_all(parts)]
    assert [part.text for part in Redactor().redact_all(once)] == once


safe_line = texts.map(
    lambda text: " ".join(text.replace("\0", "").encode("utf-8", "ignore").decode().splitlines())
)


@quick
@given(st.lists(st.tuples(st.sampled_from("+- "), safe_line), min_size=1, max_size=12))
def test_diff_still_parses_the_same(lines: list[tuple[str, str]]) -> None:
    text = diff(*(prefix + body for prefix, body in lines))
    result = redact(text).text.split("\n")
    assert result[:5] == text.split("\n")[:5]
    assert [line[:1] for line in result[5:-1]] == [prefix for prefix, _ in lines]


def shape(text: str) -> list[tuple[str, str, list[tuple[int, int, int, int, list[str]]]]]:
    """Return what another parser reads out of a diff: files, hunks, and each line's kind."""
    return [
        (
            file.source_file,
            file.target_file,
            [
                (
                    *(hunk.source_start, hunk.source_length, hunk.target_start, hunk.target_length),
                    [line.line_type for line in hunk],
                )
                for hunk in file
            ],
        )
        for file in PatchSet(text)
    ]


plain_line = safe_line.map(lambda text: "".join(c for c in text if c.isprintable()))


@pytest.mark.long
@quick
@given(st.lists(st.lists(st.tuples(st.sampled_from("+- "), plain_line), min_size=1, max_size=8), max_size=3))
def test_another_parser_reads_the_same_diff_before_and_after(files: list[list[tuple[str, str]]]) -> None:
    text = "".join(
        diff(*(prefix + body for prefix, body in lines), path=f"src/f{number}.py")
        for number, lines in enumerate(files)
    )
    assert shape(redact(text).text) == shape(text)


def test_another_parser_reads_a_diff_full_of_secrets() -> None:
    lines = [f'+password = "{password(n)}"' for n in range(9)] + [f"-{line}" for line in pem_lines()]
    text = diff(*lines, f" {begin()}", *(f"+{line}" for line in pem_lines(seed=8)), f" {end()}")
    result = redact(text).text
    assert result.count("<REDACTED:") > 15
    assert shape(result) == shape(text)


def test_result_is_the_same_in_every_process() -> None:
    sample = [
        diff(f'+password = "{password(n)}"', f"-ghp_{draw(36, seed=n)}", *(f"+{p}" for p in pem_lines()))
        for n in range(5)
    ]
    program = (
        "import json,sys\nfrom criticizer.redaction import Redactor\n"
        "parts=Redactor({'emails':True,'internal_domains':['b.lan','a.lan']}).redact_all(json.load(sys.stdin))\n"
        "print(json.dumps([[p.text, sorted(p.counts.items()), p.policy] for p in parts]))"
    )
    answers = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", program], input=json.dumps(sample), env=environment, capture_output=True, text=True,
            check=True, cwd=ROOT, timeout=120,
        )  # fmt: skip
        answers.add(done.stdout)
    assert len(answers) == 1
    assert "<REDACTED:key-material:1>" in answers.pop()
