"""Composes one message about several reviews from the frozen message of each (pure).

    compose ► read the reviews from the payloads ► choose what fits ► plain text, HTML

The worst review comes first. Every review is named with its counts and link, whatever is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from django.template.loader import render_to_string
from django.utils.html import escape

from criticizer.inert_links import break_links, web_link
from criticizer.wording import plural_count
from notifications.providers.base import Message
from notifications.providers.payload import ReviewPayload, review_payload
from notifications.rendering.html import chips, look_of
from notifications.rendering.inert import inert_finding
from notifications.rendering.report import (
    MAX_SUBJECT,
    SEVERITIES,
    ReportFinding,
    line,
)
from notifications.rendering.summary import in_words, newness, sentence, severities_of
from notifications.rendering.text import facts, foot, note, title
from notifications.rendering.wrapping import wrapped

MAX_LISTED = 5  # findings of one review
# Bytes of HTML, below what Gmail shows: see `rendering.selection`.
CARDS_BYTES = 48_000
FINDINGS_BYTES = 24_000
_CARD_BYTES = 1_500  # of markup around a review, its counts included
_ROW_BYTES = 330  # of markup around a finding
_INDENT = "  "

Card = tuple[ReviewPayload, int]  # a review shown in full, with how many findings it lists


@dataclass(frozen=True, slots=True)
class Digest:
    """The reviews of a message, the worst first."""

    reviews: tuple[ReviewPayload, ...]

    @property
    def severities(self) -> dict[str, int]:
        totals: Counter[str] = Counter()
        for review in self.reviews:
            totals.update(review.severities)
        return _ordered(totals)

    @property
    def title(self) -> str:
        """Return a text such as `3 reviews: 1 high, 4 medium`."""
        reviews = plural_count(len(self.reviews), "review", zero="no")
        return f"{reviews}: {in_words(self.severities) or 'no findings'}"

    @property
    def headline(self) -> str:
        """Return a text such as `5 findings in 3 reviews, 12 of 14 files read`."""
        found = plural_count(sum(review.findings_total for review in self.reviews), "finding", zero="no")
        files = plural_count(sum(review.files_total for review in self.reviews), "file")
        read = sum(review.files_read for review in self.reviews)
        return f"{found} in {plural_count(len(self.reviews), 'review')}, {read} of {files} read"


def compose(messages: Sequence[Message], token: UUID) -> Message:
    """Return one message about all reviews of `messages`; the same bytes for the same arguments.

    Raises ValueError for fewer than two messages, or for more than one address.
    """
    if len(messages) < 2 or len({message.address for message in messages}) != 1:
        raise ValueError("a digest needs two reviews or more and one address")
    reviews = [_review(message) for message in messages]
    digest = Digest(tuple(sorted(reviews, key=_badness)))
    full, brief = _divided(digest)
    cards = list(zip(full, _listed(full), strict=True))
    unsubscribe_url = messages[0].unsubscribe_url
    created_at_epoch = max(message.created_at_epoch for message in messages)
    return Message(
        token=token,
        address=messages[0].address,
        subject=_subject(digest),
        text=_text(digest, cards, brief, unsubscribe_url),
        html=_html(digest, cards, brief, unsubscribe_url),
        payload=_payload(digest, created_at_epoch),
        thread=f"digest:{token}",
        created_at_epoch=created_at_epoch,
        unsubscribe_url=unsubscribe_url,
    )


def _review(message: Message) -> ReviewPayload:
    found = review_payload(message) or ReviewPayload(headline="reviewed")
    return replace(
        found,
        changelist_id=found.changelist_id or message.thread.partition(":")[2],
        title=break_links(found.title),
        author=break_links(found.author),
        banner=break_links(found.banner),
        url=web_link(found.url),
        severities=_ordered(found.severities or severities_of(finding for finding, _ in found.findings)),
        findings=tuple(
            (inert_finding(finding), web_link(link))
            for finding, link in found.findings[:MAX_LISTED]
            if not finding.is_dismissed
        ),
        findings_total=max(found.findings_total - found.findings_dismissed, 0),
    )


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts by severity, the worst first: stored JSON keeps no order."""
    names = [*SEVERITIES, *sorted(set(counts) - set(SEVERITIES))]
    return {name: counts[name] for name in names if counts.get(name)}


def _badness(review: ReviewPayload) -> tuple[int, ...]:
    return tuple(-review.severities.get(name, 0) for name in SEVERITIES)


def _divided(digest: Digest) -> tuple[list[ReviewPayload], list[ReviewPayload]]:
    """Return the reviews shown in full, and those shown in one line."""
    budget = CARDS_BYTES
    for position, review in enumerate(digest.reviews):
        budget -= _CARD_BYTES + _bytes(
            review.heading, review.url, review.changelist_id, review.author, review.headline, review.banner
        )
        if budget < 0 and position:
            return list(digest.reviews[:position]), list(digest.reviews[position:])
    return list(digest.reviews), []


def _listed(reviews: Sequence[ReviewPayload]) -> list[int]:
    """Return how many findings each review lists: every review's worst before any second one."""
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


def _left_out(review: ReviewPayload, listed: int) -> str:
    """Return a text such as `3 more findings (1 medium, 2 low)`, or nothing."""
    more = max(review.findings_total, len(review.findings)) - listed
    if more <= 0:
        return ""
    rest = dict(review.severities)
    for finding, _ in review.findings[:listed]:
        rest[finding.severity] = rest.get(finding.severity, 1) - 1
    kinds = in_words({name: count for name, count in rest.items() if count > 0})
    return plural_count(more, "more finding") + (f" ({kinds})" if kinds else "")


def _subject(digest: Digest) -> str:
    """Return a text such as `3 reviews: 1 high, 4 medium (12345, 12347, 12346)`."""
    names = [review.name for review in digest.reviews]
    for shown in range(len(names), 0, -1):
        more = f" and {len(names) - shown} more" if shown < len(names) else ""
        subject = f"{digest.title} ({', '.join(names[:shown])}{more})"
        if len(subject) <= MAX_SUBJECT:
            return subject
    return line(digest.title, MAX_SUBJECT)


def _text(digest: Digest, cards: list[Card], brief: list[ReviewPayload], unsubscribe_url: str) -> str:
    parts = [f"{wrapped(digest.title)}\n{wrapped(sentence(digest.headline))}"]
    for review, count in cards:
        parts += _section(review, count)
    if brief:
        lines = [
            f"- {review.name}, version {review.version}: {review.counts}"
            + (f"\n{_INDENT}{review.url}" if review.url else "")
            for review in brief
        ]
        parts += [title("MORE REVIEWS"), "\n".join(lines)]
    return "\n\n".join([*parts, foot(unsubscribe_url)]) + "\n"


def _section(review: ReviewPayload, listed: int) -> list[str]:
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


def _html(digest: Digest, cards: list[Card], brief: list[ReviewPayload], unsubscribe_url: str) -> str:
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
                for review, count in cards
            ],
            "brief": brief,
            "unsubscribe_url": web_link(unsubscribe_url),
        },
    )


def _payload(digest: Digest, created_at_epoch: int) -> dict[str, object]:
    """Return the payload every message has; only mail has digests, and does not send it."""
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
