"""Secrets at the edges of a part, a line, a hunk and a truncated text."""

from __future__ import annotations

import pytest

from criticizer.redaction import Redactor, redact
from tests.redaction.fakes import begin, diff, draw, end, password, pem_lines

TOKEN = "ghp_" + draw(36)
P = password()
BODY = pem_lines(8)
PEM = [begin(), *BODY, end()]


@pytest.mark.parametrize(
    "before", ["", "\n", " ", "x\n", "\u00e4 ", "<REDACTED:password:1>", "\t", "\r\n", "("]
)
@pytest.mark.parametrize(
    "after", ["", "\n", " ", "\nx", " \u00e4", "<REDACTED:password:1>", "\t", "\r\n", ")"]
)
def test_secret_at_every_edge_of_a_part_is_taken_out(before: str, after: str) -> None:
    for secret, text in ((TOKEN, TOKEN), (P, f'password="{P}"'), (P, f"password={P}")):
        assert secret not in redact(before + text + after).text


@pytest.mark.parametrize("first", range(len(PEM)))
@pytest.mark.parametrize("prefix", ["", "+", "-", " "])
def test_key_block_cut_anywhere_leaves_no_whole_line(first: int, prefix: str) -> None:
    for last in range(first + 1, len(PEM) + 1):
        lines = PEM[first:last]
        body = [line for line in lines if line in BODY]
        has_marker = len(body) < len(lines)
        if not has_marker and len(body) < 3:
            continue  # one or two lines of base64 cannot be recognised as a key
        text = diff(*(prefix + line for line in lines)) if prefix else "\n".join(lines)
        result = redact(text).text
        assert [line for line in body if line in result] == []


@pytest.mark.parametrize("cut", range(1, len(BODY)))
@pytest.mark.parametrize("sign", ["+", "-", " "])
def test_key_block_over_two_hunks_is_followed(cut: int, sign: str) -> None:
    first = diff(*(sign + line for line in (begin(), *BODY[:cut])))
    text = first + f"@@ -40,{9 - cut} +40,{9 - cut} @@ def x():\n"
    text += "".join(f"{sign}{line}\n" for line in (*BODY[cut:], end()))
    result = redact(text).text
    assert [line for line in BODY if line in result] == []


@pytest.mark.parametrize("at", range(8, 40, 4))
def test_token_cut_short_is_taken_out_wherever_the_cut_is(at: int) -> None:
    for token in (TOKEN, "glpat-" + draw(34), "sk-ant-" + draw(33), "hvs." + draw(36), "npm_" + draw(36)):
        if at < 24:
            continue
        assert token[:at] not in redact(f'x = "{token[:at]}\n...[truncated]').text


@pytest.mark.parametrize("at", range(1, 40, 3))
def test_token_over_the_edge_of_two_lines_is_taken_out_where_it_is_joined_again(at: int) -> None:
    first, second = TOKEN[:at], TOKEN[at:]
    if min(len(first), len(second)) < 14:
        return
    for glue in ('" \\\n    "', '" +\n    "', '"\n    "'):
        result = redact(f'token = "{first}{glue}{second}"').text
        assert first not in result
        assert second not in result


def test_parts_are_redacted_before_they_are_cut_into_chunks() -> None:
    text = "\n".join(f"line {n}" for n in range(50)) + f'\npassword = "{P}"\n' + "x\n" * 50
    whole = Redactor().redact(text)
    for first in range(1, whole.text.count("\n"), 7):
        assert P not in whole.lines(first, first + 9).text
    for size in range(0, len(whole.text), 97):
        assert P not in whole.truncated(size).text
