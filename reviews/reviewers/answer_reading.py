"""Reads raw findings from the text of an answer, in whatever form they stand.

    text ─► without reasoning ─► JSON, strict or lenient, whole or in pieces ─► raw findings
                                 └─ none: labels, tables, tags, `path:line: text` ─┘

Nothing is judged here. Text that looks like no answer at all yields nothing.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reviews.reviewers.answer_forms import findings_in_text
from reviews.reviewers.answer_names import field_of, is_like_a_finding, letters_of, severity_in
from reviews.reviewers.lenient_json import values_in

MAX_RAW_FINDINGS = 200
_MAX_DEPTH = 8
_MAX_ITEMS = 2_000

_THOUGHT = r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratchpad|analysis|seed:think)"
_OPENS = re.compile(rf"<{_THOUGHT}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>", re.IGNORECASE)
_CLOSES = re.compile(rf"</{_THOUGHT}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>", re.IGNORECASE)
_CHANNEL = re.compile(r"<\|(?:channel|message|start|end|return|im_start|im_end)\|>[a-z]{0,20}")
_LIST_NAMES = (
    "findings issues comments problems defects bugs reviewcomments codereviewcomments remarks results"
    " diagnostics violations warnings errors vulnerabilities feedback reviews codereview"
    " issuesfound keyissuestoreview"
    " keyissues reviewfindings observations concerns annotations"
)
_LISTS = frozenset(_LIST_NAMES.split())
_READ = frozenset(("filesread", "filesreviewed", "reviewedfiles", "readfiles"))
_NONE = frozenset(("", "none", "null", "n/a", "no findings", "no issues", "no issues found", "empty", "[]"))
_AGAIN = re.compile(
    r"\b(?:final|finally|revis\w+|correct(?:ed|ion)|updat\w+|instead|actually|wait|on reflection|"
    r"re-?check\w*|after (?:checking|verif\w+|review\w+)|drop(?:ped|ping)?|remov(?:ed|ing))\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Reading:
    """The contents of an answer; `raw` has pairs (fields, fields of the objects around them)."""

    raw: list[tuple[object, Mapping[str, object]]] = field(default_factory=list)
    files_read: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    is_answer: bool = False  # it states findings, or that there are none
    is_json: bool = False
    is_cut: bool = False

    def add(self, later: Reading) -> None:
        self.raw += later.raw
        self.files_read += later.files_read
        self.seen += later.seen
        self.is_answer = self.is_answer or later.is_answer
        self.is_json = self.is_json or later.is_json
        self.is_cut = later.is_cut


def read_answer(text: str) -> Reading:
    """Return the contents of an answer of at most `answer.MAX_ANSWER_CHARS` characters."""
    text = text.strip("\ufeff\u200b \t\r\n")
    try:
        whole = json.loads(text, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, str) and whole.strip().startswith(("{", "[")):
        return read_answer(whole)  # encoded twice: each time it gets shorter
    if isinstance(whole, dict | list):
        found = _reading(whole)
        found.is_answer = found.is_answer or whole == []
        return found
    last = Reading()
    for block in without_reasoning(text):
        last = _read(block)
        if last.is_answer:
            break
    return last


def _read(text: str) -> Reading:
    found = _from_values(text)
    if not found.is_answer and '\\"' in text:
        again = _from_values(text.replace('\\"', '"').replace("\\n", "\n"))
        found = again if again.is_answer else found
    if not found.is_answer and "&quot;" in text:
        again = _from_values(html.unescape(text))
        found = again if again.is_answer else found
    if not found.is_answer or found.is_cut:
        raw = findings_in_text(text)
        if len(raw) > len(found.raw):
            return Reading([(finding, {}) for finding in raw], is_answer=True)
    return found


def without_reasoning(text: str) -> Iterator[str]:
    """Yield the answer proper: the text behind the reasoning, or all where that never ends."""
    message = text.rfind("<|message|>")
    if message >= 0:
        yield _CHANNEL.sub("", text[message:])
    closings = list(_CLOSES.finditer(text))
    if closings:
        yield text[closings[-1].end() :]
        if len(closings) > 1:
            yield text[closings[0].end() :]
    opening = _OPENS.search(text)
    if opening is None:
        # A mark of reasoning may stand in a quoted line.
        if not closings or _looks_like_json(text):
            yield text
    elif opening.start() > 200 or _looks_like_json(text):
        yield text
    elif not closings:
        yield text[opening.end() :]


def _looks_like_json(text: str) -> bool:
    return text.lstrip("` \njson").startswith(("{", "["))


def _from_values(text: str) -> Reading:
    """Combine the objects of a text: a later one continues an earlier one, or replaces it."""
    found, end = Reading(), 0
    for value, start, stop, is_cut in values_in(text, _is_known):
        later = _reading(value)
        later.is_cut = is_cut
        if not later.is_answer and not later.files_read:
            continue
        if (
            found.is_answer
            and later.is_answer
            and _replaces(later, found, text[max(end, start - 2000) : start])
        ):
            found = later
        else:
            found.add(later)
        end = stop
    return found


def _is_known(name: str) -> bool:
    letters = letters_of(name)
    return letters in _LISTS or letters in _READ or field_of(name) is not None


def _replaces(later: Reading, earlier: Reading, between: str) -> bool:
    if _AGAIN.search(between):
        return True
    if not later.raw:
        return not later.files_read or bool(set(later.files_read) & set(earlier.files_read))
    places = {_place(raw) for raw in earlier.raw}
    return any(_place(raw) in places for raw in later.raw)


def _place(entry: tuple[object, Mapping[str, object]]) -> object:
    raw, around = entry
    if not isinstance(raw, Mapping):
        return str(raw)[:500]
    fields = {field_of(name): str(value)[:500] for name, value in list(raw.items())[:60]}
    return fields.get("file", around.get("file")), fields.get("quote"), fields.get("line")


def _reading(value: object) -> Reading:
    found = Reading(is_json=True)
    _walk(value, {}, found, 0, is_list=isinstance(value, list) and bool(value))
    if isinstance(value, list) and not found.raw:
        found.is_answer = False
    return found


def _walk(
    value: object, around: Mapping[str, object], found: Reading, depth: int, is_list: bool = False
) -> None:
    """Collect raw findings. `is_list`: the value stands where findings are listed."""
    if depth > _MAX_DEPTH or len(found.raw) >= MAX_RAW_FINDINGS:
        return
    if isinstance(value, str):
        inner = _decoded(value)
        if inner is not None:
            _walk(inner, around, found, depth + 1, is_list)
        elif is_list and value.strip().casefold() not in _NONE:
            found.raw += [(raw, around) for raw in findings_in_text(value)] or [(value, around)]
    elif isinstance(value, list):
        for item in value[:_MAX_ITEMS]:
            _walk(item, around, found, depth + 1, is_list and isinstance(item, str | dict | list))
            if is_list and not isinstance(item, str | dict | list):
                found.raw.append((item, around))
    elif isinstance(value, dict):
        _walk_object(value, around, found, depth, is_list)


def _walk_object(
    value: dict[str, Any], around: Mapping[str, object], found: Reading, depth: int, is_list: bool
) -> None:
    if "properties" in value and "type" in value:
        return  # the schema, repeated
    lists = {name for name, inner in value.items() if letters_of(name) in _LISTS and _may_be_list(inner)}
    if is_like_a_finding(value) and not any(isinstance(value[name], list | dict) for name in lists):
        found.raw.append((value, around))
        found.is_answer = True
        return
    before = len(found.raw)
    stated = {
        field_of(n): v for n, v in value.items() if isinstance(v, str) and field_of(n) in ("file", "severity")
    }
    below = {**around, **{name: text for name, text in stated.items() if name is not None}}
    for name, inner in list(value.items())[:_MAX_ITEMS]:
        if letters_of(name) in _READ:
            found.files_read += [path for path in _items(inner) if isinstance(path, str)][:1000]
        elif letters_of(name) == "seen":
            found.seen += [word[:40] for word in _items(inner) if isinstance(word, str)][:_MAX_ITEMS]
        elif name in lists:
            found.is_answer = True
            _walk(inner, _with_name(name, below), found, depth + 1, is_list=True)
        elif isinstance(inner, list | dict | str):
            _walk(inner, _with_name(name, below), found, depth + 1)
    if is_list and len(found.raw) == before and not lists and not _is_keyed(value):
        found.raw.append((value, around))


def _may_be_list(value: object) -> bool:
    if isinstance(value, str):
        return _decoded(value) is not None or value.strip().casefold() in _NONE
    return not isinstance(value, int | float)


def _is_keyed(value: Mapping[str, object]) -> bool:
    """Return whether an object in the place of a list maps names to lists, as `{}` does."""
    return all(isinstance(inner, list) for inner in value.values())


def _with_name(name: str, around: Mapping[str, object]) -> Mapping[str, object]:
    """Add the file or the severity that a key states for all findings below it."""
    if re.fullmatch(r"[^\s{}]{1,1000}[/.][^\s{}]{0,200}\w", name) and not name.isdigit():
        return {**around, "file": name}
    severity = severity_in(name)
    return {**around, "severity": severity} if severity and letters_of(name) not in _LISTS else around


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else [value]


def _decoded(text: str) -> object | None:
    """Return the object or list that a string holds as JSON, or None."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict | list) else None
