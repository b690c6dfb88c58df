# ruff: noqa: E501 - tables are read by their rows
"""Hostile input: the work is bounded by the size of the text, or the text is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from criticizer.redaction import RedactionBlocked, guard, redact, scan
from criticizer.redaction.input import concatenation, document, logical_lines
from criticizer.redaction.input.document import read
from criticizer.redaction.known_secrets import OwnSecrets
from criticizer.redaction.policy import parse
from criticizer.redaction.work import Work
from tests.redaction.fakes import begin, end, pem_lines

SIZE = 25_000
LONG_SIZE = 200_000
POLICY = {"emails": True, "internal_domains": ["corp.internal"], "internal_nets": ["10.0.0.0/8", "fd00::/8"]}
UNITS = [
    "a", "A1", " ", "\n", '"', "\\", "-", "&", ":", "1.", "a:", "a@", "a@b.", "1|", "key=", "password=", 'password "', "token token ",
    "://", "://a:b@", "eyJ.", ".eyJaaaaaaaaaaaa", " sk-", " AKIA", "curl -u a:b ", "curl ", "p4 ", "cookie: a=b;", "authorization:",
    "%3A%2F%2F", "&quot;", "\\u0041", "a\u200b", "a\u0430", "\x1b[0m", "<REDACTED:", "<REDACTED:password:1>", "hooks.slack.com/",
    "- name: DB_PASSWORD\n", "kind: Secret\ndata:\n", "@@ -1 +1 @@\n+a\n", "--- a\n+++ b\n@@ -1 +1 @@\n", "GIT binary patch\n",
    begin() + "\n", begin(), end() + "\n", pem_lines()[0] + "\n", pem_lines()[0] + "\n" + end() + "\n", "0123456789abcdef",
    'x = "ghp_abcdefgh12345678" + ', 'x = "ghp_abcdefgh12345678" \\\n', "password='\\'", "machine a login b password ",
    "password = (\n", "password:\n", 'password = "a" +\n', '"a" +\n', 'token = "a" "b" ', "password: |\n  a\n", "tool --password \\\n", "curl \\\n",
    "<password>\n", "login(\n", 'x = "ghp_abcdefgh12345678"\n"b"\n', "@@ -1 +1 @@\n+password =\n", "password=\\\n",
    "A1b2C3d4E5f6G7h8I9j0", "aaa8Q~", "key_", "xoxp-xoxe-", "live_?code=passw", "\u5bc6\u7801", "htpasswd1|", "secret 0 ", "echo a | sudo -s ",
]  # fmt: skip


def every_second(first: int) -> list[Any]:
    """Return the units: `make test` tries every second one."""
    return [
        pytest.param(unit, id=ascii(unit)[:24], marks=() if number % 2 == first else pytest.mark.long)
        for number, unit in enumerate(UNITS)
    ]


@pytest.mark.parametrize("size", [SIZE, pytest.param(LONG_SIZE, marks=pytest.mark.long)])
@pytest.mark.parametrize("unit", every_second(0))
def test_flood_is_worked_off_or_refused(unit: str, size: int) -> None:
    text = (unit * (size // len(unit) + 1))[:size]
    try:
        result = redact(text, POLICY)
    except RedactionBlocked as blocked:
        if blocked.reason_code != "budget":
            raise
        return
    assert result.text.count("\n") == text.count("\n")
    assert guard(result) == result.text


@pytest.mark.parametrize("unit", every_second(1))
def test_work_grows_no_faster_than_the_text(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[int] = []
    spend = Work.spend

    def counting(self: Work, amount: int) -> None:
        spent[-1] += amount
        self.left += amount  # count, do not refuse
        spend(self, amount)

    monkeypatch.setattr(Work, "spend", counting)
    for size in (8_000, 16_000):
        spent.append(0)
        text = (unit * (size // len(unit) + 1))[:size]
        scan.scan(read(text.encode()), parse(POLICY), OwnSecrets())
    assert spent[1] <= 2.5 * spent[0] + 200


# For each way in which lines are put together a text of nothing else; "+" and "-" make it a diff.
JOINED = {
    "literal below its name": ' password = (\n+    "a"\n-    "b"\n',
    "word below its name": "+password:\n-  x\n",
    "block": "password: |\n  a\n",
    "element": "<password>\n  a\n",
    "value of a pair": '"password": {\n  "value": 1\n',
    "name of a pair": " - name: PASSWORD\n-x\n+x\n",
    "call": '+login(\n-  "a",\n',
    "strings on a line": 'password = "a" + "b" + ',
    "strings on many lines": ' "ghp_abcdefgh12345678" +\n',
    "string that is not closed": 'token = "a\\\n',
    "command": "curl --password \\\n",
    "many hunks": "@@ -1 +1 @@\n+password = (\n",
}
LARGE = 1 << 15
LONG_LARGE = 1 << 18


def _steps(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often the line rules looked at something while the text was scanned."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal count
            count += 1
            return function(*args)

        return call

    def spend(self: Work, amount: int) -> None:
        nonlocal count
        count += amount

    with monkeypatch.context() as patch:
        patch.setattr(Work, "spend", spend)
        patch.setattr(document, "_side_of", counted(document._side_of))
        patch.setattr(logical_lines, "_step", counted(logical_lines._step))
        patch.setattr(concatenation, "may_follow", counted(concatenation.may_follow))
        scan.scan(read(text.encode()), parse({}), OwnSecrets())
    return count


@pytest.mark.parametrize("size", [LARGE, pytest.param(LONG_LARGE, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", JOINED)
def test_lines_are_put_together_in_work_that_grows_with_the_text(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: work that grew with the square of the text would be 64 times as much."""
    unit = JOINED[name]
    head = "@@ -1 +1 @@\n" if "\n" in unit and unit[0] in " +-" else ""
    large, small = (head + unit * (length // len(unit)) for length in (size, size // 8))
    assert _steps(large, monkeypatch) <= 8.5 * _steps(small, monkeypatch)


def test_dense_ordinary_text_stays_within_the_budget() -> None:
    line = '{"key": "a1", "token": null, "url": "http://example.com/a", "password": "", "auth": false},\n'
    text = line * (LONG_SIZE // len(line))
    assert redact(text).text == text


@pytest.mark.parametrize(
    ("head", "tail"),
    [("We changed it, ", "the password to velvet41"), ("smtp_sasl_password_maps = ", "static:bob:velvet!41")],
)
def test_what_stands_before_a_word_is_read_in_its_window_only(head: str, tail: str) -> None:
    """A long line took the square of its length when each word was read from the beginning."""
    assert "velvet" not in redact(f"{head}{tail}").text
    assert "velvet" in redact(f"{head}{'x, ' * 100}{tail}").text
