"""A review as plain text for 80 columns, with the same content as the HTML.

Prose is wrapped; code, paths and addresses are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from criticizer.wording import plural_count
from notifications.rendering.prose import blocks
from notifications.rendering.report import Report, ReportFinding, link_to
from notifications.rendering.selection import Shown
from notifications.rendering.summary import Summary, in_words, sentence, status_in_words, tags
from notifications.rendering.wrapping import indented, width, wrapped

_INDENT = "  "


def plain_text(report: Report, summary: Summary, shown: Shown, unsubscribe_url: str) -> str:
    """Return the message's text, ending in one line end."""
    parts = [
        *_head(report, summary),
        *_since(report, summary),
        *_findings(report, shown),
        *_earlier(report, shown),
        *_coverage(report, summary, shown),
        foot(unsubscribe_url),
    ]
    return "\n\n".join(parts) + "\n"


def _head(report: Report, summary: Summary) -> Iterator[str]:
    yield "\n".join(filter(None, [wrapped(summary.headline), wrapped(report.title) if report.title else ""]))
    yield facts(report.changelist_id, report.review_version, report.author, report.url)
    if report.banner:
        yield note(report.banner)
    if report.configuration_lines:
        yield "\n".join(wrapped(line) for line in report.configuration_lines)


def _since(report: Report, summary: Summary) -> Iterator[str]:
    if report.since is not None:
        yield title(f"SINCE VERSION {report.since.version}") + f"\n{wrapped(sentence(summary.changes))}"


def _earlier(report: Report, shown: Shown) -> Iterator[str]:
    """Yield what became of earlier findings.

    They come after the open ones, which ask for something.
    """
    lines = [_item(entry.finding, f"{status_in_words(entry.status)}: ") for entry in shown.earlier]
    if shown.earlier_left_out:
        lines.append(f"- … and {shown.earlier_left_out} more, not listed here")
    if report.since is not None and lines:
        yield title(f"NO LONGER REPORTED SINCE VERSION {report.since.version}")
        yield "\n".join(lines)


def _item(finding: ReportFinding, what: str = "") -> str:
    named = wrapped(f"- {what}{finding.title} ({finding.severity})", _INDENT, first="")
    noted = "".join(f"\n{wrapped(note, _INDENT)}" for note in finding.notes)
    return f"{named}\n{_INDENT}{finding.place}{noted}"


def _findings(report: Report, shown: Shown) -> Iterator[str]:
    for severity, findings in shown.groups:
        yield title(f"{severity.upper()} ({shown.counts[severity]})")
        for finding in findings:
            yield from _finding(report, finding)
    if shown.brief:
        yield title("MORE FINDINGS")
        yield "\n".join(_item(finding) for finding in shown.brief)
    if shown.left_out:
        more = plural_count(sum(shown.left_out.values()), "more finding")
        whole = f"\nAll of them: {report.url}" if report.url else ""
        yield wrapped(f"… and {more} ({in_words(shown.left_out)}), not listed here") + whole


def _finding(report: Report, finding: ReportFinding) -> Iterator[str]:
    lines = [wrapped(finding.title), finding.place, wrapped(" · ".join(tags(finding)))]
    link = link_to(report, finding) if finding.anchor else ""
    verdict = f"Your verdict? {finding.verdict_url}" if finding.verdict_url else ""
    yield "\n".join(line for line in (*lines, *map(wrapped, finding.notes), link, verdict) if line)
    yield from _text(finding.message, _INDENT)
    if finding.rule_note:
        yield wrapped(finding.rule_note, _INDENT)
    if finding.excerpt:
        yield "\n".join(_code_lines(finding))
    if finding.suggestion:
        yield "\n".join([f"{_INDENT}Suggestion:", *_text(finding.suggestion, _INDENT * 2)])


def _text(text: str, indent: str) -> Iterable[str]:
    for block in blocks(text):
        yield indented(block.text, indent + _INDENT) if block.is_code else wrapped(block.text, indent)


def _code_lines(finding: ReportFinding) -> Iterator[str]:
    numbers = ["" if row.line is None else str(row.line) for row in finding.excerpt]
    digits = max(map(len, numbers))
    for row, number in zip(finding.excerpt, numbers, strict=True):
        mark = ">" if finding.covers(row) else " "
        yield f"{_INDENT}{mark} {number:>{digits}} {row.kind or ' '} {row.text}".rstrip()


def _coverage(report: Report, summary: Summary, shown: Shown) -> Iterator[str]:
    lines = [title("WHAT WAS READ"), wrapped(sentence(str(summary.files)))]
    for file in shown.files:
        reason = f": {file.reason}" if file.reason else ""
        lines.append(f"- {file.file}\n{wrapped(f'{file.status}{reason}', _INDENT)}")
    if shown.files_left_out:
        lines.append(f"- … and {plural_count(shown.files_left_out, 'more file')}, not listed here")
    yield "\n".join(lines)
    if report.facts:
        yield "\n".join(wrapped(line) for line in report.facts)


def foot(unsubscribe_url: str) -> str:
    """Return the last lines of a message."""
    lines = ["-- ", "Sent by Criticizer."]
    if unsubscribe_url:
        lines.append(f"Unsubscribe: {unsubscribe_url}")
    return "\n".join(lines)


def title(text: str) -> str:
    """Return a heading of one line or more, underlined."""
    return f"{text}\n{'-' * max(map(width, text.splitlines()))}"


def facts(changelist_id: str, version: int, author: str, url: str) -> str:
    """Return the lines that identify a review."""
    lines = [f"Changelist  {changelist_id}, version {version}"]
    if author:
        lines.append(f"Author      {author}")
    if url:
        lines.append(f"Review      {url}")
    return "\n".join(lines)


def note(banner: str) -> str:
    return wrapped(f"NOTE: {banner}", "      ", first="")
