"""Validation of SARIF files against the standard's schema (tests/schemas/README.md)."""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft4Validator

_SCHEMA = json.loads(Path(__file__).with_name("schemas").joinpath("sarif-2.1.0.json").read_text())


def wrong_in(sarif: str | bytes) -> list[str]:
    """Return where a file breaks the schema, and how."""
    return [
        f"{error.json_path}: {error.message}"
        for error in Draft4Validator(_SCHEMA).iter_errors(json.loads(sarif))
    ]
