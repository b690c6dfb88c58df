from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from random import Random

import pytest

from criticizer.redaction import Redactor
from reviews.reviewers.base import CoverageStatus
from reviews.reviewers.coverage_texts import CUT_BY_SERVER, OUT_OF_ROOM
from reviews.reviewers.instructions import system_prompt
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import request_text
from reviews.reviewers.prompt_leaks import words_in
from reviews.reviewers.splitting import Part
from reviews.reviewers.truncation import Window, was_cut, words_of
from tests import skips
from tests.fakes.llm import FakeLlm, Recorded, Reply, SmallWindow, error
from tests.reviewers.build import added, change, edited
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import FINDING, ONE, D, big, coverage, review

LIMITS = ReviewLimits(max_input_tokens=24_000)
LINES = "".join(f"    value_{n} = compute({n}, factor={n * 7})\n" for n in range(900))
BIG = change(added(D + "a.py", "    total = price * count\n" + LINES))
FILE = D + "a.py"


QUICK = {(2_000, "middle"), (4_000, "head"), (8_000, "tail")}  # each window and each place once


@pytest.mark.parametrize(
    ("window", "at"),
    [
        pytest.param(window, at, marks=() if (window, at) in QUICK else pytest.mark.long)
        for window in (2_000, 4_000, 8_000)
        for at in ("head", "middle", "tail")
    ],
)
def test_a_request_that_the_server_cut_is_asked_about_again_in_halves_until_all_is_read(
    window: int, at: str
) -> None:
    server = SmallWindow(window, at)
    with FakeLlm(respond=server) as llm:
        outcome = review(llm, BIG, LIMITS)
        asked = len(llm.requests)
    assert outcome.review.usage.cut == server.cut > 0, "each was noticed"
    assert outcome.review.usage.calls == asked == outcome.parts + server.cut
    assert coverage(outcome)[FILE] == (CoverageStatus.REVIEWED, "")


@pytest.mark.parametrize(
    "at", ["middle", *(pytest.param(at, marks=pytest.mark.long) for at in ("head", "tail"))]
)
def test_what_does_not_fit_even_in_small_parts_is_never_reviewed(at: str) -> None:
    server = SmallWindow(1_100, at, findings=[raw_finding()])
    with FakeLlm(respond=server) as llm:
        outcome = review(llm, BIG, LIMITS)
        asked = len(llm.requests)
    status, reason = coverage(outcome)[FILE]
    assert status is not CoverageStatus.REVIEWED
    assert CUT_BY_SERVER in reason
    assert outcome.failed == {"TOKEN_LIMIT": outcome.parts}
    assert (outcome.reviewed, outcome.review.usage.cut) == (0, server.cut)
    assert asked <= 1 + 2 * LIMITS.max_calls
    assert "could not be reviewed" in outcome.review.banner
    assert outcome.review.findings, "what the model found is kept"


@pytest.mark.long
def test_parts_that_follow_a_cut_one_are_halved_before_they_are_asked() -> None:
    server = SmallWindow(4_000)
    with FakeLlm(respond=server) as llm:
        outcome = review(llm, big(6, per_file=1_000), ReviewLimits(12_000, max_parallel_calls=1))
    assert {status for status, _ in coverage(outcome).values()} == {CoverageStatus.REVIEWED}
    assert (server.cut, outcome.review.usage.cut) == (1, 1)


@pytest.mark.parametrize("repeats_words", [True, False])
def test_a_request_that_was_read_in_full_is_reviewed(repeats_words: bool) -> None:
    with FakeLlm(respond=SmallWindow(None, repeats_words=repeats_words)) as llm:
        outcome = review(llm, BIG, LIMITS)
    assert coverage(outcome)[FILE] == (CoverageStatus.REVIEWED, "")
    assert (outcome.failed, outcome.review.usage.cut) == ({}, 0)


def test_reported_tokens_tell_a_cut_where_the_model_repeats_no_word() -> None:
    server = SmallWindow(4_096, repeats_words=False)
    with FakeLlm(respond=server) as llm:
        outcome = review(llm, BIG, LIMITS)
    assert outcome.review.usage.cut == server.cut > 0


def test_a_server_that_cuts_off_the_rules_is_noticed_by_an_answer_that_is_none() -> None:
    server = SmallWindow(4_096, "head", needs_rules=True)
    with FakeLlm(respond=server) as llm:
        outcome = review(llm, BIG, LIMITS)
        asked = len(llm.requests)
    assert outcome.review.usage.cut == server.cut > 0
    assert asked == outcome.parts + server.cut, "none was asked to repair its answer"
    assert coverage(outcome)[FILE] == (CoverageStatus.REVIEWED, "")


def test_no_full_request_is_taken_for_a_cut_one() -> None:
    chance = Random(3)
    words = words_of("x")
    for _ in range(1_000):
        characters = chance.randrange(2_000, 80_000)
        tokens = int(characters / chance.uniform(1.8, 3.7))
        assert not was_cut(words, (), characters, tokens)
        assert not was_cut(words, chance.sample(words, len(words)), characters, chance.choice((0, tokens)))
        assert not was_cut(words, ("a.py", "quill"), characters, 0)


def test_one_odd_answer_does_not_shorten_the_parts_that_follow() -> None:
    """Words that a model forgot once say nothing of the server's window."""
    server = SmallWindow(None)
    odd = Reply(answer={"findings": [], "files_read": [], "seen": ["quillwort"]}, input_tokens=3_501)

    with FakeLlm() as llm:
        replies = itertools.chain([odd], itertools.repeat(server))
        llm.server.respond = lambda r: reply if isinstance(reply := next(replies), Reply) else reply(r)
        outcome = review(llm, big(6, per_file=1_000), ReviewLimits(12_000, max_parallel_calls=1))
    assert outcome.review.usage.cut == 1
    assert outcome.review.usage.calls == outcome.parts + 1, "only the part that was cut is halved"
    assert {status for status, _ in coverage(outcome).values()} == {CoverageStatus.REVIEWED}


def test_a_longer_request_that_was_read_in_full_proves_a_window_wrong() -> None:
    window, words = Window(), words_of("x")
    assert window.has_cut(words, words[:3], 16_000, 5_001)
    assert window.has_cut(words, (), 18_000, 5_003), "the count of a request that was cut"
    assert not window.has_cut(words, (), 9_000, 2_700)
    assert not window.has_cut(words, words, 24_000, 7_100)
    assert not window.has_cut(words, (), 18_000, 5_003)


@pytest.mark.parametrize(
    "at", ["middle", *(pytest.param(at, marks=pytest.mark.long) for at in ("head", "tail"))]
)
def test_words_alone_tell_that_a_piece_is_missing(at: str) -> None:
    """A server reports no tokens: any piece missing between two words of the request shows."""
    part = prepared("", "    total = price * count\n" + LINES).chunks
    user = request_text(prepared("", LINES).text, part, 0).text
    whole = f"{system_prompt(10)}\n{user}"
    expected = words_in(system_prompt(10), user)
    assert expected == tuple(re.findall(r"^Word: (\w+)$", whole, re.MULTILINE))
    for kept in range(len(whole) // 20, len(whole) - 100, 97):
        read = SmallWindow(kept, at, tokens=len).read(whole)
        seen = re.findall(r"^Word: (\w+)$", read, re.MULTILINE)
        assert was_cut(expected, seen, len(whole), 0), kept


@pytest.mark.parametrize(
    "at", ["middle", *(pytest.param(at, marks=pytest.mark.long) for at in ("head", "tail"))]
)
def test_a_server_without_token_counts_cuts_nothing_unnoticed(at: str) -> None:
    """One longer request shows what is missing between two words, if words are the only sign."""

    def sizes(llm: FakeLlm) -> list[int]:
        return [sum(len(one["content"]) for one in request.body["messages"]) for request in llm.requests]

    with FakeLlm(respond=SmallWindow(None)) as llm:
        review(llm, BIG, LIMITS)
        (whole,) = sizes(llm)
    for missing in (2, 9, 60, 150, 400, 1_000, 3_000) if skips.is_all() else (2, 60, 3_000):
        server = Countless(whole + 1 - missing, at, tokens=len)
        with FakeLlm(respond=server) as llm:
            outcome = review(llm, BIG, LIMITS)
            assert server.cut > 0
            assert outcome.review.usage.cut > 0, missing
            assert outcome.review.usage.calls == len(llm.requests)
        assert coverage(outcome)[FILE] == (CoverageStatus.REVIEWED, ""), "in halves, which are read in full"


def test_a_server_without_token_counts_that_reads_all_is_proved_once() -> None:
    server = Countless(None)
    with FakeLlm(respond=server) as llm:
        outcome = review(llm, big(6, per_file=1_000), ReviewLimits(12_000, max_parallel_calls=1))
        asked = len(llm.requests)
    assert {status for status, _ in coverage(outcome).values()} == {CoverageStatus.REVIEWED}
    assert (outcome.review.usage.cut, outcome.review.usage.repaired, outcome.failed) == (0, 0, {})
    assert outcome.parts < asked <= outcome.parts + 2


class Countless(SmallWindow):
    """A server that reports no tokens."""

    def __call__(self, request: Recorded) -> Reply:
        return replace(super().__call__(request), input_tokens=0)


@pytest.mark.long
def test_the_next_attempt_asks_again_about_no_half() -> None:
    progress: dict[str, str] = {}
    with FakeLlm(respond=SmallWindow(4_000)) as llm:
        first = review(llm, BIG, LIMITS, progress)
        asked = len(llm.requests)
        second = review(llm, BIG, LIMITS, progress)
        assert len(llm.requests) == asked
    assert second.review == first.review


def test_words_differ_by_request_and_are_unlike_each_other() -> None:
    assert len(set(words_of("a")) | set(words_of("b"))) == 2 * len(words_of("a"))


def prepared(old: str, new: str) -> Prepared:
    return prepare(change(edited(FILE, old, new)), Redactor(), LIMITS)


def test_halves_hold_every_line_once_and_keep_what_replaces_a_line_beside_it() -> None:
    old = "".join(f"old line {n} of the file\n" for n in range(400))
    new = "".join(
        f"new line {n} of the file\n" if n % 4 else f"old line {n} of the file\n" for n in range(400)
    )
    (chunk,) = prepared(old, new).chunks
    (hunk,) = chunk.hunks
    halves = Part((chunk,), 0).halves()
    first, second = (half.chunk.hunks[0] for half in halves)
    assert {*first.lines, *second.lines} == set(hunk.lines)
    assert len(first.lines) + len(second.lines) == len(hunk.lines)
    assert max(line.position for line in first.lines) < min(line.position for line in second.lines)
    for half in (first, second):
        title, *lines = half.text.text.split("\n")
        assert title == hunk.text.text.split("\n")[0]
        assert [line for line in lines if line.endswith(":")] == ["new:", "old, removed or replaced:"]
        for line in half.lines:
            assert any(shown.endswith(line.kind + line.text) for shown in lines)
        assert len(lines) == len(half.lines) + 2


@pytest.mark.parametrize("kind", ["added", "removed", "clipped", "one line"])
def test_halves_of_every_kind_of_hunk_end_and_lose_nothing(kind: str) -> None:
    text = "".join(f"line {n} of the file\n" for n in range(2_000))
    long = text * 4 if kind == "clipped" else "x" * 90_000 if kind == "one line" else text
    done = prepared(long, "") if kind == "removed" else prepared("", long)
    left = [Part(done.chunks, index) for index in range(len(done.chunks))]
    names, lines = {hunk.name for chunk in done.chunks for hunk in chunk.hunks}, 0
    while left:
        part = left.pop()
        if halves := part.halves():
            assert all(half.characters < part.characters for half in halves)
            left += halves
        else:
            assert {hunk.name for hunk in part.chunk.hunks} <= names
            lines += sum(len(hunk.lines) for hunk in part.chunk.hunks)
    assert lines == sum(len(hunk.lines) for chunk in done.chunks for hunk in chunk.hunks)


# -- answers that use up their room --------------------------------------------------------------

EMPTY = Reply(answer="", finish_reason="length")


def limits_asked(llm: FakeLlm) -> list[int]:
    return [request.body["max_tokens"] for request in llm.requests]


@pytest.mark.parametrize("said", ["", "<think>" + "step by step, " * 2_200])
def test_an_answer_without_room_is_given_twice_the_room_once(said: str) -> None:
    with FakeLlm() as llm:
        llm.script(Reply(answer=said, finish_reason="length"), Reply(answer=FINDING))
        assert len(review(llm, ONE).review.findings) == 1
        assert limits_asked(llm) == [8_192, 16_384]


def test_the_parts_after_it_have_the_room_at_once() -> None:
    with FakeLlm() as llm:
        llm.script(EMPTY)
        review(llm, big(3), ReviewLimits(8_000, max_parallel_calls=1))
        assert limits_asked(llm) == [8_192, 16_384, 16_384, 16_384]


@pytest.mark.parametrize("second", [EMPTY, error(400, "no more than 8192 tokens", "invalid_request")])
def test_an_answer_without_room_twice_says_what_to_set(second: Reply) -> None:
    replies = itertools.chain([EMPTY, second], itertools.repeat(Reply()))

    def respond(request: Recorded) -> Reply:
        return next(replies)

    with FakeLlm(respond=respond) as llm:
        outcome = review(llm, big(2), ReviewLimits(8_000, max_parallel_calls=1))
    (reason,) = filter(None, (why for _, why in coverage(outcome).values()))
    assert reason.startswith(OUT_OF_ROOM)
    assert "LLM_MAX_OUTPUT_TOKENS" in reason


@pytest.mark.parametrize("ending", ["</think>", "\n</think>\n\n```json\n", ""])
def test_reasoning_of_30_kb_before_an_answer_is_left_aside(ending: str) -> None:
    thought = "<think>" + 'The list "findings" may hold {"file": "a.py"}. ' * 640
    answer = Reply(answer=f"{thought[:30_000]}{ending or '</think>'}{answer_text()}")
    with FakeLlm(respond=lambda _: answer) as llm:
        outcome = review(llm, ONE)
        assert len(llm.requests) == 1
    assert len(outcome.review.findings) == 1


def answer_text() -> str:
    return json.dumps(answer_of(raw_finding()))
