"""What spares the redactor work says the same as the plain rule that it stands for (guarantee G350)."""

from __future__ import annotations

import itertools
import random
import re
import string
from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from criticizer.redaction.input.document import read
from criticizer.redaction.patterns import Match
from criticizer.redaction.rules import entropy, nearby
from criticizer.redaction.rules.characters import transitions
from criticizer.redaction.rules.live_code import is_propagated
from criticizer.redaction.rules.pem import _BODY, _body

TOKENS = st.text("abzAZ019+/_-=x ", min_size=1, max_size=70)
LINES = st.text("aZ09 \t=:'\"`(){}[]<>,;/-_.*|&%$\u00e9\x0b", max_size=60)


@given(TOKENS)
@example("a" * 19 + "1")
@example("1" + "a" * 19)
@example("a" * 8 + "1" + "b" * 11)
@example("-" * 5 + "a" * 18 + "1")
def test_candidates_are_the_long_tokens_with_a_digit(text: str) -> None:
    data = text.encode()
    expected = []
    for match in re.finditer(rb"[A-Za-z0-9+/_-]{20,}", data):
        token = match.group().lstrip(b"+/-")
        if len(token) >= 20 and re.search(rb"[0-9]", token):
            expected.append((match.end() - len(token), match.end()))
    assert entropy.candidates(read(data)) == expected


@given(LINES)
@example("a/ Zz09az")
@example("\u00e9aZ0909'aZ0999")
def test_words_between_blanks_are_those_of_the_whole_line(text: str) -> None:
    line = text.encode()

    def kept(words: Iterable[Match]) -> list[tuple[int, int]]:
        spans = [word.span(1) for word in words]
        return [(a, b) for a, b in spans if b - a >= 6 and nearby._has_digit(line[a:b])]

    assert kept(nearby._words(line)) == kept(nearby._BARE.finditer(line))


@given(st.binary(max_size=80))
def test_transitions_are_neighbours_of_different_kinds(token: bytes) -> None:
    def kind(byte: int) -> int:
        character = chr(byte) if byte < 128 else ""
        return character.islower() + 2 * character.isupper() + 3 * character.isdigit()

    pairs = list(itertools.pairwise(token))
    changes = sum(kind(one) != kind(other) for one, other in pairs)
    assert transitions(token) == (changes / len(pairs) if pairs else 0.0)


@given(st.text("aZ09+/= '\"", min_size=1, max_size=40), st.booleans())
def test_the_body_of_a_key_is_what_the_expression_takes(text: str, short: bool) -> None:
    data = text.encode()
    match = _BODY.fullmatch(data)
    found = _body(data, 0, len(data), short=short)
    assert found is None or (match is not None and found == match.span(1))


def test_letters_and_digits_propagate_only_with_a_digit() -> None:
    assert is_propagated(b"velvetButter5649")
    assert not is_propagated(b"velvetButter")
    assert not is_propagated(b"VELVETBUTTER")


def test_a_line_of_a_key_is_not_judged_again() -> None:
    draw = random.Random(7)
    lines = ["".join(draw.choices(string.ascii_letters + string.digits, k=64)) for _ in range(6)]
    document = read("\n".join(lines).encode())
    places = entropy.candidates(document)
    assert len(places) == 6
    assert entropy.has_key_lines(places)
    assert len(entropy.spans(document, places, lambda _: False)) == 6
    assert entropy.spans(document, places, lambda _: False, places) == []
