"""Reads a review's payload, for the layout of chat, code-review and digest messages.

The payload is the webhook's body (`notifications.rendering.payload`). It is stored JSON, so nothing in it
is trusted: texts are bounded again, and none of them is markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from notifications.providers.base import Message
from notifications.rendering.report import (
    MAX_PATH,
    MAX_RULE_NOTE,
    MAX_TEXT,
    DiffPlace,
    ReportFinding,
    line,
    short_name,
)

MAX_UNREAD = 20
_URL = re.compile(r"[!-~]{1,2000}")


@dataclass(frozen=True, slots=True)
class ReviewPayload:
    """A review as its payload has it.

    `findings`: each with its link. `findings_total` counts those left out too. `status_lines` begin with
    the changes since the previous version. `unread`: `file: status, reason` of files not read completely.
    `head_sha`: the commit of a pull request that was reviewed; `is_partial`: by an API key that may read a
    part of its files only.
    """

    changelist_id: str = ""
    version: int = 1
    title: str = ""
    author: str = ""
    url: str = ""
    headline: str = ""
    banner: str = ""
    status_lines: tuple[str, ...] = ()
    severities: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[tuple[ReportFinding, str], ...] = ()
    findings_total: int = 0
    findings_dismissed: int = 0
    files_total: int = 0
    files_read: int = 0
    unread: tuple[str, ...] = ()
    repository_id: int = 0  # of a pull request
    head_sha: str = ""
    is_partial: bool = False
    closed: tuple[str, ...] = ()  # identities of findings whose comments at lines are to be closed

    @property
    def name(self) -> str:
        return short_name(self.changelist_id)

    @property
    def heading(self) -> str:
        return self.title or f"Review of {self.name}"

    @property
    def counts(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in self.severities.items()) or "no findings"


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def linkable(url: str) -> str:
    """Return the URL if it may become a link, else ""."""
    is_link = urlsplit(url).scheme in {"http", "https"} and _URL.fullmatch(url)
    return url if is_link else ""


def not_read(files: Sequence[str], layout: Callable[[str], str]) -> str:
    """Return the list of files that were not read completely, as Markdown: the first MAX_UNREAD."""
    lines = [f"- {layout(file)}" for file in files[:MAX_UNREAD]]
    if len(files) > MAX_UNREAD:
        lines.append(f"- and {len(files) - MAX_UNREAD} more files")
    return "\n".join(["Not read completely:", "", *lines])


def review_payload(message: Message) -> ReviewPayload | None:
    """Return the review a message is about; None where it is about something else."""
    data = message.payload.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("findings"), list):
        return None
    findings = tuple((_finding(found), _text(found, "url", MAX_TEXT)) for found in _dicts(data["findings"]))
    counts, pull = _dict(data, "severities"), _dict(data, "pull_request")
    return ReviewPayload(
        changelist_id=_text(data, "changelist_id"),
        version=_number(data, "review_version") or 1,
        title=_text(data, "title"),
        author=_text(data, "author"),
        url=_text(data, "url", MAX_TEXT),
        headline=_text(data, "headline") or message.subject,
        banner=_text(data, "banner", 512),
        status_lines=(
            *(line(text, MAX_TEXT) for text in _texts(_dict(data, "configuration"), "warnings")),
            *_changes(_dict(data, "since")),
            *(line(text, MAX_TEXT) for text in _texts(data, "status_lines")),
        ),
        severities={line(name): _number(counts, name) for name in counts},
        findings=findings,
        findings_total=_number(data, "findings_total") or len(findings),
        findings_dismissed=_number(data, "findings_dismissed"),
        files_total=_number(data, "files_total"),
        files_read=_number(data, "files_read"),
        unread=tuple(
            _unread(file)
            for file in _dicts(_list(data, "coverage"))
            if file.get("status") not in {"reviewed", "checked"}
        ),
        repository_id=_number(pull, "repository_id"),
        head_sha=_text(pull, "head_sha"),
        is_partial=pull.get("is_partial") is True,
        closed=tuple(filter(None, _texts(data, "closed"))),
    )


def _unread(file: dict[str, Any]) -> str:
    reason = _text(file, "reason")
    return f"{_text(file, 'file', MAX_PATH)}: {_text(file, 'status')}" + (f", {reason}" if reason else "")


def _changes(since: dict[str, Any]) -> Iterator[str]:
    if _number(since, "version") and _text(since, "summary"):
        yield f"Since version {since['version']}: {_text(since, 'summary')}."


def _finding(found: dict[str, Any]) -> ReportFinding:
    """Return a finding; a dismissed one is folded to its title, its place and who dismissed it."""
    is_new = found.get("is_new")
    finding = ReportFinding(
        file=_text(found, "file", MAX_PATH),
        severity=_text(found, "severity"),
        title=_text(found, "title"),
        message=_text(found, "message", None),
        line=_number(found, "line") or None,
        end_line=_number(found, "end_line") or None,
        side=_text(found, "side") or "new",
        suggestion=_text(found, "suggestion", None),
        is_new=is_new if isinstance(is_new, bool) else None,
        verdict=_text(found, "verdict"),
        verdict_note=_text(found, "verdict_note"),
        confidence=_number(found, "confidence") if found.get("confidence") is not None else None,
        demoted=found.get("demoted") is True,
        in_diff=_place(found.get("in_diff")),
        identity=_text(found, "identity"),
        rule=_text(found, "rule", MAX_PATH),
        rule_note=_text(found, "rule_note", MAX_RULE_NOTE),
    )
    return replace(finding, message="", suggestion="", rule_note="") if finding.is_dismissed else finding


def _place(found: object) -> DiffPlace | None:
    if not isinstance(found, dict):
        return None
    line, start = _number(found, "line"), _number(found, "start_line")
    path, replacement = found.get("path"), found.get("replacement")
    if not isinstance(path, str) or not isinstance(replacement, str) or not 0 < start <= line:
        return None
    content = tuple(shortened(text, MAX_TEXT) for text in _texts(found, "content")[-5:])
    old_path, old_line = _text(found, "old_path", None), max(_number(found, "old_line"), 0)
    return DiffPlace(path, line, start, _text(found, "side"), replacement, content, old_path, old_line)


def _text(data: dict[str, Any], name: str, limit: int | None = 200) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        return ""
    return value if limit is None else line(value, limit)


def _number(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _dict(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _texts(data: dict[str, Any], name: str) -> list[str]:
    return [text for text in _list(data, name) if isinstance(text, str)]


def _list(data: dict[str, Any], name: str) -> list[object]:
    value = data.get(name)
    return value if isinstance(value, list) else []


def _dicts(values: list[object]) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict))
