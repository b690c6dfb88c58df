"""The file of issuers: every row is complete, its pattern compiles, and it is used (G195)."""

from __future__ import annotations

import datetime
import random
import zlib

import pytest

from criticizer.redaction import redact
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import issuer_tokens
from criticizer.redaction.rules.token_matching import has_checksum
from tests.redaction.fakes import ALNUM

ROWS = issuer_tokens.load()
WANTED = {"kind", "marks", "form", "source", "date"}
OPTIONAL = {"needs", "inside", "back", "length", "checksum"}
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize("row", ROWS["tokens"], ids=lambda row: f"{row['kind']} {row['marks'][0]}")
def test_a_row_of_a_token_is_whole(row: dict) -> None:
    assert WANTED <= set(row) <= WANTED | OPTIONAL
    assert set(row.get("needs", ())) <= issuer_tokens.NEEDS
    assert row.get("checksum", "crc32") in issuer_tokens.CHECKSUMS
    assert row["marks"]
    assert all(2 <= len(mark) <= 24 for mark in row["marks"])
    assert compiled(row["form"].encode()).groups <= 1
    assert row.get("length", 99) > max(map(len, row["marks"]))


@pytest.mark.parametrize("row", [*ROWS["tokens"], *ROWS["names"]], ids=lambda row: str(row)[:40])
def test_every_row_has_a_source_and_a_date(row: dict) -> None:
    assert row["source"] in ROWS["sources"]
    assert datetime.date(2026, 1, 1) <= row["date"] <= datetime.date.today()  # noqa: DTZ011


def test_no_source_and_no_mark_is_given_twice_or_in_vain() -> None:
    used = {row["source"] for row in (*ROWS["tokens"], *ROWS["names"])}
    assert used == set(ROWS["sources"])
    assert all(address.startswith("https://") for address in ROWS["sources"].values())
    assert len({row["name"] for row in ROWS["names"]}) == len(ROWS["names"])
    pairs = [(mark, row["form"]) for row in ROWS["tokens"] for mark in row["marks"]]
    assert len(pairs) == len(set(pairs))


def test_a_name_of_an_issuer_makes_a_generated_value_a_secret() -> None:
    value = "".join(random.Random(5).choices("0123456789abcdef", k=40))
    for name in issuer_tokens.NAMES:
        assert value not in redact(f"{name.decode()}: {value}\n").text


def test_a_whole_token_need_not_look_random_and_a_short_one_has_to() -> None:
    whole = "np" + "m_" + "Abcdefghijklmnopqrstuvwxyzabcd"
    assert whole not in redact(f"id {whole} end").text
    assert redact(f"id {whole[:24]} end").text == f"id {whole[:24]} end"


def test_a_token_with_the_right_checksum_is_taken_whatever_it_reads_like() -> None:
    body = "your_here".replace("_", "0") + "".join(random.Random(6).choices(ALNUM, k=21))
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = BASE62[digit] + digits
    assert has_checksum((body + digits).encode())
    assert not has_checksum((body + digits[::-1] + "0").encode())
    token = "ghp" + "_" + body + digits
    assert token not in redact(f"x = {token!r}").text
