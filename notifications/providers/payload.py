"""What a message's payload says, for providers that lay it out in their own way.

The payload is the webhook's body (`notifications.rendering`). It was bounded when it was made;
nothing in it is markup, and none of it is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from notifications.providers.base import Message


@dataclass(frozen=True, slots=True)
class Remark:
    """One finding. `place` is `file`, `file:line` or `file:first-last`."""

    severity: str
    title: str
    place: str
    message: str
    suggestion: str


@dataclass(frozen=True, slots=True)
class ReviewPayload:
    """A review as its payload tells it. `total` counts the findings, shown here or not."""

    title: str
    headline: str
    url: str
    banner: str
    status_lines: tuple[str, ...]
    remarks: tuple[Remark, ...]
    total: int
    unread: tuple[str, ...]  # `file: status, reason` of files that were not read completely


def review_payload(message: Message) -> ReviewPayload | None:
    """Return the outline of a review's message; None for any other (its `text` says it all)."""
    data = message.payload.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("findings"), list):
        return None
    remarks = tuple(map(_remark, _dicts(data["findings"])))
    total = data.get("findings_total")
    return ReviewPayload(
        title=_text(data, "title"),
        headline=_text(data, "headline") or message.subject,
        url=_text(data, "url"),
        banner=_text(data, "banner"),
        status_lines=(
            *_changes(data.get("since")),
            *(line for line in _list(data, "status_lines") if isinstance(line, str)),
        ),
        remarks=remarks,
        total=total if isinstance(total, int) else len(remarks),
        unread=tuple(
            ", ".join(
                filter(None, [f"{_text(file, 'file')}: {_text(file, 'status')}", _text(file, "reason")])
            )
            for file in _dicts(_list(data, "coverage"))
            if file.get("status") not in {"reviewed", "checked"}
        ),
    )


def _changes(since: object) -> Iterator[str]:
    """Yield what changed since the version before, where one was compared."""
    if isinstance(since, dict) and isinstance(since.get("version"), int) and _text(since, "summary"):
        yield f"Since version {since['version']}: {_text(since, 'summary')}."


def _remark(finding: dict[str, object]) -> Remark:
    place = _text(finding, "file")
    line, end_line = finding.get("line"), finding.get("end_line")
    if isinstance(line, int):
        place += f":{line}"
        if isinstance(end_line, int) and end_line > line:
            place += f"-{end_line}"
    return Remark(
        severity=_text(finding, "severity"),
        title=_text(finding, "title"),
        place=place,
        message=_text(finding, "message"),
        suggestion=_text(finding, "suggestion"),
    )


def _text(data: dict[str, object], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _list(data: dict[str, object], name: str) -> list[object]:
    value = data.get(name)
    return value if isinstance(value, list) else []


def _dicts(values: list[object]) -> Iterator[dict[str, object]]:
    return (value for value in values if isinstance(value, dict))
