"""A review as JSON: the body of webhooks, and the source of chat and code-review messages."""

from __future__ import annotations

from dataclasses import asdict

from notifications.rendering.report import Report, ReportFinding, evidence_note, link_to
from notifications.rendering.summary import Summary, in_order

MAX_FINDINGS = 50
MAX_FILES = 200
MAX_EARLIER = 50


def payload_of(report: Report, summary: Summary) -> dict[str, object]:
    """Return the body in Standard Webhooks' form: type, timestamp, data."""
    shown, warnings = in_order(report.findings)[:MAX_FINDINGS], report.configuration_lines
    return {
        "type": "review.completed",
        "timestamp": report.reviewed_at.isoformat(),
        "data": {
            "changelist_id": report.changelist_id,
            "review_version": report.review_version,
            "title": report.title,
            "author": report.author,
            "url": report.url,
            "headline": summary.headline,
            "banner": report.banner,
            "partial": report.is_partial,
            "status_lines": list(report.facts),
            "severities": dict(summary.severities),
            "findings": [_finding(report, finding) for finding in shown],
            "findings_total": len(report.findings),
            "findings_left_out": len(report.findings) - len(shown),
            "findings_dismissed": summary.dismissed,
            "since": _since(report, summary),
            "coverage": [
                {"file": file.file, "status": file.status, "reason": file.reason}
                for file in report.coverage[:MAX_FILES]
            ],
            "coverage_left_out": max(len(report.coverage) - MAX_FILES, 0),
            "files_total": summary.files.total,
            "files_read": summary.files.read,
            "files_read_in_part": summary.files.partial,
            **({"configuration": {"warnings": list(warnings)}} if warnings else {}),
            **({"pull_request": asdict(report.pull_request)} if report.pull_request else {}),
            **({"closed": list(report.closed)} if report.closed else {}),
        },
    }


def _finding(report: Report, finding: ReportFinding) -> dict[str, object]:
    return {
        "file": finding.file,
        "line": finding.line,
        "end_line": finding.end_line,
        "side": finding.side,
        "severity": finding.severity,
        "category": finding.category,
        "title": finding.title,
        "message": finding.message,
        "suggestion": finding.suggestion,
        "source": finding.source,
        "confidence": finding.confidence,
        "demoted": finding.demoted,
        "evidence_note": evidence_note(finding.demoted, finding.confidence),
        "url": link_to(report, finding),
        "is_new": finding.is_new,
        "verdict": finding.verdict,
        "verdict_note": finding.verdict_note,
        "identity": finding.identity,
        "rule": finding.rule,
        "rule_note": finding.rule_note,
        **({"in_diff": asdict(finding.in_diff)} if finding.in_diff else {}),
    }


def _since(report: Report, summary: Summary) -> dict[str, object] | None:
    """Return the changes since the previous version, None where nothing was compared."""
    since = report.since
    if since is None:
        return None
    return {
        "version": since.version,
        "summary": summary.changes,
        "new": sum(finding.is_new is True for finding in report.findings),
        "still_there": sum(finding.is_new is False for finding in report.findings),
        "earlier": [
            {
                "fate": entry.status.value,
                "file": entry.finding.file,
                "line": entry.finding.line,
                "severity": entry.finding.severity,
                "title": entry.finding.title,
                "identity": entry.finding.identity,
            }
            for entry in since.earlier[:MAX_EARLIER]
        ],
        "earlier_left_out": max(len(since.earlier) - MAX_EARLIER, 0),
    }
