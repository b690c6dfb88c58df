"""Outlines of source files: their definitions with names, lines and heads, by tree-sitter.

Pure functions over text. A file in another language, over the size limit or over its time has no
outline; callers then go by indentation (`sources.diffs`).
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
from itertools import cycle
from typing import NamedTuple

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from reviews.reviewers.grammars import GRAMMARS, language_of

MAX_BYTES = 1_000_000
SECONDS = 0.25  # of the processor, for one file
MAX_DEFINITIONS = 5_000
MAX_HEAD_CHARS = 200
MAX_HEAD_LINES = 8
_PIECE_BYTES = 65_536
_MAX_DEPTH = 500  # of definitions: beyond 32,768 levels, the cursor's time is their square
_MAX_TOKENS = 10_000  # in a row, of a file that is no program: the cursor's time is their square
_TICKS = 32  # steps between two looks at the clock
MAX_NAMES = 20  # of one declaration
# Nodes right above a definition that belong to it.
_ABOVE = ("comment", "line_comment", "block_comment", "decorator", "attribute_item")
_MEMORY_BYTES, _MEMORY_A_BYTE = 32_000_000, 64  # what the parser may take


class Kind(StrEnum):
    FUNCTION = "function"
    TYPE = "type"  # classes, structs, namespaces, modules
    VALUE = "value"  # constants, fields, aliases


class Definition(NamedTuple):  # made thousands of times for a file: a dataclass costs thrice as much
    """One definition of a file. Lines count from 1; `head` to `body` is its signature.

    `first` may be above `head`: annotations and attributes belong to a definition. `comment` is the
    first line of the comment right above it, or `first`.
    """

    name: str
    kind: Kind
    first: int
    head: int
    body: int
    last: int
    comment: int = 0

    def holds(self, line: int) -> bool:
        return self.kind is not Kind.VALUE and self.head <= line <= self.last


# Fields that name a definition, from its own one inward: `*name(int x)` of C is three nodes deep.
_NAME_FIELDS = ("name", "declarator", "left", "property", "key", "type")
_CALLABLE = frozenset(("arrow_function", "function_expression", "function", "generator_function", "class"))
_MAY_BE_FUNCTIONS = frozenset(("variable_declarator", "pair", "field_definition", "public_field_definition"))
_WORDS = frozenset(
    (
        *("identifier", "type_identifier", "field_identifier", "property_identifier", "constant", "name"),
        *("private_property_identifier", "namespace_identifier", "destructor_name", "operator_name"),
        *("setter", "global_variable", "instance_variable", "variable_name", "package_identifier"),
    )
)


def outline(path: str, text: str, seconds: float = SECONDS) -> tuple[Definition, ...] | None:
    """Return the definitions of a file in the order of their lines, or None without an outline.

    Constants and fields count, local variables do not. Given up after `seconds` of the processor.
    Raises MemoryError.
    """
    language = language_of(path, text)
    data = text.encode(errors="replace") if language is not None and len(text) <= MAX_BYTES else b""
    if language is None or not data or len(data) > MAX_BYTES:
        return None
    _check_memory(_MEMORY_BYTES + _MEMORY_A_BYTE * len(data))
    end = time.thread_time() + seconds
    parser, query, fields = _tools(language)
    is_due = cycle((*[False] * (_TICKS - 1), True)).__next__  # asked hundreds of times for each file
    try:
        tree = parser.parse(
            lambda offset, _: data[offset : offset + _PIECE_BYTES],
            progress_callback=lambda _, __: is_due() and time.thread_time() > end,
        )
    except ValueError:  # cancelled
        parser.reset()
        return None
    if tree.root_node.type == "ERROR" and tree.root_node.child_count > _MAX_TOKENS:
        return None
    # Without its progress callback, which crashes (0.26.1); simple patterns cost less than the parser.
    cursor = QueryCursor(query)
    cursor.set_max_start_depth(_MAX_DEPTH)
    nodes = cursor.captures(tree.root_node)
    found: list[Definition] = []
    inside = _lines_of(nodes.get(Kind.FUNCTION, []))
    above = _lines_above(nodes, data)
    for kind in Kind:
        for number, node in enumerate(sorted(nodes.get(kind, []), key=lambda node: node.start_byte)):
            if number % _TICKS == 0 and (len(found) >= MAX_DEFINITIONS or time.thread_time() > end):
                return None
            is_local = kind is Kind.VALUE and node.start_point.row in inside
            if not is_local or node.type in _MAY_BE_FUNCTIONS:
                made = _definitions(node, kind, data, above, fields)
                found += [one for one in made if one.kind is not kind] if is_local else made
                if kind is Kind.VALUE and made and made[0].kind is Kind.FUNCTION:
                    inside.update(range(node.start_point.row + 1, node.end_point.row + 1))
    found.sort(key=lambda d: (d.first, -d.last, d.name))
    return tuple(found) if len(found) < MAX_DEFINITIONS else None


def _check_memory(size: int) -> None:
    """Raise MemoryError unless `size` bytes can be had: without memory the parser crashes."""
    try:
        mmap.mmap(-1, size).close()
    except OSError:
        raise MemoryError from None


def _lines_of(functions: Sequence[Node]) -> set[int]:
    """Return the numbers of the lines behind the first one of each function."""
    lines: set[int] = set()
    outer = -1
    for first, last in sorted((node.start_point.row + 1, node.end_point.row) for node in functions):
        if last > outer:
            lines.update(range(max(first, outer + 1), last + 1))
            outer = last
    return lines


def enclosing(definitions: Sequence[Definition], line: int) -> list[Definition]:
    """Return the functions and types around a line, the outermost first."""
    # As `holds`, written out: a file has thousands, and each of its definitions may be asked about.
    return [
        definition
        for definition in definitions
        if definition.last >= line and definition.head <= line and definition.kind is not Kind.VALUE
    ]


def section_of(definitions: Sequence[Definition], lines: Sequence[str], line: int) -> str:
    """Return the heads of the definitions around a line that begin above it, on one line.

    Of a head that is too long for a line only kind and name are given. Heads are never cut: the rules that
    take out secrets do not recognise half of one.
    """
    around = [definition for definition in enclosing(definitions, line) if definition.head < line]
    return " > ".join(_head(definition, lines) for definition in around[-MAX_HEAD_LINES:])


def _head(definition: Definition, lines: Sequence[str]) -> str:
    last = min(definition.body, definition.head + MAX_HEAD_LINES)
    text = " ".join(line.strip() for line in lines[definition.head - 1 : last])
    if len(text) > MAX_HEAD_CHARS:
        text = lines[definition.head - 1].strip()
    return text if len(text) <= MAX_HEAD_CHARS else f"{definition.kind} {definition.name}"


def _lines_above(nodes: Mapping[str, Sequence[Node]], data: bytes) -> dict[int, int]:
    """Map the last line of each comment or decorator alone on its lines to its first line.

    Found in the text itself: a step from a node to its parent or neighbour costs as much as that node holds.
    """
    lines = {}
    for node in nodes.get("above", []):
        start, end = node.start_point, node.end_point
        before = data[node.start_byte - start.column : node.start_byte]
        if not before or before.isspace():
            lines[end.row + (end.column > 0)] = start.row + 1
    return lines


@cache
def _tools(language: str) -> tuple[Parser, Query, Mapping[str, int]]:
    """Return a language's parser, the query for its definitions, and its `_NAME_FIELDS`."""
    grammar = GRAMMARS[language]
    loaded = Language(getattr(import_module(grammar.module), grammar.entry)())
    captured = {
        Kind.FUNCTION: grammar.functions,
        Kind.TYPE: grammar.types,
        Kind.VALUE: grammar.values,
        "above": " ".join(name for name in _ABOVE if loaded.id_for_node_kind(name, True)),
    }
    patterns = [
        f"[{' '.join(f'({name})' for name in names.split())}] @{kind}" for kind, names in captured.items()
    ]
    fields = {name: id_ for name in _NAME_FIELDS if (id_ := loaded.field_id_for_name(name)) is not None}
    return Parser(loaded), Query(loaded, "\n".join(patterns)), fields


def _definitions(
    node: Node, kind: Kind, data: bytes, above: Mapping[int, int], fields: Mapping[str, int]
) -> list[Definition]:
    """Return the definitions of a node: a field of Java may declare several names."""
    type_ = node.type
    body = node.child_by_field_name("body") if kind is not Kind.VALUE else None
    if kind is Kind.TYPE and body is None and type_.endswith("_specifier"):
        return []  # `struct point p;` uses a type
    if type_ in _MAY_BE_FUNCTIONS:
        value = node.child_by_field_name("value")
        if value is not None and value.type in _CALLABLE:
            kind, body = Kind.FUNCTION, value.child_by_field_name("body")
        elif type_ == "pair":
            return []
    start, end = node.start_point, node.end_point
    first = comment = start.row + 1
    last = max(end.row + (end.column > 0), first)  # a definition of the C preprocessor ends a line later
    while comment - 1 in above:
        comment = above[comment - 1]
    found = []
    for name in _names(node, type_, tuple(fields.values()), fields.get("declarator")):
        # Not `name.text`, which copies a whole piece of the file.
        text = data[name.start_byte : name.end_byte].decode(errors="replace")
        head = name.start_point.row + 1
        signature = body.start_point.row + 1 if body is not None else head
        if body is not None and signature > head and not _opens(body):
            signature -= 1  # the body of Python begins on its own line
        found.append(Definition(text, kind, first, head, max(head, min(signature, last)), last, comment))
    return found


def _opens(body: Node) -> bool:
    first = body.child(0) if body.child_count else None  # not `children`, which makes all of them
    return first is not None and first.type == "{"


def _names(node: Node, type_: str, fields: Sequence[int], declarator: int | None) -> list[Node]:
    name = node.child_by_field_name("name")
    if name is not None and name.type in _WORDS and not name.named_child_count:
        return [name]
    several = node.children_by_field_id(declarator) if declarator is not None else []
    if not several and type_ in ("field_declaration", "property_declaration"):
        several = [
            inner
            for child in node.named_children
            if child.type == "variable_declaration"
            for inner in child.named_children
            if inner.type == "variable_declarator"
        ]
    return [name for one in several or [node] if (name := _name(one, fields)) is not None][:MAX_NAMES]


def _name(node: Node, fields: Sequence[int]) -> Node | None:
    for _ in range(8):
        type_ = node.type
        if type_ in _WORDS and not (type_ == "name" and node.named_child_count):
            return node
        inner = next(filter(None, map(node.child_by_field_id, fields)), None)
        if inner is None:
            inner = next((child for child in node.named_children if child.type in _WORDS), None)
        if inner is None:
            inner = next((child for child in node.named_children if "declarator" in child.type), None)
        if inner is None:
            return None
        node = inner
    return None
