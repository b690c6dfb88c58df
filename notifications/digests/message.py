"""One message about several reviews, made of the frozen messages about each of them; pure.

    compose ─► read the reviews from the messages' JSON ─► choose what fits ─► plain text, HTML

The worst review comes first. Every review is named with its counts and its link, whatever is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.template.loader import render_to_string
from django.utils.html import escape

from criticizer.wording import plural_count
from notifications.providers.base import Message
from notifications.rendering.html import chips, look_of
from notifications.rendering.report import (
    MAX_PATH,
    MAX_SUBJECT,
    MAX_TEXT,
    SEVERITIES,
    ReportFinding,
    is_web_link,
    line,
    short_name,
)
from notifications.rendering.summary import in_words, newness, sentence, severities_of
from notifications.rendering.text import facts, foot, note, title
from notifications.rendering.wrapping import wrapped

MAX_LISTED = 5  # findings of one review
# Bytes of HTML, below what Gmail shows: see `shown`.
CARDS_BYTES = 48_000
FINDINGS_BYTES = 24_000
_CARD_BYTES = 1_500  # of markup around a review, its counts included
_ROW_BYTES = 330  # of markup around a finding
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Review:
    """A review as its own message tells it. `findings` has the worst of `total`, each with its link."""

    changelist_id: str
    version: int
    title: str
    author: str
    url: str
    headline: str
    banner: str
    severities: Mapping[str, int]
    findings: tuple[tuple[ReportFinding, str], ...]
    total: int
    files: int
    read: int

    @property
    def name(self) -> str:
        return short_name(self.changelist_id)

    @property
    def heading(self) -> str:
        return self.title or f"Review of {self.name}"

    @property
    def counts(self) -> str:
        return in_words(self.severities) or "no findings"


@dataclass(frozen=True, slots=True)
class Digest:
    """The reviews of a message, the worst first."""

    reviews: tuple[Review, ...]

    @property
    def severities(self) -> dict[str, int]:
        totals: Counter[str] = Counter()
        for review in self.reviews:
            totals.update(review.severities)
        return _ordered(totals)

    @property
    def title(self) -> str:
        """Return such as `3 reviews: 1 high, 4 medium`."""
        reviews = plural_count(len(self.reviews), "review", zero="no")
        return f"{reviews}: {in_words(self.severities) or 'no findings'}"

    @property
    def headline(self) -> str:
        """Return such as `5 findings in 3 reviews, 12 of 14 files read`."""
        found = plural_count(sum(review.total for review in self.reviews), "finding", zero="no")
        files = plural_count(sum(review.files for review in self.reviews), "file")
        read = sum(review.read for review in self.reviews)
        return f"{found} in {plural_count(len(self.reviews), 'review', zero='no')}, {read} of {files} read"


def compose(messages: Sequence[Message], token: UUID) -> Message:
    """Return the one message that tells what all of `messages`, to one address, tell; the same each time.

    Raises ValueError for fewer than two of them, or for more than one address.
    """
    if len(messages) < 2 or len({message.address for message in messages}) != 1:
        raise ValueError("a digest tells one address about two reviews at least")
    reviews = [_review(message) for message in messages]
    digest = Digest(tuple(sorted(reviews, key=_badness)))
    full, brief = _divided(digest)
    listed = _listed(full)
    unsubscribe_url = messages[0].unsubscribe_url
    created_at_epoch = max(message.created_at_epoch for message in messages)
    return Message(
        token=token,
        address=messages[0].address,
        subject=_subject(digest),
        text=_text(digest, full, brief, listed, unsubscribe_url),
        html=_html(digest, full, brief, listed, unsubscribe_url),
        payload=_payload(digest, created_at_epoch),
        thread=f"digest:{token}",
        created_at_epoch=created_at_epoch,
        unsubscribe_url=unsubscribe_url,
    )


# -- what the messages say -----------------------------------------------------------------------


def _review(message: Message) -> Review:
    data: dict[str, Any] = _dict(message.payload.get("data"))
    url = _words(data, "url", MAX_TEXT)
    counts = {line(str(name)): _number(count) for name, count in _dict(data.get("severities")).items()}
    findings = [_dict(found) for found in data.get("findings") or []]
    return Review(
        changelist_id=_words(data, "changelist_id") or message.thread.partition(":")[2],
        version=_number(data.get("review_version")) or 1,
        title=_words(data, "title"),
        author=_words(data, "author"),
        url=url if is_web_link(url) else "",
        headline=_words(data, "headline") or "reviewed",
        banner=_words(data, "banner", 512),
        severities=_ordered(counts or severities_of(_finding(found) for found in findings)),
        findings=tuple((_finding(f), _link(f)) for f in findings[:MAX_LISTED]),
        total=_number(data.get("findings_total")),
        files=_number(data.get("files_total")),
        read=_number(data.get("files_read")),
    )


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the worst first: stored JSON keeps no order."""
    names = [*SEVERITIES, *sorted(set(counts) - set(SEVERITIES))]
    return {name: counts[name] for name in names if counts.get(name)}


def _finding(found: dict[str, Any]) -> ReportFinding:
    is_new = found.get("is_new")
    return ReportFinding(
        file=_words(found, "file", MAX_PATH),
        severity=_words(found, "severity"),
        title=_words(found, "title"),
        message="",
        line=_number(found.get("line")) or None,
        end_line=_number(found.get("end_line")) or None,
        side=_words(found, "side") or "new",
        is_new=is_new if isinstance(is_new, bool) else None,
    )


def _link(found: dict[str, Any]) -> str:
    url = _words(found, "url", MAX_TEXT)
    return url if is_web_link(url) else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _words(data: dict[str, Any], name: str, limit: int = 200) -> str:
    value = data.get(name)
    return line(value, limit) if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _badness(review: Review) -> tuple[int, ...]:
    return tuple(-review.severities.get(name, 0) for name in SEVERITIES)


# -- what fits -----------------------------------------------------------------------------------


def _divided(digest: Digest) -> tuple[list[Review], list[Review]]:
    """Return the reviews that are told in full, and those that get one line."""
    budget = CARDS_BYTES
    for position, review in enumerate(digest.reviews):
        budget -= _CARD_BYTES + _bytes(
            review.heading, review.url, review.changelist_id, review.author, review.headline, review.banner
        )
        if budget < 0 and position:
            return list(digest.reviews[:position]), list(digest.reviews[position:])
    return list(digest.reviews), []


def _listed(reviews: Sequence[Review]) -> list[int]:
    """Return of how many findings each review has a line: every review's worst before any second one."""
    listed = [0] * len(reviews)
    budget = FINDINGS_BYTES
    for rank in range(MAX_LISTED):
        for position, review in enumerate(reviews):
            if rank < len(review.findings) and listed[position] == rank:
                finding, link = review.findings[rank]
                size = _ROW_BYTES + _bytes(finding.title, finding.place, link)
                if size <= budget:
                    budget -= size
                    listed[position] += 1
    return listed


def _bytes(*texts: str) -> int:
    return sum(len(escape(text).encode()) for text in texts)


def _left_out(review: Review, listed: int) -> str:
    """Return such as `3 more findings (1 medium, 2 low)`, or nothing."""
    more = max(review.total, len(review.findings)) - listed
    if more <= 0:
        return ""
    rest = dict(review.severities)
    for finding, _ in review.findings[:listed]:
        rest[finding.severity] = rest.get(finding.severity, 1) - 1
    kinds = in_words({name: count for name, count in rest.items() if count > 0})
    return plural_count(more, "more finding") + (f" ({kinds})" if kinds else "")


# -- its forms -----------------------------------------------------------------------------------


def _subject(digest: Digest) -> str:
    """Return such as `3 reviews: 1 high, 4 medium (12345, 12347, 12346)`; each review is one message."""
    names = [review.name for review in digest.reviews]
    for shown in range(len(names), 0, -1):
        more = f" and {len(names) - shown} more" if shown < len(names) else ""
        subject = f"{digest.title} ({', '.join(names[:shown])}{more})"
        if len(subject) <= MAX_SUBJECT:
            return subject
    return line(digest.title, MAX_SUBJECT)


def _text(
    digest: Digest, full: list[Review], brief: list[Review], listed: list[int], unsubscribe_url: str
) -> str:
    parts = [f"{wrapped(digest.title)}\n{wrapped(sentence(digest.headline))}"]
    for review, count in zip(full, listed, strict=True):
        parts += _told(review, count)
    if brief:
        lines = [
            f"- {review.name}, version {review.version}: {review.counts}"
            + (f"\n{_INDENT}{review.url}" if review.url else "")
            for review in brief
        ]
        parts += [title("MORE REVIEWS"), "\n".join(lines)]
    return "\n\n".join([*parts, foot(unsubscribe_url)]) + "\n"


def _told(review: Review, listed: int) -> list[str]:
    parts = [
        f"{title(wrapped(review.heading))}\n{wrapped(sentence(review.headline))}",
        facts(review.changelist_id, review.version, review.author, review.url),
    ]
    if review.banner:
        parts.append(note(review.banner))
    lines = [_item(finding, link) for finding, link in review.findings[:listed]]
    if left_out := _left_out(review, listed):
        lines.append(wrapped(f"- … and {left_out}, not listed here", _INDENT, first=""))
    return [*parts, "\n".join(lines)] if lines else parts


def _item(finding: ReportFinding, link: str) -> str:
    tags = ", ".join(filter(None, [finding.severity, newness(finding)]))
    named = wrapped(f"- {finding.title} ({tags})", _INDENT, first="")
    return "\n".join(filter(None, [named, _INDENT + finding.place, link and _INDENT + link]))


def _html(
    digest: Digest, full: list[Review], brief: list[Review], listed: list[int], unsubscribe_url: str
) -> str:
    return render_to_string(
        "notifications/digest.html",
        {
            "digest": digest,
            "preheader": f"{digest.headline}. " + "; ".join(review.heading for review in digest.reviews[:3]),
            "chips": chips(digest.severities),
            "cards": [
                {
                    "review": review,
                    "look": look_of(next(iter(review.severities), "")),
                    "chips": chips(review.severities),
                    "findings": review.findings[:count],
                    "left_out": _left_out(review, count),
                }
                for review, count in zip(full, listed, strict=True)
            ],
            "brief": brief,
            "unsubscribe_url": unsubscribe_url if is_web_link(unsubscribe_url) else "",
        },
    )


def _payload(digest: Digest, created_at_epoch: int) -> dict[str, object]:
    """Return the JSON that goes with every message; mail alone has digests, and does not send it."""
    return {
        "type": "reviews.completed",
        "timestamp": datetime.fromtimestamp(created_at_epoch, UTC).isoformat(),
        "data": {
            "headline": digest.headline,
            "severities": digest.severities,
            "reviews": [
                {
                    "changelist_id": review.changelist_id,
                    "review_version": review.version,
                    "url": review.url,
                    "headline": review.headline,
                    "severities": dict(review.severities),
                }
                for review in digest.reviews
            ],
        },
    }
