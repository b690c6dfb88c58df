"""Outlines of source files: their definitions with names, lines and heads, by tree-sitter.

Pure functions over text. A file in another language, over the size limit or over its time has no
outline; callers then go by indentation (`sources.diffs`).
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from reviews.reviewers.grammars import GRAMMARS, language_of

MAX_BYTES = 1_000_000
SECONDS = 0.25  # of the processor, for one file
MAX_DEFINITIONS = 5_000
MAX_HEAD_CHARS = 200
MAX_HEAD_LINES = 8
_PIECE_BYTES = 65_536
_MAX_DEPTH = 500  # of definitions: beyond 32,768 levels, the cursor's time is their square
_MAX_STEPS = 50  # to other nodes from one definition: each step costs what its parent holds
_MEMORY_BYTES, _MEMORY_A_BYTE = 32_000_000, 64  # what the parser may take


class Kind(StrEnum):
    FUNCTION = "function"
    TYPE = "type"  # classes, structs, namespaces, modules
    VALUE = "value"  # constants, fields, aliases


@dataclass(frozen=True, slots=True)
class Definition:
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


# What names a definition, from its own field inward: `*name(int x)` of C is three nodes deep.
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
    language = language_of(path)
    data = text.encode(errors="replace") if language is not None and len(text) <= MAX_BYTES else b""
    if language is None or not data or len(data) > MAX_BYTES:
        return None
    _check_memory(_MEMORY_BYTES + _MEMORY_A_BYTE * len(data))
    end = time.thread_time() + seconds
    parser, query = _tools(language)
    try:
        tree = parser.parse(
            lambda offset, _: data[offset : offset + _PIECE_BYTES],
            progress_callback=lambda *_: time.thread_time() > end,
        )
    except ValueError:  # cancelled
        parser.reset()
        return None
    found: list[Definition] = []
    # Without its progress callback, which crashes (0.26.1); simple patterns cost less than the parser.
    cursor = QueryCursor(query)
    cursor.set_max_start_depth(_MAX_DEPTH)
    nodes = cursor.captures(tree.root_node)
    inside = _lines_of(nodes.get(Kind.FUNCTION, []))
    for kind in Kind:
        for node in sorted(nodes.get(kind, []), key=lambda node: node.start_byte):
            if len(found) >= MAX_DEFINITIONS or time.thread_time() > end:
                return None
            is_local = kind is Kind.VALUE and node.start_point.row in inside
            if not is_local or node.type in _MAY_BE_FUNCTIONS:
                made = [one for one in _definitions(node, kind) if not is_local or one.kind is not kind]
                found += made
                if kind is Kind.VALUE and made and made[0].kind is Kind.FUNCTION:
                    inside.update(range(node.start_point.row + 1, node.end_point.row + 1))
    found.sort(key=lambda d: (d.first, -d.last, d.name))
    return tuple(found)


def _check_memory(size: int) -> None:
    """Raise MemoryError unless so many bytes can be had: where they end, the parser crashes."""
    try:
        mmap.mmap(-1, size).close()
    except OSError:
        raise MemoryError from None


def _lines_of(functions: Sequence[Node]) -> set[int]:
    """Return the numbers of the lines behind the first one of each function."""
    lines: set[int] = set()
    for node in functions:
        first, last = node.start_point.row + 1, node.end_point.row
        if last not in lines or first not in lines:
            lines.update(range(first, last + 1))
    return lines


def enclosing(definitions: Sequence[Definition], line: int) -> list[Definition]:
    """Return the functions and types around a line, the outermost first."""
    return [definition for definition in definitions if definition.holds(line)]


def section_of(definitions: Sequence[Definition], lines: Sequence[str], line: int) -> str:
    """Return the heads of the definitions around a line that begin above it, on one line.

    A head that is too long for a line is named only. Heads are never cut: half of a secret is
    none to the rules that take secrets out.
    """
    around = [definition for definition in enclosing(definitions, line) if definition.head < line]
    return " > ".join(_head(definition, lines) for definition in around[-MAX_HEAD_LINES:])


def _head(definition: Definition, lines: Sequence[str]) -> str:
    last = min(definition.body, definition.head + MAX_HEAD_LINES)
    text = " ".join(line.strip() for line in lines[definition.head - 1 : last])
    if len(text) > MAX_HEAD_CHARS:
        text = lines[definition.head - 1].strip()
    return text if len(text) <= MAX_HEAD_CHARS else f"{definition.kind} {definition.name}"


@cache
def _tools(language: str) -> tuple[Parser, Query]:
    grammar = GRAMMARS[language]
    loaded = Language(getattr(import_module(grammar.module), grammar.entry)())
    patterns = [
        f"({node}) @{kind}"
        for kind, nodes in (
            (Kind.FUNCTION, grammar.functions),
            (Kind.TYPE, grammar.types),
            (Kind.VALUE, grammar.values),
        )
        for node in nodes.split()
    ]
    return Parser(loaded), Query(loaded, "\n".join(patterns))


def _definitions(node: Node, kind: Kind) -> Iterator[Definition]:
    """Yield what a node defines: a field of Java may declare several names."""
    body = node.child_by_field_name("body")
    if kind is Kind.TYPE and body is None and node.type.endswith("_specifier"):
        return  # `struct point p;` uses a type
    value = node.child_by_field_name("value") if node.type in _MAY_BE_FUNCTIONS else None
    if value is not None and value.type in _CALLABLE:
        kind, body = Kind.FUNCTION, value.child_by_field_name("body")
    elif node.type == "pair":
        return
    named = [name for name in map(_name, _declarators(node)) if name is not None]
    for name in named[:20]:
        text = (name.text or b"").decode(errors="replace")
        ends_before = node.end_point.column == 0  # a definition of the C preprocessor
        first, last = (
            node.start_point.row + 1,
            max(node.end_point.row + 1 - ends_before, node.start_point.row + 1),
        )
        head = name.start_point.row + 1
        signature = body.start_point.row + 1 if body is not None else head
        if body is not None and signature > head and not _opens(body):
            signature -= 1  # the body of Python begins on its own line
        yield Definition(text, kind, first, head, max(head, min(signature, last)), last, _comment(node))


def _comment(node: Node) -> int:
    """Return the first line of the comment above a definition, or of what it is written in."""
    for _ in range(_MAX_STEPS):
        outer = node.parent
        if outer is None or outer.parent is None:
            break
        if outer.start_point.row != node.start_point.row and outer.type != "decorated_definition":
            break
        node = outer
    for _ in range(_MAX_STEPS):
        above = node.prev_sibling
        if above is None or not above.type.endswith(("comment", "attribute_item")):
            break
        before = above.prev_sibling
        if above.end_point.row - (above.end_point.column == 0) != node.start_point.row - 1 or (
            before is not None and before.end_point.row == above.start_point.row and before.end_point.column
        ):
            break  # it belongs to what stands above it
        node = above
    return node.start_point.row + 1


def _opens(body: Node) -> bool:
    return bool(body.child_count) and body.children[0].type == "{"


def _declarators(node: Node) -> list[Node]:
    several = node.children_by_field_name("declarator")
    if not several and node.type in ("field_declaration", "property_declaration"):
        several = [child for child in node.named_children if child.type == "variable_declaration"]
        several = [
            inner for one in several for inner in one.named_children if inner.type == "variable_declarator"
        ]
    return several if len(several) > 0 and node.type != "variable_declarator" else [node]


def _name(node: Node) -> Node | None:
    for _ in range(8):
        if node.type in _WORDS and not (node.type == "name" and node.named_child_count):
            return node
        inner = next(filter(None, map(node.child_by_field_name, _NAME_FIELDS)), None)
        if inner is None:
            inner = next((child for child in node.named_children if child.type in _WORDS), None)
        if inner is None:
            inner = next((child for child in node.named_children if "declarator" in child.type), None)
        if inner is None:
            return None
        node = inner
    return None
