"""The counts of verified documents in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from criticizer import texts
from criticizer.wording import plural_count
from reviews.drift.claims import Verdict
from reviews.drift.meaning.wording import counted, meaning_summary

_BEYOND = (
    ("not_indexed", "Documents were not verified against the code of {} because of a syntax error.", "file"),
    ("unread", "Not read: {}.", "document"),
    ("unfetched", "Not read from the depot: {}.", "file revision"),
    ("left_out", "Left out beyond the limits: {}.", "statement"),
    ("cut", "Read in part: {}.", "long sentence"),
    ("unreported", "Refuted and not shown: {}.", "claim"),
)


def summary(counts: Mapping[str, Any]) -> str:
    """Return the counts of one or several comparisons in one line; "" where there is nothing to say."""
    total = sum(counts.get(verdict, 0) for verdict in Verdict)
    parts = [scan_note(counts)]
    if total:
        verdicts = (counts.get(verdict, 0) for verdict in Verdict)
        numbers = dict(zip(("holds", "refuted", "ambiguous", "unclear"), verdicts, strict=True))
        parts.append(texts.CLAIMS.of(claims=plural_count(total, "claim"), **numbers))
    elif counts.get("documents") and not _is_scan(counts):  # the note of a scan says it of all documents
        parts.append(texts.NO_CLAIMS.text)
    parts.append(left_out(counts))
    parts.append(meaning_summary(counts.get("meaning", {})))
    return " ".join(filter(None, parts))


def scan_note(counts: Mapping[str, Any]) -> str:
    """Return the note of a comparison, or why a scan has no document; "" where there is neither."""
    if note := str(counts.get("note", "")):
        return note
    is_empty = _is_scan(counts) and not counts.get("documents") and not left_out(counts)
    return texts.SCAN_NO_DOCUMENTS.text if is_empty else ""


def _is_scan(counts: Mapping[str, Any]) -> bool:
    return "unlisted" in counts


def left_out(counts: Mapping[str, Any]) -> str:
    """Return what was not read, left out or not shown in sentences; "" where that is nothing."""
    return " ".join(
        text.format(plural_count(n, noun)) for name, text, noun in _BEYOND if (n := counts.get(name, 0))
    )


def as_counted(counts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the counts as the API shows them; None where nothing was verified."""
    if not counts:
        return None
    names = (*Verdict, "unread", "left_out")
    sections = counts.get("meaning", {}).get("sections", ())
    return {
        "summary": summary(counts),
        **{str(name): counts.get(name, 0) for name in names},
        "by_meaning": {**counted(sections), "sections": list(sections)},
    }
