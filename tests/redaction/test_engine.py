"""Numbers, propagation, own secrets, policy, and what is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from criticizer.redaction import (
    RedactionBlocked,
    Redactor,
    engine,
    find_secrets,
    known_secrets,
    redact,
    register_own_secrets,
)
from criticizer.redaction.input.document import Document
from criticizer.redaction.rules.value_heuristics import judge
from criticizer.redaction.scan import Find
from tests.redaction.fakes import diff, draw, password

P = password()
TOKEN = "ghp_" + draw(36)


@pytest.fixture
def own_value(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(known_secrets, "_registered", known_secrets.OwnSecrets())
    value = "Tr0ub4dor & friends/" + draw(9)
    register_own_secrets([value, "", "abc"])
    return value


def test_same_secret_reads_the_same_and_a_rotated_one_does_not() -> None:
    text = diff(f'-password = "{P}"', f'+password = "{password(8)}"', f' # was "{P}"')
    result = redact(text).text
    assert '-password = "<REDACTED:password:1>"' in result
    assert '+password = "<REDACTED:password:2>"' in result
    assert ' # was "<REDACTED:password:1>"' in result


def test_value_found_in_one_part_is_taken_out_of_all_parts() -> None:
    parts = [f"the first mentions {P} without a name", f'password = "{P}"', f"the last: x{P}y"]
    first, second, third = Redactor().redact_all(parts)
    assert first.text == "the first mentions <REDACTED:password:1> without a name"
    assert second.text == 'password = "<REDACTED:password:1>"'
    assert third.text == "the last: x<REDACTED:password:1>y"


def test_later_part_of_one_request_knows_earlier_values_and_another_request_does_not() -> None:
    redactor = Redactor()
    redactor.redact(f'password = "{P}"')
    assert P not in redactor.redact(f"again {P}").text
    assert redact(f"again {P}").text == f"again {P}"


def test_weak_word_is_not_removed_everywhere() -> None:
    assert redact('password = "dragonfly"\na dragonfly flew').text.endswith("a dragonfly flew")


def test_counts_name_kinds_and_never_values() -> None:
    result = redact(f'password = "{P}"\n{TOKEN}\n{TOKEN}')
    assert dict(result.counts) == {"password": 1, "github-token": 2}
    assert P not in repr(result)


def test_own_secret_is_taken_out_in_every_spelling(own_value: str) -> None:
    wrapped = base64.b64encode(f"bob:{own_value}:x".encode()).decode()
    text = f"{own_value}|{quote(own_value, safe='')}|{own_value.encode().hex()}|{wrapped}|x{own_value}x"
    result = redact(text).text
    for form in (own_value, quote(own_value, safe=""), own_value.encode().hex(), wrapped):
        assert form not in result
    assert "<REDACTED:own-secret:1>" in result


def test_own_secret_over_several_lines_is_taken_out_line_by_line(own_value: str) -> None:
    register_own_secrets(["first line of it\nsecond line of it"])
    assert redact("a\nfirst line of it\nb\nsecond line of it").text.count("own-secret") == 2


def test_short_own_secret_is_removed_only_as_a_word(own_value: str) -> None:
    register_own_secrets(["mail1"])
    assert redact("login mail1, gmail12").text == "login <REDACTED:own-secret:1>, gmail12"


@pytest.mark.parametrize(
    "forged",
    [
        "<REDACTED:nonsense:1>",
        "<REDACTED:password:0>",
        "<REDACTED:password:x>",
        "<redacted:password:1>",
        "<REDACTED:",
        "<REDACTED:password:1",
    ],
)
def test_what_only_looks_like_a_placeholder_is_rewritten(forged: str) -> None:
    result = redact(f"a {forged} b").text
    assert forged not in result
    assert "<REDACTED-LITERAL>" in result
    assert redact(result).text == result


def test_placeholder_in_the_input_never_passes_as_the_name_of_a_value_we_took() -> None:
    result = redact(f'# see <REDACTED:password:3>\npassword = "{P}"').text
    assert result == '# see <REDACTED:password:3>\npassword = "<REDACTED:password:4>"'


def test_secret_hidden_beside_a_placeholder_is_found() -> None:
    assert P not in redact(f'password = "{P}<REDACTED:password:1>"').text
    assert TOKEN not in redact(f"<REDACTED:password:1>{TOKEN}<REDACTED:password:1>").text


def test_secret_in_path_hunk_tail_and_message_is_taken_out() -> None:
    text = f"commit message {TOKEN}\n" + diff("+x", path=f"{TOKEN}.txt").replace(
        "@@\n", f'@@ API_KEY = "{draw(32)}"\n'
    )
    result = redact(text).text
    assert TOKEN not in result
    assert draw(32) not in result
    assert "@@ -1,0 +1,1 @@ API_KEY" in result


@pytest.mark.parametrize("glue", [' \\\n+        "', '" +\n+   "', '"\n+  . "', '" + "'])
def test_concatenated_literal_is_followed(glue: str) -> None:
    first, second = TOKEN[:20], TOKEN[20:]
    text = diff(*f'+token = "{first}{glue if glue[0] == chr(34) else chr(34) + glue}{second}"'.split("\n"))
    result = redact(text).text
    assert first not in result
    assert second not in result


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assert parse('password = \"", "\"', 3) == {'a': run(x)}"),
        ("cases = ('password = \"", "\"', 'user = \"b\"')"),
        ("f(\"token = '", '\'"); os.system("id")'),
        ("x = '''token = \"", "\"'''; run(y)"),
        ('run = `password = "', '"`; run(y)'),
        ('PASSWORD="', '"`id`'),
    ],
)
def test_a_quote_behind_a_literal_that_closes_another_hides_nothing(before: str, after: str) -> None:
    assert redact(f"{before}Ab3!xQ9z{after}").text.endswith(f":1>{after}")


def test_literals_of_a_shell_without_anything_between_are_one_value() -> None:
    assert "Kd7w2" not in redact('it="don\'t"; TOKEN="Ab3xQ9z"\'Kd7w2LpM\'').text


def test_every_value_of_a_kubernetes_secret_is_taken_out() -> None:
    secret = "kind: Secret\nmetadata:\n  name: web\ndata:\n  user: Ym9iYm9i\n  note: bm90ZXM=\n---\n"
    text = secret + "kind: ConfigMap\ndata:\n  a: YW5uYW5u"
    result = redact(text).text.split("\n")
    assert result[4] == "  user: <REDACTED:secret:1>"
    assert result[5] == "  note: <REDACTED:secret:2>"
    assert result[-1] == "  a: YW5uYW5u"


POLICY = {
    "emails": True,
    "internal_domains": ["corp.internal", "*.lan"],
    "internal_nets": ["10.0.0.0/8", "fd00::/8"],
}


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("AUTHOR = 'Bob <bob+dev@mail.example.co.uk>'", "bob+dev"),
        ("mailto:info@example.org?subject=x", "info@example.org"),
        ("user@xn--80ak6aa92e.com", "xn--"),
        ("m\u00fcller@b\u00fccher.example", "m\u00fcller"),
        ("curl http://Build7.corp.internal:8080/x", "Build7"),
        ("printer.lan", "printer"),
        ('hosts = ["10.7.30.41"]', "10.7"),
        ("bind [fd00:3456::9]", "3456"),
        ("::ffff:10.1.2.3", "10.1"),
    ],
)
def test_policy_takes_out_people_hosts_and_networks(text: str, gone: str) -> None:
    assert gone not in redact(text, POLICY).text
    assert redact(text).text == text


def test_policy_leaves_what_it_does_not_name() -> None:
    text = "git@github.com:o/r 8.8.8.8 notcorp.internal.example.com mycorp.internals 12:30:45 version 10.2.3"
    assert redact(text, POLICY).text == text


@pytest.mark.parametrize(
    "policy",
    [
        {"email": True},
        {"emails": "yes"},
        {"internal_domains": "corp"},
        {"internal_domains": ["a b"]},
        {"internal_nets": ["10.0.0.0/99"]},
        {"internal_nets": [1]},
        {"internal_domains": [""]},
    ],
)
def test_policy_that_is_not_understood_blocks(policy: dict[str, object]) -> None:
    with pytest.raises(RedactionBlocked) as caught:
        redact("x", policy)
    assert caught.value.reason_code == "bad_policy"


@pytest.mark.parametrize(
    ("text", "reason"), [("a\0b", "nul_byte"), ("a\ud800b", "undecodable"), ("x" * (9 << 20), "too_large")]
)
def test_doubtful_input_blocks_without_carrying_it(text: str, reason: str) -> None:
    with pytest.raises(RedactionBlocked) as caught:
        redact(text)
    assert caught.value.reason_code == reason
    assert str(caught.value) == reason


@pytest.mark.parametrize("stage", ["scan", "read", "merge", "seal", "encode"])
def test_failing_stage_blocks_and_quotes_nothing(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ValueError(P)

    monkeypatch.setattr(f"criticizer.redaction.engine.{stage}", fail)
    with pytest.raises(RedactionBlocked) as caught:
        redact(f'password = "{P}"')
    assert caught.value.reason_code == "internal_error"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_engine_that_does_not_settle_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("criticizer.redaction.engine.scan", lambda *a: [Find(0, 3, "password")])
    with pytest.raises(RedactionBlocked) as caught:
        redact("abcdef")
    assert caught.value.reason_code == "unstable"


def test_only_lines_around_what_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is that of files redacted one by one; no line far from a change is read twice."""
    first, later = password(1), password(2)
    around = [" plain"] * 9
    files = [
        diff(*(f"+line {n} of words" for n in range(400)), path="long.txt"),
        diff(*around, f'+password = "{first}"', *around, path="a.py") + "@@ -9,1 +9,1 @@\n untouched\n",
        diff(*around, "+nothing", f'+connect("{first}")', *around, path="b.py"),
        diff(*around, f'-token = "{later}"', *around, path="c.py"),
        diff("+the end", path="d.py"),
    ]
    apart = "".join(part.text for part in Redactor().redact_all(files))
    read: list[bytes] = []
    scan = engine.scan

    def counted(document: Document, *rest: Any) -> list[Find]:
        read.append(b"".join(document.raw[start:end] for start, end in document.unread))
        return scan(document, *rest)

    monkeypatch.setattr(engine, "scan", counted)
    assert redact("".join(files)).text == apart
    assert first not in apart
    assert later not in apart
    [everything, again] = read
    assert everything == "".join(files).encode()
    assert not any(words in again for words in (b"untouched", b"line 300", b"the end", b"diff --git"))
    assert again.count(b"<REDACTED:") == 3


@pytest.mark.parametrize("work", [redact, find_secrets])
def test_values_that_were_judged_are_forgotten(work: Callable[[str], object]) -> None:
    work(f'password = "{password(1)}"')
    assert judge.cache_info().currsize == 0  # type: ignore[attr-defined]


def test_find_secrets_says_where_and_what_kind() -> None:
    text = diff(" # \u00e4\u00f6\u00fc", f'+password = "{P}"', f"+{TOKEN}")
    found = find_secrets(text)
    assert [(span.kind, text[span.start : span.end], span.line) for span in found] == [
        ("password", P, 7),
        ("github-token", TOKEN, 8),
    ]
    assert P not in repr(found)
    assert find_secrets("nothing here") == []


@pytest.mark.parametrize("value", ["jXXxuEgkkdndqP22", "rICfusqDynoOK808", "OXIUsdWGKJYNHKZK64tb"])
def test_a_drawn_value_is_removed_from_prose_though_its_letters_stand_as_in_a_name(value: str) -> None:
    said, _ = Redactor().redact_all([f"Also {value}.", f'db_password = "{value}"\n'])
    assert value not in said.text


@pytest.mark.parametrize(
    "name", ["MyAppDatabase1", "HTTPServerConnection2", "UserProfileService12", "NodeJSVersion18"]
)
def test_a_name_in_camel_case_stays_where_no_quotes_are_around_it(name: str) -> None:
    said, _ = Redactor().redact_all([f"Also {name}.", f'db_password = "{name}"\n'])
    assert name in said.text
