"""The counts of verified documents, and of sections that a model was asked about, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from criticizer import texts
from criticizer.wording import plural_count
from reviews.drift.claims import Verdict

_SHOWN = 5  # places of one reason
_BEYOND = (
    ("not_indexed", "Documents were not verified against the code of {} because of a syntax error.", "file"),
    ("unread", "Not read: {}.", "document"),
    ("unfetched", "Not read from the depot: {}.", "file revision"),
    ("left_out", "Left out beyond the limits: {}.", "statement"),
    ("cut", "Read in part: {}.", "long sentence"),
    ("unreported", "Refuted and not shown: {}.", "claim"),
)


class Unsure(StrEnum):
    """Reason why the verdict on a section is uncertain."""

    SAID = ""  # by the model
    PARSE_ERROR = "llm_parse_error"
    NO_EVIDENCE = "no_evidence"
    TOKEN_LIMIT = "token_limit_exceeded"  # noqa: S105  no password
    UNAVAILABLE = "model_unavailable"
    OVER_LIMIT = "over_limit"
    NO_TIME = "no_time"
    AGENT_TIMEOUT = "agent_timeout"
    STEERED = "addresses_reviewer"
    NOT_CLEAN = "not_clean"


TEXTS: Mapping[str, texts.Text] = {
    Unsure.PARSE_ERROR: texts.SECTION_UNUSABLE,
    Unsure.NO_EVIDENCE: texts.SECTION_NO_EVIDENCE,
    Unsure.TOKEN_LIMIT: texts.SECTION_TOO_LONG,
    Unsure.UNAVAILABLE: texts.SECTION_NO_MODEL,
    Unsure.OVER_LIMIT: texts.SECTION_OVER_LIMIT,
    Unsure.NO_TIME: texts.SECTION_NO_TIME,
    Unsure.AGENT_TIMEOUT: texts.SECTION_AGENT_TIMEOUT,
    Unsure.STEERED: texts.SECTION_STEERS,
    Unsure.NOT_CLEAN: texts.SECTION_NOT_CLEAN,
}


def counted(sections: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many sections have each verdict."""
    return {
        name: sum(one["verdict"] == name for one in sections) for name in ("drifted", "holds", "uncertain")
    }


def meaning_summary(found: Mapping[str, Any]) -> str:
    """Return the verdicts on the sections in a few sentences.

    "" where there is nothing to say.
    """
    sections = found.get("sections", ())
    parts = []
    if sections:
        counts = counted(sections)
        parts.append(texts.BY_MEANING.of(sections=plural_count(len(sections), "section"), **counts))
    for reason, text in TEXTS.items():
        places = [f"{one['document']}, line {one['line']}" for one in sections if one["reason"] == reason]
        if places:
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            parts.append(text.of(places=f"{'; '.join(places[:_SHOWN])}{more}"))
    return " ".join(filter(None, [*parts, found.get("note", "")]))


def summary(counts: Mapping[str, Any]) -> str:
    """Return the counts of one or several comparisons in one line.

    "" where there is nothing to say.
    """
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
