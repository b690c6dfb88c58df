"""Reads YAML that others wrote into a tree with lines, within bounds (guarantee G440).

The parser's events are counted while they come, and the tree is built from them in a loop: no depth
ends the process, no alias multiplies anything, no tag makes an object.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from reviews.configuration import MAX_FILE_BYTES

MAX_NODES = 4_000  # the largest file that the table of keys has use for holds 3,000
MAX_DEPTH = 20
_MAX_TYPED_CHARS = 40  # a longer plain text is text
_MAX_SAID_CHARS = 10  # a longer number may be a secret
_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# libyaml's parser keeps its state on the heap. Only its composer overflows the stack, and it is not used.
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"


class Unreadable(Exception):
    """A file of which nothing can be used. `reason` repeats nothing of its text."""

    def __init__(self, reason: str, line: int = 0, column: int = 0, kind: str = "syntax") -> None:
        super().__init__(reason)
        self.reason, self.line, self.column, self.kind = reason, line, column, kind


@dataclass(frozen=True, slots=True)
class Misread:
    """A plain text that YAML reads as a number, but not one in plain digits, such as 1:30 (90)."""

    text: str


@dataclass(slots=True)
class Node:
    """A value with where it stands, counted from 1.

    `value`: text, bool, int, date, None or Misread; a list of nodes; or a dict of nodes.
    """

    value: object
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Slip:
    """A key that cannot be used; its `kind` is `duplicate`, or `wrong_type` if it is no text."""

    kind: str
    key: str
    line: int
    column: int


@dataclass(slots=True)
class Loaded:
    top: dict[str, Node]
    slips: list[Slip] = field(default_factory=list)


def load(raw: bytes) -> Loaded:
    """Return the mapping that a file holds; an empty file holds an empty one.

    Raises Unreadable, and nothing else.
    """
    if len(raw) > MAX_FILE_BYTES:
        raise Unreadable(f"the file is larger than {MAX_FILE_BYTES} bytes", kind="too_large")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("the file is not UTF-8") from None
    loaded = Loaded({})
    try:
        root = _tree(yaml.parse(text, _LOADER), loaded.slips)
    except yaml.MarkedYAMLError as error:
        line, column = _place(error.problem_mark or error.context_mark)
        is_tab = "\t" in "".join(text.splitlines()[line - 1 : line])[:column]
        reason = "indent with spaces: a tab is not allowed" if is_tab else "invalid YAML syntax"
        raise Unreadable(reason, line, column) from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise Unreadable("a character that YAML does not allow") from None
    if root is None or root.value is None:
        return loaded
    if not isinstance(root.value, dict):
        raise Unreadable("the file must be a mapping of keys to values", root.line, root.column)
    loaded.top = root.value
    return loaded


def _place(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)


@dataclass(slots=True)
class _Open:
    """A list or mapping that has not ended; `key` of a mapping waits for its value."""

    node: Node
    key: Node | None = None


def _tree(events: Iterator[yaml.Event], slips: list[Slip]) -> Node | None:
    """Return the root of a document.

    Raises Unreadable for an event that is refused, before a node is made of it.
    """
    root: Node | None = None
    stack: list[_Open] = []
    nodes = documents = 0
    for event in events:
        place = _place(event.start_mark)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise Unreadable("the file holds more than one document", *place)
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        nodes += 1
        _refuse(event, place, nodes)
        node = _node(event, place)
        if stack:
            _put(stack[-1], node, event, slips)
        else:
            root = node
        if isinstance(event, yaml.CollectionStartEvent):
            if len(stack) == MAX_DEPTH:
                raise Unreadable(f"the file is nested deeper than {MAX_DEPTH} levels", *place)
            stack.append(_Open(node))
    return root


def _refuse(event: yaml.NodeEvent, place: tuple[int, int], nodes: int) -> None:
    if nodes > MAX_NODES:
        raise Unreadable(f"the file has more than {MAX_NODES} values", *place)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise Unreadable("anchors and aliases are not supported", *place)
    if getattr(event, "tag", None) is not None:
        raise Unreadable("tags are not supported", *place)


def _node(event: yaml.NodeEvent, place: tuple[int, int]) -> Node:
    if isinstance(event, yaml.ScalarEvent):
        return Node(_typed(event.value) if event.implicit[0] else event.value, *place)
    return Node({} if isinstance(event, yaml.MappingStartEvent) else [], *place)


def _put(into: _Open, node: Node, event: yaml.NodeEvent, slips: list[Slip]) -> None:
    collection = into.node.value
    if isinstance(collection, list):
        collection.append(node)
        return
    assert isinstance(collection, dict)
    if into.key is None:
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
            raise Unreadable("merge keys are not supported", node.line, node.column)
        into.key = node
        return
    key, into.key = into.key, None
    if not isinstance(key.value, str):
        slips.append(Slip("wrong_type", in_words(key.value), key.line, key.column))
    elif key.value in collection:
        slips.append(Slip("duplicate", key.value, key.line, key.column))
    else:
        node.line, node.column = key.line, key.column
        collection[key.value] = node


def in_words(value: object) -> str:
    """Return words for a value: a short number as it stands, nothing else of the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "nothing"
    if isinstance(value, Misread):
        return f"{_short(value.text)}, which YAML reads as another number"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "text" if isinstance(value, str) else _short(str(value))


def _short(number: str) -> str:
    return number if len(number) <= _MAX_SAID_CHARS else "a long number"


def _typed(text: str) -> object:
    """Return the value of a plain scalar as YAML 1.1 reads it."""
    if len(text) > _MAX_TYPED_CHARS:
        return text
    tag = _tag_of(text)
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() in {"yes", "true", "on"}
    if tag == "int" and _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if tag in {"int", "float"}:
        return Misread(text)
    if tag == "timestamp" and _DATE.fullmatch(text):
        try:
            return datetime.date.fromisoformat(text)
        except ValueError:
            return text
    return text


def _tag_of(text: str) -> str:
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    for tag, pattern in resolvers.get(text[:1], []):
        if pattern.match(text):
            return str(tag).removeprefix(_TAG)
    return "str"
