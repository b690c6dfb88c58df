"""Breaks the links in a report's texts for mail, except our own (guarantee G138).

Committers choose titles, names, paths and code; mail programs make links of what looks like one. The payload
of webhooks keeps the texts as they are: programs read it.
"""

from __future__ import annotations

from dataclasses import replace

from criticizer.inert_links import break_addresses, break_links
from notifications.rendering.report import EarlierFinding, Report, ReportFile, ReportFinding


def inert(report: Report) -> Report:
    """Return the report with broken links in every text but its own URL."""
    since = report.since
    return replace(
        report,
        title=break_links(report.title),
        author=break_links(report.author),
        banner=break_links(report.banner),
        findings=tuple(map(inert_finding, report.findings)),
        coverage=tuple(
            ReportFile(break_links(file.file), file.status, break_links(file.reason))
            for file in report.coverage
        ),
        status_lines=tuple(map(break_links, report.status_lines)),
        configuration=tuple(replace(each, text=break_links(each.text)) for each in report.configuration),
        since=since
        and replace(
            since,
            earlier=tuple(EarlierFinding(inert_finding(old.finding), old.status) for old in since.earlier),
        ),
    )


def inert_finding(finding: ReportFinding) -> ReportFinding:
    """Return the finding with broken links, but for the prose that `prose.blocks` breaks."""
    return replace(
        finding,
        file=break_links(finding.file),
        title=break_links(finding.title),
        category=break_links(finding.category),
        source=break_links(finding.source),
        verdict_note=break_links(finding.verdict_note),
        rule=break_links(finding.rule),
        rule_note=break_links(finding.rule_note),
        excerpt=tuple(replace(row, text=break_addresses(row.text)) for row in finding.excerpt),
    )
