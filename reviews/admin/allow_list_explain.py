"""Explain the allow-list's decision about one path, step by step (001, 9.1)."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from criticizer.resilience.failures import PermanentFailure
from reviews import config
from reviews.models import AllowListEntry
from reviews.sources.allowlist import AllowList, AllowListDecision
from reviews.sources.paths import canonical_case, encode_path, path_fault, printable


@dataclass(frozen=True, slots=True)
class ExplainStep:
    """One look at the path: what was asked, what it said, and the line that decided, if one did."""

    name: str
    decision: AllowListDecision
    row: AllowListEntry | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `ChangeFetcher` would decide about `path`.

    `compared` is the form in which it is compared, or empty when it is not canonical;
    `advice` says how a path that is not canonical might be meant.
    """

    path: str
    decision: AllowListDecision
    compared: str
    steps: tuple[ExplainStep, ...]
    advice: str = ""


def explain(path: str, *, case_sensitive: bool = True) -> Explanation:
    """Decide about `path` with the lines as they are now, and say what each list said."""
    fault = path_fault(path)
    ceiling = AllowList(settings.DEPOT_ALLOW_LIST).with_case(case_sensitive)
    try:
        decision = config.allow_list().with_case(case_sensitive).decide(path)
    except PermanentFailure as failure:
        # A stored line that is not valid denies everything: so does the fetcher.
        return Explanation(printable(path), AllowListDecision(allowed=False, reason=failure.detail), "", ())
    if fault is not None:
        return Explanation(printable(path), decision, "", (), _advice(path))
    steps = [ExplainStep("The ceiling (DEPOT_ALLOW_LIST)", ceiling.decide(path))]
    rows = list(AllowListEntry.objects.order_by("position", "id"))
    if rows:
        said = _rows_alone(rows, case_sensitive).decide(path)
        steps.append(ExplainStep("The lines of the console", said, _row_of(rows, said)))
    compared = canonical_case(path, case_sensitive=case_sensitive)
    return Explanation(printable(path), decision, printable(compared), tuple(steps))


def _rows_alone(rows: list[AllowListEntry], case_sensitive: bool) -> AllowList:
    # Without the ceiling; lines that only exclude leave the rest to it, so everything comes first.
    lines = [_text(row) for row in rows]
    if all(row.kind == AllowListEntry.Kind.EXCLUDE for row in rows):
        lines = [*settings.DEPOT_ALLOW_LIST, *lines]
    return AllowList(lines, case_sensitive)


def _row_of(rows: list[AllowListEntry], said: AllowListDecision) -> AllowListEntry | None:
    return next((row for row in reversed(rows) if _text(row) == said.line), None)


def _text(row: AllowListEntry) -> str:
    return ("-" if row.kind == AllowListEntry.Kind.EXCLUDE else "") + row.pattern


def _advice(path: str) -> str:
    """Return how the path would be written if its characters were meant as they stand."""
    written = encode_path(path.strip())
    if path_fault(written) is None:
        return f"If the name really holds these characters, its depot path is {printable(written)}."
    return ""
