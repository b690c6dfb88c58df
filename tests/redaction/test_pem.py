"""PEM blocks, whole and in pieces."""

from __future__ import annotations

import pytest

from criticizer.redaction import redact
from tests.redaction.fakes import begin, diff, end, pem_lines

BODY = pem_lines()


def survivors(text: str, body: list[str] = BODY) -> list[str]:
    result = redact(text).text
    assert result.count("\n") == text.count("\n")
    return [line for line in body if line[:20] in result or line[-12:] in result]


@pytest.mark.parametrize(
    "label",
    [
        "RSA PRIVATE KEY",
        "PRIVATE KEY",
        "EC PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
        "CERTIFICATE",
    ],
)
@pytest.mark.parametrize("prefix", ["", "+", "-", " "])
def test_body_goes_and_marker_lines_stay(label: str, prefix: str) -> None:
    lines = [begin(label), *BODY, end(label)]
    text = diff(*(prefix + line for line in lines)) if prefix else "\n".join(lines)
    assert survivors(text) == []
    assert begin(label) in redact(text).text
    assert end(label) in redact(text).text
    assert redact(text).text.count("<REDACTED:") == len(BODY)


SHAPES = {
    "headers": [begin(), "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,00", "", *BODY, end()],
    "indented": ["key: |", *("    " + line for line in (begin(), *BODY, end()))],
    "one line, escaped": ['"private_key": "' + "\\n".join([begin(), *BODY, end()]) + '\\n",'],
    "escaped twice": ['"{\\"k\\": \\"' + "\\\\n".join([begin(), *BODY, end()]) + '\\\\n\\"}"'],
    "concatenated": [
        f'KEY = ("{begin()}\\n"',
        *(f'       "{line}\\n"' for line in BODY),
        f'       "{end()}")',
    ],
    "concatenated with plus": [f'"{begin()}\\n" +', *(f'"{line}\\n" +' for line in BODY), f'"{end()}";'],
    "quoted list": [f"'{begin()}',", *(f"'{line}'," for line in BODY), f"'{end()}',"],
    "commented": [f"# {line}" for line in (begin(), *BODY, end())],
    "slashes": [f"// {line}" for line in (begin(), *BODY, end())],
    "carriage returns": [line + "\r" for line in (begin(), *BODY, end())],
    "in a trace": ["Traceback (most recent call last):", f"ValueError: bad key {begin()}", *BODY],
    "no end": [begin(), *BODY, "...[truncated]"],
    "no begin": [*BODY, end(), "x = 1"],
    "neither": ["x = 1", *BODY[:4], "y = 2"],
    "two in one file": [begin(), *BODY, end(), begin("CERTIFICATE"), *pem_lines(seed=8), end("CERTIFICATE")],
    "putty": ["PuTTY-User-Key-File-2: ssh-rsa", "Encryption: none", "Comment: x", "Private-Lines: 6", *BODY],
    "mail quote": [f"> {line}" for line in (begin(), *BODY, end())],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("prefix", ["", "+", "-"])
def test_body_goes_in_every_shape(shape: str, prefix: str) -> None:
    lines = SHAPES[shape]
    body = BODY[:4] if shape == "neither" else BODY
    assert survivors(diff(*(prefix + line for line in lines)) if prefix else "\n".join(lines), body) == []


def test_key_is_followed_into_the_next_hunk_and_not_into_the_next_file() -> None:
    first = diff(*(f"+{line}" for line in (begin(), *BODY[:3])))
    text = first + "@@ -200,4 +206,4 @@\n" + "".join(f"+{line}\n" for line in (*BODY[3:], end()))
    assert survivors(text) == []
    other = first + diff("+" + "plainword" * 4, path="b.txt")
    assert "plainword" * 4 in redact(other).text


def test_interleaved_old_and_new_key_are_separated() -> None:
    new = pem_lines(seed=9)
    pairs = [line for a, b in zip(BODY, new, strict=True) for line in (f"-{a}", f"+{b}")]
    text = diff(f" {begin()}", *pairs, f" {end()}")
    assert survivors(text, BODY + new) == []
    assert {"<REDACTED:private-key:1>", "<REDACTED:private-key:2>"} <= {
        line[1:] for line in redact(text).text.split("\n") if "REDACTED" in line
    }


def test_lines_of_one_key_carry_one_number_and_a_second_key_another() -> None:
    text = "\n".join([begin(), *BODY, end(), begin(), *pem_lines(seed=3), end()])
    result = redact(text).text
    assert result.count("<REDACTED:private-key:1>") == len(BODY)
    assert result.count("<REDACTED:private-key:2>") == len(BODY)


def test_certificates_keep_their_bodies_where_the_policy_says_so() -> None:
    text = "\n".join([begin("CERTIFICATE"), *BODY, end("CERTIFICATE")])
    assert redact(text, {"public_pem": False}).counts.get("certificate") is None
    assert redact(text).counts["certificate"] == len(BODY)


def test_text_about_keys_is_left_alone() -> None:
    for text in (
        f'if line.startswith("{begin()}"):',
        "# -----BEGIN is the marker",
        f"{begin()}\n\ndef parse(line):\n    return 1",
    ):
        assert redact(text).text == text


def test_binary_patch_is_not_taken_for_a_key() -> None:
    patch = "GIT binary patch\nliteral 120\n" + "".join(f"z{line}\n" for line in pem_lines(5))
    text = "diff --git a/x.png b/x.png\nindex 1..2 100644\n" + patch
    assert redact(text).text == text
