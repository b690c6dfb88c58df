"""A message as Slack's blocks (Block Kit), within its limits and without mentions.

Slack does not document the limit of a whole message; about 13,000 characters are reported to be refused,
so `MAX_TOTAL` stays well below. What does not fit is counted in the last block, beside the link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from notifications.providers.base import Message
from notifications.providers.payload import ReviewPayload, linkable, review_payload, shortened
from notifications.rendering.report import MAX_RULE_NOTE, ReportFinding
from notifications.rendering.selection import fitting

MAX_BLOCKS = 50
MAX_SECTION = 3000
MAX_HEADER = 150
MAX_TEXT = 4000  # of `text`, in bytes: what notifications and screen readers say
MAX_TOTAL = 9000  # of all blocks together
_MESSAGE, _SUGGESTION, _SHORT = 1200, 700, 300
_FACTS, _UNREAD = 1500, 1000
# Kept free while findings are laid out: header and notice before them, coverage and closing words after.
_RESERVED_BLOCKS = 4
_RESERVED = MAX_HEADER + _SHORT + _UNREAD + _SHORT
_BLOCK_ID = "criticizer-"

Block = dict[str, object]


def block_id(message: Message) -> str:
    """Return the id of the first block: it carries the token where metadata is not shown."""
    return f"{_BLOCK_ID}{message.token}"


def body(message: Message) -> dict[str, object]:
    """Return `text` and `blocks` of `chat.postMessage`: the same for the same message."""
    blocks: list[Block] = [
        {
            "type": "header",
            "block_id": block_id(message),
            "text": {
                "type": "plain_text",
                "emoji": False,
                "text": shortened(message.subject or "Review", MAX_HEADER),
            },
        }
    ]
    if message.repeat_notice:
        blocks.append(_section(f"*{escaped(message.repeat_notice, _SHORT)}*"))
    found = review_payload(message)
    blocks += _plain(message) if found is None else _review(found)
    return {"text": _summary(message), "blocks": blocks}


def escaped(text: str, limit: int) -> str:
    """Return text without links and mentions for Slack, of at most `limit` characters.

    Slack names exactly these three characters. What `*` and `_` do to letters is harmless.
    """
    result: list[str] = []
    length = 0
    for character in text:
        safe = _ENTITIES.get(character, character)
        length += len(safe)
        if length > limit - 1:
            return "".join(result) + "…"
        result.append(safe)
    return "".join(result)


_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def _review(review: ReviewPayload) -> list[Block]:
    link = _link(review.url, "Open the review")
    head = [f"*{escaped(review.headline, _SHORT)}*", escaped(review.title, _SHORT), link]
    texts = ["\n".join(filter(None, head))]
    if facts := list(filter(None, [review.banner, *review.status_lines])):
        texts.append(_listed(facts, _FACTS))
    budget = MAX_TOTAL - _RESERVED - sum(map(len, texts))
    first = review.findings[: MAX_BLOCKS - _RESERVED_BLOCKS - len(texts)]
    findings = fitting((_finding(finding) for finding, _ in first), len, budget)
    blocks = list(map(_section, texts + findings))
    if review.unread:
        blocks.append(_context(_listed(review.unread, _UNREAD, "Not read completely:")))
    left_out = review.findings_total - len(findings)
    if left_out > 0:
        words = f"{left_out} of {review.findings_total} findings are left out here"
        blocks.append(_context(f"{words}: {link}" if link else f"{words}."))
    return blocks


def _finding(finding: ReportFinding) -> str:
    rule = escaped(finding.rule_note, MAX_RULE_NOTE)
    parts = [
        f"*{escaped(finding.severity.upper(), 20)}: {escaped(finding.title, _SHORT)}*",
        f"`{escaped(_unticked(finding.location), _SHORT)}`" if finding.location else "",
        *(escaped(note, _SHORT) for note in finding.notes),
        escaped(finding.message, _MESSAGE - len(rule)),  # all of it is one section
        rule,
        f"```{escaped(_unticked(finding.suggestion), _SUGGESTION)}```" if finding.suggestion else "",
    ]
    return "\n".join(filter(None, parts))


def _listed(lines: Sequence[str], limit: int, title: str = "") -> str:
    """Return the lines that fit, and how many do not."""
    room = limit - len(title) - 30
    shown = fitting((escaped(line, _SHORT) for line in lines), lambda line: len(line) + 1, room)
    left_out = len(lines) - len(shown)
    more = [f"… and {left_out} more"] if left_out else []
    return "\n".join([*filter(None, [title]), *shown, *more])


def _plain(message: Message) -> Iterator[Block]:
    """Yield the plain text in sections of whole lines, with what was left out counted."""
    lines = message.text.splitlines()
    shown = fitting((escaped(line, MAX_SECTION - 1) + "\n" for line in lines), len, MAX_TOTAL - _RESERVED)
    section = ""
    for line in shown:
        if len(section) + len(line) > MAX_SECTION:
            yield _section(section)
            section = ""
        section += line
    if section.strip():
        yield _section(section)
    if left_out := len(lines) - len(shown):
        yield _context(f"{left_out} lines are left out here.")


def _summary(message: Message) -> str:
    text = "\n".join(filter(None, [message.repeat_notice, message.subject]))
    return escaped(text, MAX_TEXT).encode()[:MAX_TEXT].decode(errors="ignore")


def _link(url: str, words: str) -> str:
    if not linkable(url):
        return ""
    safe = url.replace("&", "&amp;").replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")
    return f"<{safe}|{words}>"


def _section(text: str) -> Block:
    # verbatim: no links and no mentions are made of plain words.
    return {"type": "section", "text": {"type": "mrkdwn", "verbatim": True, "text": text}}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "verbatim": True, "text": text}]}


def _unticked(text: str) -> str:
    return text.replace("`", "'")
