"""Files of findings for other tools (G431).

SARIF, JSON, reviewdog's rdjson, GitLab's code quality, CSV.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import F, QuerySet
from django.http import HttpResponse

from criticizer.admin_site.csv_export import to_csv
from criticizer.inert_links import break_markdown, break_markdown_links
from notifications.rendering.report import evidence_note, rule_note
from reviews.models import FindingRow
from reviews.models.rules import text_of_cited
from reviews.reviewers.base import FindingSeverity, Side
from reviews.sources.paths import decode_path
from reviews.sources.registry import depot_prefix
from reviews.states import DISMISSALS, FindingEventKind
from reviews.verdicts import of_findings

MAX_EXPORTED = 10_000

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SARIF_LEVELS = {FindingSeverity.MEDIUM: "warning", FindingSeverity.LOW: "note"}
_RDJSON_LEVELS = {FindingSeverity.MEDIUM: "WARNING", FindingSeverity.LOW: "INFO"}
_GITLAB_LEVELS = {
    FindingSeverity.CRITICAL: "critical",
    FindingSeverity.HIGH: "major",
    FindingSeverity.MEDIUM: "minor",
    FindingSeverity.LOW: "info",
}
_COLUMNS = (
    "file", "line", "end_line", "side", "severity", "category", "title", "message", "suggestion", "source",
    "confidence", "status", "verdict", "verdict_by", "verdict_at",
    "rule",
)  # fmt: skip


def download(job_id: int, form: str, rows: QuerySet[FindingRow]) -> HttpResponse:
    """Return the findings `rows` of a review as a file in one of FORMS, at most MAX_EXPORTED."""
    made, suffix, content_type = FORMS[form]
    facts = {**of_findings(), "changelist_id": F("job__changelist_id"), "rule_text": text_of_cited()}
    found = rows.annotate(**facts).defer("excerpt").order_by("pk")
    content = made(list(found[:MAX_EXPORTED]))
    headers = {"Content-Disposition": f'attachment; filename="review-{job_id}.{suffix}"'}
    return HttpResponse(content, content_type=content_type, headers=headers)


def path_in_repository(file: str, changelist_id: str) -> str:
    """Return a file's name in its repository: without the depot's name, wildcards as they are."""
    prefix = depot_prefix(changelist_id) or ""
    if prefix and file.startswith(prefix):
        return decode_path(file.removeprefix(prefix))
    return decode_path(file.removeprefix("//").partition("/")[2] or file)


def _path(row: FindingRow) -> str:
    return path_in_repository(row.file, row.changelist_id)  # type: ignore[attr-defined]


def _text(row: FindingRow) -> str:
    note = evidence_note(row.demoted, row.confidence)
    suggestion = f"Suggestion: {row.suggestion}" if row.suggestion else ""
    parts = [row.title, note, row.message, _rule_note(row), suggestion]
    return "\n\n".join(filter(None, parts))


def _rule_note(row: FindingRow) -> str:
    return rule_note(row.rule, row.rule_text)  # type: ignore[attr-defined]


def _line(row: FindingRow) -> int | None:
    """Return the finding's line on the new side: other tools know no other."""
    return row.line if row.side == Side.NEW else None


def _sarif(rows: Sequence[FindingRow]) -> str:
    categories = sorted({row.category for row in rows})
    driver = {"name": "Criticizer", "rules": [{"id": category} for category in categories]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(row, categories.index(row.category)) for row in rows],
    }
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False)


def _result(row: FindingRow, rule: int) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(_path(row))}}
    if line := _line(row):
        place["region"] = {"startLine": line, "endLine": max(row.end_line or line, line)}
    return {
        "ruleId": row.category,
        "ruleIndex": rule,
        "level": _SARIF_LEVELS.get(FindingSeverity(row.severity), "error"),
        "message": {"text": break_markdown_links(_text(row))},  # SARIF has links in plain text
        "locations": [{"physicalLocation": place}] if row.file.startswith("//") else [],
        "suppressions": _suppressions(row),
        "partialFingerprints": {"criticizer/v1": str(row.identity)},
        "properties": {
            "severity": row.severity,
            "source": row.source,
            "status": row.status,
            **({"rule": row.rule} if row.rule else {}),
        },
    }


def _suppressions(row: FindingRow) -> list[dict[str, str]]:
    """Return why a dismissed finding is to be ignored, as SARIF says it."""
    verdict: str | None = getattr(row, "verdict", None)
    if verdict not in DISMISSALS:
        return []
    why = FindingEventKind(verdict).label
    return [{"kind": "external", "status": "accepted", "justification": f"{why}: {row.verdict_by}"}]  # type: ignore[attr-defined]


def _json(rows: Sequence[FindingRow]) -> str:
    names = ("id", *_COLUMNS, "evidence", "identity")
    findings = [{name: getattr(row, name) for name in names} | {"rule_note": _rule_note(row)} for row in rows]
    return json.dumps({"findings": findings}, cls=DjangoJSONEncoder, ensure_ascii=False)


def _rdjson(rows: Sequence[FindingRow]) -> str:
    diagnostics = []
    for row in rows:
        location: dict[str, Any] = {"path": _path(row)}
        if line := _line(row):
            location["range"] = {"start": {"line": line}, "end": {"line": max(row.end_line or line, line)}}
        level = _RDJSON_LEVELS.get(FindingSeverity(row.severity), "ERROR")
        diagnostic = {"message": break_markdown(_text(row)), "location": location, "severity": level}
        diagnostics.append({**diagnostic, "code": {"value": row.category}, **_suggestions(row)})
    return json.dumps({"source": {"name": "Criticizer"}, "diagnostics": diagnostics}, ensure_ascii=False)


def _suggestions(row: FindingRow) -> dict[str, Any]:
    """Return the proven edit of a finding, as a range of whole lines.

    A range without columns is one of whole lines, the last included.
    """
    edit = row.proven_edit
    if edit is None:
        return {}
    place = {"start": {"line": edit.start + edit.first}, "end": {"line": edit.start + edit.end - 1}}
    return {"suggestions": [{"range": place, "text": "\n".join(edit.new)}]}


def _gitlab(rows: Sequence[FindingRow]) -> str:
    entries = [
        {
            "description": break_markdown(row.title),
            "content": {"body": break_markdown(_text(row))},
            "check_name": row.category,
            "fingerprint": row.identity.hex,
            "severity": _GITLAB_LEVELS[FindingSeverity(row.severity)],
            "location": {"path": _path(row), "lines": {"begin": _line(row) or 1}},
        }
        for row in rows
    ]
    return json.dumps(entries, ensure_ascii=False)


def _csv(rows: Sequence[FindingRow]) -> str:
    lines = ([*(getattr(row, name) for name in _COLUMNS), _rule_note(row)] for row in rows)
    return to_csv((*_COLUMNS, "rule_note"), lines)


# Name in the address -> how it is made, the file's suffix, its content type.
FORMS: dict[str, tuple[Callable[[Sequence[FindingRow]], str], str, str]] = {
    "json": (_json, "json", "application/json"),
    "sarif": (_sarif, "sarif", "application/sarif+json"),
    "rdjson": (_rdjson, "rdjson.json", "application/json"),
    "gitlab": (_gitlab, "gitlab.json", "application/json"),
    "csv": (_csv, "csv", "text/csv; charset=utf-8"),
}
