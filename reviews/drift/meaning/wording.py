"""What became of the sections that a model was asked about, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from criticizer.wording import plural_count

SEMANTIC_OFF = (
    "Semantic search is disabled because the embedding model configuration changed."
    " Run a full scan to re-index."
)
SEMANTIC_AWAY = "Semantic search was left out: the server of embeddings could not be used."
_SHOWN = 5  # places of one reason


class Unsure(StrEnum):
    """Why the verdict on a section is uncertain."""

    SAID = ""  # by the model
    PARSE_ERROR = "llm_parse_error"
    NO_EVIDENCE = "no_evidence"
    TOKEN_LIMIT = "token_limit_exceeded"  # noqa: S105  no password
    UNAVAILABLE = "model_unavailable"
    OVER_LIMIT = "over_limit"
    NO_TIME = "no_time"
    STEERED = "addresses_reviewer"
    NOT_CLEAN = "not_clean"


TEXTS: Mapping[str, str] = {
    Unsure.PARSE_ERROR: "Could not verify this section (analysis returned invalid output)",
    Unsure.NO_EVIDENCE: "Insufficient evidence to verify this section",
    Unsure.TOKEN_LIMIT: "Analysis of this section exceeded model context limits. Consider splitting it",
    Unsure.UNAVAILABLE: "Not verified, because the language model could not be used",
    Unsure.OVER_LIMIT: "Not verified, because the limit of tokens was reached",
    Unsure.NO_TIME: "Not verified, because the review ran out of time",
    Unsure.STEERED: "Not verified, because the text addresses an automated reviewer",
    Unsure.NOT_CLEAN: "Not verified, because the text could not be cleaned of secrets with certainty",
}


def counted(sections: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many sections have each verdict."""
    return {
        name: sum(one["verdict"] == name for one in sections) for name in ("drifted", "holds", "uncertain")
    }


def meaning_summary(found: Mapping[str, Any]) -> str:
    """Return what became of the sections in a few sentences; "" where there is nothing to say."""
    sections = found.get("sections", ())
    parts = []
    if sections:
        counts = counted(sections)
        parts.append(
            f"{plural_count(len(sections), 'section')} of documents compared by meaning:"
            f" {counts['drifted']} may be out of date, {counts['holds']} hold,"
            f" {counts['uncertain']} uncertain."
        )
    for reason, text in TEXTS.items():
        places = [f"{one['document']}, line {one['line']}" for one in sections if one["reason"] == reason]
        if places:
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            parts.append(f"{text}: {'; '.join(places[:_SHOWN])}{more}.")
    return " ".join(filter(None, [*parts, found.get("note", "")]))
