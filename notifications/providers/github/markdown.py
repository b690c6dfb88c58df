"""A message as a comment on a pull request: Markdown whose first line names the message.

Text of a change mentions no one, links nothing and refers to no issue. Findings are left out as a whole,
so that no limit cuts into a fence; the marker comes first, so that none cuts it off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from criticizer.inert_links import break_links
from notifications.providers.base import Message
from notifications.providers.payload import ReviewPayload, linkable, shortened
from notifications.rendering.report import ReportFinding

# GitHub takes 65,536 characters and, measured, 262,144 bytes.
MAX_CHARACTERS = 65_000
MAX_BYTES = 250_000
MAX_EARLIER = 20  # tokens of earlier versions in a marker
_SHORT, _FACT, _PATH, _MAX_UNREAD = 300, 512, 1100, 20
_SPECIAL = re.compile(r"([\\`*_\[\]<>~#|!$&])")
_BLOCK = re.compile(r"^(\s*)([-+=:]|\d{1,9}(?=[.)]))", re.MULTILINE)
_REFERENCE = re.compile(r"(@|#|\bGH-)(?=\w)", re.IGNORECASE)
_APART = "\N{ZERO WIDTH SPACE}"
_MARKER = re.compile(
    r"<!-- criticizer:(?P<kind>summary|note)"
    r"(?: pr=(?P<repository>\d{1,19})#(?P<number>\d{1,10}) v=(?P<version>\d{1,10})"
    r" sha=(?P<sha>[0-9a-f]{7,64}))?"
    r" token=(?P<token>[0-9a-f-]{36})(?: earlier=(?P<earlier>[0-9a-f,-]{36,2000}))? -->"
)


@dataclass(frozen=True, slots=True)
class Marker:
    """The first line of a comment of ours. `earlier`: tokens of the versions that it replaced, newest first.

    Of a message that is no review there is only the token; `version` is 0 then.
    """

    token: str
    repository_id: int = 0
    number: int = 0
    version: int = 0
    sha: str = ""
    earlier: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[str, ...]:
        return (self.token, *self.earlier)

    def __str__(self) -> str:
        if not self.version:
            return f"<!-- criticizer:note token={self.token} -->"
        earlier = f" earlier={','.join(self.earlier[:MAX_EARLIER])}" if self.earlier else ""
        place = f"pr={self.repository_id}#{self.number} v={self.version} sha={self.sha}"
        return f"<!-- criticizer:summary {place} token={self.token}{earlier} -->"


def marker_of(body: object) -> Marker | None:
    """Return the marker that a comment begins with. Anyone can paste one: the author is checked elsewhere."""
    found = _MARKER.match(body) if isinstance(body, str) else None
    if found is None:
        return None
    earlier = tuple(filter(None, (found["earlier"] or "").split(",")))
    return Marker(
        found["token"], int(found["repository"] or 0), int(found["number"] or 0),
        int(found["version"] or 0), found["sha"] or "", earlier,
    )  # fmt: skip


def note(message: Message) -> str:
    """Return a message that is no review: its plain text as a code block."""
    parts = [str(Marker(str(message.token))), *_notice(message)]
    text = shortened(message.text, MAX_CHARACTERS // 2)
    return "\n\n".join([*parts, _fenced(text)])


def summary(message: Message, review: ReviewPayload, marker: Marker, moved_note: str = "") -> str:
    """Return the comment about a review, below both limits."""
    head = [str(marker)]
    if moved_note:
        head.append(moved_note)
    head += _notice(message)
    head.append(f"### {plain(review.headline, _SHORT)}")
    if url := linkable(review.url):
        head.append(f"[The whole review](<{re.sub('[<>]', '', url)}>)")
    head += [plain(fact, _FACT) for fact in (review.banner, *review.status_lines) if fact]
    tail = [_unread(review.unread)] if review.unread else []
    root = f"//{review.changelist_id.replace(':', '/', 1).partition('#')[0]}/"
    shown = _fitting(
        (_finding(finding, root) for finding, _ in review.findings), [*head, *tail, _count(0, 0)]
    )
    if len(shown) < review.findings_total:
        tail.insert(0, _count(len(shown), review.findings_total))
    return "\n\n".join([*head, *shown, *tail])


def plain(text: str, limit: int) -> str:
    """Return text that Markdown shows as it is: no markup, mention, reference or link."""
    text = _SPECIAL.sub(r"\\\1", break_links(shortened(text, limit)))
    return _REFERENCE.sub(rf"\1{_APART}", _BLOCK.sub(r"\1\\\2", text))


def _count(shown: int, total: int) -> str:
    return f"Showing {shown:,} of {total:,} findings." if total else "Showing 000,000 of 000,000 findings."


def _notice(message: Message) -> list[str]:
    return [f"**{plain(message.repeat_notice, _SHORT)}**"] if message.repeat_notice else []


def _fitting(texts: Iterable[str], others: Sequence[str]) -> list[str]:
    """Return the first texts that fit into one comment together with the others."""
    characters = MAX_CHARACTERS - sum(len(text) + 2 for text in others)
    octets = MAX_BYTES - sum(len(text.encode()) + 2 for text in others)
    shown = []
    for text in texts:
        characters -= len(text) + 2
        octets -= len(text.encode()) + 2
        if min(characters, octets) < 0:
            break
        shown.append(text)
    return shown


def _finding(finding: ReportFinding, root: str) -> str:
    parts = [f"**{plain(finding.severity.upper(), 20)}: {plain(finding.title, _SHORT)}**"]
    if finding.place:
        parts.append(_code(finding.place.removeprefix(root)))
    if finding.verdict_note:
        parts.append(plain(finding.verdict_note, _SHORT))
    parts.append(plain(finding.message, len(finding.message)))
    if finding.suggestion:
        parts.append(_fenced(finding.suggestion))
    return "\n\n".join(filter(None, parts))


def _unread(files: Sequence[str]) -> str:
    lines = [f"- {plain(file, 200)}" for file in files[:_MAX_UNREAD]]
    if len(files) > _MAX_UNREAD:
        lines.append(f"- and {len(files) - _MAX_UNREAD} more files")
    return "\n".join(["Not read completely:", "", *lines])


def _code(text: str) -> str:
    text = shortened(" ".join(text.split("\n")), _PATH)
    return f"`{text.replace('`', chr(39))}`"


def _fenced(text: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
