"""What became of the sections that a model was asked about, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from criticizer import texts
from criticizer.wording import plural_count

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
    """Return what became of the sections in a few sentences; "" where there is nothing to say."""
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
