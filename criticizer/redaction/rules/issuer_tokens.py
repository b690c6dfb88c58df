"""Forms of tokens and names of issuers, compiled from `issuers.toml` (G195)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from criticizer.redaction.patterns import compiled

RULESET: Final = "12"  # raise with every change of what is removed
NEEDS: Final = frozenset(("digit", "digits", "not-hex", "random", "case", "jose"))
CHECKSUMS: Final = frozenset(("crc32",))


@dataclass(frozen=True, slots=True)
class TokenRule:
    """One mark of a row, compiled.

    The token may begin `back` bytes before the mark. A token of `length` bytes is complete and need not look
    random, as shorter ones must.
    """

    kind: str
    mark: bytes
    pattern: Any
    back: int
    inside: bool
    needs: frozenset[str]
    length: float
    checksum: str


def load() -> dict[str, Any]:
    """Return the rows of the file: `tokens`, `names` and `sources`."""
    return tomllib.loads(files(__package__).joinpath("issuers.toml").read_text("utf-8"))


def _rules(row: Mapping[str, Any]) -> list[TokenRule]:
    pattern = compiled(row["form"].encode())
    needs = frozenset(row.get("needs", ()))
    rest = (
        row.get("back", 0),
        row.get("inside", False),
        needs,
        row.get("length", math.inf),
        row.get("checksum", ""),
    )
    return [TokenRule(row["kind"], mark.encode(), pattern, *rest) for mark in row["marks"]]


_ROWS: Final = load()
TOKEN_RULES: Final = tuple(rule for row in _ROWS["tokens"] for rule in _rules(row))
NAMES: Final = tuple(row["name"].encode() for row in _ROWS["names"])
_OTHER_KINDS: Final = """
airtable-token password secret api-key authorization cookie uri-password connection-string
smtp-credential cli-password private-key key-material certificate perforce-ticket twilio-key
mailgun-key mailchimp-key nuget-key discord-token vault-token high-entropy own-secret email
internal-host internal-ip key-bytes encoded-secret zhipu-key issuer-key
"""
KINDS: Final = frozenset(rule.kind for rule in TOKEN_RULES) | frozenset(_OTHER_KINDS.split())
