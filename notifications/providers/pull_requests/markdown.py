"""Messages as comments or reviews on a pull request, in Markdown.

The first line names the message. Text of a change mentions no one, links nothing, refers to no issue and runs
no quick action. Findings are left out as a whole, so that no limit cuts into a fence; the marker comes first,
so that none cuts it off.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from criticizer import texts
from criticizer.codehosts.names import pull_request_place
from criticizer.inert_links import APART, QUICK_ACTION, REFERENCE, break_links
from notifications.providers.base import Message
from notifications.providers.payload import ReviewPayload, linkable, not_read, shortened
from notifications.rendering.report import MAX_RULE_NOTE, ReportFinding
from notifications.rendering.selection import fitting

# GitHub takes 65,536 characters and, measured, 262,144 bytes.
MAX_CHARACTERS = 65_000
MAX_BYTES = 250_000
MAX_EARLIER = 20  # tokens of earlier versions in a marker
_SHORT, _FACT, _PATH = 300, 2000, 1100
_SPECIAL = re.compile(r"([\\`*_\[\]<>~#|!$&])")
_BLOCK = re.compile(r"^(\s*)([-+=:/]|\d{1,9}(?=[.)]))", re.MULTILINE)
_MARKER = re.compile(
    r"<!-- criticizer:(?P<kind>summary|review|note)"
    r"(?: pr=(?P<repository>\d{1,19})#(?P<number>\d{1,10}) v=(?P<version>\d{1,10})"
    r" sha=(?P<sha>[0-9a-f]{7,64}))?"
    r" token=(?P<token>[0-9a-f-]{36})"
    r"(?: part=(?P<part>\d{1,2}/\d{1,2}))?(?: earlier=(?P<earlier>[0-9a-f,-]{36,2000}))? -->"
)


@dataclass(frozen=True, slots=True)
class Marker:
    """First line of a comment of ours.

    `earlier`: tokens of the versions that it replaced, newest first. Of a message that is no review there is
    only the token; `version` is 0 then. `kind`: summary or review. `part`: which of a message's texts it is,
    where there are several: 2/3.
    """

    token: str
    repository_id: int = 0
    number: int = 0
    version: int = 0
    sha: str = ""
    earlier: tuple[str, ...] = ()
    kind: str = "summary"
    part: str = ""

    @property
    def tokens(self) -> tuple[str, ...]:
        return (self.token, *self.earlier)

    def __str__(self) -> str:
        if not self.version:
            return f"<!-- criticizer:note token={self.token} -->"
        earlier = f" earlier={','.join(self.earlier[:MAX_EARLIER])}" if self.earlier else ""
        place = f"pr={self.repository_id}#{self.number} v={self.version} sha={self.sha}"
        part = f" part={self.part}" if self.part else ""
        return f"<!-- criticizer:{self.kind} {place} token={self.token}{part}{earlier} -->"


def marker_of(body: object) -> Marker | None:
    """Return the marker that a comment begins with, or None.

    Anyone can paste a marker: the author is checked elsewhere.
    """
    found = _MARKER.match(body) if isinstance(body, str) else None
    if found is None:
        return None
    earlier = tuple(filter(None, (found["earlier"] or "").split(",")))
    return Marker(
        found["token"], int(found["repository"] or 0), int(found["number"] or 0),
        int(found["version"] or 0), found["sha"] or "", earlier, found["kind"],
        found["part"] or "",
    )  # fmt: skip


def note(message: Message) -> str:
    """Return a message that is no review: its plain text as a code block."""
    parts = [str(Marker(str(message.token))), *_notice(message)]
    text = shortened(message.text, MAX_CHARACTERS // 2)
    return "\n\n".join([*parts, _fenced(text)])


def summary(
    message: Message, review: ReviewPayload, marker: Marker, moved_note: str = "", pending: str = ""
) -> str:
    """Return the comment about a review, below both limits. `pending`: a sentence for its end."""
    head = [str(marker)]
    if moved_note:
        head.append(moved_note)
    head += _notice(message)
    head.append(f"### {plain(review.headline, _SHORT)}")
    if url := linkable(review.url):
        head.append(f"[The whole review](<{re.sub('[<>]', '', url)}>)")
    head += [plain(fact, _FACT) for fact in (review.banner, *review.status_lines) if fact]
    tail = [not_read(review.unread, lambda file: plain(file, 200))] if review.unread else []
    tail += [pending] if pending else []
    on, _, place = review.changelist_id.partition(":")
    root = f"//{on}/{pull_request_place(place)[0]}/"
    shown = _fitting(
        (_finding(finding, root) for finding, _ in review.findings), [*head, *tail, _count(0, 0)]
    )
    if len(shown) < review.findings_total:
        tail.insert(0, _count(len(shown), review.findings_total))
    return "\n\n".join([*head, *shown, *tail])


def review_body(message: Message, marker: Marker) -> str:
    """Return the text above the inline comments of a review.

    It is true as well where it stands without them.
    """
    text = "Findings at their lines. The summary of this pull request has all of them."
    return "\n\n".join([str(marker), *_notice(message), text])


def thread_head(message: Message, marker: Marker) -> str:
    """Return what a thread of its own begins with."""
    return "\n\n".join([str(marker), *_notice(message)])


def inline_comment(finding: ReportFinding, suggestion: str = "") -> str:
    """Return the comment at a finding's lines.

    `suggestion` is the language of a block that replaces them.
    """
    place = finding.in_diff
    assert place is not None
    parts = _heading(finding)
    if place.replacement and suggestion:
        parts.append(_fenced(place.replacement, suggestion))
    elif finding.suggestion:
        parts.append(_fenced(finding.suggestion))
    name = f"{place.path}\n{place.side}\n{place.line}\n{finding.title}"
    parts.append(f"<!-- criticizer:finding id={hashlib.sha256(name.encode()).hexdigest()[:16]} -->")
    return "\n\n".join(parts)


def plain(text: str, limit: int) -> str:
    """Return text that Markdown shows as it is: no markup, mention, reference or link."""
    text = _SPECIAL.sub(r"\\\1", break_links(shortened(text, limit)))
    return REFERENCE.sub(rf"\g<0>{APART}", _BLOCK.sub(r"\1\\\2", text))


def _count(shown: int, total: int) -> str:
    counted = (f"{shown:,}", f"{total:,}") if total else ("000,000", "000,000")
    return texts.COMMENT_TOO_LONG.of(shown=counted[0], total=counted[1])


def _notice(message: Message) -> list[str]:
    return [f"**{plain(message.repeat_notice, _SHORT)}**"] if message.repeat_notice else []


def _fitting(texts: Iterable[str], others: Sequence[str]) -> list[str]:
    """Return the first texts that fit into one comment together with the others."""
    characters = MAX_CHARACTERS - sum(len(text) + 2 for text in others)
    octets = MAX_BYTES - sum(len(text.encode()) + 2 for text in others)
    shown = fitting(texts, lambda text: len(text) + 2, characters)
    return fitting(shown, lambda text: len(text.encode()) + 2, octets)


def _finding(finding: ReportFinding, root: str) -> str:
    parts = _heading(finding, _code(finding.place.removeprefix(root)) if finding.place else "")
    if finding.suggestion:
        parts.append(_fenced(finding.suggestion))
    return "\n\n".join(parts)


def _heading(finding: ReportFinding, place: str = "") -> list[str]:
    title = f"**{plain(finding.severity.upper(), 20)}: {plain(finding.title, _SHORT)}**"
    notes = (plain(note, _SHORT) for note in finding.notes)
    message = plain(finding.message, len(finding.message))
    rule = plain(finding.rule_note, MAX_RULE_NOTE)
    return [part for part in (title, place, *notes, message, rule) if part]


def _code(text: str) -> str:
    text = shortened(" ".join(text.split("\n")), _PATH)
    return f"`{text.replace('`', chr(39))}`"


def _fenced(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any in the text."""
    if not language:  # a suggestion is taken as it is
        text = QUICK_ACTION.sub(rf"\1{APART}", text)
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
