"""Reference of failure codes and their texts, for `docs/failures.md` and the admin's list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from criticizer.resilience.failures import TABLE, Component, ErrorClass, kind_of
from reviews.api.error_catalog import API_TABLE
from reviews.reviewers import coverage_texts as texts
from reviews.reviewers.base import Stopped
from reviews.reviewers.model import LimitReached, TokenLimit
from reviews.states import JobStatus

_LIMITS = "64 KiB (an agent's result: 512 KiB, SARIF: 1 MiB, a code host's webhook: 5 MiB)"
_ENDED_EARLY = (JobStatus.CANCELLED, JobStatus.SUPERSEDED)
_SHOWN = (3, 10)  # parts reviewed and parts in all, in the example texts


@dataclass(frozen=True, slots=True)
class Section:
    """One table: a cell for each column, the code first."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def sections() -> list[Section]:
    """Return the tables in the order of the page."""
    return [
        Section(
            "Failures of a review",
            "Retried failures are repeated within the budget of their stage (5 attempts, full-jitter backoff"
            " from 1 s, at most 60 s, Retry-After honoured up to 5 minutes); all others become a dead letter"
            " at once.",
            ("code", "class", "severity", "retried", "the user reads", "the operator does"),
            [
                (
                    kind.code,
                    kind.error_class.value,
                    kind.severity.value,
                    "yes" if kind.retryable else "no",
                    kind.message,
                    kind.hint,
                )
                for kind in sorted(TABLE.values(), key=lambda kind: kind.code)
            ],
        ),
        Section(
            "Error answers of the API",
            'Every error body is {"error", "code", "message", "details"}. Answers worth repeating carry'
            " Retry-After.",
            ("code", "error", "status", "repeat", "the client reads"),
            [
                (
                    kind.code,
                    kind.error,
                    str(kind.status),
                    "yes" if kind.status in {429, 503} else "no",
                    kind.message.format(limit=_LIMITS),
                )
                for kind in sorted(API_TABLE, key=lambda kind: (kind.code, kind.status))
            ],
        ),
        Section(
            "Notes about an incomplete review",
            "A coverage reason explains one file; a banner above the review applies to the whole review. The"
            " numbers are examples.",
            ("code", "class", "where", "the user reads"),
            list(_review_texts()),
        ),
    ]


def _review_texts() -> Iterator[Sequence[str]]:
    """Yield the texts of the coverage and the banners, each with the code of its cause."""
    unavailable, incomplete = ErrorClass.UPSTREAM_UNAVAILABLE, ErrorClass.SCHEMA_INVALID
    missing, late = ErrorClass.CONFIG_INVALID, ErrorClass.DEADLINE_EXCEEDED
    model, internal = Component.REVIEWER, Component.INTERNAL
    for error_class, component, where, text in (
        *((error_class, model, "coverage", text) for error_class, text in texts.NOT_REVIEWED.items()),
        (unavailable, model, "coverage", texts.UNAVAILABLE),
        (unavailable, model, "banner", texts.degraded_banner("It cannot be reached.", *_SHOWN)),
        (missing, Component.CONFIGURATION, "banner", texts.NO_MODEL_BANNER),
        (incomplete, model, "banner", texts.incomplete_banner(*_SHOWN)),
        (late, internal, "coverage", texts.UNREACHED[Stopped.ENDED]),
        (late, internal, "coverage", texts.UNREACHED[Stopped.TIMED_OUT]),
        (late, internal, "banner", texts.stopped_banner(JobStatus.TIMED_OUT, *_SHOWN)),
    ):
        yield kind_of(error_class, component).code, error_class.value, where, text
    # These are not failures: they have no code.
    over = Stopped.OVER_LIMIT
    limits = (LimitReached(limit, 1_000_000) for limit in TokenLimit)
    for cause, where, text in (
        *((ended, "banner", texts.stopped_banner(ended, *_SHOWN)) for ended in _ENDED_EARLY),
        ("agent", "coverage", texts.AGENT_TIMEOUT),
        ("agent", "coverage", texts.AGENT_FAILED),
        ("agent", "coverage", texts.AGENT_LIMIT),
        ("agent", "coverage", texts.AGENT_TOO_LARGE),
        ("agent", "banner", texts.NO_AGENT_BANNER),
        ("agent", "banner", texts.agents_banner(3, 10, 7, is_lost=False)),
        (over, "coverage", texts.UNREACHED[over]),
        *((over, "banner", texts.limit_banner(reached, *_SHOWN)) for reached in limits),
    ):
        yield "", str(cause), where, text


def markdown() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for section in sections():
        parts.append(f"\n## {section.title}\n\n{section.note}\n\n")
        parts.append(_line(section.columns) + _line(["---"] * len(section.columns)))
        for code, name, *rest in section.rows:
            parts.append(_line([f"`{code}`" if code else "", f"`{name}`", *rest]))
    return "".join(parts)


_HEAD = """# Failures

Generated by `python manage.py failure_table` from the tables in the code; do not edit.

Codes have the form `CRITICIZER_E<component><number>`: 1 source, 2 reviewer, 3 database, 4 internal,
5 configuration, 6 queue, 7 provider.
"""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |\n"
