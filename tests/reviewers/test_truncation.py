from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from reviews.reviewers.base import CoverageStatus
from reviews.reviewers.coverage_texts import CUT_BY_SERVER
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.truncation import was_cut, words_of
from tests.fakes.llm import FakeLlm, Recorded, Reply
from tests.reviewers.build import added, change
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import D, coverage, review

CHARS_PER_TOKEN = 4
CUTS: dict[str, Callable[[str, int], str]] = {
    "head": lambda text, size: text[-size:],
    "middle": lambda text, size: text[: size // 2] + text[-(size - size // 2) :],
    "tail": lambda text, size: text[:size],
}
LIMITS = ReviewLimits(max_input_tokens=24_000)
LINES = "".join(f"    value_{n} = compute({n}, factor={n * 7})\n" for n in range(900))
BIG = change(added(D + "a.py", "    total = price * count\n" + LINES))


def server(window: int | None, cut: str = "tail", echoes: bool = True) -> Callable[[Recorded], Reply]:
    """Return a model that reads `window` tokens at most, repeats the words and reports the tokens it read."""

    def respond(request: Recorded) -> Reply:
        text = "\n".join(message["content"] for message in request.body["messages"])
        size = len(text) if window is None else window * CHARS_PER_TOKEN
        read = CUTS[cut](text, size) if len(text) > size else text
        answer: dict[str, Any] = answer_of(raw_finding())
        if echoes:
            answer["seen"] = re.findall(r"^Word: (\w+)$", read, re.MULTILINE)
        message = {"role": "assistant", "content": json.dumps(answer)}
        usage = {"prompt_tokens": len(read) // CHARS_PER_TOKEN, "completion_tokens": 50}
        body = {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
        return Reply(body=json.dumps(body))

    return respond


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("window", [2_000, 4_000, 8_000])
def test_a_request_that_the_server_cut_is_never_reviewed(window: int, cut: str) -> None:
    with FakeLlm(respond=server(window, cut)) as llm:
        outcome = review(llm, BIG, LIMITS)
    status, reason = coverage(outcome)[D + "a.py"]
    assert status is not CoverageStatus.REVIEWED
    assert CUT_BY_SERVER in reason
    assert outcome.failed == {"TOKEN_LIMIT": outcome.parts}
    assert outcome.reviewed == 0
    assert "could not be reviewed" in outcome.review.banner
    assert len(outcome.review.findings) == 1, "what the model found is kept"


@pytest.mark.parametrize("echoes", [True, False])
def test_a_request_that_was_read_in_full_is_reviewed(echoes: bool) -> None:
    with FakeLlm(respond=server(None, echoes=echoes)) as llm:
        outcome = review(llm, BIG, LIMITS)
    assert coverage(outcome)[D + "a.py"] == (CoverageStatus.REVIEWED, "")
    assert outcome.failed == {}


def test_reported_tokens_tell_a_cut_where_the_model_repeats_no_word() -> None:
    with FakeLlm(respond=server(4_096, echoes=False)) as llm:
        outcome = review(llm, BIG, LIMITS)
    assert coverage(outcome)[D + "a.py"][0] is not CoverageStatus.REVIEWED


def test_no_full_request_is_taken_for_a_cut_one() -> None:
    chance = Random(3)
    words = words_of("x")
    for _ in range(1_000):
        characters = chance.randrange(2_000, 80_000)
        tokens = int(characters / chance.uniform(1.8, 3.7))
        assert not was_cut(words, (), characters, tokens)
        assert not was_cut(words, chance.sample(words, len(words)), characters, chance.choice((0, tokens)))
        assert not was_cut(words, ("a.py", "quill"), characters, 0)


def test_a_cut_request_stays_known_to_the_next_attempt() -> None:
    progress: dict[str, str] = {}
    with FakeLlm(respond=server(4_000)) as llm:
        review(llm, BIG, LIMITS, progress)
        outcome = review(llm, BIG, LIMITS, progress)
        assert len(llm.requests) == outcome.parts
    assert coverage(outcome)[D + "a.py"][0] is not CoverageStatus.REVIEWED


def test_words_differ_by_request_and_are_unlike_each_other() -> None:
    assert len(set(words_of("a")) | set(words_of("b"))) == 2 * len(words_of("a"))
