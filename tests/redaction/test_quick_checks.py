"""Quick checks of the redactor agree with the plain rules they stand for (guarantee G350)."""

from __future__ import annotations

import itertools
import random
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from criticizer.redaction.input import concatenation, logical_lines
from criticizer.redaction.input.document import read
from criticizer.redaction.patterns import Forms, compiled
from criticizer.redaction.repeated_values import LEAST, KnownValues
from criticizer.redaction.rules import (
    bare_words,
    entropy,
    key_names,
    name_lists,
    named_values,
    near_secret_words,
    separators,
    value_heuristics,
)
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


# What `bare_words` finds piece by piece, with the word as a group.
WORD = compiled(rb"(?:^|[\s(\[{>,;]|[^\x00-\x7f]|[A-Za-z][:=]|/ |[\"'])[\"'`(]?([!-'*-+\--:=?-Z^_a-z~]+)")


@given(LINES)
@example("a/ Zz09az")
@example("\u00e9aZ0909'aZ0999")
@example("x=`aZ0999")
def test_words_of_a_line_are_those_of_one_expression(text: str) -> None:
    line = text.encode()
    whole = [match.span(1) for match in WORD.finditer(line)]
    found = [(a, b) for a, b in bare_words.words(line, []) if b - a >= bare_words.LEAST]
    expected = [(a, b) for a, b in whole if b - a >= bare_words.LEAST and bare_words.has_digit(line[a:b])]
    assert [span for span in found if bare_words.has_digit(line[slice(*span)])] == [
        (a, b) for a, b in expected if not line[a:b].isalpha()
    ]


@given(LINES)
@example('\'a0Za0Z\' "\\"a0Za0Z"')
def test_literals_in_plain_quotes_are_those_of_all_forms(text: str) -> None:
    line = text.encode()
    expected = [
        (match.span(), match.span(match.lastindex)) for match in near_secret_words._LITERAL.finditer(line)
    ]
    assert near_secret_words._literals(line) == [
        (span, (start, end)) for span, (start, end) in expected if 6 <= end - start <= 128
    ]


@given(st.text("a'\"`,():=>-. \t\x01<", max_size=14))
@example(", a")
@example("'=a")
def test_a_plain_sign_is_what_the_expression_reads(after: str) -> None:
    text = b"password" + after.encode()
    found, head = separators._plain(text, 8, len(text)), separators.HEAD.match(text, 8, len(text))
    assert found is None or (
        head is not None and found == (head.end(1), head.end(), text[slice(*head.span(3))])
    )


@given(st.text("aN'\"\\, ()]\n0", max_size=16))
@example("'a0',")
def test_a_plain_value_of_a_list_is_what_the_expression_reads(text: str) -> None:
    data = text.encode()
    found = name_lists._plain_value(data, 0)
    assert found is None or found == name_lists._any_value(data, 0)


@given(st.text("ab0 \t\"'`<>|{}()=:;,.!-+?ror\\", max_size=24))
@example("a or")
@example("a: >2")
@example("a <<'b0'")
def test_what_opens_no_value_is_passed_over(text: str) -> None:
    last = text.encode().rstrip()
    match = logical_lines._OPENS.search(last)
    assert match is not None
    assert logical_lines._may_open(last) or match.groups() == (b"", b"")


@given(st.text("a'\"`\\nbf +.&|<>~$", max_size=14))
@example("' + 'a'")
@example("\\n' + 'a'")
def test_what_opens_no_further_literal_is_passed_over(text: str) -> None:
    data = text.encode()
    assert concatenation._may_be_next(data, 0) or concatenation._NEXT.match(data, 0) is None


@given(st.lists(st.binary(min_size=LEAST, max_size=11), max_size=40, unique=True), st.binary(max_size=60))
@example([b"abcdefgh", b"abcdefghi", b"bcdefghij"], b"xabcdefghijabcdefgh")
@example([b"abcdefgh%03d" % n for n in range(17)], b"abcdefgh01abcdefgh016")
def test_known_values_are_the_leftmost_and_longest(values: list[bytes], data: bytes) -> None:
    data = b"".join((data, *values[::3], data, *values[:5]))
    expected, at = [], 0
    while at < len(data):
        longest = max((len(value) for value in values if data.startswith(value, at)), default=0)
        expected += [(at, at + longest)] * bool(longest)
        at += longest or 1
    assert list(KnownValues(values).places(data)) == expected


@pytest.mark.parametrize(
    ("behind", "is_taken"),
    [
        (" = <\1\1>\n", True),
        ('": "<\1\1>",', True),
        ("=<\1>", True),
        (" = <\1> 'x'", False),
        (" = '<\1>' + 'x'", False),
        (" = '<\1>x'", False),
        (" = \"<\1>'", False),
        (" = f(<\1>)", False),
        (" = x<\1>", False),
    ],
)
def test_a_value_was_taken_out_where_nothing_else_stands(behind: str, is_taken: bool) -> None:
    assert separators.was_taken(f"password{behind}".encode(), 8) is is_taken


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


FORMS = (
    value_heuristics._DUMMY,
    value_heuristics._FORMAT,
    value_heuristics._DOTTED,
    value_heuristics._FILE,
    value_heuristics._VERSION,
    value_heuristics._CHOSEN,
)


@given(LINES)
@example("a.Z09")
@example("password")
@example("0.9.0-Z")
def test_the_forms_of_a_value_are_those_that_match_all_of_it(text: str) -> None:
    value = text.encode()
    expected = sum(1 << bit for bit, form in enumerate(FORMS) if compiled(form).fullmatch(value) is not None)
    assert Forms(FORMS).of(value) == expected


@given(LINES)
@example('a: Z = ("a"')
@example("(a *) 'a'")
@example("&quot;a")
def test_no_literal_is_passed_over(text: str) -> None:
    value = text.encode()
    if named_values._QUOTED.match(value) is not None:
        assert named_values._may_open(value)


HEAD_NOT = compiled(rb"(?i)(?:^|[_.\-])(?:" + b"|".join(key_names._HEAD_NOT_TEXT.split()) + rb")[_.\-]?$")
HEADS = st.lists(
    st.sampled_from(["max", "Page", "number", "of", "number_of", "db", "_", "-", ".", "x"]), max_size=5
)


@given(HEADS.map("".join))
def test_the_word_before_a_name_is_the_last_of_its_head(head: str) -> None:
    assert key_names._is_not(head.encode()) == (HEAD_NOT.search(head.encode()) is not None)


TAKEN = st.text("abzAZ019+/_-=x(. \n", min_size=20, max_size=60)


@given(TAKEN)
@example("dG9rZW49YWJj0123456789abcZ")
def test_a_token_that_is_taken_is_judged_as_any_other_unless_it_is_only_random(text: str) -> None:
    data = text.encode()

    def holds_secret(plain: bytes) -> bool:
        return True

    for start, end in entropy.candidates(read(data)):
        token = data[start:end]
        if token.translate(None, b"0123456789abcdefABCDEF-"):
            whole = entropy._kind(data, start, end, token, holds_secret, entropy._Files(data))
            taken = entropy._kind_of_taken(data, start, end, token, holds_secret)
            assert taken == (None if whole == "high-entropy" else whole)
