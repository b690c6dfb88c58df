"""Types of values in `.criticizer.yml`, each with its reader and its JSON Schema."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import re2

from criticizer.redaction import clean
from reviews.configuration import MAX_FILE_BYTES, globs
from reviews.configuration.loading import Misread, Node, in_words
from reviews.configuration.wording import is_quotable, quoted
from reviews.reviewers.checks import OPTIONAL_CHECKS

MAX_GLOBS, MAX_RULES, MAX_PATTERN_CHARS, MAX_TEXT_CHARS = 100, 200, 500, 200
_PATTERN_MEMORY = 1 << 15  # bytes of one expression, which bound the time that 200 of them take
_MOST_FAULTS = 20
_CATEGORY = re.compile(r"[a-z][a-z_-]{0,31}")


@dataclass
class Invalid(Exception):
    """Raised for a value that cannot be used; `reason` quotes short words of it at most."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """An entry of a list that cannot be used, while the others can; `number` counts from 1."""

    number: int
    line: int
    column: int
    kind: str
    reason: str


def _wrong_type(expected: str, value: object) -> Invalid:
    hint = "" if isinstance(value, str | list | dict) else "; quote it if text was meant"
    is_text = expected.startswith(("one of", "text"))
    note = hint if is_text or isinstance(value, Misread) else ""
    return Invalid("wrong_type", f"expected {expected}, got {quoted(value)}{note}")


class Kind(Protocol):
    """A type of values."""

    @property
    def accepts(self) -> str: ...

    def read(self, node: Node, dropped: list[Dropped]) -> Any:
        """Return the value as JSON has it, and add entries that are left out to `dropped`.

        Raises Invalid where nothing of the value can be used.
        """
        ...

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        ...


@dataclass(frozen=True, slots=True)
class Boolean:
    accepts: str = "true or false"

    def read(self, node: Node, dropped: list[Dropped]) -> bool:
        if not isinstance(node.value, bool):
            raise _wrong_type(self.accepts, node.value)
        return node.value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Whole:
    low: int
    high: int

    @property
    def accepts(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, node: Node, dropped: list[Dropped]) -> int:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(self.accepts, value)
        if value > self.high:
            raise Invalid("out_of_range", f"{in_words(value)} exceeds maximum of {self.high}")
        if value < self.low:
            raise Invalid("out_of_range", f"{in_words(value)} is below minimum of {self.low}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Choice:
    choices: tuple[str, ...]

    @property
    def accepts(self) -> str:
        return f"one of: {', '.join(self.choices)}"

    def read(self, node: Node, dropped: list[Dropped]) -> str:
        value = node.value
        if not isinstance(value, str):
            raise _wrong_type(self.accepts, value)
        if value not in self.choices:
            what = f'"{value}"' if is_quotable(value) else "the text"
            raise Invalid("not_a_choice", f"{what} is not one of: {', '.join(self.choices)}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.choices)}


@dataclass(frozen=True, slots=True)
class GlobList:
    is_empty_allowed: bool = True

    @property
    def accepts(self) -> str:
        return f"a list of at most {MAX_GLOBS} globs"

    def read(self, node: Node, dropped: list[Dropped]) -> list[str]:
        found = []
        for number, entry in _entries(node, self.accepts, MAX_GLOBS, dropped):
            try:
                found.append(_text(entry, globs.MAX_CHARS, globs.fault_of))
            except Invalid as fault:
                dropped.append(Dropped(number, entry.line, entry.column, fault.kind, fault.reason))
        if not found and not dropped and not self.is_empty_allowed:
            raise Invalid("out_of_range", "the list is empty")
        return found

    def schema(self) -> dict[str, Any]:
        items = {"type": "string", "minLength": 1, "maxLength": globs.MAX_CHARS}
        least = {} if self.is_empty_allowed else {"minItems": 1}
        return {"type": "array", "items": items, "maxItems": MAX_GLOBS, **least}


@dataclass(frozen=True, slots=True)
class RuleList:
    """The type of `suppress`: a list of rules."""

    @property
    def accepts(self) -> str:
        return f"a list of at most {MAX_RULES} rules"

    def read(self, node: Node, dropped: list[Dropped]) -> list[dict[str, str]]:
        found = []
        for number, entry in _entries(node, self.accepts, MAX_RULES, dropped):
            try:
                if len(dropped) >= _MOST_FAULTS:
                    raise Invalid("bad_pattern", f"not read, as {_MOST_FAULTS} rules before it are invalid")
                found.append(_rule(entry))
            except Invalid as fault:
                dropped.append(Dropped(number, entry.line, entry.column, fault.kind, fault.reason))
        return found

    def schema(self) -> dict[str, Any]:
        return {
            "type": "array",
            "maxItems": MAX_RULES,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {name: {"type": "string", "description": doc} for name, doc in FIELDS.items()},
                "anyOf": [{"required": [name]} for name in MATCHED],
            },
        }


MATCHED = ("file", "check", "category", "pattern")
FIELDS = {
    "file": "Glob of the finding's file.",
    "check": "Name of the check that reports it, or `llm`.",
    "category": "Category of the finding, such as `style`.",
    "pattern": f"RE2 expression, at most {MAX_PATTERN_CHARS} characters, found in title or message.",
    "until": "Last day on which the rule holds, such as `2027-01-31`.",
    "reason": "Why, for people.",
}


def _entries(node: Node, accepts: str, most: int, dropped: list[Dropped]) -> list[tuple[int, Node]]:
    """Return the entries with their numbers.

    Those that may not be stored in plain text go to `dropped` (G443). Raises Invalid.
    """
    if not isinstance(node.value, list):
        raise _wrong_type(accepts, node.value)
    if len(node.value) > most:
        raise Invalid("out_of_range", f"{len(node.value)} entries exceed maximum of {most}")
    # All texts are cleaned in one call: a call for each entry would take too long.
    texts = [" ".join(_texts(entry)).replace("\n", " ") for entry in node.value]
    cleaned = clean("\n".join(texts), 2 * MAX_FILE_BYTES).split("\n")
    found = []
    for number, (entry, text) in enumerate(zip(node.value, texts, strict=True), start=1):
        if len(cleaned) == len(texts) and cleaned[number - 1] == text:
            found.append((number, entry))
        else:
            reason = "a secret, or a character that cannot be stored, is in it"
            dropped.append(Dropped(number, entry.line, entry.column, "secret", reason))
    return found


def _texts(node: Node) -> Iterator[str]:
    """Return the texts of an entry that would be stored."""
    values = node.value.values() if isinstance(node.value, dict) else [node]
    return (each.value for each in values if isinstance(each.value, str))


def _text(node: Node, most: int, fault_of: Callable[[str], str] = lambda text: "") -> str:
    if not isinstance(node.value, str):
        raise _wrong_type("text", node.value)
    if len(node.value) > most:
        raise Invalid("out_of_range", f"text of {len(node.value)} characters exceeds maximum of {most}")
    if fault := fault_of(node.value):
        raise Invalid("bad_pattern", fault)
    return node.value


def _rule(node: Node) -> dict[str, str]:
    """Return one rule.

    Raises Invalid for any fault: a rule that lost a condition would hide more.
    """
    if not isinstance(node.value, dict):
        raise _wrong_type("a mapping", node.value)
    rule: dict[str, str] = {}
    for name, entry in node.value.items():
        if name not in FIELDS:
            raise Invalid("unknown_key", f"expected only {', '.join(FIELDS)}")
        if entry.value is not None:
            rule[name] = _READERS[name](entry)
    if not any(name in rule for name in MATCHED):
        raise Invalid("wrong_type", f"expected at least one of {', '.join(MATCHED)}")
    return rule


def _pattern(node: Node) -> str:
    return _text(node, MAX_PATTERN_CHARS, _pattern_fault)


def _pattern_fault(text: str) -> str:
    try:
        compiled(text)
    except re2.error:
        return "invalid regex pattern: too large, or with look-around or back-references"
    return ""


def compiled(pattern: str) -> re2._Regexp:
    """Return the expression of a rule's pattern. Raises re2.error."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    return re2.compile(pattern, options)


def _until(node: Node) -> str:
    if isinstance(node.value, datetime.date):
        return node.value.isoformat()
    try:
        return datetime.date.fromisoformat(_text(node, 10)).isoformat()
    except ValueError:
        raise Invalid("wrong_type", "expected a date such as 2027-01-31 in `until`") from None


def _check(node: Node) -> str:
    return Choice(("llm", *OPTIONAL_CHECKS)).read(node, [])


def _category(node: Node) -> str:
    return _text(
        node, 32, lambda text: "" if _CATEGORY.fullmatch(text) else "expected a category in lower case"
    )


_READERS: Mapping[str, Callable[[Node], str]] = {
    "file": lambda node: _text(node, globs.MAX_CHARS, globs.fault_of),
    "check": _check,
    "category": _category,
    "pattern": _pattern,
    "until": _until,
    "reason": lambda node: _text(node, MAX_TEXT_CHARS),
}
