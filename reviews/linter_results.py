"""Results of a team's own linters: stored, placed on the change, given to the model (G433).

    SARIF ─► redacted ─► stored, once each ─► change known? ─► those on changed lines ─► page, API
                                                                              └─► the model, as known

A program posts them. A result waits until its change is fetched. The request that stores it looks for the
change after its commit, and so does the llm stage when it begins: one of the two sees both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Count, QuerySet

from criticizer.db import prepared as database
from criticizer.redaction import RedactedText, RedactionBlocked, Redactor, clean
from criticizer.resilience.failures import PermanentFailure
from reviews.artifacts import redactor
from reviews.finding_exports import path_in_repository
from reviews.models import Artifact, LinterResultRow, ReviewJob
from reviews.recipients.viewing_scopes import Scope, scope_of_key
from reviews.reviewers.checks.hidden_text import addresses_reviewer
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prepared_change_codec import FileDiffText
from reviews.reviewers.reported import Reported
from reviews.reviewers.sarif_import import MAX_MESSAGE_CHARS, MAX_RESULTS, TOO_MANY, LinterResult

log = structlog.get_logger(__name__)

Place = LinterResultRow.Place


@dataclass(frozen=True, slots=True)
class Accepted:
    """Counts of posted results: new rows, those that were there, and those over the limit."""

    added: int
    repeated: int
    over_limit: int


def accept(job_id: int, results: Sequence[LinterResult], actor: str, scope: Scope) -> Accepted:
    """Store results for a review, redacted, at most MAX_RESULTS in all; then place what waits.

    Idempotent: a result that is there already is not stored again.
    """
    rows = {row.digest: row for row in (_row(job_id, result, actor, scope) for result in results)}
    with transaction.atomic():
        # One at a time for each review, so that the limit holds.
        ReviewJob.objects.select_for_update(no_key=True).only("pk").get(pk=job_id)
        stored = set(LinterResultRow.objects.filter(job=job_id).values_list("digest", flat=True))
        new = [row for digest, row in rows.items() if digest not in stored]
        fit = new[: max(0, MAX_RESULTS - len(stored))]
        LinterResultRow.objects.bulk_create(fit)
    place_waiting(job_id)
    if len(new) > len(fit):
        log.warning("linter_results_left_out", job=job_id, why=TOO_MANY, results=len(new) - len(fit))
    return Accepted(len(fit), len(rows) - len(new), len(new) - len(fit))


def _row(job_id: int, result: LinterResult, actor: str, scope: Scope) -> LinterResultRow:
    # By what was sent: a secret that is registered later changes what redaction leaves.
    content = json.dumps(astuple(result), ensure_ascii=True)
    return LinterResultRow(
        job_id=job_id,
        digest=hashlib.sha256(content.encode()).hexdigest(),
        tool=clean(result.tool, 64),
        rule=clean(result.rule, 128),
        level=result.level,
        path=clean(result.path, 1024),
        line=result.line,
        end_line=result.end_line,
        message=clean(result.message, MAX_MESSAGE_CHARS),
        scope_prefixes=[] if scope.everything else [f"{prefix}..." for prefix in scope.prefixes],
        received_by=actor[:255],
    )


# Those that still wait: another process may have placed some.
_PLACE = """
UPDATE linter_results r SET place = found.place, file = found.file
  FROM unnest(%(ids)s::bigint[], %(places)s::text[], %(files)s::text[]) found(id, place, file)
 WHERE r.id = found.id AND r.place = %(waiting)s"""


def place_waiting(job_id: int) -> None:
    """Find the lines of results that wait, once the change can be read."""
    waiting = list(LinterResultRow.objects.filter(job=job_id, place=Place.WAITING))
    if (
        not waiting
        or not Artifact.objects.filter(job=job_id, kind=Artifact.Kind.REDACTED, deleted_at=None).exists()
    ):
        return
    changelist_id = ReviewJob.objects.values_list("changelist_id", flat=True).get(pk=job_id)
    try:
        diffs = redactor.diffs(job_id)
    except (PermanentFailure, ValueError) as error:
        log.warning("linter_results_without_places", job=job_id, why=str(error))
        return
    files = _Files(diffs, changelist_id)
    for row in waiting:
        row.file = files.of(row)
        row.place = Place.CHANGED if row.file else Place.ELSEWHERE
    places = {
        "ids": [row.pk for row in waiting],
        "places": [row.place for row in waiting],
        "files": [row.file for row in waiting],
        "waiting": Place.WAITING.value,
    }
    database.rows(_PLACE, places)


class _Files:
    """The files of a change by the ends of their paths, with their added lines."""

    def __init__(self, diffs: Iterable[FileDiffText], changelist_id: str) -> None:
        self._by_name: dict[str, list[tuple[list[str], str]]] = {}
        self._added: dict[str, set[int]] = {}
        for diff in diffs:
            parts = path_in_repository(diff.path, changelist_id).split("/")
            self._by_name.setdefault(parts[-1], []).append((parts, diff.path))
            self._added[diff.path] = {line.number for hunk in diff.hunks for line in hunk if line.kind == "+"}

    def of(self, row: LinterResultRow) -> str:
        """Return the changed file on whose added lines a result is; "" for none, or one of several."""
        reported = row.path.split("/")
        found = [path for parts, path in self._by_name.get(reported[-1], ()) if _same_end(reported, parts)]
        if len(found) != 1 or not scope_of_key(row.scope_prefixes).allows(found[0]):
            return ""
        is_changed = any(row.line <= number <= row.end_line for number in self._added[found[0]])
        return found[0] if is_changed else ""


def _same_end(reported: Sequence[str], own: Sequence[str]) -> bool:
    """Return whether one path ends with the whole of the other.

    A linter may run above the root of its tree or inside of it.
    """
    length = min(len(reported), len(own))
    return list(reported[-length:]) == list(own[-length:])


def given_to_model(job_id: int, prepared: Prepared, *, is_first: bool) -> Prepared:
    """Return a change with what linters reported on its lines.

    What comes after the first attempt with an answer stays out: other requests would be sent then, and
    paid for again. What speaks to a reviewing model is not sent.
    """
    place_waiting(job_id)
    rows = LinterResultRow.objects.filter(job=job_id, place=Place.CHANGED)
    if is_first:
        rows.filter(is_given=False).update(is_given=True)
    index_of = {path: index for index, path in enumerate(prepared.paths)}
    given = [row for row in rows.filter(is_given=True).order_by("file", "line", "pk") if row.file in index_of]
    given = [row for row in given if not addresses_reviewer(f"{row.tool} {row.rule} {row.message}")]
    if not given:
        return prepared
    try:
        texts = Redactor(settings.REDACTION_POLICY).redact_all(
            [text for row in given for text in (row.tool, row.rule or "-", row.message)]
        )
    except RedactionBlocked as blocked:
        log.warning("linter_results_not_given", job=job_id, why=blocked.reason_code)
        return prepared
    shown = zip(given, texts[::3], texts[1::3], texts[2::3], strict=True)
    return replace(
        prepared, reported=tuple(_reported(index_of[row.file], row, *parts) for row, *parts in shown)
    )


def _reported(
    file: int, row: LinterResultRow, tool: RedactedText, rule: RedactedText, message: RedactedText
) -> Reported:
    text = RedactedText.template(
        "line {line}: [{tool} {rule}] {message}", line=row.line, tool=tool, rule=rule, message=message
    )
    return Reported(file, row.line, row.end_line, row.rule, row.message, text)


def visible(job_id: int, scope: Scope) -> QuerySet[LinterResultRow]:
    """Return the results on changed lines in files of a scope."""
    return LinterResultRow.objects.filter(scope.files(), job=job_id, place=Place.CHANGED)


def not_shown(job_id: int) -> dict[str, int]:
    """Return how many results wait for the change, and how many are elsewhere."""
    rows = LinterResultRow.objects.filter(job=job_id).exclude(place=Place.CHANGED).order_by()
    return dict(rows.values_list("place").annotate(count=Count("pk")))
