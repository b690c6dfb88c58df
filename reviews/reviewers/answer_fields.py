"""Turns the fields of a finding, as models write them, into ours.

A name is recognised by its letters alone. Values are coerced where their meaning is plain, and
each coercion is counted by the field's name, so that a model that needs many is noticed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reviews.reviewers.answer_names import (
    CATEGORIES,
    FIELD_OF,
    LIMITS,
    MAX_CODE_CHARS,
    MAX_FIELDS,
    RANK,
    field_of,
    letters_of,
    severity_in,
)
from reviews.reviewers.base import FindingSeverity, Side
from reviews.reviewers.quote_readings import MAX_QUOTE_CHARS

_MAX_DEPTH = 5
_MAX_LINE = 10_000_000

_TEXTS = ("title", "problem", "trigger", "suggestion")

_CATEGORY_WORDS = (
    (
        "security",
        "secur vulnerab inject xss csrf auth credential secret cve cwe owasp crypto privacy exploit ssrf",
    ),
    ("concurrency", "concurr race thread deadlock lock atomic async synchron"),
    ("data-loss", "data-loss data_loss dataloss data loss corrupt integrity"),
    ("resource", "resource leak memory handle"),
    ("performance", "perf efficien slow scalab latency complexity"),
    ("api", "api contract compat interface breaking"),
    ("test", "test"),
    ("rule", "rule polic convention"),
)
_CONFIDENCES = {
    "very high": 95,
    "certain": 95,
    "very low": 10,
    "high": 85,
    "medium": 60,
    "moderate": 60,
    "low": 30,
}
_OLD = frozenset(
    ("old", "left", "removed", "deleted", "minus", "before", "base", "original", "previous", "-")
)
_NEW = frozenset(("new", "right", "added", "plus", "after", "head", "modified", "current", "+"))
_NOTHING = frozenset(("", "null", "none", "n/a", "na", "nil", "undefined", "-", "unknown"))
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_PLACE = re.compile(
    r"^(.{1,1000}?)(?::L?|#L|\s*\(?,?\s*lines?\s+)(\d{1,7})(?:\s*[-\u2013:,]\s*L?(\d{1,7}))?\)?:?$",
    re.IGNORECASE,
)


def shaped(raw: Mapping[str, object], inherited: Mapping[str, object]) -> tuple[dict[str, Any], Counter[str]]:
    """Return a raw finding in our fields, and how often each field had to be coerced.

    `inherited` holds the fields that objects around it state for all findings in them. A missing field is
    None, or "" for a text; nothing is refused here.
    """
    coerced: Counter[str] = Counter()
    given: dict[str, list[tuple[int, object]]] = {}
    for depth, name, value in _leaves(raw):
        letters = letters_of(name)
        field = FIELD_OF.get(letters)
        if field is None or value is None:
            continue
        given.setdefault(field, []).append((depth * 100 + RANK[letters], value))
        if name != field:
            coerced["name"] += 1
    for field, value in inherited.items():
        given.setdefault(field, [(999, value)])
    ranked = {
        field: [value for _, value in sorted(values, key=lambda v: v[0])] for field, values in given.items()
    }
    _two_texts(ranked)
    found: dict[str, Any] = {}
    for field, read in _READERS.items():
        found[field], is_coerced = read(ranked.get(field, [None])[0])
        coerced[field] += is_coerced
    _split_place(found, coerced)
    _complete(found, coerced)
    return found, +coerced


def _leaves(raw: Mapping[str, object], above: str = "", depth: int = 0) -> Iterator[tuple[int, str, object]]:
    """Yield (depth, name, value), with objects of a place or a range opened."""
    for name, value in list(raw.items())[:MAX_FIELDS]:
        field = field_of(name)
        inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        if isinstance(inner, dict) and depth < _MAX_DEPTH and field not in _TEXTS:
            if field == "quote" and "text" in inner:
                yield depth, name, inner["text"]
            yield from _leaves(inner, name, depth + 1)
        elif field == "suggestion" and isinstance(inner, dict) and {"replace", "with"} <= inner.keys():
            yield from ((depth, key, inner[key]) for key in ("replace", "with"))
            yield depth, name, {key: text for key, text in inner.items() if key not in ("replace", "with")}
        elif above and field_of(above + name) is not None:
            yield depth, above + name, value  # start: {line: 3}
        else:
            yield depth, name, value


def _two_texts(ranked: dict[str, list[object]]) -> None:
    """Without a title, make the shorter one of two texts about the problem the title."""
    texts = [value for value in ranked.get("problem", []) if isinstance(value, str) and value.strip()]
    if len(texts) > 1 and "title" not in ranked:
        short, long = sorted(texts[:2], key=len)
        ranked["title"], ranked["problem"] = [short], [long]


def _text(value: object, limit: int) -> tuple[str, bool]:
    if value is None:
        return "", False
    if isinstance(value, dict):
        value = [inner for inner in value.values() if isinstance(inner, str)]
    if isinstance(value, list):
        return "\n".join(str(item)[:limit] for item in value[:50] if isinstance(item, str | int))[
            :limit
        ], True
    if not isinstance(value, str):
        return str(value)[:limit], True
    return (value if len(value) <= limit else value[: limit - 1].rstrip() + "…"), False


def _prose(field: str) -> Callable[[object], tuple[str, bool]]:
    def read(value: object) -> tuple[str, bool]:
        text, is_coerced = _text(value, LIMITS[field])
        text = text.strip()
        return ("" if text.casefold() in _NOTHING else text), is_coerced

    return read


def _quote(value: object) -> tuple[str, bool]:
    # Cut without a mark: it is compared with lines.
    text, is_coerced = _text(value, 10**9)
    return text[:MAX_QUOTE_CHARS], is_coerced


def _lines(value: object) -> tuple[tuple[str, str] | None, bool]:
    """Return the first and last line that a suggestion replaces, the last "" for one line."""
    given = value if isinstance(value, list) else [value]
    quotes = [quote[:MAX_QUOTE_CHARS] for quote in given[:3] if isinstance(quote, str) and quote.strip()]
    if not 0 < len(quotes) <= 2:
        return None, value is not None
    return (quotes[0], quotes[1] if len(quotes) == 2 and quotes[1] != quotes[0] else ""), quotes != value


def _code(value: object) -> tuple[str | None, bool]:
    """Return the new lines as they are, or None if they are no text or too long to keep whole."""
    text = "\n".join(value) if isinstance(value, list) and all(isinstance(v, str) for v in value) else value
    is_usable = isinstance(text, str) and len(text) <= MAX_CODE_CHARS
    return (str(text).replace("\r\n", "\n") if is_usable else None), text is not value


def _word(value: object) -> tuple[str | None, bool]:
    text, is_coerced = _text(value, 1_024)
    text = text.strip().strip("`\"'*<>")
    return (None if text.casefold() in _NOTHING else text), is_coerced


def _severity(value: object) -> tuple[str, bool]:
    text = _text(value, 200)[0].casefold()
    if text in list(FindingSeverity):
        return text, False
    return severity_in(text) or str(FindingSeverity.MEDIUM), True


def _category(value: object) -> tuple[str, bool]:
    text = _text(value, 200)[0].strip().casefold()
    if text in CATEGORIES:
        return text, False
    for category, words in _CATEGORY_WORDS:
        if category in text or any(word in text for word in words.split()):
            return category, True
    return "bug", value is not None


def _confidence(value: object) -> tuple[int | None, bool]:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100:
        return value, False
    if value is None or isinstance(value, bool):
        return None, False
    text = _text(value, 40)[0].strip().casefold()
    number = _NUMBER.search(text)
    if number is None:
        return next((level for word, level in _CONFIDENCES.items() if word in text), None), True
    amount = float(number.group())
    whole = re.search(r"/\s*(10|5|100)\b", text)
    if whole is not None:
        amount *= 100 / int(whole[1])
    elif amount <= 1 and ("." in number.group() or isinstance(value, float)) and "%" not in text:
        amount *= 100
    return round(min(100.0, max(0.0, amount))), True


def _side(value: object) -> tuple[str | None, bool]:
    if value is None or value in list(Side):
        return (str(value) if value else None), False
    text = _text(value, 40)[0].strip().casefold()
    words = re.findall(r"[a-z]+|[-+]", text)
    if any(word in _OLD for word in words):
        return "old", True
    return ("new" if any(word in _NEW for word in words) else None), True


def _line(value: object) -> tuple[list[int], bool]:
    """Return the numbers that a line or a range of lines names: none, one or two."""
    if value is None or isinstance(value, bool):
        return [], False
    if isinstance(value, int):
        return ([value] if 0 < value < _MAX_LINE else []), False
    if isinstance(value, list):
        numbers = [item for item in value[:200] if isinstance(item, int) and 0 < item < _MAX_LINE]
    else:
        numbers = [int(n) for n in re.findall(r"\d{1,7}", _text(value, 80)[0]) if int(n)]
        if isinstance(value, float):
            numbers = numbers[:1]
    return ([numbers[0], *numbers[-1:]] if numbers else []), True


_READERS: Mapping[str, Callable[[object], tuple[Any, bool]]] = {
    "file": _word,
    "hunk": _word,
    "line": _line,
    "end_line": _line,
    "quote": _quote,
    "quote_end": _quote,
    "side": _side,
    "replace": _lines,
    "with": _code,
    "category": _category,
    "rule_id": _word,
    "context": lambda value: _text(value, 200),
    "severity": _severity,
    "confidence": _confidence,
    **{field: _prose(field) for field in _TEXTS},
}


def _split_place(found: dict[str, Any], coerced: Counter[str]) -> None:
    """Take apart `path:12-15`, and a range of lines."""
    lines, ends = found["line"], found["end_line"]
    place = _PLACE.match(found["file"] or "")
    if place is not None:
        found["file"] = place[1].strip().strip("`\"'* ")
        coerced["file"] += 1
        lines = lines or [int(number) for number in place.groups()[1:] if number and int(number)]
    found["line"] = lines[0] if lines else None
    last = max(ends or lines or [0])
    found["end_line"] = last if lines and last > lines[0] else None


def _complete(found: dict[str, Any], coerced: Counter[str]) -> None:
    """Fill a missing title from the problem, and a missing problem from the other texts."""
    if not found["problem"].strip() and found["title"].strip():
        found["problem"] = found["trigger"] or found["title"]
        coerced["problem"] += 1
    if not found["title"].strip() and found["problem"].strip():
        first = re.split(r"(?<=[.!?])\s|\n", found["problem"].strip(), maxsplit=1)[0]
        found["title"] = _text(first, LIMITS["title"])[0]
        coerced["title"] += 1
    for name in ("quote_end", "suggestion"):
        found[name] = found[name] or None
