"""CSV documents whose cells no spreadsheet evaluates as a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

# Spreadsheets take these for the start of a formula, also after blanks and a byte-order mark.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def escape_cell(value: object) -> str:
    """Return a value as text that spreadsheets show and never evaluate.

    Numbers stay numbers. Text that could be a formula gets an apostrophe in front, as
    spreadsheets themselves mark plain text; control characters become blanks.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raw = "" if value is None else str(value)
    text = "".join(character if character.isprintable() else " " for character in raw)
    # In the raw text for the controls of _FORMULA; in what is written for those that became blanks.
    is_formula = raw.lstrip(" \ufeff\u200b\u00a0").startswith(_FORMULA) or text.lstrip().startswith(_FORMULA)
    return f"'{text}" if is_formula else text


def to_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a CSV document (RFC 4180), every cell through `escape_cell` and quoted."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow([escape_cell(name) for name in header])
    writer.writerows([escape_cell(value) for value in row] for row in rows)
    return out.getvalue()
