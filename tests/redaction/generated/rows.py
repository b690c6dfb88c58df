# ruff: noqa: E501 - a table is read by its rows
"""Rows of the measure: a text of the grammar, mutated, and its secrets, which must go."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tests.redaction.generated import names, values
from tests.redaction.generated.grammar import Draw, Drawing
from tests.redaction.generated.innocent_texts import INNOCENT
from tests.redaction.generated.places import PLACES
from tests.redaction.generated.secret_texts import TEXTS

INNOCENT_SHARE = 0.3


class Row(NamedTuple):
    """A text and its secrets; a text without any must stay as it is.

    `template` is the one that it was drawn from.
    """

    group: str
    template: str
    mutation: str
    text: str
    secrets: tuple[str, ...]


def _characters(length: int, alphabet: str) -> Draw:
    return lambda source: values.drawn(source, length, alphabet)


def _base64(size: int) -> Draw:
    return lambda source: base64.b64encode(source.randbytes(size)).decode()


def _user_and_password(source: random.Random) -> str:
    return f"bob:{values.generated(source)}"


def _password(source: random.Random) -> str:
    return values.chosen(source) if source.random() < 0.6 else values.generated(source)


def _literal(source: random.Random) -> str:
    form = source.random()
    if form < 0.08:
        return values.plain(source)
    return (
        values.chosen(source)
        if form < 0.55
        else values.generated(source)
        if form < 0.8
        else values.special(source)
    )


_WORDS = "alpha bravo delta echo foxtrot golf hotel juliet lima mike oscar papa romeo sierra tango".split()  # noqa: SIM905
_SEED_WORDS = "abandon ability crisp dolphin eager fabric gather humble injury jungle kitten lottery mandate neutral oxygen pumpkin".split()  # noqa: SIM905


def _capital(draw: Draw) -> Draw:
    return lambda source: (lambda name: name[:1].upper() + name[1:])(draw(source))


_SYMBOLS: Mapping[str, Draw] = {
    **dict.fromkeys(("pw", "pw2"), _password),
    **dict.fromkeys(("sp", "sp2"), _literal),
    **dict.fromkeys(("tok", "tok2"), values.token),
    "vendor": values.vendor,
    "userpw": _user_and_password,
    "confline": lambda s: f"{names.password(s)}={values.generated(s)}",
    "confjson": lambda s: json.dumps({"user": "bob", "password": values.generated(s)}),
    "renovate": lambda s: json.dumps({"createdInVer": f"37.{s.randint(1, 99)}.1", "updatedInVer": "37.8.1", "targetBranch": "main"}),
    "mnemonic": lambda s: " ".join(s.choice(_SEED_WORDS) for _ in range(12)),
    "pn": names.password, "Pn": _capital(names.password), "PN": names.upper, "pk": names.password_key,
    "tn": names.token, "TN": names.upper_token, "tk": names.token_key,
    "n": lambda s: str(s.randint(2, 9999)),
    "word": lambda s: s.choice(_WORDS), "Word": lambda s: s.choice(_WORDS).capitalize(),
    **dict.fromkeys(("uuid", "uuid2", "uuid3"), values.uuid),
    **{f"h{n}": _characters(n, values.HEX) for n in (6, 7, 8, 12, 16, 32, 36, 40, 64)},
    "h8b": _characters(8, values.HEX), "h32b": _characters(32, values.HEX), "H40": _characters(40, values.HEX.upper()),
    **{f"A{n}": _characters(n, values.ALNUM) for n in (8, 16, 20, 22, 24, 32, 33, 40, 43, 48, 53, 64, 68, 80, 86)},
    **{name: _characters(n, values.UPPER + values.DIGITS) for name, n in (("u8", 8), ("u8b", 8), ("u16", 16), ("u34", 34))},
    "l16": _characters(16, values.LOWER + values.DIGITS), "l32": _characters(32, values.LOWER + values.DIGITS),
    "l7x": _characters(12, values.LOWER + values.DIGITS),
    "d16": _characters(16, values.DIGITS), "d16b": _characters(16, values.DIGITS),
    "b32": _characters(32, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
    **{name: _base64(n) for name, n in (("b28", 20), ("b40", 30), ("b44", 32), ("b64", 48), ("b88", 64), ("b300", 225))},
}  # fmt: skip


def _diff(sign: str) -> Callable[[str, random.Random], str]:
    def mutated(text: str, source: random.Random) -> str:
        lines = [sign + line for line in text.split("\n")]
        return (
            f"--- a/src/f.txt\n+++ b/src/f.txt\n@@ -1,{len(lines) + 1} +1,{len(lines) + 1} @@\n unrelated\n"
            + "\n".join(lines)
            + "\n"
        )

    return mutated


def _between(text: str, source: random.Random) -> str:
    before = source.choice(("import os\n\n", "# settings\n", "x = 1\n", "## Notes\n\n", "{\n"))
    return before + text + source.choice(("\n\nend\n", "\n", "\n# eof", "\nx = 2"))


# A mutation leaves the meaning as it is: who reads the text reads the same secret.
_MUTATIONS: Mapping[str, Callable[[str, random.Random], str]] = {
    "": lambda text, _: text,
    "added": _diff("+"),
    "removed": _diff("-"),
    "context": _diff(" "),
    "indented": lambda text, s: "\n".join(s.choice(("    ",)) + line for line in text.split("\n")),
    "crlf": lambda text, _: text.replace("\n", "\r\n") + "\r\n",
    "between": _between,
    "trailing": lambda text, _: (
        text + ("  # see below" if "\n" not in text and not text.endswith((";", ",")) else "")
    ),
}
_OF_ONE_PLACE = ("diff --git",)


def rows(seed: int, count: int) -> Iterator[Row]:
    """Yield `count` rows; the same seed draws the same ones."""
    source = random.Random(seed)
    for _ in range(count):
        table = INNOCENT if source.random() < INNOCENT_SHARE else {**TEXTS, **PLACES}
        group = source.choice(sorted(table))
        template = source.choice(table[group])
        yield drawn(group, template, source)


def rows_of_classes(seed: int, count: int) -> Iterator[Row]:
    """Yield `count` rows of each class of secrets, so that a share of each says something."""
    source = random.Random(seed)
    for group, templates in sorted({**TEXTS, **PLACES}.items()):
        for _ in range(count):
            yield drawn(group, source.choice(templates), source)


def drawn(group: str, template: str, source: random.Random, mutation: str | None = None) -> Row:
    """Return one row of a template."""
    drawing = Drawing(_SYMBOLS, source)
    text = drawing.expand(template)
    if mutation is None:
        mutation = source.choice(sorted(_MUTATIONS))
    if (
        text.startswith(_OF_ONE_PLACE)
        or "\x1b" in text
        or (mutation == "trailing" and group not in ("code", "configuration"))
    ):
        mutation = ""
    return Row(
        group, template, mutation, _MUTATIONS[mutation](text, source), tuple(dict.fromkeys(drawing.secrets))
    )
